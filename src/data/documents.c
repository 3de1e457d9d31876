/* documents.c -- separate texts, one in a line or between empty lines.
 *
 * A document is <bos>, its tokens, <eos>; one that is longer than a row goes on in further
 * rows, so that every token is predicted once all the same.
 */
#include "data/data.h"

static foci_status open_documents(foci_data *d)
{
    static const char *const why = "stands around documents";

    TRY(encoder_open(d, 0, d->o.tokenizer));
    TRY(special_take(d, 0, FOCI_SPECIAL_BOS, FOCI_SPECIAL_EOS, why, &d->bos));
    TRY(special_take(d, 0, FOCI_SPECIAL_EOS, FOCI_SPECIAL_BOS, why, &d->eos[0]));
    if (d->kind == FOCI_DATA_MLM)
        TRY(special_take(d, 0, FOCI_SPECIAL_MASK, FOCI_SPECIAL_MASK, "hides tokens",
                         &d->mask));
    return part_open(d);
}

/* The lines up to an empty one; *bytes is how many were added. */
static foci_status gather_paragraph(foci_data *d, const struct data_line *first)
{
    struct data_line line = *first;
    int64_t          bytes = 0;

    while (line.text && line.bytes) {
        if (bytes) TRY(chunk_add(d, 0, "\n", 1));
        TRY(chunk_add(d, 0, line.text, line.bytes));
        bytes += line.bytes + 1;
        if (bytes > LINE_MOST)
            return lines_fail(
                &d->lines[0], &line,
                "a paragraph of more than %d bytes ends here; empty lines "
                "stand between paragraphs",
                LINE_MOST);
        TRY(part_next(d, 0, false, &line));
    }
    return FOCI_OK;
}

static foci_status gather(foci_data *d)
{
    const bool paragraphs = d->o.documents == FOCI_DATA_DOCUMENTS_PARAGRAPHS;
    bool       more;

    chunk_clear(d);
    TRY(part_more(d, 0, &more));
    while (more && !chunk_full(d)) {
        struct data_line line;
        TRY(part_next(d, 0, false, &line));
        const int64_t number = line.number;
        const bool    empty = !line.text || !line.bytes;

        /* An empty line says something to an lm that predicts its end only. */
        if (line.text && !(empty && (paragraphs || d->kind == FOCI_DATA_MLM))) {
            if (paragraphs)
                TRY(gather_paragraph(d, &line));
            else
                TRY(chunk_add(d, 0, line.text, line.bytes));
            TRY(chunk_close(d, 0, number, true, 0));
        }
        TRY(part_more(d, 0, &more));
    }
    d->block.last = !more;
    return FOCI_OK;
}

/* The rows of the document whose ids are the last n of the store. */
static foci_status add_rows(foci_data *d, int64_t n, int64_t number)
{
    const int64_t begin = d->store.ids[0].n - n;
    const int64_t rows = n - (d->kind == FOCI_DATA_LM); /* the last is predicted only */

    for (int64_t at = 0; at < rows; at += d->o.len) {
        const struct example e = { .begin[0] = begin + at,
                                   .n[0] = (int32_t)min64(d->o.len, rows - at),
                                   .number = number };
        TRY(VEC_ADD(d->ctx, &d->store.examples, &e, 1));
    }
    return FOCI_OK;
}

static foci_status store_document(foci_data *d, int64_t i)
{
    struct store  *s = &d->store;
    int64_t        n;
    const int32_t *ids = chunk_ids(d, 0, i, &n);

    TRY(VEC_ADD(d->ctx, &s->ids[0], &d->bos, 1));
    TRY(VEC_ADD(d->ctx, &s->ids[0], ids, n));
    TRY(VEC_ADD(d->ctx, &s->ids[0], &d->eos[0], 1));
    if (d->counts) {
        const struct spelled none = { 0 };
        TRY(VEC_ADD(d->ctx, &s->spelled, &none, 1));
        TRY(vec_reserve(d->ctx, &s->spelled, n + 1, sizeof(struct spelled)));
        spell_out(d->tokenizer[0], chunk_text(d, 0, i), true,
                  (const int32_t *)s->ids[0].at + s->ids[0].n - n - 1, n + 1,
                  (struct spelled *)s->spelled.at + s->spelled.n);
        s->spelled.n += n + 1;
    }
    d->seen.tokens += n + 1;
    return add_rows(d, n + 2, VEC(int64_t, &d->chunk[0].numbers, i));
}

static foci_status documents_fill(foci_data *d)
{
    store_clear(d);
    do {
        TRY(gather(d));
        TRY(chunk_encode(d, 0));
        for (int64_t i = 0; i < chunk_n(d, 0); i++)
            TRY(store_document(d, i));
    } while (!d->block.last && !store_full(d));
    return FOCI_OK;
}

const struct supply supply_documents = {
    .open = open_documents,
    .fill = documents_fill,
    .rewind = lines_supply_rewind,
    .skip = lines_supply_skip,
};
