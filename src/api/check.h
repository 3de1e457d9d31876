/* check.h -- the arguments of an execution, as foci_forward() and the judge check them. */
#ifndef FOCI_API_CHECK_H
#define FOCI_API_CHECK_H

#include "core/core.h"

/* Complete the caller's structs; with grads NULL all gradients are NULL.  FOCI_ERR_ARG, with
 * the message, if a size is not valid or the plan is missing. */
foci_status plan_whole_io(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, foci_io *whole,
                          foci_grads *whole_grads);

/* Check the tensors as foci_io_check() does, except work and saved memory, which the judge
 * does not need; and run the checks of the engines. */
foci_status plan_check_io(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, char *text, size_t cap);
foci_status plan_check_engines(const foci_plan *plan, const foci_io *io, char *text,
                               size_t cap);

/* overlap.c: refuse outputs that overlap inputs or each other. */
foci_status overlap_check(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, char *text, size_t cap);

#endif
