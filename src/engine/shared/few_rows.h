/* few_rows.h -- softmax between many rows and a few, in f32: shared by Nystrom and
 * Memformer.
 *
 * As in the exact engine 64 queries are the lanes of a block, and weights are
 * s[key][query]. Either there are many queries and few keys, so that a block sees all
 * its keys at once; or few queries and many keys, which come in tiles to an online
 * softmax.
 */
#ifndef FOCI_FEW_ROWS_H
#define FOCI_FEW_ROWS_H

#include "core/core.h"

/* Logits are in base 2. */
#define LOG2_E 1.44269504088896340736

/* A block of up to 64 queries and the gradients of their outputs: as rows, and
 * transposed with zeros in unused lanes. */
struct few_block {
    const float *q, *g;   /* [lanes][ldk], [lanes][ldv] */
    const float *qt, *gt; /* [d][64], [dv][64] */
    int          lanes;
};

/*
 * Few keys
 */

/* Keys [n][ldk] and values [n][ldv], zero in columns from d and dv on. */
struct few_keys {
    const float *keys, *values;
    int          n, d, dv;
    int64_t      ldk, ldv;
};

/* Weights s[n][64] of queries qt[d][64], the first `lanes` of them, and outputs
 * ot[dv][64] unless that is NULL.  Both are still to be multiplied by share[64].  f[64]
 * are the factors of q.k for logits in base 2. */
void few_keys_attend(const struct kernels *k, const struct few_keys *few, const float *f,
                     const float *qt, int lanes, float *s, float *ot, float *share);

/* Gradients of that: adds to dkeys[n][ldk] and dvalues[n][ldv], sets dqt[d][64].  s and
 * ds [n][64] are scratch, scale is that of q.k. */
void few_keys_backward(const struct kernels *k, const struct few_keys *few,
                       const float *f, float scale, const struct few_block *b, float *s,
                       float *ds, float *dkeys, float *dvalues, float *dqt);

/*
 * Few queries
 */

/* A tile of many keys: [n][ldk], [n][ldv]. */
struct key_tile {
    const float *keys, *values;
    int          n, d, dv;
    int64_t      ldk, ldv;
};

/* An online softmax: maxima and sums of weights [64], weighted sums of values
 * [dv][64]. */
struct few_queries {
    float *m, *l, *ot;
};

void few_queries_clear(const struct few_queries *sums, int dv);
/* Add a tile; s [n][64] is scratch. */
void few_queries_add(const struct kernels *k, const struct key_tile *tile,
                     const float *f, const float *qt, int lanes, float *s,
                     const struct few_queries *sums);

/* Gradients, with norm[64] the log2 of the sum of weights, +inf in unused lanes, and
 * delta[64] the dot of output and gradient.  Adds to dkeys, dvalues and
 * dq[lanes][ldk]. */
void few_queries_backward(const struct kernels *k, const struct key_tile *tile,
                          const float *f, float scale, const struct few_block *b,
                          const float *norm, const float *delta, float *s, float *ds,
                          float *dkeys, float *dvalues, float *dq);

#endif
