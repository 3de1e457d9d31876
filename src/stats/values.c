/* values.c -- what descriptions of values have in common: checks, order, means, intervals. */
#include <math.h>
#include <stdlib.h>

#include "stats/stats.h"

/* Sums of squares of anything up to here are far from the largest double. */
static const double most = 1e100;

foci_status level_check(foci_ctx *ctx, const char *name, double *level)
{
    if (*level == 0) *level = 0.95;
    if (*level > 0 && *level < 1) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s is %g: a number between 0 and 1, or 0 for 0.95", name, *level);
}

foci_status values_check(foci_ctx *ctx, const char *name, const double *values,
                         int64_t n)
{
    if (!ctx) return ctx_fail(NULL, FOCI_ERR_ARG, "%s: the context is NULL", name);
    if (n < 0 || (n > 0 && !values))
        return ctx_fail(ctx, FOCI_ERR_ARG, "%s: %lld values%s: 0 or more are wanted",
                        name, (long long)n, n < 0 ? "" : " at NULL");
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(values[i]) <= most))
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s[%lld] is %g: a finite number of at most %g is wanted",
                            name, (long long)i, values[i], most);
    return FOCI_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void values_sort(double *values, int64_t n)
{
    if (n > 1) qsort(values, (size_t)n, sizeof *values, ascending);
}

/* Around the first value, so that the mean of equal ones is just that. */
double values_mean(const double *values, int64_t n)
{
    double sum = 0;

    for (int64_t i = 1; i < n; i++)
        sum += values[i] - values[0];
    return n ? values[0] + sum / (double)n : 0;
}

struct interval percentiles(const double *sorted, int64_t n, double level)
{
    /* The share as it was meant: 5 of 100 at level 0.9, not 4.999... */
    const double  share = (double)n * ((1 - level) / 2) + 1e-9;
    const int64_t out = min64((int64_t)share, (n - 1) / 2);
    return (struct interval){ sorted[out], sorted[n - 1 - out] };
}
