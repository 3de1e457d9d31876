/* linear_back_load.c -- keys, queries and gradients of a chunk as operands, and what
 * they add to sums over keys and queries. */
#include "engine/linear/linear_back.h"

static void pack_queries(const struct linear_back *b, struct linear_back_scratch *r)
{
    const struct linear *x = &b->x;

    if (x->bf16) linear_back_rows(x, r->f_rows, r->q.rotated, CHUNK, x->m_pad, CHUNK);
    linear_back_cols(x, r->n_cols, r->n, x->ldv, x->dv_pad);
    linear_back_pairs(x, r->n_pairs, r->n, x->ldv, CHUNK);
}

void linear_back_load_queries(const struct linear_back *b, struct linear_back_scratch *r,
                              const struct feature_chunk        *c,
                              const struct linear_back_boundary *m)
{
    const struct linear *x = &b->x;

    linear_load_queries(x, c, m->of[KEYS], NULL, &r->q);
    linear_load_q(x, c, b->g->d_o, &x->p->o, x->dv, x->ldv, r->n);
    if (x->lane_logs) linear_back_den_sums(b, r, c, m);
    linear_back_divide_rows(b, r, c);
    pack_queries(b, r);
}

bool linear_back_load(const struct linear_back *b, struct linear_back_scratch *r,
                      const struct feature_chunk        *c,
                      const struct linear_back_boundary *m, bool force)
{
    const struct linear *x = &b->x;

    if (!linear_load_keys(x, c, !force, m->of[KEYS], &r->k)) return false;
    linear_load_queries(x, c, m->of[KEYS], x->causal ? &r->k : NULL, &r->q);
    linear_load_q(x, c, b->g->d_o, &x->p->o, x->dv, x->ldv, r->n);
    if (!force && (!x->k->all_finite(r->q.t.x, (int64_t)CHUNK * x->ldq) ||
                   !x->k->all_finite(r->n, (int64_t)CHUNK * x->ldv)))
        return false;
    if (b->den_apart || x->lane_logs) linear_back_den_sums(b, r, c, m);
    linear_back_divide_rows(b, r, c);
    linear_operand_at_pack(x, &r->k.num, x->m_pad);
    linear_operand_a_pack(x, &r->k.for_sums);
    pack_queries(b, r);
    return true;
}

void linear_back_add_queries(const struct linear_back *b, struct linear_back_scratch *r,
                             struct linear_sums s, float by, const float *decay)
{
    const struct linear             *x = &b->x;
    const struct linear_operand_view f = { x->bf16 ? (const void *)r->f_rows
                                                   : r->q.rotated,
                                           x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const void        *n = r->n_pairs;
    _Alignas(64) float w[CHUNK];

    if (decay) {
        linear_decay_values(x, decay, r->n, r->decayed);
        n = linear_back_pairs(x, r->right, r->decayed, x->ldv, CHUNK);
    }
    for (int i = 0; i < CHUNK; i++)
        w[i] = r->r[i] * (decay ? decay[i] : 1);
    linear_back_sums_scale(x, s, by);
    linear_back_product(x, s.rows, x->ldv, f, n, x->ldv, x->m_pad, x->ldv, 0, CHUNK, 1);
    if (!b->by_feature)
        x->k->row_sums(s.total, r->q.t.f, x->m, w);
    else if (b->intra)
        x->k->row_sums(s.total, r->dz, x->m, decay);
}

void linear_back_add_keys(const struct linear_back *b, struct linear_back_scratch *r,
                          struct linear_sums s, float by, const float *decay)
{
    const struct linear             *x = &b->x;
    const struct linear_operand_view g = { x->bf16 ? (const void *)r->k.for_sums.pairs
                                                   : r->k.rotated,
                                           x->bf16 ? CHUNK / 2 : CHUNK, 1 };

    linear_decay_values(x, decay, r->k.v, r->decayed);
    linear_back_sums_scale(x, s, by);
    linear_back_product(x, s.rows, x->ldv, g,
                        linear_back_pairs(x, r->right, r->decayed, x->ldv, CHUNK),
                        x->ldv, x->m_pad, x->ldv, 0, CHUNK, 1);
    x->k->row_sums(s.total, r->k.t.f, x->m, decay);
}
