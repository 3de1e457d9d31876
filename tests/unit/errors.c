/* errors.c -- foci_softmax_errors() on outputs that are known, and the same of weights. */
#include <math.h>

#include "foci/analyse.h"
#include "test.h"

enum { N = 5, DIM = 4, HEADS = 2, FLOATS = N * HEADS * DIM };

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

/* The errors of both heads; the output of the plan is in o. */
static void find(foci_ctx *ctx, const char *spec, const foci_problem *given,
                 const void *qk, const void *v, void *o, double *errors)
{
    foci_problem p = *given;
    foci_plan   *plan;

    p.batch = 1;
    p.heads = HEADS;
    p.len_q = p.len_k = N;
    p.dim_qk = DIM;
    plan = test_plan(ctx, spec, &p);
    void         *work = aligned_alloc(64, foci_plan_work_bytes(plan) / 64 * 64 + 64);
    const foci_io io = { FOCI_SIZED(foci_io), .q = qk, .k = qk, .v = v, .o = o,
                         .work = work };
    assert_int_equal(foci_softmax_errors(plan, &io, errors), FOCI_OK);
    free(work);
    foci_plan_free(plan);
}

static void fill(float *x, float first, float step)
{
    for (int i = 0; i < FLOATS; i++)
        x[i] = sinf(first + step * (float)i);
}

/* Queries of zeros see the mean: all of it, or one part. */
static void parts_of_a_mean(void **state)
{
    static const float zeros[FLOATS];
    const foci_problem p = { FOCI_SIZED(foci_problem) };
    float              v[FLOATS] = { 0 }, o[FLOATS];
    double             errors[HEADS];

    for (int i = 0; i < N; i++)
        v[i * HEADS * DIM] = v[i * HEADS * DIM + DIM] = 1;
    find(*state, "1*linear + 1*identity", &p, zeros, v, o, errors);
    assert_true(errors[0] < 1e-6);
    assert_true(fabs(errors[1] - 1) < 1e-6); /* its output is zero */

    for (int i = 0; i < N; i++)
        v[i * HEADS * DIM] = i == 0;
    find(*state, "local(window=0)", &p, zeros, v, o, errors);
    assert_true(fabs(errors[0] - 2) < 1e-6); /* sqrt((0.8^2 + 4 0.2^2) / (5 0.2^2)) */
    assert_true(errors[1] < 1e-6);
}

/* The same by two calls of foci_forward(), in every type and in any layout. */
static void other_layouts(void **state)
{
    const foci_problem plain = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL };
    const foci_problem turned = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL,
                                  .o = { 0, DIM + 3, N * (DIM + 3) } };
    float  x[FLOATS], v[FLOATS], a[FLOATS], b[2 * FLOATS] = { 0 }, exact[FLOATS];
    double errors[HEADS], others[HEADS];

    fill(x, 1, 1.7F);
    fill(v, 2, 0.9F);
    find(*state, "softmax", &plain, x, v, exact, others);
    assert_true(others[0] == 0 && others[1] == 0);
    find(*state, "relu2", &plain, x, v, a, errors);
    find(*state, "relu2", &turned, x, v, b, others);
    for (int h = 0; h < HEADS; h++) {
        double far = 0, all = 0;
        for (int i = 0; i < N; i++)
            for (int c = 0; c < DIM; c++) {
                const int at = (i * HEADS + h) * DIM + c;
                far += ((double)a[at] - exact[at]) * ((double)a[at] - exact[at]);
                all += (double)exact[at] * exact[at];
            }
        assert_true(fabs(errors[h] - sqrt(far / all)) < 1e-12);
        assert_true(errors[h] == others[h] && errors[h] > 0.1);
    }
}

static void words(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem), .dtype = FOCI_BF16 };
    uint16_t           x[FLOATS], o[FLOATS];
    double             errors[HEADS];

    for (int i = 0; i < FLOATS; i++)
        x[i] = (uint16_t)(0x3f80 + 5 * i); /* 1 and more */
    find(*state, "1*softmax cap(1000) + 1*relu2(n=1)", &p, x, x, o, errors);
    assert_true(errors[0] < 0.01);
    assert_true(errors[1] > 1);
}

/* Errors of weights are those of two matrices, row by row or of some rows; a head that has no
 * weights has no error. */
static void weights(void **state)
{
    enum { LONG = 9, PAIRS = LONG * LONG };
    const foci_problem p = { FOCI_SIZED(foci_problem), .heads = 3, .len_q = LONG,
                             .dim_qk = DIM, .flags = FOCI_FLAG_CAUSAL };
    foci_plan         *plan = test_plan(*state, "2*relu2 + 1*fixed(pattern=left)", &p);
    foci_plan         *exact = test_plan(*state, "softmax", &p);
    float              x[LONG * 3 * DIM], a[3 * PAIRS], b[3 * PAIRS];
    double             errors[3];
    const foci_io      io = { FOCI_SIZED(foci_io), .q = x, .k = x, .v = x };

    for (int i = 0; i < LONG * 3 * DIM; i++)
        x[i] = sinf(1.7F * (float)i);
    assert_int_equal(foci_ref_weights(plan, &io, a), FOCI_OK);
    assert_int_equal(foci_ref_weights(exact, &io, b), FOCI_OK);
    for (int rows = 0; rows < 5; rows += 4) { /* all, or 1, 3, 5 and 7 */
        assert_int_equal(foci_softmax_weight_errors(plan, &io, rows, errors), FOCI_OK);
        for (int h = 0; h < 3; h++) {
            double far = 0, all = 0;
            for (int t = h * PAIRS; t < (h + 1) * PAIRS; t++) {
                if (rows && t % PAIRS / LONG % 2 == 0) continue;
                far += ((double)a[t] - b[t]) * ((double)a[t] - b[t]);
                all += (double)b[t] * b[t];
            }
            assert_true(fabs(errors[h] - sqrt(far / all)) < 1e-12);
        }
    }
    foci_plan_free(plan);
    plan = test_plan(*state, "1*memformer + 2*softmax",
                     &(foci_problem){ FOCI_SIZED(foci_problem), .heads = 3,
                                      .len_q = LONG, .dim_qk = DIM });
    float  *params = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *params);
    foci_io other = io;
    other.params = params;
    assert_int_equal(foci_softmax_weight_errors(plan, &other, 0, errors), FOCI_OK);
    assert_true(isnan(errors[0]));
    assert_int_equal(foci_softmax_weight_errors(plan, &other, -1, errors), FOCI_ERR_ARG);
    free(params);
    foci_plan_free(plan);
    foci_plan_free(exact);
}

static void refusals(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = 1,
                             .len_k = 1,
                             .dim_qk = 1 };
    foci_plan         *plan = test_plan(*state, "relu2", &p);
    const foci_io      io = { FOCI_SIZED(foci_io) };
    double             error;

    assert_int_equal(foci_softmax_errors(NULL, &io, &error), FOCI_ERR_ARG);
    assert_int_equal(foci_softmax_errors(plan, &io, &error), FOCI_ERR_ARG);
    assert_int_equal(foci_softmax_errors(plan, &io, NULL), FOCI_ERR_ARG);
    foci_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_mean), cmocka_unit_test(other_layouts),
        cmocka_unit_test(words),           cmocka_unit_test(weights),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
