/* exact_pairs.h -- products over the visible pairs of a tile, one by one.  Weights are
 * floats, or words of two keys; the other is NULL.
 */
#ifndef FOCI_EXACT_PAIRS_H
#define FOCI_EXACT_PAIRS_H

#include "engine/exact.h"

void exact_pairs_forward(const struct exact *x, const struct block *b, int64_t t, int n,
                         const uint64_t *seen, const float *w, const uint32_t *words,
                         float *tile, float *room, float *ot);

/* The same with the values at hand: lanes r0 to r1, values tile[n][ldv]. */
void exact_pairs_values(const struct exact *x, int r0, int r1, int n,
                        const uint64_t *seen, const float *w, const uint32_t *words,
                        const float *tile, float *ot);

/* w and ds [n][LANES] as floats or as bf16. */
struct exact_pairs {
    const float    *w, *ds;
    const uint16_t *w16, *ds16;
    const float    *mul;           /* [LANES] factors of the rows */
    const uint64_t *stop;          /* [n] lanes that give no gradient; NULL: none */
    float          *dk, *dv, *dqt; /* [n][ldq], [n][ldv], [dq][LANES] */
};
void exact_pairs_backward(const struct exact *x, const struct block *b, int64_t t,
                          int n, const uint64_t *seen, const struct exact_pairs *pairs,
                          const void *d_o, float *tile, float *tile2);

#endif
