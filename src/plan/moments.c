/* moments.c -- the exponents of random features that estimate best for given moments.
 *
 * With z = x + y the estimate of e^(x.y) by features of A = a, B = sqrt(1 - 4a), C = -1/2
 * has its least mean log second moment where, with r the mean of z.z/d,
 *
 *     a = (1 - 2r - sqrt((2r + 1)^2 + 8r))/16.
 *
 * One a along each axis of the mean of z z^T does better, and so does drawing x and y
 * towards each other: with G M1 G = M2 for the means M1 of x x^T and M2 of y y^T,
 *
 *     Bx = sqrt(1 - 4a) G^(1/2),  By = sqrt(1 - 4a) G^(-1/2),  Cx = -G/2,  Cy = -1/(2G).
 *
 * Likhosherstov et al., "Chefs' random tables" (2022) and "Dense-exponential random
 * features" (2023).  Eigenvalues are those of Jacobi's rotations, row after row.
 */
#include "plan/moments.h"

#include <math.h>
#include <string.h>

double moments_best(double mean)
{
    const double r = mean > 0 ? mean : 0;
    return (1 - 2 * r - sqrt((2 * r + 1) * (2 * r + 1) + 8 * r)) / 16;
}

static double dot(int64_t d, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += x[i] * y[i];
    return sum;
}

/*
 * Eigenvalues
 */

enum { MAX_SWEEPS = 60 };

/* Rotate rows p and q. */
static void rotate(int64_t d, double *a, int64_t p, int64_t q, double c, double s)
{
    for (int64_t t = 0; t < d; t++) {
        const double x = a[p * d + t], y = a[q * d + t];
        a[p * d + t] = c * x - s * y;
        a[q * d + t] = s * x + c * y;
    }
}

/* Make a[p][q] zero by the smaller of the two angles that do, rows and columns alike;
 * those are the same but for where they meet.  Nothing at all if it is tiny. */
static bool annul(int64_t d, double *a, double *v, int64_t p, int64_t q, double tiny)
{
    const double x = a[p * d + q], ap = a[p * d + p], aq = a[q * d + q];

    if (!(fabs(x) > tiny)) return false;
    const double theta = (aq - ap) / (2 * x);
    const double t = copysign(1, theta) / (fabs(theta) + hypot(theta, 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;

    rotate(d, a, p, q, c, s);
    rotate(d, v, p, q, c, s);
    for (int64_t i = 0; i < d; i++) {
        a[i * d + p] = a[p * d + i];
        a[i * d + q] = a[q * d + i];
    }
    a[p * d + p] = ap - t * x;
    a[q * d + q] = aq + t * x;
    a[p * d + q] = a[q * d + p] = 0;
    return true;
}

static void swap_rows(int64_t d, double *v, int64_t i, int64_t j)
{
    for (int64_t t = 0; t < d; t++) {
        const double x = v[i * d + t];
        v[i * d + t] = v[j * d + t];
        v[j * d + t] = x;
    }
}

static void sort(int64_t d, double *values, double *v)
{
    for (int64_t i = 0; i < d; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < d; j++)
            if (values[j] < values[least]) least = j;
        if (least == i) continue;
        const double x = values[i];
        values[i] = values[least];
        values[least] = x;
        swap_rows(d, v, i, least);
    }
}

static void set_sign(int64_t d, double *row)
{
    int64_t most = 0;

    for (int64_t t = 1; t < d; t++)
        if (fabs(row[t]) > fabs(row[most])) most = t;
    for (int64_t t = 0; t < d && row[most] < 0; t++)
        if (t != most) row[t] = -row[t];
    row[most] = fabs(row[most]);
}

void eigen_symmetric(int64_t d, double *a, double *values, double *v)
{
    const double tiny = 0x1p-60 * sqrt(dot(d * d, a, a));
    bool         moved = true;

    memset(v, 0, (size_t)(d * d) * sizeof *v);
    for (int64_t i = 0; i < d; i++)
        v[i * d + i] = 1;
    for (int sweep = 0; sweep < MAX_SWEEPS && moved; sweep++) {
        moved = false;
        for (int64_t p = 0; p < d; p++)
            for (int64_t q = p + 1; q < d; q++)
                moved |= annul(d, a, v, p, q, tiny);
    }
    for (int64_t i = 0; i < d; i++)
        values[i] = a[i * d + i];
    sort(d, values, v);
    for (int64_t i = 0; i < d; i++)
        set_sign(d, v + i * d);
}

/*
 * Matrices
 */

/* out = a b */
static void multiply(int64_t d, const double *a, const double *b, double *out)
{
    memset(out, 0, (size_t)(d * d) * sizeof *out);
    for (int64_t i = 0; i < d; i++)
        for (int64_t t = 0; t < d; t++) {
            for (int64_t j = 0; j < d; j++)
                out[i * d + j] += a[i * d + t] * b[t * d + j];
        }
}

/* out = sum over t of f(values[t]) v_t v_t^T, f a power; nothing is below 0. */
static void power_of(int64_t d, const double *values, const double *v, double power,
                     double *out)
{
    memset(out, 0, (size_t)(d * d) * sizeof *out);
    for (int64_t t = 0; t < d; t++) {
        const double f = pow(values[t] > 0 ? values[t] : 0, power);
        for (int64_t i = 0; i < d; i++) {
            for (int64_t j = 0; j < d; j++)
                out[i * d + j] += f * v[t * d + i] * v[t * d + j];
        }
    }
}

static void mirror(int64_t d, double *a)
{
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < i; j++)
            a[i * d + j] = a[j * d + i] = (a[i * d + j] + a[j * d + i]) / 2;
}

static double trace(int64_t d, const double *a)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += a[i * d + i];
    return sum;
}

/* to = by a, and a multiple of 1 more. */
static void set_scaled(int64_t d, double *to, const double *a, double by, double more)
{
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++)
            to[i * d + j] = (a ? by * a[i * d + j] : 0) + (i == j ? more : 0);
}

/*
 * Kinds
 */

/* A = a everywhere, and B and C of a, where x and y stay as they are. */
static void set_plain(int64_t d, double a, struct exponents *e)
{
    for (int64_t t = 0; t < d; t++)
        e->a[t] = a;
    set_scaled(d, e->bx, NULL, 0, sqrt(1 - 4 * a));
    set_scaled(d, e->by, NULL, 0, sqrt(1 - 4 * a));
    set_scaled(d, e->cx, NULL, 0, -0.5);
    set_scaled(d, e->cy, NULL, 0, -0.5);
}

static void solve_norm(const struct moments *m, struct exponents *e)
{
    const double zz =
        trace(m->d, m->xx) + trace(m->d, m->yy) + 2 * dot(m->d, m->x, m->y);

    set_plain(m->d, moments_best(zz / (double)m->d), e);
}

/* Rows of B are axes of the mean of z z^T, each with its own a. */
static void solve_symmetric(const struct moments *m, double *scratch,
                            struct exponents *e)
{
    const int64_t d = m->d;
    double *const zz = scratch, *const v = scratch + d * d, *const values = v + d * d;

    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++)
            zz[i * d + j] = m->xx[i * d + j] + m->yy[i * d + j] + m->x[i] * m->y[j] +
                            m->y[i] * m->x[j];
    eigen_symmetric(d, zz, values, v);
    set_plain(d, 0, e);
    for (int64_t t = 0; t < d; t++) {
        e->a[t] = moments_best(values[t]);
        for (int64_t j = 0; j < d; j++)
            e->bx[t * d + j] = e->by[t * d + j] = sqrt(1 - 4 * e->a[t]) * v[t * d + j];
    }
}

/* to = m with a ridge, without which roots break down where there are fewer rows than d. */
static void set_ridged(int64_t d, double *to, const double *m)
{
    set_scaled(d, to, m, 1, 1e-6 * trace(d, m) / (double)d + 1e-12);
}

/* The scratch is six matrices and a vector.  T = (M1^(1/2) M2 M1^(1/2))^(1/2) and
 * G = M1^(-1/2) T M1^(-1/2). */
static void solve_pair(const struct moments *m, double *scratch, struct exponents *e)
{
    const int64_t d = m->d, n = d * d;
    double *const root = scratch, *const inverse = scratch + n, *const v = scratch + 2 * n;
    double *const one = scratch + 3 * n, *const two = scratch + 4 * n,
                  *const t = scratch + 5 * n;
    double *const        values = scratch + 6 * n;

    set_ridged(d, one, m->xx);
    eigen_symmetric(d, one, values, v);
    power_of(d, values, v, 0.5, root);
    power_of(d, values, v, -0.5, inverse);

    set_ridged(d, two, m->yy);
    multiply(d, root, two, one);
    multiply(d, one, root, two);
    mirror(d, two);
    eigen_symmetric(d, two, values, v);
    power_of(d, values, v, 0.5, t);
    const double zz = 2 * trace(d, t) + 2 * dot(d, m->x, m->y);

    multiply(d, inverse, t, one);
    multiply(d, one, inverse, two);
    mirror(d, two);
    eigen_symmetric(d, two, values, v);
    set_plain(d, moments_best(zz / (double)d), e);
    const double b = sqrt(1 - 4 * e->a[0]);
    power_of(d, values, v, 0.5, one);
    set_scaled(d, e->bx, one, b, 0);
    power_of(d, values, v, -0.5, one);
    set_scaled(d, e->by, one, b, 0);
    power_of(d, values, v, 1, one);
    set_scaled(d, e->cx, one, -0.5, 0);
    power_of(d, values, v, -1, one);
    set_scaled(d, e->cy, one, -0.5, 0);
}

int64_t moments_scratch(int64_t d) { return 6 * d * d + d; }

/* Rows that are not finite say nothing, and must not reach others: A = 0. */
void moments_solve(foci_moments kind, const struct moments *m, double *scratch,
                   struct exponents *e)
{
    if (!isfinite(trace(m->d, m->xx) + trace(m->d, m->yy))) {
        set_plain(m->d, 0, e);
        return;
    }
    switch (kind) {
    case FOCI_MOMENTS_NONE: break;
    case FOCI_MOMENTS_NORM: solve_norm(m, e); break;
    case FOCI_MOMENTS_SYMMETRIC: solve_symmetric(m, scratch, e); break;
    case FOCI_MOMENTS_PAIR: solve_pair(m, scratch, e); break;
    }
}
