/* lanes.h -- softmax between many rows and a few, in floats: what engines that keep few
 * rows share.
 *
 * As in the exact engine 64 queries are the lanes of a block and weights are
 * s[key][query].  Either the queries are many and the keys few, so that a block meets all
 * its keys at once; or the other way round, and keys come in tiles.
 */
#ifndef FOCI_LANES_H
#define FOCI_LANES_H

#include "core/core.h"

/* Logits are in base 2. */
#define LANES_LOG2_E 1.44269504088896340736

/* A few rows that are keys and values: [n][ldk] and [n][ldv], zero from d and dv on. */
struct few {
    const float *keys, *values;
    int          n, d, dv;
    int64_t      ldk, ldv;
};

/* Queries qt[d][64], the first `lanes` of them, against them: weights s[n][64], to be
 * multiplied by share[64], and likewise, where it is not NULL, ot[dv][64].  f[64] are the
 * factors of q.k in base 2. */
void lanes_read(const struct kernels *k, const struct few *few, const float *f,
                const float *qt, int lanes, float *s, float *ot, float *share);

/* A block on its way back: `lanes` queries and gradients of their outputs, as rows and
 * turned. */
struct lanes_block {
    const float *q, *g; /* [lanes][ldk], [lanes][ldv] */
    const float *qt, *gt;
    int          lanes;
};

/* Adds to dkeys[n][ldk] and dvalues[n][ldv]; dqt[d][64].  s and ds [n][64] are room; scale
 * is that of q.k. */
void lanes_read_back(const struct kernels *k, const struct few *few, const float *f,
                     float scale, const struct lanes_block *b, float *s, float *ds,
                     float *dkeys, float *dvalues, float *dqt);

/* A tile of many rows. */
struct many {
    const float *keys, *values; /* [n][ldk], [n][ldv] */
    int          n, d, dv;
    int64_t      ldk, ldv;
};

/* What the lanes have seen: references, sums of weights, sums of values [dv][64]. */
struct lanes_sums {
    float *m, *l, *ot;
};

void lanes_clear(const struct lanes_sums *sums, int dv);
/* One tile more, s [n][64] being room. */
void lanes_gather(const struct kernels *k, const struct many *tile, const float *f,
                  const float *qt, int lanes, float *s, const struct lanes_sums *sums);

/* The way back: b as above, with norm[64] the log2 of the sum of weights, +inf in lanes
 * that are none, and delta[64] the dots of outputs and their gradients.  Adds to dkeys,
 * dvalues and dq[lanes][ldk]. */
void lanes_gather_back(const struct kernels *k, const struct many *tile, const float *f,
                       float scale, const struct lanes_block *b, const float *norm,
                       const float *delta, float *s, float *ds, float *dkeys,
                       float *dvalues, float *dq);

#endif
