/* jobs.c -- one list of work for the threads of a context.
 *
 * By itself an engine has a team of threads from phases_run().  Where several stages run
 * together they share one team, and every phase is a set of tasks: a thread that has
 * nothing left of one stage goes on with another.
 */
#include <omp.h>

#include "core/core.h"

static void run_alone(const struct kernels *k, int threads, const struct phase *phases,
                      int n)
{
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int thread = omp_get_thread_num();

        if (k->begin) k->begin();
        for (int p = 0; p < n; p++) {
            const struct phase *phase = &phases[p];
#pragma omp for schedule(dynamic, phase->chunk)
            for (int64_t i = 0; i < phase->n; i++)
                phase->job(phase->arg, i, thread);
        }
        if (k->end) k->end();
    }
}

static void run_shared(const struct phase *phases, int n)
{
    for (int p = 0; p < n; p++) {
        const struct phase *phase = &phases[p];
#pragma omp taskloop grainsize(phase->chunk)
        for (int64_t i = 0; i < phase->n; i++)
            phase->job(phase->arg, i, omp_get_thread_num());
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
#pragma omp parallel num_threads(threads)
    {
        if (k->begin) k->begin();
#pragma omp single
        for (int64_t i = 0; i < n; i++) {
#pragma omp task firstprivate(i)
            job(arg, i);
        }
        if (k->end) k->end();
    }
}
