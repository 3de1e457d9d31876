/* exact_tiles.h -- which tiles of keys a block of queries meets on the exact engine, and
 * which of their keys its rows see: by the plan's runs, by tables that an execution makes
 * for itself, and by masks that are given.
 */
#ifndef FOCI_EXACT_TILES_H
#define FOCI_EXACT_TILES_H

#include "engine/exact_slots.h"

/* exact_tiles.c */
void exact_visible(const struct exact *x, const struct block *b, int64_t visible[LANES]);
/* In the sweep in natural order alone. */
void exact_visible_natural(const struct exact *x, const struct block *b,
                           int64_t visible[LANES]);
/* Whether anybody asks for them. */
bool exact_counts(const struct exact *x, bool backward);

/* A row or a column of a table made by the execution: kind of its tile t. */
struct live {
    uint8_t *kinds; /* NULL: none */
    int64_t  first, step;
};

/* In place of the number of a mask: the mechanism is to be asked. */
enum { MASK_ASK = -2 };

/* Key tiles of a block, those of keys and then those of the levels of slots, or blocks
 * of a key tile, one after the other. */
struct walk {
    const struct exact     *x;
    const struct exact_seq *seq; /* NULL: what follows the runs is nothing */
    int64_t row, last;           /* query tile of the table; last query's position */
    int     level;               /* being walked; -1: keys */
    const struct tile_run *runs;
    int64_t                n_runs, run, next, limit;
    int64_t                shift; /* from tiles of the table to those handed out */
    struct live            live;
};
/* Whether a row of the block is wanted at all. */
bool        exact_wanted(const struct exact *x, const struct block *b);
struct walk exact_walk_keys(const struct exact *x, const struct block *b);
/* The next tile and its mask; false at the end. */
bool exact_next(struct walk *w, int64_t *tile, int32_t *mask);
/* Blocks of seq that may see key tile t. */
struct walk exact_walk_blocks(const struct exact *x, const struct exact_seq *seq,
                              int64_t t);

/* seen[n] of the n keys of tile t for the lanes of b; false: all lanes that have a
 * query see all of them, and seen is not written. */
bool exact_seen(const struct exact *x, const struct block *b, int64_t t, int32_t mask,
                int n, uint64_t *seen);

/* Where row i of a sequence and head h starts in a given mask or bias. */
int64_t exact_given_row(const struct exact *x, const struct exact_seq *s, int64_t h,
                        int64_t i);

/* Lanes that have a query. */
uint64_t exact_lanes(const struct block *b);

/* Keys, or slots, of tile t. */
static inline int exact_keys_in(const struct exact_seq *s, int64_t t)
{
    if (s->n_levels && t >= s->slot_t0[0]) return exact_slots_in(s, t);
    return (int)min64(TILE, s->s.nk - t * TILE);
}

/* Keys as products count them: words pad them with zero rows. */
static inline int exact_padded(const struct exact *x, int n)
{
    return x->bf16 ? (int)round_up(n, x->k->depth) : n;
}

/* Runs of keys of a tile, m from key j on, and the lane from which on they are seen.
 * A tile on the causal diagonal is cut into groups, so that little of what is hidden
 * is computed; any other is one run.  Start with zeros; false at the end. */
struct cut {
    int j, m, lane;
};
bool exact_cut(const struct exact *x, const struct block *b, int64_t t, int n,
               struct cut *c);

/* exact_live.c: tables of sequences of another length than the plan's. */
void        exact_live_take(struct exact *x, struct arena *a);
void        exact_live_mech(struct exact *x, struct exact_seq *s, int64_t i);
uint8_t    *exact_live_make(const struct exact *x, struct exact_seq *s, uint8_t *at);
struct live exact_live_row(const struct exact *x, const struct exact_seq *s,
                           int64_t row);
struct live exact_live_col(const struct exact *x, const struct exact_seq *s, int64_t t);
int         exact_live_kind(struct live l, int64_t t);

#endif
