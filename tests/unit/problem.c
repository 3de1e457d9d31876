/* problem.c -- the text of problems, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "foci/foci.h"

static int make_ctx(void **state) { return foci_ctx_create(NULL, (foci_ctx **)state); }

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static const struct {
    const char *text;
    int64_t     batch, heads, kv_heads, len_q, len_k, dim_qk, dim_v;
    uint32_t    causal;
    const char *printed;
} good[] = {
    { "b2h8k2n4096m4095d64v32c", 2, 8, 2, 4096, 4095, 64, 32, 1, NULL },
    { "b2h8k2n4096m4096d64v64c", 2, 8, 2, 4096, 4096, 64, 64, 1, "b2h8k2n4096d64c" },
    { "n1d1", 1, 1, 0, 1, 1, 1, 1, 0, NULL },
    { "n5d3c", 1, 1, 0, 5, 5, 3, 3, 1, NULL },
    { "h4n5d3v9", 1, 4, 0, 5, 5, 3, 9, 0, NULL },
    { "b1h1k1n07m7d3v3", 1, 1, 1, 7, 7, 3, 3, 0, "k1n7d3" },
    { "h2k4n4d8", 1, 2, 4, 4, 4, 8, 8, 0, NULL }, /* for a plan to judge */
    { "h8k3n4d8", 1, 8, 3, 4, 4, 8, 8, 0, NULL },
    { "n68719476736d65536", 1, 1, 0, INT64_C(1) << 36, INT64_C(1) << 36, 65536, 65536,
      0, NULL },
};

static void test_round_trip(void **state)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem),
                           .flags = FOCI_FLAG_CAUSAL | FOCI_FLAG_TRAIN, .memory = 7 };
        char         text[200];

        assert_int_equal(foci_problem_parse(*state, good[i].text, &p), FOCI_OK);
        assert_int_equal(p.batch, good[i].batch);
        assert_int_equal(p.heads, good[i].heads);
        assert_int_equal(p.kv_heads, good[i].kv_heads);
        assert_int_equal(p.len_q, good[i].len_q);
        assert_int_equal(p.len_k, good[i].len_k);
        assert_int_equal(p.dim_qk, good[i].dim_qk);
        assert_int_equal(p.dim_v, good[i].dim_v);
        assert_int_equal(p.flags,
                         FOCI_FLAG_TRAIN | (good[i].causal ? FOCI_FLAG_CAUSAL : 0));
        assert_int_equal(p.memory, 7);

        const char *printed = good[i].printed ? good[i].printed : good[i].text;
        assert_int_equal(foci_problem_print(&p, text, sizeof text), strlen(printed));
        assert_string_equal(text, printed);
    }
}

static void test_print(void **state)
{
    (void)state;
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .batch = 3,
                       .heads = 2,
                       .len_q = 10,
                       .len_k = 10,
                       .dim_qk = 4 };
    char         text[4] = "???";

    assert_int_equal(foci_problem_print(&p, NULL, 0), 9); /* 0 means the same */
    assert_int_equal(foci_problem_print(&p, text, sizeof text), 9);
    assert_string_equal(text, "b3h");
}

static const struct {
    const char *text, *says;
} bad[] = {
    { "", "column 1: n, the query length, is wanted" },
    { "d64", "column 1: n, the query length, is wanted" },
    { "n64", "column 4: d, the key width, is wanted" },
    { "b2h8", "column 5: n, the query length" },
    { "n64d",
      "column 5: a number from 1 to 65536 is wanted here, for d, the key width" },
    { "n64d0", "column 4: d0: d, the key width, goes from 1 to 65536" },
    { "n64d65537", "column 4: d65537" },
    { "n64d8v0", "column 6: v0: v, the value width" },
    { "nd8",
      "column 2: a number from 1 to 68719476736 is wanted here, for n, the query" },
    { "n1099511627777d8", "column 1: n1099511627777" },
    { "n99999999999999999999999999d8", "column 1: n9999999999" },
    { "n-4d8", "column 2: a number from 1 to 68719476736 is wanted here, for n, the" },
    { "h0n4d8", "column 1: h0: h, the heads, goes from 1" },
    { "h8k0n4d8", "column 3: k0: k, the key heads" },
    { "b0n4d8", "column 1: b0: b, the batch, goes from 1" },
    { "n0d8", "column 1: n0: n, the query length, goes from 1" },
    { "n4m0d8", "column 3: m0: m, the key length, goes from 1" },
    { "n4b2d8", "column 3: d, the key width, is wanted" },
    { "n4d8b2", "column 5: unexpected \"b2\"; the letters are bhknmdvc" },
    { "n4d8cc", "column 6: unexpected \"c\"" },
    { "n4d8 ", "column 5: unexpected" },
    { "n4d8c1", "column 6: unexpected \"1\"" },
    { "N4d8", "column 1: n, the query length" },
};

static void test_refused(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem), .batch = 77,
                           .flags = FOCI_FLAG_CAUSAL };
        assert_int_equal(foci_problem_parse(*state, bad[i].text, &p), FOCI_ERR_ARG);
        const char *message = foci_errmsg(*state);
        if (!strstr(message, bad[i].says))
            fail_msg("\"%s\": %s; expected: %s", bad[i].text, message, bad[i].says);
        assert_int_equal(p.batch, 77); /* untouched */
        assert_int_equal(p.flags, FOCI_FLAG_CAUSAL);
        assert_int_equal(foci_problem_parse(NULL, bad[i].text, &p), FOCI_ERR_ARG);
    }
    foci_problem p = { FOCI_SIZED(foci_problem) };
    assert_int_equal(foci_problem_parse(*state, NULL, &p), FOCI_ERR_ARG);
    assert_int_equal(foci_problem_parse(*state, "n1d1", NULL), FOCI_ERR_ARG);
}

/* What a plan makes of the fields that were left 0. */
static void test_planned(void **state)
{
    foci_problem p = { FOCI_SIZED(foci_problem), .dim_x = 10 };
    foci_problem got = { FOCI_SIZED(foci_problem) };
    foci_plan   *plan;

    assert_int_equal(foci_problem_parse(*state, "b3h2n7m9d4c", &p), FOCI_OK);
    assert_int_equal(
        foci_plan_create(*state, "1*routed(routes=3) + 1*softmax", &p, &plan), FOCI_OK);
    assert_int_equal(foci_plan_get_problem(plan, &got), FOCI_OK);
    assert_int_equal(got.size, sizeof got);
    assert_int_equal(got.kv_heads, 4); /* three routes, and one */
    assert_int_equal(got.dim_v, 4);
    assert_int_equal(got.dim_x, 10);
    assert_int_equal(got.flags, FOCI_FLAG_CAUSAL);
    assert_int_equal(got.k.head, 4);
    assert_int_equal(got.k.row, 16);
    assert_int_equal(got.k.batch, 9 * 16);
    assert_int_equal(got.x.row, 10);
    assert_int_equal(got.mask_batch, 1);

    /* A program of the time when problems ended there. */
    got = (foci_problem){ .size = offsetof(foci_problem, kv_heads), .kv_heads = 77 };
    assert_int_equal(foci_plan_get_problem(plan, &got), FOCI_OK);
    assert_int_equal(got.size, offsetof(foci_problem, kv_heads));
    assert_int_equal(got.heads, 2);
    assert_int_equal(got.kv_heads, 77);

    got.size = sizeof got.size - 1;
    assert_int_equal(foci_plan_get_problem(plan, &got), FOCI_ERR_ARG);
    got.size = 0;
    assert_int_equal(foci_plan_get_problem(plan, &got), FOCI_ERR_ARG);
    got.size = sizeof got + 1;
    assert_int_equal(foci_plan_get_problem(plan, &got), FOCI_ERR_ARG);
    assert_int_equal(foci_plan_get_problem(plan, NULL), FOCI_ERR_ARG);
    foci_plan_free(plan);
}

/* As many sets of keys as heads have, or a divisor of it. */
static void test_key_heads(void **state)
{
    static const struct {
        const char *spec, *problem, *says;
    } cases[] = {
        { "softmax", "h8k3n4d8", "kv_heads is 3: it must divide the 8 heads" },
        { "softmax", "h2k4n4d8", "kv_heads is 4: it must divide the 2 heads" },
        { "routed(routes=2)", "h2k4n4d8", NULL },
        { "routed(routes=2)", "h2k2n4d8", NULL },
        { "routed(routes=2)", "h2k3n4d8",
          "kv_heads is 3: it must divide the 4 sets of keys and values that the 2 "
          "heads "
          "have" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        foci_problem p = { FOCI_SIZED(foci_problem), .dim_x = 10 };
        foci_plan   *plan;
        assert_int_equal(foci_problem_parse(*state, cases[i].problem, &p), FOCI_OK);
        assert_int_equal(foci_plan_create(*state, cases[i].spec, &p, &plan),
                         cases[i].says ? FOCI_ERR_ARG : FOCI_OK);
        if (cases[i].says) assert_string_equal(foci_errmsg(*state), cases[i].says);
        foci_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_print),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_planned),
        cmocka_unit_test(test_key_heads),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
