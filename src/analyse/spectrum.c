/* spectrum.c -- the smallest and the largest eigenvalue of a symmetric matrix; all singular
 * values of any.
 *
 * Reflections make it tridiagonal (Householder, 1958); how many eigenvalues lie below a
 * number is then the count of negative pivots (Sturm), and halving finds the ends
 * (Golub and Van Loan, Matrix Computations, 8.3 and 8.4).
 */
#include <math.h>
#include <stdbool.h>

#include "analyse/spectrum.h"

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* a - 2 v v' a on both sides, v of length 1: with p = a v and w = p - (v.p) v that is
 * a - 2 (v w' + w v').  Rows of a are ld apart. */
static void reflect(double *a, int64_t ld, int64_t n, const double *v, double *p)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = dot(a + i * ld, v, n);
    const double along = dot(v, p, n);
    for (int64_t i = 0; i < n; i++)
        p[i] -= along * v[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * ld + j] -= 2 * (v[i] * p[j] + p[i] * v[j]);
}

/* The reflection that leaves of row s what stands at s and s + 1; its new neighbour of the
 * diagonal is the result. */
static double clear_row(double *a, int64_t n, int64_t s, double *v, double *p)
{
    const int64_t left = n - s - 1;
    double *const row = a + s * n + s + 1;
    const double  length = sqrt(dot(row, row, left));
    const double  beside = row[0] > 0 ? -length : length;

    for (int64_t i = 0; i < left; i++)
        v[i] = row[i];
    v[0] -= beside;
    const double norm = sqrt(dot(v, v, left));
    if (!(norm > 0)) return beside;
    for (int64_t i = 0; i < left; i++)
        v[i] /= norm;
    reflect(a + (s + 1) * n + s + 1, n, left, v, p);
    return beside;
}

/* Eigenvalues below x. */
static int64_t below(const double *diagonal, const double *beside, int64_t n, double x)
{
    const double tiny = 1e-300;
    double       pivot = 1;
    int64_t      count = 0;

    for (int64_t i = 0; i < n; i++) {
        pivot = diagonal[i] - x - (i ? beside[i - 1] * beside[i - 1] / pivot : 0);
        if (fabs(pivot) < tiny) pivot = -tiny;
        count += pivot < 0;
    }
    return count;
}

/* Where `least` eigenvalues first lie below. */
static double halve(const double *diagonal, const double *beside, int64_t n,
                    int64_t least, double far)
{
    double low = -far, high = far;

    for (int step = 0; step < 120 && high > low; step++) {
        const double middle = low + (high - low) / 2;

        if (below(diagonal, beside, n, middle) >= least)
            high = middle;
        else
            low = middle;
    }
    return high;
}

void spectrum_ends(double *a, int64_t n, double *work, double *least, double *most)
{
    double *const diagonal = work, *const v = work + n, *const p = work + 2 * n;
    double far = 0;

    /* Row s is done with after its step: its neighbour is kept there. */
    for (int64_t s = 0; s < n; s++) {
        diagonal[s] = a[s * n + s];
        if (s + 1 < n) a[s * n] = clear_row(a, n, s, v, p);
    }
    double *const beside = v;
    for (int64_t s = 0; s < n; s++) {
        beside[s] = s + 1 < n ? a[s * n] : 0;
        far = fmax(far,
                   fabs(diagonal[s]) + fabs(beside[s]) + (s ? fabs(beside[s - 1]) : 0));
    }
    far = far * (1 + 1e-12) + 1e-300;
    *least = halve(diagonal, beside, n, 1, far);
    *most = halve(diagonal, beside, n, n, far);
}

/*
 * Singular values
 */

/* Make v, of `left` numbers `step` apart, the direction of the reflection that leaves of it the
 * result, at its first place, alone; false: there is nothing to reflect. */
static bool direction(const double *x, int64_t step, int64_t left, double *v,
                      double *stays)
{
    double squares = 0;

    for (int64_t i = 0; i < left; i++) {
        v[i] = x[i * step];
        squares += v[i] * v[i];
    }
    const double length = sqrt(squares);
    *stays = v[0] > 0 ? -length : length;
    v[0] -= *stays;
    const double norm = sqrt(dot(v, v, left));
    for (int64_t i = 0; norm > 0 && i < left; i++)
        v[i] /= norm;
    return norm > 0;
}

/* a -= 2 v (v' a), of m rows and n columns. */
static void reflect_rows(double *a, int64_t ld, int64_t m, int64_t n, const double *v,
                         double *p)
{
    for (int64_t j = 0; j < n; j++)
        p[j] = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            p[j] += v[i] * a[i * ld + j];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * ld + j] -= 2 * v[i] * p[j];
}

/* a -= 2 (a v) v'. */
static void reflect_columns(double *a, int64_t ld, int64_t m, int64_t n, const double *v)
{
    for (int64_t i = 0; i < m; i++) {
        const double along = 2 * dot(a + i * ld, v, n);
        for (int64_t j = 0; j < n; j++)
            a[i * ld + j] -= along * v[j];
    }
}

/* To two diagonals, which alternate in beside[2 n - 1] (Golub and Kahan, 1965). */
static void bidiagonal(double *a, int64_t m, int64_t n, double *beside, double *v,
                       double *p)
{
    for (int64_t s = 0; s < n; s++) {
        double *const at = a + s * n + s;

        if (direction(at, n, m - s, v, &beside[2 * s]))
            reflect_rows(at + 1, n, m - s, n - s - 1, v, p);
        if (s + 1 == n) break;
        if (direction(at + 1, 1, n - s - 1, v, &beside[2 * s + 1]))
            reflect_columns(at + n + 1, n, m - s - 1, n - s - 1, v);
    }
}

/* They are the positive eigenvalues of the matrix with a diagonal of zeros and these numbers
 * beside it, the negative of which are the same. */
void spectrum_singular(double *a, int64_t m, int64_t n, double *work, double *sigma)
{
    double *const diagonal = work, *const beside = work + 2 * n;
    double *const v = work + 4 * n, *const p = v + m;
    double far = 0, low = 0;

    bidiagonal(a, m, n, beside, v, p);
    for (int64_t i = 0; i < 2 * n; i++)
        diagonal[i] = 0;
    for (int64_t i = 0; i < 2 * n - 1; i++)
        far = fmax(far, fabs(beside[i]) + (i ? fabs(beside[i - 1]) : 0));
    far = far * (1 + 1e-12) + 1e-300;
    for (int64_t k = 0; k < n; k++) {
        double high = far;
        for (int step = 0; step < 60; step++) {
            const double middle = low + (high - low) / 2;
            if (below(diagonal, beside, 2 * n, middle) >= n + k + 1)
                high = middle;
            else
                low = middle;
        }
        sigma[k] = low = high;
    }
}
