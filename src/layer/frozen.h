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
    float   *dense; /* [width][heads dim], heads side by side; NULL: a transform */
    uint8_t *signs; /* transforms: [transforms][3][width], 1: minus */
    int32_t *perms; /* [transforms][2][width]; transforms: 1 of a block, else one a head */
};

/* Why there is none, for messages, to `why`; true: it can be. */
bool frozen_can(enum frozen_kind kind, bool block, int64_t width, int64_t heads,
                int64_t dim, char *why, size_t cap);
/* Draw from a stream of a seed (10 queries, 11 keys, + 2^32 group).  f->kind to f->dim are
 * set.  Also for learned projections that start so: `dense` alone. */
foci_status frozen_make(foci_ctx *ctx, struct frozen *f, uint64_t seed, uint64_t stream);
void        frozen_free(foci_ctx *ctx, struct frozen *f);
/* Written out, [width][heads dim]. */
void frozen_write(const struct frozen *f, float *out);

/* The transform of m rows x [m][ldx] of `dtype`: head h of row i goes to
 * out + h head + i row, in elements.  threads as the context has.  And the way back: rows
 * dx[i ldx + c] += of gradients g laid out as out, dx f32. */
size_t hadamard_bytes(const foci_ctx *ctx, const struct frozen *f);
void   hadamard_run(const foci_ctx *ctx, const struct frozen *f, const void *x,
                    int64_t ldx, foci_dtype dtype, int64_t m, void *out, int64_t row,
                    int64_t head, void *work);
void   hadamard_back(const foci_ctx *ctx, const struct frozen *f, const void *g,
                     int64_t row, int64_t head, foci_dtype dtype, int64_t m, float *dx,
                     int64_t ldx, void *work);

#endif
