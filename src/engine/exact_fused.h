/* exact_fused.h -- the forward pass of a block in one kernel, attend_bf16, where a level
 * has it and the problem is plain softmax: scores, weights and values of a list of groups
 * of keys.  Blocks that meet what is not finite go the long way (exact_forward.c).
 */
#ifndef FOCI_EXACT_FUSED_H
#define FOCI_EXACT_FUSED_H

#include "engine/exact.h"

/* Scratch of one thread. */
struct fused {
    uint32_t            *q;     /* [LANES][dq_pad / 2] */
    float               *o;     /* [LANES][ldv] */
    uint32_t            *p;     /* weights of the groups */
    struct attend_group *group; /* [groups] */
    uint32_t            *seen;  /* [groups][LANES] */
};

/* Whether blocks go this way; and how many groups of keys go into one call. */
bool exact_fused(const struct exact *x);
int  exact_fused_groups(const struct exact *x);

struct fused exact_fused_take(const struct exact *x, struct arena *a);

/* Pack tile t of keys and values as number `at`; what is not finite of them. */
unsigned exact_fused_pack(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t, size_t at, float *tile, float *room);

/* exact_forward.c: the norm of the longest key that each lane may see, where all pairs
 * are but those that follow. */
void exact_longest_keys(const struct exact *x, const struct block *b, float *longest);

/* Attend: sums in f->o, their references in m and the sums of weights in l, of LANES
 * rows each.  by[LANES] are the factors of scores.  tile: room for one of floats.  false: the
 * block has to go the long way. */
bool exact_fused_block(const struct exact *x, const struct block *b, struct fused *f,
                       const float *by, float *tile, float *m, float *l);

#endif
