/* segments.c -- sequences of several segments: sums of the linear engine that are made
 * first and joined, and heads that are scanned side by side. */
#include "support/trial.h"

static const char *const specs[] = {
    "linear",
    "linear rope",
    "cosformer(length=3000)",
    "efficient",
    "identity(norm=n)",
    "retention(decay=0.97, norm=retnet, learn=1)",
    "retention(norm=sum, decay=0.9, learn=1) rope",
    "performer(features=12)",
    "performer(trig, features=9)",
};

static void run_case(foci_ctx *ctx, const char *spec, const foci_problem *p,
                     unsigned gives)
{
    foci_plan *plan = trial_plan(ctx, spec, p);
    if (!plan) return;
    struct trial  t = trial_make(plan, spec, 5, gives);
    struct result want = trial_judge(plan, &t, false);
    struct result rounded = { 0 };
    if (p->dtype != FOCI_F32) rounded = trial_judge(plan, &t, true);
    struct result got = trial_run(plan, &t);

    trial_close(plan, &t, &got, &want, p->dtype == FOCI_F32 ? &want : &rounded);
    result_free(&got);
    result_free(&want);
    result_free(&rounded);
    trial_free(&t);
    foci_plan_free(plan);
}

/* Two heads are cut into segments; nine go by scans where they are causal. */
static void segments(void **state)
{
    const bool    brief = getenv("FOCI_TEST_SHORT") != NULL;
    struct levels l = levels_make(2);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int form = 0; form < 8; form++) {
            const bool   short_one = form & 2;
            foci_problem p = { FOCI_SIZED(foci_problem),
                               .batch = short_one ? 2 : 1,
                               .heads = form & 4 ? 9 : 2,
                               .kv_heads = form & 4 ? 9 : 1,
                               .len_q = short_one ? 500 : 1100,
                               .len_k = short_one ? 1200 : 1100,
                               .dim_qk = 4,
                               .dim_v = 3,
                               .dtype = form & 4 ? FOCI_BF16 : FOCI_F32,
                               .flags = FOCI_FLAG_TRAIN |
                                        (form & 1 ? FOCI_FLAG_CAUSAL : 0) };

            if (brief && ((int)i + form) % 3) continue;
            if (form & 4) p.len_q = p.len_k = 300;
            run_case(l.ctx[l.n - 1], specs[i], &p, short_one ? TRIAL_LENS : 0);
        }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(segments) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
