/* inverse.c -- the pseudo-inverse of a square matrix, by the iteration of the third order
 * or exactly, and the way back.
 *
 *     Z_0 = C^T / c,   Z' = Z (13 - Y (15 - Y (7 - Y))) / 4,   Y = C Z
 *
 * c is the largest column sum, for the rows of C sum to one.  The exact one comes from
 * rotations of pairs of columns until all are orthogonal: C V = U s, so Z = V s^-1 U^T.
 */
#include "ref/inverse.h"

#include <math.h>
#include <string.h>

static const double least_sine = 1e-15, least_singular = 1e-13;
enum { SWEEPS = 60 };

/* to = a b, by rows: a^T where `ta`, b^T where `tb`. */
static void product(int type, int64_t m, const double *a, bool ta, const double *b,
                    bool tb, double *to)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t t = 0; t < m; t++)
                sum = ref_round(type, sum + a[ta ? t * m + i : i * m + t] *
                                                b[tb ? j * m + t : t * m + j]);
            to[i * m + j] = sum;
        }
}

/* x = number I - x */
static void from_unit(int64_t m, double number, double *x)
{
    for (int64_t t = 0; t < m * m; t++)
        x[t] = (t % (m + 1) == 0 ? number : 0) - x[t];
}

static void scale(int64_t m, double by, double *x)
{
    for (int64_t t = 0; t < m * m; t++)
        x[t] *= by;
}

static void add(int64_t m, double by, const double *x, double *y)
{
    for (int64_t t = 0; t < m * m; t++)
        y[t] += by * x[t];
}

/* The column with the largest sum, the first of several. */
static int64_t heaviest(int64_t m, const double *c, double *sum)
{
    int64_t best = 0;

    *sum = -INFINITY;
    for (int64_t j = 0; j < m; j++) {
        double s = 0;
        for (int64_t i = 0; i < m; i++)
            s += c[i * m + j];
        if (s > *sum) *sum = s, best = j;
    }
    return best;
}

/*
 * Iteration
 */

/* Y, T1, T2 and T3 of one step. */
static void make_steps(const struct ref_inverse *x, const double *z)
{
    const int64_t m = x->m, mm = m * m;
    double       *y = x->scratch, *t1 = y + mm, *t2 = t1 + mm, *t3 = t2 + mm;

    product(x->type, m, x->c, false, z, false, y);
    memcpy(t1, y, (size_t)mm * sizeof *y);
    from_unit(m, 7, t1);
    product(x->type, m, y, false, t1, false, t2);
    from_unit(m, 15, t2);
    product(x->type, m, y, false, t2, false, t3);
    from_unit(m, 13, t3);
}

static void iterate(const struct ref_inverse *x)
{
    const int64_t m = x->m, mm = m * m;
    double        sum;

    heaviest(m, x->c, &sum);
    for (int64_t t = 0; t < mm; t++)
        x->z[t] = x->c[t % m * m + t / m] / sum;
    for (int64_t s = 0; s < x->iters; s++) {
        double *z = x->z + s * mm;
        make_steps(x, z);
        product(x->type, m, z, false, x->scratch + 3 * mm, false, z + mm);
        scale(m, 0.25, z + mm);
    }
}

/* From dz of Z' to dz of Z, adding to dc. */
static void step_back(const struct ref_inverse *x, const double *z, double *dz,
                      double *dc)
{
    const int64_t m = x->m, mm = m * m;
    double       *y = x->scratch, *t1 = y + mm, *t2 = t1 + mm, *t3 = t2 + mm;
    double       *d = t3 + mm, *dy = d + mm, *less = dy + mm, *dt = less + mm;

    make_steps(x, z);
    product(x->type, m, z, true, dz, false, dt); /* dT3 */
    scale(m, 0.25, dt);
    product(x->type, m, dz, false, t3, true, d);
    scale(m, 0.25, d);
    product(x->type, m, dt, false, t2, true, dy);
    product(x->type, m, y, true, dt, false, less); /* -dT2 */
    product(x->type, m, less, false, t1, true, dt);
    add(m, -1, dt, dy);                            /* dy is -dY so far */
    product(x->type, m, y, true, less, false, dt); /* dT1 */
    add(m, 1, dt, dy);
    scale(m, -1, dy);
    product(x->type, m, dy, false, z, true, dt);
    add(m, 1, dt, dc);
    product(x->type, m, x->c, true, dy, false, dt);
    add(m, 1, dt, d);
    memcpy(dz, d, (size_t)mm * sizeof *dz);
}

static void start_back(const struct ref_inverse *x, const double *dz, double *dc)
{
    const int64_t m = x->m;
    double        sum, along = 0;
    const int64_t column = heaviest(m, x->c, &sum);

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            dc[i * m + j] += dz[j * m + i] / sum;
            along += dz[j * m + i] * x->c[i * m + j];
        }
    for (int64_t i = 0; i < m; i++)
        dc[i * m + column] -= along / (sum * sum);
}

/*
 * Exactly
 */

/* Turn columns p and q of u, and of v, so that those of u are orthogonal; the sine of the
 * angle between them before. */
static double rotate(int64_t m, double *u, double *v, int64_t p, int64_t q)
{
    double a = 0, b = 0, g = 0;

    for (int64_t i = 0; i < m; i++) {
        a += u[i * m + p] * u[i * m + p];
        b += u[i * m + q] * u[i * m + q];
        g += u[i * m + p] * u[i * m + q];
    }
    if (a == 0 || b == 0 || g == 0) return 0;
    const double  zeta = (b - a) / (2 * g);
    const double  t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double  cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
    double *const both[] = { u, v };
    for (int w = 0; w < 2; w++)
        for (int64_t i = 0; i < m; i++) {
            const double x = both[w][i * m + p], y = both[w][i * m + q];
            both[w][i * m + p] = cosine * x - sine * y;
            both[w][i * m + q] = sine * x + cosine * y;
        }
    return fabs(g) / sqrt(a * b);
}

static double square_of(int64_t m, const double *u, int64_t column)
{
    double sum = 0;
    for (int64_t i = 0; i < m; i++)
        sum += u[i * m + column] * u[i * m + column];
    return sum;
}

static void invert(const struct ref_inverse *x)
{
    const int64_t m = x->m, mm = m * m;
    double       *u = x->scratch, *v = u + mm, most = 0, worst = 1;

    memcpy(u, x->c, (size_t)mm * sizeof *u);
    for (int64_t t = 0; t < mm; t++) {
        v[t] = t % (m + 1) == 0;
        x->z[t] = 0;
    }
    for (int sweep = 0; sweep < SWEEPS && worst > least_sine; sweep++) {
        worst = 0;
        for (int64_t p = 0; p < m; p++)
            for (int64_t q = p + 1; q < m; q++)
                worst = fmax(worst, rotate(m, u, v, p, q));
    }
    for (int64_t t = 0; t < m; t++)
        most = fmax(most, square_of(m, u, t));
    for (int64_t t = 0; t < m; t++) {
        const double square = square_of(m, u, t);
        if (sqrt(square) <= least_singular * sqrt(most)) continue;
        for (int64_t i = 0; i < mm; i++)
            x->z[i] += v[i / m * m + t] * u[i % m * m + t] / square;
    }
}

/* dC = -Z^T dZ Z^T */
static void invert_back(const struct ref_inverse *x, const double *dz, double *dc)
{
    const int64_t mm = x->m * x->m;
    double       *one = x->scratch, *two = one + mm;

    product(x->type, x->m, x->z, true, dz, false, one);
    product(x->type, x->m, one, false, x->z, true, two);
    add(x->m, -1, two, dc);
}

const double *ref_inverse(const struct ref_inverse *x)
{
    if (x->iters)
        iterate(x);
    else
        invert(x);
    return x->z + x->iters * x->m * x->m;
}

void ref_inverse_back(const struct ref_inverse *x, double *dz, double *dc)
{
    const int64_t mm = x->m * x->m;

    if (!x->iters) {
        invert_back(x, dz, dc);
        return;
    }
    for (int64_t s = x->iters; s-- > 0;)
        step_back(x, x->z + s * mm, dz, dc);
    start_back(x, dz, dc);
}
