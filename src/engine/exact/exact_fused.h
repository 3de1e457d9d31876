/* exact_fused.h -- the forward pass of a block in one kernel, attend_bf16, at levels
 * that have it and for plain softmax: scores, weights and values of a list of groups of
 * keys. Blocks that meet non-finite operands take the separate kernels
 * (exact_forward_block.c). */
#ifndef FOCI_EXACT_FUSED_H
#define FOCI_EXACT_FUSED_H

#include "engine/exact/exact.h"

enum { FUSED_BLOCKS = 4 }; /* of a job, on long sequences */

/* Scratch of one thread. */
struct fused_scratch {
    uint32_t            *q;     /* [fused_blocks][LANES][d.q_pad / 2] */
    float               *o;     /* [fused_blocks][LANES][d.ldv] */
    uint32_t            *p;     /* weights of the groups */
    struct attend_group *group; /* [groups] */
    uint32_t            *seen;  /* [groups][LANES] */
};

/* Set x->fused and x->fused_blocks. */
void                 exact_fused_geometry(struct exact *x);
struct fused_scratch exact_fused_scratch(const struct exact *x, struct arena *a);

/* Pack tile t of keys and values as number `at`; the result has NONFINITE_ bits. */
unsigned exact_fused_pack(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t, size_t at, float *tile, float *scratch);
/* Outputs and normalisers of n blocks of one head, at most FUSED_BLOCKS; `tile` is
 * scratch for a tile of floats.  The result has a bit for each block that is done; the
 * others must take the separate kernels. */
unsigned exact_fused_blocks(const struct exact *x, const struct exact_block *b, int n,
                            struct fused_scratch *f, float *tile, float *saved);

/*
 * Shared with the separate kernels (exact_reference.c)
 */

/* The norm of the longest key that each lane may see, where causality alone hides keys. */
void exact_max_key_norms(const struct exact *x, const struct exact_block *b,
                         float *longest);
/* Store the logarithm of the normalisers, for the backward pass and for the caller,
 * from references m and sums l; of relu2 share, which is 1/n. */
void exact_store_norms(const struct exact *x, const struct exact_block *b,
                       const float *m, const float *l, const float *share, float *saved);

#endif
