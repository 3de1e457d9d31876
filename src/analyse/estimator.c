/* estimator.c -- random features as estimators of a kernel: what they give, and what is
 * known of that without drawing.
 *
 * What one row w of omega gives for a pair x, y, and an estimate is the mean of m of, is
 *
 *     e^(c + 2 w.Aw + w.b),   b = Bx x + By y,   c = log D^2 + x.Cx x + y.Cy y
 *
 * with D^2 = sqrt(det(1 - 4A)); with -w beside w the mean of both; and of sines and
 * cosines e^c cos(w.b), b = x - y, c = (x.x + y.y)/2.  Powers of these have known means.
 * For w of normals
 *
 *     E e^(t (2 w.Aw + w.b)) = prod_k (1 - 4t A_k)^(-1/2) e^(t^2 b_k^2 / (2 - 8t A_k))
 *
 * and for w of length L and any direction, where all A_k are a,
 *
 *     E e^(t (2 w.Aw + w.b)) = e^(2 t a L^2) F(t^2 L^2 b.b/4),   E cos(w.b) = F(-L^2 b.b/4)
 *     F(z) = sum over k of z^k / (k! (d/2) (d/2 + 1) ... (d/2 + k - 1)).
 *
 * Choromanski et al., "Rethinking attention with Performers" (2021); Likhosherstov et
 * al., "Chefs' random tables" (2022) and "Dense-exponential random features" (2023).
 */
#include <math.h>
#include <string.h>

#include "foci/analyse.h"
#include "plan/moments.h"
#include "plan/plan.h"

enum { A = 1, BX, BY, CX, CY }; /* tensors */

struct estimator {
    const foci_linear *l;
    const int64_t     *at; /* offsets of tensors */
    int64_t            head, d, rows;
    foci_rows          kind;
    uint64_t           stream;

    struct moments   means;
    struct exponents e;
    double          *scratch;

    double *b, *c;            /* [n][d], [n] of each pair */
    double *sum, *mean, *var; /* [n] of one draw, and of those so far */
    double *none;             /* [d] zeros */
    double *frame;            /* [d][d] */
    float  *omega;            /* [rows][d] */
};

static double dot(const double *x, const double *y, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * y[t];
    return sum;
}

/* x.Cx */
static double form(const double *c, const double *x, int64_t d)
{
    double sum = 0;
    for (int64_t t = 0; t < d; t++)
        sum += x[t] * dot(c + t * d, x, d);
    return sum;
}

/*
 * Exponents
 */

static void find_moments(struct estimator *s, const foci_estimator_io *io)
{
    const struct moments *m = &s->means;
    const int64_t         d = s->d;

    for (int64_t i = 0; i < io->n; i++) {
        const double *x = io->x + i * d, *y = io->y + i * d, share = 1 / (double)io->n;
        for (int64_t r = 0; r < d; r++) {
            m->x[r] += share * x[r];
            m->y[r] += share * y[r];
            for (int64_t c = 0; c < d; c++) {
                m->xx[r * d + c] += share * x[r] * x[c];
                m->yy[r * d + c] += share * y[r] * y[c];
            }
        }
    }
}

/* B and C that go with A alone. */
static void follow(struct estimator *s)
{
    const int64_t d = s->d;

    for (int64_t t = 0; t < d * d; t++)
        s->e.bx[t] = s->e.by[t] = s->e.cx[t] = s->e.cy[t] = 0;
    for (int64_t t = 0; t < d; t++) {
        s->e.bx[t * (d + 1)] = s->e.by[t * (d + 1)] = sqrt(1 - 4 * s->e.a[t]);
        s->e.cx[t * (d + 1)] = s->e.cy[t * (d + 1)] = -0.5;
    }
}

/* Tensor t of the head, of n numbers. */
static int64_t place(const struct estimator *s, int t, int64_t n)
{
    return s->at[t] + s->head * n;
}

static void read_tensor(const struct estimator *s, const float *params, int t,
                        int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (double)params[place(s, t, n) + i];
}

static void find_exponents(struct estimator *s, const foci_estimator_io *io)
{
    const int64_t d = s->d;
    const float  *params = io->params;

    for (int64_t t = 0; t < d; t++)
        s->e.a[t] = s->l->a;
    if (s->l->moments && (!params || isnan(params[place(s, A, d)]))) {
        find_moments(s, io);
        moments_solve(s->l->moments, &s->means, s->scratch, &s->e);
        return;
    }
    if (s->l->moments) read_tensor(s, params, A, d, s->e.a);
    follow(s);
    if (s->l->moments <= FOCI_MOMENTS_NORM) return;
    read_tensor(s, params, BX, d * d, s->e.bx);
    read_tensor(s, params, BY, d * d, s->e.by);
    read_tensor(s, params, CX, d * d, s->e.cx);
    read_tensor(s, params, CY, d * d, s->e.cy);
}

static void write_tensor(const struct estimator *s, const double *from, int t,
                         int64_t n, float *params)
{
    if (s->at[t] < 0) return;
    for (int64_t i = 0; i < n; i++)
        params[place(s, t, n) + i] = (float)from[i];
}

/*
 * Pairs
 */

/* b and c of pair i. */
static void set_pair(const struct estimator *s, const foci_estimator_io *io, int64_t i)
{
    const int64_t d = s->d;
    const double *x = io->x + i * d, *y = io->y + i * d;
    const double  squares = dot(x, x, d) + dot(y, y, d);
    double        c = s->l->gaussian ? -squares / 2 : 0;

    if (s->l->feature == FOCI_FEATURE_TRIG) {
        for (int64_t t = 0; t < d; t++)
            s->b[i * d + t] = x[t] - y[t];
        s->c[i] = c + squares / 2;
        return;
    }
    for (int64_t t = 0; t < d; t++) {
        s->b[i * d + t] = dot(s->e.bx + t * d, x, d) + dot(s->e.by + t * d, y, d);
        c += log(1 - 4 * s->e.a[t]) / 2;
    }
    s->c[i] = c + form(s->e.cx, x, d) + form(s->e.cy, y, d);
}

static double exact(const struct estimator *s, const double *x, const double *y)
{
    double distance = 0;

    if (!s->l->gaussian) return exp(dot(x, y, s->d));
    for (int64_t t = 0; t < s->d; t++)
        distance += (x[t] - y[t]) * (x[t] - y[t]);
    return exp(-distance / 2);
}

/*
 * Closed forms
 */

/* F(z): NaN where the terms are so much larger than their sum that nothing is left. */
static double series(double half, double z)
{
    const double most = 1e8, least = 1e-17;
    double       term = 1, sum = 1, largest = 1;

    for (double k = 1; fabs(term) > least * fabs(sum); k++) {
        term *= z / (k * (half + k - 1));
        sum += term;
        largest = fmax(largest, fabs(term));
        if (!isfinite(sum)) break;
    }
    return z < 0 && largest > most * fabs(sum) ? (double)NAN : sum;
}

/* The length that rows of a fixed length have. */
static double fixed_length(const struct estimator *s)
{
    return s->kind == FOCI_ROWS_SQRT ? sqrt((double)s->d) : 1;
}

static bool is_fixed(const struct estimator *s)
{
    return s->kind == FOCI_ROWS_SQRT || s->kind == FOCI_ROWS_UNIT;
}

/* E e^(t (c + 2 w.Aw + w.b)). */
static double mean_power(const struct estimator *s, double t, double c, const double *b)
{
    const int64_t d = s->d;
    double        log_mean = t * c;

    if (is_fixed(s)) {
        const double length = fixed_length(s), a = s->e.a[0];
        for (int64_t k = 0; k < d; k++)
            if (s->e.a[k] != a) return (double)NAN;
        return exp(log_mean + 2 * t * a * length * length) *
               series((double)d / 2, t * t * length * length * dot(b, b, d) / 4);
    }
    for (int64_t k = 0; k < d; k++) {
        const double left = 1 - 4 * t * s->e.a[k];
        if (left <= 0) return (double)INFINITY;
        log_mean += t * t * b[k] * b[k] / (2 * left) - log(left) / 2;
    }
    return exp(log_mean);
}

/* E cos(t w.b). */
static double mean_cosine(const struct estimator *s, double t, const double *b)
{
    const double square = t * t * dot(b, b, s->d), length = fixed_length(s);

    if (!is_fixed(s)) return exp(-square / 2);
    return series((double)s->d / 2, -length * length * square / 4);
}

static void predict(const struct estimator *s, int64_t i, double *expected,
                    double *second)
{
    const double *b = s->b + i * s->d, c = s->c[i];

    if (s->l->feature == FOCI_FEATURE_TRIG) {
        *expected = exp(c) * mean_cosine(s, 1, b);
        *second = exp(2 * c) * (1 + mean_cosine(s, 2, b)) / 2;
        return;
    }
    *expected = mean_power(s, 1, c, b);
    *second = mean_power(s, 2, c, b);
    /* The square of a mean of two has their product in it, where b is gone. */
    if (s->l->both) *second = (*second + mean_power(s, 2, c, s->none)) / 2;
}

static void write_forms(const struct estimator *s, const foci_estimator_io *io)
{
    for (int64_t i = 0; i < io->n; i++) {
        double expected, second;
        predict(s, i, &expected, &second);
        if (io->exact) io->exact[i] = exact(s, io->x + i * s->d, io->y + i * s->d);
        if (io->expected) io->expected[i] = expected;
        if (io->second) io->second[i] = second;
        if (io->predicted)
            io->predicted[i] = (second - expected * expected) / (double)s->rows;
    }
}

/*
 * Draws
 */

/* What row w gives for pair i; square is 2 w.Aw. */
static double one_row(const struct estimator *s, const float *w, double square,
                      int64_t i)
{
    const double *b = s->b + i * s->d;
    double        along = 0;

    for (int64_t t = 0; t < s->d; t++)
        along += (double)w[t] * b[t];
    if (s->l->feature == FOCI_FEATURE_TRIG) return exp(s->c[i]) * cos(along);
    const double term = exp(s->c[i] + square + along);
    return s->l->both ? (term + exp(s->c[i] + square - along)) / 2 : term;
}

static void add_draw(const struct estimator *s, const float *omega, int64_t n,
                     int64_t draw)
{
    memset(s->sum, 0, (size_t)n * sizeof *s->sum);
    for (int64_t r = 0; r < s->rows; r++) {
        const float *w = omega + r * s->d;
        double       square = 0;
        for (int64_t t = 0; t < s->d; t++)
            square += 2 * s->e.a[t] * (double)w[t] * (double)w[t];
        for (int64_t i = 0; i < n; i++)
            s->sum[i] += one_row(s, w, square, i);
    }
    /* Mean, and sum of squares about it, as they are with one more. */
    for (int64_t i = 0; i < n; i++) {
        const double off = s->sum[i] / (double)s->rows - s->mean[i];
        s->mean[i] += off / (double)(draw + 1);
        s->var[i] += off * off * (double)draw / (double)(draw + 1);
    }
}

static void measure(const struct estimator *s, const foci_estimator_io *io)
{
    const int64_t size = s->rows * s->d;
    struct rng    r;

    rng_seed(&r, io->seed, s->stream);
    for (int64_t t = 0; t < io->draws; t++) {
        if (!io->omega) rows_draw(s->kind, &r, s->rows, s->d, s->frame, s->omega);
        add_draw(s, io->omega ? io->omega + t * size : s->omega, io->n, t);
    }
    for (int64_t i = 0; i < io->n; i++) {
        const double rest = (double)io->draws - 1;
        if (io->mean) io->mean[i] = io->draws > 0 ? s->mean[i] : (double)NAN;
        if (io->variance) io->variance[i] = rest > 0 ? s->var[i] / rest : (double)NAN;
    }
}

/*
 * Calls
 */

static foci_status estimator_check(const foci_plan         *plan,
                                   const foci_estimator_io *given, foci_estimator_io *io)
{
    if (!plan)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_estimator_io: the plan is NULL");
    foci_ctx *ctx = plan->ctx;

    TRY(sized_in(ctx, "foci_estimator_io", io, given, sizeof *io));
    if (io->head < 0 || io->head >= plan->p.heads)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.head is %lld; the plan has heads 0 to %lld",
                        (long long)io->head, (long long)plan->p.heads - 1);
    if (io->n < 0 || io->draws < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.n is %lld and io.draws %lld; both are 0 "
                        "or more",
                        (long long)io->n, (long long)io->draws);
    if (io->n > 0 && (!io->x || !io->y))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.x or io.y is NULL, with %lld pairs: both are read",
                        (long long)io->n);
    return FOCI_OK;
}

/* The head's group, its features, and how its omega is drawn. */
static foci_status find_head(const foci_plan *plan, int64_t head, struct estimator *s)
{
    const struct stage *stage = plan->stages;

    while (head >= stage->group->head0 + stage->group->heads)
        stage++;
    const struct plan_group *g = stage->group;
    *s = (struct estimator){ .l = &stage->linear,
                             .at = g->param0,
                             .head = head - g->head0,
                             .d = plan->p.dim_qk };
    if (g->mech.def->engine != FOCI_ENGINE_LINEAR ||
        (s->l->feature != FOCI_FEATURE_EXP && s->l->feature != FOCI_FEATURE_TRIG))
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "%s has no random features: performer has", g->mech.def->name);
    const struct param *omega = plan->params;
    while (omega->offset != g->param0[0])
        omega++;
    s->rows = omega->shape[1];
    s->kind = (foci_rows)omega->value;
    s->stream = omega->def->stream + ((uint64_t)omega->group << 32);
    return FOCI_OK;
}

static double *doubles(struct arena *a, int64_t n)
{
    return arena_alloc(a, n, sizeof(double));
}

static void estimator_carve(struct estimator *s, int64_t n, struct arena *a)
{
    const int64_t d = s->d;

    s->means = (struct moments){ d, doubles(a, d * d), doubles(a, d * d), doubles(a, d),
                                 doubles(a, d) };
    s->e = (struct exponents){ doubles(a, d), doubles(a, d * d), doubles(a, d * d),
                               doubles(a, d * d), doubles(a, d * d) };
    s->scratch = doubles(a, moments_scratch(d));
    s->b = doubles(a, n > INT64_MAX / d ? INT64_MAX : n * d);
    s->c = doubles(a, n);
    s->sum = doubles(a, n);
    s->mean = doubles(a, n);
    s->var = doubles(a, n);
    s->none = doubles(a, d);
    s->frame = doubles(a, d * d);
    s->omega = arena_alloc(a, s->rows * d, sizeof *s->omega);
}

/* With memory for n pairs, zeroed, in `a`. */
static foci_status begin(const foci_plan *plan, const foci_estimator_io *io,
                         struct estimator *s, struct arena *a)
{
    TRY(find_head(plan, io->head, s));
    *a = (struct arena){ 0 };
    estimator_carve(s, io->n, a);
    if (!arena_ok(a))
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "io.n is %lld: that many pairs overflow", (long long)io->n);
    const size_t bytes = a->used;
    *a = (struct arena){ .base = ctx_alloc(plan->ctx, bytes, 1) };
    if (!a->base) return FOCI_ERR_MEMORY;
    estimator_carve(s, io->n, a);
    return FOCI_OK;
}

foci_status foci_estimator_run(const foci_plan *plan, const foci_estimator_io *given)
{
    foci_estimator_io io;
    struct estimator  s;
    struct arena      a;

    TRY(estimator_check(plan, given, &io));
    TRY(begin(plan, &io, &s, &a));
    if (io.n > 0) find_exponents(&s, &io);
    for (int64_t i = 0; i < io.n; i++)
        set_pair(&s, &io, i);
    write_forms(&s, &io);
    if (io.mean || io.variance) measure(&s, &io);
    ctx_free(plan->ctx, a.base, a.used, 1);
    return FOCI_OK;
}

foci_status foci_estimator_calibrate(const foci_plan         *plan,
                                     const foci_estimator_io *given, float *params)
{
    foci_estimator_io io;
    struct estimator  s;
    struct arena      a;

    TRY(estimator_check(plan, given, &io));
    if (!params) return ctx_fail(plan->ctx, FOCI_ERR_ARG, "params is NULL");
    if (io.n < 1)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG, "io.n is 0: statistics need pairs");
    TRY(begin(plan, &io, &s, &a));
    if (s.l->moments) {
        const int64_t square = s.d * s.d;
        io.params = NULL;
        find_exponents(&s, &io);
        write_tensor(&s, s.e.a, A, s.d, params);
        write_tensor(&s, s.e.bx, BX, square, params);
        write_tensor(&s, s.e.by, BY, square, params);
        write_tensor(&s, s.e.cx, CX, square, params);
        write_tensor(&s, s.e.cy, CY, square, params);
    }
    ctx_free(plan->ctx, a.base, a.used, 1);
    return FOCI_OK;
}
