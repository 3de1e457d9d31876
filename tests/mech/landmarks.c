/* landmarks.c -- as many landmarks as tokens give softmax attention back, and so many that
 * all threads invert together agree with the judge as few do. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

/* Inverses of hundreds of landmarks take seconds: the short form has one length and one
 * spec for which threads share an inverse. */
static bool brief(void) { return getenv("FOCI_TEST_SHORT"); }

static foci_problem problem_of(int64_t n, uint32_t flags)
{
    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .batch = 1,
                           .heads = 2,
                           .kv_heads = 1,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = 8,
                           .dim_v = 5,
                           .flags = flags };
}

/* C C^+ C = C, whatever its rank. */
static void as_many_as_tokens(void **state)
{
    static const int64_t lengths[] = { 1, 2, 3, 7, 17, 64, 65, 257, 300 };
    const size_t         n = sizeof lengths / sizeof *lengths - brief();
    foci_ctx            *ctx = test_ctx(NULL, 2);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        foci_problem p = problem_of(lengths[i], 0);
        if (brief()) p.heads = 1;
        foci_plan    *a = trial_plan(ctx, "nystrom(landmarks=4096, iters=0)", &p);
        foci_plan    *b = trial_plan(ctx, "softmax", &p);
        struct trial  t = trial_make(b, "softmax", i, 0);
        struct result got = trial_run(a, &t), want = trial_judge(b, &t, false);

        for (int64_t e = 0; e < want.n[PART_O]; e++)
            if (!(fabs(got.x[PART_O][e] - want.x[PART_O][e]) <= 2e-4))
                trial_fail(a, &t, "o", e, got.x[PART_O][e], want.x[PART_O][e]);
        result_free(&got);
        result_free(&want);
        trial_free(&t);
        foci_plan_free(a);
        foci_plan_free(b);
    }
    foci_ctx_free(ctx);
}

/* Forward and backward, the same bits for any number of threads. */
static void many(void **state)
{
    static const char *const specs[] = { "nystrom(landmarks=257, iters=2, conv=3)",
                                         "nystrom(landmarks=260, iters=1)" };
    const size_t             n = brief() ? 1 : 2;
    foci_ctx                *one = test_ctx(NULL, 1), *three = test_ctx(NULL, 3);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const foci_problem p = problem_of(brief() ? 258 : 270, FOCI_TRAIN);
        foci_plan         *a = trial_plan(one, specs[i], &p),
                  *b = trial_plan(three, specs[i], &p);
        struct trial  t = trial_make(a, specs[i], i, 0);
        struct result got = trial_run(a, &t), more = trial_run(b, &t);
        struct result want = trial_judge(a, &t, false),
                      words = trial_judge(a, &t, true);

        trial_close(a, &t, &got, &want, &words);
        trial_equal(b, &t, "three threads", &more, &got);
        result_free(&got);
        result_free(&more);
        result_free(&want);
        result_free(&words);
        trial_free(&t);
        foci_plan_free(a);
        foci_plan_free(b);
    }
    foci_ctx_free(one);
    foci_ctx_free(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_as_tokens),
        cmocka_unit_test(many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
