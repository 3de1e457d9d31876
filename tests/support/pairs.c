/* pairs.c -- pairs of rows whose products are estimated. */
#include <math.h>

#include "support/pairs.h"

foci_plan *pairs_plan(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = heads,
                             .len_q = 8,
                             .len_k = 8,
                             .dim_qk = d };
    return test_plan(ctx, spec, &p);
}

int pairs_setup(void **state)
{
    *state = test_ctx(NULL, 1);
    return 0;
}

int pairs_teardown(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

double pairs_dot(const double *x, const double *y, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * y[t];
    return sum;
}

double *pairs_row(double *x, const struct pairs *p, int64_t i) { return x + i * p->d; }

/* A direction at a right angle to `other`, or any one. */
static void direction(struct rng *r, int64_t d, const double *other, double *x)
{
    for (int64_t t = 0; t < d; t++)
        x[t] = rng_normal(r);
    const double part = other ? pairs_dot(x, other, d) / pairs_dot(other, other, d) : 0;
    for (int64_t t = 0; other && t < d; t++)
        x[t] -= part * other[t];
    const double norm = sqrt(pairs_dot(x, x, d));
    for (int64_t t = 0; t < d; t++)
        x[t] /= norm;
}

/* One more pair of these lengths and this cosine. */
void pairs_add(struct pairs *p, struct rng *r, double nx, double ny, double cosine)
{
    double *x = pairs_row(p->x, p, p->n), *y = pairs_row(p->y, p, p->n), side[8];

    direction(r, p->d, NULL, x);
    direction(r, p->d, x, side);
    for (int64_t t = 0; t < p->d; t++) {
        y[t] = ny * (cosine * x[t] + sqrt(1 - cosine * cosine) * side[t]);
        x[t] *= nx;
    }
    p->n++;
}

/* Lengths up to 1/2, where variances of 10^5 draws are near those of all. */
struct pairs *pairs_short(int64_t d)
{
    struct pairs *p = test_alloc(1, sizeof *p);
    struct rng    r;

    rng_seed(&r, 1, 0);
    p->d = d;
    pairs_add(p, &r, 0.5, 0.5, 0.9);
    pairs_add(p, &r, 0.5, 0.5, 0.3);
    pairs_add(p, &r, 0.5, 0.5, -0.8);
    pairs_add(p, &r, 0.5, 0.25, 0.6);
    pairs_add(p, &r, 0.25, 0.5, -0.4);
    return p;
}

/* Queries and keys that are spread along different axes, each with each. */
struct pairs *pairs_uneven(int64_t rows, int64_t d)
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
        memcpy(pairs_row(p->x, p, i), x + i / rows * d, (size_t)d * sizeof *x);
        memcpy(pairs_row(p->y, p, i), y + i % rows * d, (size_t)d * sizeof *y);
    }
    p->n = rows * rows;
    return p;
}

foci_estimator_io pairs_io(struct pairs *p, int64_t times)
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
void pairs_estimate(foci_ctx *ctx, const char *spec, struct pairs *p,
                    struct pairs *data, int64_t times)
{
    foci_plan        *plan = pairs_plan(ctx, spec, 1, p->d);
    foci_estimator_io io = pairs_io(p, times), its = pairs_io(data, 0);
    float *params = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *params);

    assert_int_equal(foci_params_init(plan, 0, params), FOCI_OK);
    assert_int_equal(foci_estimator_calibrate(plan, &its, params), FOCI_OK);
    io.params = params;
    assert_int_equal(foci_estimator_run(plan, &io), FOCI_OK);
    free(params);
    foci_plan_free(plan);
}

float *pairs_drawn(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d)
{
    foci_plan *plan = pairs_plan(ctx, spec, heads, d);
    float     *omega = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *omega);
    assert_int_equal(foci_params_init(plan, 0, omega), FOCI_OK);
    foci_plan_free(plan);
    return omega;
}

void pairs_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: %.12g, not %.12g within %.3g", what, got, want, tolerance);
}
