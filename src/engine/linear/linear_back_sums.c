/* linear_back_sums.c -- sums R [m][dv] and rho [m] over queries.  Their units are e^-c,
 * the inverse of those of S and z, so that products of the two need none. */
#include <math.h>

#include "engine/linear/linear_back.h"

static void times_row(const struct linear *x, struct linear_sums s, int r, float by)
{
    s.total[r] *= by;
    linear_back_scale(s.rows + (int64_t)r * x->ldv, x->ldv, by);
}

void linear_back_sums_scale(const struct linear *x, struct linear_sums s, float by)
{
    for (int r = 0; by != 1 && r < x->m; r++)
        times_row(x, s, r, by);
}

/* Sums that are still empty take any units. */
void linear_back_sums_rescale(const struct linear *x, struct linear_sums s,
                              const float *max_log)
{
    for (int r = 0; s.max_log && r < x->m; r++) {
        if (s.max_log[r] == max_log[r]) continue;
        if (s.max_log[r] != -INFINITY)
            times_row(x, s, r,
                      max_log[r] == -INFINITY ? 0 : expf(max_log[r] - s.max_log[r]));
        s.max_log[r] = max_log[r];
    }
}

double linear_back_sums_dot(const struct linear *x, struct linear_sums a,
                            struct linear_sums b)
{
    double sum = 0;

    for (int64_t i = 0; i < (int64_t)x->m * x->ldv; i++)
        sum += (double)a.rows[i] * (double)b.rows[i];
    return sum;
}

void linear_back_sums_add(const struct linear *x, struct linear_sums to,
                          struct linear_sums from)
{
    linear_back_add(to.rows, from.rows, (int64_t)x->m * x->ldv);
    for (int r = 0; r < x->m; r++)
        to.total[r] += from.total[r];
}
