/* positional_means.c -- factors of running means with cubic weights. */
#include <assert.h>

#include "engine/positional/positional.h"

double positional_mean_factor(int64_t m)
{
    const double n = (double)m;
    return 4 * n / ((n + 1) * (n + 1));
}

/* s[p] = 1^p + ... + n^p. */
static void power_sums(double n, double s[4])
{
    s[0] = n;
    s[1] = n * (n + 1) / 2;
    s[2] = s[1] * (2 * n + 1) / 3;
    s[3] = s[1] * s[1];
}

static double power(double x, int p)
{
    double y = 1;

    for (; p > 0; p--)
        y *= x;
    return y;
}

/* Four means with weights distance^0 to distance^3 give all rows.  `from` takes the
 * means before m rows from row t on to those after them, where distances have grown by
 * m: a binomial expansion.  `row` does so for the i-th of these rows, where they have
 * grown by i + 1. */
static void set_cubes(struct cubes *f, int64_t t, int m)
{
    static const double binomial[4][4] = {
        { 1 }, { 1, 1 }, { 1, 2, 1 }, { 1, 3, 3, 1 }
    };
    double before[4], after[4];

    assert(m > 0 && m <= CUBE_ROWS);
    power_sums((double)t, before);
    for (int i = 0; i < m; i++) {
        power_sums((double)(t + i + 1), after);
        for (int q = 0; q < 4; q++)
            f->row[i][q] =
                (float)(binomial[3][q] * power(i + 1, 3 - q) * before[q] / after[3]);
        f->row[i][4] = (float)(1 / after[3]);
    }
    for (int p = 0; p < 4; p++) {
        f->in[p] = 1 / after[p];
        for (int q = 0; q <= p; q++)
            f->from[p * (p + 1) / 2 + q] =
                binomial[p][q] * power(m, p - q) * before[q] / after[p];
    }
}

void positional_cubes(struct cubes *f, int64_t t, int n)
{
    for (int i = 0; i < n; i += CUBE_ROWS)
        set_cubes(f++, t + i, (int)min64(CUBE_ROWS, n - i));
}
