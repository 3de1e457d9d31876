/* heads_row.c -- how one row of weights is spread, and which fixed pattern it follows.
 *
 *     S = |a|_1 / (sqrt(n) |a|_2),   H = -sum of a log a,   perplexity e^H
 *     top-k    the k largest |a| over the sum of all
 *     distance sum of |a_j| |i - j| over the sum of |a_j|
 *     share    sum of min(a_j, p_j), p the row of a pattern (engine/positional)
 *
 * Sums are in double.
 */
#include <math.h>

#include "analyse/heads.h"

static const double off_one = 1e-3; /* a sum that is farther from 1 is none */

static void swap(float *a, float *b)
{
    const float c = *a;
    *a = *b;
    *b = c;
}

/* Bring the k largest of x[n] to the front (Hoare's selection). */
static void select_top(float *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;

    while (low < high) {
        const float pivot = x[low + (high - low) / 2];
        int64_t     i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i > j) break;
            swap(&x[i++], &x[j--]);
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

static double top_share(const struct head_row *r, float *x, double sum)
{
    double top = 0;

    if (r->top >= r->keys) return 1;
    for (int64_t j = 0; j < r->keys; j++)
        x[j] = fabsf(r->a[j]);
    select_top(x, r->keys, r->top);
    for (int64_t j = 0; j < r->top; j++)
        top += (double)x[j];
    return top / sum;
}

double head_overlap(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += (double)(a[j] < b[j] ? a[j] : b[j]);
    return sum;
}

/* The sum of 1, 8, ..., n^3. */
static double cubes(int64_t n)
{
    const double m = (double)n;
    return n > 0 ? m * m * (m + 1) * (m + 1) / 4 : 0;
}

/* Keys from `begin` to `end` whose weights are the cubes of 1, 2, ... upward or downward. */
static double cube_share(const float *a, int64_t begin, int64_t end, bool upward)
{
    const double all = cubes(end - begin);
    double       sum = 0;

    if (begin >= end) return NAN;
    for (int64_t j = begin; j < end; j++) {
        const double t = (double)(upward ? j - begin + 1 : end - j);
        sum += fmin((double)a[j], t * t * t / all);
    }
    return sum;
}

static double key_share(const struct head_row *r, int64_t j)
{
    return j >= 0 && j < r->keys ? fmin((double)r->a[j], 1) : NAN;
}

/* The patterns of a causal row are those on the keys up to its own. */
static void find_shares(const struct head_row *r, double *figures)
{
    const int64_t i = r->place, n = r->keys;

    figures[FOCI_HEAD_CURRENT] = key_share(r, i);
    figures[FOCI_HEAD_PREVIOUS] = key_share(r, i - 1);
    figures[FOCI_HEAD_NEXT] = key_share(r, i + 1);
    figures[FOCI_HEAD_LEFT] = cube_share(r->a, 0, i - 1, true);
    figures[FOCI_HEAD_RIGHT] = cube_share(r->a, i + 2, n, false);
    figures[FOCI_HEAD_END] = cube_share(r->a, 0, n, true);
    figures[FOCI_HEAD_START] = cube_share(r->a, 0, n, false);
}

static void find_entropy(const struct head_row *r, double *figures)
{
    double h = 0;

    for (int64_t j = 0; j < r->keys; j++)
        if (r->a[j] > 0) h -= (double)r->a[j] * log((double)r->a[j]);
    figures[FOCI_HEAD_ENTROPY] = h;
    figures[FOCI_HEAD_NORMALISED] = r->seen > 1 ? h / log((double)r->seen) : 0;
    figures[FOCI_HEAD_PERPLEXITY] = exp(h);
}

/* A row of zeros follows no pattern; its other figures are NaN. */
unsigned head_row_measure(const struct head_row *r, float *scratch,
                          double figures[FOCI_HEAD_ROW_FIGURES])
{
    double   sum = 0, sizes = 0, far = 0;
    unsigned odd = 0;

    for (int f = 0; f < FOCI_HEAD_ROW_FIGURES; f++)
        figures[f] = NAN;
    for (int64_t j = 0; j < r->keys; j++) {
        const double a = (double)r->a[j];
        if (!isfinite(a)) return HEAD_INFINITE;
        if (a < 0) odd |= HEAD_NEGATIVE;
        sum += a;
        sizes += fabs(a);
        far += fabs(a) * fabs((double)(r->place - j));
    }
    if (sizes > 0) {
        if (fabs(sum - 1) > off_one) odd |= HEAD_SUM;
        figures[FOCI_HEAD_CONCENTRATION] =
            foci_concentration(r->a, r->keys) *
            sqrt((double)r->keys / (double)(r->seen > 0 ? r->seen : 1));
        figures[FOCI_HEAD_TOP] = top_share(r, scratch, sizes);
        if (!r->apart) figures[FOCI_HEAD_DISTANCE] = far / sizes;
        if (!odd) find_entropy(r, figures);
    }
    if (!odd && r->patterns && !r->apart) find_shares(r, figures);
    return odd;
}
