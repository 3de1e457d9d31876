/* order.c -- labels: what they come to where all rows have one, or each its own; what
 * is refused and why; how centroids move; labels of forward are those of backward. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

static foci_problem problem_of(int64_t n, uint32_t flags)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .batch = 2,
                           .heads = 2,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 16,
                           .dim_v = 24,
                           .flags = flags | FOCI_FLAG_TRAIN };
}

/* Results of two specs on the same inputs, close to one another.  Tensors of the first
 * come first. */
static void run_same(foci_ctx *ctx, const char *spec, const char *like, int64_t n,
                     uint32_t flags)
{
    const foci_problem p = problem_of(n, flags);
    foci_plan    *plan = test_plan(ctx, spec, &p), *other = test_plan(ctx, like, &p);
    struct trial  t = trial_make(plan, spec, (uint64_t)n, 0);
    struct result got = trial_run(plan, &t), want = trial_run(other, &t);

    for (int part = 0; part < PART_DPARAMS; part++)
        for (int64_t i = 0; i < want.n[part]; i++) {
            const double u = got.x[part][i], v = want.x[part][i];
            if (u != v && !(fabs(u - v) <= 2e-5 * (1 + fabs(v))))
                trial_fail(plan, &t, like, i, u, v);
        }
    result_free(&got);
    result_free(&want);
    trial_free(&t);
    foci_plan_free(plan);
    foci_plan_free(other);
}

/* One label for all is no label; and so is every residue of 1. */
static void same(void **state)
{
    static const char *const pairs[][2] = {
        { "strided(stride=1)", "softmax" },
        { "strided(stride=1, part=2)", "softmax" },
        { "strided(stride=100000, part=1)", "softmax" },
        { "lsh(hash=floor, width=1e6)", "softmax" },
        { "lsh(hash=floor, width=1e6, rounds=3)", "softmax" },
        { "lsh(hash=floor, width=1e6, rounds=3) alibi cap", "softmax alibi cap" },
        { "lsh(rounds=3, shared=1, chunk=1000)", "lsh(rounds=3, shared=1)" },
    };
    struct levels l = levels_make(2);

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int64_t n = 1; n < 700; n = 3 * n + 2)
            for (uint32_t causal = 0; causal <= FOCI_FLAG_CAUSAL;
                 causal += FOCI_FLAG_CAUSAL) {
                if (causal && strstr(pairs[i][0], "chunk")) continue;
                run_same(l.ctx[i % (size_t)l.n], pairs[i][0], pairs[i][1], n, causal);
            }
    levels_free(&l);
}

/* A token alone in its bucket: by shared keys it sees itself, by others nothing. */
static void lonely(void **state)
{
    const foci_problem p = problem_of(100, 0);
    foci_ctx          *ctx = test_ctx(NULL, 1);
    const char        *spec = "lsh(hash=floor, width=1e-9, shared=1)";
    foci_plan         *plan = test_plan(ctx, spec, &p);
    struct trial       t = trial_make(plan, spec, 1, 0);
    struct result      r = trial_run(plan, &t);
    const float       *v = t.v;

    (void)state;
    for (int64_t i = 0; i < r.n[PART_O]; i++)
        if (r.x[PART_O][i] != (double)v[i])
            trial_fail(plan, &t, "o of a lonely row", i, r.x[PART_O][i], (double)v[i]);
    result_free(&r);
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

/* In a causal model what a token hears in two steps is all that came before. */
static void two_hops(void **state)
{
    enum { N = 150 };
    foci_problem p = problem_of(N, FOCI_FLAG_CAUSAL);
    foci_ctx    *ctx = test_ctx(NULL, 1);
    p.batch = p.heads = 1;
    foci_plan   *plan = test_plan(ctx, "strided(stride=12)", &p);
    struct trial t = trial_make(plan, "strided(stride=12)", 1, 0);
    static bool  sees[N][N];

    (void)state;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sees[i][j] = trial_sees(plan, &t, 0, 0, i, j);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            bool hears = false;
            for (int via = 0; via < N && !hears; via++)
                hears = sees[i][via] && sees[via][j];
            assert_int_equal(hears, j <= i);
        }
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

static void refusals(void **state)
{
    static const struct {
        const char *spec;
        uint32_t    flags;
        int64_t     len_q;
        const char *why;
    } cases[] = {
        { "strided", FOCI_FLAG_CAUSAL, 20, "needs a stride" },
        { "strided(3)", 0, 10, "as many queries as keys" },
        { "lsh(buckets=7)", 0, 20, "even" },
        { "lsh(chunk=4)", 0, 20, "shared=1" },
        { "lsh(chunk=4, shared=1)", FOCI_FLAG_CAUSAL, 20, "cannot be causal" },
        { "lsh(shared=1)", 0, 10, "as many queries as keys" },
        { "routing", FOCI_FLAG_CAUSAL, 20, "number of clusters" },
        { "routing(4, pick=topk)", FOCI_FLAG_CAUSAL, 20, "cannot be causal" },
        { "lsh txl", 0, 20, "in their order" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_problem p = problem_of(20, cases[i].flags);
        foci_plan   *plan;
        p.len_q = cases[i].len_q;
        assert_int_not_equal(foci_plan_create(ctx, cases[i].spec, &p, &plan), FOCI_OK);
        if (!strstr(foci_errmsg(ctx), cases[i].why))
            fail_msg("%s: \"%s\" says nothing of \"%s\"", cases[i].spec,
                     foci_errmsg(ctx), cases[i].why);
    }
    foci_ctx_free(ctx);
}

/* Backward goes by the labels that forward saved, though the vectors they came from are
 * others by then. */
static void saved(void **state)
{
    const foci_problem p = problem_of(150, 0);
    foci_ctx          *ctx = test_ctx(NULL, 2);
    const char *specs[] = { "lsh(rounds=2, buckets=8)", "lsh(hash=floor, rounds=2)",
                            "lsh(buckets=8, shared=1, chunk=9)", "routing(7)",
                            "routing(7, pick=topk)" };

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_plan    *plan = test_plan(ctx, specs[i], &p);
        struct trial  t = trial_make(plan, specs[i], i, 0);
        struct result want = trial_run(plan, &t);
        foci_io       io = trial_io(&t);
        const size_t  n = (size_t)want.n[PART_DQ];
        float        *o = test_alloc((size_t)want.n[PART_O], 4), *dq = test_alloc(n, 4);

        io.o = o;
        io.work = test_alloc(foci_plan_work_bytes(plan), 1);
        io.saved = test_alloc(foci_plan_saved_bytes(plan), 1);
        assert_int_equal(foci_forward(plan, &io), FOCI_OK);
        memset(t.params, 0x3e, (size_t)foci_plan_param_floats(plan) * sizeof *t.params);
        const foci_grads g = { FOCI_SIZED(foci_grads), .d_o = t.g, .dq = dq };
        assert_int_equal(foci_backward(plan, &io, &g), FOCI_OK);
        for (size_t c = 0; c < n; c++)
            if ((double)dq[c] != want.x[PART_DQ][c])
                trial_fail(plan, &t, "dq", (int64_t)c, (double)dq[c],
                           want.x[PART_DQ][c]);
        free(o);
        free(dq);
        free(io.work);
        free(io.saved);
        result_free(&want);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

/*
 * Centroids
 */

/* Row i of q or k of a head, standardised. */
static void row_of(const struct trial *t, const void *base, int64_t b, int64_t i,
                   int64_t h, double *row)
{
    const int64_t d = t->p.dim_qk;
    double        mean = 0, square = 0;

    for (int64_t c = 0; c < d; c++) {
        row[c] = (double)((const float *)base)[trial_at(&t->p.q, b, i, h, c)];
        mean += row[c] / (double)d;
    }
    for (int64_t c = 0; c < d; c++)
        square += (row[c] - mean) * (row[c] - mean) / (double)d;
    for (int64_t c = 0; c < d; c++)
        row[c] = (row[c] - mean) / sqrt(square + 1e-5);
}

static double dot(const double *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * (double)y[c];
    return sum;
}

/* Whether centroid c of those at mu has the row: it is the nearest, or of all rows fewer
 * than `take` are nearer. */
static bool has(const struct trial *t, const void *base, int64_t b, int64_t i,
                int64_t h, int64_t c, int64_t clusters, int64_t take, const float *mu)
{
    double        row[64], other[64];
    const int64_t d = t->p.dim_qk;
    int64_t       nearer = 0;

    row_of(t, base, b, i, h, row);
    const double fit = dot(row, mu + c * d, d);
    for (int64_t u = 0; !take && u < clusters; u++)
        if (dot(row, mu + u * d, d) > fit) return false;
    for (int64_t j = 0; take && j < t->p.len_q; j++) {
        row_of(t, base, b, j, h, other);
        nearer += dot(other, mu + c * d, d) > fit;
    }
    return !take || nearer < take;
}

/* Element e of centroid c of head h after a step that keeps `keep` of it. */
static double moved(const struct trial *t, int64_t h, int64_t c, int64_t e,
                    int64_t clusters, int64_t take, double keep)
{
    const float *mu = t->params + h * clusters * t->p.dim_qk;
    const double old = (double)mu[c * t->p.dim_qk + e];
    double       to = keep * old, row[64];

    for (int side = 0; side < 2; side++) {
        const void *base = side ? t->k : t->q;
        double      sum = 0, n = 0;

        for (int64_t b = 0; b < t->p.batch; b++)
            for (int64_t i = 0; i < t->p.len_q; i++) {
                if (!has(t, base, b, i, h, c, clusters, take, mu)) continue;
                row_of(t, base, b, i, h, row);
                sum += row[e];
                n++;
            }
        to += (1 - keep) / 2 * (n > 0 ? sum / n : old);
    }
    return to;
}

static void centroids(void **state)
{
    static const struct {
        const char *spec;
        int64_t     clusters, take;
    } cases[] = {
        { "routing(clusters=5, lambda=0.75)", 5, 0 },
        { "routing(clusters=40, lambda=0.75)", 40, 0 }, /* some are empty */
        { "routing(clusters=4, pick=topk, take=6, lambda=0.75)", 4, 6 },
    };
    const foci_problem p = problem_of(30, 0);
    foci_ctx          *ctx = test_ctx(NULL, 2);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_plan    *plan = test_plan(ctx, cases[i].spec, &p);
        struct trial  t = trial_make(plan, cases[i].spec, i, 0);
        foci_io       io = trial_io(&t);
        const int64_t d = p.dim_qk, per = cases[i].clusters * d;
        float        *to = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *to);

        io.o = t.g; /* not written */
        io.work = test_alloc(foci_plan_work_bytes(plan), 1);
        assert_int_equal(foci_params_advance(plan, &io, to), FOCI_OK);
        for (int64_t e = 0; e < 2 * per; e++) {
            const double want = moved(&t, e / per, e % per / d, e % d,
                                      cases[i].clusters, cases[i].take, 0.75);
            if (!(fabs((double)to[e] - want) <= 1e-6 * (1 + fabs(want))))
                trial_fail(plan, &t, "mu", e, (double)to[e], want);
        }
        free(to);
        free(io.work);
        trial_free(&t);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

/* Centroids of a mixture move route by route, as those of each would with its keys. */
static void routes(void **state)
{
    enum { ROUTES = 2, HEADS = 2 };
    static const char  inner[] = "routing(clusters=5, lambda=0.75)";
    static const char  spec[] = "routed(routing(clusters=5, lambda=0.75), routes=2)";
    const foci_problem one = problem_of(30, 0);
    foci_problem       all = one;

    (void)state;
    all.dim_x = 3;
    foci_ctx  *ctx = test_ctx(NULL, 2);
    foci_plan *plan = test_plan(ctx, spec, &all), *route = test_plan(ctx, inner, &one);
    struct trial  t = trial_make(plan, spec, 4, 0);
    foci_io       io = trial_io(&t);
    const int64_t n = foci_plan_param_floats(route), d = one.dim_qk;
    const int64_t rows = one.batch * one.len_k,
                  mu = foci_plan_param_floats(plan) - ROUTES * n;
    float *to = test_alloc((size_t)foci_plan_param_floats(plan), sizeof *to);
    float *want = test_alloc((size_t)n, sizeof *want);
    float *k = test_alloc((size_t)(rows * HEADS * d), sizeof *k);

    io.o = t.g; /* not written */
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    assert_int_equal(foci_params_advance(plan, &io, to), FOCI_OK);
    for (int64_t r = 0; r < ROUTES; r++) {
        for (int64_t i = 0; i < rows * HEADS; i++) /* [row][head][dim] */
            memcpy(k + i * d, (const float *)t.k + (i * ROUTES + r) * d,
                   (size_t)d * sizeof *k);
        foci_io its = io;
        its.k = k;
        its.params = t.params + mu + r * n;
        its.work = test_alloc(foci_plan_work_bytes(route), 1);
        assert_int_equal(foci_params_advance(route, &its, want), FOCI_OK);
        assert_memory_equal(to + mu + r * n, want, (size_t)n * sizeof *want);
        assert_memory_not_equal(want, its.params, (size_t)n * sizeof *want);
        free(its.work);
    }
    free(k);
    free(to);
    free(want);
    free(io.work);
    trial_free(&t);
    foci_plan_free(plan);
    foci_plan_free(route);
    foci_ctx_free(ctx);
}

/* Nothing moves where nothing can; a missing array is an error. */
static void unmoved(void **state)
{
    const foci_problem p = problem_of(10, 0);
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_plan         *plan = test_plan(ctx, "softmax sink", &p);
    struct trial       t = trial_make(plan, "softmax sink", 1, 0);
    foci_io            io = trial_io(&t);
    float              to[2] = { 7, 7 };

    (void)state;
    io.o = t.g;
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    assert_int_equal(foci_params_advance(plan, &io, to), FOCI_OK);
    assert_true(to[0] == 7 && to[1] == 7);
    assert_int_equal(foci_params_advance(plan, &io, NULL), FOCI_ERR_ARG);
    free(io.work);
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same),     cmocka_unit_test(lonely),
        cmocka_unit_test(two_hops), cmocka_unit_test(refusals),
        cmocka_unit_test(saved),    cmocka_unit_test(centroids),
        cmocka_unit_test(routes),   cmocka_unit_test(unmoved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
