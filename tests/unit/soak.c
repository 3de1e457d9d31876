/* soak.c -- long use: plans made and freed again and again, and one plan executed by
 * many threads at once.  Memory stays flat, results stay the same bits.
 *
 * 10^6 plans with FOCI_TEST_LONG, else 10^4, or 10^3 with FOCI_TEST_SHORT.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "support/trial.h"

/*
 * Plans
 */

/* Bytes that a context holds. */
static void *counted(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    *(int64_t *)user += (int64_t)new_bytes - (int64_t)old_bytes;
    return default_alloc(NULL, old, old_bytes, new_bytes);
}

#if defined(__has_feature)
#define HAS(feature) __has_feature(feature)
#else
#define HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                   \
    HAS(address_sanitizer) || HAS(thread_sanitizer)
enum { SANITIZED = 1 }; /* freed memory is kept for a while */
#else
enum { SANITIZED = 0 };
#endif

/* Bytes of the process that are in memory; 0 where the system does not say. */
static double resident(void)
{
    long  pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void plans(void **state)
{
    static const char *const specs[] = {
        "4*softmax",
        "4*softmax sink cap(3) logn",
        "1*softmax + 2*relu2(7) + l2norm temper",
        "3*test_window(window=9) + test_chance qknorm",
        "4*softmax cap(",
        "5*softmax",
    };
    enum { N_SPECS = sizeof specs / sizeof *specs, N_GOOD = 4 };
    const bool         brief = getenv("FOCI_TEST_SHORT") != NULL;
    const int          n = getenv("FOCI_TEST_LONG") ? 1000000 : brief ? 1000 : 10000;
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 4,
                             .len_q = 70,
                             .len_k = 70,
                             .dim_qk = 8,
                             .flags = FOCI_TRAIN | FOCI_CAUSAL };
    int64_t            held = 0;
    const foci_options options = { FOCI_SIZED(foci_options), .threads = 1,
                                   .alloc = counted, .user = &held };
    foci_ctx          *ctx;
    struct trial       trials[N_GOOD];
    struct result      first[N_GOOD];
    double             early = 0;

    (void)state;
    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
    specs_register(ctx);
    const int64_t before = held;
    for (int i = 0; i < n; i++) {
        const int         s = i % N_SPECS;
        foci_plan        *plan;
        const foci_status status = foci_plan_create(ctx, specs[s], &p, &plan);
        assert_int_equal(status == FOCI_OK, s < N_GOOD);
        if (i == s && plan) {
            trials[s] = trial_make(plan, specs[s], 3, 0);
            first[s] = trial_run(plan, &trials[s]);
        } else if (plan && i % 251 < N_SPECS) {
            struct result again = trial_run(plan, &trials[s]);
            trial_equal(plan, &trials[s], "after many plans", &again, &first[s]);
            result_free(&again);
        }
        foci_plan_free(plan);
        assert_int_equal(held, before);
        if (i == n / 10) early = resident();
    }
    const double grown = resident() - early;
    if (!SANITIZED && !brief && grown > 1 << 20)
        fail_msg("%d plans: %.0f bytes more than after a tenth of them", n, grown);
    for (int s = 0; s < N_GOOD; s++) {
        result_free(&first[s]);
        trial_free(&trials[s]);
    }
    foci_ctx_free(ctx);
    assert_int_equal(held, 0);
}

/*
 * Threads
 */

enum { THREADS = 8, ROUNDS = 12, BRIEF_ROUNDS = 2 };

struct worker {
    const foci_plan    *plan;
    const struct trial *trial;
    struct result       result; /* the first; the others were the `same` */
    bool                same;
    pthread_t           thread;
};

static bool is_same(const struct result *a, const struct result *b)
{
    for (int part = 0; part < N_PARTS; part++)
        if (a->n[part] &&
            memcmp(a->x[part], b->x[part], (size_t)a->n[part] * sizeof(double)) != 0)
            return false;
    return true;
}

static void *work(void *self)
{
    struct worker *w = self;
    const int      rounds = getenv("FOCI_TEST_SHORT") ? BRIEF_ROUNDS : ROUNDS;

    w->result = trial_run(w->plan, w->trial);
    w->same = true;
    for (int i = 1; i < rounds && w->same; i++) {
        struct result again = trial_run(w->plan, w->trial);
        w->same = is_same(&again, &w->result);
        result_free(&again);
    }
    return NULL;
}

static void many_threads(const char *spec, int threads, const foci_problem *p,
                         unsigned gives)
{
    foci_ctx *ctx = test_ctx(NULL, threads);
    specs_register(ctx);
    foci_plan    *plan = test_plan(ctx, spec, p);
    struct trial  t = trial_make(plan, spec, 5, gives);
    struct result want = trial_run(plan, &t);
    struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .plan = plan, .trial = &t };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_true(workers[i].same);
        trial_equal(plan, &t, "one of many threads", &workers[i].result, &want);
        result_free(&workers[i].result);
    }
    result_free(&want);
    trial_free(&t);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

static void threads(void **state)
{
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .batch = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .len_q = 150,
                       .len_k = 150,
                       .dim_qk = 16,
                       .flags = FOCI_TRAIN | FOCI_CAUSAL };

    (void)state;
    many_threads("2*softmax sink cap(5) + 2*test_window", 1, &p, TRIAL_LENS);
    many_threads("2*l2norm + 2*relu2 qknorm", 2, &p, 0);
    p.dtype = FOCI_BF16;
    many_threads("2*test_chance + 2*softmax logn", 1, &p, TRIAL_LENS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
