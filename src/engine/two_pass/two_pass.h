/* two_pass.h -- attention in two passes: among neighbours, then over the means of runs.
 *
 *     y_i = attention by the mask
 *     z_i = softmax over runs t of (s q_i . mean of k in t) (mean of y in t)
 *     o_i = (1 - gamma) y_i + gamma z_i,  y_i where no run is seen
 *
 * Both passes are calls of the exact engine: the first without slots, the second with
 * slots only and with y for values.  Every query head has a y of its own, so the second
 * pass has a key/value head for each of them, and keys are copied.  gamma is tensor 0,
 * one number a head.
 */
#ifndef FOCI_TWO_PASS_H
#define FOCI_TWO_PASS_H

#include "engine/engine.h"
#include "engine/shared/call_sums.h"

/* One execution of one stage. */
struct two_pass {
    struct call_sums    all;   /* rows of queries; there are as many keys */
    struct foci_plan    plan;  /* of the first pass: outputs packed */
    struct foci_plan    plan2; /* of the second pass: keys and values, too */
    struct plan_group   group;
    struct stage        first, means;
    const foci_plan    *outer;
    const struct stage *stage;
    const foci_io      *io;

    /* Saved: y and z, packed [batch][len][heads of the problem][dv], and what the two
     * passes save. */
    char   *y, *z;
    size_t  y_bytes, k_bytes;
    float  *saved_y, *saved_z;
    int64_t floats_y;

    struct seq *seqs;
    uint8_t    *valid;
    int64_t    *position; /* [rows] number of a query in its sequence */
    char       *k, *dk, *dy, *dz;
    float      *lse, *gamma; /* gamma: [rows][heads], 0 where no run is seen */
    float      *dq;          /* [rows][heads][d] sums */
    double     *d_gamma;     /* [heads] */
    char       *exact_work;
};

/* two_pass.c: geometry, memory and the copies of the keys.  s must not move afterwards:
 * its stages point into it.  saved may be NULL in a forward pass. */
void two_pass_begin(struct two_pass *s, const struct execution *exec,
                    const struct stage *stage, const foci_io *io, float *saved,
                    bool backward);
/* The calls of the two passes. */
foci_io two_pass_first_io(const struct two_pass *s);
foci_io two_pass_second_io(const struct two_pass *s);
/* Whether the query in row i sees a run. */
bool two_pass_sees_run(const struct two_pass *s, int64_t i);

/* two_pass_backward.c */
void two_pass_backward(const struct execution *exec, const struct stage *stage,
                       const foci_io *io, const float *saved, const foci_grads *g);

#endif
