/* million.c -- a million tokens, against the definition in doubles at some rows: patterns,
 * whose sums of cubes would have lost all digits of a float, and sums over features. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { N = 1000000, DIM = 2 };

static const int64_t rows[] = { 0, 1, 2, 3, 64, 1000, 65535, N / 2, N - 3, N - 1 };
enum { N_ROWS = sizeof rows / sizeof *rows };

enum pattern { LEFT, RIGHT, END, START, N_PATTERNS };
static const char *const names[] = { "left", "right", "end", "start" };

/* Weight of place j for row i of n, before it is divided by the sum. */
static double cube(enum pattern p, double i, double j, double n)
{
    const double x = p == LEFT || p == END ? j + 1 : n - j;

    if ((p == LEFT && j > i - 2) || (p == RIGHT && j < i + 2)) return 0;
    return x * x * x;
}

/* The sum of the first m cubes. */
static double cubes(double m) { return m * (m + 1) / 2 * (m * (m + 1) / 2); }

static double weight(enum pattern p, int64_t row, int64_t j, bool causal)
{
    const double i = (double)row, n = causal ? i + 1 : N;
    const double w = cube(p, i, (double)j, n);

    if (w == 0 || (causal && j > row)) return 0;
    return w / cubes(p == LEFT ? i - 1 : p == RIGHT ? n - i - 2 : n);
}

/* Rows of o, and of dv, by their definition. */
static void check_row(const foci_plan *plan, const struct trial *t,
                      const struct result *r, enum pattern p, int64_t row)
{
    const bool   causal = t->p.flags & FOCI_FLAG_CAUSAL;
    const float *v = t->v, *g = t->g;
    double       o[DIM] = { 0 }, dv[DIM] = { 0 };

    for (int64_t j = 0; j < N; j++) {
        const double takes = weight(p, row, j, causal),
                     gives = weight(p, j, row, causal);
        for (int c = 0; c < DIM; c++) {
            o[c] += takes * (double)v[j * DIM + c];
            dv[c] += gives * (double)g[j * DIM + c];
        }
    }
    for (int c = 0; c < DIM; c++) {
        const int64_t at = row * DIM + c;
        if (!(fabs(r->x[PART_O][at] - o[c]) <= 1e-5))
            trial_fail(plan, t, "o", at, r->x[PART_O][at], o[c]);
        if (!(fabs(r->x[PART_DV][at] - dv[c]) <= 1e-5 * fmax(1, fabs(dv[c]))))
            trial_fail(plan, t, "dv", at, r->x[PART_DV][at], dv[c]);
    }
}

/* Means that are not near 0, which would hide how far off they are. */
static void lift(struct trial *t)
{
    float *v = t->v, *g = t->g;

    for (int64_t i = 0; i < (int64_t)N * DIM; i++) {
        v[i] = 0.5F + 0.5F * v[i];
        g[i] = 0.5F + 0.5F * g[i];
    }
}

static void patterns(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < 2 * N_PATTERNS; i++) {
        const enum pattern pattern = (enum pattern)(i / 2);
        const bool         causal = i % 2;
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 1,
                                 .heads = 1,
                                 .len_q = N,
                                 .len_k = N,
                                 .dim_qk = DIM,
                                 .flags = FOCI_FLAG_TRAIN |
                                          (causal ? (uint32_t)FOCI_FLAG_CAUSAL : 0) };
        char               spec[SPEC_CAP];

        if (causal && pattern == RIGHT) continue; /* sees nothing */
        snprintf(spec, sizeof spec, "fixed(%s)", names[pattern]);
        foci_plan   *plan = test_plan(ctx, spec, &p);
        struct trial t = trial_make(plan, spec, 1, 0);
        lift(&t);
        struct result r = trial_run(plan, &t);
        for (int j = 0; j < N_ROWS; j++)
            check_row(plan, &t, &r, pattern, rows[j]);
        result_free(&r);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

/*
 * Sums over features
 */

enum { WIDTH = 4, LONGEST = 2000000 };

static const struct {
    const char *spec;
    double decay; /* of weights that the judge has for as many queries as keys only */
    bool   fades; /* as a cosine */
} sums[] = {
    { .spec = "linear" },
    { .spec = "linear(taylor)" },
    { .spec = "efficient" },
    { .spec = "identity" },
    { .spec = "performer" },
    { .spec = "performer(sderf)" },
    { .spec = "cosformer(length=2000000)", .fades = true },
    { .spec = "retention(decay=0.999999)", .decay = 0.999999 },
};

/* Inputs of one head, and what came of them. */
struct tensors {
    foci_dtype dtype;
    void      *q, *k, *v, *o;
    float     *params;
};

static double element(const struct tensors *t, const void *x, int64_t row, int64_t c)
{
    return ref_load((int)t->dtype, x, row * WIDTH + c);
}

/* Of one sign: kernels of both may otherwise divide by next to nothing. */
static void *draw(foci_dtype dtype, uint64_t stream)
{
    void      *x = test_alloc((size_t)N * WIDTH, foci_dtype_bytes(dtype));
    struct rng r;

    rng_seed(&r, 1, stream);
    for (int64_t i = 0; i < (int64_t)N * WIDTH; i++)
        ref_store((int)dtype, x, i, rng_uniform(&r));
    return x;
}

static foci_problem problem_of(foci_dtype dtype, int64_t queries, int64_t keys,
                               bool causal)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = 1,
                           .heads = 1,
                           .len_q = queries,
                           .len_k = keys,
                           .dim_qk = WIDTH,
                           .flags = causal ? FOCI_FLAG_CAUSAL : 0 };
}

/* The row by the judge: a problem of one query, the last of its keys. */
static void weigh(foci_ctx *ctx, int kind, const struct tensors *t, bool causal,
                  int64_t row, float *a)
{
    const foci_problem p = problem_of(t->dtype, 1, causal ? row + 1 : N, causal);
    foci_plan         *plan = test_plan(ctx, sums[kind].spec, &p);
    const size_t       at = (size_t)(row * WIDTH) * foci_dtype_bytes(t->dtype);
    const foci_io io = { FOCI_SIZED(foci_io), .q = (const char *)t->q + at, .k = t->k,
                         .v = t->v, .params = t->params };

    assert_int_equal(foci_ref_weights(plan, &io, a), FOCI_OK);
    foci_plan_free(plan);
}

/* The same of weights that fade with the distance, as their pages say. */
static void fade(int kind, const struct tensors *t, bool causal, int64_t row, float *a)
{
    const double decay = sums[kind].decay, turn = acos(-1) / 2 / LONGEST;
    double       sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < N; j++) {
            const double far = fabs((double)(row - j));
            double       w = 0;

            for (int64_t c = 0; c < WIDTH; c++)
                w += element(t, t->q, row, c) * element(t, t->k, j, c);
            w *= sums[kind].fades ? cos(turn * far) : pow(decay, far) / sqrt(WIDTH);
            if (causal && j > row) w = 0;
            if (pass == 0)
                sum += w;
            else
                a[j] = (float)(sums[kind].fades ? w / sum : w);
        }
}

/* How far off the row is, of the sizes that are added up in it. */
static double off(const struct tensors *t, const float *a, int64_t keys, int64_t row)
{
    double most = 0;

    for (int64_t c = 0; c < WIDTH; c++) {
        double want = 0, size = 0;

        for (int64_t j = 0; j < keys; j++) {
            want += (double)a[j] * element(t, t->v, j, c);
            size += fabs((double)a[j]) * element(t, t->v, j, c);
        }
        most = fmax(most, fabs(element(t, t->o, row, c) - want) / size);
    }
    return most;
}

static void run_sums(foci_ctx *ctx, int kind, bool causal, struct tensors *t, float *a)
{
    static const int64_t late[] = { 65535, N - 1 };
    const foci_problem   p = problem_of(t->dtype, N, N, causal);
    foci_plan           *plan = test_plan(ctx, sums[kind].spec, &p);
    const double         within = t->dtype == FOCI_F32 ? 2e-5 : 0x1p-7;
    foci_io io = { FOCI_SIZED(foci_io), .q = t->q, .k = t->k, .v = t->v, .o = t->o };

    t->params = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *t->params);
    io.params = t->params;
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    assert_int_equal(foci_params_init(plan, 3, t->params), FOCI_OK);
    if (strstr(sums[kind].spec, "derf"))
        assert_int_equal(foci_params_calibrate(plan, &io, t->params), FOCI_OK);
    assert_int_equal(foci_forward(plan, &io), FOCI_OK);
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        const int64_t row = late[i];
        if (sums[kind].fades || sums[kind].decay > 0)
            fade(kind, t, causal, row, a);
        else
            weigh(ctx, kind, t, causal, row, a);
        const double far = off(t, a, causal ? row + 1 : N, row);
        if (!(far <= within))
            fail_msg("%s, dtype %d%s: row %d is off by %g", sums[kind].spec,
                     (int)t->dtype, causal ? ", causal" : "", (int)row, far);
    }
    free(t->params);
    free(io.work);
    foci_plan_free(plan);
}

static void features(void **state)
{
    static const foci_dtype dtypes[] = { FOCI_F32, FOCI_BF16 };
    const int every = test_sanitized() || getenv("FOCI_TEST_SHORT") ? 4 : 1;
    foci_ctx *ctx = test_ctx(NULL, 2);
    float    *a = test_alloc(N, sizeof *a);

    (void)state;
    for (int d = 0; d < 2; d++) {
        struct tensors t = { dtypes[d],          draw(dtypes[d], 1), draw(dtypes[d], 2),
                             draw(dtypes[d], 3), draw(dtypes[d], 4), NULL };
        for (int kind = 0; kind < (int)(sizeof sums / sizeof *sums); kind += every)
            for (int causal = 0; causal < 2; causal++)
                run_sums(ctx, kind, causal, &t, a);
        free(t.q);
        free(t.k);
        free(t.v);
        free(t.o);
    }
    free(a);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(patterns),
                                        cmocka_unit_test(features) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
