/* estimates.c -- random features drawn many times: no bias where there should be none,
 * variances as they are predicted, and kinds that are better than others.
 *
 * Seeds are fixed, so that what passes once passes always; bounds are in standard errors
 * all the same, for what other compilers round differently.
 */
#include <math.h>
#include <stdio.h>

#include "support/pairs.h"

/* Fewer with FOCI_TEST_SHORT; variances then differ by more. */
static int64_t draws(void) { return getenv("FOCI_TEST_SHORT") ? 4000 : 100000; }

static double variance_bound(void) { return getenv("FOCI_TEST_SHORT") ? 0.25 : 0.05; }

static double standard_error(const struct pairs *p, int64_t i)
{
    return sqrt(p->variance[i] / (double)draws());
}

/*
 * Draws
 */

/* Kinds and kernels that are without bias; independent rows, or orthogonal ones. */
static const char *const unbiased[] = {
    "performer(kind=favor+, features=8%s)",
    "performer(kind=favor++, features=8, a=-0.1%s)",
    "performer(kind=favor++, features=8%s)",
    "performer(kind=sderf, features=8%s)",
    "performer(kind=aderf, features=8%s)",
    "performer(kind=trig, features=8%s)",
    "performer(kind=hyp, features=8%s)",
    "performer(kind=favor+, features=8, kernel=gaussian%s)",
};

enum { N_UNBIASED = sizeof unbiased / sizeof *unbiased };

static void draw_all(foci_ctx *ctx, const char *rows,
                     void (*look)(const struct pairs *p, const char *spec))
{
    struct pairs *p = pairs_short(DIM), *data = pairs_uneven(12, DIM);

    for (int k = 0; k < N_UNBIASED; k++) {
        char spec[96];
        snprintf(spec, sizeof spec, unbiased[k], rows);
        pairs_estimate(ctx, spec, p, data, draws());
        look(p, spec);
    }
    free(p);
    free(data);
}

static void no_bias(const struct pairs *p, const char *spec)
{
    for (int64_t i = 0; i < p->n; i++)
        pairs_near(p->mean[i], p->exact[i], 4 * standard_error(p, i), spec);
}

static void no_bias_and_variance(const struct pairs *p, const char *spec)
{
    no_bias(p, spec);
    for (int64_t i = 0; i < p->n; i++)
        pairs_near(p->variance[i] / p->predicted[i], 1, variance_bound(), spec);
}

static void independent_rows(void **state)
{
    draw_all(*state, ", ortho=0", no_bias_and_variance);
}

static void orthogonal_rows(void **state) { draw_all(*state, "", no_bias); }

static void orthogonal_rows_vary_less(void **state)
{
    struct pairs *p = pairs_short(DIM);

    pairs_estimate(*state, "performer(features=4)", p, p, draws());
    for (int64_t i = 0; i < p->n; i++)
        if (!(p->variance[i] < 0.98 * p->predicted[i]))
            fail_msg("orthogonal rows: variance %g, independent ones %g",
                     p->variance[i], p->predicted[i]);
    free(p);
}

/* Rows of a length that is not that of normals: the bias is there, and as predicted;
 * far larger for unit rows than for those of sqrt(d). */
static void biased_rows(void **state)
{
    struct pairs *unit = pairs_short(DIM), *root = pairs_short(DIM);

    pairs_estimate(*state, "performer(features=8, rows=unit)", unit, unit, draws());
    pairs_estimate(*state, "performer(features=8, rows=sqrt)", root, root, draws());
    for (int64_t i = 0; i < unit->n; i++) {
        const double bias = fabs(unit->mean[i] - unit->exact[i]);
        pairs_near(unit->mean[i], unit->expected[i], 4 * standard_error(unit, i),
                   "unit");
        pairs_near(root->mean[i], root->expected[i], 4 * standard_error(root, i),
                   "sqrt");
        assert_true(bias > 20 * standard_error(unit, i));
        assert_true(fabs(root->expected[i] - root->exact[i]) < bias / 4);
    }
    free(unit);
    free(root);
}

/* With sines and cosines too. */
static void biased_waves(void **state)
{
    struct pairs *p = pairs_short(DIM);

    pairs_estimate(*state, "performer(kind=trig, features=8, rows=unit)", p, p, draws());
    for (int64_t i = 0; i < p->n; i++)
        pairs_near(p->mean[i], p->expected[i], 4 * standard_error(p, i), "unit");
    free(p);
}

/*
 * Kinds beside each other
 */

static double mean_log_second(foci_ctx *ctx, const char *spec, struct pairs *p)
{
    double sum = 0;

    pairs_estimate(ctx, spec, p, p, 0);
    for (int64_t i = 0; i < p->n; i++)
        sum += log(p->second[i]) / (double)p->n;
    return sum;
}

static void kinds_get_better(void **state)
{
    static const char *const kinds[] = { "favor+", "favor++", "sderf", "aderf" };
    struct pairs            *p = pairs_uneven(20, 8);
    double                   last = (double)INFINITY;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char spec[64];
        snprintf(spec, sizeof spec, "performer(kind=%s)", kinds[k]);
        const double now = mean_log_second(*state, spec, p);
        if (!(now < last - 0.1))
            fail_msg("%s: mean log second moment %g, after %g", spec, now, last);
        last = now;
    }
    free(p);
}

/* The a that statistics give is the best one. */
static void statistics_are_best(void **state)
{
    struct pairs *p = pairs_uneven(20, 8);
    const double  best = mean_log_second(*state, "performer(kind=favor++)", p);

    for (double a = -1; a < 0.1; a += 0.01) {
        char spec[64];
        snprintf(spec, sizeof spec, "performer(kind=favor++, a=%.2f)", a);
        assert_true(mean_log_second(*state, spec, p) > best - 1e-9);
    }
    free(p);
}

/* Where x.y is well below 0 waves have large terms of both signs for a small sum.  Near
 * 0, where x and y are short, they are better. */
static void waves_are_worse(void **state)
{
    struct pairs *waves = test_alloc(1, sizeof *waves), *powers;
    struct rng    r;

    rng_seed(&r, 3, 0);
    waves->d = DIM;
    for (double norm = 0.75; norm < 1.6; norm += 0.25)
        for (double cosine = -0.9; cosine < -0.4; cosine += 0.2)
            pairs_add(waves, &r, norm, norm, cosine);
    powers = test_alloc(1, sizeof *powers);
    *powers = *waves;
    pairs_estimate(*state, "performer(kind=trig)", waves, waves, draws() / 4);
    pairs_estimate(*state, "performer", powers, powers, draws() / 4);
    for (int64_t i = 0; i < waves->n; i++) {
        assert_true(waves->exact[i] < 1);
        assert_true(waves->variance[i] > powers->variance[i]);
        assert_true(waves->predicted[i] > powers->predicted[i]);
    }
    free(waves);
    free(powers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_rows),
        cmocka_unit_test(orthogonal_rows),
        cmocka_unit_test(orthogonal_rows_vary_less),
        cmocka_unit_test(biased_rows),
        cmocka_unit_test(biased_waves),
        cmocka_unit_test(kinds_get_better),
        cmocka_unit_test(statistics_are_best),
        cmocka_unit_test(waves_are_worse),
    };
    return cmocka_run_group_tests(tests, pairs_setup, pairs_teardown);
}
