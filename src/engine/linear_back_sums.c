/* linear_back_sums.c -- sums over keys and over queries in the backward pass. */
#include <math.h>

#include "engine/linear_back.h"

static void times_row(const struct linear *x, struct sums_of s, int r, float by)
{
    s.total[r] *= by;
    back_scale(s.rows + (int64_t)r * x->ldv, x->ldv, by);
}

void back_times(const struct linear *x, struct sums_of s, float by)
{
    for (int r = 0; by != 1 && r < x->m; r++)
        times_row(x, s, r, by);
}

/* Sums of nothing have no units yet. */
void back_to_units(const struct linear *x, struct sums_of s, const float *top)
{
    for (int r = 0; s.top && r < x->m; r++) {
        if (s.top[r] == top[r]) continue;
        if (s.top[r] != -INFINITY)
            times_row(x, s, r, top[r] == -INFINITY ? 0 : expf(top[r] - s.top[r]));
        s.top[r] = top[r];
    }
}

double back_dot(const struct linear *x, struct sums_of a, struct sums_of b)
{
    double sum = 0;

    for (int64_t i = 0; i < (int64_t)x->m * x->ldv; i++)
        sum += (double)a.rows[i] * (double)b.rows[i];
    return sum;
}

void back_plus(const struct linear *x, struct sums_of to, struct sums_of from)
{
    back_sum(to.rows, from.rows, (int64_t)x->m * x->ldv);
    for (int r = 0; r < x->m; r++)
        to.total[r] += from.total[r];
}
