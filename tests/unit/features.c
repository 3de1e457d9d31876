/* features.c -- random features as they are drawn, and how good their estimates are:
 * held to the closed forms of the literature and to numbers printed there.
 *
 * Seeds are fixed, so that what passes once passes always; bounds are in standard errors
 * all the same, for what other compilers round differently.
 */
#include <math.h>
#include <stdio.h>

#include "foci/analyse.h"
#include "test.h"

enum { DIM = 4 };

/* Fewer with FOCI_TEST_SHORT; variances then differ by more. */
static int64_t draws(void) { return getenv("FOCI_TEST_SHORT") ? 4000 : 100000; }

static double variance_bound(void) { return getenv("FOCI_TEST_SHORT") ? 0.25 : 0.05; }

static foci_plan *plan_of(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = heads,
                             .len_q = 8,
                             .len_k = 8,
                             .dim_qk = d };
    return test_plan(ctx, spec, &p);
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

/*
 * Pairs
 */

enum { MAX_PAIRS = 400 };

struct pairs {
    int64_t n, d;
    double  x[MAX_PAIRS * 8], y[MAX_PAIRS * 8];
    double  exact[MAX_PAIRS], mean[MAX_PAIRS], variance[MAX_PAIRS];
    double  expected[MAX_PAIRS], predicted[MAX_PAIRS], second[MAX_PAIRS];
};

static double dot(const double *x, const double *y, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * y[t];
    return sum;
}

static double *row(double *x, const struct pairs *p, int64_t i) { return x + i * p->d; }

/* |x + y|^2, and |x - y|^2 with sign -1. */
static double apart(const struct pairs *p, int64_t i, double sign)
{
    double sum = 0;
    for (int64_t t = i * p->d; t < (i + 1) * p->d; t++)
        sum += (p->x[t] + sign * p->y[t]) * (p->x[t] + sign * p->y[t]);
    return sum;
}

/* A direction at a right angle to `other`, or any one. */
static void direction(struct rng *r, int64_t d, const double *other, double *x)
{
    for (int64_t t = 0; t < d; t++)
        x[t] = rng_normal(r);
    const double part = other ? dot(x, other, d) / dot(other, other, d) : 0;
    for (int64_t t = 0; other && t < d; t++)
        x[t] -= part * other[t];
    const double norm = sqrt(dot(x, x, d));
    for (int64_t t = 0; t < d; t++)
        x[t] /= norm;
}

/* One more pair of these lengths and this cosine. */
static void add_pair(struct pairs *p, struct rng *r, double nx, double ny, double cosine)
{
    double *x = row(p->x, p, p->n), *y = row(p->y, p, p->n), side[8];

    direction(r, p->d, NULL, x);
    direction(r, p->d, x, side);
    for (int64_t t = 0; t < p->d; t++) {
        y[t] = ny * (cosine * x[t] + sqrt(1 - cosine * cosine) * side[t]);
        x[t] *= nx;
    }
    p->n++;
}

/* Lengths up to 1/2, where variances of 10^5 draws are near those of all. */
static struct pairs *short_pairs(int64_t d)
{
    struct pairs *p = test_alloc(1, sizeof *p);
    struct rng    r;

    rng_seed(&r, 1, 0);
    p->d = d;
    add_pair(p, &r, 0.5, 0.5, 0.9);
    add_pair(p, &r, 0.5, 0.5, 0.3);
    add_pair(p, &r, 0.5, 0.5, -0.8);
    add_pair(p, &r, 0.5, 0.25, 0.6);
    add_pair(p, &r, 0.25, 0.5, -0.4);
    return p;
}

/* Queries and keys that are spread along different axes, each with each. */
static struct pairs *uneven_pairs(int64_t rows, int64_t d)
{
    struct pairs *p = test_alloc(1, sizeof *p);
    double        x[32 * 8], y[32 * 8];
    struct rng    r;

    rng_seed(&r, 2, 0);
    p->d = d;
    for (int64_t t = 0; t < rows * d; t++) {
        const double c = (double)(t % d) / (double)d;
        x[t] = 1.6 * exp(-2 * c) * rng_normal(&r) + (t % d == 1);
        y[t] = 0.5 * exp(1.2 * c) * rng_normal(&r);
    }
    for (int64_t i = 0; i < rows * rows; i++) {
        memcpy(row(p->x, p, i), x + i / rows * d, (size_t)d * sizeof *x);
        memcpy(row(p->y, p, i), y + i % rows * d, (size_t)d * sizeof *y);
    }
    p->n = rows * rows;
    return p;
}

static foci_estimator_io io_of(struct pairs *p, int64_t times)
{
    return (foci_estimator_io){ FOCI_SIZED(foci_estimator_io),
                                .n = p->n,
                                .x = p->x,
                                .y = p->y,
                                .draws = times,
                                .seed = 17,
                                .exact = p->exact,
                                .mean = times ? p->mean : NULL,
                                .variance = times ? p->variance : NULL,
                                .expected = p->expected,
                                .predicted = p->predicted,
                                .second = p->second };
}

/* Estimates of the pairs; statistics, where there are any, are those of `data`. */
static void estimate(foci_ctx *ctx, const char *spec, struct pairs *p,
                     struct pairs *data, int64_t times)
{
    foci_plan        *plan = plan_of(ctx, spec, 1, p->d);
    foci_estimator_io io = io_of(p, times), its = io_of(data, 0);
    float *params = test_alloc((size_t)foci_plan_params(plan), sizeof *params);

    assert_int_equal(foci_params_init(plan, 0, params), FOCI_OK);
    assert_int_equal(foci_estimator_calibrate(plan, &its, params), FOCI_OK);
    io.params = params;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    free(params);
    foci_plan_free(plan);
}

static double standard_error(const struct pairs *p, int64_t i)
{
    return sqrt(p->variance[i] / (double)draws());
}

static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: %.12g, not %.12g within %.3g", what, got, want, tolerance);
}

/*
 * Directions
 */

static float *drawn(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d)
{
    foci_plan *plan = plan_of(ctx, spec, heads, d);
    float     *omega = test_alloc((size_t)foci_plan_params(plan), sizeof *omega);
    assert_int_equal(foci_params_init(plan, 0, omega), FOCI_OK);
    foci_plan_free(plan);
    return omega;
}

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
    float       *omega = drawn(*state, "performer(features=3)", 1, 2);

    for (int t = 0; t < 6; t++)
        near((double)omega[t], want[t], 2e-7, "omega");
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
        near(frame[t], want[t], 1e-12, "frame");
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
        float *omega = drawn(*state, kinds[k].spec, 2, d);
        for (int64_t i = 0; i < 2 * rows; i++) {
            const float *w = omega + i * d;
            const double length = sqrt(product(w, w, d));
            if (kinds[k].length > 0) near(length, kinds[k].length, 1e-6, "length");
            for (int64_t j = i + 1; j < 2 * rows; j++)
                if (i / rows == j / rows && i % rows / d == j % rows / d)
                    near(product(w, omega + j * d, d), 0, 1e-5, "orthogonal");
        }
        free(omega);
    }
}

/* Independent rows are the normals of the stream. */
static void normal_rows(void **state)
{
    float     *omega = drawn(*state, "performer(ortho=0)", 2, 3);
    struct rng r;

    rng_seed(&r, 0, 0);
    for (int t = 0; t < 2 * 6 * 3; t++)
        assert_true(omega[t] == (float)rng_normal(&r));
    free(omega);
}

/* Draws follow one another as heads do. */
static void draws_are_heads(void **state)
{
    foci_plan        *plan = plan_of(*state, "performer", 1, DIM);
    struct pairs     *p = short_pairs(DIM), *q = short_pairs(DIM);
    foci_estimator_io io = io_of(p, 7), given = io_of(q, 7);
    float            *omega = drawn(*state, "performer", 7, DIM);

    io.seed = 0;
    given.omega = omega;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    assert_int_equal(foci_estimator_run(plan, &given), FOCI_OK);
    for (int64_t i = 0; i < p->n; i++) {
        near(p->mean[i], q->mean[i], 0, "mean");
        near(p->variance[i], q->variance[i], 0, "variance");
    }
    free(p);
    free(q);
    free(omega);
    foci_plan_free(plan);
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
    const size_t       n = (size_t)foci_plan_params(plan);
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

/*
 * Numbers that are printed
 */

static void printed_kernels(void **state)
{
    static const float omega[] = { 1, 0, 0, 1, -1, 1 };
    static const struct {
        const char *spec;
        int64_t     n;
        double      value[9];
    } cases[] = {
        { "performer(features=3)",
          9,
          { 1.078378, .569733, .650548, .926458, 1.475202, 2.108359, .937693, .805376,
            .952237 } },
        { "performer(kind=favor++, features=3, a=-0.1)",
          3,
          { 1.587535, .797964, .782989 } },
        { "performer(kind=trig, features=3)", 3, { 2.028115, -.504722, -.248862 } },
    };
    static const double q[] = { 1, 0, 0, 1, 1, 1 }, k[] = { 1, 0, 0, 2, -1, 1 };
    struct pairs       *p = test_alloc(1, sizeof *p);
    const double        root = pow(2, -0.25);

    p->d = 2;
    for (int64_t t = 0; t < 18; t++) {
        p->x[t] = root * q[t / 6 * 2 + t % 2];
        p->y[t] = root * k[t % 6];
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        foci_plan *plan = plan_of(*state, cases[c].spec, 1, 2);
        p->n = cases[c].n;
        foci_estimator_io io = io_of(p, 1);
        io.omega = omega;
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        for (int64_t i = 0; i < p->n; i++)
            near(p->mean[i], cases[c].value[i], 6e-7, cases[c].spec);
        assert_true(isnan(p->variance[0]));
        foci_plan_free(plan);
    }
    free(p);
}

/* The a of the same queries and keys, each with each. */
static void printed_statistics(void **state)
{
    static const double q[] = { 1, 0, 0, 1, 1, 1 }, k[] = { 1, 0, 0, 2, -1, 1 };
    foci_plan          *plan = plan_of(*state, "performer(kind=favor++)", 1, 2);
    struct pairs       *p = test_alloc(1, sizeof *p);
    float *params = test_alloc((size_t)foci_plan_params(plan), sizeof *params);

    p->d = 2;
    p->n = 3;
    for (int64_t t = 0; t < 6; t++) {
        p->x[t] = pow(2, -0.25) * q[t];
        p->y[t] = pow(2, -0.25) * k[t];
    }
    const foci_estimator_io io = io_of(p, 0);
    assert_int_equal(foci_estimator_calibrate(plan, &io, params), FOCI_OK);
    foci_param a = { FOCI_SIZED(foci_param) };
    assert_int_equal(foci_plan_param(plan, 1, &a), FOCI_OK);
    near((double)params[a.offset], -0.526708, 6e-7, "a");
    near((double)params[a.offset + 1], -0.526708, 6e-7, "a");
    free(params);
    free(p);
    foci_plan_free(plan);
}

/*
 * Closed forms, as they are published for each kind
 */

static void published_variances(void **state)
{
    enum { ROWS = 4 };
    struct pairs *favor = uneven_pairs(ROWS, DIM), *trig = uneven_pairs(ROWS, DIM);
    struct pairs *hyp = uneven_pairs(ROWS, DIM);

    estimate(*state, "performer", favor, favor, 0);
    estimate(*state, "performer(kind=trig)", trig, trig, 0);
    estimate(*state, "performer(kind=hyp)", hyp, hyp, 0);
    for (int64_t i = 0; i < favor->n; i++) {
        const double m = 2 * DIM, sum = apart(favor, i, 1), gap = apart(favor, i, -1);
        const double xy = dot(row(favor->x, favor, i), row(favor->y, favor, i), DIM);
        const double one = exp(sum + 2 * xy) * -expm1(-sum) / m;
        const double wave = exp(sum - 2 * xy) * expm1(-gap) * expm1(-gap) / (2 * m);

        near(favor->predicted[i] / one, 1, 1e-9, "favor+");
        near(trig->predicted[i] / wave, 1, 1e-9, "trig");
        near(hyp->predicted[i] / (one * -expm1(-sum) / 2), 1, 1e-9, "hyp");
    }
    free(favor);
    free(trig);
    free(hyp);
}

static void published_second_moment(void **state)
{
    const double  a = -0.3, d = DIM;
    struct pairs *p = uneven_pairs(4, DIM);

    estimate(*state, "performer(kind=favor++, a=-0.3)", p, p, 0);
    for (int64_t i = 0; i < p->n; i++) {
        const double *x = row(p->x, p, i), *y = row(p->y, p, i);
        const double  want = pow(1 - 4 * a, d) * pow(1 - 8 * a, -d / 2) *
                            exp(2 * (1 - 4 * a) / (1 - 8 * a) * apart(p, i, 1) -
                                dot(x, x, DIM) - dot(y, y, DIM));
        near(p->second[i] / want, 1, 1e-12, "favor++");
    }
    free(p);
}

/* What is estimated, by the formula for the mean: every kind is without bias. */
static void expected_is_exact(void **state)
{
    static const char *const specs[] = {
        "performer",
        "performer(kind=favor++, a=-0.4)",
        "performer(kind=favor++)",
        "performer(kind=sderf)",
        "performer(kind=aderf)",
        "performer(kind=trig)",
        "performer(kind=hyp)",
        "performer(kernel=gaussian)",
        "performer(kind=aderf, kernel=gaussian)",
        "performer(kind=trig, kernel=gaussian)",
    };
    struct pairs *p = uneven_pairs(12, DIM);

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        estimate(*state, specs[k], p, p, 0);
        for (int64_t i = 0; i < p->n; i++) {
            const double want = strstr(specs[k], "gaussian")
                                    ? exp(-apart(p, i, -1) / 2)
                                    : exp(dot(row(p->x, p, i), row(p->y, p, i), DIM));
            near(p->exact[i] / want, 1, 1e-12, specs[k]);
            near(p->expected[i] / want, 1, 1e-5, specs[k]); /* parameters are floats */
        }
    }
    free(p);
}

/*
 * Draws
 */

/* Kinds and kernels that are without bias; independent rows, or orthogonal ones. */
static const char *const unbiased[] = {
    "performer(kind=favor+, features=8%s)",
    "performer(kind=favor++, features=8, a=-0.1%s)",
    "performer(kind=favor++, features=8%s)",
    "performer(kind=sderf, features=8%s)",
    "performer(kind=aderf, features=8%s)",
    "performer(kind=trig, features=8%s)",
    "performer(kind=hyp, features=8%s)",
    "performer(kind=favor+, features=8, kernel=gaussian%s)",
};

enum { N_UNBIASED = sizeof unbiased / sizeof *unbiased };

static void draw_all(foci_ctx *ctx, const char *rows,
                     void (*look)(const struct pairs *p, const char *spec))
{
    struct pairs *p = short_pairs(DIM), *data = uneven_pairs(12, DIM);

    for (int k = 0; k < N_UNBIASED; k++) {
        char spec[96];
        snprintf(spec, sizeof spec, unbiased[k], rows);
        estimate(ctx, spec, p, data, draws());
        look(p, spec);
    }
    free(p);
    free(data);
}

static void no_bias(const struct pairs *p, const char *spec)
{
    for (int64_t i = 0; i < p->n; i++)
        near(p->mean[i], p->exact[i], 4 * standard_error(p, i), spec);
}

static void no_bias_and_variance(const struct pairs *p, const char *spec)
{
    no_bias(p, spec);
    for (int64_t i = 0; i < p->n; i++)
        near(p->variance[i] / p->predicted[i], 1, variance_bound(), spec);
}

static void independent_rows(void **state)
{
    draw_all(*state, ", ortho=0", no_bias_and_variance);
}

static void orthogonal_rows(void **state) { draw_all(*state, "", no_bias); }

static void orthogonal_rows_vary_less(void **state)
{
    struct pairs *p = short_pairs(DIM);

    estimate(*state, "performer(features=4)", p, p, draws());
    for (int64_t i = 0; i < p->n; i++)
        if (!(p->variance[i] < 0.98 * p->predicted[i]))
            fail_msg("orthogonal rows: variance %g, independent ones %g",
                     p->variance[i], p->predicted[i]);
    free(p);
}

/* Rows of a length that is not that of normals: the bias is there, and as predicted;
 * far larger for unit rows than for those of sqrt(d). */
static void biased_rows(void **state)
{
    struct pairs *unit = short_pairs(DIM), *root = short_pairs(DIM);

    estimate(*state, "performer(features=8, rows=unit)", unit, unit, draws());
    estimate(*state, "performer(features=8, rows=sqrt)", root, root, draws());
    for (int64_t i = 0; i < unit->n; i++) {
        const double bias = fabs(unit->mean[i] - unit->exact[i]);
        near(unit->mean[i], unit->expected[i], 4 * standard_error(unit, i), "unit");
        near(root->mean[i], root->expected[i], 4 * standard_error(root, i), "sqrt");
        assert_true(bias > 20 * standard_error(unit, i));
        assert_true(fabs(root->expected[i] - root->exact[i]) < bias / 4);
    }
    free(unit);
    free(root);
}

/* With sines and cosines too. */
static void biased_waves(void **state)
{
    struct pairs *p = short_pairs(DIM);

    estimate(*state, "performer(kind=trig, features=8, rows=unit)", p, p, draws());
    for (int64_t i = 0; i < p->n; i++)
        near(p->mean[i], p->expected[i], 4 * standard_error(p, i), "unit");
    free(p);
}

/*
 * Kinds beside each other
 */

static double mean_log_second(foci_ctx *ctx, const char *spec, struct pairs *p)
{
    double sum = 0;

    estimate(ctx, spec, p, p, 0);
    for (int64_t i = 0; i < p->n; i++)
        sum += log(p->second[i]) / (double)p->n;
    return sum;
}

static void kinds_get_better(void **state)
{
    static const char *const kinds[] = { "favor+", "favor++", "sderf", "aderf" };
    struct pairs            *p = uneven_pairs(20, 8);
    double                   last = (double)INFINITY;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char spec[64];
        snprintf(spec, sizeof spec, "performer(kind=%s)", kinds[k]);
        const double now = mean_log_second(*state, spec, p);
        if (!(now < last - 0.1))
            fail_msg("%s: mean log second moment %g, after %g", spec, now, last);
        last = now;
    }
    free(p);
}

/* The a that statistics give is the best one. */
static void statistics_are_best(void **state)
{
    struct pairs *p = uneven_pairs(20, 8);
    const double  best = mean_log_second(*state, "performer(kind=favor++)", p);

    for (double a = -1; a < 0.1; a += 0.01) {
        char spec[64];
        snprintf(spec, sizeof spec, "performer(kind=favor++, a=%.2f)", a);
        assert_true(mean_log_second(*state, spec, p) > best - 1e-9);
    }
    free(p);
}

/* Where x.y is well below 0 waves have large terms of both signs for a small sum.  Near
 * 0, where x and y are short, they are better. */
static void waves_are_worse(void **state)
{
    struct pairs *waves = test_alloc(1, sizeof *waves), *powers;
    struct rng    r;

    rng_seed(&r, 3, 0);
    waves->d = DIM;
    for (double norm = 0.75; norm < 1.6; norm += 0.25)
        for (double cosine = -0.9; cosine < -0.4; cosine += 0.2)
            add_pair(waves, &r, norm, norm, cosine);
    powers = test_alloc(1, sizeof *powers);
    *powers = *waves;
    estimate(*state, "performer(kind=trig)", waves, waves, draws() / 4);
    estimate(*state, "performer", powers, powers, draws() / 4);
    for (int64_t i = 0; i < waves->n; i++) {
        assert_true(waves->exact[i] < 1);
        assert_true(waves->variance[i] > powers->variance[i]);
        assert_true(waves->predicted[i] > powers->predicted[i]);
    }
    free(waves);
    free(powers);
}

/*
 * Calls
 */

static void refused(void **state)
{
    foci_plan        *plan = plan_of(*state, "1*performer + 1*softmax", 2, DIM);
    struct pairs     *p = short_pairs(DIM);
    foci_estimator_io io = io_of(p, 0), bad = io;
    float *params = test_alloc((size_t)foci_plan_params(plan), sizeof *params);

    assert_int_equal(foci_estimator_run(plan, NULL), FOCI_ERR_ARG);
    bad.size = 0;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.head = 2;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad.head = 1;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(*state), "softmax"));
    bad = io;
    bad.draws = -1;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.x = NULL;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad = io;
    bad.n = INT64_MAX / 2;
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_ERR_ARG);
    bad.n = 0;
    assert_int_equal(foci_estimator_calibrate(plan, &bad, params), FOCI_ERR_ARG);
    assert_int_equal(foci_estimator_run(plan, &bad), FOCI_OK);
    assert_int_equal(foci_estimator_calibrate(plan, &io, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    free(params);
    free(p);
    foci_plan_free(plan);
}

/* A caller with an older header does not have the results at the end. */
static void shorter_struct(void **state)
{
    foci_plan        *plan = plan_of(*state, "performer", 1, DIM);
    struct pairs     *p = short_pairs(DIM);
    foci_estimator_io io = io_of(p, 0);

    io.size = offsetof(foci_estimator_io, second);
    p->second[0] = -1;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    assert_true(p->second[0] < 0 && p->expected[0] > 1);
    free(p);
    foci_plan_free(plan);
}

/* Without parameters, and with those that are NaN, statistics are those of the pairs. */
static void unknown_statistics(void **state)
{
    static const char *const specs[] = { "performer(kind=favor++)",
                                         "performer(kind=sderf)",
                                         "performer(kind=aderf)" };
    struct pairs            *p = uneven_pairs(12, DIM), *q = uneven_pairs(12, DIM);

    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        foci_plan        *plan = plan_of(*state, specs[k], 1, DIM);
        foci_estimator_io io = io_of(q, 0);
        float *params = test_alloc((size_t)foci_plan_params(plan), sizeof *params);

        estimate(*state, specs[k], p, p, 0);
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        for (int64_t i = 0; i < p->n; i++)
            near(q->second[i] / p->second[i], 1, 1e-5, specs[k]);
        assert_int_equal(foci_params_init(plan, 0, params), FOCI_OK);
        q->second[0] = 0;
        io.params = params;
        assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
        near(q->second[0] / p->second[0], 1, 1e-5, specs[k]);
        free(params);
        foci_plan_free(plan);
    }
    free(p);
    free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_rows),
        cmocka_unit_test(printed_frame),
        cmocka_unit_test(rows_of_a_block),
        cmocka_unit_test(normal_rows),
        cmocka_unit_test(draws_are_heads),
        cmocka_unit_test(drawn_anew),
        cmocka_unit_test(printed_kernels),
        cmocka_unit_test(printed_statistics),
        cmocka_unit_test(published_variances),
        cmocka_unit_test(published_second_moment),
        cmocka_unit_test(expected_is_exact),
        cmocka_unit_test(independent_rows),
        cmocka_unit_test(orthogonal_rows),
        cmocka_unit_test(orthogonal_rows_vary_less),
        cmocka_unit_test(biased_rows),
        cmocka_unit_test(biased_waves),
        cmocka_unit_test(kinds_get_better),
        cmocka_unit_test(statistics_are_best),
        cmocka_unit_test(waves_are_worse),
        cmocka_unit_test(refused),
        cmocka_unit_test(shorter_struct),
        cmocka_unit_test(unknown_statistics),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
