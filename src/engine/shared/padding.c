/* padding.c -- zeros in rows that no sequence has. */
#include "engine/shared/padding.h"

#include <string.h>

struct padding {
    char              *base;
    const foci_layout *l;
    int64_t            head0, heads;
    size_t             el, bytes; /* of an element and of a row */
};

static void clear_rows(const struct padding *r, int64_t b, foci_range rows)
{
    for (int64_t i = rows.begin; i < rows.end; i++)
        for (int64_t h = r->head0; h < r->head0 + r->heads; h++)
            memset(r->base + (size_t)(b * r->l->batch + i * r->l->row + h * r->l->head) *
                                 r->el,
                   0, r->bytes);
}

void padding_clear(const foci_plan *plan, const foci_io *io, void *base,
                   const foci_layout *l, int64_t head0, int64_t heads, int64_t d,
                   bool queries, bool all)
{
    const foci_problem  *p = &plan->p;
    const size_t         el = foci_dtype_bytes(p->dtype);
    const struct padding r = { base, l, head0, heads, el, (size_t)d * el };
    const int64_t        len = queries ? p->len_q : p->len_k;
    const int64_t        others = queries ? p->len_k : p->len_q;
    const int32_t       *lens = queries ? io->len_q : io->len_k;
    const int32_t       *other_lens = queries ? io->len_k : io->len_q;

    if (!base) return;
    if (io->docs && !all) {
        clear_rows(&r, 0, (foci_range){ 0, io->docs[0] });
        clear_rows(&r, 0, (foci_range){ io->docs[io->n_docs], len });
        return;
    }
    for (int64_t b = 0; b < p->batch; b++) {
        const bool none = all || !(other_lens ? other_lens[b] : others);
        clear_rows(&r, b, (foci_range){ none ? 0 : lens ? lens[b] : len, len });
    }
}
