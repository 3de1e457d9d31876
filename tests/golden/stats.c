/* stats.c -- statistics against what SciPy, NumPy and sacrebleu make of the same numbers:
 * stats/cases.txt, by stats/make.py. */
#include "stats/stats.h"
#include "lines.h"

/* Sums in another order; what SciPy's distributions are good for; single precision. */
static const double close = 1e-13, special = 1e-10, single = 2e-6;

static foci_ctx *ctx;
static int       n_cases;

/* The numbers of a line. */
struct line {
    double *at;
    int64_t n;
};

static struct line line_of(const struct lines *c, const char *key)
{
    struct line l;
    l.at = numbers(need(c, key), &l.n);
    return l;
}

static double number_of(const struct lines *c, const char *key)
{
    return strtod(need(c, key), NULL);
}

static uint64_t seed_of(const struct lines *c)
{
    return strtoull(need(c, "seed"), NULL, 10);
}

static void expect(const struct lines *c, const char *key, const double *got, int64_t n,
                   double tolerance)
{
    double *want = exactly(c, key, n);

    for (int64_t i = 0; i < n; i++)
        if (!(got[i] == want[i] || fabs(got[i] - want[i]) <= tolerance * fabs(want[i])))
            fail_msg("%s: %s[%lld] is %.17g, not %.17g", need(c, "case"), key,
                     (long long)i, got[i], want[i]);
    free(want);
}

static void expect_one(const struct lines *c, const char *key, double got,
                       double tolerance)
{
    expect(c, key, &got, 1, tolerance);
}

static void expect_two(const struct lines *c, const char *key, double one, double two,
                       double tolerance)
{
    expect(c, key, (double[]){ one, two }, 2, tolerance);
}

/*
 * Distributions and draws
 */

static void check_distribution(const struct lines *c, const char *kind)
{
    const struct line x = line_of(c, "x"), df = line_of(c, "df");
    double           *b = text_of(c, "b") ? exactly(c, "b", x.n) : NULL;
    double           *y = test_alloc((size_t)x.n, sizeof *y);

    for (int64_t i = 0; i < x.n; i++)
        y[i] = !strcmp(kind, "t_cdf")        ? foci_t_cdf(x.at[i], df.at[i])
               : !strcmp(kind, "t_quantile") ? foci_t_quantile(x.at[i], df.at[i])
               : !strcmp(kind, "normal_quantile")
                   ? foci_normal_quantile(x.at[i])
                   : foci_beta_cdf(x.at[i], df.at[i], b[i]);
    expect(c, "y", y, x.n, special);
    free(x.at);
    free(df.at);
    free(b);
    free(y);
}

static void check_draws(const struct lines *c, const char *kind)
{
    const struct line want = line_of(c, "drawn");
    const char       *n = text_of(c, "n");
    struct pcg64      r;

    pcg64_seed(&r, seed_of(c));
    for (int64_t i = 0; i < want.n; i++) {
        const double got = !strcmp(kind, "bits")
                               ? pcg64_coin(&r)
                               : pcg64_below(&r, (uint32_t)strtoul(n, NULL, 10));
        if (got != want.at[i])
            fail_msg("%s: draw %lld is %.0f, not %.0f", need(c, "case"), (long long)i,
                     got, want.at[i]);
    }
    free(want.at);
}

/*
 * Seeds
 */

static void check_summary(const struct lines *c)
{
    const struct line values = line_of(c, "values");
    foci_summary      s = { FOCI_SIZED(foci_summary) };

    if (foci_summary_of(ctx, values.at, values.n, number_of(c, "level"), &s))
        fail_msg("%s", foci_errmsg(ctx));
    assert_int_equal(s.n, values.n);
    expect_one(c, "mean", s.mean, close);
    expect_one(c, "deviation", s.deviation, close);
    expect_one(c, "median", s.median, close);
    expect_one(c, "iqm", s.iqm, close);
    expect_two(c, "interval", s.low, s.high, special);
    free(values.at);
}

static void check_pairs(const struct lines *c)
{
    const struct line        a = line_of(c, "a"), b = line_of(c, "b");
    const foci_pairs_options o = { FOCI_SIZED(foci_pairs_options),
                                   .level = number_of(c, "level"),
                                   .resamples = (int64_t)number_of(c, "resamples"),
                                   .seed = seed_of(c) };
    foci_pairs               p = { FOCI_SIZED(foci_pairs) };

    if (foci_pairs_test(ctx, a.at, b.at, a.n, &o, &p)) fail_msg("%s", foci_errmsg(ctx));
    assert_int_equal(p.n, a.n);
    expect_one(c, "difference", p.difference, 1e-12);
    expect_one(c, "deviation", p.deviation, 1e-12);
    expect_one(c, "p", p.p, special);
    expect_two(c, "interval", p.low, p.high, special);
    expect_two(c, "bootstrap", p.bootstrap_low, p.bootstrap_high, 1e-12);
    free(a.at);
    free(b.at);
}

static void check_holm(const struct lines *c)
{
    const struct line p = line_of(c, "p");

    assert_int_equal(foci_holm(ctx, p.at, p.n, p.at), FOCI_OK);
    expect(c, "adjusted", p.at, p.n, close);
    free(p.at);
}

/*
 * Sentences
 */

static void take_score(const char *counts, foci_sentences *s)
{
    const bool bleu = !strcmp(counts, "bleu"), chrf = !strcmp(counts, "chrf");

    s->score = bleu ? foci_score_bleu : chrf ? foci_score_chrf : foci_score_ratio;
    s->n_counts = bleu   ? FOCI_BLEU_N_COUNTS
                  : chrf ? FOCI_CHRF_N_COUNTS
                         : FOCI_RATIO_N_COUNTS;
}

/* p values have to be equal; of single precision are the means and widths that sacrebleu
 * prints. */
static void check_sentences(const struct lines *c)
{
    const struct line  a = line_of(c, "a"), b = line_of(c, "b");
    foci_sentences     s = { FOCI_SIZED(foci_sentences), .a = a.at, .b = b.at,
                             .samples = (int64_t)number_of(c, "samples"),
                             .seed = seed_of(c) };
    foci_bootstrap     x = { FOCI_SIZED(foci_bootstrap) };
    foci_randomisation y = { FOCI_SIZED(foci_randomisation) };

    take_score(need(c, "counts"), &s);
    s.n = a.n / s.n_counts;
    if (foci_sentences_bootstrap(ctx, &s, &x)) fail_msg("%s", foci_errmsg(ctx));
    s.samples = (int64_t)number_of(c, "trials");
    if (foci_sentences_randomise(ctx, &s, &y)) fail_msg("%s", foci_errmsg(ctx));
    expect(c, "score", x.score, 2, close);
    expect(c, "score", y.score, 2, close);
    expect(c, "mean", x.mean, 2, close);
    expect(c, "half", x.half, 2, 1e-12);
    expect_two(c, "interval", x.low, x.high, 1e-11);
    expect_two(c, "bootstrap_p", x.p, x.p_sacrebleu, close);
    expect_two(c, "randomisation_p", y.p, y.p_sacrebleu, close);
    if (text_of(c, "sacrebleu")) {
        double *want = exactly(c, "sacrebleu", 6);
        assert_true(fabs(x.p_sacrebleu - want[4]) < 1e-15);
        assert_true(fabs(y.p_sacrebleu - want[5]) < 1e-15);
        free(want);
        expect(c, "sacrebleu",
               (double[]){ x.mean[0], x.mean[1], x.half[0], x.half[1], x.p_sacrebleu,
                           y.p_sacrebleu },
               6, single);
    }
    free(a.at);
    free(b.at);
}

static void check(void *user, const char *file, const struct lines *c)
{
    const char *kind = need(c, "kind");

    (void)user;
    (void)file;
    n_cases++;
    if (!strcmp(kind, "summary"))
        check_summary(c);
    else if (!strcmp(kind, "pairs"))
        check_pairs(c);
    else if (!strcmp(kind, "holm"))
        check_holm(c);
    else if (!strcmp(kind, "sentences"))
        check_sentences(c);
    else if (!strcmp(kind, "bits") || !strcmp(kind, "integers"))
        check_draws(c, kind);
    else
        check_distribution(c, kind);
}

static void cases(void **state)
{
    (void)state;
    ctx = test_ctx(NULL, 1);
    each_case("tests/golden/stats", "cases", check, NULL);
    assert_true(n_cases > 70);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cases) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
