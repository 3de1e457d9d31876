/* maps.c -- features of the linear engine: kernels that they are to make, written out for
 * each pair in double; their gradients, against differences. */
#include <math.h>
#include <stdio.h>

#include "engine/linear/linear_chunk.h"
#include "test.h"

enum { D = 5, N = 70, MOST = 512 }; /* features at most */

/* An execution of one head, opened; q and k are [N][D]. */
struct scene {
    foci_ctx       *ctx;
    foci_plan      *plan;
    foci_io         io;
    float          *q, *k, *params;
    char           *work;
    struct linear   x;
    struct features t[2]; /* queries and keys */
};

/* Numbers that stay away from 0, where some features have a kink. */
static float *draw_rows(uint64_t seed, int64_t n)
{
    float     *x = test_alloc((size_t)n, sizeof *x);
    struct rng r;

    rng_seed(&r, seed, 0);
    for (int64_t i = 0; i < n; i++) {
        const double v = rng_normal(&r) / 2;
        x[i] = (float)(v < 0 ? v - 0.05 : v + 0.05);
    }
    return x;
}

static struct features take_features(const struct linear *x)
{
    return (struct features){
        .x = test_alloc((size_t)(CHUNK * x->ldq), sizeof(float)),
        .cols = test_alloc((size_t)(CHUNK * x->ldq), sizeof(float)),
        .f = test_alloc((size_t)(CHUNK * x->m_full), sizeof(float)),
        .lane = test_alloc(CHUNK, sizeof(float)),
    };
}

static void free_features(struct features *t)
{
    free(t->x);
    free(t->cols);
    free(t->f);
    free(t->lane);
}

static struct scene open_scene(const char *spec, uint32_t flags)
{
    struct scene       s = { .q = draw_rows(1, N * D), .k = draw_rows(2, N * D) };
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = N,
                             .len_k = N,
                             .dim_qk = D,
                             .flags = flags };
    struct arena       a = { 0 };

    s.ctx = test_ctx(NULL, 1);
    s.plan = test_plan(s.ctx, spec, &p);
    s.params = test_alloc((size_t)foci_plan_param_floats(s.plan), sizeof *s.params);
    assert_int_equal(foci_params_init(s.plan, 4, s.params), FOCI_OK);
    s.io = (foci_io){ FOCI_SIZED(foci_io), .q = s.q, .k = s.k, .params = s.params };
    linear_geometry(&s.x, s.plan, &s.plan->stages[0]);
    linear_open(&s.x, &s.io, &a);
    s.work = test_alloc(a.used, 1);
    a = (struct arena){ .base = s.work };
    linear_open(&s.x, &s.io, &a);
    assert_in_range(s.x.m, 1, MOST);
    for (int side = 0; side < 2; side++)
        s.t[side] = take_features(&s.x);
    return s;
}

static void close_scene(struct scene *s)
{
    free_features(&s->t[0]);
    free_features(&s->t[1]);
    free(s->work);
    free(s->params);
    free(s->q);
    free(s->k);
    foci_plan_free(s->plan);
    foci_ctx_free(s->ctx);
}

/* Features of chunk t of a side; lanes that have no row are to have nothing. */
static struct feature_chunk map_chunk(struct scene *s, bool keys, int64_t t)
{
    const struct feature_chunk c = linear_chunk(&s->x, 0, 0, t);
    struct features *const     to = &s->t[keys];
    const float                none = s->x.logs ? -INFINITY : 0;

    if (keys)
        linear_load_k(&s->x, &c, s->k, &s->plan->p.k, D, s->x.ldq, to->x);
    else
        linear_load_q(&s->x, &c, s->q, &s->plan->p.q, D, s->x.ldq, to->x);
    linear_map(&s->x, &c, keys, to);
    for (int r = 0; r < s->x.m_pad; r++)
        for (int i = r < s->x.m ? c.n : 0; i < CHUNK; i++)
            if (to->f[r * CHUNK + i] != none)
                fail_msg("feature %d has %g in lane %d", r,
                         (double)to->f[r * CHUNK + i], i);
    for (int i = c.n; i < CHUNK && s->x.lane_logs; i++)
        assert_true(to->lane[i] == -INFINITY);
    return c;
}

/* f.g of query i and key j, lanes of their chunks. */
static double product(const struct scene *s, const float *f, const float *g, int i,
                      int j)
{
    double sum = 0;

    for (int r = 0; r < s->x.m; r++) {
        const double a = (double)f[r * CHUNK + i], b = (double)g[r * CHUNK + j];
        sum += s->x.logs ? exp(a + b) : a * b;
    }
    return s->x.lane_logs ? sum * exp((double)(s->t[0].lane[i] + s->t[1].lane[j]))
                          : sum;
}

static void near(double got, double want, double within, const char *what)
{
    if (!(fabs(got - want) <= within))
        fail_msg("%s: %.9g, want %.9g within %.3g", what, got, want, within);
}

/*
 * Kernels in closed form, of positions i and j
 */

typedef double kernel(const struct scene *s, int64_t i, int64_t j);

static double q_at(const struct scene *s, int64_t i, int c)
{
    return (double)s->q[i * D + c];
}

static double k_at(const struct scene *s, int64_t j, int c)
{
    return (double)s->k[j * D + c];
}

static double qk(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += q_at(s, i, c) * k_at(s, j, c);
    return sum;
}

static double elu(double x) { return x > 0 ? x + 1 : exp(x); }

static double of_elu(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += elu(q_at(s, i, c)) * elu(k_at(s, j, c));
    return sum;
}

static double of_relu(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += fmax(q_at(s, i, c), 0) * fmax(k_at(s, j, c), 0);
    return sum;
}

static double of_cos(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += cos(q_at(s, i, c)) * cos(k_at(s, j, c));
    return sum;
}

static double of_row(const struct scene *s, int64_t i, int64_t j)
{
    return s->x.scale * qk(s, i, j);
}

static double of_one(const struct scene *s, int64_t i, int64_t j)
{
    (void)s;
    (void)i;
    (void)j;
    return 1;
}

static double of_poly(const struct scene *s, int64_t i, int64_t j)
{
    return pow(0.5 + s->x.scale * qk(s, i, j), 3);
}

static double of_square(const struct scene *s, int64_t i, int64_t j)
{
    return pow(s->x.scale * qk(s, i, j), 2);
}

static double of_taylor(const struct scene *s, int64_t i, int64_t j)
{
    const double t = s->x.scale * qk(s, i, j);
    return 1 + t * (1 + t / 2 * (1 + t / 3 * (1 + t / 4)));
}

static double of_powers(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 1;
    for (int c = 0; c < D; c++)
        for (int r = 1; r <= 3; r++)
            sum += pow(s->x.scale * q_at(s, i, c) * k_at(s, j, c), r);
    return sum;
}

static double of_cosformer(const struct scene *s, int64_t i, int64_t j)
{
    const double length = s->x.l->length > 0 ? s->x.l->length : N;
    return of_relu(s, i, j) * cos(acos(-1.0) / 2 * (double)(i - j) / length);
}

static double of_softmax(const struct scene *s, int64_t i, int64_t j)
{
    double all = 0, sum = 0;
    for (int c = 0; c < D; c++) {
        all += exp(q_at(s, i, c));
        sum += exp(q_at(s, i, c) + k_at(s, j, c));
    }
    return sum / all;
}

/* Random features: the sum over r of f g, in double from the parameters. */
static double of_random(const struct scene *s, int64_t i, int64_t j,
                        const struct exponents *e)
{
    const int    both = s->x.l->both, n = both ? s->x.m / 2 : s->x.m;
    const double root = sqrt(s->x.scale), more = s->x.l->gaussian ? -0.5 : 0;
    double       sum = 0, squares = 0;

    for (int a = 0; a < D; a++)
        for (int b = 0; b < D; b++) {
            const double id = a == b ? more : 0, x = q_at(s, i, a) * q_at(s, i, b);
            squares +=
                s->x.scale * ((e->cx[a * D + b] + id) * x +
                              (e->cy[a * D + b] + id) * k_at(s, j, a) * k_at(s, j, b));
        }
    for (int r = 0; r < n; r++) {
        double own = 0, along = 0;
        for (int t = 0; t < D; t++) {
            const double w = (double)s->params[r * D + t];
            own += e->a[t] * w * w;
            for (int c = 0; c < D; c++)
                along += w * root *
                         (e->bx[t * D + c] * q_at(s, i, c) +
                          e->by[t * D + c] * k_at(s, j, c));
        }
        sum += exp(2 * own + along + squares);
        if (both) sum += exp(2 * own - along + squares);
    }
    return sum;
}

struct found {
    double           a[D], b[4 * D * D];
    struct exponents e;
};

static void set_found(struct found *f)
{
    f->e = (struct exponents){ f->a, f->b, f->b + D * D, f->b + 2 * D * D,
                               f->b + 3 * D * D };
}

static double of_a(const struct scene *s, int64_t i, int64_t j)
{
    struct found f = { 0 };

    set_found(&f);
    for (int t = 0; t < D; t++) {
        f.a[t] = s->x.l->a;
        f.e.bx[t * (D + 1)] = f.e.by[t * (D + 1)] = sqrt(1 - 4 * s->x.l->a);
        f.e.cx[t * (D + 1)] = f.e.cy[t * (D + 1)] = -0.5;
    }
    return of_random(s, i, j, &f.e);
}

static double of_statistics(const struct scene *s, int64_t i, int64_t j)
{
    static struct found f; /* of the first pair, for all */
    double         xx[D * D] = { 0 }, yy[D * D] = { 0 }, x[D] = { 0 }, y[D] = { 0 };
    double         scratch[6 * D * D + D];
    struct moments m = { D, xx, yy, x, y };

    if (i || j) return of_random(s, i, j, &f.e);
    for (int64_t t = 0; t < N; t++)
        for (int a = 0; a < D; a++) {
            x[a] += sqrt(s->x.scale) * q_at(s, t, a) / N;
            y[a] += sqrt(s->x.scale) * k_at(s, t, a) / N;
            for (int b = 0; b < D; b++) {
                xx[a * D + b] += s->x.scale * q_at(s, t, a) * q_at(s, t, b) / N;
                yy[a * D + b] += s->x.scale * k_at(s, t, a) * k_at(s, t, b) / N;
            }
        }
    set_found(&f);
    moments_solve(s->x.l->moments, &m, scratch, &f.e);
    return of_random(s, i, j, &f.e);
}

static double of_trig(const struct scene *s, int64_t i, int64_t j)
{
    double sum = 0, squares = 0;

    for (int c = 0; c < D; c++)
        squares += q_at(s, i, c) * q_at(s, i, c) + k_at(s, j, c) * k_at(s, j, c);
    for (int r = 0; r < s->x.m / 2; r++) {
        double angle = 0;
        for (int t = 0; t < D; t++)
            angle += (double)s->params[r * D + t] * (q_at(s, i, t) - k_at(s, j, t));
        sum += cos(sqrt(s->x.scale) * angle);
    }
    return s->x.l->gaussian ? sum : sum * exp(s->x.scale * squares / 2);
}

/* What a query has in all its features may be left out of random ones: rows are compared
 * by what they are to their first. */
static const struct {
    const char *spec;
    kernel     *want;
    bool        ratio;
} cases[] = {
    { "linear", of_elu, false },
    { "linear(kernel=relu)", of_relu, false },
    { "linear(kernel=cos)", of_cos, false },
    { "linear(kernel=poly,power=3,const=0.5)", of_poly, false },
    { "linear(kernel=poly,power=3,const=0.5) scale(-0.7)", of_poly, false },
    { "linear(kernel=poly,power=2,const=0)", of_square, false },
    { "linear(kernel=taylor,order=4)", of_taylor, false },
    { "linear(kernel=taylor,order=4) scale(-0.9)", of_taylor, false },
    { "linear(kernel=powers,order=3)", of_powers, false },
    { "linear(kernel=powers,order=3) scale(-0.9)", of_powers, false },
    { "identity", of_row, false },
    { "identity scale(-2)", of_row, false },
    { "retention(content=0)", of_one, false },
    { "cosformer", of_cosformer, false },
    { "cosformer(length=1000)", of_cosformer, false },
    { "efficient", of_softmax, false },
    { "performer(features=13)", of_a, true },
    { "performer(features=13,kernel=gaussian)", of_a, true },
    { "performer(features=13,kind=hyp)", of_a, true },
    { "performer(features=13,kind=favor++,a=-0.3)", of_a, true },
    { "performer(features=13,kind=favor++)", of_statistics, true },
    { "performer(features=13,kind=sderf)", of_statistics, true },
    { "performer(features=13,kind=sderf,kernel=gaussian)", of_statistics, true },
    { "performer(features=13,kind=aderf)", of_statistics, true },
    { "performer(features=13,kind=aderf,kernel=gaussian) scale(0.8)", of_statistics,
      true },
    { "performer(features=13,kind=trig)", of_trig, true },
    { "performer(features=13,kind=trig,kernel=gaussian)", of_trig, true },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void check_kernel(struct scene *s, int k, int64_t tq, int64_t tk)
{
    const struct feature_chunk a = map_chunk(s, false, tq), b = map_chunk(s, true, tk);

    for (int i = 0; i < a.n; i++) {
        const double first = product(s, s->t[0].f, s->t[1].f, i, 0);
        const double want0 = cases[k].want(s, a.pos + i, b.pos);

        for (int j = 0; j < b.n; j++) {
            double got = product(s, s->t[0].f, s->t[1].f, i, j);
            double want = cases[k].want(s, a.pos + i, b.pos + j);

            if (cases[k].ratio) got *= want0 / first; /* not near 0 */
            near(got, want, 2e-5 * (1 + fabs(want)), cases[k].spec);
        }
    }
}

static void test_kernels(void **state)
{
    (void)state;
    for (int k = 0; k < N_CASES; k++) {
        struct scene s = open_scene(cases[k].spec, 0);

        check_kernel(&s, k, 0, 0);
        check_kernel(&s, k, 1, 0);
        check_kernel(&s, k, 1, 1);
        close_scene(&s);
    }
}

/*
 * Gradients
 */

/* Sums over features of u times them (their logs), for each lane. */
static void weigh(const struct scene *s, bool keys, const float *u, double *sums)
{
    const struct features *t = &s->t[keys];

    for (int i = 0; i < CHUNK; i++) {
        sums[i] = 0;
        for (int r = 0; r < s->x.m; r++) {
            const double f = (double)t->f[r * CHUNK + i];
            sums[i] += (double)u[r * CHUNK + i] *
                       (s->x.lane_logs ? f * exp((double)t->lane[i]) : f);
        }
    }
}

static void check_column(struct scene *s, const struct feature_chunk *c, bool keys,
                         int col, const float *u, const float *dx)
{
    const float            h = 0x1p-7f;
    struct features *const t = &s->t[keys];
    double                 sums[2][CHUNK];

    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < c->n; i++)
            t->x[i * s->x.ldq + col] += way ? -2 * h : h;
        linear_map(&s->x, c, keys, t);
        weigh(s, keys, u, sums[way]);
    }
    for (int i = 0; i < c->n; i++) {
        const double want = (sums[0][i] - sums[1][i]) / (2 * (double)h);

        t->x[i * s->x.ldq + col] += h;
        near((double)dx[i * s->x.ldq + col], want, 2e-3 * (1 + fabs(want)), "gradient");
    }
}

static void check_back(struct scene *s, bool keys)
{
    const struct feature_chunk c = map_chunk(s, keys, 1);
    struct features *const     t = &s->t[keys];
    float *const               u = draw_rows(9, (int64_t)CHUNK * s->x.m_full);
    float *const df = test_alloc((size_t)(CHUNK * s->x.m_full), sizeof *df);
    float *const dx = test_alloc((size_t)(CHUNK * s->x.ldq), sizeof *dx);

    memcpy(df, u, (size_t)(CHUNK * s->x.m_pad) * sizeof *df);
    for (int r = 0; r < s->x.m && s->x.lane_logs; r++)
        for (int i = 0; i < c.n; i++) /* as the engine scales them */
            t->f[r * CHUNK + i] *= expf(t->lane[i]);
    linear_map_back(&s->x, &c, keys, t, df, dx);
    for (int col = 0; col < D; col++)
        check_column(s, &c, keys, col, u, dx);
    free(u);
    free(df);
    free(dx);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int k = 0; k < N_CASES; k++) {
        struct scene s = open_scene(cases[k].spec, 0);

        check_back(&s, false);
        check_back(&s, true);
        close_scene(&s);
    }
}

/*
 * Rotated features
 */

/* f of position p by g of position p + rel: pairs rotated by the difference. */
static void check_rotated(struct scene *s, bool half, int64_t pos)
{
    struct feature_chunk c = map_chunk(s, false, 0);
    const int            m = s->x.m;
    const int64_t        bytes = (int64_t)CHUNK * s->x.m_full;
    float *const         f = test_alloc((size_t)bytes, sizeof *f);
    float *const         g = test_alloc((size_t)bytes, sizeof *g);

    c.pos = pos;
    linear_rope(&s->x, &c, s->t[0].f, f, false);
    c.pos = pos - 3;
    map_chunk(s, true, 0);
    linear_rope(&s->x, &c, s->t[1].f, g, false);
    for (int i = 0; i < CHUNK; i += 9)
        for (int j = 0; j < CHUNK; j += 7) {
            double want = 0;
            for (int t = 0; t < m / 2; t++) {
                const int    p = half ? t : 2 * t, q = half ? t + m / 2 : 2 * t + 1;
                const double angle = (j - 3 - i) * pow(100, -2.0 * t / m);
                const double a = (double)s->t[0].f[p * CHUNK + i];
                const double b = (double)s->t[0].f[q * CHUNK + i];
                const double u = (double)s->t[1].f[p * CHUNK + j];
                const double w = (double)s->t[1].f[q * CHUNK + j];
                want += cos(angle) * (a * u + b * w) + sin(angle) * (b * u - a * w);
            }
            near(product(s, f, g, i, j), want, 2e-5, "rotated");
        }
    linear_rope(&s->x, &c, g, g, true);
    for (int64_t i = 0; i < (int64_t)m * CHUNK; i++)
        near((double)g[i], (double)s->t[1].f[i], 1e-5, "rotated back");
    free(f);
    free(g);
}

static void test_turned(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        struct scene s =
            open_scene(half ? "linear(kernel=powers,order=1) rope(base=100,layout=half)"
                            : "linear(kernel=powers,order=1) rope(base=100)",
                       0);

        check_rotated(&s, half, 0);
        check_rotated(&s, half, -20);
        check_rotated(&s, half, 1000000);
        close_scene(&s);
    }
}

/* A million positions away cosformer's weights are what the distance says. */
static void test_far(void **state)
{
    struct scene         s = open_scene("cosformer(length=2000000)", 0);
    struct feature_chunk c = linear_chunk(&s.x, 0, 0, 0);

    (void)state;
    map_chunk(&s, true, 0);
    linear_load_q(&s.x, &c, s.q, &s.plan->p.q, D, s.x.ldq, s.t[0].x);
    c.pos = 1000000;
    linear_map(&s.x, &c, false, &s.t[0]);
    for (int i = 0; i < CHUNK; i += 5)
        for (int j = 0; j < CHUNK; j += 5)
            near(product(&s, s.t[0].f, s.t[1].f, i, j),
                 of_relu(&s, i, j) * cos(acos(-1.0) / 4 * (1 + (i - j) / 1e6)), 1e-5,
                 "far");
    close_scene(&s);
}

/*
 * Parameters
 */

static foci_status check_io(struct scene *s, char *text, size_t cap)
{
    return linear_check(s->plan, &s->plan->stages[0], &s->io, text, cap);
}

static void test_checks(void **state)
{
    static const char spec[] = "performer(features=4,kind=sderf)";
    char              text[256] = "";
    float             lse[N];

    (void)state;
    struct scene s = open_scene(spec, 0);
    assert_int_equal(check_io(&s, text, sizeof text), FOCI_OK);
    s.params[4 * D + 2] = 0; /* of A */
    assert_int_equal(check_io(&s, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "104 of the 105 numbers"));
    close_scene(&s);

    s = open_scene(spec, FOCI_FLAG_CAUSAL);
    assert_int_equal(check_io(&s, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "foci_params_calibrate()"));
    assert_int_equal(linear_calibrate(s.plan, &s.plan->stages[0], &s.io, s.params),
                     FOCI_OK);
    assert_int_equal(check_io(&s, text, sizeof text), FOCI_OK);
    s.io.lse = lse;
    assert_int_equal(check_io(&s, text, sizeof text), FOCI_ERR_ARG);
    assert_non_null(strstr(text, "io.lse"));
    close_scene(&s);
}

/* Frozen statistics of the batch are those that its one sequence finds. */
static void test_calibrate(void **state)
{
    static const char *const kinds[] = { "favor++", "sderf", "aderf" };

    (void)state;
    for (int k = 0; k < 3; k++) {
        char spec[64];
        snprintf(spec, sizeof spec, "performer(features=13,kind=%s)", kinds[k]);
        struct scene s = open_scene(spec, 0);
        float        found[MOST * 16];
        const size_t bytes = (size_t)(s.x.m * s.x.ldq) * sizeof *found;
        struct arena a = { .base = s.work };

        memcpy(found, s.x.proj[1].rows, bytes);
        assert_int_equal(linear_calibrate(s.plan, &s.plan->stages[0], &s.io, s.params),
                         FOCI_OK);
        linear_open(&s.x, &s.io, &a);
        for (int i = 0; i < s.x.m * s.x.ldq; i++)
            near((double)s.x.proj[1].rows[i], (double)found[i], 2e-6, spec);
        close_scene(&s);
    }
}

/* Every third step directions are those of another seed; statistics that are not known
 * stay so. */
static void test_redraw(void **state)
{
    static const char spec[] = "performer(features=4,kind=favor++,redraw=3)";
    struct scene      s = open_scene(spec, 0);
    const int         n = 4 * D, steps = n + D;
    float *const      other = test_alloc((size_t)(steps + 1), sizeof *other);
    float *const      first = test_alloc((size_t)(steps + 1), sizeof *first);

    (void)state;
    memcpy(first, s.params, (size_t)(steps + 1) * sizeof *first);
    for (int step = 1; step <= 6; step++) {
        assert_int_equal(linear_advance(s.plan, &s.plan->stages[0], &s.io, s.params),
                         FOCI_OK);
        assert_true(s.params[steps] == (float)step);
        assert_true(isnan(s.params[n]));
        if (step < 3) {
            assert_memory_equal(s.params, first, (size_t)n * sizeof *first);
            continue;
        }
        const uint64_t seed =
            s.plan->p.seed + (uint64_t)(step / 3) * UINT64_C(0x9E3779B97F4A7C15);
        assert_int_equal(foci_params_init(s.plan, seed, other), FOCI_OK);
        assert_memory_equal(s.params, other, (size_t)n * sizeof *other);
    }
    /* Known ones are taken anew. */
    for (int c = 0; c < D; c++)
        s.params[n + c] = -100;
    for (int step = 7; step <= 9; step++)
        assert_int_equal(linear_advance(s.plan, &s.plan->stages[0], &s.io, s.params),
                         FOCI_OK);
    assert_true(s.params[n] < 0 && s.params[n] > -1);
    free(other);
    free(first);
    close_scene(&s);
}

/* Of three rows of two elements. */
static void test_omega(void **state)
{
    static const double want[] = { -0.016228743803, -1.584077604293, 2.543546002899,
                                   -0.026058418047, -1.265051378607, 0.804336124826 };
    const foci_problem  p = { FOCI_SIZED(foci_problem),
                              .batch = 1,
                              .heads = 1,
                              .len_q = 1,
                              .len_k = 1,
                              .dim_qk = 2 };
    foci_ctx           *ctx = test_ctx(NULL, 1);
    foci_plan          *plan = test_plan(ctx, "performer(features=3)", &p);
    float               omega[6];

    (void)state;
    assert_int_equal(foci_plan_param_floats(plan), 6);
    assert_int_equal(foci_params_init(plan, 0, omega), FOCI_OK);
    for (int i = 0; i < 6; i++)
        near((double)omega[i], want[i], 1e-7 * fabs(want[i]), "omega");
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_turned),  cmocka_unit_test(test_far),
        cmocka_unit_test(test_checks),  cmocka_unit_test(test_calibrate),
        cmocka_unit_test(test_redraw),  cmocka_unit_test(test_omega),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
