/* threads.c -- results do not depend on the number of threads, nor on which run, plan
 * or context they come from. */
#include <stdio.h>

#include "support/trial.h"

enum { N_COUNTS = 3 };
static const int counts[N_COUNTS] = { 2, 7, 16 };

static void run_many(foci_ctx *ctx, const struct trial *t, const foci_problem *p,
                     const struct result *want)
{
    foci_plan    *plan = trial_plan(ctx, t->spec, p);
    struct result got = trial_run(plan, t);
    char          what[32];

    snprintf(what, sizeof what, "%d threads", foci_ctx_threads(ctx));
    trial_equal(plan, t, what, &got, want);
    result_free(&got);
    foci_plan_free(plan);
}

static void run_case(struct levels *one, struct levels many[N_COUNTS], int level,
                     const char *spec, const foci_problem *p, unsigned gives,
                     uint64_t seed)
{
    foci_plan *plan = trial_plan(one->ctx[level], spec, p);
    if (!plan) return;
    struct trial  t = trial_make(plan, spec, seed, gives);
    struct result want = trial_run(plan, &t);
    struct result again = trial_run(plan, &t);

    trial_equal(plan, &t, "run twice", &again, &want);
    for (int c = 0; c < N_COUNTS; c++)
        run_many(many[c].ctx[level], &t, p, &want);
    result_free(&want);
    result_free(&again);
    trial_free(&t);
    foci_plan_free(plan);
}

/* The threads share what cores there are; few cases say enough. */
static void threads(void **state)
{
    static const struct {
        foci_problem p;
        unsigned     gives;
    } kinds[] = {
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 4, .kv_heads = 2,
            .len_q = 130, .len_k = 130, .dim_qk = 16,
            .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .kv_heads = 1,
            .len_q = 300, .len_k = 300, .dim_qk = 16, .dim_v = 24, .max_docs = 4,
            .flags = FOCI_FLAG_TRAIN },
          TRIAL_DOCS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1, .len_q = 400,
            .len_k = 400, .dim_qk = 8, .dtype = FOCI_BF16, .flags = FOCI_FLAG_TRAIN },
          0 },
        /* Scratch of forward alone: what backward needs would hide its end. */
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 900,
            .len_k = 900, .dim_qk = 32, .flags = 0 },
          0 },
    };
    struct levels one = levels_make(1), many[N_COUNTS];
    char          spec[SPEC_CAP];

    (void)state;
    for (int c = 0; c < N_COUNTS; c++)
        many[c] = levels_make(counts[c]);
    for (int i = 0; specs_next(one.ctx[0], i, spec); i++) {
        const size_t k = (size_t)i % (sizeof kinds / sizeof *kinds);
        const int    level = i / 3 % one.n;
        if (strchr(spec, ' ') && i % 2) continue;
        run_case(&one, many, level, spec, &kinds[k].p, kinds[k].gives, (uint64_t)i);
    }
    levels_free(&one);
    for (int c = 0; c < N_COUNTS; c++)
        levels_free(&many[c]);
}

/* Two plans of one text are one; so is that of the text a plan prints. */
static void plans(void **state)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 2,
                             .heads = 2,
                             .len_q = 100,
                             .len_k = 100,
                             .dim_qk = 8,
                             .flags = FOCI_FLAG_TRAIN };
    foci_ctx          *ctx = test_ctx(NULL, 1);
    char               spec[SPEC_CAP], text[2][4096], full[2][1024];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++) {
        foci_plan *plan = trial_plan(ctx, spec, &p);
        if (!plan) continue;
        foci_plan_spec(plan, full[0], sizeof full[0]);
        foci_plan *again = trial_plan(ctx, full[0], &p);
        foci_plan_spec(again, full[1], sizeof full[1]);
        assert_string_equal(full[0], full[1]);
        foci_plan_describe(plan, text[0], sizeof text[0]);
        foci_plan_describe(again, text[1], sizeof text[1]);
        assert_string_equal(text[0], text[1]);
        assert_int_equal(foci_plan_work_bytes(plan), foci_plan_work_bytes(again));
        assert_int_equal(foci_plan_saved_bytes(plan), foci_plan_saved_bytes(again));

        struct trial  t = trial_make(plan, spec, (uint64_t)i, 0);
        struct result x = trial_run(plan, &t), y = trial_run(again, &t);
        trial_equal(plan, &t, "printed and planned again", &y, &x);
        result_free(&x);
        result_free(&y);
        trial_free(&t);
        foci_plan_free(plan);
        foci_plan_free(again);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
