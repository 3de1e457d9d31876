/* soak.c -- long use: plans made and freed again and again, many sequences through one
 * pool, and one plan executed by many threads at once.  Memory stays flat, results stay
 * the same bits.
 *
 * 10^6 plans and 10^5 sequences with FOCI_TEST_LONG, else a hundredth, or a thousandth
 * with FOCI_TEST_SHORT.
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

static bool brief(void) { return getenv("FOCI_TEST_SHORT") != NULL; }

static int scaled(int n)
{
    return getenv("FOCI_TEST_LONG") ? n : brief() ? n / 1000 : n / 100;
}

/* Since a tenth of n things were done. */
static void check_flat(const char *what, int n, double early)
{
    const double grown = resident() - early;
    if (!SANITIZED && !brief() && grown > 1 << 20)
        fail_msg("%d %s: %.0f bytes more than after a tenth of them", n, what, grown);
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
    const int          n = scaled(1000000);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 4,
                             .len_q = 70,
                             .len_k = 70,
                             .dim_qk = 8,
                             .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };
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
    check_flat("plans", n, early);
    for (int s = 0; s < N_GOOD; s++) {
        result_free(&first[s]);
        trial_free(&trials[s]);
    }
    foci_ctx_free(ctx);
    assert_int_equal(held, 0);
}

/*
 * Sequences
 */

enum { HEADS = 2, WIDTH = 8, LONGEST = 140, KINDS = 6, KEPT = 5 };

struct steps {
    foci_pool *pool;
    float      x[LONGEST][HEADS * WIDTH]; /* all of q, k and v */
    void      *work;
    float      o[2][HEADS * WIDTH]; /* last rows of the two */
};

/* Tokens `from` to `to`, the same for each state; their last row. */
static void feed(struct steps *s, foci_state *state, int from, int to, float *last)
{
    float              o[LONGEST][HEADS * WIDTH];
    const int32_t      tokens = to - from;
    const foci_step_io io = {
        FOCI_SIZED(foci_step_io), .states = &state, .n_states = 1,
        .tokens = &tokens,        .q = s->x[from],  .k = s->x[from],
        .v = s->x[from],          .o = o,           .work = s->work
    };
    assert_int_equal(foci_step(s->pool, &io), FOCI_OK);
    memcpy(last, o[tokens - 1], sizeof o[0]);
}

static const uint8_t lens[KINDS] = { 1, 3, 63, 64, 65, 130 };

/* Two sequences that part after some tokens, one of them made as a copy; it stays. */
static foci_state *fork_one(struct steps *s, int kind)
{
    const int   n = lens[kind];
    foci_state *one, *two;
    float       row[HEADS * WIDTH];

    assert_int_equal(foci_state_create(s->pool, &one), FOCI_OK);
    feed(s, one, 0, n, row);
    assert_int_equal(foci_state_copy(one, &two), FOCI_OK);
    feed(s, one, n, n + 2, row);
    feed(s, two, n + 1, n + 3, row);
    feed(s, one, n + 2, n + 3, s->o[0]);
    feed(s, two, n + 3, n + 4, s->o[1]);
    foci_state_free(one);
    return two;
}

/* The same, alone. */
static void run_alone(struct steps *s, int kind, float o[2][HEADS * WIDTH])
{
    const int n = lens[kind];
    float     row[HEADS * WIDTH];

    for (int i = 0; i < 2; i++) {
        foci_state *state;
        assert_int_equal(foci_state_create(s->pool, &state), FOCI_OK);
        feed(s, state, 0, n, row);
        feed(s, state, n + i, n + i + 2, row);
        feed(s, state, n + i + 2, n + i + 3, o[i]);
        foci_state_free(state);
    }
}

static void sequences(void **state)
{
    const int          n = scaled(100000);
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = HEADS,
                             .len_q = 1,
                             .len_k = 1,
                             .dim_qk = WIDTH,
                             .flags = FOCI_FLAG_CAUSAL };
    int64_t            held = 0, used = 0;
    const foci_options options = { FOCI_SIZED(foci_options), .threads = 1,
                                   .alloc = counted, .user = &held };
    foci_ctx          *ctx;
    foci_state        *kept[KEPT] = { NULL };
    float              alone[KINDS][2][HEADS * WIDTH];
    double             early = 0;
    struct steps      *s = test_alloc(1, sizeof *s);
    struct rng         rng;

    (void)state;
    rng_seed(&rng, 1, 2);
    for (int i = 0; i < LONGEST; i++)
        for (int e = 0; e < HEADS * WIDTH; e++)
            s->x[i][e] = (float)rng_normal(&rng);
    assert_int_equal(foci_ctx_create(&options, &ctx), FOCI_OK);
    foci_plan *plan = test_plan(ctx, "1*softmax cap(5) + relu2", &p);
    assert_int_equal(foci_pool_create(plan, 4 * (KEPT + 2), &s->pool), FOCI_OK);
    s->work = test_alloc(1, foci_step_work_bytes(s->pool, 1, LONGEST, LONGEST));
    for (int i = 0; i < n; i++) {
        const int    kind = i % KINDS;
        foci_state **at = &kept[i % KEPT];
        foci_state_free(*at);
        if (i == kind) run_alone(s, kind, alone[kind]);
        *at = fork_one(s, kind);
        assert_memory_equal(s->o, alone[kind], sizeof s->o);
        if (i == n / 10) early = resident();
        /* The same states are there after so many. */
        if (i % (KINDS * KEPT) != KINDS * KEPT - 1) continue;
        const int64_t pages =
            foci_pool_page_count(s->pool) - foci_pool_free_count(s->pool);
        if (used) assert_int_equal(held + pages, used);
        used = held + pages;
    }
    check_flat("sequences", n, early);
    for (int i = 0; i < KEPT; i++)
        foci_state_free(kept[i]);
    assert_int_equal(foci_pool_free_count(s->pool), 4 * (KEPT + 2));
    foci_pool_free(s->pool);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    assert_int_equal(held, 0);
    free(s->work);
    free(s);
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
    const int      rounds = brief() ? BRIEF_ROUNDS : ROUNDS;

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
                       .len_q = brief() ? 70 : 150,
                       .len_k = brief() ? 70 : 150,
                       .dim_qk = 16,
                       .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };

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
        cmocka_unit_test(sequences),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
