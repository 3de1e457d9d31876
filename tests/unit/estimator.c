/* estimator.c -- what foci_estimator_run() says of random features without a draw: held to
 * the closed forms of the literature and to numbers printed there; and its calls. */
#include <math.h>
#include <stdio.h>

#include "support/pairs.h"

/*
 * Numbers that are printed
 */

static void printed_kernels(void **state)
{
    static const float omega[] = { 1, 0, 0, 1, -1, 1 };
    static const struct {
        const char *spec;
        int64_t     n;
        double      value[9];
    } cases[] = {
        { "performer(features=3)",
          9,
          { 1.078378, .569733, .650548, .926458, 1.475202, 2.108359, .937693, .805376,
            .952237 } },
        { "performer(kind=favor++, features=3, a=-0.1)",
          3,
          { 1.587535, .797964, .782989 } },
        { "performer(kind=trig, features=3)", 3, { 2.028115, -.504722, -.248862 } },
    };
    static const double q[] = { 1, 0, 0, 1, 1, 1 }, k[] = { 1, 0, 0, 2, -1, 1 };
    struct pairs       *p = test_alloc(1, sizeof *p);
    const double        root = pow(2, -0.25);

    p->d = 2;
    for (int64_t t = 0; t < 18; t++) {
        p->x[t] = root * q[t / 6 * 2 + t % 2];
        p->y[t] = root * k[t % 6];
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        foci_plan *plan = pairs_plan(*state, cases[c].spec, 1, 2);
        p->n = cases[c].n;
        foci_estimator_io io = pairs_io(p, 1);
        io.omega = omega;
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        for (int64_t i = 0; i < p->n; i++)
            pairs_near(p->mean[i], cases[c].value[i], 6e-7, cases[c].spec);
        assert_true(isnan(p->variance[0]));
        foci_plan_free(plan);
    }
    free(p);
}

/* The a of the same queries and keys, each with each. */
static void printed_statistics(void **state)
{
    static const double q[] = { 1, 0, 0, 1, 1, 1 }, k[] = { 1, 0, 0, 2, -1, 1 };
    foci_plan          *plan = pairs_plan(*state, "performer(kind=favor++)", 1, 2);
    struct pairs       *p = test_alloc(1, sizeof *p);
    float *params = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *params);

    p->d = 2;
    p->n = 3;
    for (int64_t t = 0; t < 6; t++) {
        p->x[t] = pow(2, -0.25) * q[t];
        p->y[t] = pow(2, -0.25) * k[t];
    }
    const foci_estimator_io io = pairs_io(p, 0);
    assert_int_equal(foci_estimator_calibrate(plan, &io, params), FOCI_OK);
    foci_param a = { FOCI_SIZED(foci_param) };
    assert_int_equal(foci_plan_param(plan, 1, &a), FOCI_OK);
    pairs_near((double)params[a.offset], -0.526708, 6e-7, "a");
    pairs_near((double)params[a.offset + 1], -0.526708, 6e-7, "a");
    free(params);
    free(p);
    foci_plan_free(plan);
}

/*
 * Closed forms, as they are published for each kind
 */

/* |x + y|^2, and |x - y|^2 with sign -1. */
static double apart(const struct pairs *p, int64_t i, double sign)
{
    double sum = 0;
    for (int64_t t = i * p->d; t < (i + 1) * p->d; t++)
        sum += (p->x[t] + sign * p->y[t]) * (p->x[t] + sign * p->y[t]);
    return sum;
}

static void published_variances(void **state)
{
    enum { ROWS = 4 };
    struct pairs *favor = pairs_uneven(ROWS, DIM), *trig = pairs_uneven(ROWS, DIM);
    struct pairs *hyp = pairs_uneven(ROWS, DIM);

    pairs_estimate(*state, "performer", favor, favor, 0);
    pairs_estimate(*state, "performer(kind=trig)", trig, trig, 0);
    pairs_estimate(*state, "performer(kind=hyp)", hyp, hyp, 0);
    for (int64_t i = 0; i < favor->n; i++) {
        const double m = 2 * DIM, sum = apart(favor, i, 1), gap = apart(favor, i, -1);
        const double xy = pairs_dot(pairs_row(favor->x, favor, i),
                                    pairs_row(favor->y, favor, i), DIM);
        const double one = exp(sum + 2 * xy) * -expm1(-sum) / m;
        const double wave = exp(sum - 2 * xy) * expm1(-gap) * expm1(-gap) / (2 * m);

        pairs_near(favor->predicted[i] / one, 1, 1e-9, "favor+");
        pairs_near(trig->predicted[i] / wave, 1, 1e-9, "trig");
        pairs_near(hyp->predicted[i] / (one * -expm1(-sum) / 2), 1, 1e-9, "hyp");
    }
    free(favor);
    free(trig);
    free(hyp);
}

static void published_second_moment(void **state)
{
    const double  a = -0.3, d = DIM;
    struct pairs *p = pairs_uneven(4, DIM);

    pairs_estimate(*state, "performer(kind=favor++, a=-0.3)", p, p, 0);
    for (int64_t i = 0; i < p->n; i++) {
        const double *x = pairs_row(p->x, p, i), *y = pairs_row(p->y, p, i);
        const double  want = pow(1 - 4 * a, d) * pow(1 - 8 * a, -d / 2) *
                            exp(2 * (1 - 4 * a) / (1 - 8 * a) * apart(p, i, 1) -
                                pairs_dot(x, x, DIM) - pairs_dot(y, y, DIM));
        pairs_near(p->second[i] / want, 1, 1e-12, "favor++");
    }
    free(p);
}

/* What is estimated, by the formula for the mean: every kind is without bias. */
static void expected_is_exact(void **state)
{
    static const char *const specs[] = {
        "performer",
        "performer(kind=favor++, a=-0.4)",
        "performer(kind=favor++)",
        "performer(kind=sderf)",
        "performer(kind=aderf)",
        "performer(kind=trig)",
        "performer(kind=hyp)",
        "performer(kernel=gaussian)",
        "performer(kind=aderf, kernel=gaussian)",
        "performer(kind=trig, kernel=gaussian)",
    };
    struct pairs *p = pairs_uneven(12, DIM);

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        pairs_estimate(*state, specs[k], p, p, 0);
        for (int64_t i = 0; i < p->n; i++) {
            const double want =
                strstr(specs[k], "gaussian")
                    ? exp(-apart(p, i, -1) / 2)
                    : exp(pairs_dot(pairs_row(p->x, p, i), pairs_row(p->y, p, i), DIM));
            pairs_near(p->exact[i] / want, 1, 1e-12, specs[k]);
            pairs_near(p->expected[i] / want, 1, 1e-5,
                       specs[k]); /* parameters are floats */
        }
    }
    free(p);
}

/*
 * Calls
 */

/* Draws follow one another as heads do. */
static void draws_are_heads(void **state)
{
    foci_plan        *plan = pairs_plan(*state, "performer", 1, DIM);
    struct pairs     *p = pairs_short(DIM), *q = pairs_short(DIM);
    foci_estimator_io io = pairs_io(p, 7), given = pairs_io(q, 7);
    float            *omega = pairs_drawn(*state, "performer", 7, DIM);

    io.seed = 0;
    given.omega = omega;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    assert_int_equal(foci_estimator_run(plan, &given), FOCI_OK);
    for (int64_t i = 0; i < p->n; i++) {
        pairs_near(p->mean[i], q->mean[i], 0, "mean");
        pairs_near(p->variance[i], q->variance[i], 0, "variance");
    }
    free(p);
    free(q);
    free(omega);
    foci_plan_free(plan);
}

static void refused(void **state)
{
    foci_plan        *plan = pairs_plan(*state, "1*performer + 1*softmax", 2, DIM);
    struct pairs     *p = pairs_short(DIM);
    foci_estimator_io io = pairs_io(p, 0), bad = io;
    float *params = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *params);

    assert_int_equal(foci_estimator_run(plan, NULL), FOCI_ERR_ARG);
    bad.size = 0;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.head = 2;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad.head = 1;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(*state), "softmax"));
    bad = io;
    bad.draws = -1;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.x = NULL;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.n = INT64_MAX / 2;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad.n = 0;
    assert_int_equal(foci_estimator_calibrate(plan, &bad, params), FOCI_ERR_ARG);
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_OK);
    assert_int_equal(foci_estimator_calibrate(plan, &io, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    free(params);
    free(p);
    foci_plan_free(plan);
}

/* A caller with an older header does not have the results at the end. */
static void shorter_struct(void **state)
{
    foci_plan        *plan = pairs_plan(*state, "performer", 1, DIM);
    struct pairs     *p = pairs_short(DIM);
    foci_estimator_io io = pairs_io(p, 0);

    io.size = offsetof(foci_estimator_io, second);
    p->second[0] = -1;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    assert_true(p->second[0] < 0 && p->expected[0] > 1);
    free(p);
    foci_plan_free(plan);
}

/* Without parameters, and with those that are NaN, statistics are those of the pairs. */
static void unknown_statistics(void **state)
{
    static const char *const specs[] = { "performer(kind=favor++)",
                                         "performer(kind=sderf)",
                                         "performer(kind=aderf)" };
    struct pairs            *p = pairs_uneven(12, DIM), *q = pairs_uneven(12, DIM);

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        foci_plan        *plan = pairs_plan(*state, specs[k], 1, DIM);
        foci_estimator_io io = pairs_io(q, 0);
        float            *params =
            test_alloc((size_t)foci_plan_param_floats(plan), sizeof *params);

        pairs_estimate(*state, specs[k], p, p, 0);
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        for (int64_t i = 0; i < p->n; i++)
            pairs_near(q->second[i] / p->second[i], 1, 1e-5, specs[k]);
        assert_int_equal(foci_params_init(plan, 0, params), FOCI_OK);
        q->second[0] = 0;
        io.params = params;
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        pairs_near(q->second[0] / p->second[0], 1, 1e-5, specs[k]);
        free(params);
        foci_plan_free(plan);
    }
    free(p);
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_heads),
        cmocka_unit_test(printed_kernels),
        cmocka_unit_test(printed_statistics),
        cmocka_unit_test(published_variances),
        cmocka_unit_test(published_second_moment),
        cmocka_unit_test(expected_is_exact),
        cmocka_unit_test(refused),
        cmocka_unit_test(shorter_struct),
        cmocka_unit_test(unknown_statistics),
    };
    return cmocka_run_group_tests(tests, pairs_setup, pairs_teardown);
}
