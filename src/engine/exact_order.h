/* exact_order.h -- ordered sweeps: what the files that sort rows by labels share.
 *
 * A query sees the keys that have its label in some round.  Round by round the rows of
 * each sequence and head are sorted by label, then place; the queries and keys of a
 * label are a cell, attended to like a short sequence of its own.  Rows are gathered by
 * index, keys are packed on the fly.  What a row sums is kept in floats from one round
 * to the next, relative to the row's own reference, so that all rounds, and the sweep
 * in natural order where there is a mask, make one softmax.
 *
 * A pair that agrees in several rounds counts in the first.  What a row sums, and in
 * which order, depends on the keys it sees alone: tiles start with their cell, and cells
 * that share a tile lie in it so that products sum each as if it were alone.
 */
#ifndef FOCI_EXACT_ORDER_H
#define FOCI_EXACT_ORDER_H

#include "engine/exact.h"
#include "engine/exact_shaw.h"
#include "engine/exact_vectors.h"

/* Queries q0 to q1 see keys k0 to k1, as the sorted lists count them. */
struct cell {
    int32_t q0, q1, k0, k1;
};

/* A piece of work: cells that share a block and a tile, or blocks of one cell. */
struct piece {
    int32_t cell0, cells;
    int32_t block0, blocks; /* of its queries */
    int32_t tile0, tiles;   /* of its keys */
    int32_t phase;          /* backward: pieces of one phase add to different rows */
};

/* Cells of one sequence and set of labels. */
struct cells {
    int32_t      *list_q, *list_k; /* rows of the sequence, sorted */
    struct cell  *cells;
    struct piece *pieces;
    int64_t       n_q, n_k, n_cells, n_pieces;
};

/* What the backward pass knows of a row: factors of its logits, the logarithm of its
 * normaliser, d_o . o. */
struct order_row {
    float plain, f, mul, norm, delta;
};

struct order {
    foci_order how;
    int64_t    rounds;
    int64_t    labels;         /* vectors that rows are compared with, in a round */
    int64_t    sets;           /* of labels: a head has its own, but not by place */
    int64_t    q_rows, k_rows; /* of all sequences: [batch][len] */

    /* Labels [sets][rounds][rows], below 0: none.  In chunks they number the cells: twice
     * the number, plus one in the first of its label. */
    int32_t *label_q, *label_k;
    double  *raw_q, *raw_k; /* labels without bounds, before they are numbered */
    float   *reach;         /* [sets][rounds] norm of the longest vector */

    /* Where labels take rows, lists have entries for all of them: [heads] of the sequence
     * at hand, one after the other or, saved, side by side; a row has as many entries as
     * labels took it. */
    bool     takes, all_lists;
    int64_t  entries_q, entries_k, take_q, take_k;
    int32_t *lists, *taken; /* taken: [heads][q_rows] */
    float   *mean;          /* [heads][len_q][ldv] */

    struct cells *parts; /* [sets][seqs], of the round at hand */
    int64_t      *first; /* [n_parts + 1] pieces before those of a part */
    int32_t      *list_q, *list_k;
    struct cell  *cells;
    struct piece *pieces;
    int64_t       n_parts, n_phases, seq0, seqs;
    int64_t       cell_cap, piece_cap; /* of a set */

    /* Running rows, [heads][sums_q] (rows, or entries): sums of values, references, sums
     * of weights. */
    int64_t  sums_q;
    float   *o, *m, *l;
    int32_t *visible; /* [heads][sums_q] keys seen; NULL: nobody asks */
    uint8_t *any;     /* [heads][sums_q] something was seen; NULL: nobody asks */

    /* Backward: rows [heads][sums_q]; sums of gradients, of rows or of entries; those of
     * rows of queries. */
    const void             *d_o;
    float                  *dbias; /* of the given bias; NULL: not wanted */
    const struct shaw_back *shaw;
    struct order_row       *rows;
    float                  *dq, *dk, *dv, *dq_rows; /* shared keys have a dk a head */
    double                 *d_sink;                 /* [heads], of entries */

    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* Rows before those of a sequence, [batch][len]. */
static inline int64_t order_q_row(const struct exact *x, const struct exact_seq *s)
{
    return s->s.b * x->p->len_q + s->s.q0;
}

static inline int64_t order_k_row(const struct exact *x, const struct exact_seq *s)
{
    return s->s.b * x->p->len_k + s->s.k0;
}

/* Query head of a set of labels, when it is the heads' own. */
static inline bool order_by_place(const struct order *o)
{
    return o->how.label == FOCI_LABEL_PLACE;
}

/* exact_order.c.  Take the memory of an execution; backward, labels are in `saved`.
 * Then x->order is set, but on a null arena. */
int64_t order_saved_floats(const struct exact *x);
void    order_take(struct exact *x, struct arena *a, float *saved, bool backward);
/* Find labels, unless they are saved, and count what rows see, if that matters. */
void order_begin(struct exact *x, bool labels);
/* Keys that the lanes of a block in natural order see, in all sweeps. */
void order_visible(const struct exact *x, const struct block *b, int64_t *visible);
/* Keep the running rows of a block, and get them back. */
void order_keep(const struct exact *x, const struct block *b, const float *ot,
                const float *m, const float *l, float *tile);
void order_back(const struct exact *x, const struct block *b, float *ot, float *m,
                float *l, float *tile);
/* All rounds, which continue the rows of the sweep in natural order, if there was one. */
void order_forward(struct exact *x, float *saved);

/* Backward: note lane i of a block; then all rounds; then the block's dq, added to
 * dqt[dq][LANES], and what shared keys bring its rows d[LANES][ldq], with two tiles of
 * room. */
void order_note(const struct exact *x, const struct block *b, int i,
                struct order_row row);
void order_backward(struct exact *x, const foci_grads *g, const struct shaw_back *shaw);
void order_add_dq(const struct exact *x, const struct block *b, float *dqt);
void order_add_keys(const struct exact *x, const struct block *b, float *d, float *tile,
                    float *tile2);

/* Rows start from their sink, or from nothing. */
void order_start(struct exact *x);
/* A row of d_o as an entry has it that shares it with others: rounded as products do. */
void order_share_row(const struct exact *x, float *row, float share);
/* Lanes of a block in natural order have no factors where entries have them. */
void order_factors(const struct exact *x, float *mul);
/* What entries add to the gradient of the sink of head h. */
double order_sink(const struct exact *x, int64_t h);

/* exact_take.c: where labels take rows. */
size_t take_scratch(const struct exact *x);
void   take_forward(struct exact *x, float *saved);
void   take_begin_back(struct exact *x);
void   take_backward(struct exact *x);
/* Find the lists of sequence number i. */
void take_lists(struct exact *x, int64_t i);

/* exact_labels.c: labels of all rows, as compared with the stage's tensors. */
size_t order_labels_scratch(const struct exact *x);
void   order_labels(struct exact *x);

/* Scratch of one thread. */
struct label_room {
    float  *tile;  /* [TILE][ldq] */
    float  *cols;  /* [ldq][LANES] */
    float  *s;     /* [TILE][LANES] scores of so many labels */
    double *exact; /* [dq] */
};
struct label_room label_room_take(const struct exact *x, struct arena *a);

/* The vectors of a set and round. */
struct vectors label_vectors(const struct exact *x, int64_t set, int64_t round);
/* Find the norms of the longest. */
void label_reach(struct exact *x);

/* Rows of queries, or of the keys that head `set` sees, as the mechanism's own map leaves
 * them: n from `first` on as columns, with what rounding may make of a product with a
 * vector of norm 1 in slack[LANES]; one in double, in r->exact. */
void label_load_tile(const struct exact *x, const struct exact_seq *s, int64_t set,
                     bool keys, int64_t first, int n, struct label_room *r,
                     float *slack);
void label_load_exactly(const struct exact *x, const struct exact_seq *s, int64_t set,
                        bool keys, int64_t i, struct label_room *r);

/* exact_cells.c: labels become small numbers, those of cells where there are chunks. */
void order_settle(struct exact *x);

/* Where among the key slots of a tile, of which `used` are taken, n keys of a cell
 * start, so that products sum them as if they were alone: words and the groups in which
 * tiles are summed are not shared unless all of them fit. */
int order_place(const struct exact *x, int used, int64_t n);

/* Room for the pieces of the sequences before, whose rows start at q and k. */
static inline int64_t order_pieces_before(int64_t q, int64_t k, int64_t seqs)
{
    return q / 16 + k / 8 + 10 * seqs;
}

/* Rows that are sorted by keys, in key[0] and row[0]; room for all rows of a sequence,
 * queries and keys. */
struct sorting {
    uint64_t *key[2];
    int32_t  *row[2];
};
struct sorting sorting_take(const struct exact *x, struct arena *a);
/* Sort n rows; no key is above `most`.  Rows of equal keys stay in their order. */
void sort_rows(struct sorting *r, int64_t n, uint64_t most);
/* Bits that sort as the number does; -0 is 0. */
uint64_t sort_bits(double y);

/* Sort one round's rows and cut them into pieces; `backward` pieces have
 * phases.  Round number `rounds` has the rows that saw nothing, each alone. */
size_t order_cells_scratch(const struct exact *x);
void   order_cells(struct exact *x, int64_t round, bool backward);

/* Piece number i of all parts, for one head. */
struct task {
    const struct cells     *part;
    const struct piece     *piece;
    const struct exact_seq *seq;
    int64_t                 set, head;
};
int64_t     order_tasks(const struct exact *x);
struct task order_task(const struct exact *x, int64_t i);

#endif
