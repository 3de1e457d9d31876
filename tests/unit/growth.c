/* growth.c -- costs against length: powers of the length have crossings in closed form, and
 * the lowest curve can be looked up on a fine grid. */
#include <math.h>
#include <stdlib.h>

#include "cli/growth.h"
#include "test.h"

enum { LENGTHS = 5, CURVES = 6 };

static const double lengths[LENGTHS] = { 64, 100, 1000, 1024, 65536 };

static void fill(double *costs, double factor, double power)
{
    for (int i = 0; i < LENGTHS; i++)
        costs[i] = factor * pow(lengths[i], power);
}

static void near(double seen, double expected)
{
    if (!(fabs(seen - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g is not %.17g", seen, expected);
}

/*
 * Prediction
 */

static void powers_are_continued(void **state)
{
    double costs[LENGTHS];

    (void)state;
    for (double power = 0; power <= 3; power += 0.5) {
        fill(costs, 3e-9, power);
        near(growth_predict(lengths, costs, LENGTHS, 1e6), 3e-9 * pow(1e6, power));
        near(growth_predict(lengths, costs, LENGTHS, 1010), 3e-9 * pow(1010, power));
    }
}

static void the_last_two_decide(void **state)
{
    /* Overhead first, then the square; length 1000 was not measured. */
    const double costs[LENGTHS] = { 1, 1, NAN, 1, 64 * 64 };

    (void)state;
    near(growth_predict(lengths, costs, LENGTHS, 131072), 4 * 64 * 64);
    near(growth_predict(lengths, costs, LENGTHS, 2048), 1);
    near(growth_predict(lengths, costs, LENGTHS, 1001), 1);
}

static void noise_does_not_fall(void **state)
{
    const double costs[LENGTHS] = { 1, 2, 3, 2, NAN };

    (void)state;
    near(growth_predict(lengths, costs, LENGTHS, 1e6), 2);
}

static void one_length_predicts_nothing(void **state)
{
    const double costs[LENGTHS] = { NAN, 2, NAN, NAN, 7 };

    (void)state;
    assert_true(isnan(growth_predict(lengths, costs, LENGTHS, 65536)));
    assert_true(isnan(growth_predict(lengths, costs, 0, 65536)));
}

/*
 * Crossings
 */

static void powers_cross_where_they_are_equal(void **state)
{
    double costs[LENGTHS], others[LENGTHS];

    (void)state;
    /* f n = g n^2 at n = f/g, whatever lengths were measured. */
    for (double n = 65; n < 65536; n *= 1.7) {
        fill(costs, n * 1e-9, 1);
        fill(others, 1e-9, 2);
        near(growth_crossing(lengths, costs, others, LENGTHS), n);
        assert_true(isinf(growth_crossing(lengths, others, costs, LENGTHS)));
    }
}

static void always_and_never(void **state)
{
    double costs[LENGTHS], others[LENGTHS];

    (void)state;
    fill(costs, 1, 1);
    fill(others, 2, 1);
    assert_true(growth_crossing(lengths, costs, others, LENGTHS) == 0);
    assert_true(isinf(growth_crossing(lengths, others, costs, LENGTHS)));
    assert_true(isinf(growth_crossing(lengths, costs, costs, LENGTHS)));
}

static void the_last_crossing_counts(void **state)
{
    const double costs[LENGTHS] = { 1, 4, 1, 1, 1 };
    const double others[LENGTHS] = { 2, 2, 2, 2, 2 };

    (void)state;
    /* log 2 above at 100, log 2 below at 1000: halfway on logarithms. */
    near(growth_crossing(lengths, costs, others, LENGTHS), sqrt(100.0 * 1000));
}

static void what_was_not_measured_is_left_out(void **state)
{
    const double costs[LENGTHS] = { 4, NAN, 1, NAN, 9 };
    const double others[LENGTHS] = { 2, 1, 2, 1, NAN };
    const double none[LENGTHS] = { NAN, NAN, NAN, NAN, 1 };

    (void)state;
    near(growth_crossing(lengths, costs, others, LENGTHS), sqrt(64.0 * 1000));
    assert_true(isnan(growth_crossing(lengths, none, others, LENGTHS)));
}

/*
 * The lowest curve
 */

static void three_powers(void **state)
{
    double              costs[3][LENGTHS];
    struct growth_range r[4 * LENGTHS];

    (void)state;
    /* n^2, 200 n, 200 sqrt(3000) sqrt(n): they meet at 200 and at 3000. */
    fill(costs[0], 1, 2);
    fill(costs[1], 200, 1);
    fill(costs[2], 200 * sqrt(3000), 0.5);
    assert_int_equal(growth_lowest(lengths, LENGTHS, costs[0], 3, r), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r[i].curve, i);
    near(r[0].from, 64);
    near(r[0].to, 200);
    near(r[1].from, 200);
    near(r[1].to, 3000);
    near(r[2].from, 3000);
    near(r[2].to, 65536);
}

static void one_that_was_measured_once(void **state)
{
    const double costs[2][LENGTHS] = { { NAN, NAN, 1, NAN, NAN }, { 5, 5, 5, 5, NAN } };
    struct growth_range r[3 * LENGTHS];

    (void)state;
    assert_int_equal(growth_lowest(lengths, LENGTHS, costs[0], 2, r), 3);
    assert_int_equal(r[1].curve, 0);
    near(r[1].from, 1000);
    near(r[1].to, 1000);
    near(r[2].to, 1024);
}

static void nothing_was_measured(void **state)
{
    const double        costs[LENGTHS] = { NAN, NAN, NAN, NAN, NAN };
    struct growth_range r[2 * LENGTHS];

    (void)state;
    assert_int_equal(growth_lowest(lengths, LENGTHS, costs, 1, r), 0);
    assert_int_equal(growth_lowest(lengths, 0, costs, 1, r), 0);
}

static double uniform(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*x >> 11) * 0x1p-53;
}

/* A curve at a length between two, NaN where one of them is not known. */
static double look_up(const double *costs, double length)
{
    int i = 0;

    while (i < LENGTHS - 2 && lengths[i + 1] <= length)
        i++;
    const double t = log(length / lengths[i]) / log(lengths[i + 1] / lengths[i]);
    return exp((1 - t) * log(costs[i]) + t * log(costs[i + 1]));
}

static void check_grid(const double *costs, const struct growth_range *r, int n)
{
    for (int k = 1; k < 200; k++) {
        const double length = 64 * pow(1024, k / 200.0);
        double       least = INFINITY, found = INFINITY;
        for (int c = 0; c < CURVES; c++)
            least = fmin(least, look_up(costs + c * LENGTHS, length));
        for (int i = 0; i < n; i++)
            if (r[i].from <= length && length <= r[i].to)
                found = fmin(found, look_up(costs + r[i].curve * LENGTHS, length));
        if (isinf(least))
            assert_true(isinf(found));
        else
            near(found, least);
    }
}

static void random_curves_on_a_grid(void **state)
{
    double              costs[CURVES * LENGTHS];
    struct growth_range r[(CURVES + 1) * LENGTHS];
    uint64_t            seed = 1;

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        for (int i = 0; i < CURVES * LENGTHS; i++)
            costs[i] = uniform(&seed) < 0.2 ? NAN : 0.01 + uniform(&seed);
        const int n = growth_lowest(lengths, LENGTHS, costs, CURVES, r);
        assert_true(n <= (CURVES + 1) * LENGTHS);
        for (int i = 1; i < n; i++)
            assert_true(r[i].from >= r[i - 1].to);
        check_grid(costs, r, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_are_continued),
        cmocka_unit_test(the_last_two_decide),
        cmocka_unit_test(noise_does_not_fall),
        cmocka_unit_test(one_length_predicts_nothing),
        cmocka_unit_test(powers_cross_where_they_are_equal),
        cmocka_unit_test(always_and_never),
        cmocka_unit_test(the_last_crossing_counts),
        cmocka_unit_test(what_was_not_measured_is_left_out),
        cmocka_unit_test(three_powers),
        cmocka_unit_test(one_that_was_measured_once),
        cmocka_unit_test(nothing_was_measured),
        cmocka_unit_test(random_curves_on_a_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
