/* measure.c -- foci_ctx_measure(): what it fills and what it goes by.  How fast the machine
 * is cannot be tested. */
#include "test.h"

static foci_ctx *open_ctx(const char *cpu, int threads)
{
    const foci_options o = { FOCI_SIZED(foci_options), .threads = threads, .cpu = cpu };
    foci_ctx          *ctx;

    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    return ctx;
}

static foci_machine measure(foci_ctx *ctx, double working_set)
{
    foci_machine m = { FOCI_SIZED(foci_machine), .working_set = working_set };

    assert_int_equal(foci_ctx_measure(ctx, &m), FOCI_OK);
    assert_true(m.f32_flops > 0 && m.copy_bytes > 0 && m.read_bytes > 0);
    /* What products in bf16 cannot do faster is done in f32. */
    assert_true(m.bf16_flops >= m.f32_flops);
    return m;
}

static void test_bf16_in_f32_has_its_ceiling(void **state)
{
    (void)state;
    foci_ctx          *ctx = open_ctx("avx2", 1);
    const foci_machine m = measure(ctx, 1 << 20);

    assert_false(ctx->kernels.has_bf16);
    assert_true(m.bf16_flops == m.f32_flops);
    foci_ctx_free(ctx);
}

static void test_working_sets(void **state)
{
    (void)state;
    foci_ctx *ctx = open_ctx(NULL, 2);

    assert_true(measure(ctx, 0).working_set >= 256 << 20);
    assert_true(measure(ctx, 5000000).working_set == 5000000 / 4096 * 4096);
    assert_true(measure(ctx, 1).working_set == 2 * 4096); /* a part for each thread */
    foci_ctx_free(ctx);
}

/* Programs compiled before working_set was there keep what lies behind their struct. */
static void test_shorter_struct(void **state)
{
    (void)state;
    foci_ctx    *ctx = open_ctx(NULL, 1);
    foci_machine m = { .size = offsetof(foci_machine, working_set), .working_set = -7 };

    assert_int_equal(foci_ctx_measure(ctx, &m), FOCI_OK);
    assert_true(m.working_set == -7 && m.read_bytes > 0);
    m.size = 0;
    assert_int_equal(foci_ctx_measure(ctx, &m), FOCI_ERR_ARG);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_in_f32_has_its_ceiling),
        cmocka_unit_test(test_working_sets),
        cmocka_unit_test(test_shorter_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
