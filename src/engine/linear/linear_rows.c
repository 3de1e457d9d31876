/* linear_rows.c -- rows of the caller's tensors to and from chunks. */
#include <string.h>

#include "engine/linear/linear_chunk.h"

static const char *at(const struct linear *x, const void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (const char *)base + offset * x->el;
}

/* Lanes r0 to r1 - 1 have a row, the first of them at `rows`. */
static void load(const struct linear *x, const char *rows, int64_t step, int r0, int r1,
                 int d, int ld, float *tile)
{
    const size_t row = (size_t)ld * sizeof *tile;

    memset(tile, 0, (size_t)r0 * row);
    memset(tile + (int64_t)r1 * ld, 0, (size_t)(CHUNK - r1) * row);
    x->k->load_rows(tile + (int64_t)r0 * ld, ld, rows, step, (int)x->p->dtype, r1 - r0,
                    d);
}

/* Number of the query of lane 0; negative where the first lanes have none. */
static int64_t query0(const struct feature_chunk *c) { return c->pos - c->seq->pos0; }

void linear_load_q(const struct linear *x, const struct feature_chunk *c,
                   const void *base, const foci_layout *l, int d, int ld, float *tile)
{
    const int64_t row = c->seq->s.q0 + query0(c) + c->r0;
    /* Causal chunks before the first key see nothing: their rows are not read, since
     * they may hold NaN. */
    const int r1 = x->causal && c->pos < 0 ? c->r0 : c->r1;

    load(x, at(x, base, l, c->seq->s.b, row, x->head0 + c->h), l->row, c->r0, r1, d, ld,
         tile);
}

void linear_load_k(const struct linear *x, const struct feature_chunk *c,
                   const void *base, const foci_layout *l, int d, int ld, float *tile)
{
    load(x, at(x, base, l, c->seq->s.b, c->seq->s.k0 + c->pos, x->kv0 + c->kv), l->row,
         0, c->n, d, ld, tile);
}

void linear_store_q(const struct linear *x, const struct feature_chunk *c, void *base,
                    const foci_layout *l, const float *cols, int d, int ld,
                    const float *factor, float *tile)
{
    const int64_t row = c->seq->s.q0 + query0(c) + c->r0;
    const int     dtype = (int)x->p->dtype;
    char         *rows = (char *)at(x, base, l, c->seq->s.b, row, x->head0 + c->h);

    if (c->r0 == 0) {
        x->k->store_cols(rows, l->row, dtype, cols, factor, c->r1, d);
        return;
    }
    x->k->store_cols(tile, ld, FOCI_F32, cols, factor, c->r1, d);
    x->k->store_rows(rows, l->row, dtype, tile + (int64_t)c->r0 * ld, ld, 1.0f,
                     c->r1 - c->r0, d);
}

/* Rows of a head are a whole token apart, further than hardware prefetchers reach. */
static void prefetch_rows(const struct linear *x, const char *rows, int64_t step, int n,
                          int d)
{
    enum { LINE = 64 };

    for (int i = 0; i < n; i++, rows += step * x->el)
        for (int64_t b = 0; b < d * x->el; b += LINE)
            __builtin_prefetch(rows + b, 0, 2);
}

void linear_prefetch(const struct linear *x, const struct feature_chunk *c, int part)
{
    const struct seq *s = &c->seq->s;
    const int r0 = part * (CHUNK / PREFETCH_PARTS), r1 = r0 + CHUNK / PREFETCH_PARTS;
    const int k = (int)min64(r1, c->n) - r0;
    const int q0 = (int)max64(r0, c->r0), q = (int)min64(r1, c->r1) - q0;

    prefetch_rows(x,
                  at(x, x->io->k, &x->p->k, s->b, s->k0 + c->pos + r0, x->kv0 + c->kv),
                  x->p->k.row, k, x->dq);
    prefetch_rows(x,
                  at(x, x->io->v, &x->p->v, s->b, s->k0 + c->pos + r0, x->kv0 + c->kv),
                  x->p->v.row, k, x->dv);
    prefetch_rows(
        x, at(x, x->io->q, &x->p->q, s->b, s->q0 + query0(c) + q0, x->head0 + c->h),
        x->p->q.row, q, x->dq);
    prefetch_rows(
        x, at(x, x->io->o, &x->p->o, s->b, s->q0 + query0(c) + q0, x->head0 + c->h),
        x->p->o.row, q, x->dv);
}
