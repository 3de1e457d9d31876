/* decode.c -- token by token is the causal forward, whatever the steps are cut into,
 * who else takes part in them, and through copies, saved states and full pools. */
#include <math.h>

#include "support/world.h"

/* Three sequences, from their first token to their last; false: no such plan. */
static bool walk(foci_ctx *ctx, const char *spec, const foci_problem *p, uint64_t seed)
{
    const int64_t lens[] = { test_sanitized() ? 70 : 150, 64, 1 };
    struct world  w = world_make(ctx, spec, p, lens, MAX_SEQS, seed);

    if (!w.plan) return false;
    world_run(&w);
    for (int s = 0; s < w.n; s++)
        world_compare(&w, &w.seq[s]);
    world_free(&w);
    return true;
}

static void test_steps(void **state)
{
    struct levels l = levels_make(2);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; i < l.n; i++)
        kept_register(l.ctx[i]);
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
        foci_problem p = world_shapes[i % 3];
        p.dtype = (foci_dtype)(i / 2 % 3);
        walk(l.ctx[i % l.n], spec, &p, (uint64_t)i);
    }
    levels_free(&l);
}

/* Groups that keep different things, in one state. */
static void test_mixes(void **state)
{
    static const char *const mixes[] = {
        "2*lsh(buckets=8, rounds=2) + 2*pooled(block=8, levels=2)",
        "1*local(window=9) alibi + 1*strided(stride=5) + 1*routing(clusters=4) + "
        "1*sparse_fixed(stride=6) rope",
        "2*local(window=70) rope logn + 2*segmented(length=10, integrate=summary) sink",
        "2*segmented(length=9, back=1, integrate=second) logn + "
        "2*routed(inner=local(window=5) rope, routes=3, top=2)",
        "3*fixed + 1*softmax",
        "1*fixed(left) + 1*linear + 1*lightconv(width=3) + 1*local(window=9) rope",
        "2*fixed(start, words=1) + 1*dynconv(width=4) + 1*retention",
        "routed(inner=pooled(block=4, levels=2) qknorm)",
        "routed(inner=lsh(buckets=4, rounds=2), routes=2)",
        "2*lsh(buckets=4, rounds=3, dedup=0) logn(n0=9) + "
        "2*lsh(hash=floor, rounds=3, dedup=0, shared=1) logn(n0=4)",
        "routed(inner=segmented(length=6, integrate=second))",
        "2*linear rope + 1*softmax + 1*local(window=9)",
        "1*performer + 1*retention(norm=retnet) + 1*efficient + 1*pooled(block=8)",
        "routed(inner=cosformer(length=500), routes=2)",
        "1*test_ring(place=70) + 1*test_heap(levels=3) + 1*test_tail + "
        "1*test_label(kind=floor)",
    };
    struct levels l = levels_make(2);
    foci_problem  p = world_shapes[0];

    (void)state;
    for (int i = 0; i < l.n; i++)
        kept_register(l.ctx[i]);
    for (size_t i = 0; i < 3 * sizeof mixes / sizeof *mixes; i++) {
        p.dtype = (foci_dtype)(i % 3);
        assert_true(walk(l.ctx[i % (size_t)l.n], mixes[i / 3], &p, i));
    }
    levels_free(&l);
}

/* Heads and widths of every kind, as long as the judge is through with them soon. */
static foci_problem draw_shape(struct rng *r, int64_t len)
{
    static const int64_t kv_heads[] = { 1, 2, 3, 5, 9, 33 };
    static const int64_t per[] = { 1, 2, 3, 4, 5, 8, 16, 17, 70 };
    enum { COST = 10000000, WIDEST = 256 };
    foci_problem p = world_shapes[0];

    do {
        p.kv_heads = kv_heads[rng_below(r, 6)];
        p.heads = p.kv_heads * per[rng_below(r, 9)];
        p.dim_qk = 1 + rng_below(r, 1 + rng_below(r, WIDEST));
        p.dim_v = 1 + rng_below(r, 1 + rng_below(r, WIDEST));
    } while (p.heads * len * len * (p.dim_qk + p.dim_v) > COST);
    p.dtype = (foci_dtype)rng_below(r, 3);
    return p;
}

/* All of a prompt at once, then step by step; the same bits for any number of threads. */
static void walk_twice(foci_ctx *one, foci_ctx *seven, const char *spec,
                       const foci_problem *p, uint64_t seed)
{
    static const int64_t lens[MAX_SEQS] = { 140, 66, 3 };
    struct world         w = world_make(one, spec, p, lens, MAX_SEQS, seed);
    struct world         x = world_make(seven, spec, p, lens, MAX_SEQS, seed);
    const int32_t        prompt[MAX_SEQS] = { 130, 0, (int32_t)(seed % 4) };

    assert_non_null(w.plan);
    world_step(&w, prompt, true);
    world_step(&x, prompt, true);
    world_run(&w);
    world_run(&x);
    for (int s = 0; s < MAX_SEQS; s++) {
        world_compare(&w, &w.seq[s]);
        assert_memory_equal(w.seq[s].got, x.seq[s].got,
                            (size_t)lens[s] * world_row_bytes(&w, p->heads, p->dim_v));
    }
    world_free(&w);
    world_free(&x);
}

static void test_shapes(void **state)
{
    static const char *const specs[] = { "softmax sink",
                                         "softmax rope logn",
                                         "local(window=70) alibi",
                                         "relu2",
                                         "softmax cap(5) t5",
                                         "l2norm qknorm",
                                         "pooled(block=8)",
                                         "softmax shaw",
                                         "lsh(buckets=8, rounds=2)",
                                         "strided(stride=5)",
                                         "softmax txl",
                                         "lsh(buckets=4, shared=1)",
                                         "lowrank(rank=7) sink" };
    enum { SPECS = sizeof specs / sizeof *specs };
    const uint64_t rounds = getenv("FOCI_TEST_LONG") ? 20 : 2;
    struct levels  one = levels_make(1), seven = levels_make(7);
    struct rng     r;

    (void)state;
    rng_seed(&r, 1, 1);
    for (uint64_t i = 0; i < SPECS * rounds; i++) {
        foci_problem p = draw_shape(&r, 140);
        const int    level = (int)rng_below(&r, one.n);

        if (i % SPECS == 0) p.heads = 70 * (p.kv_heads = 1), p.dim_qk = p.dim_v = 3;
        if (p.dim_qk % 2) p.dim_qk++; /* rows that are rotated have pairs */
        walk_twice(one.ctx[level], seven.ctx[level], specs[i % SPECS], &p, i);
    }
    levels_free(&one);
    levels_free(&seven);
}

/* Long enough for several parts: the same bits for any number of threads. */
static void test_parts(void **state)
{
    static const int64_t     lens[] = { 2300, 1030 };
    static const char *const specs[] = {
        "2*softmax sink + 2*l2norm logn",
        "2*lsh(buckets=8, rounds=2) t5 + 2*pooled(block=8) rope",
        "2*performer + 2*retention(decay=0.9)",
    };

    (void)state;
    for (int i = 0; i < 6; i++) {
        foci_ctx    *one = test_ctx(NULL, 1), *seven = test_ctx(NULL, 7);
        foci_problem p = world_shapes[1];
        p.dtype = (foci_dtype)(i % 2); /* f32, bf16 */
        struct world w = world_make(one, specs[i / 2], &p, lens, 2, 9);
        struct world x = world_make(seven, specs[i / 2], &p, lens, 2, 9);
        world_run(&w);
        world_run(&x);
        for (int s = 0; s < 2; s++) {
            world_compare(&w, &w.seq[s]);
            assert_memory_equal(w.seq[s].got, x.seq[s].got,
                                (size_t)lens[s] * world_row_bytes(&w, p.heads, p.dim_v));
        }
        world_free(&w);
        world_free(&x);
        foci_ctx_free(one);
        foci_ctx_free(seven);
    }
}

/* What is not finite stays with the rows that see it, also inside one step. */
static void test_nonfinite(void **state)
{
    static const char *const specs[] = { "softmax",
                                         "local(window=7)",
                                         "pooled(block=8)",
                                         "lsh(buckets=8, rounds=2)",
                                         "lsh(hash=floor, rounds=2)",
                                         "routing(clusters=3)",
                                         "linear",
                                         "efficient",
                                         "performer",
                                         "retention(norm=sum)" };
    static const int64_t     lens[] = { 90 };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    const size_t             row = (size_t)(HEADS * 24);

    (void)state;
    for (size_t t = 0; t < 2 * sizeof specs / sizeof *specs; t++) {
        struct world w = world_make(ctx, specs[t / 2], &world_shapes[0], lens, 1, 3);
        /* Token 80, head 0, column 0. */
        if (t % 2)
            ((float *)(void *)w.seq[0].v)[80 * row] = NAN;
        else
            ((float *)(void *)w.seq[0].k)[80 * HEADS * 16] = NAN;
        world_expect(&w, &w.seq[0]);
        world_step(&w, (const int32_t[MAX_SEQS]){ 70 }, true);
        world_step(&w, (const int32_t[MAX_SEQS]){ 20 }, true);
        const float *got = (const float *)(const void *)w.seq[0].got;
        const float *want = (const float *)(const void *)w.seq[0].want;
        for (size_t i = 0; i < 90 * row; i++)
            if (isnan(got[i]) != isnan(want[i]))
                fail_msg("%s: element %zu is %g, not %g", specs[t / 2], i,
                         (double)got[i], (double)want[i]);
        world_free(&w);
    }
    foci_ctx_free(ctx);
}

/* Rows that are not numbers have no label, and a state that has seen nothing else none at
 * all: it is copied, saved and restored like others. */
static void test_no_labels(void **state)
{
    static const int64_t lens[] = { 90 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    struct world         w =
        world_make(ctx, "lsh(hash=floor, rounds=2)", &world_shapes[0], lens, 1, 3);
    struct sequence *s = &w.seq[0];
    foci_state      *copy, *restored;

    (void)state;
    for (int i = 0; i < 10 * HEADS * 16; i++)
        ((float *)(void *)s->k)[i] = NAN;
    world_expect(&w, s);
    world_step(&w, (const int32_t[MAX_SEQS]){ 10 }, true);
    assert_int_equal(foci_state_copy(s->state, &copy), FOCI_OK);
    const size_t bytes = foci_state_save(copy, NULL, 0);
    char        *saved = test_alloc(1, bytes);
    assert_int_equal(foci_state_save(copy, saved, bytes), bytes);
    foci_state_free(copy);
    assert_int_equal(foci_state_restore(w.pool, saved, bytes, &restored), FOCI_OK);
    free(saved);
    assert_int_equal(foci_state_copy(restored, &copy), FOCI_OK);
    foci_state_free(restored);
    foci_state_free(s->state);
    s->state = copy;
    world_step(&w, (const int32_t[MAX_SEQS]){ 80 }, true);
    for (int i = 0; i < 90 * HEADS * 24; i++) {
        const double got = ref_load(FOCI_F32, s->got, i);
        const double want = ref_load(FOCI_F32, s->want, i);
        if (!(fabs(got - want) <= 1e-4))
            fail_msg("element %d is %g, not %g", i, got, want);
    }
    world_free(&w);
    foci_ctx_free(ctx);
}

/* A copy goes its own way from the middle of a page; so do what was saved and
 * restored, and what was cut back. */
static void test_forks(void **state)
{
    static const int64_t lens[] = { 200, 200 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    struct world         w = world_make(ctx, "softmax", &world_shapes[1], lens, 2, 4);
    const size_t         qr = world_row_bytes(&w, w.plan->p.heads, w.plan->p.dim_qk);
    const size_t         kr = world_row_bytes(&w, w.plan->p.kv_heads, w.plan->p.dim_qk);
    const size_t         vr = world_row_bytes(&w, w.plan->p.kv_heads, w.plan->p.dim_v);

    (void)state;
    /* The two share their first 100 tokens. */
    memcpy(w.seq[1].q, w.seq[0].q, 100 * qr);
    memcpy(w.seq[1].k, w.seq[0].k, 100 * kr);
    memcpy(w.seq[1].v, w.seq[0].v, 100 * vr);
    world_expect(&w, &w.seq[1]);
    world_step(&w, (const int32_t[MAX_SEQS]){ 100, 0 }, true);

    foci_state_free(w.seq[1].state);
    assert_int_equal(foci_state_copy(w.seq[0].state, &w.seq[1].state), FOCI_OK);
    assert_int_equal(foci_pool_page_count(w.pool) - foci_pool_free_count(w.pool), 2);
    w.seq[1].done = 100;
    memcpy(w.seq[1].got, w.seq[0].got,
           100 * world_row_bytes(&w, w.plan->p.heads, w.plan->p.dim_v));

    world_step(&w, (const int32_t[MAX_SEQS]){ 3, 1 }, true);
    const size_t bytes = foci_state_save(w.seq[0].state, NULL, 0);
    char        *saved = test_alloc(1, bytes);
    assert_int_equal(foci_state_save(w.seq[0].state, saved, bytes), bytes);
    world_step(&w, (const int32_t[MAX_SEQS]){ 50, 20 }, true);
    foci_state_free(w.seq[0].state);
    if (foci_state_restore(w.pool, saved, bytes, &w.seq[0].state))
        fail_msg("%s", foci_errmsg(ctx));
    w.seq[0].done = 103;
    assert_int_equal(foci_state_truncate(w.seq[1].state, 110), FOCI_OK);
    w.seq[1].done = 110;
    world_run(&w);
    world_compare(&w, &w.seq[0]);
    world_compare(&w, &w.seq[1]);

    /* Damaged in every byte of its head, or cut off anywhere: refused, or the same. */
    for (size_t i = 0; i < bytes; i += i < 80 ? 1 : 97) {
        foci_state *x = NULL;
        assert_int_not_equal(foci_state_restore(w.pool, saved, i, &x), FOCI_OK);
        assert_null(x);
        saved[i] ^= 1;
        if (i < 60)
            assert_int_not_equal(foci_state_restore(w.pool, saved, bytes, &x), 0);
        saved[i] ^= 1;
        foci_state_free(x);
    }
    free(saved);
    world_free(&w);
    foci_ctx_free(ctx);
}

/* What is refused, and that nothing changes by it. */
static void test_refusals(void **state)
{
    static const int64_t lens[] = { 70 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    struct world w = world_make(ctx, "softmax temper", &world_shapes[0], lens, 1, 4);
    foci_problem p = world_shapes[0];
    foci_plan   *plan;
    foci_pool   *pool = NULL;
    _Alignas(64) char work[64];
    foci_state       *twice[] = { w.seq[0].state, w.seq[0].state };
    foci_step_io io = { FOCI_SIZED(foci_step_io), .states = twice,    .n_states = 2,
                        .q = w.seq[0].q,          .k = w.seq[0].k,    .v = w.seq[0].v,
                        .o = w.seq[0].got,        .params = w.params, .work = work };

    (void)state;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "twice"));
    io.n_states = 1;
    io.params = NULL;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "params"));
    io.params = w.params;
    io.work = work + 1;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    io.work = work;
    io.tokens = (const int32_t[MAX_SEQS]){ -1 };
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_state_len(w.seq[0].state), 0);
    assert_int_equal(foci_state_truncate(w.seq[0].state, 1), FOCI_ERR_ARG);

    p.flags = 0;
    plan = test_plan(ctx, "softmax", &p);
    assert_int_equal(foci_pool_create(plan, 1, &pool), FOCI_ERR_UNSUP);
    assert_null(pool);
    assert_non_null(strstr(foci_errmsg(ctx), "causal"));
    foci_plan_free(plan);
    world_free(&w);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),     cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_forks),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_no_labels), cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
