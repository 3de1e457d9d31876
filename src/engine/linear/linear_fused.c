/* linear_fused.c -- whole chunks by one kernel, where there is one for them. */
#include "engine/linear/linear_chunk.h"

bool linear_can_fuse(const struct linear *x)
{
    const foci_linear *l = x->l;
    const bool         rows = l->feature == FOCI_FEATURE_ROW ||
                      l->feature == FOCI_FEATURE_ELU || l->feature == FOCI_FEATURE_RELU;
    const bool norms = l->norm == FOCI_LINEAR_NORM_SUM ||
                       l->norm == FOCI_LINEAR_NORM_NONE ||
                       l->norm == FOCI_LINEAR_NORM_COUNT;

    return x->bf16 && x->k->has_chunks && x->p->dtype == FOCI_BF16 && rows && norms &&
           !l->cosine && !l->decays && !x->rope && x->m == x->dq && x->dq % 32 == 0 &&
           x->dv % 32 == 0 && x->dq <= CHUNK_WIDTH && x->dv <= CHUNK_WIDTH;
}

/* Row `row` of a head in a tensor of bf16. */
static uint16_t *row_at(const void *base, const foci_layout *l, int64_t b, int64_t row,
                        int64_t head)
{
    return (uint16_t *)base + b * l->batch + row * l->row + head * l->head;
}

static uint16_t *query_at(const struct linear *x, const void *base,
                          const foci_layout *l, const struct feature_chunk *c)
{
    return row_at(base, l, c->seq->s.b, c->seq->s.q0 + c->pos - c->seq->pos0,
                  x->head0 + c->h);
}

static uint16_t *key_at(const struct linear *x, const void *base, const foci_layout *l,
                        const struct feature_chunk *c)
{
    return row_at(base, l, c->seq->s.b, c->seq->s.k0 + c->pos, x->kv0 + c->kv);
}

static bool has_queries(const struct feature_chunk *c)
{
    return c->r0 == 0 && c->r1 == CHUNK;
}

/* Divisors that are no sums of weights; NULL: the kernel divides by these sums. */
static const float *divisors(const struct linear *x, const struct feature_chunk *c,
                             float *by)
{
    if (x->l->norm == FOCI_LINEAR_NORM_SUM) return NULL;
    for (int i = 0; i < CHUNK; i++)
        by[i] =
            x->l->norm == FOCI_LINEAR_NORM_COUNT ? (float)linear_visible(x, c, i) : 1;
    return by;
}

bool linear_fused_chunk(const struct linear *x, const struct feature_chunk *c,
                        unsigned parts, struct linear_sums s,
                        const struct feature_chunk *next, float *saved, void *scratch)
{
    const foci_problem *p = x->p;
    const foci_io      *io = x->io;
    const bool         outputs = parts & LINEAR_OUTPUTS, update = parts & LINEAR_UPDATE;
    _Alignas(64) float by[CHUNK];
    struct chunk_rows  r = {
         .ldq = p->q.row,
         .ldk = p->k.row,
         .ldv = p->v.row,
         .ldo = p->o.row,
         .d = x->dq,
         .dv = x->dv,
         .kind = (int)x->l->feature,
         .scale = (float)x->scale,
         .sums = s.rows,
         .ld_sums = x->ldv,
         .total = s.total,
         .eps = (float)x->l->eps,
         .least = linear_signed(x->l) ? LEAST_DIVISOR : 0,
         .scratch = scratch,
    };

    if (!x->fused || (outputs && !has_queries(c)) || (update && c->n < CHUNK))
        return false;
    if (outputs) {
        r.q = query_at(x, io->q, &p->q, c);
        r.o = query_at(x, io->o, &p->o, c);
        r.by = divisors(x, c, by);
        r.saved = saved ? saved + linear_saved_at(x, c) : NULL;
    }
    if (update) {
        r.k = key_at(x, io->k, &p->k, c);
        r.v = key_at(x, io->v, &p->v, c);
    }
    if (next && outputs && has_queries(next)) {
        r.next_q = query_at(x, io->q, &p->q, next);
        r.next_o = query_at(x, io->o, &p->o, next);
    }
    if (next && update && next->n == CHUNK) {
        r.next_k = key_at(x, io->k, &p->k, next);
        r.next_v = key_at(x, io->v, &p->v, next);
    }
    return x->k->chunk_rows(&r);
}
