/* padding.h -- rows of a tensor that no sequence has. */
#ifndef FOCI_PADDING_H
#define FOCI_PADDING_H

#include "plan/plan.h"

/* Write zeros to the rows of queries (or keys) of a tensor beyond the lengths of an
 * execution, to the rows of batch entries without keys (queries), and with `all` to all
 * rows. */
void padding_clear(const foci_plan *plan, const foci_io *io, void *base,
                   const foci_layout *l, int64_t head0, int64_t heads, int64_t d,
                   bool queries, bool all);

#endif
