/* layout.h -- where the rows of a tensor lie. */
#ifndef FOCI_LAYOUT_H
#define FOCI_LAYOUT_H

#include "core/core.h"

/* The extents of a tensor: rows along each axis, and elements of a row. */
struct extents {
    int64_t batch, len, heads, dim;
};

static inline struct extents extents_q(const foci_problem *p)
{
    return (struct extents){ p->batch, p->len_q, p->heads, p->dim_qk };
}

static inline struct extents extents_k(const foci_problem *p)
{
    return (struct extents){ p->batch, p->len_k, p->kv_heads, p->dim_qk };
}

static inline struct extents extents_v(const foci_problem *p)
{
    return (struct extents){ p->batch, p->len_k, p->kv_heads, p->dim_v };
}

static inline struct extents extents_o(const foci_problem *p)
{
    return (struct extents){ p->batch, p->len_q, p->heads, p->dim_v };
}

/* A problem without hidden states has rows of one element that nothing reads. */
static inline struct extents extents_x(const foci_problem *p)
{
    return (struct extents){ p->batch, p->len_q, 1, max64(p->dim_x, 1) };
}

/* Fill in the strides that are 0, and make FOCI_BROADCAST 0.  False: a size overflows. */
bool layout_fill(foci_layout *l, struct extents e);

/* The inverse: write FOCI_BROADCAST for strides of 0, as a caller would. */
void layout_name_broadcasts(foci_layout *l);

/* Elements from the first one to the end of the last one, of a layout that is filled in. */
int64_t layout_span(const foci_layout *l, struct extents e);

/* Whether two rows share an element.  Also true, conservatively, where rows of one axis
 * interleave with those of another without sharing any. */
bool layout_overlaps(const foci_layout *l, struct extents e);

#endif
