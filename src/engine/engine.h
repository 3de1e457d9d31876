/* engine.h -- what an engine is, and what one execution carries.
 *
 * An engine computes one stage of a plan: the heads of one group.  The plan is
 * immutable and shared; all that differs from call to call is in a struct execution, in
 * foci_io and in the work memory that the caller gives.
 */
#ifndef FOCI_ENGINE_H
#define FOCI_ENGINE_H

#include "plan/plan.h"

/* One execution of a plan. */
struct execution {
    const foci_plan *plan;

    /* Stages of the plan run side by side and share the threads: see phases_run(). */
    bool shared;

    /* The first error of the device goes here; NULL: it is not wanted. */
    int *fault;

    /* Weights of the rows of the output, [batch len_q][heads of the group], gate_step
     * floats apart: the exact engine leaves out blocks of rows whose weights are all 0.
     * NULL: all rows are wanted. */
    const float *gates;
    int64_t      gate_step;
};

/* Sizes come from a dry run of the code that uses them. */
struct engine {
    const char *name;
    size_t (*work_bytes)(const foci_plan *plan, const struct stage *s);
    int64_t (*saved_floats)(const foci_plan *plan, const struct stage *s);
    void (*forward)(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved);
    void (*backward)(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g);
    /* Move parameters that the mechanism moves itself; NULL: it never does. */
    foci_status (*advance)(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params);
    /* Fill parameters that are statistics of q and k; NULL: it has none. */
    foci_status (*calibrate)(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params);
    /* Refuse an execution that the engine cannot do, with a message; NULL: it can do all. */
    foci_status (*check)(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap);
    void (*cost)(const foci_plan *plan, const struct stage *s, foci_cost *cost);
    int (*describe)(const foci_plan *plan, const struct stage *s, char *text,
                    size_t cap);

    const struct decoder *decoder; /* state/state.h; NULL: there is no decoding */
};

extern const struct engine engine_exact, engine_linear, engine_positional,
    engine_routed, engine_nystrom, engine_memformer, engine_two_pass;

#endif
