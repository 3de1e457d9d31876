/* exact_shaw.c -- Shaw's vectors beside keys and values, by distance.
 *
 * Keys beyond the clip share one vector, so there are few vectors: the products of a
 * block of queries with all of them are taken once, and a distant tile of keys adds one
 * row of these, a near one pair by pair.  Values work the same way: weights are summed
 * for each vector, and multiplied by it at the end.  Backward, gradients of scores are
 * summed as weights are.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_tiles.h"
#include "engine/exact/terms/exact_shaw.h"

static int64_t n_vectors(const struct exact *x) { return 2 * x->score->clip + 1; }

static bool beside_values(const struct exact *x) { return x->score->shaw_v >= 0; }

static const float *vectors_k(const struct exact *x, int64_t h)
{
    return x->io->params + x->score->shaw_k + (h - x->head0) * n_vectors(x) * x->d.q;
}

static const float *vectors_v(const struct exact *x, int64_t h)
{
    return x->io->params + x->score->shaw_v + (h - x->head0) * n_vectors(x) * x->d.v;
}

bool exact_has_shaw(const struct exact *x) { return x->score->shaw_k >= 0; }

/* The vector of a pair. */
static int64_t vector_of(const struct exact *x, int64_t query, int64_t key)
{
    const int64_t c = x->score->clip, rel = key - query;
    return (rel < -c ? -c : rel > c ? c : rel) + c;
}

/* The vector that all pairs of a tile share; -1: they do not. */
static int64_t common_vector(const struct exact *x, const struct exact_block *b,
                             int64_t t, int n)
{
    const int64_t first = vector_of(x, b->pos + b->r1 - 1, t * TILE);
    const int64_t last = vector_of(x, b->pos + b->r0, t * TILE + n - 1);
    return first == last ? first : -1;
}

/* s[n][LANES] += rows[vectors][LANES], pair by pair. */
static void add_pairs(const struct exact *x, struct positions q, struct positions k,
                      int n, const float *rows, float *s)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] +=
                rows[vector_of(x, position_at(q, i), position_at(k, j)) * LANES + i];
}

/* rows[vectors][LANES] += s[n][LANES] */
static void sum_pairs(const struct exact *x, struct positions q, struct positions k,
                      int n, const float *s, float *rows)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            rows[vector_of(x, position_at(q, i), position_at(k, j)) * LANES + i] +=
                s[j * LANES + i];
}

static void add_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, const float *rows, float *s)
{
    const int64_t common = common_vector(x, b, t, n);
    const float   one = 1;

    if (common >= 0)
        x->k->gemm_f32(s, LANES, &one, 0, 0, rows + common * LANES, LANES, n, LANES, 1,
                       1);
    else
        add_pairs(x, (struct positions){ b->pos, NULL },
                  (struct positions){ t * TILE, NULL }, n, rows, s);
}

static void sum_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, const float *s, float *rows)
{
    const int64_t common = common_vector(x, b, t, n);
    const float   one = 1;

    if (common >= 0)
        x->k->gemm_f32(rows + common * LANES, LANES, &one, 0, 0, s, LANES, 1, LANES, n,
                       1);
    else
        sum_pairs(x, (struct positions){ b->pos, NULL },
                  (struct positions){ t * TILE, NULL }, n, s, rows);
}

/* rows[vectors][LANES] = vectors . cols[d][LANES] */
static void multiply_all(const struct exact *x, const float *vectors, int d,
                         const float *cols, float *rows)
{
    x->k->gemm_f32(rows, LANES, vectors, d, 1, cols, LANES, (int)n_vectors(x), LANES, d,
                   0);
}

/* cols[d][LANES] += vectors by rows[vectors][LANES] */
static void expand_all(const struct exact *x, const float *vectors, int d,
                       const float *rows, float *cols)
{
    x->k->gemm_f32(cols, LANES, vectors, 1, d, rows, LANES, d, LANES, (int)n_vectors(x),
                   1);
}

/*
 * Forward
 */

struct shaw_scratch exact_shaw_scratch(const struct exact *x, struct arena *a)
{
    struct shaw_scratch w = { 0 };

    if (!exact_has_shaw(x)) return w;
    w.cols = arena_alloc(a, x->d.ldq * (int64_t)LANES, sizeof(float));
    w.products = arena_alloc(a, n_vectors(x) * LANES, sizeof(float));
    if (!beside_values(x)) return w;
    w.sums = arena_alloc(a, n_vectors(x) * LANES, sizeof(float));
    w.tile = arena_alloc(a, (int64_t)TILE * LANES, sizeof(float));
    return w;
}

/* The norm of the longest vector. */
static float longest(const struct exact *x, int64_t h)
{
    const float *v = vectors_k(x, h);
    double       most = 0;

    for (int64_t i = 0; i < n_vectors(x); i++, v += x->d.q) {
        double sum = 0;
        for (int c = 0; c < x->d.q; c++)
            sum += (double)v[c] * (double)v[c];
        if (!(sum <= most)) most = sum; /* NaN stays NaN */
    }
    return (float)sqrt(most);
}

void exact_shaw_begin(const struct exact *x, int64_t h, const float *q,
                      struct shaw_scratch *w, float *bound)
{
    if (!w->products) return;
    const float most = longest(x, h);

    x->k->row_dot(bound, q, q, x->d.ldq, LANES, x->d.q);
    for (int i = 0; i < LANES; i++)
        bound[i] = sqrtf(bound[i]) * most;
    x->k->pack_cols_f32(w->cols, q, x->d.ldq, LANES, x->d.q);
    multiply_all(x, vectors_k(x, h), x->d.q, w->cols, w->products);
    if (w->sums) memset(w->sums, 0, (size_t)(n_vectors(x) * LANES) * sizeof *w->sums);
}

void exact_shaw_scores(const struct exact *x, const struct exact_block *b, int64_t t,
                       int n, const struct shaw_scratch *w, float *s)
{
    if (w->products) add_tile(x, b, t, n, w->products, s);
}

/* Weights [n][LANES] as floats: as they are, or from bf16 pairs. */
static const float *unpack_weights(const struct exact *x, int n, const float *weights,
                                   const uint32_t *pairs, float *scratch)
{
    if (!x->bf16) return weights;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const uint32_t pair = pairs[j / 2 * LANES + i];
            const uint32_t half = j % 2 ? pair & 0xffff0000u : pair << 16;
            memcpy(&scratch[j * LANES + i], &half, sizeof half);
        }
    return scratch;
}

/* Distant tiles of bf16 pairs are summed by a product with ones. */
static bool sum_pairs_far(const struct exact *x, const struct exact_block *b, int64_t t,
                          int n, const uint32_t *pairs, float *rows)
{
    const int64_t  common = common_vector(x, b, t, n);
    const uint32_t ones = 0x3f803f80u;

    if (!x->bf16 || common < 0 || x->k->sum_by_rows)
        return false; /* tile instructions have no one-row product */
    x->k->gemm_bf16(rows + common * LANES, LANES, &ones, 0, 0, pairs, LANES, 1, LANES,
                    exact_padded(x, n) / 2, 1);
    return true;
}

void exact_shaw_weights(const struct exact *x, const struct exact_block *b, int64_t t,
                        int n, struct shaw_scratch *w, const float *weights,
                        const uint32_t *pairs)
{
    if (w->sums && !sum_pairs_far(x, b, t, n, pairs, w->sums))
        sum_tile(x, b, t, n, unpack_weights(x, n, weights, pairs, w->tile), w->sums);
}

void exact_shaw_shrink(const struct exact *x, struct shaw_scratch *w,
                       const float *shrink)
{
    if (w->sums) x->k->shrink(w->sums, (int)n_vectors(x), shrink);
}

void exact_shaw_values(const struct exact *x, int64_t h, const struct shaw_scratch *w,
                       float *ot)
{
    if (w->sums) expand_all(x, vectors_v(x, h), x->d.v, w->sums, ot);
}

void exact_shaw_scores_gathered(const struct exact *x, struct positions q,
                                struct positions k, int n, const struct shaw_scratch *w,
                                float *s)
{
    if (w->products) add_pairs(x, q, k, n, w->products, s);
}

void exact_shaw_weights_gathered(const struct exact *x, struct positions q,
                                 struct positions k, int n, struct shaw_scratch *w,
                                 const float *weights, const uint32_t *pairs)
{
    if (w->sums)
        sum_pairs(x, q, k, n, unpack_weights(x, n, weights, pairs, w->tile), w->sums);
}

/*
 * Backward
 */

void exact_shaw_back_carve(const struct exact *x, int64_t parts, struct shaw_back *k,
                           struct arena *a)
{
    const int64_t one = n_vectors(x) * LANES, blocks = x->heads * x->max.qt;

    if (!exact_has_shaw(x)) return;
    k->parts = parts;
    k->products_k = arena_alloc(a, blocks * one, sizeof(float));
    k->sums_k = arena_alloc(a, parts * blocks * one, sizeof(float));
    k->d_k = arena_alloc(a, x->heads * n_vectors(x) * x->d.ldq, sizeof(float));
    if (!beside_values(x)) return;
    k->products_v = arena_alloc(a, blocks * one, sizeof(float));
    k->sums_v = arena_alloc(a, parts * blocks * one, sizeof(float));
    k->d_v = arena_alloc(a, x->heads * n_vectors(x) * x->d.ldv, sizeof(float));
}

/* The rows of a block, [vectors][LANES]. */
static float *rows_of(const struct exact *x, float *rows, int64_t part, int64_t at)
{
    return rows + (part * x->heads * x->max.qt + at) * n_vectors(x) * LANES;
}

void exact_shaw_back_begin(const struct exact *x, const struct shaw_back *k,
                           int64_t part, int64_t at)
{
    const size_t bytes = (size_t)(n_vectors(x) * LANES) * sizeof(float);

    if (k->sums_k) memset(rows_of(x, k->sums_k, part, at), 0, bytes);
    if (k->sums_v) memset(rows_of(x, k->sums_v, part, at), 0, bytes);
}

void exact_shaw_back_queries(const struct exact *x, const struct exact_block *b,
                             const struct shaw_back *k, const float *q, float *scratch)
{
    if (!k->products_k) return;
    x->k->pack_cols_f32(scratch, q, x->d.ldq, LANES, x->d.q);
    multiply_all(x, vectors_k(x, b->h), x->d.q, scratch,
                 rows_of(x, k->products_k, 0, b->at));
}

void exact_shaw_back_grads(const struct exact *x, const struct exact_block *b,
                           const struct shaw_back *k, const float *g, float *scratch)
{
    if (!k->products_v) return;
    x->k->pack_cols_f32(scratch, g, x->d.ldv, LANES, x->d.v);
    multiply_all(x, vectors_v(x, b->h), x->d.v, scratch,
                 rows_of(x, k->products_v, 0, b->at));
}

void exact_shaw_back_scores(const struct exact *x, const struct exact_block *b,
                            int64_t t, int n, const struct shaw_back *k, float *s,
                            float *dp)
{
    if (k->products_k) add_tile(x, b, t, n, rows_of(x, k->products_k, 0, b->at), s);
    if (k->products_v) add_tile(x, b, t, n, rows_of(x, k->products_v, 0, b->at), dp);
}

void exact_shaw_back_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                          int n, const struct shaw_back *k, int64_t part,
                          const float *w, const float *ds)
{
    if (k->sums_k) sum_tile(x, b, t, n, ds, rows_of(x, k->sums_k, part, b->at));
    if (k->sums_v) sum_tile(x, b, t, n, w, rows_of(x, k->sums_v, part, b->at));
}

/* The element of vector v and the lane with number `slot` among all lanes. */
static int64_t in_lane(const struct exact *x, int64_t slot, int64_t v)
{
    return (slot / LANES * n_vectors(x) + v) * LANES + slot % LANES;
}

void exact_shaw_back_scores_gathered(const struct exact *x, const struct shaw_lanes *l,
                                     struct positions keys, int n,
                                     const struct shaw_back *k, float *s, float *dp)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; k->products_k && i < l->n; i++) {
            const int64_t v = vector_of(x, position_at(l->at, i), position_at(keys, j));
            const int64_t at = in_lane(x, l->slot[i], v);

            s[j * LANES + i] += k->products_k[at];
            if (k->products_v) dp[j * LANES + i] += l->share[i] * k->products_v[at];
        }
}

void exact_shaw_back_gathered(const struct exact *x, const struct shaw_lanes *l,
                              struct positions keys, int n, const struct shaw_back *k,
                              const float *w, const float *ds)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; k->sums_k && i < l->n; i++) {
            const int64_t v = vector_of(x, position_at(l->at, i), position_at(keys, j));
            const int64_t at = in_lane(x, l->slot[i], v);

            k->sums_k[at] += l->own[i] * ds[j * LANES + i];
            if (k->sums_v) k->sums_v[at] += l->share[i] * w[j * LANES + i];
        }
}

static void add_parts(const struct exact *x, float *rows, int64_t parts, int64_t at,
                      const uint8_t *products)
{
    float *sum = rows_of(x, rows, 0, at);

    for (int64_t part = 1; part < parts; part++) {
        const float *more = rows_of(x, rows, part, at);
        if (!products[part * x->heads * x->max.qt]) continue;
        for (int64_t i = 0; i < n_vectors(x) * LANES; i++)
            sum[i] += more[i];
    }
}

void exact_shaw_back_finish(const struct exact *x, const struct exact_block *b,
                            const struct shaw_back *k, const uint8_t *products,
                            float *dqt)
{
    if (!k->sums_k) return;
    add_parts(x, k->sums_k, k->parts, b->at, products);
    if (k->sums_v) add_parts(x, k->sums_v, k->parts, b->at, products);
    expand_all(x, vectors_k(x, b->h), x->d.q, rows_of(x, k->sums_k, 0, b->at), dqt);
}

void exact_shaw_back_vectors(const struct exact *x, const struct exact_block *b,
                             const struct shaw_back *k, const float *q, const float *g)
{
    const int n = (int)n_vectors(x);
    float    *dk = k->d_k + (b->h - x->head0) * n * x->d.ldq;

    x->k->gemm_f32(dk, x->d.ldq, rows_of(x, k->sums_k, 0, b->at), LANES, 1, q, x->d.ldq,
                   n, x->d.ldq, LANES, 1);
    if (!k->d_v) return;
    float *dv = k->d_v + (b->h - x->head0) * n * x->d.ldv;
    x->k->gemm_f32(dv, x->d.ldv, rows_of(x, k->sums_v, 0, b->at), LANES, 1, g, x->d.ldv,
                   n, x->d.ldv, LANES, 1);
}

void exact_shaw_back_clear(const struct exact *x, const struct shaw_back *k,
                           int64_t head)
{
    const size_t n = (size_t)n_vectors(x);

    memset(k->d_k + head * (int64_t)n * x->d.ldq, 0,
           n * (size_t)x->d.ldq * sizeof(float));
    if (k->d_v)
        memset(k->d_v + head * (int64_t)n * x->d.ldv, 0,
               n * (size_t)x->d.ldv * sizeof(float));
}

void exact_shaw_params(const struct exact *x, const struct shaw_back *k, float *dparams)
{
    const int64_t n = n_vectors(x);

    if (!k->d_k) return;
    for (int64_t h = 0; h < x->heads; h++) {
        const float scale = (float)exact_head_scale(x, x->head0 + h);

        for (int64_t i = h * n; i < (h + 1) * n; i++) {
            for (int c = 0; c < x->d.q; c++)
                dparams[x->score->shaw_k + i * x->d.q + c] +=
                    scale * k->d_k[i * x->d.ldq + c];
            for (int c = 0; k->d_v && c < x->d.v; c++)
                dparams[x->score->shaw_v + i * x->d.v + c] += k->d_v[i * x->d.ldv + c];
        }
    }
}
