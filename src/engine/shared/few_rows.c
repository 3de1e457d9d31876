/* few_rows.c -- softmax between many rows and a few, in f32. */
#include "engine/shared/few_rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* s[n][64] = keys . qt, 0 in unused lanes. */
static void scores(const struct kernels *k, const float *keys, int64_t ld,
                   const float *qt, int lanes, int n, int d, float *s)
{
    const int wide = (int)round_up(lanes, 16);

    assert(lanes > 0 && lanes <= LANES);
    if (wide < LANES) memset(s, 0, (size_t)n * LANES * sizeof *s);
    k->gemm_f32(s, LANES, keys, ld, 1, qt, LANES, n, wide, d, 0);
}

void few_keys_attend(const struct kernels *k, const struct few_keys *few, const float *f,
                     const float *qt, int lanes, float *s, float *ot, float *share)
{
    _Alignas(64) float m[LANES], l[LANES], shrink[LANES];

    for (int i = 0; i < LANES; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
    scores(k, few->keys, few->ldk, qt, lanes, few->n, few->d, s);
    (void)k->weigh_f32(s, few->n, f, m, l, shrink, FOCI_WEIGH_SOFTMAX);
    for (int i = 0; i < LANES; i++)
        share[i] = l[i] == 0 ? 0 : 1 / l[i];
    if (ot)
        k->gemm_f32(ot, LANES, few->values, 1, few->ldv, s, LANES, few->dv,
                    (int)round_up(lanes, 16), few->n, 0);
}

/* dp: from gradients of weights to gradients of q.k.  Divides s by the sums of
 * weights. */
static void softmax_back(int n, float scale, const float *share, float *s, float *dp)
{
    _Alignas(64) float delta[LANES] = { 0 };

    for (int t = 0; t < n; t++)
        for (int i = 0; i < LANES; i++) {
            s[t * LANES + i] *= share[i];
            delta[i] += s[t * LANES + i] * dp[t * LANES + i];
        }
    for (int t = 0; t < n; t++)
        for (int i = 0; i < LANES; i++)
            dp[t * LANES + i] =
                scale * s[t * LANES + i] * (dp[t * LANES + i] - delta[i]);
}

void few_keys_backward(const struct kernels *k, const struct few_keys *few,
                       const float *f, float scale, const struct few_block *b, float *s,
                       float *ds, float *dkeys, float *dvalues, float *dqt)
{
    _Alignas(64) float share[LANES];
    const int          n = few->n, ldk = (int)few->ldk, ldv = (int)few->ldv;

    few_keys_attend(k, few, f, b->qt, LANES, s, NULL, share);
    k->gemm_f32(ds, LANES, few->values, ldv, 1, b->gt, LANES, n, LANES, few->dv, 0);
    softmax_back(n, scale, share, s, ds);
    k->gemm_f32(dvalues, ldv, s, LANES, 1, b->g, ldv, n, ldv, b->lanes, 1);
    k->gemm_f32(dkeys, ldk, ds, LANES, 1, b->q, ldk, n, ldk, b->lanes, 1);
    k->gemm_f32(dqt, LANES, few->keys, 1, ldk, ds, LANES, few->d, LANES, n, 0);
}

void few_queries_clear(const struct few_queries *sums, int dv)
{
    for (int i = 0; i < LANES; i++) {
        sums->m[i] = -INFINITY;
        sums->l[i] = 0;
    }
    memset(sums->ot, 0, (size_t)dv * LANES * sizeof *sums->ot);
}

void few_queries_add(const struct kernels *k, const struct key_tile *tile,
                     const float *f, const float *qt, int lanes, float *s,
                     const struct few_queries *sums)
{
    _Alignas(64) float shrink[LANES];

    scores(k, tile->keys, tile->ldk, qt, lanes, tile->n, tile->d, s);
    if (k->weigh_f32(s, tile->n, f, sums->m, sums->l, shrink, FOCI_WEIGH_SOFTMAX))
        k->shrink(sums->ot, tile->dv, shrink);
    k->gemm_f32(sums->ot, LANES, tile->values, 1, tile->ldv, s, LANES, tile->dv,
                (int)round_up(lanes, 16), tile->n, 1);
}

void few_queries_backward(const struct kernels *k, const struct key_tile *tile,
                          const float *f, float scale, const struct few_block *b,
                          const float *norm, const float *delta, float *s, float *ds,
                          float *dkeys, float *dvalues, float *dq)
{
    const int              n = tile->n, ldk = (int)tile->ldk, ldv = (int)tile->ldv;
    const struct grad_rows rows = { .f = f,
                                    .norm = norm,
                                    .delta = delta,
                                    .unit = (float)LOG2_E,
                                    .kind = FOCI_WEIGH_SOFTMAX };

    k->gemm_f32(s, LANES, tile->keys, ldk, 1, b->qt, LANES, n, LANES, tile->d, 0);
    k->gemm_f32(ds, LANES, tile->values, ldv, 1, b->gt, LANES, n, LANES, tile->dv, 0);
    k->grad_f32(s, ds, n, &rows);
    for (int t = 0; t < n * LANES; t++)
        ds[t] *= scale;
    k->gemm_f32(dvalues, ldv, s, LANES, 1, b->g, ldv, n, ldv, b->lanes, 1);
    k->gemm_f32(dkeys, ldk, ds, LANES, 1, b->q, ldk, n, ldk, b->lanes, 1);
    k->gemm_f32(dq, ldk, ds, 1, LANES, tile->keys, ldk, b->lanes, ldk, n, 1);
}
