/* theory.c -- the concentration of random weights: numbers that are printed, closed forms
 * against integration and Monte-Carlo over wide ranges, and what is refused. */
#include <math.h>
#include <stdio.h>

#include "foci/analyse.h"
#include "test.h"

enum { DRAWS = 20000 };

static foci_concentration_law normal(foci_concentration_kind kind, double beta,
                                     double gamma)
{
    return (foci_concentration_law){ FOCI_SIZED(foci_concentration_law), .kind = kind,
                                     .beta = beta, .gamma = gamma };
}

static foci_concentration_law decay(double lambda, int64_t n)
{
    return (foci_concentration_law){ FOCI_SIZED(foci_concentration_law),
                                     .kind = FOCI_CONCENTRATION_DECAY, .lambda = lambda,
                                     .n = n };
}

static foci_concentration_law features(int64_t dim, const double *q, double ratio)
{
    return (foci_concentration_law){ FOCI_SIZED(foci_concentration_law),
                                     .kind = FOCI_CONCENTRATION_LINEAR, .dim = dim,
                                     .q = q, .ratio = ratio };
}

static double closed(const foci_concentration_law *law)
{
    double s = -1;
    if (foci_concentration_theory(law, &s)) fail_msg("%s", foci_errmsg(NULL));
    return s;
}

/*
 * Numbers that are printed
 */

static void printed(foci_concentration_law law, double want)
{
    const double s = closed(&law);
    if (!(fabs(s - want) <= 5.0001e-7))
        fail_msg("kind %d: %.9f, expected %.6f", (int)law.kind, s, want);
}

static void printed_numbers(void **state)
{
    (void)state;
    for (double gamma = 0.25; gamma < 40; gamma *= 2) {
        static const struct {
            double t, relu2, identity;
        } rows[] = { { 0, .408248, .797885 },
                     { 1, .612773, .824933 },
                     { -1, .205256, .824933 },
                     { -3, .016706, NAN } };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const double beta = rows[i].t * gamma;
            printed(normal(FOCI_CONCENTRATION_RELU2, beta, gamma), rows[i].relu2);
            if (!isnan(rows[i].identity))
                printed(normal(FOCI_CONCENTRATION_IDENTITY, beta, gamma),
                        rows[i].identity);
        }
    }
    printed(normal(FOCI_CONCENTRATION_EXP, 17, 1), .606531); /* e^(-1/2) */
    printed(decay(0.9, 50), .613273);
    printed(decay(0.99, 10), .999584);
}

/* One query component: the ratio alone counts.  Many that are equal: far less. */
static void printed_features(void **state)
{
    static const double one[16] = { 0, 0, 3 };

    (void)state;
    printed(features(16, one, 1), .707107);
    printed(features(16, NULL, 1), .970143); /* sqrt(16/17) */
}

/*
 * Three ways to one number
 */

static void agree(foci_concentration_law law)
{
    static uint64_t seed;
    const double    s = closed(&law);
    double          q, m, error;

    assert_int_equal(foci_concentration_quadrature(&law, &q), FOCI_OK);
    assert_int_equal(foci_concentration_sample(&law, DRAWS, ++seed, &m, &error),
                     FOCI_OK);
    if (isnan(s)) {
        assert_true(isnan(q) && isnan(m));
        return;
    }
    assert_true(s >= 0 && s <= 1 + 1e-15);
    if (!(fabs(q - s) <= 1e-12 * s))
        fail_msg("kind %d, beta %g, gamma %g: %.17g, integrated %.17g", (int)law.kind,
                 law.beta, law.gamma, s, q);
    /* Errors may only be as large as those that are useful. */
    if (!(fabs(m - s) <= 4 * error + 1e-12 * s) || error > 0.05 * s)
        fail_msg("kind %d, beta %g, gamma %g, lambda %.17g, n %d: %.17g, drawn %.17g, "
                 "error %g",
                 (int)law.kind, law.beta, law.gamma, law.lambda, (int)law.n, s, m,
                 error);
}

static void normal_logits(void **state)
{
    static const double gammas[] = { 0, 1e-6, 0.3, 1, 2.5, 7, 20 };
    const double        step = test_sanitized() ? 5.5 : 0.75;

    (void)state;
    for (size_t g = 0; g < sizeof gammas / sizeof *gammas; g++) {
        agree(normal(FOCI_CONCENTRATION_EXP, (double)g - 3, gammas[g]));
        agree(normal(FOCI_CONCENTRATION_RELU2, 2, gammas[g]));
        agree(normal(FOCI_CONCENTRATION_RELU2, -2 * fmin(1, 10 * gammas[g]), gammas[g]));
        agree(normal(FOCI_CONCENTRATION_IDENTITY, -2, gammas[g]));
    }
    for (double t = -30; t <= 30; t += step) {
        agree(normal(FOCI_CONCENTRATION_RELU2, t / 3, 1.0 / 3));
        agree(normal(FOCI_CONCENTRATION_IDENTITY, t * 3, 3));
    }
}

static void decays(void **state)
{
    static const double lambdas[] = { 0, 0.3, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-12, 1 };
    static const int64_t keys[] = { 1, 2, 50, 1000, 100000 };

    (void)state;
    for (size_t l = 0; l < sizeof lambdas / sizeof *lambdas; l++)
        for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
            agree(decay(lambdas[l], keys[n]));
}

static void independent_features(void **state)
{
    static const double q[] = { 0.5, 0, 2, 1, 0.25 }, zero[] = { 0, 0 };
    static const double ratios[] = { 0, 1e-3, 0.5, 1, 3 };

    (void)state;
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        agree(features(1, NULL, ratios[i]));
        agree(features(5, q, ratios[i]));
        agree(features(20, NULL, ratios[i]));
        agree(features(2, zero, ratios[i]));
    }
}

/* Mean and covariance of a sample give the S of that very sample. */
static void sampled_features(void **state)
{
    enum { N = 50, DIM = 3 };
    static const double q[DIM] = { 1, 0.25, 3 };
    double              k[N][DIM], mean[DIM] = { 0 }, covariance[DIM][DIM] = { { 0 } };
    double              sum = 0, squares = 0;
    struct rng          r;

    (void)state;
    rng_seed(&r, 5, 0);
    for (int i = 0; i < N; i++)
        for (int t = 0; t < DIM; t++) {
            k[i][t] = exp(rng_normal(&r)) + (t ? k[i][0] : 0);
            mean[t] += k[i][t] / N;
        }
    for (int i = 0; i < N; i++) {
        double a = 0;
        for (int t = 0; t < DIM; t++) {
            a += q[t] * k[i][t];
            for (int u = 0; u < DIM; u++)
                covariance[t][u] += (k[i][t] - mean[t]) * (k[i][u] - mean[u]) / N;
        }
        sum += a;
        squares += a * a;
    }
    foci_concentration_law law = features(DIM, q, 0);
    law.mean = mean;
    law.covariance = covariance[0];
    assert_true(fabs(closed(&law) - sum / sqrt(N * squares)) < 1e-14);
}

/* Without spread all weights are f(beta); where that is 0, there is nothing to spread. */
static void no_spread(void **state)
{
    static const double nothing = 0;
    double              error = -1, s;

    (void)state;
    for (int beta = -1; beta <= 1; beta++) {
        const foci_concentration_law e = normal(FOCI_CONCENTRATION_EXP, beta, 0),
                                     r = normal(FOCI_CONCENTRATION_RELU2, beta, 0),
                                     i = normal(FOCI_CONCENTRATION_IDENTITY, beta, 0);
        assert_true(closed(&e) == 1);
        assert_true(beta > 0 ? closed(&r) == 1 : isnan(closed(&r)));
        assert_true(beta ? closed(&i) == 1 : isnan(closed(&i)));
        assert_int_equal(foci_concentration_sample(&e, 2, 0, &s, &error), FOCI_OK);
        assert_true(error == 0);
    }
    foci_concentration_law none = features(1, &nothing, 1);
    assert_true(isnan(closed(&none)));
}

/* Far out the forms neither overflow nor leave [0, 1]. */
static void far_out(void **state)
{
    (void)state;
    for (double beta = 1e3; beta < 1e300; beta *= 1e12)
        for (double gamma = 1e-200; gamma < 1e300; gamma *= 1e50)
            for (int sign = -1; sign <= 1; sign += 2)
                for (int kind = 0; kind < 3; kind++) {
                    const foci_concentration_law law =
                        normal((foci_concentration_kind)kind, sign * beta, gamma);
                    const double s = closed(&law);
                    assert_true((s >= 0 && s <= 1) ||
                                (kind == FOCI_CONCENTRATION_RELU2 && sign < 0));
                }
}

/*
 * Refusals
 */

static void refuse(foci_concentration_law law, const char *says)
{
    double s;

    assert_int_equal(foci_concentration_theory(&law, &s), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(NULL), says));
    assert_int_equal(foci_concentration_quadrature(&law, &s), FOCI_ERR_ARG);
    assert_int_equal(foci_concentration_sample(&law, 2, 0, &s, &s), FOCI_ERR_ARG);
}

static void refusals(void **state)
{
    static const double    less[] = { 1, -1 }, wrong[] = { 1, -2, -2, 1 };
    double                 s, error;
    foci_concentration_law law = features(2, NULL, 1);

    (void)state;
    refuse(normal(FOCI_CONCENTRATION_EXP, NAN, 1), "law.beta is nan");
    refuse(normal(FOCI_CONCENTRATION_RELU2, 0, -1), "law.gamma is -1");
    refuse(normal(FOCI_CONCENTRATION_IDENTITY, 0, INFINITY), "law.gamma is inf");
    refuse(normal(FOCI_CONCENTRATION_COUNT, 0, 1), "law.kind is 5; it takes 0 to 4");
    refuse(decay(1.5, 2), "law.lambda is 1.5; it takes 0 to 1");
    refuse(decay(0.5, 0), "law.n is 0");
    refuse(features(0, NULL, 1), "law.dim is 0");
    refuse(features(2, less, 1), "law.q[1] is -1");
    refuse(features(2, NULL, -1), "law.ratio is -1");
    law.mean = less;
    refuse(law, "law.covariance is NULL");
    law.covariance = wrong;
    refuse(law, "law.mean[1] is -1");
    law.mean = wrong + 3;
    law.dim = 1;
    assert_int_equal(foci_concentration_quadrature(&law, &s), FOCI_ERR_UNSUP);
    assert_int_equal(foci_concentration_sample(&law, 2, 0, &s, &error), FOCI_ERR_UNSUP);
    law.covariance = wrong + 1;
    assert_int_equal(foci_concentration_theory(&law, &s), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(NULL), "gives q.k the variance -2"));

    law = decay(0.5, 1 << 25);
    assert_int_equal(foci_concentration_quadrature(&law, &s), FOCI_ERR_UNSUP);
    assert_int_equal(foci_concentration_sample(&law, 1, 0, &s, &error), FOCI_ERR_ARG);
    assert_int_equal(foci_concentration_sample(&law, 2, 0, &s, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_concentration_theory(&law, NULL), FOCI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_numbers),
        cmocka_unit_test(printed_features),
        cmocka_unit_test(normal_logits),
        cmocka_unit_test(decays),
        cmocka_unit_test(independent_features),
        cmocka_unit_test(sampled_features),
        cmocka_unit_test(no_spread),
        cmocka_unit_test(far_out),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
