/* linear_back_prefetch.c -- rows of the next chunk, prefetched while one is computed:
 * q, k, v, o and d_o to be read, dq, dk and dv to be written. */
#include "engine/linear/linear_back.h"

void linear_back_prefetch_chunk(const struct linear_back   *b,
                                struct linear_back_scratch *r, int64_t h,
                                const struct linear_back_segment *p, int64_t t,
                                unsigned what)
{
    r->prefetched = PREFETCH_PARTS;
    if (t < p->begin || t >= p->end) return;
    r->next_chunk = linear_chunk(&b->x, p->s, h, t);
    r->prefetched = 0;
    r->prefetches = what;
}

enum { LINE = 64 }; /* bytes of a cache line */

static void prefetch_read(const struct linear *x, const char *rows, int64_t step, int n,
                          int d)
{

    for (int i = 0; i < n; i++, rows += step * x->el)
        for (int64_t t = 0; t < d * x->el; t += LINE)
            __builtin_prefetch(rows + t, 0, 2);
}

static void prefetch_write(const struct linear *x, const char *rows, int64_t step,
                           int n, int d)
{

    for (int i = 0; i < n; i++, rows += step * x->el)
        for (int64_t t = 0; t < d * x->el; t += LINE)
            __builtin_prefetch(rows + t, 1, 2);
}

static const char *row_at(const struct linear *x, const void *base,
                          const foci_layout *l, int64_t b, int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (const char *)base + offset * x->el;
}

static void prefetch_keys(const struct linear_back *b, const struct feature_chunk *c,
                          int r0, int n, bool gradients)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const struct seq    *s = &c->seq->s;
    const int64_t        row = s->k0 + c->pos + r0, h = x->kv0 + c->kv;

    prefetch_read(x, row_at(x, x->io->k, &p->k, s->b, row, h), p->k.row, n, x->dq);
    prefetch_read(x, row_at(x, x->io->v, &p->v, s->b, row, h), p->v.row, n, x->dv);
    if (!gradients || x->per_kv > 1) return;
    if (b->g->dk)
        prefetch_write(x, row_at(x, b->g->dk, &p->k, s->b, row, h), p->k.row, n, x->dq);
    if (b->g->dv)
        prefetch_write(x, row_at(x, b->g->dv, &p->v, s->b, row, h), p->v.row, n, x->dv);
}

static void prefetch_queries(const struct linear_back *b, const struct feature_chunk *c,
                             int r0, int n, bool gradients)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const struct seq    *s = &c->seq->s;
    const int64_t        row = s->q0 + c->pos - c->seq->pos0 + r0, h = x->head0 + c->h;

    prefetch_read(x, row_at(x, x->io->q, &p->q, s->b, row, h), p->q.row, n, x->dq);
    prefetch_read(x, row_at(x, b->g->d_o, &p->o, s->b, row, h), p->o.row, n, x->dv);
    if (x->divides)
        prefetch_read(x, row_at(x, x->io->o, &p->o, s->b, row, h), p->o.row, n, x->dv);
    if (gradients && b->g->dq)
        prefetch_write(x, row_at(x, b->g->dq, &p->q, s->b, row, h), p->q.row, n, x->dq);
}

static void prefetch_part(const struct linear_back *b, struct linear_back_scratch *r)
{
    const struct feature_chunk *c = &r->next_chunk;
    const int rows = CHUNK / PREFETCH_PARTS, r0 = r->prefetched * rows;

    if (r->prefetched >= PREFETCH_PARTS) return;
    r->prefetched++;
    const int  q0 = (int)max64(r0, c->r0);
    const bool gradients = r->prefetches & PREFETCH_GRADIENTS;
    if (r->prefetches & PREFETCH_KEYS)
        prefetch_keys(b, c, r0, (int)min64(r0 + rows, c->n) - r0, gradients);
    if (r->prefetches & PREFETCH_QUERIES)
        prefetch_queries(b, c, q0, (int)min64(r0 + rows, c->r1) - q0, gradients);
}

void linear_back_prefetch(const struct linear_back *b, struct linear_back_scratch *r,
                          int parts)
{
    for (int i = 0; i < parts; i++)
        prefetch_part(b, r);
}
