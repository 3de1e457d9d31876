/* verdict.c -- what intervals and p values amount to. */
#include <stdlib.h>

#include "stats/stats.h"

foci_verdict foci_verdict_of(double low, double high, double margin, foci_better better)
{
    if (!(low <= high && margin >= 0)) return FOCI_VERDICT_UNDECIDED;
    if (-margin <= low && high <= margin) return FOCI_VERDICT_EQUIVALENT;
    const bool above = low > 0, below = high < 0;

    if (!above && !below) return FOCI_VERDICT_UNDECIDED;
    return above == (better == FOCI_BETTER_HIGHER) ? FOCI_VERDICT_BETTER
                                                   : FOCI_VERDICT_WORSE;
}

const char *foci_verdict_name(foci_verdict verdict)
{
    switch (verdict) {
    case FOCI_VERDICT_BETTER: return "better";
    case FOCI_VERDICT_WORSE: return "worse";
    case FOCI_VERDICT_EQUIVALENT: return "equivalent";
    case FOCI_VERDICT_UNDECIDED: break;
    }
    return "undecided";
}

/*
 * Many comparisons: the i-th smallest of n p values, from 0, is multiplied by n - i, and is
 * then at least as large as those before it (Holm, "A Simple Sequentially Rejective Multiple
 * Test Procedure", 1979).
 */

struct place {
    double  p;
    int64_t i;
};

static int by_p(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->p > y->p) - (x->p < y->p);
}

static foci_status verdict_check(foci_ctx *ctx, const double *p, int64_t n,
                                 const double *adjusted)
{
    if (!ctx) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_holm: the context is NULL");
    if (n < 0 || (n > 0 && (!p || !adjusted)))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_holm takes 0 or more p values and a place for as many, "
                        "not %lld%s",
                        (long long)n, n < 0 ? "" : " at NULL");
    for (int64_t i = 0; i < n; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            return ctx_fail(ctx, FOCI_ERR_ARG, "p[%lld] is %g: 0 to 1 is wanted",
                            (long long)i, p[i]);
    return FOCI_OK;
}

foci_status foci_holm(foci_ctx *ctx, const double *p, int64_t n, double *adjusted)
{
    double running = 0;

    TRY(verdict_check(ctx, p, n, adjusted));
    if (n == 0) return FOCI_OK;
    struct place *places = ctx_alloc(ctx, (size_t)n, sizeof *places);
    if (!places) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        places[i] = (struct place){ p[i], i };
    qsort(places, (size_t)n, sizeof *places, by_p);
    for (int64_t i = 0; i < n; i++) {
        const double scaled = places[i].p * (double)(n - i);
        if (scaled > running) running = scaled < 1 ? scaled : 1;
        adjusted[places[i].i] = running;
    }
    ctx_free(ctx, places, (size_t)n, sizeof *places);
    return FOCI_OK;
}
