/* landmarks_inverse.h -- pseudo-inverses of the weights among landmarks. */
#ifndef FOCI_LANDMARKS_INVERSE_H
#define FOCI_LANDMARKS_INVERSE_H

#include "core/core.h"

/* Matrices are [m][ld] floats, zero in columns from m on. */
struct inverse {
    const struct kernels *k;
    bool wide;   /* all threads work on one matrix, in phases; else the caller's does */
    bool shared; /* as in phases_run() */
    int  threads; /* likewise */
    int  m, ld;
    int64_t iters; /* 0: exactly */
    bool    keeps; /* all of z, for the way back */
    float  *c, *z; /* rows of c sum to one; z: the result comes last */
    float  *room;
};

/* Matrices of this size: rows a little longer where their number is a power of two, or
 * columns would meet in a few sets of the cache. */
static inline int inverse_ld(int64_t m)
{
    return (int)(round_up(m, 16) + (m >= 256 ? 16 : 0));
}

/* Matrices in z and room. */
int64_t inverse_kept(int64_t iters, bool keeps);
int64_t inverse_room(int64_t iters, bool backward);

/* From c to z; the result is there. */
float *inverse_make(const struct inverse *x);
/* From the gradient of that, dz, which is spoilt, to dc, which is overwritten.  All of z
 * must have been kept. */
void inverse_back(const struct inverse *x, float *dz, float *dc);

#endif
