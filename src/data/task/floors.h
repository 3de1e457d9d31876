/* floors.h -- the accuracy of rules that know nothing of a task. */
#ifndef FOCI_FLOORS_H
#define FOCI_FLOORS_H

#include "data/task/task.h"

/* Rule number i over so many examples of a split; *name is NULL beyond the last. */
foci_status task_floor(foci_ctx *ctx, const struct task *t, uint64_t seed,
                       foci_data_split split, int i, int64_t examples,
                       const char **name, double *accuracy);

#endif
