/* orthogonality.c -- what foci_orthogonality_run() says of frozen projections, and the
 * eigenvalues it is made of. */
#include <math.h>
#include <stdio.h>

#include "analyse/spectrum.h"
#include "foci/analyse.h"
#include "plan/plan.h"
#include "test.h"

static int ctx_up(void **state)
{
    *state = test_ctx(NULL, 1);
    return 0;
}

static int ctx_down(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static void near(double got, double want, double within, const char *what)
{
    if (!(fabs(got - want) <= within))
        fail_msg("%s: %.12g, not %.12g", what, got, want);
}

/* Q' diag Q for a random rotation Q has the diagonal for eigenvalues. */
static void test_spectrum(void **state)
{
    enum { N = 20 };
    struct rng r;
    double     q[N * N], a[N * N], work[3 * N], least, most;

    (void)state;
    rng_seed(&r, 1, 0);
    for (int n = 1; n <= N; n++) {
        rng_haar(&r, n, n, q);
        for (int i = 0; i < n * n; i++) {
            a[i] = 0;
            for (int t = 0; t < n; t++)
                a[i] += q[i / n * n + t] * q[i % n * n + t] * (t - 3.5);
        }
        spectrum_ends(a, n, work, &least, &most);
        near(least, -3.5, 1e-12, "least");
        near(most, n - 4.5, 1e-12, "most");
    }
    memset(a, 0, sizeof a);
    spectrum_ends(a, N, work, &least, &most);
    near(least, 0, 1e-12, "least of nothing");
    near(most, 0, 1e-12, "most of nothing");
}

static foci_plan *plan_of(foci_ctx *ctx, const char *spec, int64_t heads, int64_t dim)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = heads,
                             .len_q = 1,
                             .len_k = 1,
                             .dim_qk = dim };
    foci_plan         *plan;

    if (foci_plan_create(ctx, spec, &p, &plan)) fail_msg("%s", foci_errmsg(ctx));
    return plan;
}

/* Every mean within 4 standard errors of its theory, and the theory by its formulas. */
static void test_figures(void **state)
{
    static const struct {
        const char *spec;
        bool        normal, block;
    } tries[] = {
        { "orthogonal", false, false },
        { "softmax frozen(gaussian)", true, false },
        { "softmax frozen(hadamard)", false, false },
        { "linear frozen(orthogonal, sample=block)", false, true },
    };
    const double d = 24, k = 6, c = 0.5;

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        foci_plan                  *plan = plan_of(*state, tries[i].spec, 4, 6);
        foci_figure                 f[FOCI_FIGURE_COUNT];
        const foci_orthogonality_io io = { FOCI_SIZED(foci_orthogonality_io),
                                           .width = 24, .seed = 5, .draws = 300,
                                           .figures = f };

        assert_int_equal(foci_orthogonality_run(plan, &io), FOCI_OK);
        for (int t = FOCI_FIGURE_OVERLAP; t <= FOCI_FIGURE_UNTIED_VARIANCE; t++)
            if (fabs(f[t].measured - f[t].expected) > 4 * f[t].error + 1e-12)
                fail_msg("%s, %d: %g, not %g within %g", tries[i].spec, t,
                         f[t].measured, f[t].expected, f[t].error);
        const bool normal = tries[i].normal;
        assert_true(normal == (f[FOCI_FIGURE_GRAM].measured > 1e-6));
        near(f[FOCI_FIGURE_CONDITION].expected, normal ? 3 : 1, 1e-12, "condition");
        near(f[FOCI_FIGURE_OVERLAP].expected, tries[i].block ? 0 : k * k / d, 1e-12,
             "overlap");
        near(f[FOCI_FIGURE_LENGTH_MEAN].expected, k / d, 1e-12, "length");
        near(f[FOCI_FIGURE_TIED_MEAN].expected, c * k / d, 1e-12, "tied");
        near(f[FOCI_FIGURE_UNTIED_VARIANCE].expected, k / (d * d), 1e-12, "untied");
        if (!normal) {
            near(f[FOCI_FIGURE_SMALLEST].measured, 1, 1e-6, "smallest");
            near(f[FOCI_FIGURE_LARGEST].measured, 1, 1e-6, "largest");
            near(f[FOCI_FIGURE_GRADIENT].measured, 1, 1e-6, "gradient");
            near(f[FOCI_FIGURE_GRADIENT_SPREAD].measured, 0, 1e-6, "its spread");
            near(f[FOCI_FIGURE_TIED_VARIANCE].expected,
                 k * (d - k) / (d * (d - 1) * (d + 2)) * (1 + c * c * (d - 2) / d),
                 1e-12, "tied variance");
        }
        near(f[FOCI_FIGURE_PARAMETERS].measured, 2 * d * k * 4, 0, "parameters");
        near(f[FOCI_FIGURE_TRAINING_BYTES].measured, 16 * 2 * d * k * 4, 0, "bytes");
        foci_plan_free(plan);
    }
}

/* One head has no overlap; all columns keep all distances; equal rows have none. */
static void test_distances(void **state)
{
    enum { W = 64, ROWS = 40 };
    float          *x = test_alloc(W * ROWS, sizeof *x);
    foci_distortion far[] = { { .dim = 4 }, { .dim = 16 }, { .dim = W } };
    foci_figure     f[FOCI_FIGURE_COUNT];
    foci_plan      *plan = plan_of(*state, "orthogonal", 1, 8);
    struct rng      r;

    rng_seed(&r, 1, 2);
    for (int i = 0; i < W * ROWS; i++)
        x[i] = i < 2 * W ? 1 : (float)rng_normal(&r);
    foci_orthogonality_io io = { FOCI_SIZED(foci_orthogonality_io),
                                 .width = W,
                                 .draws = 2,
                                 .x = x,
                                 .rows = ROWS,
                                 .figures = f,
                                 .distortions = far,
                                 .n_distortions = 3 };
    assert_int_equal(foci_orthogonality_run(plan, &io), FOCI_OK);
    assert_true(isnan(f[FOCI_FIGURE_OVERLAP].measured));
    near(far[0].rms, sqrt(2 * 60 / (4.0 * 66)), 0.25, "4 of 64");
    near(far[1].rms_expected, sqrt(2 * 48 / (16.0 * 66)), 1e-12, "16 of 64");
    near(far[2].worst, 0, 1e-5, "all");
    assert_true(far[0].worst > far[1].worst && far[1].worst > far[1].rms);
    assert_true(isnan(far[2].worst_expected)); /* 4 ln 40 / 64 is above 1/6 */

    io.x = NULL;
    io.rows = 2;
    assert_int_equal(foci_orthogonality_run(plan, &io), FOCI_OK);
    const double e = far[2].worst_expected;
    near(e * e / 2 - e * e * e / 3, 4 * log(2) / W, 1e-12, "bound");
    foci_plan_free(plan);
    free(x);
}

static void refused(const foci_plan *plan, foci_orthogonality_io io, foci_status status,
                    const char *says)
{
    assert_int_equal(foci_orthogonality_run(plan, &io), status);
    if (!strstr(foci_errmsg(plan->ctx), says))
        fail_msg("%s; expected: %s", foci_errmsg(plan->ctx), says);
}

static void test_refused(void **state)
{
    foci_figure                 f[FOCI_FIGURE_COUNT];
    foci_distortion             far[] = { { .dim = 9 }, { .dim = 8 } };
    const foci_orthogonality_io good = { FOCI_SIZED(foci_orthogonality_io), .group = 1,
                                         .width = 16, .draws = 2, .figures = f };
    foci_plan *plan = plan_of(*state, "1*softmax + 1*softmax frozen(hadamard)", 2, 8);
    foci_orthogonality_io io = good;

    assert_int_equal(foci_orthogonality_run(NULL, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_orthogonality_run(plan, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_orthogonality_run(plan, &io), FOCI_OK);
    io.size = 0;
    refused(plan, io, FOCI_ERR_ARG, "foci_orthogonality_io.size is 0");
    io = good;
    io.group = 0;
    refused(plan, io, FOCI_ERR_UNSUP, "softmax has no frozen projections");
    io.group = 2;
    refused(plan, io, FOCI_ERR_ARG, "no group 2");
    io = good;
    io.width = 15;
    refused(plan, io, FOCI_ERR_UNSUP, "15 is odd");
    io.width = 0;
    refused(plan, io, FOCI_ERR_ARG, "io.width is 0");
    io = good;
    io.draws = 1;
    refused(plan, io, FOCI_ERR_ARG, "io.draws is 1");
    io = good;
    io.distortions = far;
    refused(plan, io, FOCI_ERR_ARG, "io.rows is 0");
    io.rows = 2;
    refused(plan, io, FOCI_ERR_ARG, "io.n_distortions is 0");
    io.n_distortions = 2;
    refused(plan, io, FOCI_ERR_ARG, "io.distortions[1].dim is 8; it takes 9 to 16");
    foci_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spectrum),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, ctx_up, ctx_down);
}
