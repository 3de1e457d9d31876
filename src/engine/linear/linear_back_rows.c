/* linear_back_rows.c -- gradients of rows of a chunk to the caller's tensors. */
#include <string.h>

#include "engine/linear/linear_back.h"

static char *row_at(const struct linear *x, void *base, const foci_layout *l, int64_t b,
                    int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (char *)base + offset * x->el;
}

void linear_back_store_q(const struct linear_back         *b,
                         const struct linear_back_scratch *r,
                         const struct feature_chunk       *c)
{
    const struct linear *x = &b->x;
    const foci_layout   *l = &x->p->q;
    const int64_t        row = c->seq->s.q0 + c->pos - c->seq->pos0 + c->r0;

    if (!b->g->dq) return;
    x->k->store_rows(row_at(x, b->g->dq, l, c->seq->s.b, row, x->head0 + c->h), l->row,
                     (int)x->p->dtype, r->dq + (int64_t)c->r0 * x->ldq, x->ldq, 1.0f,
                     c->r1 - c->r0, x->dq);
}

/* Keys of the memory take no gradient. */
static void clear_memory(const struct linear *x, const struct feature_chunk *c,
                         float *d, int ld)
{
    for (int j = 0; j < c->n && c->pos + j < x->stage->memory; j++)
        memset(d + (int64_t)j * ld, 0, (size_t)ld * sizeof *d);
}

void linear_back_store_k(const struct linear_back *b, const struct feature_chunk *c,
                         float *dk, float *dv)
{
    const struct linear *x = &b->x;
    const struct seq    *s = &c->seq->s;
    const foci_problem  *p = x->p;
    const int64_t        row = s->k0 + c->pos, h = x->kv0 + c->kv;

    clear_memory(x, c, dk, x->ldq);
    clear_memory(x, c, dv, x->ldv);
    if (b->g->dk)
        x->k->store_rows(row_at(x, b->g->dk, &p->k, s->b, row, h), p->k.row,
                         (int)p->dtype, dk, x->ldq, 1.0f, c->n, x->dq);
    if (b->g->dv)
        x->k->store_rows(row_at(x, b->g->dv, &p->v, s->b, row, h), p->v.row,
                         (int)p->dtype, dv, x->ldv, 1.0f, c->n, x->dv);
}

void linear_back_add_k(const struct linear_back *b, const struct linear_back_scratch *r,
                       const struct feature_chunk *c, int64_t from)
{
    const struct linear *x = &b->x;
    const int64_t        row = c->pos - from;

    if (x->per_kv == 1) {
        linear_back_store_k(b, c, r->dk, r->dv);
        return;
    }
    linear_back_add(r->dk_all + row * x->ldq, r->dk, (int64_t)c->n * x->ldq);
    linear_back_add(r->dv_all + row * x->ldv, r->dv, (int64_t)c->n * x->ldv);
}
