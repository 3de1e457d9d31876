/* frozen.c -- projections that are drawn: their law, and transforms against matrices. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "layer/frozen.h"
#include "test.h"

static int ctx_up(void **state)
{
    *state = test_ctx(NULL, 2);
    return 0;
}

static int ctx_down(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static struct frozen make(foci_ctx *ctx, enum frozen_kind kind, bool block,
                          int64_t width, int64_t heads, int64_t dim, uint64_t seed)
{
    struct frozen f = {
        .kind = kind, .block = block, .width = width, .heads = heads, .dim = dim
    };

    if (frozen_make(ctx, &f, seed, 10) != FOCI_OK) fail_msg("%s", foci_errmsg(ctx));
    return f;
}

static float *written(const struct frozen *f)
{
    float *const out = test_alloc((size_t)(f->width * f->heads * f->dim), sizeof *out);

    assert_int_equal(frozen_write(f, out), FOCI_OK);
    return out;
}

/* Columns s and t of w[width][cols]. */
static double dot(const float *w, int64_t width, int64_t cols, int64_t s, int64_t t)
{
    double sum = 0;

    for (int64_t i = 0; i < width; i++)
        sum += (double)w[i * cols + s] * (double)w[i * cols + t];
    return sum;
}

/*
 * Columns
 */

/* Within a head, and of a block between heads. */
static void check_columns(const struct frozen *f)
{
    float *const  w = written(f);
    const int64_t cols = f->heads * f->dim;

    for (int64_t s = 0; s < cols; s++)
        for (int64_t t = 0; t <= s; t++) {
            const double got = dot(w, f->width, cols, s, t);

            if (!f->block && s / f->dim != t / f->dim) continue;
            if (fabs(got - (s == t)) > 1e-6)
                fail_msg("width %" PRId64 ", columns %" PRId64 " and %" PRId64 ": %g",
                         f->width, s, t, got);
        }
    free(w);
}

static const struct {
    int64_t width, heads, dim;
} shapes[] = { { 48, 3, 16 },  { 48, 5, 7 },   { 96, 4, 24 },   { 256, 4, 64 },
               { 256, 2, 33 }, { 1000, 4, 8 }, { 1000, 3, 30 }, { 64, 1, 64 },
               { 2, 1, 1 },    { 30, 3, 10 } };

static void test_columns(void **state)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = FROZEN_ORTHOGONAL; kind <= FROZEN_HADAMARD; kind += 2)
            for (int block = 0; block < 2; block++) {
                struct frozen f =
                    make(*state, (enum frozen_kind)kind, block, shapes[i].width,
                         shapes[i].heads, shapes[i].dim, i);
                check_columns(&f);
                frozen_free(*state, &f);
            }
}

/* Heads of their own are not orthogonal to each other, and gaussian columns are not
 * orthonormal: what would pass the test above by being wrong. */
static void test_heads_differ(void **state)
{
    struct frozen f = make(*state, FROZEN_ORTHOGONAL, false, 64, 2, 16, 1);
    struct frozen g = make(*state, FROZEN_GAUSSIAN, true, 64, 2, 16, 1);
    float *const w = written(&f), *const v = written(&g);
    double heads = 0, columns = 0;

    for (int64_t s = 0; s < 16; s++)
        for (int64_t t = 0; t < 16; t++) {
            heads += pow(dot(w, 64, 32, s, 16 + t), 2);
            columns += s == t ? 0 : pow(dot(v, 64, 32, s, t), 2);
        }
    assert_true(heads > 1 && columns > 1);
    free(w);
    free(v);
    frozen_free(*state, &f);
    frozen_free(*state, &g);
}

static void test_same_again(void **state)
{
    for (int kind = FROZEN_ORTHOGONAL; kind <= FROZEN_HADAMARD; kind++)
        for (int block = 0; block < 2; block++) {
            struct frozen f = make(*state, (enum frozen_kind)kind, block, 48, 3, 16, 5);
            struct frozen g = make(*state, (enum frozen_kind)kind, block, 48, 3, 16, 5);
            struct frozen h = make(*state, (enum frozen_kind)kind, block, 48, 3, 16, 6);
            float *const w = written(&f), *const x = written(&g), *const y = written(&h);

            assert_memory_equal(w, x, 48 * 48 * sizeof *w);
            assert_true(memcmp(w, y, 48 * 48 * sizeof *w) != 0);
            free(w);
            free(x);
            free(y);
            frozen_free(*state, &f);
            frozen_free(*state, &g);
            frozen_free(*state, &h);
        }
}

/*
 * What cannot be
 */

static void test_refused(void **state)
{
    static const struct {
        enum frozen_kind kind;
        bool             block;
        int64_t          width, heads, dim;
        const char      *says; /* NULL: it can be */
    } tries[] = {
        { FROZEN_ORTHOGONAL, false, 8, 4, 8, NULL },
        { FROZEN_ORTHOGONAL, false, 8, 1, 9, "no 9 columns of 8 elements" },
        { FROZEN_ORTHOGONAL, true, 8, 4, 2, NULL },
        { FROZEN_ORTHOGONAL, true, 8, 3, 3, "3 heads of 3 need more" },
        { FROZEN_ORTHOGONAL, true, 8, INT64_MAX, 3, "need more" },
        { FROZEN_GAUSSIAN, false, 8, 1, 9, NULL },
        { FROZEN_GAUSSIAN, true, 8, 2, 5, "sample=perhead" },
        { FROZEN_HADAMARD, false, 6, 2, 3, NULL },
        { FROZEN_HADAMARD, false, 6, 2, 7, "no 7 columns of 6" },
        { FROZEN_HADAMARD, false, 7, 2, 3, "7 is odd" },
        { FROZEN_HADAMARD, true, 75, 3, 25, "75 is odd" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char       why[200] = "";
        const bool can = frozen_can(tries[i].kind, tries[i].block, tries[i].width,
                                    tries[i].heads, tries[i].dim, why, sizeof why);

        if (can != !tries[i].says || (!can && !strstr(why, tries[i].says)))
            fail_msg("%zu: %s", i, why);
    }
}

static void test_too_large(void **state)
{
    struct frozen f = {
        .kind = FROZEN_GAUSSIAN, .width = INT64_MAX / 2, .heads = 4, .dim = 1
    };

    assert_int_equal(frozen_make(*state, &f, 0, 10), FOCI_ERR_MEMORY);
    assert_non_null(strstr(foci_errmsg(*state), "do not fit into memory"));
    assert_null(f.dense);
}

/*
 * Transforms
 */

static float value(struct rng *r) { return (float)rng_normal(r); }

static float of_type(const void *p, int64_t i, foci_dtype dtype)
{
    static struct kernels k;
    float                 x;

    if (!k.load_rows) kernels_ref(&k);
    k.load_rows(&x, 1, (const char *)p + i * (dtype == FOCI_F32 ? 4 : 2), 1, (int)dtype,
                1, 1);
    return x;
}

/* n normals, rounded to `dtype`. */
static void *normals(struct rng *r, int64_t n, foci_dtype dtype)
{
    struct kernels k;
    char *const    p = test_alloc((size_t)n, 4);

    kernels_ref(&k);
    for (int64_t i = 0; i < n; i++) {
        const float x = value(r);
        k.store_rows(p + i * (dtype == FOCI_F32 ? 4 : 2), 1, (int)dtype, &x, 1, 1.0f, 1,
                     1);
    }
    return p;
}

struct trial {
    foci_ctx     *ctx;
    struct frozen f;
    float        *w;
    void         *work;
    foci_dtype    dtype;
    int64_t       m;
    struct rng    r;
};

static double tolerance(foci_dtype dtype, double size)
{
    static const double half[] = { 1e-6, 0x1p-8, 0x1p-11 };
    return 1e-5 + half[dtype] * size;
}

/* Heads apart, as a plan reads them, in rows of 2 more than they need. */
static void check_run(struct trial *t)
{
    const struct frozen *f = &t->f;
    const int64_t        ldx = f->width + 3, row = f->dim + 2, head = t->m * row + 1;
    const int64_t        cols = f->heads * f->dim;
    void *const          x = normals(&t->r, t->m * ldx, t->dtype);
    char *const          out = test_alloc((size_t)(f->heads * head), 4);

    memset(out, 0x11, (size_t)(f->heads * head) * 4);
    const struct hadamard_rows at = { f, t->dtype, t->m, ldx, row, head, t->work };
    hadamard_run(t->ctx, &at, x, out);
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t at = c / f->dim * head + i * row + c % f->dim;
            double        want = 0;

            for (int64_t s = 0; s < f->width; s++)
                want += (double)of_type(x, i * ldx + s, t->dtype) *
                        (double)t->w[s * cols + c];
            const double got = (double)of_type(out, at, t->dtype);
            if (fabs(got - want) > tolerance(t->dtype, fabs(want)))
                fail_msg("width %" PRId64 ", row %" PRId64 ", column %" PRId64
                         ": %g, not %g",
                         f->width, i, c, got, want);
        }
    for (int64_t i = 0; i < t->m; i++) /* what lies between rows is not ours */
        assert_int_equal(out[(i * row + f->dim) * (t->dtype == FOCI_F32 ? 4 : 2)], 0x11);
    free(x);
    free(out);
}

/* dx grows by g W^T. */
static void check_back(struct trial *t)
{
    const struct frozen *f = &t->f;
    const int64_t        cols = f->heads * f->dim, row = cols + 1, ldx = f->width + 1;
    void *const          g = normals(&t->r, t->m * row, t->dtype);
    float *const         dx = test_alloc((size_t)(t->m * ldx), sizeof *dx);

    for (int64_t i = 0; i < t->m * ldx; i++)
        dx[i] = (float)(i % 7);
    const struct hadamard_rows at = { f, t->dtype, t->m, ldx, row, f->dim, t->work };
    hadamard_back(t->ctx, &at, g, dx);
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t s = 0; s < f->width; s++) {
            double want = (double)((i * ldx + s) % 7);

            for (int64_t c = 0; c < cols; c++)
                want += (double)of_type(g, i * row + c, t->dtype) *
                        (double)t->w[s * cols + c];
            if (fabs((double)dx[i * ldx + s] - want) > 1e-5)
                fail_msg("width %" PRId64 ", row %" PRId64 ", element %" PRId64
                         ": %g, not %g",
                         f->width, i, s, (double)dx[i * ldx + s], want);
        }
    free(g);
    free(dx);
}

static void try_transform(foci_ctx *ctx, size_t shape, bool block, int64_t m,
                          foci_dtype dtype)
{
    struct trial t = { .ctx = ctx, .dtype = dtype, .m = m };

    t.f = make(ctx, FROZEN_HADAMARD, block, shapes[shape].width, shapes[shape].heads,
               shapes[shape].dim, 3);
    t.w = written(&t.f);
    t.work = test_alloc(hadamard_bytes(ctx, &t.f), 1);
    rng_seed(&t.r, 1, shape);
    check_run(&t);
    check_back(&t);
    free(t.w);
    free(t.work);
    frozen_free(ctx, &t.f);
}

static void test_transform(void **state)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int block = 0; block < 2; block++) {
            try_transform(*state, i, block, 1, FOCI_F32);
            try_transform(*state, i, block, 19, FOCI_F32);
            try_transform(*state, i, block, 33, FOCI_BF16);
            try_transform(*state, i, block, 16, FOCI_F16);
        }
}

/* Whatever the CPU and however many threads, a transform of f32 is the same within
 * rounding: it is the portable one that is compared with the matrix. */
static void test_levels(void **state)
{
    (void)state;
    foci_ctx *const ctx = test_ctx("portable", 1);

    try_transform(ctx, 0, true, 19, FOCI_F32);
    try_transform(ctx, 2, false, 19, FOCI_BF16);
    foci_ctx_free(ctx);
}

/*
 * The law: means and variances over many draws, of d = 12 to k = 4
 */

enum { D = 12, K = 4, DRAWS = 20000 };

struct sums {
    double one, two, four; /* of x - mean, its square and its fourth power */
};

static void add(struct sums *s, double x, double mean)
{
    const double e = (x - mean) * (x - mean);

    s->one += (x - mean) / DRAWS;
    s->two += e / DRAWS;
    s->four += e * e / DRAWS;
}

/* The mean and the variance within 4 standard errors of what they should be. */
static void check_law(const char *what, const struct sums *s, double variance)
{
    const double mean_error = sqrt(variance / DRAWS);
    const double error = sqrt((s->four - s->two * s->two) / DRAWS);

    if (fabs(s->one) > 4 * mean_error)
        fail_msg("%s: the mean is off by %g, %g standard errors", what, s->one,
                 s->one / mean_error);
    if (variance > 0 && fabs(s->two - variance) > 4 * error)
        fail_msg("%s: variance %g, not %g: %g standard errors", what, s->two, variance,
                 (s->two - variance) / error);
}

/* u W . v W', of one head each. */
static double logit(const double *u, const float *w, const double *v, const float *w2)
{
    double sum = 0;

    for (int t = 0; t < K; t++) {
        double a = 0, b = 0;
        for (int i = 0; i < D; i++) {
            a += u[i] * (double)w[i * K + t];
            b += v[i] * (double)w2[i * K + t];
        }
        sum += a * b;
    }
    return sum;
}

struct laws {
    struct sums tied, untied, length, overlap;
};

static void draw_laws(foci_ctx *ctx, uint64_t seed, const double *x, const double *y,
                      double c, struct laws *laws)
{
    const double ratio = (double)K / D;
    float        q[D * K], k[D * K];
    double       overlap = 0;

    for (int side = 0; side < 2; side++) {
        struct frozen f = {
            .kind = FROZEN_ORTHOGONAL, .width = D, .heads = 1, .dim = K
        };
        assert_int_equal(frozen_make(ctx, &f, seed, 10 + (uint64_t)side), FOCI_OK);
        assert_int_equal(frozen_write(&f, side ? k : q), FOCI_OK);
        frozen_free(ctx, &f);
    }
    for (int s = 0; s < K; s++)
        for (int t = 0; t < K; t++) {
            double along = 0;
            for (int i = 0; i < D; i++)
                along += (double)q[i * K + s] * (double)k[i * K + t];
            overlap += along * along;
        }
    add(&laws->tied, logit(x, q, y, q), ratio * c);
    add(&laws->untied, logit(x, q, y, k), 0);
    add(&laws->length, logit(x, q, x, q), ratio);
    add(&laws->overlap, overlap, (double)K * K / D);
}

static void test_laws(void **state)
{
    const double c = 0.6, d = D, k = K;
    const double x[D] = { 1 }, y[D] = { 0.6, 0, 0, 0.8 };
    struct laws  laws = { .tied = { .one = 0 } };

    for (int draw = 0; draw < DRAWS; draw++)
        draw_laws(*state, (uint64_t)draw, x, y, c, &laws);
    check_law("tied", &laws.tied,
              k * (d - k) / (d * (d - 1) * (d + 2)) * (1 + c * c * (d - 2) / d));
    check_law("untied", &laws.untied, k / (d * d));
    check_law("length", &laws.length, 2 * k * (d - k) / (d * d * (d + 2)));
    check_law("overlap", &laws.overlap,
              2 * k * k * (d - k) * (d - k) / (d * d * (d - 1) * (d + 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),    cmocka_unit_test(test_heads_differ),
        cmocka_unit_test(test_same_again), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_large),  cmocka_unit_test(test_transform),
        cmocka_unit_test(test_levels),     cmocka_unit_test(test_laws),
    };

    return cmocka_run_group_tests(tests, ctx_up, ctx_down);
}
