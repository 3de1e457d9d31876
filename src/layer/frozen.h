/* frozen.h -- query and key projections that are drawn and never change. */
#ifndef FOCI_FROZEN_H
#define FOCI_FROZEN_H

#include "core/core.h"

/* In the order of the argument of `frozen`. */
enum frozen_kind { FROZEN_ORTHOGONAL, FROZEN_GAUSSIAN, FROZEN_HADAMARD };

struct frozen {
    enum frozen_kind kind;
    bool             block; /* one matrix cut into heads; else one a head */
    int64_t          width, heads, dim;
    float    *dense;   /* [width][heads dim], heads side by side; NULL: a transform */
    float    *factors; /* transforms: [transforms][N_FACTORS][width] */
    int32_t  *places;  /* [transforms][N_PLACES][width] */
    foci_ctx *ctx;
};

/* The tables of y = x D1 H P1 D2 H P2 D3 H, forward and backward: one transform for a block,
 * else one for each head.  Factors are the signs D over the norm of H, permuted where the
 * backward pass reads elements that P has moved.  Places are the permutations P (entry t is
 * the old entry p[t]) and their inverses; of the last inverse the entries refer to the part
 * of H that is computed. */
enum { FACTOR_1, FACTOR_2, FACTOR_3, FACTOR_BACK_2, FACTOR_BACK_3, N_FACTORS };
enum { PLACE_1, PLACE_2, PLACE_BACK_1, PLACE_BACK_2, N_PLACES };

/* Whether there is such a projection; if not, `why` gets the reason, for messages. */
bool frozen_can(enum frozen_kind kind, bool block, int64_t width, int64_t heads,
                int64_t dim, char *why, size_t cap);
/* Draw from a stream of a seed (10 queries, 11 keys, + 2^32 group).  f->kind to f->dim are
 * set.  Learned projections that start as frozen ones use `dense` alone. */
foci_status frozen_make(foci_ctx *ctx, struct frozen *f, uint64_t seed, uint64_t stream);
void        frozen_free(foci_ctx *ctx, struct frozen *f);
/* Write the projection as a matrix, [width][heads dim]; a transform allocates for this. */
foci_status frozen_write(const struct frozen *f, float *out);

/* The transform of m rows x [m][ldx] of `dtype`: head h of row i goes to
 * out + h head + i row, in elements.  Backward: dx[i ldx + c] += the gradients of x, from g
 * laid out as out; dx is f32. */
struct hadamard_rows {
    const struct frozen *f;
    foci_dtype           dtype;
    int64_t              m, ldx, row, head;
    void                *work; /* of hadamard_bytes() */
};
void hadamard_run(const foci_ctx *ctx, const struct hadamard_rows *at, const void *x,
                  void *out);
void hadamard_back(const foci_ctx *ctx, const struct hadamard_rows *at, const void *g,
                   float *dx);
/* Bytes of hadamard_rows.work, for the threads of the context. */
size_t hadamard_bytes(const foci_ctx *ctx, const struct frozen *f);
/* Elements of the last H: the smallest power of two that holds the elements that are used. */
int64_t hadamard_last(const struct frozen *f);

#endif
