/* linear_back_divisor.c -- n = do/den and r = -(do.o)/den: the gradients that rows
 * divided by a denominator give to numerator and denominator. */
#include <math.h>
#include <string.h>

#include "engine/linear/linear_back.h"

/* d/dlam of 1 + lam + ... of n terms: the sum of t lam^(t - 1). */
static double series_slope(double lam, int64_t n)
{
    const double e = 1 - lam, k = (double)n, few = 1e-4;

    if (n <= 1) return 0;
    if (k * e < few) return k * (k - 1) * (0.5 - e * (k - 2) / 3);
    return (1 - pow(lam, k - 1) * (1 + (k - 1) * e)) / (e * e);
}

/* lam^0 + ... + lam^(n - 1). */
static double series(double lam, int64_t n)
{
    if (n <= 0) return 0;
    return lam < 1 ? (1 - pow(lam, (double)n)) / (1 - lam) : (double)n;
}

/* d/dlam of linear_decay_sum(). */
static double decay_sum_slope(const struct linear *x, const struct feature_chunk *c,
                              int lane)
{
    const double  lam = x->decay[c->h].lam;
    const int64_t at = c->pos + lane, after = c->seq->s.nk - at - 1;

    if (x->causal) return series_slope(lam, at + 1);
    if (at < 0) {
        const double  way = (double)-at;
        const int64_t nk = c->seq->s.nk;
        return way * pow(lam, way - 1) * series(lam, nk) +
               pow(lam, way) * series_slope(lam, nk);
    }
    return series_slope(lam, at + 1) + series(lam, after) +
           lam * series_slope(lam, after);
}

/* The divisor of lane i, with its sign, in the units of its features; 0: the row is
 * empty. TRIG saves no sign, so its divisor is made again. */
static float divisor(const struct linear_back *b, const struct linear_back_scratch *r,
                     const struct feature_chunk *c, int i)
{
    const struct linear *x = &b->x;
    const float          saved = b->saved[linear_saved_at(x, c) + i];
    float                den = (float)x->l->eps;

    if (x->logs && !b->by_feature)
        return saved == INFINITY ? 0 : expf(saved - r->q.max_log[i]);
    if (!x->lane_logs || saved == 0) return saved;
    for (int t = 0; t < x->m; t++)
        den += r->q.t.f[t * CHUNK + i] * r->z[t * CHUNK + i];
    return den;
}

/* Gradient of the divisor, given delta = d_o.o.  The square root of decays that RetNet
 * may divide by instead has one for the decay. */
static float divisor_grad(const struct linear_back *b, struct linear_back_scratch *r,
                          const struct feature_chunk *c, int i, float by, float delta)
{
    const struct linear *x = &b->x;

    if (!x->divides) return 0;
    if (x->l->norm == FOCI_LINEAR_NORM_RETNET) {
        const double decay = linear_decay_sum(x, c, i), t = sqrt(decay);

        if (fabsf(by) <= (float)t) {
            if (b->decay_grad)
                r->d_lam -= (double)delta * decay_sum_slope(x, c, i) / (2 * decay);
            return 0;
        }
    }
    return -delta / by;
}

void linear_back_divide_rows(const struct linear_back *b, struct linear_back_scratch *r,
                             const struct feature_chunk *c)
{
    const struct linear *x = &b->x;
    const bool           retnet = x->l->norm == FOCI_LINEAR_NORM_RETNET;
    _Alignas(64) float   delta[CHUNK] = { 0 };

    if (x->divides) {
        linear_load_q(x, c, x->io->o, &x->p->o, x->dv, x->ldv, r->decayed);
        x->k->row_dot(delta, r->n, r->decayed, x->ldv, CHUNK, x->dv);
    }
    memset(r->r, 0, CHUNK * sizeof *r->r);
    for (int i = c->r0; i < c->r1; i++) {
        const float by = divisor(b, r, c, i), size = retnet ? fabsf(by) : by;
        float      *row = r->n + (int64_t)i * x->ldv;

        if (by != 0) r->r[i] = divisor_grad(b, r, c, i, by, delta[i]);
        if (by == 0)
            memset(row, 0, (size_t)x->ldv * sizeof *row);
        else if (by != 1)
            linear_back_scale(row, x->ldv, 1 / size);
    }
}
