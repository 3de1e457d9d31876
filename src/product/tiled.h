/* tiled.h -- what the files of products on tiles share.
 *
 * Panels of 48 rows of a meet strips of 32 columns of b (kernels.h).  A job is a part of
 * c; its part of b, at most BLOCK_PAIRS pairs of tiles, stays in the second-level cache
 * while the panels go by.  A deeper sum is cut, and partial sums are stored in between.  Sums
 * continue where they stopped, so that no cut changes a bit of them.
 */
#ifndef FOCI_PRODUCT_TILED_H
#define FOCI_PRODUCT_TILED_H

#include <stdatomic.h>

#include "product/inside.h"

enum {
    BLOCK_PAIRS = 512,   /* of tiles of b: 1 MiB */
    MOST_STEPS = 64,     /* of one cut */
    SHALLOW = 16,        /* steps, up to which panels of 32 rows are as good */
    MOST_STRIPS = 64,    /* of a job */
    MOST_SUMS = 1 << 20, /* partial sums of a job */
    MOST_ROWS = 1 << 20, /* of a job */
    TILE_PAIR_SIZE = TILE_STRIP * TILE_DEPTH / 2
};

/* Packing that threads share as they arrive: how many parts are begun, and how many are done.
 * No thread waits for one that has not arrived. */
struct tiled_share {
    _Atomic int64_t begun, done;
};

/* Scratch of one thread. */
struct tiled_scratch {
    uint16_t           *a[2]; /* the panel that is multiplied, and the next */
    float              *c[2]; /* sums of a block, while they are written */
    float              *sums; /* of the blocks of a panel; of a job, where it is cut */
    struct tile_result *to;   /* [MOST_STRIPS] */
    float              *tile, *piece; /* [64][MOST_STEPS 32] floats on their way */
};

struct tiled {
    const struct kernels *k;
    const struct product *p;
    int64_t               steps, strips; /* of 32 terms, of 32 columns */
    int                   depth, cuts;   /* steps at once, how often */
    int                   high;          /* rows of a panel */
    int64_t               rows, cols;    /* rows and strips of a job */
    int64_t               across, down;  /* jobs */
    bool                  own;           /* each job packs its part of b */
    bool                  direct;        /* a is copied as it is stored */
    struct tile_source   *sources;       /* [steps], of a or its transpose */
    uint16_t             *transpose;     /* [m][ld], of a transposed a */
    int64_t               ld;
    uint32_t             *b;       /* packed */
    struct tiled_share   *shares;  /* [across][cuts], and that of the transpose */
    struct tiled_scratch *scratch; /* [threads] */
};

/* A job's columns, and a range of steps. */
struct tiled_span {
    int64_t strip, step;
    int     strips, steps;
};

/* tiled_pack.c.  b is packed in parts: steps of a span, or strips where it is transposed. */
int  tiled_parts(const struct tiled *x, struct tiled_span s);
void tiled_pack_part(const struct tiled *x, struct tiled_span s, int part,
                     uint32_t *out, const struct tiled_scratch *r);

/* Where rows of a are read; false: they have to be converted. */
bool tiled_sources(struct tiled *x);
/* A transposed a is transposed first: the number of jobs, and job i. */
int64_t tiled_transposes(const struct tiled *x);
void tiled_transpose(const struct tiled *x, int64_t job, const struct tiled_scratch *r);
/* Rows from i0 on as a panel, packed here unless a is direct. */
struct tile_panel tiled_panel(const struct tiled *x, int64_t i0, int valid, int64_t step,
                              int steps, uint16_t *out, const struct tiled_scratch *r);

/* tiled.c */
bool tiled_can(const foci_ctx *ctx, bool bf16);
void tiled_carve(const foci_ctx *ctx, const struct product *p, struct tiled *x,
                 struct arena *a);
void tiled_run(const foci_ctx *ctx, const struct product *p, void *work);

#endif
