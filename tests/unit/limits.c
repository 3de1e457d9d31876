/* limits.c -- sizes beyond all measure: refused with a reason, or planned at once; and
 * the cost of causal plans, which has to be a formula for that, against counting. */
#include <time.h>

#include "plan/plan.h"
#include "test.h"

static int make_ctx(void **state) { return foci_ctx_create(NULL, (foci_ctx **)state); }

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

/* Pairs and tiles of 64 by looking at each pair. */
static foci_cost count(int64_t nq, int64_t nk)
{
    foci_cost c = { FOCI_SIZED(foci_cost) };

    for (int64_t i0 = 0; i0 < nq; i0 += 64)
        for (int64_t j0 = 0; j0 < nk; j0 += 64) {
            int64_t seen = 0, all = 0;
            for (int64_t i = i0; i < min64(i0 + 64, nq); i++)
                for (int64_t j = j0; j < min64(j0 + 64, nk); j++) {
                    seen += j <= i + nk - nq;
                    all++;
                }
            c.pairs += (double)seen;
            c.tiles_full += seen == all;
            c.tiles_part += seen && seen != all;
            c.tiles_skipped += !seen;
        }
    return c;
}

/* Heads that share keys and values. */
static void key_heads(void **state)
{
    static const int64_t bad[] = { -1, INT64_MIN, 3, 5, INT64_MAX };
    foci_problem         p = { FOCI_SIZED(foci_problem),
                               .batch = 1,
                               .heads = 4,
                               .len_q = 1,
                               .len_k = 1,
                               .dim_qk = 4 };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        foci_plan *plan;
        p.kv_heads = bad[i];
        assert_int_equal(foci_plan_create(*state, "softmax", &p, &plan), FOCI_ERR_ARG);
        assert_non_null(strstr(foci_errmsg(*state), "it must divide the 4 heads"));
        assert_null(plan);
    }
}

static void causal_cost(void **state)
{
    static const int64_t lengths[] = { 1,   2,   3,   63,  64,  65,  100,
                                       127, 128, 129, 191, 192, 200, 330 };
    enum { N = sizeof lengths / sizeof *lengths };

    for (int i = 0; i < N * N; i++) {
        const foci_problem p = { FOCI_SIZED(foci_problem),
                                 .batch = 3,
                                 .heads = 2,
                                 .len_q = lengths[i / N],
                                 .len_k = lengths[i % N],
                                 .dim_qk = 4,
                                 .flags = FOCI_FLAG_CAUSAL };
        foci_plan         *plan = test_plan(*state, "softmax", &p);
        foci_cost          got = { FOCI_SIZED(foci_cost) };
        const foci_cost    want = count(p.len_q, p.len_k);

        assert_int_equal(foci_plan_cost(plan, &got), FOCI_OK);
        assert_true(got.pairs == 6 * want.pairs);
        assert_int_equal(got.tiles_full, 6 * want.tiles_full);
        assert_int_equal(got.tiles_part, 6 * want.tiles_part);
        assert_int_equal(got.tiles_skipped, 6 * want.tiles_skipped);
        foci_plan_free(plan);
    }
}

/* However long the sequences: a plan of the widest support takes no time. */
static void long_plans(void **state)
{
    static const char *const texts[] = {
        "n1000000d64c",      "n4000000000d64c",  "n68719476736d1c",   "n68719476736d1",
        "n1m68719476736d1c", "b2147483647n1d1c", "n68719476736m1d1c",
    };
    const clock_t begin = clock();

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem) };
        char         text[4096];
        assert_int_equal(foci_problem_parse(*state, texts[i], &p), FOCI_OK);
        foci_plan *plan = test_plan(*state, "softmax", &p);
        foci_cost  cost = { FOCI_SIZED(foci_cost) };
        assert_int_equal(foci_plan_cost(plan, &cost), FOCI_OK);
        assert_true(cost.pairs > 0 && cost.tiles_full >= 0);
        assert_true(foci_plan_describe(plan, text, sizeof text) > 0);
        foci_plan_free(plan);
    }
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
}

static const struct {
    foci_problem p;
    const char  *says;
} refused[] = {
/* batch, heads, queries, keys, width, and what else there is */
#define P(b, h, n, m, d, ...)                                                          \
    {                                                                                  \
        FOCI_SIZED(foci_problem), .batch = b, .heads = h, .len_q = n, .len_k = m,      \
                                  .dim_qk = d, __VA_ARGS__                             \
    }
    { P(1, 1, 1, -1, 1, .flags = 0), "len_k is -1" },
    { P(1, 1, INT64_MAX, 1, 1, .flags = 0), "len_q is 9223372036854775807" },
    { P((int64_t)INT32_MAX + 1, 1, 1, 1, 1, .flags = 0), "batch is 2147483648" },
    { P(1, 65537, 1, 1, 1, .flags = 0), "heads is 65537" },
    { P(1, 4, 1, 1, 1, .kv_heads = 3), "kv_heads is 3: it must divide" },
    { P(1, 1, 1, 1, 0, .flags = 0), "dim_qk is 0" },
    { P(1, 1, 1, 1, 1, .dim_v = 65537), "dim_v is 65537" },
    { P(1, 1, 1, 1, 1, .dim_x = -1), "dim_x is -1" },
    { P(1, 1, 1, 1, 1, .memory = 2), "memory is 2" },
    { P(1, 1, 1, 1, 1, .max_docs = -1), "max_docs is -1" },
    { P(2, 1, 1, 1, 1, .max_docs = 1), "documents need batch 1" },
    { P(1, 1, 2, 1, 1, .max_docs = 1), "documents need batch 1" },
    { P(1, 1, 1, 1, 1, .flags = 1u << 31), "bits that mean nothing" },
    { P(1, 1, 1, 1, 1, .dtype = (foci_dtype)3), "dtype is 3" },
    { P(1, 1, 1, 1, 1, .dtype = (foci_dtype)-1), "dtype is -1" },
    { P(1, 1, 1, 1, 1, .mask_heads = 2), "mask_heads is 2" },
    { P(1, 1, 1, 1, 1, .mask_batch = -1), "mask_batch is -1" },
    { P(1, 1, 1, 1, 1, .dropout = 1), "dropout is 1: it may be 0 to less than 1" },
    { P(1, 1, 1, 1, 1, .dropout = -0.5), "dropout is -0.5: it may be" },
    { P(1, 1, 1, 1, 1, .q = { -1, 0, 0 }), "q.batch is -1: a stride is 1 or more" },
    { P(1, 1, 3, 1, 1, .q = { FOCI_BROADCAST, INT64_MAX / 2, FOCI_BROADCAST }),
      "q: its size overflows" },
    { P(1 << 20, 1, 1, 1 << 30, 65536, .flags = 0), "k: its size overflows" },
    { P(1, 65536, INT64_C(1) << 36, 1, 1, .dim_v = 65536), "o: its size overflows" },
    { P(1, 1, 8, 1, 1, .x = { FOCI_BROADCAST, INT64_MAX / 15, FOCI_BROADCAST }),
      "x: its size overflows" },
    { P(INT32_MAX, 65536, 1 << 20, 1, 1, .q = { 0, 0, 1 }, .k = { 0, 0, 1 },
        .v = { 0, 0, 1 }, .o = { 0, 0, 1 }),
      "more rows than can be counted" },
    { P(512, 1, INT32_MAX, INT32_MAX, 1, .mask_batch = 512, .flags = FOCI_FLAG_MASK),
      "mask and bias: their size overflows" },
    { P(1, 1, 1, INT64_C(1) << 31, 1, .flags = FOCI_FLAG_BIAS),
      "go up to 2147483647 rows" },
};

static void refusals(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        foci_plan        *plan;
        const foci_status status =
            foci_plan_create(*state, "softmax", &refused[i].p, &plan);
        assert_int_equal(status, FOCI_ERR_ARG);
        assert_null(plan);
        if (!strstr(foci_errmsg(*state), refused[i].says))
            fail_msg("%s; expected: %s", foci_errmsg(*state), refused[i].says);
    }
}

/* What needs more bytes than a machine can address. */
static void work_overflow(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 65536,
                             .len_q = (int64_t)1 << 34,
                             .len_k = 1,
                             .dim_qk = 4096,
                             .dim_v = 1,
                             .q = { FOCI_BROADCAST, FOCI_BROADCAST, 1 },
                             .flags = FOCI_FLAG_TRAIN };
    foci_plan         *plan;
    assert_int_equal(foci_plan_create(*state, "softmax", &p, &plan), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "does not fit"));
}

/* Messages are one line, whatever is quoted in them. */
static void one_line(void **state)
{
    foci_problem p = { FOCI_SIZED(foci_problem) };
    assert_int_equal(foci_problem_parse(*state, "n4\n\td8\x7f", &p), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(*state), "\"n4??d8?\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_cost), cmocka_unit_test(long_plans),
        cmocka_unit_test(refusals),    cmocka_unit_test(work_overflow),
        cmocka_unit_test(one_line),    cmocka_unit_test(key_heads),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
