/* concentration.c -- the closed forms of the concentration of random weights, and the same
 * numbers by integration, agree with concentration/cases.json, by concentration/make.py. */
#include "test.h"

#include <jansson.h>
#include <math.h>

#include "foci/analyse.h"

static json_t *cases;

static int open_cases(void **state)
{
    json_error_t error;

    (void)state;
    cases = json_load_file("tests/golden/concentration/cases.json", 0, &error);
    if (!cases) fail_msg("cases.json: %s at line %d", error.text, error.line);
    return 0;
}

static int close_cases(void **state)
{
    (void)state;
    json_decref(cases);
    return 0;
}

static double number(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static void near(const char *what, double at, double got, double want, double within)
{
    if (!(fabs(got - want) <= within * want))
        fail_msg("%s at %g: %.17g, expected %.17g", what, at, got, want);
}

static void expect(const foci_concentration_law *law, const char *what, double at,
                   double want)
{
    double s;

    assert_int_equal(foci_concentration_theory(law, &s), FOCI_OK);
    near(what, at, s, want, 2e-15);
    assert_int_equal(foci_concentration_quadrature(law, &s), FOCI_OK);
    near("quadrature", at, s, want, 1e-12);
}

/* Of normal logits: the first of a pair is gamma, or t with several gamma. */
static void expect_normal(const char *name, foci_concentration_kind kind)
{
    static const double gammas[] = { 1, 0.125, 8 };
    const json_t       *rows = json_object_get(cases, name);

    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const double  at = number(row, 0), want = number(row, 1);
        for (int g = 0; g < 3; g++) {
            const bool                   is_exp = kind == FOCI_CONCENTRATION_EXP;
            const foci_concentration_law law = { FOCI_SIZED(foci_concentration_law),
                                                 .kind = kind,
                                                 .gamma = is_exp ? at : gammas[g],
                                                 .beta = is_exp ? gammas[g] - 1
                                                                : at * gammas[g] };
            expect(&law, name, at, want);
        }
    }
}

static void normal_logits(void **state)
{
    (void)state;
    expect_normal("exp", FOCI_CONCENTRATION_EXP);
    expect_normal("relu2", FOCI_CONCENTRATION_RELU2);
    expect_normal("identity", FOCI_CONCENTRATION_IDENTITY);
}

static void decays(void **state)
{
    const json_t *rows = json_object_get(cases, "decay");

    (void)state;
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t                *row = json_array_get(rows, i);
        const foci_concentration_law law = { FOCI_SIZED(foci_concentration_law),
                                             .kind = FOCI_CONCENTRATION_DECAY,
                                             .lambda = number(row, 0),
                                             .n = (int64_t)number(row, 1) };
        expect(&law, "decay", law.lambda, number(row, 2));
    }
}

/* Features of which mean and covariance are known; only the closed form takes these. */
static void features(void **state)
{
    enum { MOST = 8 };
    const json_t *rows = json_object_get(cases, "linear");

    (void)state;
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *q = json_object_get(row, "q");
        const size_t  dim = json_array_size(q);
        double        lists[3][MOST * MOST], s;
        static const char *const     names[] = { "q", "mean", "covariance" };
        const foci_concentration_law law = { FOCI_SIZED(foci_concentration_law),
                                             .kind = FOCI_CONCENTRATION_LINEAR,
                                             .dim = (int64_t)dim,
                                             .q = lists[0],
                                             .mean = lists[1],
                                             .covariance = lists[2] };
        assert_true(dim <= MOST);
        for (int l = 0; l < 3; l++)
            for (size_t t = 0; t < (l < 2 ? dim : dim * dim); t++)
                lists[l][t] = number(json_object_get(row, names[l]), t);
        assert_int_equal(foci_concentration_theory(&law, &s), FOCI_OK);
        near("linear", (double)i, s, json_number_value(json_object_get(row, "s")),
             1e-14);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_logits),
        cmocka_unit_test(decays),
        cmocka_unit_test(features),
    };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
