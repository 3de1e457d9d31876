/* bench.h -- one case of `foci bench`: what it is, and how it is timed. */
#ifndef FOCI_CLI_BENCH_H
#define FOCI_CLI_BENCH_H

#include "cli/device.h"
#include "cli/layer.h"
#include "cli/run.h"

enum pass { PASS_FWD, PASS_BWD, PASS_BOTH, PASS_STEP };

/* A product of matrices; m 0: the case is none. */
struct bench_product {
    int64_t  m, n, k;
    uint32_t flags;
};

struct bench_case {
    struct bench_product product;

    const char        *text; /* SPEC/PROBLEM/DTYPE/PASS */
    char              *spec;
    foci_problem       problem;
    foci_list         *lists; /* what problem.lists is */
    enum pass          pass;
    bool               is_layer; /* then the problem is that of its plan */
    foci_layer_problem layer;
};

struct bench_result {
    int     reps;
    double  median, best, low, high; /* seconds; low and high are quartiles */
    double  flops, bytes;            /* of one repetition, counted */
    double  pairs, density;          /* visible, and of all there are */
    int64_t tiles_full, tiles_part, tiles_skipped;
    size_t  work_bytes, saved_bytes;
    char   *plan; /* as it describes itself */
};

/* A case, what was measured of it, and the machine around it. */
struct bench_row {
    struct bench_case   c;
    struct bench_result r;
    foci_machine        before, after;
    double              old; /* seconds in the file compared with; 0: not there */
    double ratio;            /* of tokens a second to those of the baseline; 0: none */
};

/* bench_show.c: fill in the ratios to the case called `baseline` (NULL: there is none); print
 * rows as options say. */
void bench_compare_rows(struct bench_row *rows, int n, const char *baseline);
int bench_show(const struct args *a, foci_ctx *ctx, const struct bench_row *rows, int n);

/* Time a case until there are `reps` repetitions and `time` seconds of them.  EXIT_OK,
 * or a status with the message printed.  bench_release() in both cases. */
int bench_run(const struct args *a, foci_ctx *ctx, const struct bench_case *c, int reps,
              double time, struct bench_result *r);
void bench_release(struct bench_result *r);

/* Inputs of jobs, each drawn once for all jobs that read as many numbers: a list. */
struct bench_input;
enum { BENCH_Q = 1, BENCH_K, BENCH_V, BENCH_DO, BENCH_X }; /* their seeds */
void bench_inputs_free(struct bench_input *all);
/* n standard normal numbers of this seed; `*all` owns them. */
const void *bench_input(struct bench_input **all, foci_dtype dtype, size_t n,
                        uint64_t seed);

/* A case ready to be executed repeatedly; not one of steps. */
struct bench_job {
    const foci_plan   *plan;
    enum pass          pass;
    foci_io            io;
    foci_grads         grads;
    bool               there; /* it runs on a device, on copies of the two */
    struct device_copy copy;
};
/* Bytes of its tensors and parameters, but for inputs in `drawn` (NULL: none are). */
size_t bench_job_bytes(const foci_plan *plan, enum pass pass,
                       const struct bench_input *drawn);
/* bench_memory.c: bytes that executing a case takes, of which inputs in `drawn` are there
 * already. */
foci_status bench_plan_bytes(const foci_plan *plan, const struct bench_case *c,
                             bool device, const struct bench_input *drawn,
                             double *bytes);
foci_status bench_layer_bytes(const foci_layer *layer, const struct bench_case *c,
                              double *bytes);
double      bench_product_bytes(foci_ctx *ctx, const struct bench_case *c);
/* What can be had now; whether so much can: the address space may have a limit of its own;
 * EXIT_FAILED with the message printed where it cannot. */
double bench_most_memory(void);
bool   bench_fits(double bytes);
int bench_refuse_memory(const struct args *a, const struct bench_case *c, double bytes);
/* Open it on inputs that outlive it, and execute it forward once.  bench_job_close() in any
 * case. */
foci_status bench_job_open(foci_ctx *ctx, const foci_plan *plan,
                           const struct bench_case *c, struct bench_input **inputs,
                           struct bench_job *j);
foci_status bench_job_run(void *job);
void        bench_job_close(struct bench_job *j);

/* A uniform number in (0, 1) from a sequence of them; n standard normal numbers. */
double bench_uniform(uint64_t *state);
void  *bench_draw(foci_dtype dtype, size_t n, uint64_t seed);

/* Words of four tokens, of tokens first to first + n of each of `seqs` sequences; room for
 * them, filled from the first token on. */
void     bench_fill_words(int32_t *words, int64_t seqs, int64_t first, int64_t n);
int32_t *bench_words(int64_t seqs, int64_t n);

/* Time once(self), each time after before(self), which may be NULL. */
foci_status bench_repeat(foci_status (*once)(void *), foci_status (*before)(void *),
                         void *self, int reps, double time, struct bench_result *r);

/* Hidden states of n rows if the plan reads them, else NULL. */
void *bench_draw_x(const foci_plan *plan, const foci_problem *p, size_t n);

/* The plan of a case.  A step is planned on its new tokens and all keys or, for
 * mechanisms that need as many queries as keys, on all tokens. */
foci_status bench_plan(foci_ctx *ctx, const struct bench_case *c, foci_plan **plan);

/* Read SPEC/PROBLEM/DTYPE/PASS and see that it can be planned, with the lists of
 * given->lists.  EXIT_OK, or a status with the message printed; bench_case_free() in
 * both cases. */
int bench_prepare(const struct run_verb *given, const char *text, struct bench_case *c);
void bench_case_free(struct bench_case *c);

/* bench_product.c: cases that are products of matrices, as bench_prepare() and
 * bench_run(). */
bool bench_is_product(const char *text);
int  bench_product_parse(const struct args *a, const char *text, struct bench_case *c);
int  bench_product(const struct args *a, foci_ctx *ctx, const struct bench_case *c,
                   int reps, double time, struct bench_result *r);

/* The median of n numbers, which are sorted. */
double bench_median(double *x, int n);

/* bench_lists.c: give the case the lists that its spec needs; those that given->lists lacks
 * are made up.  bench_lists_free() in any case. */
foci_status bench_lists(const struct run_verb *given, struct bench_case *c);
bool        bench_has_list(const struct bench_case *c, const char *name);
void        bench_lists_free(struct bench_case *c);

/* bench_layer.c: the same for a layer.  KIND(SPEC) names its kind, SPEC alone is
 * attention; read it, and let c->spec be SPEC. */
void        bench_layer_kind(struct bench_case *c);
foci_status bench_layer_create(foci_ctx *ctx, const struct bench_case *c,
                               foci_layer **layer);
int         bench_layer(const struct args *a, foci_ctx *ctx, const struct bench_case *c,
                        int reps, double time, struct bench_result *r);
/* bench_step.c: steps of len_q tokens, after which each state has len_k, of a plan or of
 * the layer that has it; and what such a step costs the plan: operations, bytes and
 * pairs. */
foci_status bench_step(foci_ctx *ctx, const foci_plan *plan, const foci_layer *layer,
                       const struct bench_case *c, int reps, double time,
                       struct bench_result *r);
void        bench_step_cost(foci_ctx *ctx, const struct bench_case *c, foci_cost *cost);

/* The same in pieces: each bench_steps_run() follows a bench_steps_rewind(). */
struct bench_steps;
foci_status bench_steps_open(foci_ctx *ctx, const foci_plan *plan,
                             const foci_layer *layer, const struct bench_case *c,
                             struct bench_steps **steps);
foci_status bench_steps_rewind(void *steps);
foci_status bench_steps_run(void *steps);
/* Scratch memory of a step, and bytes that its states hold. */
size_t bench_steps_work_bytes(const struct bench_steps *s);
size_t bench_steps_state_bytes(const struct bench_steps *s);
void   bench_steps_close(struct bench_steps *s);

#endif
