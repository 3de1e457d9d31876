/* exact_nonfinite.h -- products over the visible pairs of a tile, one pair at a time.
 *
 * The products of whole tiles give hidden pairs the weight zero, and 0 * inf is NaN.
 * These functions keep a non-finite operand from the queries that do not see it.  They
 * are rare, so they are plain loops.  Weights are floats, or bf16 pairs of two keys;
 * the other pointer is NULL.
 */
#ifndef FOCI_EXACT_NONFINITE_H
#define FOCI_EXACT_NONFINITE_H

#include "engine/exact/exact.h"

/* ot[d.v][LANES] += weights of the visible pairs by values, which are loaded into tile
 * and scratch [TILE][d.ldv]. */
void exact_nonfinite_forward(const struct exact *x, const struct exact_block *b,
                             int64_t t, int n, const uint64_t *seen, const float *w,
                             const uint32_t *pairs, float *tile, float *scratch,
                             float *ot);
/* The same for lanes r0 to r1 with values tile[n][d.ldv]. */
void exact_nonfinite_values(const struct exact *x, int r0, int r1, int n,
                            const uint64_t *seen, const float *w, const uint32_t *pairs,
                            const float *tile, float *ot);

/* Weights and gradients of logits, [n][LANES] floats or bf16, and the sums they add to. */
struct nonfinite_grads {
    const float    *w, *ds;
    const uint16_t *w16, *ds16;
    const float    *mul;  /* [LANES] factors of the rows */
    const uint64_t *stop; /* [n] lanes whose pairs have no key gradient, or NULL */
    float          *dk, *dv, *dqt; /* [n][d.ldq], [n][d.ldv], [d.q][LANES] */
};
void exact_nonfinite_backward(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const uint64_t *seen,
                              const struct nonfinite_grads *grads, const void *d_o,
                              float *tile, float *tile2);

#endif
