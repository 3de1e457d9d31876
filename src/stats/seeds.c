/* seeds.c -- values over seeds: one arm described, two arms compared in pairs.
 *
 *     mean +- t_(n-1)((1 + level)/2) deviation / sqrt(n)
 *
 * is the t interval (Student, "The Probable Error of a Mean", 1908), of the differences in a
 * comparison of pairs.  The bootstrap's intervals are percentiles (Efron, "Bootstrap Methods:
 * Another Look at the Jackknife", 1979).  The interquartile mean is what Agarwal et al., "Deep
 * Reinforcement Learning at the Edge of the Statistical Precipice", 2021, report for few runs.
 */
#include <math.h>
#include <string.h>

#include "stats/stats.h"

/* Divided by the largest first: the square of what is small is not 0. */
static double deviation_of(const double *values, int64_t n, double mean)
{
    double largest = 0, sum = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(values[i] - mean));
    if (n < 2 || largest == 0) return 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (values[i] - mean) / largest;
        sum += d * d;
    }
    return largest * sqrt(sum / (double)(n - 1));
}

static struct interval t_interval(double mean, double deviation, int64_t n, double level)
{
    if (n < 2) return (struct interval){ -INFINITY, INFINITY };
    const double df = (double)(n - 1);
    const double half =
        -foci_t_quantile((1 - level) / 2, df) * deviation / sqrt(df + 1);
    return (struct interval){ mean - half, mean + half };
}

/*
 * One arm
 */

static void order_statistics(const double *sorted, int64_t n, foci_summary *s)
{
    const int64_t cut = n / 4;

    s->median = n % 2 ? sorted[n / 2] : values_mean(sorted + n / 2 - 1, 2);
    s->iqm = values_mean(sorted + cut, n - 2 * cut);
}

foci_status foci_summary_of(foci_ctx *ctx, const double *values, int64_t n,
                            double level, foci_summary *summary)
{
    foci_summary s = { FOCI_SIZED(foci_summary), .n = n };

    TRY(values_check(ctx, "values", values, n));
    TRY(level_check(ctx, "level", &level));
    TRY(sized_check(ctx, "foci_summary", summary, sizeof s));
    s.mean = values_mean(values, n);
    s.deviation = deviation_of(values, n, s.mean);
    const struct interval t = t_interval(s.mean, s.deviation, n, level);
    s.low = t.low;
    s.high = t.high;
    if (n) {
        double *sorted = ctx_alloc(ctx, (size_t)n, sizeof *sorted);
        if (!sorted) return FOCI_ERR_MEMORY;
        memcpy(sorted, values, (size_t)n * sizeof *sorted);
        values_sort(sorted, n);
        order_statistics(sorted, n, &s);
        ctx_free(ctx, sorted, (size_t)n, sizeof *sorted);
    }
    return sized_out(ctx, "foci_summary", summary, &s, sizeof s);
}

/*
 * Pairs
 */

/* Means of n differences drawn with replacement. */
static void bootstrap(const double *d, int64_t n, uint64_t seed, double *means,
                      int64_t n_means)
{
    struct rng r;

    rng_seed(&r, seed, 0);
    for (int64_t k = 0; k < n_means; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += d[rng_below(&r, n)] - d[0];
        means[k] = d[0] + sum / (double)n;
    }
    values_sort(means, n_means);
}

static double t_test(const foci_pairs *r)
{
    if (r->n < 2) return 1;
    if (r->deviation == 0) return r->difference == 0;
    const double t = fabs(r->difference) / r->deviation * sqrt((double)r->n);
    return 2 * t_tail(t, (double)(r->n - 1));
}

static foci_status compare(foci_ctx *ctx, const double *d, int64_t n,
                           const foci_pairs_options *o, foci_pairs *r)
{
    r->difference = values_mean(d, n);
    r->deviation = deviation_of(d, n, r->difference);
    r->p = t_test(r);
    struct interval t = t_interval(r->difference, r->deviation, n, o->level);
    struct interval b = t;

    if (n > 1) {
        double *means = ctx_alloc(ctx, (size_t)o->resamples, sizeof *means);
        if (!means) return FOCI_ERR_MEMORY;
        bootstrap(d, n, o->seed, means, o->resamples);
        b = percentiles(means, o->resamples, o->level);
        ctx_free(ctx, means, (size_t)o->resamples, sizeof *means);
    }
    r->low = t.low;
    r->high = t.high;
    r->bootstrap_low = b.low;
    r->bootstrap_high = b.high;
    return FOCI_OK;
}

static foci_status take_options(foci_ctx *ctx, const foci_pairs_options *given,
                                foci_pairs_options *o)
{
    *o = (foci_pairs_options){ FOCI_SIZED(foci_pairs_options) };
    if (given) TRY(sized_in(ctx, "foci_pairs_options", o, given, sizeof *o));
    if (o->resamples == 0) o->resamples = 10000;
    if (o->resamples < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "resamples is %lld: 1 or more, or 0 for 10,000",
                        (long long)o->resamples);
    return level_check(ctx, "level", &o->level);
}

foci_status foci_pairs_test(foci_ctx *ctx, const double *a, const double *b, int64_t n,
                            const foci_pairs_options *options, foci_pairs *pairs)
{
    foci_pairs         r = { FOCI_SIZED(foci_pairs), .n = n };
    foci_pairs_options o;

    TRY(values_check(ctx, "a", a, n));
    TRY(values_check(ctx, "b", b, n));
    TRY(take_options(ctx, options, &o));
    TRY(sized_check(ctx, "foci_pairs", pairs, sizeof r));

    double *d = ctx_alloc(ctx, (size_t)n + 1, sizeof *d);
    if (!d) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        d[i] = a[i] - b[i];
    const foci_status status = compare(ctx, d, n, &o, &r);
    ctx_free(ctx, d, (size_t)n + 1, sizeof *d);
    return status ? status : sized_out(ctx, "foci_pairs", pairs, &r, sizeof r);
}
