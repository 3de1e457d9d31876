/* analyse.h -- what a mechanism does with numbers, looked at from outside: how good the
 * estimates of random features are, and how far outputs are from those of softmax. */
#ifndef FOCI_ANALYSE_H
#define FOCI_ANALYSE_H

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pairs x, y whose kernel, e^(x.y) or e^(-|x-y|^2/2), one head of a plan estimates by
 * random features.  An estimate is what one draw of omega gives, of as many rows as the
 * plan has. */
typedef struct foci_estimator_io {
    size_t        size;
    int64_t       head;
    int64_t       n;      /* pairs */
    const double *x, *y;  /* [n][dim_qk], with the scale in them: x = sqrt(s) q */
    const float  *params; /* all of the plan, of which statistics are read; those that
                           * are NaN, or NULL: found in x and y */
    int64_t       draws;  /* of omega; each pair meets them all */
    uint64_t      seed;   /* they follow one another as heads do */
    const float  *omega;  /* [draws][rows][dim_qk] in place of that; NULL: drawn */

    /* Results, [n] each; NULL: not wanted. */
    double *exact;           /* the kernel */
    double *mean, *variance; /* of the estimates drawn; NaN where there are too few */
    /* The same two in closed form, for rows that are independent of each other, and the
     * second moment of what one row gives.  NaN: there is no such formula. */
    double *expected, *predicted, *second;
} foci_estimator_io;

/* Estimate, and predict.  FOCI_ERR_UNSUP: the features of that head are not random. */
FOCI_API foci_status foci_estimator_run(const foci_plan         *plan,
                                        const foci_estimator_io *io);

/* Write the statistics of these pairs to those of the head in `params`: what
 * foci_params_calibrate() does with rows of q and k. */
FOCI_API foci_status foci_estimator_calibrate(const foci_plan         *plan,
                                              const foci_estimator_io *io,
                                              float                   *params);

/* Execute a plan, as foci_forward() does, and write for each head how far its output is
 * from that of softmax on the same q, k and v, without modifiers:
 *
 *     errors[h] = sqrt(sum over rows of |o - o'|^2 / sum over rows of |o'|^2)
 *
 * where o' is softmax's; 0 where both are zero.  The scale of its logits is
 * 1/sqrt(dim_qk).  Memory is allocated. */
FOCI_API foci_status foci_softmax_errors(const foci_plan *plan, const foci_io *io,
                                         double *errors);

#ifdef __cplusplus
}
#endif
#endif
