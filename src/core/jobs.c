/* jobs.c -- phases of independent jobs, run by the threads of a context.
 *
 * A single stage gets a team of threads of its own from phases_run().  Several stages that run
 * together share one team: the thread of a stage spawns a task for each other thread, and
 * these tasks take jobs of its current phase.  A thread that runs out of jobs of one stage
 * thus continues with another.
 */
#include <assert.h>
#include <omp.h>
#include <stdatomic.h>

#include "core/core.h"

/* With fewer operations than these, waking threads costs more than it saves. */
static const double few_flops = 2e5;

int jobs_threads(int threads, int64_t jobs, double flops)
{
    return flops < few_flops ? 1 : (int)max64(1, min64(threads, jobs));
}

static void run_alone(const struct kernels *k, int threads, const struct phase *phases,
                      int n)
{
#pragma omp parallel num_threads(team_size(threads)) if (threads > 1)
    {
        const int           thread = omp_get_thread_num();
        struct thread_state before;

        if (k->begin) k->begin(&before);
        for (int p = 0; p < n; p++) {
            const struct phase *phase = &phases[p];

            assert(phase->n <= 0 || phase->chunk > 0);
            if (phase->n <= 0) continue;
#pragma omp for schedule(dynamic, phase->chunk)
            for (int64_t i = 0; i < phase->n; i++)
                phase->job(phase->arg, i, thread);
        }
        if (k->end) k->end(&before);
    }
}

/* A phase, and the first of its jobs that nobody has taken. */
struct jobs_left {
    const struct phase *phase;
    _Atomic int64_t     next;
};

static void go_through(struct jobs_left *left)
{
    const struct phase *phase = left->phase;
    const int           thread = omp_get_thread_num();
    int64_t             i;

    while ((i = atomic_fetch_add(&left->next, phase->chunk)) < phase->n)
        for (int64_t end = min64(i + phase->chunk, phase->n); i < end; i++)
            phase->job(phase->arg, i, thread);
}

static void run_together(struct jobs_left *left)
{
    assert(left->phase->chunk > 0);
    const int64_t turns = div_up(max64(left->phase->n, 0), left->phase->chunk);
    const int64_t threads = min64(omp_get_num_threads(), turns);

#pragma omp taskgroup
    {
        for (int64_t t = 1; t < threads; t++) {
#pragma omp task
            go_through(left);
        }
        go_through(left);
    }
}

static void run_shared(const struct phase *phases, int n)
{
    for (int p = 0; p < n; p++) {
        struct jobs_left left = { .phase = &phases[p] };
        run_together(&left);
    }
}

void phases_run(const struct kernels *k, bool shared, int threads,
                const struct phase *phases, int n)
{
    if (shared)
        run_shared(phases, n);
    else
        run_alone(k, threads, phases, n);
}

void jobs_share(const struct kernels *k, int threads, int64_t n,
                void (*job)(void *arg, int64_t i), void *arg)
{
#pragma omp parallel num_threads(team_size(threads))
    {
        struct thread_state before;

        if (k->begin) k->begin(&before);
#pragma omp single
        for (int64_t i = 0; i < n; i++) {
#pragma omp task firstprivate(i)
            job(arg, i);
        }
        if (k->end) k->end(&before);
    }
}
