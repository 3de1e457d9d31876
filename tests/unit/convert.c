/* convert.c -- foci_convert() against the judge's formats, element by element. */
#include <math.h>

#include "ref/ref.h"
#include "test.h"

/* Every pattern of 16 bits, to float and back; NaN stays NaN. */
static void halves(void **state)
{
    enum { N = 1 << 16 };
    static uint16_t in[N], back[N];
    static float    out[N];

    for (int i = 0; i < N; i++)
        in[i] = (uint16_t)i;
    for (int type = FOCI_BF16; type <= FOCI_F16; type++) {
        const foci_dtype t = (foci_dtype)type;
        assert_int_equal(foci_convert(*state, FOCI_F32, out, t, in, N), FOCI_OK);
        assert_int_equal(foci_convert(*state, t, back, FOCI_F32, out, N), FOCI_OK);
        for (int i = 0; i < N; i++) {
            const double want = ref_load(type, in, i);
            if (isnan(want)) {
                assert_true(isnan(out[i]) && isnan(ref_load(type, back, i)));
                continue;
            }
            assert_true((double)out[i] == want && !signbit(out[i]) == !signbit(want));
            assert_int_equal(back[i], in[i]);
        }
    }
}

/* Floats between those of the shorter type go to the nearest, halfway to the even one. */
static void rounding(void **state)
{
    enum { N = 3000 };
    static float    in[N];
    static uint16_t out[N], want[N];
    struct rng      r;

    rng_seed(&r, 1, 0);
    for (int i = 0; i < N; i++)
        in[i] = (float)ldexp(rng_normal(&r), (int)rng_below(&r, 60) - 30);
    in[0] = INFINITY, in[1] = -INFINITY, in[2] = 0x1.01p0f, in[3] = 0x1.03p0f;
    in[4] = 3.4e38f, in[5] = 65519, in[6] = 65520, in[7] = -0.0f, in[8] = 0x1p-25f;
    for (int type = FOCI_BF16; type <= FOCI_F16; type++) {
        const foci_dtype t = (foci_dtype)type;
        for (int i = 0; i < N; i++)
            ref_store(type, want, i, (double)in[i]);
        assert_int_equal(foci_convert(*state, t, out, FOCI_F32, in, N), FOCI_OK);
        assert_memory_equal(out, want, sizeof out);
    }
}

/* Nothing beyond the last element is touched, and bf16 goes to f16 too. */
static void ends(void **state)
{
    const float in[3] = { 1, -2, 3 };
    uint16_t    half[4] = { 7, 7, 7, 7 }, other[4] = { 7, 7, 7, 7 };
    float       out[4] = { 9, 9, 9, 9 };

    assert_int_equal(foci_convert(*state, FOCI_BF16, half, FOCI_F32, in, 3), FOCI_OK);
    assert_int_equal(foci_convert(*state, FOCI_F16, other, FOCI_BF16, half, 3), FOCI_OK);
    assert_int_equal(foci_convert(*state, FOCI_F32, out, FOCI_F16, other, 3), FOCI_OK);
    assert_memory_equal(out, in, sizeof in);
    assert_true(half[3] == 7 && other[3] == 7 && out[3] == 9);
    assert_int_equal(foci_convert(*state, FOCI_F32, out, FOCI_F32, in, 0), FOCI_OK);
    assert_int_equal(foci_convert(*state, FOCI_F32, NULL, FOCI_F32, NULL, 0), FOCI_OK);
}

static void refused(void **state)
{
    float x[1] = { 0 };

    assert_int_equal(foci_convert(NULL, FOCI_F32, x, FOCI_F32, x, 1), FOCI_ERR_ARG);
    assert_int_equal(foci_convert(*state, (foci_dtype)3, x, FOCI_F32, x, 1),
                     FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "types 3 and 0"));
    assert_int_equal(foci_convert(*state, FOCI_F32, x, FOCI_F16, x, -1), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "n is -1"));
    assert_int_equal(foci_convert(*state, FOCI_F32, NULL, FOCI_F16, x, 1), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "to is NULL"));
}

static int setup(void **state)
{
    *state = test_ctx(NULL, 1);
    return 0;
}

static int teardown(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves),
        cmocka_unit_test(rounding),
        cmocka_unit_test(ends),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
