/* stats.c -- statistics at their edges, by simulation, and what they refuse.  Numbers of
 * SciPy and sacrebleu are in tests/golden/stats.c. */
#include <float.h>
#include <math.h>

#include "foci/stats.h"
#include "test.h"

static foci_ctx *ctx;

static int open_ctx(void **state)
{
    (void)state;
    ctx = test_ctx(NULL, 1);
    return 0;
}

static int close_ctx(void **state)
{
    (void)state;
    foci_ctx_free(ctx);
    return 0;
}

static foci_summary summary_of(const double *x, int64_t n)
{
    foci_summary s = { FOCI_SIZED(foci_summary) };
    if (foci_summary_of(ctx, x, n, 0, &s)) fail_msg("%s", foci_errmsg(ctx));
    return s;
}

static foci_pairs pairs_of(const double *a, const double *b, int64_t n)
{
    foci_pairs p = { FOCI_SIZED(foci_pairs) };
    /* Where the bootstrap is not looked at, it should not take long. */
    const foci_pairs_options o = { FOCI_SIZED(foci_pairs_options), .resamples = 1 };
    if (foci_pairs_test(ctx, a, b, n, &o, &p)) fail_msg("%s", foci_errmsg(ctx));
    return p;
}

/* The last call failed because of its arguments, and says so. */
static void refused(foci_status status, const char *says)
{
    assert_int_equal(status, FOCI_ERR_ARG);
    if (!strstr(foci_errmsg(NULL), says))
        fail_msg("'%s' is not in '%s'", says, foci_errmsg(NULL));
}

/*
 * Seeds
 */

static void few_values(void **state)
{
    const double       x[] = { 3, 5 }, y[] = { 1, 4 };
    const foci_summary none = summary_of(NULL, 0), one = summary_of(x, 1);
    const foci_pairs   no_pair = pairs_of(NULL, NULL, 0), pair = pairs_of(x, y, 1);

    (void)state;
    assert_true(none.n == 0 && none.mean == 0 && none.median == 0 && none.iqm == 0);
    assert_true(none.deviation == 0 && none.low == -INFINITY && none.high == INFINITY);
    assert_true(one.mean == 3 && one.median == 3 && one.iqm == 3 && one.deviation == 0);
    assert_true(one.low == -INFINITY && one.high == INFINITY);
    assert_true(no_pair.difference == 0 && no_pair.p == 1 && no_pair.low == -INFINITY);
    assert_true(pair.difference == 2 && pair.p == 1 && pair.high == INFINITY);
    assert_true(pair.bootstrap_low == -INFINITY && pair.bootstrap_high == INFINITY);
    assert_int_equal(foci_verdict_of(pair.low, pair.high, 1e9, FOCI_BETTER_HIGHER),
                     FOCI_VERDICT_UNDECIDED);
}

/* Of n = 2 everything has a closed form: t_1 is Cauchy's distribution. */
static void two_values(void **state)
{
    const double       pi = 3.14159265358979323846, x[] = { 3, 5 }, zeros[] = { 0, 0 };
    const foci_summary s = summary_of(x, 2);
    const foci_pairs   p = pairs_of(x, zeros, 2);
    const double       half = tan(pi * 0.475);

    (void)state;
    assert_true(fabs(s.deviation - sqrt(2)) < 1e-15);
    assert_true(fabs(s.low - (4 - half)) < 1e-12 && fabs(s.high - (4 + half)) < 1e-12);
    assert_true(fabs(p.p - (1 - 2 * atan(4) / pi)) < 1e-15);
    assert_true(p.low == s.low && p.high == s.high && p.difference == 4);
}

static void equal_values(void **state)
{
    const double       x[] = { 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 }, y[7] = { 0 };
    const foci_summary s = summary_of(x, 7);
    const foci_pairs   same = pairs_of(x, x, 7), apart = pairs_of(x, y, 7);

    (void)state;
    assert_true(s.mean == 0.1 && s.deviation == 0 && s.low == 0.1 && s.high == 0.1);
    assert_true(s.median == 0.1 && s.iqm == 0.1);
    assert_true(same.difference == 0 && same.low == 0 && same.high == 0 && same.p == 1);
    assert_true(apart.low == 0.1 && apart.high == 0.1 && apart.p == 0);
    assert_true(apart.bootstrap_low == 0.1 && apart.bootstrap_high == 0.1);
}

/* The largest values that are taken: nothing overflows. */
static void large_values(void **state)
{
    const double       x[] = { 1e100, -1e100, 1e100 }, y[] = { -1e100, 1e100, -1e100 };
    const foci_summary s = summary_of(x, 3);
    const foci_pairs   p = pairs_of(x, y, 3);

    (void)state;
    assert_true(fabs(s.mean / 1e100 - 1.0 / 3) < 1e-15);
    assert_true(isfinite(s.low) && isfinite(s.high) && s.high > s.low);
    assert_true(isfinite(p.low) && p.high > p.low && p.p > 0 && p.p < 1);
}

static void refused_values(void **state)
{
    const double good[] = { 1, 2, 3 }, bad[] = { 1, NAN, 3 };
    const double infinite[] = { 1, 2, -INFINITY }, large[] = { 1e101, 0, 0 };
    const foci_pairs_options few = { FOCI_SIZED(foci_pairs_options), .resamples = -5 };
    const foci_pairs_options level = { FOCI_SIZED(foci_pairs_options), .level = 95 };
    foci_summary             s = { FOCI_SIZED(foci_summary) };
    foci_pairs               p = { FOCI_SIZED(foci_pairs) };

    (void)state;
    refused(foci_summary_of(ctx, bad, 3, 0, &s), "values[1] is nan");
    refused(foci_summary_of(ctx, large, 3, 0, &s), "values[0] is 1e+101");
    refused(foci_summary_of(ctx, good, -1, 0, &s), "-1 values");
    refused(foci_summary_of(ctx, NULL, 3, 0, &s), "3 values at NULL");
    refused(foci_summary_of(ctx, good, 3, 1, &s), "level is 1:");
    refused(foci_summary_of(ctx, good, 3, -0.5, &s), "level is -0.5:");
    refused(foci_summary_of(ctx, good, 3, NAN, &s), "level is nan:");
    refused(foci_summary_of(NULL, good, 3, 0, &s), "context is NULL");
    refused(foci_summary_of(ctx, good, 3, 0, NULL), "foci_summary");
    refused(foci_pairs_test(ctx, infinite, good, 3, NULL, &p), "a[2] is -inf");
    refused(foci_pairs_test(ctx, good, infinite, 3, NULL, &p), "b[2] is -inf");
    refused(foci_pairs_test(ctx, good, good, 3, &few, &p), "resamples is -5");
    refused(foci_pairs_test(ctx, good, good, 3, &level, &p), "level is 95");
}

/*
 * Verdicts
 */

static void verdicts(void **state)
{
    static const struct {
        double       low, high, margin;
        foci_verdict higher, lower; /* of what is better higher, and lower */
    } cases[] = {
        { 1.5, 3, 1, FOCI_VERDICT_BETTER, FOCI_VERDICT_WORSE },
        { -3, -1.5, 1, FOCI_VERDICT_WORSE, FOCI_VERDICT_BETTER },
        { 0.5, 3, 1, FOCI_VERDICT_BETTER, FOCI_VERDICT_WORSE },
        { -3, -0.5, 1, FOCI_VERDICT_WORSE, FOCI_VERDICT_BETTER },
        /* Certainly not 0, and within the margin. */
        { 0.2, 0.9, 1, FOCI_VERDICT_EQUIVALENT, FOCI_VERDICT_EQUIVALENT },
        { -1, 1, 1, FOCI_VERDICT_EQUIVALENT, FOCI_VERDICT_EQUIVALENT },
        { -1, 1.01, 1, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { 0, 3, 1, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { -3, 0, 1, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { 0, 0, 0, FOCI_VERDICT_EQUIVALENT, FOCI_VERDICT_EQUIVALENT },
        { 1e-9, 1, 0, FOCI_VERDICT_BETTER, FOCI_VERDICT_WORSE },
        { -INFINITY, INFINITY, 1e9, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { 2, 1, 0, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { NAN, 1, 0, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { 1, 2, -1, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
        { 1, 2, NAN, FOCI_VERDICT_UNDECIDED, FOCI_VERDICT_UNDECIDED },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double low = cases[i].low, high = cases[i].high, m = cases[i].margin;
        assert_int_equal(foci_verdict_of(low, high, m, FOCI_BETTER_HIGHER),
                         cases[i].higher);
        assert_int_equal(foci_verdict_of(low, high, m, FOCI_BETTER_LOWER),
                         cases[i].lower);
    }
    assert_string_equal(foci_verdict_name(FOCI_VERDICT_BETTER), "better");
    assert_string_equal(foci_verdict_name(FOCI_VERDICT_WORSE), "worse");
    assert_string_equal(foci_verdict_name(FOCI_VERDICT_EQUIVALENT), "equivalent");
    assert_string_equal(foci_verdict_name((foci_verdict)77), "undecided");
}

static void adjusted(void **state)
{
    const double p[] = { 0.5, 1.5 };
    double       to[2] = { 7, 7 };

    (void)state;
    assert_int_equal(foci_holm(ctx, NULL, 0, NULL), FOCI_OK);
    refused(foci_holm(ctx, p, 2, to), "p[1] is 1.5");
    refused(foci_holm(ctx, p, 1, NULL), "1 at NULL");
    refused(foci_holm(ctx, p, -1, to), "-1");
    assert_true(to[0] == 7);
    assert_int_equal(foci_holm(ctx, p, 1, to), FOCI_OK);
    assert_true(to[0] == 0.5 && to[1] == 7);
}

/*
 * Simulation: two arms drawn from one distribution
 */

enum { DRAWS = 4000 };

/* Of DRAWS intervals, those that miss the true mean 0, and those of pairs that miss 0. */
static void simulate(int n, uint64_t seed, int *missed, int *different, int *small_p)
{
    struct rng r;
    double     a[8], b[8];

    rng_seed(&r, seed, 0);
    *missed = *different = *small_p = 0;
    for (int k = 0; k < DRAWS; k++) {
        for (int i = 0; i < n; i++) {
            const double shared = rng_normal(&r); /* what a seed does to both */
            a[i] = shared + 0.5 * rng_normal(&r);
            b[i] = shared + 0.5 * rng_normal(&r);
        }
        const foci_summary s = summary_of(a, n);
        const foci_pairs   p = pairs_of(a, b, n);
        const foci_verdict v = foci_verdict_of(p.low, p.high, 0, FOCI_BETTER_HIGHER);
        *missed += s.low > 0 || s.high < 0;
        *different += v == FOCI_VERDICT_BETTER || v == FOCI_VERDICT_WORSE;
        *small_p += p.p < 0.05;
    }
}

/* 5 % of 4,000 with a standard deviation of 0.35 %: 1.5 % are more than four of them. */
static void coverage(void **state)
{
    static const int sizes[] = { 2, 3, 5, 8 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int missed, different, small_p;
        simulate(sizes[i], 20 + i, &missed, &different, &small_p);
        if (abs(missed - DRAWS / 20) > DRAWS * 0.015)
            fail_msg("n %d: %d of %d intervals miss the mean", sizes[i], missed, DRAWS);
        if (abs(different - DRAWS / 20) > DRAWS * 0.015)
            fail_msg("n %d: %d of %d pairs of equal arms differ", sizes[i], different,
                     DRAWS);
        assert_int_equal(different, small_p);
    }
}

/* Of REPEATS tests 20 are the nominal rate, with a standard deviation of 4.4. */
enum { N_SENTENCES = 60, REPEATS = 400, MOST_WRONG = 20 + 14 };

/* Answers of two equal arms: tests of sentences that say different, of REPEATS. */
static void sentences_of_equal_arms(void **state)
{
    struct rng r;
    int        bootstrap = 0, randomised = 0;

    (void)state;
    rng_seed(&r, 5, 0);
    for (int k = 0; k < REPEATS; k++) {
        double a[N_SENTENCES][2], b[N_SENTENCES][2];
        for (int i = 0; i < N_SENTENCES; i++) {
            const double shared = rng_normal(&r);
            a[i][0] = shared + rng_normal(&r) > 0;
            b[i][0] = shared + rng_normal(&r) > 0;
            a[i][1] = b[i][1] = 1;
        }
        const foci_sentences s = { FOCI_SIZED(foci_sentences),
                                   .n = N_SENTENCES,
                                   .n_counts = FOCI_RATIO_N_COUNTS,
                                   .a = a[0],
                                   .b = b[0],
                                   .score = foci_score_ratio,
                                   .samples = 200,
                                   .seed = (uint64_t)k + 1 };
        foci_bootstrap       x = { FOCI_SIZED(foci_bootstrap) };
        foci_randomisation   y = { FOCI_SIZED(foci_randomisation) };
        assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_OK);
        assert_int_equal(foci_sentences_randomise(ctx, &s, &y), FOCI_OK);
        bootstrap += x.low > 0 || x.high < 0;
        randomised += y.p <= 0.05;
    }
    assert_in_range(bootstrap, 1, MOST_WRONG);
    assert_in_range(randomised, 1, MOST_WRONG);
}

/*
 * Sentences
 */

static foci_sentences ratio(const double *a, const double *b, int64_t n)
{
    return (foci_sentences){ FOCI_SIZED(foci_sentences),
                             .n = n,
                             .n_counts = FOCI_RATIO_N_COUNTS,
                             .a = a,
                             .b = b,
                             .score = foci_score_ratio };
}

static void few_sentences(void **state)
{
    const double       a[] = { 1, 2, 2, 2 }, b[] = { 0, 2, 1, 2 };
    foci_sentences     s = ratio(NULL, NULL, 0);
    foci_bootstrap     x = { FOCI_SIZED(foci_bootstrap) };
    foci_randomisation y = { FOCI_SIZED(foci_randomisation) };

    (void)state;
    for (int64_t n = 0; n < 2; n++, s = ratio(a, b, n)) {
        assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_OK);
        assert_int_equal(foci_sentences_randomise(ctx, &s, &y), FOCI_OK);
        assert_true(x.n == n && x.p == 1 && x.low == -INFINITY && x.high == INFINITY);
        assert_true(y.n == n && y.p == 1);
        assert_true(x.difference == (double)n / 2 && y.difference == (double)n / 2);
    }
    /* Two sentences, both better by 1: of four exchanges two have the observed size. */
    assert_int_equal(s.n, 2);
    assert_int_equal(foci_sentences_randomise(ctx, &s, &y), FOCI_OK);
    assert_true(fabs(y.p - 0.5) < 0.02 && y.p_sacrebleu == 1.0 / 10001);
    assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_OK);
    assert_true(x.samples == 1000 && x.low == 0.5 && x.high == 0.5);
}

static void identical_arms(void **state)
{
    double             a[40];
    foci_sentences     s = ratio(a, a, 20);
    foci_bootstrap     x = { FOCI_SIZED(foci_bootstrap) };
    foci_randomisation y = { FOCI_SIZED(foci_randomisation) };

    (void)state;
    for (int i = 0; i < 40; i++)
        a[i] = 1 + 0.1 * i;
    assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_OK);
    assert_int_equal(foci_sentences_randomise(ctx, &s, &y), FOCI_OK);
    assert_true(x.p == 1 && y.p == 1 && x.low == 0 && x.high == 0);
    assert_true(x.mean[0] == x.mean[1] && x.half[0] == x.half[1] && x.half[0] > 0);
    assert_int_equal(foci_verdict_of(x.low, x.high, 0, FOCI_BETTER_LOWER),
                     FOCI_VERDICT_EQUIVALENT);
}

/* Default seed and samples; the order of the arms turns signs only. */
static void defaults(void **state)
{
    const double   a[] = { 1, 2, 0, 3, 2, 2, 1, 1 }, b[] = { 0, 2, 2, 3, 1, 2, 0, 1 };
    foci_sentences s = ratio(a, b, 4), t = ratio(b, a, 4);
    foci_bootstrap x = { FOCI_SIZED(foci_bootstrap) }, y = x;

    (void)state;
    assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_OK);
    t.seed = 12345;
    t.samples = 1000;
    t.level = 0.95;
    assert_int_equal(foci_sentences_bootstrap(ctx, &t, &y), FOCI_OK);
    assert_true(x.low == -y.high && x.high == -y.low && x.p == y.p);
    assert_true(x.mean[0] == y.mean[1] && x.half[1] == y.half[0]);
    t.seed = 1;
    assert_int_equal(foci_sentences_bootstrap(ctx, &t, &y), FOCI_OK);
    assert_true(x.mean[0] != y.mean[1]);
}

/* Rows of counts score as the counts do. */
static void rows(void **state)
{
    const foci_bleu_counts bleu = { { 9, 6, 4, 3 }, { 11, 10, 9, 8 }, 11, 12 };
    const foci_chrf_counts chrf = { { 20, 19, 18, 17, 16, 15 },
                                    { 22, 21, 20, 19, 18, 17 },
                                    { 18, 15, 11, 8, 5, 3 } };
    double                 row[FOCI_SENTENCE_COUNTS];
    foci_bleu              score = { FOCI_SIZED(foci_bleu) };

    (void)state;
    foci_bleu_row(&bleu, row);
    assert_int_equal(foci_bleu_score(&bleu, 0, &score), FOCI_OK);
    assert_true(score.score > 1 && foci_score_bleu(NULL, row) == score.score);
    foci_chrf_row(&chrf, row);
    assert_true(foci_score_chrf(NULL, row) == foci_chrf_score(&chrf));
    assert_true(foci_score_ratio(NULL, (double[]){ 1, 4 }) == 0.25);
    assert_true(isnan(foci_score_ratio(NULL, (double[]){ 1, 0 })));
    for (int i = 0; i < FOCI_CHRF_N_COUNTS; i++)
        row[i] = i % 3 ? NAN : 1e300;
    assert_true(foci_score_bleu(NULL, row) == 0 && foci_score_chrf(NULL, row) == 0);
}

static void refused_sentences(void **state)
{
    double             a[] = { 1, 2, 0, 3 };
    const double       empty[] = { 1, 2, 0, 0 };
    foci_sentences     s = ratio(a, a, 2), wrong;
    foci_bootstrap     x = { FOCI_SIZED(foci_bootstrap) };
    foci_randomisation y = { FOCI_SIZED(foci_randomisation) };
    const double       bad[] = { NAN, INFINITY, -INFINITY, 0x1p53 };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a[2] = bad[i];
        refused(foci_sentences_randomise(ctx, &s, &y), "count 0 of sentence 1 is ");
    }
    a[2] = 0x1p52; /* the largest of two sentences */
    assert_int_equal(foci_sentences_randomise(ctx, &s, &y), FOCI_OK);
#define REFUSED(field, value, says)                                                    \
    wrong = s;                                                                         \
    wrong.field = value;                                                               \
    refused(foci_sentences_bootstrap(ctx, &wrong, &x), says)
    REFUSED(n, -1, "n is -1");
    REFUSED(n, INT64_MAX, "0 to 2147483647");
    REFUSED(n_counts, 0, "n_counts is 0");
    REFUSED(n_counts, FOCI_SENTENCE_COUNTS + 1, "1 to 64");
    REFUSED(samples, -1, "samples is -1");
    REFUSED(level, 1.5, "level is 1.5");
    REFUSED(a, NULL, "a is NULL");
    REFUSED(b, NULL, "b is NULL");
    REFUSED(score, NULL, "score is NULL");
#undef REFUSED
    refused(foci_sentences_bootstrap(NULL, &s, &x), "context");
    refused(foci_sentences_bootstrap(ctx, NULL, &x), "foci_sentences");
    refused(foci_sentences_randomise(ctx, &s, NULL), "foci_randomisation");
    s = ratio(empty, empty, 2);
    refused(foci_sentences_bootstrap(ctx, &s, &x), "the score of sample ");
    s = ratio(empty + 2, a, 1);
    refused(foci_sentences_randomise(ctx, &s, &y), "the score of all sentences is nan");
    s = ratio(a, a, 2);
    s.samples = INT64_MAX;
    assert_int_equal(foci_sentences_bootstrap(ctx, &s, &x), FOCI_ERR_MEMORY);
}

/*
 * Distributions
 */

/* Closed forms of one and two degrees of freedom, symmetry, and the way back. */
static void distributions(void **state)
{
    static const double p[] = { 1e-200, 1e-9, 0.001, 0.2, 0.3, 0.49, 0.6, 0.999 };
    static const double df[] = { 0.5, 1, 2, 7.5, 400, 1e9, INFINITY };
    const double        pi = 3.14159265358979323846;

    (void)state;
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        const double t1 = -1 / tan(pi * p[i]), t2 = foci_t_quantile(p[i], 2);
        assert_true(fabs(foci_t_quantile(p[i], 1) / t1 - 1) < 1e-13);
        assert_true(fabs(t2 * sqrt(2 * p[i] * (1 - p[i])) / (2 * p[i] - 1) - 1) < 1e-13);
        for (size_t k = i == 0; k < sizeof df / sizeof *df; k++) {
            const double t = foci_t_quantile(p[i], df[k]);
            if (!(fabs(foci_t_cdf(t, df[k]) / p[i] - 1) < 1e-11))
                fail_msg("df %g: the quantile of %g is %.17g, below which are %.17g",
                         df[k], p[i], t, foci_t_cdf(t, df[k]));
        }
    }
    assert_true(foci_t_quantile(p[0], df[0]) == -INFINITY); /* -1e400 */
    assert_true(foci_t_quantile(0.975, INFINITY) == foci_normal_quantile(0.975));
    assert_true(foci_t_quantile(0.25, 3) == -foci_t_quantile(0.75, 3));
}

static void ends_of_distributions(void **state)
{
    (void)state;
    assert_true(foci_t_quantile(0, 3) == -INFINITY && foci_t_quantile(1, 3) == INFINITY);
    assert_true(foci_t_quantile(0.5, 3) == 0 && foci_t_cdf(0, 3) == 0.5);
    assert_true(foci_t_cdf(INFINITY, 3) == 1 && foci_t_cdf(-INFINITY, 3) == 0);
    assert_true(fabs(foci_t_cdf(-1e200, 1) * 3.14159265358979323846 * 1e200 - 1) <
                1e-12);
    assert_true(foci_t_cdf(-1e200, 1000) == 0 && foci_t_cdf(1e200, 1000) == 1);
    assert_true(foci_beta_cdf(0, 2, 3) == 0 && foci_beta_cdf(1, 2, 3) == 1);
    assert_true(fabs(foci_beta_cdf(0.25, 1, 1) - 0.25) < 1e-15);
    assert_true(isnan(foci_t_quantile(-0.1, 3)) && isnan(foci_t_quantile(1.1, 3)));
    assert_true(isnan(foci_t_quantile(NAN, 3)) && isnan(foci_t_quantile(0.5, 0)));
    assert_true(isnan(foci_t_cdf(NAN, 3)) && isnan(foci_t_cdf(1, -1)));
    assert_true(isnan(foci_t_cdf(1, NAN)) && isnan(foci_normal_quantile(2)));
    assert_true(isnan(foci_beta_cdf(-0.1, 1, 1)) && isnan(foci_beta_cdf(0.5, 0, 1)));
    assert_true(isnan(foci_beta_cdf(0.5, 1, INFINITY)) && isnan(foci_beta_cdf(2, 1, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_values),
        cmocka_unit_test(two_values),
        cmocka_unit_test(equal_values),
        cmocka_unit_test(large_values),
        cmocka_unit_test(refused_values),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(adjusted),
        cmocka_unit_test(coverage),
        cmocka_unit_test(sentences_of_equal_arms),
        cmocka_unit_test(few_sentences),
        cmocka_unit_test(identical_arms),
        cmocka_unit_test(defaults),
        cmocka_unit_test(rows),
        cmocka_unit_test(refused_sentences),
        cmocka_unit_test(distributions),
        cmocka_unit_test(ends_of_distributions),
    };
    return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
