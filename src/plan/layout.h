/* layout.h -- where the rows of a tensor lie. */
#ifndef FOCI_LAYOUT_H
#define FOCI_LAYOUT_H

#include "core/core.h"

/* How many rows there are along each axis, and how long they are. */
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

/* And back: what a caller would have to write. */
void layout_name_broadcasts(foci_layout *l);

/* Elements from the first to behind the last.  The layout is filled in. */
int64_t layout_span(const foci_layout *l, struct extents e);

/* Whether two rows share an element.  Layouts in which the rows of one axis interleave with
 * those of another without sharing any are said to overlap, too. */
bool layout_overlaps(const foci_layout *l, struct extents e);

#endif
