/* linear_back_chunk.c -- gradients of one chunk.
 *
 * In a chunk of n positions, sums over keys reach a lane with lam^(lane + 1) and take a
 * key with lam^(n - 1 - key).  Sums over queries reach a key with lam^(n - 1 - key) and
 * take a lane with lam^(lane + 1).  In the second direction of bidirectional decay the
 * two factors change places.
 */
#include <math.h>
#include <string.h>

#include "engine/linear/linear_back.h"

/* Causal products leave out pairs that are hidden, in cells of so many keys by so many
 * lanes: of the result, and of the summed index. */
static int result_cell(const struct linear *x)
{
    return x->bf16 && x->k->depth > 16 ? 32 : 16;
}
enum { SUM_CELL = 32 };

/* Decay between a lane and the chunks before (after) it, and its derivative by lam. */
struct chunk_decays {
    _Alignas(64) float before[CHUNK], after[CHUNK];
    _Alignas(64) float before_slope[CHUNK], after_slope[CHUNK];
    float all; /* of the whole chunk */
    float all_slope;
};

static void set_decays(const struct decay *d, int len, struct chunk_decays *f)
{
    for (int i = 0; i < CHUNK; i++) {
        const bool has = i < len;
        f->before[i] = has ? d->power[i + 1] : 0;
        f->after[i] = has ? d->power[len - 1 - i] : 0;
        f->before_slope[i] = has ? d->slope[i + 1] : 0;
        f->after_slope[i] = has ? d->slope[len - 1 - i] : 0;
    }
    f->all = d->power[len];
    f->all_slope = d->slope[len];
}

/* The sum of w[lane] f df over features and lanes. */
static double weighted_dot(const struct linear *x, const float *f, const float *df,
                           const float *w)
{
    double sum = 0;

    for (int r = 0; r < x->m; r++)
        for (int i = 0; i < CHUNK; i++)
            sum += (double)w[i] * (double)f[r * CHUNK + i] * (double)df[r * CHUNK + i];
    return sum;
}

/*
 * Pairs inside the chunk
 */

/* Gradient of the decay through the weights of pairs inside the chunk. */
static void intra_decay_grad(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c)
{
    const struct decay *d = linear_back_decay(b, c);

    for (int key = 0; key < c->n; key++)
        for (int lane = b->bidirectional ? 0 : key; lane < c->r1; lane++) {
            const int at = key * CHUNK + lane, t = lane > key ? lane - key : key - lane;
            r->d_lam += (double)d->slope[t] * (double)r->a[at] * (double)r->da[at];
        }
}

static void mask_intra(const struct linear_back *b, const struct feature_chunk *c,
                       float *a)
{
    const struct linear *x = &b->x;
    const struct decay  *d = linear_back_decay(b, c);
    _Alignas(64) float   sum[CHUNK] = { 0 };

    x->k->near_f32(a, CHUNK, d ? d->mask : NULL, b->bidirectional, sum);
}

/* a = g^T f and da = v n^T + r, masked. */
static void intra_scores(const struct linear_back *b, struct linear_back_scratch *r,
                         const struct feature_chunk *c)
{
    const struct linear             *x = &b->x;
    const int                        cut = result_cell(x);
    const struct linear_operand_view v =
        linear_back_rows(x, r->left, r->k.v, x->ldv, CHUNK, x->dv_pad);
    const size_t el = sizeof(uint32_t); /* of a float, and of a bf16 pair */

    for (int64_t j = 0; j < CHUNK; j++)
        if (b->den_apart)
            memset(r->da + j * CHUNK, 0, CHUNK * sizeof *r->da);
        else
            memcpy(r->da + j * CHUNK, r->r, CHUNK * sizeof *r->da);
    for (int j = 0; j < CHUNK; j += cut) {
        const int lane = b->bidirectional ? 0 : j, to = j * CHUNK + lane;
        const struct linear_operand_view rows = {
            (const char *)v.at + (size_t)(j * v.row) * el, v.row, 1
        };

        linear_gemm_features(x, r->a + to, &r->k.num, j, cut, &r->q.num, lane, CHUNK, 0);
        linear_back_product(x, r->da + to, CHUNK, rows, r->n_cols + (size_t)lane * el,
                            CHUNK, cut, CHUNK - lane, 0, x->dv_pad, 1);
    }
    if (b->decay_grad) intra_decay_grad(b, r, c);
    mask_intra(b, c, r->a);
    mask_intra(b, c, r->da);
}

/* df += g da, dg += f da^T, dv += a n. */
static void intra_products(const struct linear_back *b, struct linear_back_scratch *r)
{
    const struct linear *x = &b->x;
    const size_t         el = sizeof(uint32_t); /* of a float, and of a bf16 pair */
    const struct linear_operand_view g = { x->bf16 ? (const void *)r->k.for_sums.pairs
                                                   : r->k.rotated,
                                           x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const struct linear_operand_view f = { x->bf16 ? (const void *)r->f_rows
                                                   : r->q.rotated,
                                           x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const char *da = linear_back_pairs(x, r->right, r->da, CHUNK, CHUNK);

    for (int i = 0; i < CHUNK; i += SUM_CELL)
        linear_back_product(x, r->df + i, CHUNK, g, da + (size_t)i * el, CHUNK, x->m_pad,
                            SUM_CELL, 0, b->bidirectional ? CHUNK : i + SUM_CELL, 1);
    da = linear_back_cols(x, r->right, r->da, CHUNK, CHUNK);
    for (int j = 0; j < CHUNK; j += SUM_CELL)
        linear_back_product(x, r->dg + j, CHUNK, f, da + (size_t)j * el, CHUNK,
                            x->m_pad, SUM_CELL, b->bidirectional ? 0 : j, CHUNK, 1);
    const struct linear_operand_view a =
        linear_back_rows(x, r->left, r->a, CHUNK, CHUNK, CHUNK);
    for (int j = 0; j < CHUNK; j += SUM_CELL) {
        const struct linear_operand_view rows = {
            (const char *)a.at + (size_t)(j * a.row) * el, a.row, 1
        };
        linear_back_product(x, r->dv + (int64_t)j * x->ldv, x->ldv, rows, r->n_pairs,
                            x->ldv, SUM_CELL, x->ldv, b->bidirectional ? 0 : j, CHUNK,
                            1);
    }
}

/*
 * Sums
 */

static _Alignas(64) const float ones[CHUNK] = {
#define FOUR    1, 1, 1, 1
#define SIXTEEN FOUR, FOUR, FOUR, FOUR
    SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN
};

/* out[m][64] = total w[64] + rows cols. */
static void multiply_sums(const struct linear_back *b, struct linear_back_scratch *r,
                          struct linear_sums s, const void *cols, const float *w,
                          float *out)
{
    const struct linear             *x = &b->x;
    const struct linear_operand_view rows =
        linear_back_rows(x, r->left, s.rows, x->ldv, x->m_pad, x->dv_pad);

    if (!b->den_apart)
        x->k->gemm_f32(out, CHUNK, s.total, 1, 0, w, CHUNK, x->m_pad, CHUNK, 1, 0);
    linear_back_product(x, out, CHUNK, rows, cols, CHUNK, x->m_pad, CHUNK, 0, x->dv_pad,
                        !b->den_apart);
}

/* df = what the sums over keys before, and after, give to queries. */
static void df_inter(const struct linear_back *b, struct linear_back_scratch *r,
                     struct linear_back_boundary m, const struct chunk_decays *t)
{
    const struct linear *x = &b->x;

    multiply_sums(b, r, m.of[KEYS], r->n_cols, r->r, r->df);
    if (!x->decay) return;
    if (b->decay_grad)
        r->d_lam += weighted_dot(x, r->q.rotated, r->df, t->before_slope);
    x->k->shrink(r->df, x->m_pad, t->before);
    if (!b->bidirectional) return;
    multiply_sums(b, r, m.of[KEYS_AFTER], r->n_cols, r->r, r->tmp);
    if (b->decay_grad)
        r->d_lam += weighted_dot(x, r->q.rotated, r->tmp, t->after_slope);
    x->k->shrink(r->tmp, x->m_pad, t->after);
    linear_back_add(r->df, r->tmp, (int64_t)x->m_pad * CHUNK);
}

/* dg = what the sums over queries after, and before, give to keys. */
static void dg_inter(const struct linear_back *b, struct linear_back_scratch *r,
                     struct linear_back_boundary m, const struct chunk_decays *t)
{
    const struct linear *x = &b->x;
    const void          *v = linear_back_cols(x, r->right, r->k.v, x->ldv, x->dv_pad);

    multiply_sums(b, r, m.of[QUERIES], v, ones, r->dg);
    if (!x->decay) return;
    if (b->decay_grad) r->d_lam += weighted_dot(x, r->k.rotated, r->dg, t->after_slope);
    x->k->shrink(r->dg, x->m_pad, t->after);
    if (!b->bidirectional) return;
    multiply_sums(b, r, m.of[QUERIES_BEFORE], v, ones, r->tmp);
    if (b->decay_grad)
        r->d_lam += weighted_dot(x, r->k.rotated, r->tmp, t->before_slope);
    x->k->shrink(r->tmp, x->m_pad, t->before);
    linear_back_add(r->dg, r->tmp, (int64_t)x->m_pad * CHUNK);
}

/* dv = g^T R. */
static void dv_inter(const struct linear_back *b, struct linear_back_scratch *r,
                     struct linear_back_boundary m, const struct chunk_decays *t)
{
    const struct linear *x = &b->x;
    const void          *sums =
        linear_back_pairs(x, r->right, m.of[QUERIES].rows, x->ldv, x->m_pad);

    linear_back_product_features(x, r->dv, &r->k.num, sums);
    if (!x->decay) return;
    linear_decay_values(x, t->after, r->dv, r->dv);
    if (!b->bidirectional) return;
    sums = linear_back_pairs(x, r->right, m.of[QUERIES_BEFORE].rows, x->ldv, x->m_pad);
    linear_back_product_features(x, r->dv_tmp, &r->k.num, sums);
    linear_decay_values(x, t->before, r->dv_tmp, r->dv_tmp);
    linear_back_add(r->dv, r->dv_tmp, (int64_t)CHUNK * x->ldv);
}

/* Gradient of the decay across the chunk; then the sums of the chunk before it. */
static void carry(const struct linear_back *b, struct linear_back_scratch *r,
                  struct linear_back_boundary m, const struct chunk_decays *t)
{
    const struct linear *x = &b->x;

    if (b->decay_grad)
        r->d_lam += t->all_slope * linear_back_sums_dot(x, m.of[QUERIES], m.of[KEYS]);
    if (b->decay_grad && b->bidirectional)
        r->d_lam += t->all_slope *
                    linear_back_sums_dot(x, m.of[QUERIES_BEFORE], m.of[KEYS_AFTER]);
    for (int i = 0; b->decay_grad && !b->den_apart && i < x->m; i++) {
        r->d_lam += (double)t->all_slope * (double)m.of[QUERIES].total[i] *
                    (double)m.of[KEYS].total[i];
        if (b->bidirectional)
            r->d_lam += (double)t->all_slope * (double)m.of[QUERIES_BEFORE].total[i] *
                        (double)m.of[KEYS_AFTER].total[i];
    }
    linear_back_add_queries(b, r, m.of[QUERIES], x->decay ? t->all : 1,
                            x->decay ? t->before : NULL);
    if (b->bidirectional)
        linear_back_add_keys(b, r, m.of[KEYS_AFTER], t->all, t->before);
}

/*
 * A chunk
 */

static void times(float *restrict to, const float *restrict by)
{
    for (int i = 0; i < CHUNK; i++)
        to[i] *= by[i];
}

/* From gradients of features to gradients of rows. */
static void map_back(const struct linear_back *b, struct linear_back_scratch *r,
                     const struct feature_chunk *c, bool keys)
{
    const struct linear   *x = &b->x;
    const struct features *t = keys ? &r->k.t : &r->q.t;
    float                 *df = keys ? r->dg : r->df;

    for (int64_t i = 0; x->logs && i < x->m_pad; i++)
        times(df + i * CHUNK, t->f + i * CHUNK);
    linear_map_back(x, c, keys, t, df, keys ? r->dk : r->dq);
}

static void store_grads(const struct linear_back *b, struct linear_back_scratch *r,
                        const struct feature_chunk *c, int64_t from)
{
    if (c->r0 < c->r1) {
        map_back(b, r, c, false);
        linear_back_store_q(b, r, c);
    }
    linear_back_prefetch(b, r, 1);
    if (c->n) {
        map_back(b, r, c, true);
        linear_back_add_k(b, r, c, from);
    }
}

/* Undo RoPE on the gradients of the features of numerators. */
static void rope_back(const struct linear_back *b, struct linear_back_scratch *r,
                      const struct feature_chunk *c)
{
    if (!b->x.rope) return;
    linear_rope(&b->x, c, r->df, r->df, true);
    linear_rope(&b->x, c, r->dg, r->dg, true);
}

static void split(const struct linear_back *b, struct linear_back_scratch *r,
                  const struct feature_chunk *c, struct linear_back_boundary m,
                  int level, int64_t from)
{
    const struct linear        *x = &b->x;
    const int                   half = linear_back_length(c) / 2;
    const struct feature_chunk  left = linear_subchunk(c, 0, half);
    const struct feature_chunk  right = linear_subchunk(c, half, CHUNK);
    struct linear_back_boundary middle = m;

    middle.of[KEYS] = linear_sums_at(x, r->level, level);
    linear_sums_copy(x, middle.of[KEYS], m.of[KEYS]);
    linear_load_keys(x, &left, false, middle.of[KEYS], &r->k);
    linear_sums_update(x, &left, &r->k, middle.of[KEYS]);
    linear_back_chunk(b, r, &right, middle, level + 1, from);
    linear_back_chunk(b, r, &left, m, level + 1, from);
}

void linear_back_chunk(const struct linear_back *b, struct linear_back_scratch *r,
                       const struct feature_chunk *c, struct linear_back_boundary m,
                       int level, int64_t from)
{
    const struct linear        *x = &b->x;
    struct linear_back_boundary now = m;
    struct chunk_decays         t;

    if (m.of[KEYS].max_log) {
        now.of[KEYS] = r->now;
        linear_sums_copy(x, now.of[KEYS], m.of[KEYS]);
    }
    if (!linear_back_load(b, r, c, &now, !x->causal || linear_back_length(c) < 2)) {
        split(b, r, c, m, level, from);
        return;
    }
    linear_back_prefetch(b, r, 1);
    if (x->decay) set_decays(linear_back_decay(b, c), linear_back_length(c), &t);
    linear_back_sums_rescale(x, now.of[QUERIES], now.of[KEYS].max_log);
    intra_scores(b, r, c);
    linear_back_prefetch(b, r, 1);
    df_inter(b, r, now, &t);
    linear_back_prefetch(b, r, 1);
    dg_inter(b, r, now, &t);
    linear_back_prefetch(b, r, 1);
    dv_inter(b, r, now, &t);
    linear_back_prefetch(b, r, 1);
    intra_products(b, r);
    linear_back_prefetch(b, r, 1);
    rope_back(b, r, c);
    if (b->den_apart) linear_back_den(b, r, c, now);
    carry(b, r, now, &t);
    linear_back_prefetch(b, r, 1);
    store_grads(b, r, c, from);
}

void linear_back_chunk_alone(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c,
                             struct linear_back_boundary m, int64_t from)
{
    const struct chunk_decays none = { 0 };

    linear_back_load(b, r, c, &m, true);
    linear_back_prefetch(b, r, 1);
    df_inter(b, r, m, &none);
    linear_back_prefetch(b, r, 1);
    dg_inter(b, r, m, &none);
    linear_back_prefetch(b, r, 1);
    dv_inter(b, r, m, &none);
    linear_back_prefetch(b, r, 1);
    rope_back(b, r, c);
    if (b->den_apart) linear_back_den(b, r, c, m);
    while (r->prefetched < PREFETCH_PARTS)
        linear_back_prefetch(b, r, 1);
    store_grads(b, r, c, from);
}
