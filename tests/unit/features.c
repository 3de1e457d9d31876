/* features.c -- random features as they are drawn: held to numbers that are printed, and
 * to what is asked of their rows. */
#include <math.h>

#include "support/pairs.h"

static double product(const float *x, const float *y, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += (double)x[t] * (double)y[t];
    return sum;
}

static void printed_rows(void **state)
{
    const double want[] = { -0.016228743803, -1.584077604293, 2.543546002899,
                            -0.026058418047, -1.265051378607, 0.804336124826 };
    float       *omega = pairs_drawn(*state, "performer(features=3)", 1, 2);

    for (int t = 0; t < 6; t++)
        pairs_near((double)omega[t], want[t], 2e-7, "omega");
    free(omega);
}

static void printed_frame(void **state)
{
    const double want[] = { 0.974820733237, -0.222989995407, -0.222989995407,
                            -0.974820733237 };
    double       frame[4];
    struct rng   r;

    (void)state;
    rng_seed(&r, 0, 10);
    rng_haar(&r, 2, 2, frame);
    for (int t = 0; t < 4; t++)
        pairs_near(frame[t], want[t], 1e-12, "frame");
}

/* Rows of a block are orthogonal, and no longer or shorter than asked for. */
static void rows_of_a_block(void **state)
{
    static const struct {
        const char *spec;
        double      length; /* 0: any */
    } kinds[] = { { "performer(features=11)", 0 },
                  { "performer(features=11, rows=sqrt)", 2.23606797749979 },
                  { "performer(features=11, rows=unit)", 1 } };
    const int64_t d = 5, rows = 11;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        float *omega = pairs_drawn(*state, kinds[k].spec, 2, d);
        for (int64_t i = 0; i < 2 * rows; i++) {
            const float *w = omega + i * d;
            const double length = sqrt(product(w, w, d));
            if (kinds[k].length > 0)
                pairs_near(length, kinds[k].length, 1e-6, "length");
            for (int64_t j = i + 1; j < 2 * rows; j++)
                if (i / rows == j / rows && i % rows / d == j % rows / d)
                    pairs_near(product(w, omega + j * d, d), 0, 1e-5, "orthogonal");
        }
        free(omega);
    }
}

/* Independent rows are the normals of the stream. */
static void normal_rows(void **state)
{
    float     *omega = pairs_drawn(*state, "performer(ortho=0)", 2, 3);
    struct rng r;

    rng_seed(&r, 0, 0);
    for (int t = 0; t < 2 * 6 * 3; t++)
        assert_true(omega[t] == (float)rng_normal(&r));
    free(omega);
}

/* Tensor of that name of the plan. */
static foci_param tensor(const foci_plan *plan, const char *name)
{
    foci_param p = { FOCI_SIZED(foci_param) };

    for (int i = 0; !p.name || strcmp(p.name, name) != 0; i++)
        assert_int_equal(foci_plan_param(plan, i, &p), FOCI_OK);
    return p;
}

/* With redraw=2, the second step and every second after it draw from seeds of their own;
 * in a mix, each group from its own stream; in a mixture, of all routes. */
static void check_drawn_anew(foci_ctx *ctx, const char *spec, const char *name,
                             const char *count)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 3,
                             .len_q = 4,
                             .len_k = 4,
                             .dim_qk = 3,
                             .dim_x = 2,
                             .seed = 5 };
    const uint64_t     step = UINT64_C(0x9E3779B97F4A7C15);
    foci_plan         *plan = test_plan(ctx, spec, &p);
    const size_t       n = (size_t)foci_plan_param_floats(plan);
    float *params = test_alloc(n, sizeof *params), *want = test_alloc(n, sizeof *want);
    float *x = test_alloc(4 * 5 * 3, sizeof *x);
    char  *work = test_alloc(foci_plan_work_bytes(plan), 1);
    const foci_io io = {
        FOCI_SIZED(foci_io), .q = x,      .k = x, .v = x, .x = x, .o = x,
        .params = params,    .work = work
    };
    const foci_param first = tensor(plan, "0.omega"), omega = tensor(plan, name),
                     steps = tensor(plan, count);

    assert_int_equal(foci_params_init(plan, 9, params), FOCI_OK);
    for (uint64_t t = 1; t < 8; t++) {
        assert_int_equal(foci_params_advance(plan, &io, params), FOCI_OK);
        const uint64_t seed = t < 2 ? 9 : p.seed + t / 2 * step;
        assert_int_equal(foci_params_init(plan, seed, want), FOCI_OK);
        assert_memory_equal(params + omega.offset, want + omega.offset,
                            (size_t)omega.count * sizeof *want);
        for (int64_t i = 0; i < steps.count; i++)
            assert_true(params[steps.offset + i] == (float)t);
        assert_int_equal(foci_params_init(plan, 9, want), FOCI_OK);
        assert_memory_equal(params + first.offset, want + first.offset,
                            (size_t)first.count * sizeof *want);
    }
    free(params);
    free(want);
    free(x);
    free(work);
    foci_plan_free(plan);
}

static void drawn_anew(void **state)
{
    check_drawn_anew(*state, "1*performer + 2*performer(redraw=2, features=7)",
                     "1.omega", "1.steps");
    check_drawn_anew(
        *state, "1*performer + 2*routed(performer(redraw=2, features=7), routes=2)",
        "1.inner.omega", "1.inner.steps");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_rows),    cmocka_unit_test(printed_frame),
        cmocka_unit_test(rows_of_a_block), cmocka_unit_test(normal_rows),
        cmocka_unit_test(drawn_anew),
    };
    return cmocka_run_group_tests(tests, pairs_setup, pairs_teardown);
}
