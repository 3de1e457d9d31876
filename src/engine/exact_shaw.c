/* exact_shaw.c -- vectors that stand beside keys and values at each distance.
 *
 * Keys further away than the clip share one vector, so that a block of queries meets
 * few: its products with all of them are taken once, and a tile of keys adds one row
 * of these where it is far, and pair by pair where it is near.  Values are met the same
 * way: weights are summed for each vector and multiplied by it at the end.  Backward,
 * gradients of scores are summed as the weights are.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_shaw.h"
#include "engine/exact_tiles.h"

static int64_t n_vectors(const struct exact *x) { return 2 * x->score->clip + 1; }

static bool beside_values(const struct exact *x) { return x->score->shaw_v >= 0; }

static const float *vectors_k(const struct exact *x, int64_t h)
{
    return x->io->params + x->score->shaw_k + (h - x->head0) * n_vectors(x) * x->dq;
}

static const float *vectors_v(const struct exact *x, int64_t h)
{
    return x->io->params + x->score->shaw_v + (h - x->head0) * n_vectors(x) * x->dv;
}

bool exact_has_shaw(const struct exact *x) { return x->score->shaw_k >= 0; }

/* Which vector a key is beside, for a query. */
static int64_t vector_of(const struct exact *x, int64_t query, int64_t key)
{
    const int64_t c = x->score->clip, rel = key - query;
    return (rel < -c ? -c : rel > c ? c : rel) + c;
}

/* The vector that all pairs of a tile share; -1: they do not. */
static int64_t only_vector(const struct exact *x, const struct block *b, int64_t t,
                           int n)
{
    const int64_t first = vector_of(x, b->pos + b->r1 - 1, t * TILE);
    const int64_t last = vector_of(x, b->pos + b->r0, t * TILE + n - 1);
    return first == last ? first : -1;
}

/* s[n][LANES] += rows[vectors][LANES], each pair its own. */
static void add_pairs(const struct exact *x, struct places q, struct places k, int n,
                      const float *rows, float *s)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] +=
                rows[vector_of(x, places_at(q, i), places_at(k, j)) * LANES + i];
}

/* rows[vectors][LANES] += s[n][LANES] */
static void sum_pairs(const struct exact *x, struct places q, struct places k, int n,
                      const float *s, float *rows)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            rows[vector_of(x, places_at(q, i), places_at(k, j)) * LANES + i] +=
                s[j * LANES + i];
}

static void add_tile(const struct exact *x, const struct block *b, int64_t t, int n,
                     const float *rows, float *s)
{
    const int64_t only = only_vector(x, b, t, n);
    const float   one = 1;

    if (only >= 0)
        x->k->gemm_f32(s, LANES, &one, 0, 0, rows + only * LANES, LANES, n, LANES, 1, 1);
    else
        add_pairs(x, (struct places){ b->pos, NULL }, (struct places){ t * TILE, NULL },
                  n, rows, s);
}

static void sum_tile(const struct exact *x, const struct block *b, int64_t t, int n,
                     const float *s, float *rows)
{
    const int64_t only = only_vector(x, b, t, n);
    const float   one = 1;

    if (only >= 0)
        x->k->gemm_f32(rows + only * LANES, LANES, &one, 0, 0, s, LANES, 1, LANES, n, 1);
    else
        sum_pairs(x, (struct places){ b->pos, NULL }, (struct places){ t * TILE, NULL },
                  n, s, rows);
}

/* rows[vectors][LANES] = vectors . cols[d][LANES] */
static void meet_all(const struct exact *x, const float *vectors, int d,
                     const float *cols, float *rows)
{
    x->k->gemm_f32(rows, LANES, vectors, d, 1, cols, LANES, (int)n_vectors(x), LANES, d,
                   0);
}

/* cols[d][LANES] += vectors by rows[vectors][LANES] */
static void spread_all(const struct exact *x, const float *vectors, int d,
                       const float *rows, float *cols)
{
    x->k->gemm_f32(cols, LANES, vectors, 1, d, rows, LANES, d, LANES, (int)n_vectors(x),
                   1);
}

/*
 * Forward
 */

struct shaw exact_shaw_take(const struct exact *x, struct arena *a)
{
    struct shaw w = { 0 };

    if (!exact_has_shaw(x)) return w;
    w.cols = arena_take(a, x->ldq * (int64_t)LANES, sizeof(float));
    w.met = arena_take(a, n_vectors(x) * LANES, sizeof(float));
    if (!beside_values(x)) return w;
    w.sums = arena_take(a, n_vectors(x) * LANES, sizeof(float));
    w.tile = arena_take(a, (int64_t)TILE * LANES, sizeof(float));
    return w;
}

/* The longest vector. */
static float longest(const struct exact *x, int64_t h)
{
    const float *v = vectors_k(x, h);
    double       most = 0;

    for (int64_t i = 0; i < n_vectors(x); i++, v += x->dq) {
        double sum = 0;
        for (int c = 0; c < x->dq; c++)
            sum += (double)v[c] * (double)v[c];
        if (!(sum <= most)) most = sum; /* NaN stays */
    }
    return (float)sqrt(most);
}

void exact_shaw_begin(const struct exact *x, int64_t h, const float *q, struct shaw *w,
                      float *bound)
{
    if (!w->met) return;
    const float most = longest(x, h);

    x->k->row_dot(bound, q, q, x->ldq, LANES, x->dq);
    for (int i = 0; i < LANES; i++)
        bound[i] = sqrtf(bound[i]) * most;
    x->k->pack_cols_f32(w->cols, q, x->ldq, LANES, x->dq);
    meet_all(x, vectors_k(x, h), x->dq, w->cols, w->met);
    if (w->sums) memset(w->sums, 0, (size_t)(n_vectors(x) * LANES) * sizeof *w->sums);
}

void exact_shaw_scores(const struct exact *x, const struct block *b, int64_t t, int n,
                       const struct shaw *w, float *s)
{
    if (w->met) add_tile(x, b, t, n, w->met, s);
}

/* Weights [n][LANES] as floats: as they are, or unpacked from words of two keys. */
static const float *as_floats(const struct exact *x, int n, const float *weights,
                              const uint32_t *words, float *room)
{
    if (!x->bf16) return weights;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const uint32_t word = words[j / 2 * LANES + i];
            const uint32_t half = j % 2 ? word & 0xffff0000u : word << 16;
            memcpy(&room[j * LANES + i], &half, sizeof half);
        }
    return room;
}

/* Words of a tile that is far are summed as they are, by products with ones. */
static bool sum_words(const struct exact *x, const struct block *b, int64_t t, int n,
                      const uint32_t *words, float *rows)
{
    const int64_t  only = only_vector(x, b, t, n);
    const uint32_t ones = 0x3f803f80u;

    if (!x->bf16 || only < 0 || x->k->sum_by_rows) return false; /* tiles take no row */
    x->k->gemm_bf16(rows + only * LANES, LANES, &ones, 0, 0, words, LANES, 1, LANES,
                    exact_padded(x, n) / 2, 1);
    return true;
}

void exact_shaw_weights(const struct exact *x, const struct block *b, int64_t t, int n,
                        struct shaw *w, const float *weights, const uint32_t *words)
{
    if (w->sums && !sum_words(x, b, t, n, words, w->sums))
        sum_tile(x, b, t, n, as_floats(x, n, weights, words, w->tile), w->sums);
}

void exact_shaw_shrink(const struct exact *x, struct shaw *w, const float *shrink)
{
    if (w->sums) x->k->shrink(w->sums, (int)n_vectors(x), shrink);
}

void exact_shaw_values(const struct exact *x, int64_t h, const struct shaw *w, float *ot)
{
    if (w->sums) spread_all(x, vectors_v(x, h), x->dv, w->sums, ot);
}

void exact_shaw_scores_pairs(const struct exact *x, struct places q, struct places k,
                             int n, const struct shaw *w, float *s)
{
    if (w->met) add_pairs(x, q, k, n, w->met, s);
}

void exact_shaw_weights_pairs(const struct exact *x, struct places q, struct places k,
                              int n, struct shaw *w, const float *weights,
                              const uint32_t *words)
{
    if (w->sums)
        sum_pairs(x, q, k, n, as_floats(x, n, weights, words, w->tile), w->sums);
}

/*
 * Backward
 */

void exact_shaw_take_back(const struct exact *x, int64_t parts, struct shaw_back *k,
                          struct arena *a)
{
    const int64_t one = n_vectors(x) * LANES, blocks = x->heads * x->max_qt;

    if (!exact_has_shaw(x)) return;
    k->parts = parts;
    k->met_k = arena_take(a, blocks * one, sizeof(float));
    k->sums_k = arena_take(a, parts * blocks * one, sizeof(float));
    k->d_k = arena_take(a, x->heads * n_vectors(x) * x->ldq, sizeof(float));
    if (!beside_values(x)) return;
    k->met_v = arena_take(a, blocks * one, sizeof(float));
    k->sums_v = arena_take(a, parts * blocks * one, sizeof(float));
    k->d_v = arena_take(a, x->heads * n_vectors(x) * x->ldv, sizeof(float));
}

/* The rows of a block, [vectors][LANES]. */
static float *rows_of(const struct exact *x, float *rows, int64_t part, int64_t at)
{
    return rows + (part * x->heads * x->max_qt + at) * n_vectors(x) * LANES;
}

void exact_shaw_begin_back(const struct exact *x, const struct shaw_back *k,
                           int64_t part, int64_t at)
{
    const size_t bytes = (size_t)(n_vectors(x) * LANES) * sizeof(float);

    if (k->sums_k) memset(rows_of(x, k->sums_k, part, at), 0, bytes);
    if (k->sums_v) memset(rows_of(x, k->sums_v, part, at), 0, bytes);
}

void exact_shaw_prepare_q(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *q, float *room)
{
    if (!k->met_k) return;
    x->k->pack_cols_f32(room, q, x->ldq, LANES, x->dq);
    meet_all(x, vectors_k(x, b->h), x->dq, room, rows_of(x, k->met_k, 0, b->at));
}

void exact_shaw_prepare_g(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *g, float *room)
{
    if (!k->met_v) return;
    x->k->pack_cols_f32(room, g, x->ldv, LANES, x->dv);
    meet_all(x, vectors_v(x, b->h), x->dv, room, rows_of(x, k->met_v, 0, b->at));
}

void exact_shaw_scores_back(const struct exact *x, const struct block *b, int64_t t,
                            int n, const struct shaw_back *k, float *s, float *dp)
{
    if (k->met_k) add_tile(x, b, t, n, rows_of(x, k->met_k, 0, b->at), s);
    if (k->met_v) add_tile(x, b, t, n, rows_of(x, k->met_v, 0, b->at), dp);
}

void exact_shaw_sums_back(const struct exact *x, const struct block *b, int64_t t,
                          int n, const struct shaw_back *k, int64_t part,
                          const float *w, const float *ds)
{
    if (k->sums_k) sum_tile(x, b, t, n, ds, rows_of(x, k->sums_k, part, b->at));
    if (k->sums_v) sum_tile(x, b, t, n, w, rows_of(x, k->sums_v, part, b->at));
}

/* Where the row of vector v has the lane that stands in slot number `slot`. */
static int64_t in_slot(const struct exact *x, int64_t slot, int64_t v)
{
    return (slot / LANES * n_vectors(x) + v) * LANES + slot % LANES;
}

void exact_shaw_scores_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                  struct places keys, int n, const struct shaw_back *k,
                                  float *s, float *dp)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; k->met_k && i < l->n; i++) {
            const int64_t v = vector_of(x, places_at(l->at, i), places_at(keys, j));
            const int64_t at = in_slot(x, l->slot[i], v);

            s[j * LANES + i] += k->met_k[at];
            if (k->met_v) dp[j * LANES + i] += l->share[i] * k->met_v[at];
        }
}

void exact_shaw_sums_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                struct places keys, int n, const struct shaw_back *k,
                                const float *w, const float *ds)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; k->sums_k && i < l->n; i++) {
            const int64_t v = vector_of(x, places_at(l->at, i), places_at(keys, j));
            const int64_t at = in_slot(x, l->slot[i], v);

            k->sums_k[at] += l->own[i] * ds[j * LANES + i];
            if (k->sums_v) k->sums_v[at] += l->share[i] * w[j * LANES + i];
        }
}

static void add_parts(const struct exact *x, float *rows, int64_t parts, int64_t at,
                      const uint8_t *met)
{
    float *sum = rows_of(x, rows, 0, at);

    for (int64_t part = 1; part < parts; part++) {
        const float *more = rows_of(x, rows, part, at);
        if (!met[part * x->heads * x->max_qt]) continue;
        for (int64_t i = 0; i < n_vectors(x) * LANES; i++)
            sum[i] += more[i];
    }
}

void exact_shaw_finish(const struct exact *x, const struct block *b,
                       const struct shaw_back *k, const uint8_t *met, float *dqt)
{
    if (!k->sums_k) return;
    add_parts(x, k->sums_k, k->parts, b->at, met);
    if (k->sums_v) add_parts(x, k->sums_v, k->parts, b->at, met);
    spread_all(x, vectors_k(x, b->h), x->dq, rows_of(x, k->sums_k, 0, b->at), dqt);
}

void exact_shaw_vectors(const struct exact *x, const struct block *b,
                        const struct shaw_back *k, const float *q, const float *g)
{
    const int n = (int)n_vectors(x);
    float    *dk = k->d_k + (b->h - x->head0) * n * x->ldq;

    x->k->gemm_f32(dk, x->ldq, rows_of(x, k->sums_k, 0, b->at), LANES, 1, q, x->ldq, n,
                   x->ldq, LANES, 1);
    if (!k->d_v) return;
    float *dv = k->d_v + (b->h - x->head0) * n * x->ldv;
    x->k->gemm_f32(dv, x->ldv, rows_of(x, k->sums_v, 0, b->at), LANES, 1, g, x->ldv, n,
                   x->ldv, LANES, 1);
}

void exact_shaw_clear(const struct exact *x, const struct shaw_back *k, int64_t head)
{
    const size_t n = (size_t)n_vectors(x);

    memset(k->d_k + head * (int64_t)n * x->ldq, 0, n * (size_t)x->ldq * sizeof(float));
    if (k->d_v)
        memset(k->d_v + head * (int64_t)n * x->ldv, 0,
               n * (size_t)x->ldv * sizeof(float));
}

void exact_shaw_params(const struct exact *x, const struct shaw_back *k, float *dparams)
{
    const int64_t n = n_vectors(x);

    if (!k->d_k) return;
    for (int64_t h = 0; h < x->heads; h++) {
        const float scale = (float)exact_head_scale(x, x->head0 + h);

        for (int64_t i = h * n; i < (h + 1) * n; i++) {
            for (int c = 0; c < x->dq; c++)
                dparams[x->score->shaw_k + i * x->dq + c] +=
                    scale * k->d_k[i * x->ldq + c];
            for (int c = 0; k->d_v && c < x->dv; c++)
                dparams[x->score->shaw_v + i * x->dv + c] += k->d_v[i * x->ldv + c];
        }
    }
}
