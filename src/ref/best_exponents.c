/* best_exponents.c -- the best exponents of random features for given moments of the rows.
 *
 * With l an eigenvalue of the mean of (x + y)(x + y)^T, or its trace over d,
 *
 *     a(l) = (1 - 2l - sqrt((2l + 1)^2 + 8l)) / 16
 *
 * minimises the mean log second moment (Likhosherstov et al. 2022 and 2023).  Kinds:
 *
 *     norm       one a, of the trace
 *     symmetric  one a along each eigenvector u:  row of Bx = By = sqrt(1 - 4a) u^T
 *     pair       G M1 G = M2 for M1 = mean x x^T, M2 = mean y y^T:
 *                Bx = sqrt(1 - 4a) G^(1/2), By = sqrt(1 - 4a) G^(-1/2),
 *                Cx = -G/2, Cy = -G^(-1)/2
 *
 * This file shares no line with plan/moments.c, which it judges: eigenvectors come from
 * one-sided rotations (Hestenes), G from the geometric mean's own formula.
 */
#include <math.h>
#include <string.h>

#include "ref/linear.h"

enum { SWEEPS = 60 };

static const double least_sine = 1e-15;

static double best_a(double l)
{
    if (l < 0) l = 0;
    return (1 - 2 * l - sqrt((2 * l + 1) * (2 * l + 1) + 8 * l)) / 16;
}

static double inner(int64_t d, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * y[t];
    return sum;
}

static void rotate(int64_t d, double *x, double *y, double c, double s)
{
    for (int64_t t = 0; t < d; t++) {
        const double a = x[t], b = y[t];
        x[t] = c * a - s * b;
        y[t] = s * a + c * b;
    }
}

/* Makes rows p and q of w orthogonal; u follows.  False: they are already. */
static bool orthogonalise(int64_t d, double *w, double *u, int64_t p, int64_t q)
{
    double      *x = w + p * d, *y = w + q * d;
    const double xx = inner(d, x, x), yy = inner(d, y, y), xy = inner(d, x, y);

    if (fabs(xy) <= least_sine * sqrt(xx * yy)) return false;
    const double angle = 0.5 * atan2(2 * xy, yy - xx);
    rotate(d, x, y, cos(angle), sin(angle));
    rotate(d, u + p * d, u + q * d, cos(angle), sin(angle));
    return true;
}

/* The spec's convention: eigenvalues upward, each vector's largest entry positive. */
static void put_in_order(int64_t d, double *values, double *u)
{
    for (int64_t i = 1; i < d; i++)
        for (int64_t j = i; j > 0 && values[j] < values[j - 1]; j--) {
            const double l = values[j];
            values[j] = values[j - 1];
            values[j - 1] = l;
            for (int64_t t = 0; t < d; t++) {
                const double x = u[j * d + t];
                u[j * d + t] = u[(j - 1) * d + t];
                u[(j - 1) * d + t] = x;
            }
        }
    for (int64_t i = 0; i < d; i++) {
        double most = 0;
        for (int64_t t = 0; t < d; t++)
            if (fabs(u[i * d + t]) > fabs(most)) most = u[i * d + t];
        for (int64_t t = 0; t < d && most < 0; t++)
            u[i * d + t] = -u[i * d + t];
    }
}

/* m = U^T diag(values) U of a positive semidefinite m [d][d], rows of u eigenvectors;
 * w [d][d] is scratch.  Rotations make the rows of W = U M orthogonal; their norms are
 * then the eigenvalues. */
static void eigen(int64_t d, const double *m, double *values, double *u, double *w)
{
    memcpy(w, m, (size_t)(d * d) * sizeof *w);
    for (int64_t t = 0; t < d * d; t++)
        u[t] = t % (d + 1) ? 0 : 1;
    for (int sweep = 0, moved = 1; sweep < SWEEPS && moved; sweep++) {
        moved = 0;
        for (int64_t p = 0; p < d; p++)
            for (int64_t q = p + 1; q < d; q++)
                moved |= orthogonalise(d, w, u, p, q);
    }
    for (int64_t i = 0; i < d; i++)
        values[i] = sqrt(inner(d, w + i * d, w + i * d));
    put_in_order(d, values, u);
}

/* out = by sum over i of values[i]^power u_i u_i^T */
static void spectral(int64_t d, double by, const double *values, double power,
                     const double *u, double *out)
{
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t t = 0; t < d; t++)
                sum += pow(values[t], power) * u[t * d + i] * u[t * d + j];
            out[i * d + j] = by * sum;
        }
}

/* out = s m s for symmetric s, kept symmetric; w is scratch. */
static void congruence(int64_t d, const double *s, const double *m, double *w,
                       double *out)
{
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++) {
            w[i * d + j] = 0;
            for (int64_t t = 0; t < d; t++)
                w[i * d + j] += s[i * d + t] * m[t * d + j];
        }
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t t = 0; t < d; t++)
                sum += w[i * d + t] * s[t * d + j];
            out[i * d + j] = out[j * d + i] = sum;
        }
}

static double trace(int64_t d, const double *m)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += m[t * (d + 1)];
    return sum;
}

static void scaled_unit(int64_t d, double value, double *out)
{
    for (int64_t t = 0; t < d * d; t++)
        out[t] = t % (d + 1) ? 0 : value;
}

static void isotropic(int64_t d, double a, struct ref_exponents *e)
{
    for (int64_t t = 0; t < d; t++)
        e->a[t] = a;
    scaled_unit(d, sqrt(1 - 4 * a), e->bx);
    scaled_unit(d, sqrt(1 - 4 * a), e->by);
    scaled_unit(d, -0.5, e->cx);
    scaled_unit(d, -0.5, e->cy);
}

static void symmetric(const struct ref_moments *m, double *scratch,
                      struct ref_exponents *e)
{
    const int64_t d = m->d, n = d * d;
    double       *zz = scratch, *u = zz + n, *w = u + n, *values = w + n;

    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++)
            zz[i * d + j] = m->xx[i * d + j] + m->yy[i * d + j] + m->x[i] * m->y[j] +
                            m->y[i] * m->x[j];
    eigen(d, zz, values, u, w);
    isotropic(d, 0, e);
    for (int64_t t = 0; t < d; t++) {
        e->a[t] = best_a(values[t]);
        for (int64_t j = 0; j < d; j++)
            e->bx[t * d + j] = e->by[t * d + j] = sqrt(1 - 4 * e->a[t]) * u[t * d + j];
    }
}

static void ridge(int64_t d, const double *m, double *out)
{
    const double more = 1e-6 * trace(d, m) / (double)d + 1e-12;
    for (int64_t t = 0; t < d * d; t++)
        out[t] = m[t] + (t % (d + 1) ? 0 : more);
}

/* T = (M1^(1/2) M2 M1^(1/2))^(1/2), G = M1^(-1/2) T M1^(-1/2). */
static void pair(const struct ref_moments *m, double *scratch, struct ref_exponents *e)
{
    const int64_t d = m->d, n = d * d;
    double       *one = scratch, *two = one + n, *u = two + n, *w = u + n;
    double       *root = w + n, *t = root + n, *values = t + n;

    ridge(d, m->xx, one);
    eigen(d, one, values, u, w);
    spectral(d, 1, values, 0.5, u, root);
    spectral(d, 1, values, -0.5, u, one); /* M1^(-1/2), kept */
    ridge(d, m->yy, two);
    congruence(d, root, two, w, t);
    eigen(d, t, values, u, w);
    spectral(d, 1, values, 0.5, u, t);
    const double a = best_a((2 * trace(d, t) + 2 * inner(d, m->x, m->y)) / (double)d);

    congruence(d, one, t, w, two);
    eigen(d, two, values, u, w);
    isotropic(d, a, e);
    spectral(d, sqrt(1 - 4 * a), values, 0.5, u, e->bx);
    spectral(d, sqrt(1 - 4 * a), values, -0.5, u, e->by);
    spectral(d, -0.5, values, 1, u, e->cx);
    spectral(d, -0.5, values, -1, u, e->cy);
}

int64_t ref_moments_scratch(int64_t d) { return 6 * d * d + d; }

void ref_moments_solve(foci_moments kind, const struct ref_moments *m, double *scratch,
                       struct ref_exponents *e)
{
    const int64_t d = m->d;

    /* Rows that are not finite say nothing, and must not reach others. */
    if (!isfinite(trace(d, m->xx) + trace(d, m->yy)))
        isotropic(d, 0, e);
    else if (kind == FOCI_MOMENTS_NORM)
        isotropic(d,
                  best_a((trace(d, m->xx) + trace(d, m->yy) + 2 * inner(d, m->x, m->y)) /
                         (double)d),
                  e);
    else if (kind == FOCI_MOMENTS_SYMMETRIC)
        symmetric(m, scratch, e);
    else if (kind == FOCI_MOMENTS_PAIR)
        pair(m, scratch, e);
}
