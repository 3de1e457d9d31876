/* callers.c -- who may call: children that were forked, threads of a program, its own
 * parallel regions.  Nothing hangs, and the bits are always the same. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/scenes.h"

enum { CALLS = 3 };

/* The exit status of a child that forks here and computes; -1: it had to be ended. */
static int child(int (*compute)(void *arg), void *arg)
{
    const pid_t pid = fork();
    int         status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(test_sanitized() ? 600 : 60); /* ends it if it hangs */
        _exit(compute(arg));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct parent {
    foci_ctx *ctx;
    uint64_t  want;
    int       depth; /* of children below */
};

/* With the context of the parent, with one of its own, and the same in its own child. */
static int compute(void *arg)
{
    struct parent *p = arg;
    const uint64_t with_old = scenes_run(p->ctx);
    foci_ctx      *own = test_ctx(NULL, 2);
    const uint64_t with_own = scenes_run(own);

    foci_ctx_free(own);
    if (with_old != p->want || with_own != p->want) return 1;
    return p->depth-- > 0 ? child(compute, p) : 0;
}

/* A process that never had a second thread has lost none. */
static int has_team(void *arg)
{
    (void)arg;
    return team_size(2);
}

static void forked_early(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    /* Sanitizers may have threads of their own. */
    if (!test_sanitized()) assert_int_equal(child(has_team, NULL), 2);
    assert_int_equal(team_size(2), 2);
    foci_ctx_free(ctx);
}

static void forked(void **state)
{
    for (int threads = 1; threads <= 3; threads++) {
        foci_ctx     *ctx = test_ctx(NULL, threads);
        struct parent p = { ctx, scenes_run(ctx), 1 };

        (void)state;
        assert_true(p.want != 0);
        assert_int_equal(child(compute, &p), 0);
        assert_true(scenes_run(ctx) == p.want); /* nothing has changed here */
        foci_ctx_free(ctx);
    }
    if (!getenv("FOCI_TEST_THREADS")) assert_int_equal(child(has_team, NULL), 1);
    assert_int_equal(team_size(2), 2);
}

/* Fewer threads than the machine has, and more. */
static void any_number(void **state)
{
    static const int threads[] = { 2, 7, 16 };
    foci_ctx        *one = test_ctx(NULL, 1);
    const uint64_t   want = scenes_run(one);

    (void)state;
    foci_ctx_free(one);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        foci_ctx *ctx = test_ctx(NULL, threads[i]);
        assert_true(scenes_run(ctx) == want);
        foci_ctx_free(ctx);
    }
}

/* Each with a context of its own: one plans for one thread at a time. */
static void *call(void *got)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    *(uint64_t *)got = scenes_run(ctx);
    foci_ctx_free(ctx);
    return NULL;
}

static uint64_t alone(void)
{
    uint64_t got = 0;

    call(&got);
    assert_true(got != 0);
    return got;
}

static void from_threads(void **state)
{
    const uint64_t want = alone();
    pthread_t      threads[CALLS];
    uint64_t       got[CALLS] = { 0 };

    (void)state;
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call, &got[i]), 0);
    for (int i = 0; i < CALLS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CALLS; i++)
        assert_true(got[i] == want);
}

/* A thread that forks is the only one of its child. */
static void *fork_and_compute(void *arg)
{
    static int failed;
    failed = child(compute, arg);
    return &failed;
}

static void forked_by_thread(void **state)
{
    foci_ctx     *ctx = test_ctx(NULL, 2);
    struct parent p = { ctx, scenes_run(ctx), 0 };
    pthread_t     thread;
    void         *failed;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, fork_and_compute, &p), 0);
    pthread_join(thread, &failed);
    assert_int_equal(*(int *)failed, 0);
    foci_ctx_free(ctx);
}

static void from_region(void **state)
{
    const uint64_t want = alone();
    uint64_t       got[CALLS] = { 0 };

    (void)state;
#pragma omp parallel for num_threads(CALLS)
    for (int i = 0; i < CALLS; i++)
        call(&got[i]);
    for (int i = 0; i < CALLS; i++)
        assert_true(got[i] == want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forked_early), /* before there are any threads */
        cmocka_unit_test(forked),       cmocka_unit_test(any_number),
        cmocka_unit_test(from_threads), cmocka_unit_test(forked_by_thread),
        cmocka_unit_test(from_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
