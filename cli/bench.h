/* bench.h -- one case of `foci bench`: what it is, and how it is timed. */
#ifndef FOCI_CLI_BENCH_H
#define FOCI_CLI_BENCH_H

#include "cli.h"

enum pass { PASS_FWD, PASS_BWD, PASS_BOTH, PASS_STEP };

struct bench_case {
    const char  *text; /* SPEC/PROBLEM/DTYPE/PASS */
    char        *spec;
    foci_problem problem;
    enum pass    pass;
    int64_t      tokens; /* of a step */
};

struct bench_result {
    int    reps;
    double median, best, low, high; /* seconds; low and high are quartiles */
    double flops, bytes;            /* of one repetition, counted */
    size_t work_bytes, saved_bytes;
    char  *plan; /* as it describes itself */
};

/* Time a case until there are `reps` repetitions and `time` seconds of them.  EXIT_OK,
 * or a status with the message printed.  bench_release() in both cases. */
int bench_run(const struct args *a, foci_ctx *ctx, const struct bench_case *c, int reps,
              double time, struct bench_result *r);
void bench_release(struct bench_result *r);

/* n standard normal numbers. */
void *bench_draw(foci_dtype dtype, size_t n, uint64_t seed);

/* Time once(self), each time after before(self), which may be NULL. */
foci_status bench_repeat(foci_status (*once)(void *), foci_status (*before)(void *),
                         void *self, int reps, double time, struct bench_result *r);

/* bench_step.c: steps of so many tokens, after which each state has len_k. */
foci_status bench_step(const foci_plan *plan, const struct bench_case *c, int reps,
                       double time, struct bench_result *r);
/* What such a step costs; `whole` is the cost of all len_k tokens. */
void bench_step_cost(foci_ctx *ctx, const struct bench_case *c, const foci_cost *whole,
                     struct bench_result *r);

#endif
