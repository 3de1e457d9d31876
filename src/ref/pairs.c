/* pairs.c -- the weight of one pair before anything is divided, and the way back.
 *
 *     row       s q.k                       elu, relu, cos   sum of f(q_c) f(k_c)
 *     rotated   relu(q).relu(k) cos(pi/2 (i - j)/length)
 *     powers    1 + sum of (s q_c k_c)^r    products         sum of share_r (s q.k)^r
 *
 * and of features that are written out, sum of f_r(q) g_r(k).  With rope, pairs a, b of
 * features are rotated by angles that grow with the place; what is left of that in a
 * product is the rotation by the difference t of the places,
 *
 *     (f_a g_a + f_b g_b) cos t + (f_b g_a - f_a g_b) sin t
 */
#include <math.h>

#include "ref/linear.h"

static const double pi = 3.14159265358979323846;

/* How far key j lies after query i. */
static double apart(const struct ref_linear *x, int64_t i, int64_t j)
{
    return (double)(j - (i + x->nk - x->nq));
}

/*
 * Formulas
 */

/* A function of two numbers and its slopes. */
struct pair_slopes {
    double w, q, k;
};

static struct pair_slopes map(foci_feature feature, double x)
{
    switch (feature) {
    case FOCI_FEATURE_ELU:
        return (struct pair_slopes){ x > 0 ? x + 1 : exp(x), x > 0 ? 1 : exp(x), 0 };
    case FOCI_FEATURE_COS: return (struct pair_slopes){ cos(x), -sin(x), 0 };
    default: /* relu; NaN stays */
        return (struct pair_slopes){ x <= 0 ? 0 : x, x > 0 ? 1 : x <= 0 ? 0 : x, 0 };
    }
}

/* What element c of both rows brings. */
static struct pair_slopes element(const struct ref_linear *x, double q, double k)
{
    struct pair_slopes s = { 0 };

    if (x->l.feature == FOCI_FEATURE_ROW)
        return (struct pair_slopes){ x->scale * q * k, x->scale * k, x->scale * q };
    if (x->l.feature == FOCI_FEATURE_POWERS) {
        for (int r = 1; r <= x->l.order; r++) {
            s.w += pow(x->scale * q * k, r);
            s.q += r * x->scale * k * pow(x->scale * q * k, r - 1);
            s.k += r * x->scale * q * pow(x->scale * q * k, r - 1);
        }
        return s;
    }
    const struct pair_slopes f = map(x->l.feature, q), g = map(x->l.feature, k);
    return (struct pair_slopes){ f.w * g.w, f.q * g.w, f.w * g.q };
}

/* sum of share_r t^r, and its slope to *slope. */
static double series(const foci_linear *l, double t, double *slope)
{
    double sum = 0;

    *slope = 0;
    for (int r = 0; r <= l->order; r++) {
        sum += l->coeff[r] * pow(t, r);
        if (r) *slope += l->coeff[r] * r * pow(t, r - 1);
    }
    return sum;
}

static double scaled_dot(const struct ref_linear *x, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < x->dqk; c++)
        sum += x->q.x[i * x->dqk + c] * x->k.x[j * x->dqk + c];
    return x->scale * sum;
}

static double cosine(const struct ref_linear *x, int64_t i, int64_t j)
{
    return x->l.cosine ? cos(pi / 2 * apart(x, i, j) / x->length) : 1;
}

static double formula(const struct ref_linear *x, int64_t i, int64_t j)
{
    double sum = x->l.feature == FOCI_FEATURE_POWERS, slope;

    if (x->l.feature == FOCI_FEATURE_ONE) return 1;
    if (x->l.feature == FOCI_FEATURE_PRODUCTS)
        return series(&x->l, scaled_dot(x, i, j), &slope);
    for (int64_t c = 0; c < x->dqk; c++)
        sum += element(x, x->q.x[i * x->dqk + c], x->k.x[j * x->dqk + c]).w;
    return sum * cosine(x, i, j);
}

static void formula_back(const struct ref_linear *x, int64_t i, int64_t j, double dw)
{
    const double *q = x->q.x + i * x->dqk, *k = x->k.x + j * x->dqk;
    double       *dq = x->q.dx + i * x->dqk, *dk = x->k.dx + j * x->dqk;
    double        slope = 0;

    if (x->l.feature == FOCI_FEATURE_ONE) return;
    if (x->l.feature == FOCI_FEATURE_PRODUCTS)
        series(&x->l, scaled_dot(x, i, j), &slope);
    for (int64_t c = 0; c < x->dqk; c++) {
        struct pair_slopes s = { 0, slope * x->scale * k[c], slope * x->scale * q[c] };
        if (x->l.feature != FOCI_FEATURE_PRODUCTS) s = element(x, q[c], k[c]);
        dq[c] += dw * cosine(x, i, j) * s.q;
        if (j >= x->memory) dk[c] += dw * cosine(x, i, j) * s.k;
    }
}

/*
 * Features
 */

/* e^x in units of the row, times what scales all products. */
static double grown(const struct ref_linear *x, double log)
{
    const double s = x->l.feature == FOCI_FEATURE_ROW ? x->scale : 1;
    return x->logs ? s * exp(log - x->unit) : s;
}

/* Feature r of the query times that of the key. */
static double product(const struct ref_linear *x, int64_t i, int64_t j, int64_t r)
{
    const int64_t f = i * x->m + r, g = j * x->m + r;
    return grown(x, x->q.log[f] + x->k.log[g]) * x->q.value[f] * x->k.value[g];
}

/* Rounded feature r of the query times rounded feature c of the key. */
static double term(const struct ref_linear *x, int64_t i, int64_t j, int64_t r,
                   int64_t c)
{
    const int64_t f = i * x->m + r, g = j * x->m + c;
    return grown(x, x->q.rounded_log[f] + x->k.rounded_log[g]) * x->q.rounded[f] *
           x->k.rounded[g];
}

static void term_back(const struct ref_linear *x, int64_t i, int64_t j, int64_t r,
                      int64_t c, double dw)
{
    const int64_t f = i * x->m + r, g = j * x->m + c;
    const double  by = dw * grown(x, x->q.rounded_log[f] + x->k.rounded_log[g]);

    ref_add(x, &x->q.dvalue[f], by * x->k.rounded[g]);
    ref_add(x, &x->k.dvalue[g], by * x->q.rounded[f]);
    ref_add(x, &x->q.dlog[f], by * x->q.rounded[f] * x->k.rounded[g]);
    ref_add(x, &x->k.dlog[g], by * x->q.rounded[f] * x->k.rounded[g]);
}

/* Pair t of the rotated features. */
struct rotated_pair {
    int64_t a, b;
    double  angle;
};

static struct rotated_pair pair_of(const struct ref_linear *x, int64_t i, int64_t j,
                                   int64_t t)
{
    const bool   halves = x->rope->arg[1] != 0;
    const double pace = pow(x->rope->arg[0], -2 * (double)t / (double)x->m);

    return (struct rotated_pair){ halves ? t : 2 * t, halves ? t + x->m / 2 : 2 * t + 1,
                                  apart(x, i, j) * pace };
}

static double rotated(const struct ref_linear *x, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t t = 0; t < x->m / 2; t++) {
        const struct rotated_pair u = pair_of(x, i, j, t);
        ref_add(x, &sum,
                cos(u.angle) * (term(x, i, j, u.a, u.a) + term(x, i, j, u.b, u.b)) +
                    sin(u.angle) * (term(x, i, j, u.b, u.a) - term(x, i, j, u.a, u.b)));
    }
    return sum;
}

static void rotated_back(const struct ref_linear *x, int64_t i, int64_t j, double dw)
{
    for (int64_t t = 0; t < x->m / 2; t++) {
        const struct rotated_pair u = pair_of(x, i, j, t);
        term_back(x, i, j, u.a, u.a, dw * cos(u.angle));
        term_back(x, i, j, u.b, u.b, dw * cos(u.angle));
        term_back(x, i, j, u.b, u.a, dw * sin(u.angle));
        term_back(x, i, j, u.a, u.b, -dw * sin(u.angle));
    }
}

double ref_pair_unit(const struct ref_linear *x, int64_t i)
{
    double most = -INFINITY;

    if (!x->logs || x->l.norm != FOCI_LINEAR_NORM_SUM) return 0;
    for (int64_t j = 0; j < x->n; j++)
        for (int64_t r = 0; r < x->m; r++)
            most = fmax(most, x->q.log[i * x->m + r] + x->k.log[j * x->m + r]);
    return isfinite(most) ? most : 0;
}

void ref_pair(const struct ref_linear *x, int64_t i, int64_t j)
{
    double sum = 0, rounded_sum = 0;

    for (int64_t r = 0; x->written && r < x->m; r++) {
        ref_add(x, &sum, product(x, i, j, r));
        if (x->type != REF_F64) ref_add(x, &rounded_sum, term(x, i, j, r, r));
    }
    x->plain[j] = x->written ? sum : formula(x, i, j);
    x->rotated[j] = x->rope              ? rotated(x, i, j)
                    : x->type != REF_F64 ? rounded_sum
                                         : x->plain[j];
}

void ref_pair_back(const struct ref_linear *x, int64_t i, int64_t j)
{
    const double dw = x->dplain[j] + (x->rope ? 0 : x->drotated[j]);

    if (!x->written) {
        formula_back(x, i, j, dw);
        return;
    }
    for (int64_t r = 0; r < x->m; r++)
        term_back(x, i, j, r, r, dw);
    if (x->rope) rotated_back(x, i, j, x->drotated[j]);
}
