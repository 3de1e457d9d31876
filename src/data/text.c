/* text.c -- running text: one stream of ids, of an lm with the token before it in front.
 *
 * Lines are encoded one by one, as text is when it is generated.  The end of a line is part
 * of its text; a tokenizer of words knows no such thing, and <eos> stands for it.
 */
#include <string.h>

#include "data/data.h"

static foci_status open_text(foci_data *d)
{
    foci_tokenizer_info info = { FOCI_SIZED(foci_tokenizer_info) };

    TRY(encoder_open(d, 0, d->o.tokenizer));
    TRY(foci_tokenizer_get_info(d->tokenizer[0], &info));
    d->line_eos = !strcmp(info.kind, "words");
    if (d->line_eos)
        TRY(special_take(d, 0, FOCI_SPECIAL_EOS, FOCI_SPECIAL_EOS,
                         "stands for the end of a line of words", &d->eos[0]));
    if (d->kind == FOCI_DATA_LM)
        TRY(special_take(d, 0, FOCI_SPECIAL_BOS, FOCI_SPECIAL_EOS,
                         "the first token of a text is predicted from", &d->bos));
    else
        TRY(special_take(d, 0, FOCI_SPECIAL_MASK, FOCI_SPECIAL_MASK, "hides tokens",
                         &d->mask));
    d->block.before = d->bos;
    return part_open(d);
}

static foci_status gather(foci_data *d)
{
    bool more;

    chunk_clear(d);
    TRY(part_more(d, 0, &more));
    while (more && !chunk_full(d)) {
        struct data_line line;
        TRY(part_next(d, 0, true, &line));
        if (!line.text) break;
        TRY(chunk_add(d, 0, line.text, line.bytes));
        if (line.closed && !d->line_eos) TRY(chunk_add(d, 0, "\n", 1));
        TRY(chunk_close(d, 0, line.number, line.closed, 0));
        TRY(part_more(d, 0, &more));
    }
    d->block.last = !more;
    return FOCI_OK;
}

/* Words and characters of text number i, whose n ids are the last ones of the store. */
static foci_status spell(foci_data *d, int64_t i, int64_t n)
{
    struct store *s = &d->store;
    const bool    eos = d->line_eos && VEC(char, &d->chunk[0].closed, i);

    if (!d->counts || !n) return FOCI_OK;
    TRY(vec_reserve(d->ctx, &s->spelled, n, sizeof(struct spelled)));
    spell_out(d->tokenizer[0], chunk_text(d, 0, i), eos,
              (const int32_t *)s->ids[0].at + s->ids[0].n - n, n,
              (struct spelled *)s->spelled.at + s->spelled.n);
    s->spelled.n = s->ids[0].n;
    return FOCI_OK;
}

static foci_status store_chunk(foci_data *d)
{
    struct store *s = &d->store;

    TRY(chunk_encode(d, 0));
    for (int64_t i = 0; i < chunk_n(d, 0); i++) {
        int64_t        n;
        const int32_t *ids = chunk_ids(d, 0, i, &n);
        const bool     eos = d->line_eos && VEC(char, &d->chunk[0].closed, i);

        TRY(VEC_ADD(d->ctx, &s->ids[0], ids, n));
        if (eos) TRY(VEC_ADD(d->ctx, &s->ids[0], &d->eos[0], 1));
        TRY(spell(d, i, n + eos));
        d->seen.tokens += n + eos;
    }
    return FOCI_OK;
}

static foci_status text_fill(foci_data *d)
{
    struct store *s = &d->store;

    store_clear(d);
    if (d->kind == FOCI_DATA_LM) {
        const struct spelled none = { 0 };
        TRY(VEC_ADD(d->ctx, &s->ids[0], &d->block.before, 1));
        if (d->counts) TRY(VEC_ADD(d->ctx, &s->spelled, &none, 1));
    }
    do {
        TRY(gather(d));
        TRY(store_chunk(d));
    } while (!d->block.last && !store_full(d));
    if (s->ids[0].n) d->block.after = VEC(int32_t, &s->ids[0], s->ids[0].n - 1);
    return FOCI_OK;
}

static foci_status rewind_text(foci_data *d)
{
    d->block.before = d->bos;
    return lines_supply_rewind(d);
}

const struct supply supply_text = {
    .open = open_text,
    .fill = text_fill,
    .rewind = rewind_text,
    .skip = lines_supply_skip,
    .running = true,
};
