/* lists.c -- lists of whole numbers that mechanisms are planned with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "foci/mechanism.h"

/* A mechanism with a list of `n` entries up to its length. */
enum { ENTRIES };

static const foci_arg_def args[] = {
    [ENTRIES] = { .name = "n", .preset = 3, .min = -1, .max = 9, .help = "entries" },
};

static int64_t count(const foci_mech *m) { return foci_arg_int(m, ENTRIES); }
static int64_t most(const foci_mech *m) { return m->dims.len; }

static const foci_list_def list = {
    .name = "picks", .help = "tokens picked", .count = count, .most = most
};

/* What it was planned with, as the tests see it. */
static int64_t seen[9], n_seen;

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    (void)i, (void)j0;
    n_seen = m->n_list;
    if (n_seen) memcpy(seen, m->list, (size_t)n_seen * sizeof *seen);
    return ~UINT64_C(0);
}

static const foci_mech_def picky = {
    FOCI_SIZED(foci_mech_def),
    .name = "picky",
    .summary = "sees all",
    .formula = "all",
    .source = "here",
    .cost = "N^2",
    .args = args,
    .n_args = 1,
    .list = &list,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .mask = mask,
};

static int make_ctx(void **state)
{
    const foci_status status = foci_ctx_create(NULL, (foci_ctx **)state);
    return status ? status : foci_mechanism_register(*state, &picky);
}

static int free_ctx(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

static foci_problem problem(const foci_list *lists, int64_t n)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .batch = 1,
                           .heads = 2,
                           .len_q = 5,
                           .len_k = 5,
                           .dim_qk = 4,
                           .dim_x = 4,
                           .lists = lists,
                           .n_lists = n };
}

static void test_wanted(void **state)
{
    static const char spec[] = "1*picky(n=-1) + 1*routed(inner=picky(n=2))";
    foci_problem      p = problem(NULL, 0);
    foci_list_want    want = { FOCI_SIZED(foci_list_want) };
    int               n;

    assert_int_equal(foci_list_wanted(*state, spec, &p, 0, &want), FOCI_OK);
    assert_string_equal(want.name, "0.picks");
    assert_int_equal(want.count, -1);
    assert_int_equal(want.most, 5);
    assert_int_equal(foci_list_wanted(*state, spec, &p, 1, &want), FOCI_OK);
    assert_string_equal(want.name, "1.inner.picks");
    assert_int_equal(want.count, 2);
    assert_int_equal(foci_list_wanted_count(*state, spec, &p, &n), FOCI_OK);
    assert_int_equal(n, 2);
    assert_int_equal(foci_list_wanted(*state, spec, &p, 2, &want), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(*state), "list 2: this spec asks for 2");
    assert_int_equal(foci_list_wanted(*state, "picky", &p, 0, &want), FOCI_OK);
    assert_string_equal(want.name, "picks");
    assert_int_equal(foci_list_wanted_count(*state, "softmax", &p, &n), FOCI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(foci_list_wanted_count(*state, "pickier", &p, &n), FOCI_ERR_SPEC);
    assert_int_equal(foci_list_wanted_count(*state, "picky", &p, NULL), FOCI_ERR_ARG);

    assert_int_equal(foci_list_wanted(*state, "pickier", &p, 0, &want), FOCI_ERR_SPEC);
    assert_int_equal(foci_list_wanted(*state, "picky", &p, -1, &want), FOCI_ERR_ARG);
    assert_int_equal(foci_list_wanted(*state, NULL, &p, 0, &want), FOCI_ERR_ARG);
    assert_int_equal(foci_list_wanted(*state, "picky", NULL, 0, &want), FOCI_ERR_ARG);
    assert_int_equal(foci_list_wanted(*state, "picky", &p, 0, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_list_wanted(NULL, "picky", &p, 0, &want), FOCI_ERR_ARG);
    want.size = 0;
    assert_int_equal(foci_list_wanted(*state, "picky", &p, 0, &want), FOCI_ERR_ARG);
    want.size = sizeof want;
    p.len_k = -1;
    assert_int_equal(foci_list_wanted(*state, "picky", &p, 0, &want), FOCI_ERR_ARG);
}

static void test_copied(void **state)
{
    int64_t         data[] = { 3, 0, 5 };
    const foci_list lists[] = { { "picks", data, 3 } };
    foci_problem    p = problem(lists, 1);
    foci_plan      *plan;

    assert_int_equal(foci_plan_create(*state, "picky", &p, &plan), FOCI_OK);
    assert_int_equal(foci_plan_get_problem(plan, &p), FOCI_OK);
    assert_null(p.lists);
    assert_int_equal(p.n_lists, 0);
    foci_plan_free(plan);
    assert_int_equal(n_seen, 3);
    assert_int_equal(seen[0], 3);
    assert_int_equal(seen[1], 0);
    assert_int_equal(seen[2], 5);

    p = problem(NULL, 0); /* any number may be none */
    assert_int_equal(foci_plan_create(*state, "picky(n=-1)", &p, &plan), FOCI_OK);
    foci_plan_free(plan);
    assert_int_equal(n_seen, 0);
}

static void test_refused(void **state)
{
    static const int64_t data[] = { 3, 0, 5, 6, -1 };
    static const struct {
        const char *spec;
        foci_list   list;
        const char *says;
    } cases[] = {
        { "picky(n=-1)", { NULL, data, 0 }, "no mechanism asks for a list \"\"" },
        { "picky", { "picks", data, 2 }, "picks has 2 entries; picky wants 3" },
        { "picky", { "picks", NULL, 3 }, "picks has 3 entries at NULL; picky wants 3" },
        { "picky(n=-1)", { "picks", data, -1 }, "picks has -1 entries" },
        { "picky", { "picks", data + 1, 3 }, "picks[2] is 6: it may be 0 to 5" },
        { "picky(n=-1)", { "picks", data, 5 }, "picks[3] is 6: it may be 0 to 5" },
        { "picky(n=1)", { "picks", data + 4, 1 }, "picks[0] is -1: it may be 0 to 5" },
        { "picky(n=-1)", { "pick", data, 3 }, "no mechanism asks for a list \"pick\"" },
        { "1*picky(n=-1) + 1*softmax",
          { "1.picks", data, 3 },
          "no mechanism asks for a list \"1.picks\"" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const foci_problem p = problem(&cases[i].list, 1);
        foci_plan         *plan;
        assert_int_equal(foci_plan_create(*state, cases[i].spec, &p, &plan),
                         FOCI_ERR_ARG);
        if (!strstr(foci_errmsg(*state), cases[i].says))
            fail_msg("%s: %s; expected: %s", cases[i].spec, foci_errmsg(*state),
                     cases[i].says);
    }
}

static void test_missing(void **state)
{
    const foci_problem p = problem(NULL, 0);
    foci_plan         *plan;

    assert_int_equal(foci_plan_create(*state, "1*softmax + picky", &p, &plan),
                     FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(*state),
                        "column 13: picky needs its picks, a list of 3 whole numbers "
                        "from 0 to 5 called \"1.picks\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_copied),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
