/* labelled.c -- texts with a label in front: LABEL<TAB>TEXT.
 *
 * A text is <bos>, where the tokenizer has one, and its tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "data/classes.h"
#include "data/data.h"

/* The two parts of a line. */
static foci_status split(foci_data *d, const struct data_line *line, foci_string *label,
                         foci_string *text)
{
    const char *tab = memchr(line->text, '\t', (size_t)line->bytes);

    if (!tab || tab == line->text)
        return lines_fail(&d->lines[0], line, "has no %s; every line is LABEL<TAB>TEXT",
                          tab ? "label before its tab" : "tab");
    *label = (foci_string){ line->text, tab - line->text };
    *text = (foci_string){ tab + 1, line->text + line->bytes - tab - 1 };
    return FOCI_OK;
}

/* All labels that the part of the file that is used has. */
static foci_status collect(foci_data *d)
{
    bool more;

    TRY(part_more(d, 0, &more));
    while (more) {
        struct data_line line = { 0 };
        foci_string      label = { 0 }, text = { 0 };
        TRY(part_next(d, 0, false, &line));
        if (!line.text) break;
        TRY(split(d, &line, &label, &text));
        TRY(classes_add(d, &line, label));
        TRY(part_more(d, 0, &more));
    }
    TRY(classes_number_all(d));
    d->block.taken = 0;
    return lines_rewind(&d->lines[0]);
}

static foci_status open_labelled(foci_data *d)
{
    TRY(encoder_open(d, 0, d->o.tokenizer));
    d->bos = foci_tokenizer_special(d->tokenizer[0], FOCI_SPECIAL_BOS);
    d->lines[0].header = true;
    TRY(part_open(d));
    return d->o.classes ? classes_take(d) : collect(d);
}

static foci_status gather(foci_data *d)
{
    bool more;

    chunk_clear(d);
    TRY(part_more(d, 0, &more));
    while (more && !chunk_full(d)) {
        struct data_line line = { 0 };
        foci_string      label = { 0 }, text = { 0 };
        int32_t          answer;
        TRY(part_next(d, 0, false, &line));
        if (!line.text) break;
        TRY(split(d, &line, &label, &text));
        TRY(classes_find(d, &line, label, &answer));
        if (!text.bytes && d->bos < 0)
            return lines_fail(
                &d->lines[0], &line,
                "has no text behind its label, and the tokenizer no <bos> "
                "to stand for it");
        TRY(chunk_add(d, 0, text.text, text.bytes));
        TRY(chunk_close(d, 0, line.number, true, answer));
        TRY(part_more(d, 0, &more));
    }
    d->block.last = !more;
    return FOCI_OK;
}

static foci_status store_text(foci_data *d, int64_t i)
{
    struct store  *s = &d->store;
    int64_t        n;
    const int32_t *ids = chunk_ids(d, 0, i, &n);
    const bool     bos = d->bos >= 0;
    const int64_t  kept = min64(n, d->o.len - bos);
    struct example e = { .begin[0] = s->ids[0].n,
                         .n[0] = (int32_t)kept + bos,
                         .answer = VEC(int32_t, &d->chunk[0].answers, i),
                         .number = VEC(int64_t, &d->chunk[0].numbers, i) };

    if (kept < n && d->o.too_long == FOCI_DATA_LONG_DROP) {
        d->seen.dropped++;
        return FOCI_OK;
    }
    d->seen.cut += kept < n;
    d->seen.tokens += e.n[0];
    if (bos) TRY(VEC_ADD(d->ctx, &s->ids[0], &d->bos, 1));
    TRY(VEC_ADD(d->ctx, &s->ids[0], ids, kept));
    return VEC_ADD(d->ctx, &s->examples, &e, 1);
}

static foci_status labelled_fill(foci_data *d)
{
    store_clear(d);
    do {
        TRY(gather(d));
        TRY(chunk_encode(d, 0));
        for (int64_t i = 0; i < chunk_n(d, 0); i++)
            TRY(store_text(d, i));
    } while (!d->block.last && !store_full(d));
    return FOCI_OK;
}

const struct supply supply_labelled = {
    .open = open_labelled,
    .fill = labelled_fill,
    .rewind = lines_supply_rewind,
    .skip = lines_supply_skip,
};
