/* linear_back_fused.c -- gradients of whole chunks by one kernel, where there is
 * one. */
#include "engine/linear/linear_back.h"

/* Gradients of keys that several heads share are summed as floats. */
bool linear_back_can_fuse(const struct linear_back *b)
{
    return b->x.fused && b->x.causal && b->x.per_kv == 1;
}

/* The rows are read only, so const may be cast away. */
static uint16_t *row_at(const void *base, const foci_layout *l, int64_t b, int64_t row,
                        int64_t head)
{
    if (!base) return NULL;
    return (uint16_t *)base + b * l->batch + row * l->row + head * l->head;
}

static uint16_t *query_at(const struct linear *x, const struct feature_chunk *c,
                          const void *base, const foci_layout *l)
{
    return row_at(base, l, c->seq->s.b, c->seq->s.q0 + c->pos - c->seq->pos0,
                  x->head0 + c->h);
}

static uint16_t *key_at(const struct linear *x, const struct feature_chunk *c,
                        const void *base, const foci_layout *l)
{
    return row_at(base, l, c->seq->s.b, c->seq->s.k0 + c->pos, x->kv0 + c->kv);
}

static bool is_full(const struct feature_chunk *c)
{
    return c->n == CHUNK && c->r0 == 0 && c->r1 == CHUNK;
}

/* Rows of the chunk that comes next. */
static void set_next(const struct linear_back *b, const struct feature_chunk *c,
                     struct chunk_back *r)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;

    if (!is_full(c)) return;
    r->next_q = query_at(x, c, x->io->q, &p->q);
    r->next_k = key_at(x, c, x->io->k, &p->k);
    r->next_v = key_at(x, c, x->io->v, &p->v);
    r->next_o = query_at(x, c, x->io->o, &p->o);
    r->next_d_o = query_at(x, c, b->g->d_o, &p->o);
    r->next_dq = query_at(x, c, b->g->dq, &p->q);
    r->next_dk = key_at(x, c, b->g->dk, &p->k);
    r->next_dv = key_at(x, c, b->g->dv, &p->v);
}

bool linear_back_fused_chunk(const struct linear_back   *b,
                             struct linear_back_scratch *scratch,
                             const struct feature_chunk *c,
                             struct linear_back_boundary m)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;

    if (!b->fused || !is_full(c)) return false;
    struct chunk_back r = {
        .q = query_at(x, c, x->io->q, &p->q),
        .k = key_at(x, c, x->io->k, &p->k),
        .v = key_at(x, c, x->io->v, &p->v),
        .o = query_at(x, c, x->io->o, &p->o),
        .d_o = query_at(x, c, b->g->d_o, &p->o),
        .dq = query_at(x, c, b->g->dq, &p->q),
        .dk = key_at(x, c, b->g->dk, &p->k),
        .d_v = key_at(x, c, b->g->dv, &p->v),
        .ldq = p->q.row,
        .ldk = p->k.row,
        .ldv = p->v.row,
        .ldo = p->o.row,
        .d = x->dq,
        .dv = x->dv,
        .kind = (int)x->l->feature,
        .scale = x->l->feature == FOCI_FEATURE_ROW ? (float)x->scale : 1,
        .divides = x->divides,
        .by = b->saved + linear_saved_at(x, c),
        .sums = m.of[KEYS].rows,
        .total = m.of[KEYS].total,
        .after = m.of[QUERIES].rows,
        .rho = m.of[QUERIES].total,
        .ld_sums = x->ldv,
        .scratch = scratch->kernel,
    };
    if (scratch->prefetched == 0) set_next(b, &scratch->next_chunk, &r);
    if (!x->k->chunk_back(&r)) return false;
    scratch->prefetched = PREFETCH_PARTS;
    return true;
}
