/* exact_tiles.h -- which tiles of keys a block of queries meets, and which of their
 * keys its lanes see.
 *
 * The plan's table has runs of tiles for each query tile, full or with a mask.  Where
 * masks depend on the length, an execution makes tables for sequences of another length
 * (exact_table.c).  Causality and the caller's mask are applied on top.
 */
#ifndef FOCI_EXACT_TILES_H
#define FOCI_EXACT_TILES_H

#include "engine/exact/slots/exact_slots.h"

/* A row or a column of a table that the execution made. */
struct table_line {
    uint8_t *kinds; /* NULL: none */
    int64_t  first, step;
};

/* In place of the number of a mask of the plan: evaluate the mechanism's mask. */
enum { MASK_BY_MECH = -2 };

/* An iteration over the key tiles of a block, those of keys and then those of each
 * level of slots; or over the blocks of a key tile. */
struct exact_walk {
    const struct exact     *x;
    const struct exact_seq *seq; /* NULL: no levels follow */
    int64_t row, last; /* query tile in the table; position of the last query */
    int     level;     /* of the tiles at hand; -1: keys */
    const struct tile_run *runs;
    int64_t                n_runs, run, next, limit;
    int64_t                shift; /* from tiles of the table to those returned */
    struct table_line      line;
};

/* Whether the caller needs any row of the block: gates leave out blocks. */
bool exact_block_wanted(const struct exact *x, const struct exact_block *b);
struct exact_walk exact_walk_keys(const struct exact *x, const struct exact_block *b);
/* Blocks of seq that may see key tile t. */
struct exact_walk exact_walk_blocks(const struct exact *x, const struct exact_seq *seq,
                                    int64_t t);
/* The next tile and its mask; false at the end. */
bool exact_next(struct exact_walk *w, int64_t *tile, int32_t *mask);

/* seen[n]: the lanes of b that see each of the n keys of tile t.  false: all lanes with
 * a query see all keys, and `seen` is not written. */
bool exact_tile_mask(const struct exact *x, const struct exact_block *b, int64_t t,
                     int32_t mask, int n, uint64_t *seen);
/* Where row i of a sequence and head h starts in the caller's mask or bias. */
int64_t exact_mask_row(const struct exact *x, const struct exact_seq *s, int64_t h,
                       int64_t i);
/* Lanes that have a query. */
uint64_t exact_lanes(const struct exact_block *b);

/* How many keys each lane sees, in all sweeps; in the sweep in natural order; and
 * whether anything depends on it. */
void exact_count_visible(const struct exact *x, const struct exact_block *b,
                         int64_t visible[LANES]);
void exact_count_visible_natural(const struct exact *x, const struct exact_block *b,
                                 int64_t visible[LANES]);
bool exact_counts_keys(const struct exact *x, bool backward);

/* Keys, or slots, of tile t. */
static inline int exact_keys_in(const struct exact_seq *s, int64_t t)
{
    if (s->n_levels && t >= s->slot_t0[0]) return exact_slots_in(s, t);
    return (int)min64(TILE, s->s.nk - t * TILE);
}

/* Keys that a product takes for n: bf16 operands are padded with zero rows. */
static inline int exact_padded(const struct exact *x, int n)
{
    return x->bf16 ? (int)round_up(n, x->k->depth) : n;
}

/* A tile on the causal diagonal is cut into groups of keys, so that little of what is
 * hidden is computed; any other tile is one group: m keys from key j on, seen by lanes
 * from `lane` on.  Start with zeros; false at the end. */
struct causal_cut {
    int j, m, lane;
};
bool exact_causal_cut(const struct exact *x, const struct exact_block *b, int64_t t,
                      int n, struct causal_cut *c);

/*
 * Tables of an execution (exact_table.c)
 */

void exact_table_carve(struct exact *x, struct arena *a);
/* Set s->mech of sequence number i, with its length; and make its table at `at`, which
 * returns the first byte after it. */
void     exact_table_mech(struct exact *x, struct exact_seq *s, int64_t i);
uint8_t *exact_table_make(const struct exact *x, struct exact_seq *s, uint8_t *at);
struct table_line exact_table_row(const struct exact *x, const struct exact_seq *s,
                                  int64_t row);
struct table_line exact_table_col(const struct exact *x, const struct exact_seq *s,
                                  int64_t t);
/* The kind of tile t of a line. */
int exact_table_kind(struct table_line l, int64_t t);

#endif
