/* linear_load.c -- keys and queries of a chunk: features in the units of the sums,
 * packed for products. */
#include <math.h>
#include <string.h>

#include "engine/linear/linear_chunk.h"

enum { PAIRS = CHUNK / 2 }; /* pairs of a row of 64 lanes */

static struct features features_carve(const struct linear *x, struct arena *a)
{
    return (struct features){
        .x = arena_alloc(a, (int64_t)CHUNK * x->ldq, sizeof(float)),
        .cols = arena_alloc(a, (int64_t)x->ldq * CHUNK, sizeof(float)),
        .f = arena_alloc(a, (int64_t)x->m_full * CHUNK, sizeof(float)),
        .lane = arena_alloc(a, CHUNK, sizeof(float)),
    };
}

static float *rotated_carve(const struct linear *x, float *f, struct arena *a)
{
    return x->rope ? arena_alloc(a, (int64_t)x->m_full * CHUNK, sizeof *f) : f;
}

struct linear_keys linear_keys_carve(const struct linear *x, struct arena *a)
{
    const int64_t      tile = (int64_t)CHUNK * x->ldv;
    const int          plain = x->rope && x->divides ? x->m_pad : 0;
    struct linear_keys k = { .t = features_carve(x, a) };

    k.rotated = rotated_carve(x, k.t.f, a);
    k.v = arena_alloc(a, tile, sizeof *k.v);
    k.decayed = x->l->decays ? arena_alloc(a, tile, sizeof *k.decayed) : k.v;
    k.sum = arena_alloc(a, x->m_full, sizeof *k.sum);
    k.max_log = arena_alloc(a, x->m_full, sizeof *k.max_log);
    k.den = linear_operand_at_carve(x, k.t.f, CHUNK, plain, CHUNK, a);
    k.num = linear_operand_at_carve(x, k.rotated, CHUNK, x->m_pad, CHUNK, a);
    k.for_sums = linear_operand_a_carve(x, k.rotated, x->m_pad, a);
    k.values = linear_operand_at_carve(x, k.v, x->ldv, CHUNK, x->dv_pad, a);
    k.v_pairs =
        arena_alloc(a, x->bf16 ? PAIRS * (int64_t)x->ldv : 0, sizeof *k.v_pairs);
    return k;
}

struct linear_queries linear_queries_carve(const struct linear *x, struct arena *a)
{
    const int             plain = x->rope && x->divides ? x->m_pad : 0;
    struct linear_queries q = { .t = features_carve(x, a) };

    q.rotated = rotated_carve(x, q.t.f, a);
    q.den = linear_operand_b_carve(x, q.t.f, plain, a);
    q.num = linear_operand_b_carve(x, q.rotated, x->m_pad, a);
    q.max_log = arena_alloc(a, CHUNK, sizeof *q.max_log);
    return q;
}

/* k->max_log = the larger of the logs of these keys and of those already in the sums.
 * Features of one RoPE pair share theirs, so that rotating them mixes equal units. */
static void update_max_logs(const struct linear *x, const struct linear_sums *s,
                            struct linear_keys *k)
{
    float most = -INFINITY;

    if (x->logs) x->k->row_tops(k->max_log, k->t.f, x->m);
    for (int i = 0; x->lane_logs && i < CHUNK; i++)
        if (k->t.lane[i] > most) most = k->t.lane[i];
    for (int r = 0; r < x->m; r++)
        k->max_log[r] = fmaxf(x->logs ? k->max_log[r] : most, s->max_log[r]);
    for (int t = 0; x->rope && t < x->m / 2; t++) {
        const bool half = x->stage->score.rope_half;
        float     *a = k->max_log + (half ? t : 2 * t);
        float     *b = k->max_log + (half ? t + x->m / 2 : 2 * t + 1);
        *a = *b = fmaxf(*a, *b);
    }
}

/* Whether a row that sees only the first key of the chunk would underflow in units of
 * the largest log of the whole chunk. */
static bool steep(const struct linear *x, const struct linear_sums *s,
                  const struct linear_keys *k)
{
    for (int r = 0; r < x->m; r++) {
        const float first = x->logs ? k->t.f[(int64_t)r * CHUNK] : k->t.lane[0];
        const float from = fmaxf(first, s->max_log[r]);

        if (k->max_log[r] == INFINITY) return true;
        if (k->max_log[r] != from && !(k->max_log[r] - from <= STEEP)) return true;
    }
    return false;
}

/* Sums to units of k->max_log, and keys from logs to features in these units. */
static void rescale_keys(const struct linear *x, struct linear_sums s,
                         struct linear_keys *k)
{
    _Alignas(64) float by[CHUNK];

    linear_sums_rescale(x, s, k->max_log);
    if (x->logs) {
        x->k->exp_rows(k->t.f, x->m, k->max_log);
        memset(k->t.f + (int64_t)x->m * CHUNK, 0,
               (size_t)(x->m_pad - x->m) * CHUNK * sizeof *k->t.f);
        return;
    }
    for (int i = 0; i < CHUNK; i++)
        by[i] = linear_log_ratio(k->t.lane[i], k->max_log[0]);
    x->k->shrink(k->t.f, x->m, by);
}

/* Decay of each key up to the end of the chunk: lam^(n - 1 - key), 0 in lanes
 * without. */
static void key_decays(const struct linear *x, const struct feature_chunk *c,
                       float *decay)
{
    for (int j = 0; j < CHUNK; j++)
        decay[j] = j < c->n ? x->decay[c->h].power[c->n - 1 - j] : 0;
}

void linear_decay_values(const struct linear *x, const float *decay, const float *v,
                         float *out)
{
    for (int j = 0; j < CHUNK; j++)
        for (int c = 0; c < x->ldv; c++)
            out[j * x->ldv + c] = decay[j] * v[j * x->ldv + c];
}

bool linear_load_keys(const struct linear *x, const struct feature_chunk *c,
                      bool may_split, struct linear_sums s, struct linear_keys *k)
{
    _Alignas(64) float decay[CHUNK];

    may_split = may_split && c->n > 1;
    k->n_pad = (int)round_up(c->n, x->bf16 ? x->k->depth : 1);
    linear_load_k(x, c, x->io->k, &x->p->k, x->dq, x->ldq, k->t.x);
    linear_load_k(x, c, x->io->v, &x->p->v, x->dv, x->ldv, k->v);
    if (may_split && !x->k->all_finite(k->v, (int64_t)CHUNK * x->ldv)) return false;
    if (may_split && s.max_log && !x->k->all_finite(k->t.x, (int64_t)CHUNK * x->ldq))
        return false;
    linear_map(x, c, true, &k->t);
    if (s.max_log) {
        update_max_logs(x, &s, k);
        if (may_split && steep(x, &s, k)) return false;
        rescale_keys(x, s, k);
    }
    if (x->l->decays) key_decays(x, c, decay);
    memset(k->sum, 0, (size_t)x->m_full * sizeof *k->sum);
    x->k->row_sums(k->sum, k->t.f, x->m, x->l->decays ? decay : NULL);
    if (may_split && !s.max_log && !x->k->all_finite(k->sum, x->m_full)) return false;
    if (x->l->decays) linear_decay_values(x, decay, k->v, k->decayed);
    if (x->rope) linear_rope(x, c, k->t.f, k->rotated, false);
    return true;
}

void linear_pack_keys(const struct linear *x, const struct feature_chunk *c,
                      const struct linear_keys *k)
{
    linear_operand_at_pack(x, &k->num, x->m_pad);
    linear_operand_at_pack(x, &k->den, x->m_pad);
    linear_operand_at_pack(x, &k->values, c->n);
}

/* FOCI_LINEAR_NORM_FEATURE: features of a query divided by their sum over the row, and each by
 * its sum over the keys that the query sees. */
static void divide_features(const struct linear *x, struct linear_sums s,
                            const struct linear_keys *k, float *f)
{
    _Alignas(64) float by[CHUNK] = { 0 };

    for (int r = 0; r < x->m; r++)
        for (int i = 0; i < CHUNK; i++)
            by[i] += f[r * CHUNK + i];
    for (int i = 0; i < CHUNK; i++)
        by[i] = by[i] == 0 ? 0 : 1 / by[i];
    x->k->shrink(f, x->m, by);
    for (int r = 0; r < x->m; r++) {
        float sum = s.total[r];
        for (int i = 0; i < CHUNK; i++) {
            if (k) sum += k->t.f[r * CHUNK + i];
            f[r * CHUNK + i] = sum == 0 ? 0 : f[r * CHUNK + i] / sum;
        }
    }
}

void linear_load_queries(const struct linear *x, const struct feature_chunk *c,
                         struct linear_sums s, const struct linear_keys *k,
                         struct linear_queries *q)
{
    linear_load_q(x, c, x->io->q, &x->p->q, x->dq, x->ldq, q->t.x);
    linear_map(x, c, false, &q->t);
    if (x->logs) {
        const bool by_feature = x->l->norm == FOCI_LINEAR_NORM_FEATURE;

        x->k->exp_cols(q->t.f, x->m, by_feature ? NULL : s.max_log, q->max_log);
        memset(q->t.f + (int64_t)x->m * CHUNK, 0,
               (size_t)(x->m_pad - x->m) * CHUNK * sizeof *q->t.f);
        if (by_feature) divide_features(x, s, k, q->t.f);
    }
    if (x->rope) linear_rope(x, c, q->t.f, q->rotated, false);
    linear_operand_b_pack(x, &q->num);
    linear_operand_b_pack(x, &q->den);
}
