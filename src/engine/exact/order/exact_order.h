/* exact_order.h -- ordered sweeps: attention among rows of equal label (lsh, routing,
 * strided).
 *
 * A query sees the keys that share its label in some round.  Round by round the rows of
 * each sequence and head are sorted by label, then position.  The queries and keys of
 * one label are a cell, attended to like a short sequence: rows are gathered by index
 * and keys packed on the fly.  The running output, maximum and sum of a row are kept in
 * floats from one round to the next, so that all rounds, and the sweep in natural order
 * where the mechanism has a mask too, make one softmax.
 *
 * A pair that shares labels in several rounds counts in the first.  What a row sums,
 * and in which order, depends on the keys it sees alone: tiles start with their cell,
 * and cells that share a tile are placed so that products sum each of them as if it
 * were alone.
 *
 * Files: exact_labels.c finds labels, exact_sort.c sorts, exact_cells.c makes cells and
 * work, exact_gather.c gathers rows, exact_sweep_seen.c masks pairs,
 * exact_sweep_forward.c and exact_sweep_back.c attend; exact_topk*.c are for labels
 * that take their top-k rows.
 */
#ifndef FOCI_EXACT_ORDER_H
#define FOCI_EXACT_ORDER_H

#include "engine/exact/exact.h"
#include "engine/exact/order/exact_vectors.h"
#include "engine/exact/terms/exact_shaw.h"

/* Queries q0 to q1 see keys k0 to k1, elements of the sorted lists. */
struct order_cell {
    int32_t q0, q1, k0, k1;
};

/* A piece of work: several cells that share one block and one tile, or blocks of one
 * cell. */
struct order_piece {
    int32_t cell0, cells;
    int32_t block0, blocks; /* of its queries */
    int32_t tile0, tiles;   /* of its keys */
    int32_t phase;          /* backward: pieces of one phase add to different rows */
};

/* Cells of one sequence and set of labels. */
struct cells {
    int32_t            *list_q, *list_k; /* rows of the sequence, sorted */
    struct order_cell  *cells;
    struct order_piece *pieces;
    int64_t             n_q, n_k, n_cells, n_pieces;
};

/* Inputs of the backward pass for a row: factors of q.k, the logarithm of the normaliser,
 * d_o . o. */
struct order_row {
    float plain, f, mul, norm, delta;
};

struct order {
    foci_order how;
    int64_t    rounds;
    int64_t    labels;         /* vectors that rows are compared with, in a round */
    int64_t    sets;           /* of labels: one for each head, or one by position */
    int64_t    q_rows, k_rows; /* of all sequences: [batch][len] */

    /* Labels [sets][rounds][rows]; negative: none.  Where rows are cut into chunks they
     * number the cells: twice the number, plus one in the first cell of a label. */
    int32_t *label_q, *label_k;
    double  *raw_q, *raw_k; /* hash values, before labels are numbered */
    float   *vector_norm;   /* [sets][rounds] norm of the longest vector */

    /* Where each label takes its top-k rows, a row may have several labels or none.  Sums
     * are kept for each entry of the lists, one sequence after the other.  Lists of a
     * sequence are [heads] one after the other; saved ones of all sequences follow each
     * other. */
    bool     topk, all_lists;
    int64_t  entries_q, entries_k, topk_q, topk_k;
    int32_t *lists, *chosen; /* chosen: [heads][q_rows] labels that took a row */
    float   *mean;           /* [heads][len_q][d.ldv] */

    struct cells       *parts; /* [sets][seqs] of this round */
    int64_t            *first; /* [n_parts + 1] pieces before those of a part */
    int32_t            *list_q, *list_k;
    struct order_cell  *cells;
    struct order_piece *pieces;
    int64_t             n_parts, n_phases, seq0, seqs;
    int64_t             cell_cap, piece_cap; /* of a set */

    /* Running rows, [heads][sums_q] (rows, or entries): sums of values, references,
     * sums of weights. */
    int64_t  sums_q;
    float   *o, *m, *l;
    int32_t *visible;  /* [heads][sums_q] number of visible keys; NULL: not needed */
    uint8_t *any_seen; /* [heads][sums_q] a key was visible; NULL: not needed */

    /* Backward: rows [heads][sums_q], and sums of gradients, of rows or of entries. */
    const void             *d_o;
    float                  *dbias; /* of the caller's bias; NULL: not wanted */
    const struct shaw_back *shaw;
    struct order_row       *rows;
    float  *dq, *dk, *dv; /* where queries are keys too, dk of each head */
    float  *dq_rows;      /* of rows, also where dq is of entries */
    double *d_sink;       /* [heads] of entries */

    char  *scratch; /* [threads] */
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

static inline bool order_by_place(const struct order *o)
{
    return o->how.label == FOCI_LABEL_PLACE;
}

/* The scratch of a thread. */
static inline struct arena order_scratch(const struct exact *x, int thread)
{
    const struct order *o = x->order;
    return (struct arena){ .base = o->scratch + (size_t)thread * o->scratch_bytes };
}

/*
 * From end to end (exact_order.c)
 */

int64_t order_saved_floats(const struct exact *x);
/* The memory of an execution.  Sets x->order, unless the arena is null and only counts
 * bytes.  Labels are written to `saved` by forward and read from it by backward. */
void order_carve(struct exact *x, struct arena *a, float *saved, bool backward);
/* Find labels, unless they are saved, and count visible keys where that matters. */
void order_begin(struct exact *x, bool labels);
/* Rows start from their sink, or from nothing. */
void order_start(struct exact *x);
/* All rounds; they continue the rows of the sweep in natural order, if there was one. */
void order_forward(struct exact *x, float *saved);
void order_backward(struct exact *x, const foci_grads *g, const struct shaw_back *shaw);

/* Of a block in natural order: the number of keys that its lanes see in all sweeps. */
void order_count_visible(const struct exact *x, const struct exact_block *b,
                         int64_t *visible);
/* Save and restore the running output, maximum and sum of a block between sweeps. */
void order_save_block(const struct exact *x, const struct exact_block *b,
                      const float *ot, const float *m, const float *l, float *tile);
void order_load_block(const struct exact *x, const struct exact_block *b, float *ot,
                      float *m, float *l, float *tile);
/* Backward: save the row of lane i of a block; add the dq of a block to dqt[d.q][LANES];
 * and, where queries are keys too, add the gradients of its rows as keys to
 * d[LANES][d.ldq], with two tiles of scratch. */
void order_save_row(const struct exact *x, const struct exact_block *b, int i,
                    struct order_row row);
void order_add_dq(const struct exact *x, const struct exact_block *b, float *dqt);
void order_add_shared_keys(const struct exact *x, const struct exact_block *b, float *d,
                           float *tile, float *tile2);
/* Where entries have factors, lanes of a block in natural order have none. */
void order_clear_factors(const struct exact *x, float *mul);
/* A row of d_o times an entry's share of it, rounded as products do. */
void order_scale_grad(const struct exact *x, float *row, float share);
/* The share of entries in the gradient of the sink of head h. */
double order_sink(const struct exact *x, int64_t h);

/*
 * Labels (exact_labels.c)
 */

/* Scratch of one thread. */
struct label_scratch {
    float  *tile;  /* [TILE][d.ldq] */
    float  *cols;  /* [d.ldq][LANES] */
    float  *s;     /* [TILE][LANES] products with as many vectors */
    double *exact; /* [d.q] */
};
struct label_scratch label_scratch(const struct exact *x, struct arena *a);
size_t               order_labels_bytes(const struct exact *x);

/* Find the labels of all rows. */
void order_labels(struct exact *x);
/* The vectors of a set and round; and the norms of the longest of all sets. */
struct vectors label_vectors(const struct exact *x, int64_t set, int64_t round);
void           label_vector_norms(struct exact *x);
/* Rows of queries, or of the keys that head `set` sees, after the mechanism's own map:
 * n rows from `first` on as columns, with the rounding error of a product with a vector
 * of norm 1 in slack[LANES]; and one row in double, in r->exact. */
void label_load_tile(const struct exact *x, const struct exact_seq *s, int64_t set,
                     bool keys, int64_t first, int n, struct label_scratch *r,
                     float *slack);
void label_load_double(const struct exact *x, const struct exact_seq *s, int64_t set,
                       bool keys, int64_t i, struct label_scratch *r);

/*
 * Sorting (exact_sort.c)
 */

/* Rows to be sorted by keys, in key[0] and row[0]; the other two are scratch.  There is
 * memory for all queries and keys of a sequence. */
struct sort_scratch {
    uint64_t *key[2];
    int32_t  *row[2];
};
struct sort_scratch sort_scratch(const struct exact *x, struct arena *a);
struct sort_scratch sort_scratch_of(const struct exact *x, int thread);
/* Stable sort of n rows; no key is above `most`. */
void sort_rows(struct sort_scratch *r, int64_t n, uint64_t most);
/* Sort the rows that have a label, into `list`; the result is their number. */
int64_t sort_labels(const int32_t *label, int64_t n, struct sort_scratch *r,
                    int32_t *list);
/* Bits that sort as the number does; -0 is 0. */
uint64_t sort_bits(double y);
/* Replace hash values by consecutive labels, and chunks by cells. */
void order_number_labels(struct exact *x);

/*
 * Cells and work (exact_cells.c)
 */

/* The first of the keys of a tile where n keys of a cell are placed, `used` being
 * taken, so that products sum them as if they were alone: bf16 pairs and the groups in
 * which tiles are summed are not shared unless all keys fit. */
int order_key_slot(const struct exact *x, int used, int64_t n);

/* A bound of the pieces of the sequences before, whose rows start at q and k. */
static inline int64_t order_pieces_before(int64_t q, int64_t k, int64_t seqs)
{
    return q / 16 + k / 8 + 10 * seqs;
}

/* Sort the rows of a round and cut them into pieces; backward, pieces have phases.
 * Round number `rounds` has the rows that saw nothing, each alone. */
size_t order_cells_bytes(const struct exact *x);
void   order_cells(struct exact *x, int64_t round, bool backward);

/* Piece number i of all parts, for one head. */
struct order_task {
    const struct cells       *part;
    const struct order_piece *piece;
    const struct exact_seq   *seq;
    int64_t                   set, head;
};
int64_t           order_tasks(const struct exact *x);
struct order_task order_task(const struct exact *x, int64_t i);

/*
 * Top-k labels
 */

/* exact_topk_lists.c: set where the lists of sequence number i are, and how many rows
 * each label takes; find them; and count the labels that took each row. */
size_t topk_scratch_bytes(const struct exact *x);
void   topk_set_seq(struct exact *x, int64_t i);
void   topk_lists(struct exact *x, int64_t i);
void   topk_count_chosen(const struct exact *x);

/* exact_topk.c */
void topk_forward(struct exact *x, float *saved);
void topk_begin_back(struct exact *x);
void topk_backward(struct exact *x);

#endif
