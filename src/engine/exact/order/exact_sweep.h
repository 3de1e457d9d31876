/* exact_sweep.h -- ordered sweeps: gathered blocks of queries and tiles of keys.
 */
#ifndef FOCI_EXACT_SWEEP_H
#define FOCI_EXACT_SWEEP_H

#include "engine/exact/exact_product.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/order/exact_order.h"

/* Tiles of keys that are packed at once for all blocks of a piece. */
enum { SWEEP_TILES = 8 };

/* Rows that are lanes of a block or keys of a tile. */
struct gathered {
    int     n;
    int32_t row[TILE]; /* in the sequence; -1: none */
    int32_t pos[TILE]; /* the same, but 0 where there is no row */
    int64_t at[TILE];  /* where the sums of the row are */
};

struct sweep_block {
    struct gathered q;
    uint64_t        live;   /* lanes that have a query */
    int32_t        *label;  /* [rounds][LANES] cell of the row */
    int32_t        *before; /* [rounds][LANES] the cell before, if it is visible too */
};

struct sweep_tile {
    struct gathered k;
    bool            shared;      /* by several cells */
    uint64_t        lanes[TILE]; /* lanes of the cell of each key, where shared */
    int32_t        *label;       /* [rounds][TILE] */
    unsigned        nonfinite;
};

/* One piece of work. */
struct sweep {
    const struct exact *x;
    struct order_task   task;
    int64_t             round;
    bool                once; /* pairs of an earlier round are hidden */
    struct exact_block  rows; /* for functions that depend on the head alone */
};

/*
 * Gathering (exact_gather.c)
 */

void sweep_carve(const struct exact *x, struct sweep_block *b, struct sweep_tile *tiles,
                 struct arena *a);
struct sweep sweep_of(const struct exact *x, int64_t round, struct order_task task);

/* The rows of block number b and of tile number t of the piece. */
void sweep_block(const struct sweep *s, int64_t b, struct sweep_block *block);
void sweep_tile(const struct sweep *s, int64_t t, struct sweep_tile *tile);

/* Prefetch keys and values of n tiles from t on; queries and sums of block b. */
void sweep_prefetch_keys(const struct sweep *s, int64_t t, int n);
void sweep_prefetch_block(const struct sweep *s, int64_t b);

/* Gathered rows as floats, zero where there is none: of any tensor; and queries and
 * keys after their maps. */
void sweep_load(const struct sweep *s, const struct gathered *g, bool keys,
                const void *base, const foci_layout *l, int d, int ld, float *tile);
void sweep_queries(const struct sweep *s, const struct gathered *g, float *tile);
void sweep_keys(const struct sweep *s, const struct gathered *g, float *tile);

static inline struct positions sweep_positions(const struct sweep    *s,
                                               const struct gathered *g, bool keys)
{
    return (struct positions){ keys ? 0 : s->task.seq->pos0, g->pos };
}

/* A packed tile that is summed over its rows. */
static inline struct operand sweep_sum(const struct exact *x, const char *at, int d_pad,
                                       int ld)
{
    return x->bf16 ? exact_sum_operand(x, at, d_pad) : (struct operand){ at, 1, ld };
}

/*
 * Visibility (exact_sweep_seen.c)
 */

/* Whether pairs may have met in an earlier round. */
static inline bool sweep_dedups(const struct sweep *s)
{
    return s->once && s->round && s->round < s->x->order->rounds;
}

/* Which lanes see which keys of the tile: none of them, in which case `seen` may not be
 * written, some, or all. */
enum seen { SEEN_NONE, SEEN_SOME, SEEN_ALL };
enum seen sweep_seen(const struct sweep *s, const struct sweep_block *b,
                     const struct sweep_tile *t, uint64_t *seen);
/* The log2 of how often the pairs of a sweep count: a token that sees only itself counts
 * in every round. */
float sweep_log_rounds(const struct sweep *s);
/* The caller's biases and those by distance; scratch[TILE][LANES] where there are such. */
bool             sweep_has_bias(const struct exact *x);
struct bias_rows sweep_bias(const struct sweep *s, const struct sweep_block *b,
                            const struct sweep_tile *t, float *scratch);
/* Bits of the weights that are not dropped. */
void sweep_dropout_mask(const struct sweep *s, const struct sweep_block *b,
                        const struct sweep_tile *t, uint64_t *dropout_mask);

/*
 * Sweeps (exact_sweep_forward.c, exact_sweep_back.c): count the keys that rows see;
 * continue their softmax; add to dq, dk and dv
 */

void   sweep_count(struct exact *x, int64_t round);
void   sweep_forward(struct exact *x, int64_t round);
size_t sweep_forward_bytes(const struct exact *x);
void   sweep_backward(struct exact *x, int64_t round);
size_t sweep_backward_bytes(const struct exact *x);

#endif
