/* pairs.c -- sentences and their translations, from two files or from a table of two
 * columns.
 *
 * A source is its tokens and <eos>, a target <bos>, its tokens and <eos>.
 */
#include <string.h>

#include "data/data.h"

static foci_status open_pairs(foci_data *d)
{
    const foci_tokenizer *target =
        d->o.target_tokenizer ? d->o.target_tokenizer : d->o.tokenizer;
    static const char *const ends = "ends a sentence";

    TRY(encoder_open(d, 0, target));
    TRY(encoder_open(d, 1, d->o.tokenizer));
    TRY(special_take(d, 0, FOCI_SPECIAL_EOS, FOCI_SPECIAL_BOS, ends, &d->eos[0]));
    TRY(special_take(d, 1, FOCI_SPECIAL_EOS, FOCI_SPECIAL_BOS, ends, &d->eos[1]));
    TRY(special_take(d, 0, FOCI_SPECIAL_BOS, FOCI_SPECIAL_EOS,
                     "the first token of a target is predicted from", &d->bos));
    d->lines[0].header = !d->lines[1].reader.read;
    return part_open(d);
}

/* The two sides of a line "SOURCE<TAB>TARGET". */
static foci_status split(foci_data *d, const struct data_line *line)
{
    const char *tab = memchr(line->text, '\t', (size_t)line->bytes);
    const char *end = line->text + line->bytes;
    const int   first = d->o.reverse ? 0 : 1;

    if (!tab)
        return lines_fail(&d->lines[0], line,
                          "has no tab; every line is SOURCE<TAB>TARGET");
    if (memchr(tab + 1, '\t', (size_t)(end - tab - 1)))
        return lines_fail(&d->lines[0], line,
                          "has more than one tab; every line is SOURCE<TAB>TARGET");
    TRY(chunk_add(d, first, line->text, tab - line->text));
    return chunk_add(d, !first, tab + 1, end - tab - 1);
}

/* The same line of both files. */
static foci_status join(foci_data *d, const struct data_line *line)
{
    struct data_line other;

    /* Lines of the target before the part that is used go with those of the source. */
    do {
        TRY(part_next(d, 1, false, &other));
        if (!other.text)
            return lines_fail(
                &d->lines[1], NULL,
                "ends after %lld lines, but %s has more; line by line one "
                "is the translation of the other",
                (long long)other.number, d->lines[0].name);
    } while (other.number < line->number);
    TRY(chunk_add(d, 1, line->text, line->bytes));
    return chunk_add(d, 0, other.text, other.bytes);
}

static foci_status gather(foci_data *d)
{
    bool more;

    chunk_clear(d);
    TRY(part_more(d, 0, &more));
    while (more && !chunk_full(d)) {
        struct data_line line;
        TRY(part_next(d, 0, false, &line));
        if (!line.text) break;
        TRY(d->lines[1].reader.read ? join(d, &line) : split(d, &line));
        TRY(chunk_close(d, 0, line.number, true, 0));
        TRY(chunk_close(d, 1, line.number, true, 0));
        TRY(part_more(d, 0, &more));
    }
    d->block.last = !more;
    if (more || !d->lines[1].reader.read || d->part[1] < INT64_MAX || d->o.examples)
        return FOCI_OK;
    TRY(part_more(d, 1, &more));
    if (more)
        return lines_fail(&d->lines[0], NULL,
                          "ends after %lld lines, but %s has more; line by line one is "
                          "the translation of the other",
                          (long long)d->lines[0].number, d->lines[1].name);
    return FOCI_OK;
}

/* How many of the n tokens of a side are kept, of which `most` have room. */
static int64_t keep(int64_t n, int64_t most, bool *cut)
{
    *cut |= n > most;
    return min64(n, most);
}

/* A target that is cut has no end: a model should not learn to stop there. */
static foci_status store_pair(foci_data *d, int64_t i)
{
    struct store  *s = &d->store;
    int64_t        n[2];
    const int32_t *ids[2] = { chunk_ids(d, 0, i, &n[0]), chunk_ids(d, 1, i, &n[1]) };
    bool           cut = false;
    struct example e = { .begin = { s->ids[0].n, s->ids[1].n },
                         .number = VEC(int64_t, &d->chunk[0].numbers, i) };
    const int64_t  target = keep(n[0] + 1, d->o.len, &cut);
    const int64_t  source = keep(n[1], d->o.source_len - 1, &cut);

    if (cut && d->o.too_long == FOCI_DATA_LONG_DROP) {
        d->seen.dropped++;
        return FOCI_OK;
    }
    d->seen.cut += cut;
    e.n[0] = (int32_t)target;
    e.n[1] = (int32_t)source + 1;
    TRY(VEC_ADD(d->ctx, &s->ids[0], &d->bos, 1));
    TRY(VEC_ADD(d->ctx, &s->ids[0], ids[0], min64(n[0], target)));
    if (target > n[0]) TRY(VEC_ADD(d->ctx, &s->ids[0], &d->eos[0], 1));
    TRY(VEC_ADD(d->ctx, &s->ids[1], ids[1], source));
    TRY(VEC_ADD(d->ctx, &s->ids[1], &d->eos[1], 1));
    d->seen.tokens += target + source + 1;
    return VEC_ADD(d->ctx, &s->examples, &e, 1);
}

static foci_status pairs_fill(foci_data *d)
{
    store_clear(d);
    do {
        TRY(gather(d));
        TRY(chunk_encode(d, 0));
        TRY(chunk_encode(d, 1));
        for (int64_t i = 0; i < chunk_n(d, 0); i++)
            TRY(store_pair(d, i));
    } while (!d->block.last && !store_full(d));
    return FOCI_OK;
}

const struct supply supply_pairs = {
    .open = open_pairs,
    .fill = pairs_fill,
    .rewind = lines_supply_rewind,
    .skip = lines_supply_skip,
};
