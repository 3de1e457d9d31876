/* rest.h -- rows of tensors that no sequence has. */
#ifndef FOCI_REST_H
#define FOCI_REST_H

#include "plan/plan.h"

/* Write zeros to the rows of queries, or of keys, beyond the lengths of an execution, and
 * to those of entries that have no rows of the other kind; to all rows where `all`. */
void rest_clear(const foci_plan *plan, const foci_io *io, void *base,
                const foci_layout *l, int64_t head0, int64_t heads, int64_t d,
                bool queries, bool all);

#endif
