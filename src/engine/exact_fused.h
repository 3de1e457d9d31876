/* exact_fused.h -- the forward pass of a block in one kernel, attend_bf16, where a level
 * has it and the problem is plain softmax: scores, weights and values of a list of groups
 * of keys.  Blocks that meet what is not finite go the long way (exact_forward.c).
 */
#ifndef FOCI_EXACT_FUSED_H
#define FOCI_EXACT_FUSED_H

#include "engine/exact.h"

enum { FUSED_BLOCKS = 4 }; /* go down long sequences together */

/* Scratch of one thread. */
struct fused {
    uint32_t            *q;     /* [together][LANES][dq_pad / 2] */
    float               *o;     /* [together][LANES][ldv] */
    uint32_t            *p;     /* weights of the groups */
    struct attend_group *group; /* [groups] */
    uint32_t            *seen;  /* [groups][LANES] */
};

/* Whether blocks go this way, and how many at once. */
void exact_fused_geometry(struct exact *x);

struct fused exact_fused_take(const struct exact *x, struct arena *a);

/* Pack tile t of keys and values as number `at`; what is not finite of them. */
unsigned exact_fused_pack(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t, size_t at, float *tile, float *room);

/* n blocks of one head, at most FUSED_BLOCKS: their rows, and what is kept of them; tile is
 * room for one of floats.  A bit for each that is done: others have to go the long way. */
unsigned exact_fused_blocks(const struct exact *x, const struct block *b, int n,
                            struct fused *f, float *tile, float *saved);

/* exact_forward.c: the norm of the longest key that each lane may see, where all pairs
 * are but those that follow; and the logarithm of what rows were divided by, references m
 * and sums l, share being 1/n of relu2. */
void exact_longest_keys(const struct exact *x, const struct block *b, float *longest);
void exact_keep_norms(const struct exact *x, const struct block *b, const float *m,
                      const float *l, const float *share, float *saved);

#endif
