/* nystrom_inverse.h -- pseudo-inverses of the weights among landmarks. */
#ifndef FOCI_NYSTROM_INVERSE_H
#define FOCI_NYSTROM_INVERSE_H

#include "core/core.h"

/* Matrices are [m][ld] floats, zero in columns from m on. */
struct inverse {
    const struct kernels *k;
    bool parallel; /* all threads work on one matrix, in phases; else the caller alone */
    bool    shared;  /* as in phases_run() */
    int     threads; /* likewise */
    int     m, ld;
    int64_t iters;    /* 0: exactly */
    bool    keep_all; /* keep Z of every iteration, for the backward pass */
    float  *c, *z;    /* rows of c sum to one; the result is the last of z */
    float  *scratch;
};

/* The leading dimension of m columns.  Rows are longer by a cache line where m is
 * large, since with a power of two the rows of a column would fall on few sets of the
 * cache. */
static inline int inverse_ld(int64_t m)
{
    return (int)(round_up(m, 16) + (m >= 256 ? 16 : 0));
}

/* Matrices in z and in scratch. */
int64_t inverse_kept(int64_t iters, bool keep_all);
int64_t inverse_scratch(int64_t iters, bool backward);

/* The pseudo-inverse of c; where it is in z. */
float *inverse_make(const struct inverse *x);
/* dc from the gradient dz of the inverse; overwrites both.  All of z must have been
 * kept. */
void inverse_backward(const struct inverse *x, float *dz, float *dc);

#endif
