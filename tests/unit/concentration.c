/* concentration.c -- foci_concentration() where S is known in closed form. */
#include <math.h>

#include "foci/analyse.h"
#include "test.h"

enum { MOST = 64 };

static void assert_near(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound)) fail_msg("%.9g, not %.9g", got, want);
}

/* All alike: 1, whatever their sign; one alone: 1 / sqrt(n). */
static void ends(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        float flat[MOST], single[MOST] = { 0 };
        for (int i = 0; i < n; i++)
            flat[i] = i % 3 ? 0.25F : -0.25F;
        single[n / 2] = -7;
        assert_near(foci_concentration(flat, n), 1, 1e-15);
        assert_near(foci_concentration(single, n), 1 / sqrt(n), 1e-15);
    }
}

/* Sizes whose squares no float or double has. */
static void sizes(void **state)
{
    const float small[] = { 1e-38F, 3e-38F }, large[] = { 1e38F, -3e38F };

    (void)state;
    assert_near(foci_concentration(small, 2), 4 / sqrt(20), 1e-6);
    assert_near(foci_concentration(large, 2), 4 / sqrt(20), 1e-6);
}

/* exp(0), exp(1), ..., and powers of l: S = sqrt((1-l^n)(1+l) / (n (1-l)(1+l^n))). */
static void closed_forms(void **state)
{
    static const struct {
        double ratio, s;
        int    n;
    } all[] = { { 2.718281828459045, 0.722169, 4 },
                { 0.9, 0.613273, 50 },
                { 0.99, 0.999584, 10 } };

    (void)state;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        const double l = all[k].ratio, ln = pow(l, all[k].n);
        float        a[MOST];
        for (int i = 0; i < all[k].n; i++)
            a[i] = (float)pow(l, i);
        const double s = foci_concentration(a, all[k].n);
        assert_near(s, all[k].s, 1e-6);
        assert_near(s, sqrt((1 - ln) * (1 + l) / (all[k].n * (1 - l) * (1 + ln))), 1e-6);
    }
}

static void nothing(void **state)
{
    const float zeros[3] = { 0 };

    (void)state;
    assert_true(isnan(foci_concentration(zeros, 3)));
    assert_true(isnan(foci_concentration(zeros, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends),
        cmocka_unit_test(sizes),
        cmocka_unit_test(closed_forms),
        cmocka_unit_test(nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
