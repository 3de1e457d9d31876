/* identities.c -- what a mechanism becomes when its limits do not bind, what two hops of
 * factorised patterns reach, and data at the edges of buckets and blocks. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

static foci_problem problem_of(int64_t n, uint32_t flags, foci_dtype dtype)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .dtype = dtype,
                           .batch = 2,
                           .heads = 2,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 16,
                           .dim_v = 8,
                           .flags = FOCI_FLAG_TRAIN | flags };
}

/* `left` on the inputs of a trial of `right`, which has at least its parameters. */
static void same_as(foci_ctx *ctx, const char *left, const char *right,
                    const foci_problem *p)
{
    foci_plan *a = trial_plan(ctx, left, p), *b = trial_plan(ctx, right, p);

    if (!a || !b) fail_msg("%s or %s: %s", left, right, foci_errmsg(ctx));
    struct trial  t = trial_make(b, left, 5, 0);
    struct trial  mine = trial_make(a, left, 5, 0);
    struct result want = trial_judge(b, &t, false), rounded = trial_judge(b, &t, true);
    free(t.params);
    free(t.x);
    t.params = mine.params;
    t.x = mine.x;
    mine.params = NULL;
    mine.x = NULL;
    t.p = a->p;
    struct result got = trial_run(a, &t);

    /* What only one of them has is not compared. */
    for (int part = PART_LSE; part < N_PARTS; part++)
        if (part == PART_LSE ? strncmp(left, "routed", 6) == 0 : part >= PART_DX)
            got.n[part] = want.n[part] = rounded.n[part] = 0;
    trial_close_within(b, &t, 2, &got, &want, &rounded);
    result_free(&got);
    result_free(&want);
    result_free(&rounded);
    trial_free(&t);
    trial_free(&mine);
    foci_plan_free(a);
    foci_plan_free(b);
}

static const struct pair {
    const char *left, *right;
    int         causal; /* 0: not, 1: causal, 2: both */
} pairs[] = {
    { "local(window=200)", "softmax", 2 },
    { "local(window=200, dilation=1) rope", "softmax rope", 2 },
    { "blocklocal(block=200)", "softmax", 2 },
    { "strided(stride=1)", "softmax", 2 },
    { "strided(stride=1, part=2)", "softmax", 2 },
    { "strided(stride=200)", "softmax", 2 },
    { "strided(stride=200, part=1)", "softmax", 2 },
    { "sparse_fixed(stride=200)", "softmax", 2 },
    { "sparse_fixed(stride=5, summary=5)", "softmax", 2 },
    { "global(window=0, first=200)", "softmax", 2 },
    { "global(window=200)", "softmax", 2 },
    { "bigbird(radius=200)", "softmax", 2 },
    { "bigbird(block=16, global=200)", "softmax", 2 },
    { "lsh(hash=floor, width=1e9)", "softmax", 2 },
    { "lsh(hash=floor, width=1e9, rounds=3)", "softmax", 2 },
    { "routed(softmax, routes=1)", "softmax", 2 },
    { "routed(local(window=3) rope, routes=1)", "local(window=3) rope", 2 },
    { "segmented(length=200)", "softmax", 2 },
    { "segmented(length=7, back=200)", "segmented(length=7, back=100)", 2 },
    { "segmented(length=7, back=200)", "softmax", 1 },
    { "segmented(length=1, integrate=summary)", "softmax", 1 },
    { "segmented(length=1, integrate=summary, count_bias=1)", "softmax", 0 },
    { "pooled(block=1)", "softmax", 2 },
    { "pooled(block=200, local=1)", "softmax", 2 },
    { "pooled(block=200)", "softmax", 1 },
    { "pooled(block=1, levels=3)", "softmax", 2 },
    { "pooled(block=4, local=1, count_bias=1)",
      "pooled(block=4, levels=1, local=1, count_bias=1)", 2 },
    { "xl", "softmax", 2 },
    { "softmax bias(clip=3)", "softmax bias(clip=3) scale(0.25)", 2 },
    { "lsh(hash=floor, width=1e9) alibi", "softmax alibi", 2 },
    { "strided(stride=1) t5", "softmax t5", 2 },
    { "strided(stride=1) shaw", "softmax shaw", 2 },
    { "retention(decay=1)", "identity", 2 },
    { "retention(decay=1) rope scale(0.3)", "identity rope scale(0.3)", 2 },
    { "retention(decay=1, norm=sum)", "linear(poly, power=1, const=0)", 2 },
    { "linear(poly, power=1, const=0, normalise=0)", "identity", 2 },
    { "linear(poly, power=1, const=0, normalise=0) rope", "identity rope", 2 },
    { "linear(taylor, order=1)", "linear(poly, power=1)", 2 },
    { "linear(taylor, order=1, normalise=0)", "linear(poly, power=1, normalise=0)", 2 },
    { "linear(powers, order=1)", "linear(taylor, order=1)", 2 },
    { "cosformer(length=1000000000)", "linear(relu)", 2 },
    { "performer(favor++, a=0)", "performer", 2 },
    { "performer(favor++, a=0, kernel=gaussian) rope",
      "performer(kernel=gaussian) rope", 2 },
    { "performer scale(0.25)", "performer", 2 },
    { "routed(linear, routes=1)", "linear", 2 },
};

static void parents(void **state)
{
    struct levels l = levels_make(2);

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int causal = 0; causal < 2; causal++)
            for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
                const foci_problem p = problem_of(
                    i % 2 ? 64 : 131, causal ? FOCI_FLAG_CAUSAL : 0, (foci_dtype)dtype);
                if (pairs[i].causal != 2 && pairs[i].causal != causal) continue;
                if (test_sanitized() && ((int)i + causal + dtype) % 2) continue;
                same_as(l.ctx[((int)i + causal) % l.n], pairs[i].left, pairs[i].right,
                        &p);
            }
    levels_free(&l);
}

/*
 * Two hops
 */

enum { N = 23 };

/* Which pairs one causal head sees. */
static void seen_by(foci_ctx *ctx, const char *spec, bool seen[N][N])
{
    foci_problem p = problem_of(N, FOCI_FLAG_CAUSAL, FOCI_F32);
    p.batch = p.heads = 1;
    foci_plan   *plan = trial_plan(ctx, spec, &p);
    struct trial t = trial_make(plan, spec, 1, 0);

    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++)
            seen[i][j] = trial_sees(plan, &t, 0, 0, i, j);
    trial_free(&t);
    foci_plan_free(plan);
}

static void two_hops(void **state)
{
    static const struct {
        const char *first, *then;
    } ways[] = {
        { "strided(stride=4, part=1)", "strided(stride=4, part=2)" },
        { "strided(stride=5, part=1)", "strided(stride=5, part=2)" },
        { "sparse_fixed(stride=4, part=2)", "sparse_fixed(stride=4, part=1)" },
        { "sparse_fixed(stride=6, part=2, summary=2)",
          "sparse_fixed(stride=6, part=1)" },
    };
    foci_ctx *ctx = test_ctx("portable", 1);

    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        bool a[N][N], b[N][N];
        seen_by(ctx, ways[w].first, a);
        seen_by(ctx, ways[w].then, b);
        for (int i = 0; i < N; i++)
            for (int j = 0; j <= i; j++) {
                bool reached = a[i][j] || b[i][j];
                for (int m = 0; m < N; m++)
                    reached = reached || (a[i][m] && b[m][j]);
                if (!reached)
                    fail_msg("%s, %s: %d does not reach %d", ways[w].first,
                             ways[w].then, i, j);
            }
    }
    foci_ctx_free(ctx);
}

/*
 * Edges
 */

/* Keys and queries by kind: all alike (one bucket), or each far from all others (its
 * own). */
static void spread_rows(struct trial *t, bool apart)
{
    const foci_problem *p = &t->p;
    void *const         x[] = { t->q, t->k };

    for (int which = 0; which < 2; which++)
        for (int64_t i = 0; i < p->batch * p->len_q * p->heads * p->dim_qk; i++) {
            const int64_t c = i % p->dim_qk, row = i / p->dim_qk / p->heads % p->len_q;
            ref_store((int)p->dtype, x[which], i,
                      apart ? (double)(row + 1) * (c % 2 ? 0.5 : -0.25)
                            : 0.25 * (double)(c % 3) + 0.1);
        }
}

static void buckets(void **state)
{
    static const char *const specs[] = {
        "lsh(buckets=2)",
        "lsh(buckets=64, rounds=3)",
        "lsh(hash=floor, width=0.01)",
        "lsh(hash=floor, width=0.01, rounds=2, dedup=0)",
        "lsh(hash=floor, width=1e6)",
        "lsh(shared=1)",
        "lsh(shared=1, hash=floor, width=0.01)",
        "lsh(shared=1, chunk=8)",
        "routing(clusters=1)",
        "routing(clusters=200)",
        "routing(clusters=5)",
        "routing(clusters=5, pick=topk)",
        "routing(clusters=3, pick=topk, take=200)",
        "strided(stride=7)",
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int kind = 0; kind < 4; kind++) {
            foci_ctx          *ctx = l.ctx[(i + (size_t)kind) % (size_t)l.n];
            const foci_problem p =
                problem_of(130, kind / 2 ? FOCI_FLAG_CAUSAL : 0, FOCI_F32);
            foci_plan *plan = trial_plan(ctx, specs[i], &p);
            if (!plan) continue;
            struct trial t = trial_make(plan, specs[i], i, 0);
            spread_rows(&t, kind % 2);
            struct result got = trial_run(plan, &t),
                          want = trial_judge(plan, &t, false);
            trial_close_within(plan, &t, 4, &got, &want, &want);
            result_free(&got);
            result_free(&want);
            trial_free(&t);
            foci_plan_free(plan);
        }
    levels_free(&l);
}

static const char *refusal(foci_ctx *ctx, const char *spec, foci_problem p,
                           const int64_t *data, int64_t n, const char *name)
{
    const foci_list list = { name, data, n };
    foci_plan      *plan;

    p.lists = &list;
    p.n_lists = 1;
    const foci_status status = foci_plan_create(ctx, spec, &p, &plan);
    foci_plan_free(plan);
    return status == FOCI_OK ? "" : foci_errmsg(ctx);
}

static void lists(void **state)
{
    foci_ctx          *ctx = test_ctx("portable", 1);
    const foci_problem p = problem_of(10, 0, FOCI_F32);
    const int64_t      high[] = { 3, 10 }, low[] = { -1 }, odd[] = { 7, 2, 2, 7, 0 };
    const int64_t      layout[9] = { 1, 0, 0, 0, 0, 0, 1, 0, 1 }, two[9] = { 2 };

    (void)state;
    assert_non_null(strstr(refusal(ctx, "global", p, high, 2, "global"),
                           "global[1] is 10: it may be 0 to 9"));
    assert_non_null(strstr(refusal(ctx, "global", p, low, 1, "global"),
                           "global[0] is -1: it may be 0 to 9"));
    assert_string_equal(refusal(ctx, "global", p, odd, 5, "global"), "");
    assert_string_equal(refusal(ctx, "block(block=4)", p, layout, 9, "layout"), "");
    assert_non_null(strstr(refusal(ctx, "block(block=4)", p, two, 9, "layout"),
                           "layout[0] is 2: it may be 0 to 1"));
    assert_non_null(strstr(refusal(ctx, "block(block=4)", p, layout, 8, "layout"),
                           "layout has 8 entries; block wants 9"));
    assert_non_null(strstr(refusal(ctx, "block(block=4)", p, layout, 9, "other"),
                           "block needs its layout"));
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents),
        cmocka_unit_test(two_hops),
        cmocka_unit_test(buckets),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
