/* frozen.h -- query and key projections that are drawn and never change. */
#ifndef FOCI_FROZEN_H
#define FOCI_FROZEN_H

#include "core/core.h"

/* As the argument of `frozen` counts them. */
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

/* One transform of a block, else one a head.  Of y = x D1 H P1 D2 H P2 D3 H there and
 * back: signs over the norm of H, permuted where the way back reads what P has moved;
 * and where to read, `entry t is the old entry p[t]`, with the inverses for the way back,
 * whose first H repeats itself and is read where it is made. */
enum { FACTOR_1, FACTOR_2, FACTOR_3, FACTOR_BACK_2, FACTOR_BACK_3, N_FACTORS };
enum { PLACE_1, PLACE_2, PLACE_BACK_1, PLACE_BACK_2, N_PLACES };

/* Why there is none, for messages, to `why`; true: it can be. */
bool frozen_can(enum frozen_kind kind, bool block, int64_t width, int64_t heads,
                int64_t dim, char *why, size_t cap);
/* Draw from a stream of a seed (10 queries, 11 keys, + 2^32 group).  f->kind to f->dim are
 * set.  Also for learned projections that start so: `dense` alone. */
foci_status frozen_make(foci_ctx *ctx, struct frozen *f, uint64_t seed, uint64_t stream);
void        frozen_free(foci_ctx *ctx, struct frozen *f);
/* Written out, [width][heads dim]; a transform needs memory for that. */
foci_status frozen_write(const struct frozen *f, float *out);

/* The transform of m rows x [m][ldx] of `dtype`: head h of row i goes to
 * out + h head + i row, in elements.  And the way back: rows dx[i ldx + c] += of gradients
 * g laid out as out, dx f32. */
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
/* Of work; threads as the context has. */
size_t hadamard_bytes(const foci_ctx *ctx, const struct frozen *f);
/* Elements of the last H: as many of a run as a power of two that holds what is kept. */
int64_t hadamard_last(const struct frozen *f);

#endif
