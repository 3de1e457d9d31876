/* position.c -- modifiers that speak of positions, against numbers worked out by hand:
 * buckets, slopes, turned rows. */
#include <math.h>
#include <string.h>

#include "plan/plan.h"
#include "test.h"

static const foci_mod_def *modifier(const char *name)
{
    const foci_mod_def *def;

    for (int i = 0; (def = foci_modifier(NULL, i)); i++)
        if (strcmp(def->name, name) == 0) return def;
    fail_msg("there is no modifier %s", name);
    return NULL;
}

/* With its arguments as they are preset. */
static foci_mod preset(const char *name)
{
    foci_mod mod = { .def = modifier(name) };

    for (size_t i = 0; i < mod.def->n_args; i++)
        mod.arg[i] = mod.def->args[i].preset;
    return mod;
}

static void test_buckets(void **state)
{
    static const struct {
        bool    causal;
        int64_t rel, bucket;
    } cases[] = {
        { false, -3, 3 },   { false, -2, 2 },    { false, -1, 1 },   { false, 0, 0 },
        { false, 1, 17 },   { false, 2, 18 },    { false, 3, 19 },   { false, -16, 10 },
        { false, -64, 14 }, { false, -200, 15 }, { false, 20, 26 },  { false, 200, 31 },
        { true, 0, 0 },     { true, -5, 5 },     { true, -15, 15 },  { true, -16, 16 },
        { true, -20, 17 },  { true, -40, 23 },   { true, -127, 31 }, { true, -500, 31 },
        { true, 3, 0 },
    };
    const foci_mod mod = preset("t5");

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(mod.def->entry(&mod, cases[i].causal, cases[i].rel),
                         cases[i].bucket);
}

/* Every distance has an entry of the table, and entries never fall as it grows. */
static void test_entries(void **state)
{
    static const double args[][2] = { { 4, 1 }, { 5, 3 }, { 32, 4 }, { 31, 128 } };

    (void)state;
    for (size_t a = 0; a < sizeof args / sizeof *args; a++)
        for (int causal = 0; causal < 2; causal++) {
            foci_mod mod = preset("t5");
            int64_t  last = 0;
            memcpy(mod.arg, args[a], sizeof args[a]);
            for (int64_t n = 0; n < 1000; n++) {
                const int64_t at = mod.def->entry(&mod, causal, -n);
                assert_true(at >= last && at < (int64_t)args[a][0]);
                assert_true(mod.def->entry(&mod, causal, n) < (int64_t)args[a][0]);
                last = at;
            }
        }
    const foci_mod bias = preset("bias");
    assert_int_equal(bias.def->entry(&bias, false, -100), 0);
    assert_int_equal(bias.def->entry(&bias, false, 0), 16);
    assert_int_equal(bias.def->entry(&bias, false, 7), 23);
    assert_int_equal(bias.def->entry(&bias, false, 100), 32);
}

static void test_slopes(void **state)
{
    static const double six[] = { .25, .0625, .015625, .00390625, .5, .125 };
    foci_mod            mod = preset("alibi");

    (void)state;
    for (int h = 0; h < 6; h++)
        assert_true(mod.def->slope(&mod, h, 6) == six[h]);
    for (int h = 0; h < 8; h++)
        assert_true(mod.def->slope(&mod, h, 8) == exp2(-(h + 1)));
    assert_true(mod.def->slope(&mod, 0, 1) == exp2(-8));
    mod.arg[0] = 0.3;
    assert_true(mod.def->slope(&mod, 3, 5) == 0.3);
}

/* Rows of three queries, keys and values, of two elements each. */
static const float example_q[] = { 1, 0, 0, 1, 1, 1 };
static const float example_k[] = { 1, 0, 0, 2, -1, 1 };

/* o of the example with values that single out one key. */
static void run_example(const char *spec, float *weights)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .flags = FOCI_FLAG_CAUSAL,
                             .batch = 1,
                             .heads = 1,
                             .len_q = 3,
                             .len_k = 3,
                             .dim_qk = 2,
                             .dim_v = 3 };
    static const float one[] = { 1, 0, 0, 0, 1, 0, 0, 0, 1 };
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_plan         *plan = test_plan(ctx, spec, &p);
    void              *work = test_alloc(foci_plan_work_bytes(plan), 1);
    const foci_io io = { FOCI_SIZED(foci_io), .q = example_q, .k = example_k, .v = one,
                         .o = weights,        .work = work };

    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    free(work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

static void test_alibi_example(void **state)
{
    float a[9];

    (void)state;
    run_example("softmax alibi(slope=0.5)", a);
    assert_float_equal(a[0], 1, 1e-6);
    assert_float_equal(a[3], .128508, 1e-6);
    assert_float_equal(a[4], .871492, 1e-6);
    assert_float_equal(a[5], 0, 0);
}

/* One pair, so one angle: the position itself. */
static void test_rope_example(void **state)
{
    float a[9];

    (void)state;
    run_example("softmax rope", a);
    /* q_1 stands at angle 1 + pi/2, k_0 at 0, k_1 at 1 + pi/2. */
    const double s = 1 / sqrt(2), x = s * cos(1 + acos(0)), y = s * 2;
    assert_float_equal(a[3], (float)(exp(x) / (exp(x) + exp(y))), 1e-6);
    assert_float_equal(a[4], (float)(exp(y) / (exp(x) + exp(y))), 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),      cmocka_unit_test(test_entries),
        cmocka_unit_test(test_slopes),       cmocka_unit_test(test_alibi_example),
        cmocka_unit_test(test_rope_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
