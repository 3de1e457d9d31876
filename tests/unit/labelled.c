/* labelled.c -- what a plan says that labels show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "foci/foci.h"

static int make_ctx(void **state) { return foci_ctx_create(NULL, (foci_ctx **)state); }

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static foci_cost cost_of(foci_ctx *ctx, const char *spec, int64_t n, uint32_t flags)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .flags = flags,
                             .batch = 1,
                             .heads = 1,
                             .len_q = n,
                             .len_k = n,
                             .dim_qk = 4 };
    foci_cost          cost = { FOCI_SIZED(foci_cost) };
    foci_plan         *plan;

    assert_int_equal(foci_plan_create(ctx, spec, &p, &plan), FOCI_OK);
    assert_int_equal(foci_plan_cost(plan, &cost), FOCI_OK);
    foci_plan_free(plan);
    return cost;
}

/* Pairs that have a weight when all rows are alike. */
static double seen(foci_ctx *ctx, const char *spec, int64_t n, uint32_t flags)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .flags = flags,
                             .batch = 1,
                             .heads = 1,
                             .len_q = n,
                             .len_k = n,
                             .dim_qk = 4 };
    float             *zero = calloc((size_t)(4 * n), sizeof *zero);
    float             *weights = calloc((size_t)(n * n), sizeof *weights);
    double             sum = 0;
    foci_plan         *plan;

    assert_true(zero && weights);
    assert_int_equal(foci_plan_create(ctx, spec, &p, &plan), FOCI_OK);
    const foci_io io = { FOCI_SIZED(foci_io), .q = zero, .k = zero, .v = zero };
    assert_int_equal(foci_ref_weights(plan, &io, weights), FOCI_OK);
    for (int64_t i = 0; i < n * n; i++)
        sum += weights[i] > 0;
    foci_plan_free(plan);
    free(zero);
    free(weights);
    return sum;
}

/* Labels of positions are counted, not guessed. */
static void test_places(void **state)
{
    static const char *const specs[] = { "strided(stride=7)",
                                         "strided(stride=7, part=2)",
                                         "strided(stride=64, part=2)",
                                         "strided(stride=500)" };
    static const int64_t     lengths[] = { 1, 7, 64, 100, 200 };

    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (uint32_t flags = 0; flags <= FOCI_FLAG_CAUSAL;
                 flags += FOCI_FLAG_CAUSAL) {
                const foci_cost c = cost_of(*state, specs[s], lengths[l], flags);
                assert_true(c.pairs == seen(*state, specs[s], lengths[l], flags));
                assert_true(c.forward_flops == c.pairs * 2 * (4 + 4));
                assert_true(c.tiles_full + c.tiles_part > 0);
            }
}

/* Rows are taken to spread evenly: so many pairs of n^2 are met. */
static void test_expected(void **state)
{
    static const struct {
        const char *spec;
        double      pairs, met, row; /* row: flops to find the label of one */
    } cases[] = {
        { "lsh(buckets=4)", 1. / 4, 1. / 4, 16 },
        { "lsh(buckets=4, rounds=2)", 7. / 16, 1. / 2, 32 },
        { "lsh(hash=floor, width=1000)", 1, 1, 8 },
        { "lsh(shared=1, chunk=32)", 1. / 16, 1. / 16, 256 },
        { "routing(clusters=8)", 1. / 8, 1. / 8, 64 },
        { "routing(clusters=8, pick=topk, take=32)", 1. / 128, 1. / 128, 64 },
    };
    const double n = 1024;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const foci_cost c = cost_of(*state, cases[i].spec, (int64_t)n, 0);
        assert_true(c.pairs / (n * n) > 0.999 * cases[i].pairs);
        assert_true(c.pairs / (n * n) < 1.001 * cases[i].pairs);
        const double flops = cases[i].met * n * n * 2 * (4 + 4) + 2 * n * cases[i].row;
        assert_true(c.forward_flops > 0.999 * flops);
        assert_true(c.forward_flops < 1.001 * flops);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_expected),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
