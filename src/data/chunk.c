/* chunk.c -- lines are gathered into chunks of some megabytes, and a chunk is encoded by all
 * threads at once.  Where a chunk ends follows from the text alone. */
#include <string.h>

#include "data/data.h"

foci_status encoder_open(foci_data *d, int side, const foci_tokenizer *tokenizer)
{
    d->tokenizer[side] = tokenizer;
    d->vocab[side] = foci_tokenizer_size(tokenizer);
    d->pad[side] = foci_tokenizer_special(tokenizer, FOCI_SPECIAL_PAD);
    if (d->pad[side] < 0) d->pad[side] = 0;
    return foci_encoder_create(tokenizer, &d->encoder[side]);
}

foci_status special_take(foci_data *d, int side, foci_special which, foci_special other,
                         const char *why, int32_t *id)
{
    static const char *const names[] = { "<pad>", "<bos>", "<eos>", "<unk>", "<mask>" };

    *id = foci_tokenizer_special(d->tokenizer[side], which);
    if (*id < 0) *id = foci_tokenizer_special(d->tokenizer[side], other);
    if (*id >= 0) return FOCI_OK;
    return ctx_fail(
        d->ctx, FOCI_ERR_ARG,
        "the tokenizer has no special token %s, which %s; train one, or add "
        "the token to its file",
        names[which], why);
}

/*
 * The part of a file that is used
 */

/* Whether line `number` lies behind those that options.examples lets through. */
static bool is_beyond(const foci_data *d, int64_t number)
{
    return d->o.examples && d->first_line >= 0 &&
           number - d->first_line >= d->o.examples;
}

foci_status part_open(foci_data *d)
{
    int64_t bytes;

    d->part[0] = 0;
    d->part[1] = INT64_MAX;
    d->first_line = -1;
    if (d->o.part_end == 0 || (d->o.part_begin == 0 && d->o.part_end == 1))
        return FOCI_OK;
    TRY(lines_measure(&d->lines[0], &bytes));
    d->part[0] = (int64_t)((double)bytes * d->o.part_begin);
    if (d->o.part_end < 1) d->part[1] = (int64_t)((double)bytes * d->o.part_end);
    return FOCI_OK;
}

/* Of two files the source decides, by its line of the same number. */
static foci_status take_line(foci_data *d, int r, bool pieces, struct data_line *line)
{
    TRY(lines_next(&d->lines[r], pieces, line));
    if (r == 0 && line->text) d->block.taken++;
    return FOCI_OK;
}

foci_status part_next(foci_data *d, int r, bool pieces, struct data_line *line)
{
    do
        TRY(take_line(d, r, pieces, line));
    while (r == 0 && line->text && line->offset < d->part[0]);
    if (r != 0) return FOCI_OK;
    if (d->first_line < 0) d->first_line = line->number;
    if (line->offset >= d->part[1] || is_beyond(d, line->number)) line->text = NULL;
    return FOCI_OK;
}

foci_status part_more(foci_data *d, int r, bool *more)
{
    TRY(lines_more(&d->lines[r], more));
    if (r == 0 && (d->lines[r].offset >= d->part[1] || is_beyond(d, d->lines[r].number)))
        *more = false;
    return FOCI_OK;
}

foci_status lines_supply_rewind(foci_data *d)
{
    TRY(lines_rewind(&d->lines[0]));
    return d->lines[1].reader.read ? lines_rewind(&d->lines[1]) : FOCI_OK;
}

foci_status lines_supply_skip(foci_data *d, int64_t n)
{
    struct data_line line;

    for (int64_t i = 0; i < n; i++) {
        TRY(lines_next(&d->lines[0], d->supply->running, &line));
        if (!line.text)
            return lines_fail(&d->lines[0], NULL,
                              "has %lld lines where there were %lld before; it was "
                              "changed",
                              (long long)i, (long long)n);
        if (d->lines[1].reader.read) TRY(lines_next(&d->lines[1], false, &line));
    }
    return FOCI_OK;
}

/*
 * Chunks
 */

static void clear(struct data_chunk *c)
{
    c->text.n = c->ends.n = c->closed.n = c->numbers.n = c->answers.n = 0;
    c->strings.n = c->ids.n = c->offsets.n = 0;
}

void chunk_clear(foci_data *d)
{
    clear(&d->chunk[0]);
    clear(&d->chunk[1]);
}

bool chunk_full(const foci_data *d)
{
    const int64_t most = max64(1, min64((int64_t)(d->o.memory / 8), 4 << 20));
    return d->chunk[0].text.n + d->chunk[1].text.n >= most;
}

foci_status chunk_add(foci_data *d, int side, const char *text, int64_t bytes)
{
    return VEC_ADD(d->ctx, &d->chunk[side].text, text, bytes);
}

foci_status chunk_close(foci_data *d, int side, int64_t number, bool closed,
                        int32_t answer)
{
    struct data_chunk *c = &d->chunk[side];
    const char         byte = closed;

    TRY(VEC_ADD(d->ctx, &c->ends, &c->text.n, 1));
    TRY(VEC_ADD(d->ctx, &c->closed, &byte, 1));
    TRY(VEC_ADD(d->ctx, &c->numbers, &number, 1));
    return VEC_ADD(d->ctx, &c->answers, &answer, 1);
}

int64_t chunk_n(const foci_data *d, int side) { return d->chunk[side].ends.n; }

foci_string chunk_text(const foci_data *d, int side, int64_t i)
{
    const struct data_chunk *c = &d->chunk[side];
    const int64_t            begin = i ? VEC(int64_t, &c->ends, i - 1) : 0;
    const int64_t            end = VEC(int64_t, &c->ends, i);

    /* No text at all has no memory either. */
    return (foci_string){ c->text.at ? (const char *)c->text.at + begin : "",
                          end - begin };
}

const int32_t *chunk_ids(const foci_data *d, int side, int64_t i, int64_t *n)
{
    const struct data_chunk *c = &d->chunk[side];
    const int64_t           *offsets = c->offsets.at;

    *n = offsets[i + 1] - offsets[i];
    return *n ? (const int32_t *)c->ids.at + offsets[i] : NULL;
}

foci_status chunk_encode(foci_data *d, int side)
{
    struct data_chunk *c = &d->chunk[side];
    const int64_t      n = chunk_n(d, side);

    TRY(vec_reserve(d->ctx, &c->strings, n, sizeof(foci_string)));
    TRY(vec_reserve(d->ctx, &c->offsets, n + 1, sizeof(int64_t)));
    for (int64_t i = 0; i < n; i++) {
        const foci_string text = chunk_text(d, side, i);
        VEC(foci_string, &c->strings, i) = text;
        d->seen.not_utf8 += !utf8_valid(text.text, text.bytes);
    }
    const int64_t most = foci_encoder_most(d->encoder[side], c->strings.at, n);
    TRY(vec_reserve(d->ctx, &c->ids, max64(1, most), sizeof(int32_t)));
    return foci_encode(d->encoder[side], c->strings.at, n, 0, c->ids.at, most,
                       c->offsets.at);
}

/*
 * The store
 */

bool store_full(const foci_data *d)
{
    const struct store *s = &d->store;
    const int64_t       ids = s->ids[0].n + s->ids[1].n + s->labels.n + s->slices.n;
    /* An example is also planned with. */
    const size_t each = sizeof(struct example) + 6 * sizeof(int64_t);

    return (size_t)ids * sizeof(int32_t) +
               (size_t)s->spelled.n * sizeof(struct spelled) +
               (size_t)s->examples.n * each + (size_t)s->pixels.n >=
           d->o.memory;
}

void store_clear(foci_data *d)
{
    struct store *s = &d->store;

    s->ids[0].n = s->ids[1].n = s->labels.n = s->slices.n = 0;
    s->spelled.n = s->examples.n = s->pixels.n = 0;
}
