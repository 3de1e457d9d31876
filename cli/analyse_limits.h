/* analyse_limits.h -- what `foci analyse --orthogonality --limits` measures. */
#ifndef FOCI_CLI_ANALYSE_LIMITS_H
#define FOCI_CLI_ANALYSE_LIMITS_H

#include "cli/analyse.h"
#include "foci/analyse.h"

enum { MAX_LIMITS = 6 * 32 };

struct limits_view {
    int64_t     width, heads, draws, rows;
    const char *of; /* "random states" */
    foci_limit  limits[MAX_LIMITS];
    int         n;
};

/* Measure heads of `dim` columns, and wider ones, of all kinds; x NULL: normal rows. */
foci_status limits_measure(foci_ctx *ctx, const struct args *a, int64_t width,
                           int64_t dim, const float *x, int64_t rows,
                           struct limits_view *v);
void        limits_print(const struct limits_view *v);
json_t     *limits_json(const struct limits_view *v);

#endif
