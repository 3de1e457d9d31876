/* exact_sweep.h -- gathered blocks and tiles of ordered sweeps. */
#ifndef FOCI_EXACT_SWEEP_H
#define FOCI_EXACT_SWEEP_H

#include "engine/exact_order.h"
#include "engine/exact_score.h"

/* Tiles of keys that are packed at once for all blocks of a piece. */
enum { SWEEP_TILES = 8 };

/* Rows that are lanes of a block or keys of a tile. */
struct gathered {
    int     n;
    int32_t row[TILE];   /* in the sequence; -1: none */
    int32_t place[TILE]; /* the same, but 0 where there is none */
    int64_t at[TILE];    /* where what is summed for it lies */
};

struct sweep_block {
    struct gathered q;
    uint64_t        live;           /* lanes that have a query */
    int32_t        *label, *before; /* [rounds][LANES]: of the cell, and of the one
                                     * before it that is seen too */
};

struct sweep_tile {
    struct gathered k;
    bool            shared; /* by several cells, whose lanes are in: */
    uint64_t        lanes[TILE];
    int32_t        *label; /* [rounds][TILE] */
    unsigned        bad;
};

/* The pass over one piece. */
struct sweep {
    const struct exact *x;
    struct task         task;
    int64_t             round;
    bool                once; /* pairs of an earlier round are not seen again */
    struct block        rows; /* for what depends on the head alone */
};

/* Room for labels of a block and of SWEEP_TILES tiles. */
void sweep_take(const struct exact *x, struct sweep_block *b, struct sweep_tile *tiles,
                struct arena *a);

struct sweep sweep_of(const struct exact *x, int64_t round, struct task task);

/* The rows of block number b and of tile number t of the piece. */
void sweep_block(const struct sweep *s, int64_t b, struct sweep_block *block);
void sweep_tile(const struct sweep *s, int64_t t, struct sweep_tile *tile);

/* Which lanes see which keys of the tile: none (seen is not written), all of them, or
 * some. */
enum seen { SEEN_NONE, SEEN_SOME, SEEN_ALL };
enum seen sweep_seen(const struct sweep *s, const struct sweep_block *b,
                     const struct sweep_tile *t, uint64_t *seen);

/* What the logits of a sweep have more, in powers of two: a token that sees nothing but
 * itself does so in every round. */
float sweep_more(const struct sweep *s);

/* Biases of a block and a tile, given and by distance; room[TILE][LANES], where
 * sweep_biased(). */
bool             sweep_biased(const struct exact *x);
struct bias_rows sweep_bias(const struct sweep *s, const struct sweep_block *b,
                            const struct sweep_tile *t, float *room);

/* Bits of the weights that are not dropped. */
void sweep_keep(const struct sweep *s, const struct sweep_block *b,
                const struct sweep_tile *t, uint64_t *keep);

static inline struct places sweep_places(const struct sweep    *s,
                                         const struct gathered *g, bool keys)
{
    return (struct places){ keys ? 0 : s->task.seq->pos0, g->place };
}

/* Ask for keys and values of n tiles from t on, and for queries and sums of block b,
 * which will be read soon. */
void sweep_ask_keys(const struct sweep *s, int64_t t, int n);
void sweep_ask_block(const struct sweep *s, int64_t b);

/* Gathered rows as floats, zero where there is none: of any tensor, and of queries and
 * keys as they go into scores. */
void sweep_load(const struct sweep *s, const struct gathered *g, bool keys,
                const void *base, const foci_layout *l, int d, int ld, float *tile);
void sweep_queries(const struct sweep *s, const struct gathered *g, float *tile);
void sweep_keys(const struct sweep *s, const struct gathered *g, float *tile);

/* Packed rows that are summed over. */
static inline struct operand sweep_sum(const struct exact *x, const char *at, int d_pad,
                                       int ld)
{
    if (!x->bf16) return (struct operand){ at, 1, ld };
    return x->k->sum_by_rows ? (struct operand){ at, TILE / 2, 1 }
                             : (struct operand){ at, 1, d_pad };
}

/* exact_sweep.c: count the keys that rows see; continue their softmax. */
void   sweep_count(struct exact *x, int64_t round);
void   sweep_forward(struct exact *x, int64_t round);
size_t sweep_forward_scratch(const struct exact *x);

/* exact_sweep_back.c: add to dq, dk and dv. */
size_t sweep_backward_scratch(const struct exact *x);
void   sweep_backward(struct exact *x, int64_t round);

#endif
