/* describe.c -- what a layer says of itself: its presets, its text, its tensors, its
 * cost. */
#include <math.h>
#include <stdio.h>

#include "support/layers.h"

enum { LEN = 10, WIDTH = 12, HEADS = 3, BATCH = 2 };

static const foci_layer_problem shape = { FOCI_SIZED(foci_layer_problem),
                                          .batch = BATCH,
                                          .len = LEN,
                                          .width = WIDTH,
                                          .heads = HEADS,
                                          .flags = FOCI_FLAG_TRAIN };

/* Without a spec each kind has one of its own; widths that are left out are filled in. */
static void presets(void **state)
{
    static const struct {
        foci_layer_kind kind;
        int64_t         heads;
        const char     *mech;
        int64_t         head_dim, value_dim;
    } all[] = { { FOCI_LAYER_ATTENTION, HEADS, "softmax", WIDTH / HEADS, WIDTH / HEADS },
                { FOCI_LAYER_GAU, 1, "relu2", 128, 2 * WIDTH },
                { FOCI_LAYER_CONV, HEADS, "lightconv", WIDTH / HEADS, WIDTH / HEADS } };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        foci_layer_problem p = shape, got = { FOCI_SIZED(foci_layer_problem) };
        foci_layer        *layer;
        char               spec[256];

        p.kind = all[i].kind;
        p.heads = all[i].heads;
        assert_int_equal(foci_layer_create(ctx, NULL, &p, &layer), FOCI_OK);
        assert_true(foci_plan_spec(foci_layer_plan(layer), spec, sizeof spec) > 0);
        assert_non_null(strstr(spec, all[i].mech));
        assert_int_equal(foci_layer_get_problem(layer, &got), FOCI_OK);
        assert_int_equal(got.head_dim, all[i].head_dim);
        assert_int_equal(got.value_dim, all[i].value_dim);
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

/* Only what heads read is projected. */
static void tensors(void **state)
{
    static const struct {
        const char *spec, *there, *missing;
    } all[] = {
        { "softmax", "Wq", "0.Wq" },
        { "fixed", "Wv", "Wq" },
        { "synthesizer(random)", "Wv", "Wk" },
        { "lsh(buckets=2, shared=1)", "Wq", "Wk" },
        { "1*fixed + 2*softmax", "1.Wq", "0.Wk" },
        { "1*fixed + 2*softmax txl", "1.WR", "1.R" },
        { "softmax sink", "sink", "bq" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        foci_layer_problem p = shape;
        p.flags |= FOCI_FLAG_CAUSAL;
        foci_layer *layer = layers_make(ctx, all[i].spec, &p);
        foci_param  param;
        int64_t     end = 0;

        if (!layer) fail_msg("%s: %s", all[i].spec, foci_errmsg(ctx));
        assert_true(layers_find(layer, all[i].there, &param) >= 0);
        assert_true(layers_find(layer, all[i].missing, &param) < 0);
        /* One after another, to the last. */
        for (int t = 0; t < foci_layer_param_count(layer); t++) {
            assert_int_equal(foci_layer_param(layer, t, &param), FOCI_OK);
            assert_int_equal(param.offset, end);
            end += param.count;
        }
        assert_int_equal(end, foci_layer_param_floats(layer));
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

/* As snprintf: what does not fit is counted. */
static void texts(void **state)
{
    foci_ctx   *ctx = test_ctx(NULL, 1);
    foci_layer *layer = layers_make(ctx, "1*softmax frozen + 2*fixed", &shape);
    const int   n = foci_layer_describe(layer, NULL, 0);
    char        text[4096], part[64];

    (void)state;
    assert_in_range(n, 100, sizeof text - 1);
    assert_int_equal(foci_layer_describe(layer, text, sizeof text), n);
    assert_int_equal(strlen(text), n);
    assert_non_null(strstr(text, "0.Wq"));
    assert_non_null(strstr(text, "frozen, orthogonal"));
    assert_non_null(strstr(text, "1.Wv"));
    for (size_t cap = 1; cap <= sizeof part; cap++) {
        assert_int_equal(foci_layer_describe(layer, part, cap), n);
        assert_int_equal(strlen(part), cap - 1);
        assert_memory_equal(part, text, cap - 1);
    }
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

static foci_cost cost_of(foci_ctx *ctx, const char *spec, double *plan_forward)
{
    foci_layer *layer = layers_make(ctx, spec, &shape);
    foci_cost   cost = { FOCI_SIZED(foci_cost) }, plan = { FOCI_SIZED(foci_cost) };

    assert_int_equal(foci_layer_cost(layer, &cost), FOCI_OK);
    assert_int_equal(foci_plan_cost(foci_layer_plan(layer), &plan), FOCI_OK);
    *plan_forward = plan.forward_flops;
    foci_cost none = { .size = 0 };
    assert_int_equal(foci_layer_cost(layer, &none), FOCI_ERR_ARG);
    foci_layer_free(layer);
    return cost;
}

/* Products are counted: four of them where heads read q, k and v, two of fixed ones; and
 * a frozen one has half of a learned one's way back. */
static void costs(void **state)
{
    const double    product = 2.0 * BATCH * LEN * WIDTH * WIDTH;
    foci_ctx       *ctx = test_ctx(NULL, 1);
    double          plan;
    const foci_cost softmax = cost_of(ctx, "softmax", &plan);

    (void)state;
    assert_true(fabs(softmax.forward_flops - plan - 4 * product) < 1);
    const foci_cost fixed = cost_of(ctx, "fixed", &plan);
    assert_true(fabs(fixed.forward_flops - plan - 2 * product) < 1);
    const foci_cost frozen = cost_of(ctx, "softmax frozen", &plan);
    assert_true(fabs(frozen.forward_flops - softmax.forward_flops) < 1);
    assert_true(fabs(softmax.backward_flops - frozen.backward_flops - 2 * product) < 1);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets),
        cmocka_unit_test(tensors),
        cmocka_unit_test(texts),
        cmocka_unit_test(costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
