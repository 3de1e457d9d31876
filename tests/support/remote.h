/* remote.h -- executions on memory of the host, wherever the plan runs. */
#ifndef FOCI_TESTS_REMOTE_H
#define FOCI_TESTS_REMOTE_H

#include "plan/plan.h"

/* foci_forward(), or with grads foci_backward(), complete when it returns. */
foci_status remote_execute(const foci_plan *plan, const foci_io *io,
                           const foci_grads *grads);

#endif
