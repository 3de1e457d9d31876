/* heads.c -- foci_heads_add_weights() agrees with heads/cases.json, by heads/make.py. */
#include "test.h"

#include <jansson.h>
#include <math.h>

#include "foci/analyse.h"

static json_t *cases;

static int open_cases(void **state)
{
    json_error_t error;

    (void)state;
    cases = json_load_file("tests/golden/heads/cases.json", 0, &error);
    if (!cases) fail_msg("cases.json: %s at line %d", error.text, error.line);
    return 0;
}

static int close_cases(void **state)
{
    (void)state;
    json_decref(cases);
    return 0;
}

static int64_t whole(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

static float *read_weights(const json_t *c)
{
    const json_t *list = json_object_get(c, "weights");
    float        *a = test_alloc(json_array_size(list) + 1, sizeof *a);

    for (size_t i = 0; i < json_array_size(list); i++)
        a[i] = (float)json_number_value(json_array_get(list, i));
    return a;
}

/* A figure that NumPy has none of is NaN, with a reason; else there is none. */
static void check_figure(const foci_heads *h, int64_t head, int f, const char *what,
                         double got, const json_t *want)
{
    const char *name = foci_head_figure_name(f);

    if (!want) {
        if (!isnan(got) || !foci_heads_reason(h, head, f))
            fail_msg("%s: head %d: %s is %g, without a reason", what, (int)head, name,
                     got);
        return;
    }
    const double expected = json_number_value(want);
    if (!(fabs(got - expected) <= 1e-9 * fmax(1, fabs(expected))))
        fail_msg("%s: head %d: %s is %.17g, expected %.17g", what, (int)head, name, got,
                 expected);
    assert_null(foci_heads_reason(h, head, f));
}

static void check_heads(const foci_heads *h, const json_t *c, const char *what)
{
    const json_t *figures = json_object_get(c, "figures");
    const json_t *like = json_object_get(c, "likeness");

    for (int64_t i = 0; i < whole(c, "heads"); i++) {
        const json_t *want = json_array_get(figures, (size_t)i);
        foci_head     head = { FOCI_SIZED(foci_head) };

        assert_int_equal(foci_heads_get(h, i, &head), FOCI_OK);
        assert_int_equal(head.rows, whole(c, "queries"));
        for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
            check_figure(h, i, f, what, head.figures[f],
                         json_object_get(want, foci_head_figure_name(f)));
        for (int64_t b = 0; b < whole(c, "heads"); b++) {
            const json_t *x =
                json_array_get(json_array_get(like, (size_t)i), (size_t)b);
            const double got = foci_heads_likeness(h, i, b);
            if (json_is_null(x) ? !isnan(got)
                                : !(fabs(got - json_number_value(x)) <= 1e-6))
                fail_msg("%s: heads %d and %d are alike by %g", what, (int)i, (int)b,
                         got);
        }
    }
}

static void every_case(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    assert_true(json_array_size(cases) > 10);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t            *c = json_array_get(cases, i);
        const foci_heads_options o = { FOCI_SIZED(foci_heads_options),
                                       .heads = whole(c, "heads"),
                                       .top = whole(c, "top") };
        float                   *a = read_weights(c);
        foci_heads              *h;

        assert_int_equal(foci_heads_create(ctx, &o, &h), FOCI_OK);
        assert_int_equal(
            foci_heads_add_weights(h, a, whole(c, "queries"), whole(c, "keys"),
                                   json_is_true(json_object_get(c, "causal"))),
            FOCI_OK);
        check_heads(h, c, json_string_value(json_object_get(c, "name")));
        foci_heads_free(h);
        free(a);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case) };
    return cmocka_run_group_tests(tests, open_cases, close_cases);
}
