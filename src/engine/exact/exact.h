/* exact.h -- exact attention in tiles, forward and backward: what all files share.
 *
 * All blocks are transposed: the 64 queries of a block are the lanes of vectors, and
 * scores are s[key][query].  The maximum, the sum and the scale of a row of attention
 * are then vectors, and the five products of forward and backward are one kernel,
 *
 *     c[m][lanes] += sum over k of a(m, k) b[k][lanes],
 *
 * which broadcasts its first operand from rows in their original layout:
 *
 *     scores   s  [key][query] = K  [key][d]     Qt  [d][query]
 *     values   ot [dv][query] += V  [key][dv]^T  w   [key][query]
 *     dp          [key][query] = V  [key][dv]    dOt [dv][query]
 *     dv       [key][dv]      += w  [key][query] dO  [query][dv]
 *     dk       [key][d]       += ds [key][query] Q   [query][d]
 *     dqt      [d][query]     += K  [key][d]^T   ds  [key][query]
 *
 * Keys and values are packed once for each key/value head and execution (mapped,
 * rounded, padded, contiguous), queries block by block.  Time O(n^2 (d + dv)) without a
 * mask, memory O(n (d + dv)).
 *
 * A non-finite value must reach only the queries that see it, but 0 * inf is NaN.
 * Tiles with hidden pairs and a non-finite operand are therefore multiplied pair by
 * pair (exact_nonfinite.c).
 */
#ifndef FOCI_EXACT_H
#define FOCI_EXACT_H

#include <assert.h>
#include <math.h>

#include "engine/engine.h"
#include "engine/exact/terms/exact_source.h"
#include "state/state.h"

enum {
    MAX_PANEL = 256, /* keys of a panel: their weights are computed in one call */
    STACK = 4,       /* tiles of ds that one product takes, where layouts allow it */
    TILE = FOCI_TILE /* keys of a tile; as many as the LANES queries of a block */
};

/* Bits that say which operand of a tile of keys, or of a block of queries, has a
 * non-finite element. */
enum { NONFINITE_KEY = 1, NONFINITE_VALUE = 2 };
enum { NONFINITE_QUERY = 1, NONFINITE_GRAD = 2 };

/* A sequence of an execution, cut into blocks of queries and tiles of keys.  The tiles
 * of its slots follow those of its keys. */
struct exact_seq {
    struct seq s;
    int64_t    pos0;      /* position of query 0: nk - nq */
    int64_t    lead;      /* unused lanes before query 0 in the first block */
    int64_t    qt0, n_qt; /* its blocks, numbered through all sequences */
    int64_t    kt0, n_kt; /* its tiles, numbered through all sequences */

    const foci_mech  *mech;     /* with the length of this sequence, for its masks */
    const foci_slots *slots;    /* [n_levels] */
    const int64_t    *slot_t0;  /* [n_levels] first tile of a level */
    int               n_levels; /* of slots */
    int64_t           st0;      /* tiles of slots of the sequences before */
    uint8_t          *kinds;    /* its own tile table; NULL: the plan's table serves */
    int64_t           n_rows;   /* query tiles of that table */
};

/* Widths of rows, in elements. */
struct exact_dims {
    int q, v;         /* of q and k as they enter products, and of v */
    int q_pad, v_pad; /* padded to what packed operands need */
    int ldq, ldv;     /* rows of floats: padded to whole vectors */
    int in, ld_in;    /* of q and k in the caller's tensors, before projection */
};

/* Upper bounds, known to the plan, of the sequences, the blocks of queries, the tiles
 * (of keys and slots) and the tiles of slots. */
struct exact_limits {
    int64_t seqs, qt, kt, st;
};

/* As many as this execution has. */
struct exact_counts {
    int64_t seqs, qt, kt;
};

/* The slots of all sequences, [max.seqs][levels]. */
struct exact_slot_lists {
    foci_slots *list;
    int64_t    *t0;
};

/* Tile tables made by the execution, for sequences whose length is not the plan's
 * (exact_table.c). */
struct exact_tables {
    foci_mech *mechs;     /* [max.seqs] */
    uint8_t   *kinds;     /* of all sequences */
    uint8_t   *row;       /* scratch: the tiles of one row */
    bool       by_cols;   /* stored by key tile, not by query tile */
    bool       by_length; /* masks depend on the length, so tables may be needed */
};

/* Packed keys and values, [kv_heads][max.kt] tiles: rows for scores and dp, and the
 * same transposed where products sum over keys.  NULL: rows of floats that are
 * contiguous are read in place, and floats need no transposed copy. */
struct exact_packed {
    char    *keys, *values, *keys_sum, *values_sum;
    size_t   key_bytes, value_bytes; /* of one tile */
    float   *norms;                  /* [kv_heads][max.kt][TILE] of keys */
    float   *max_norm;               /* [kv_heads][max.kt] of a tile */
    uint8_t *nonfinite;              /* [kv_heads][max.kt] NONFINITE_ bits */
};

/* Gradients of keys and values.  Those that several sweeps or heads add to are
 * collected in floats, [kv_heads][batch][len_k] rows of ldq and ldv, before they are
 * stored. */
struct exact_key_grads {
    bool   collect;
    float *dk, *dv;
    float *dk_slots, *dv_slots; /* [kv_heads][max.st][TILE] rows, of slots */
};

/* Rotations and biases by position (exact_rope.c, exact_position.c). */
struct position_tables {
    float   *cos_sin; /* [n_angles][d.q] by position; NULL: no rope */
    int64_t  n_angles;
    float   *rel;         /* [heads][n_rel] biases by distance, in logit units */
    int32_t *entry[2];    /* [n_rel] into the tables of parameters */
    int64_t  n_rel, rel0; /* distance 0 is element rel0 */
    float   *sums;        /* backward: sums of ds along diagonals */
    double  *by_distance; /* [n_rel] the same of all sequences */
};

/* The rows R of txl, one for each distance, packed as keys are (exact_txl.c). */
struct txl_rows {
    char *rows, *sum; /* [heads][tiles of len_k] tiles; transposed for sums over rows */
    float *max_norm;  /* [heads][tiles][TILE] largest norm in the tile, up to a row */
};

/* Matrices that project queries and keys, index 0 and 1 (exact_project.c). */
struct project_matrices {
    float *matrix[2]; /* [heads][d.in][d.ldq] */
    float *back[2];   /* [heads][d.q][d.ld_in] transposed, for the backward pass */
    float *d[2];      /* [heads][d.in][d.ldq] their gradients */
    float *input;     /* [threads][TILE][d.ld_in] scratch: rows before projection */
};

/* Learned slots (exact_learned.c). */
struct learned_slots {
    float *keys, *values; /* [kv_heads][max.st][TILE] rows */
    char  *scratch;       /* [threads] */
    size_t bytes;         /* of one thread */
};

struct exact_dropout {
    bool  on;    /* some weights are dropped */
    float scale; /* factor of the others, 1 / (1 - p) */
};

struct exact_scratch {
    char  *base; /* [threads] */
    size_t bytes;
};

/* One execution of one stage. */
struct exact {
    struct execution      exec; /* zero in dry runs */
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const struct score   *score;
    const struct support *support;
    const struct kernels *k;
    const foci_io        *io;

    int  kind;         /* a foci_weigh */
    bool bf16;         /* products take bf16 pairs */
    bool slots_only;   /* queries see slots alone, no keys */
    bool fused;        /* forward in one kernel (exact_fused.c) */
    int  fused_blocks; /* blocks that one job of the fused kernel takes */

    struct exact_dims d;
    int kpack; /* values of a summed index in one element of a packed operand: 2 of bf16 */
    int granule; /* keys, and lanes, at which tiles on the causal diagonal are cut */
    int panel;   /* keys of a panel */

    int64_t heads, head0, kv_heads, kv0, per_kv; /* of this stage */
    int64_t kv_expand; /* key/value heads made of each head of the caller's tensors */

    struct exact_limits max;
    struct exact_counts n;
    struct exact_seq   *seqs;
    int32_t            *seq_of_q, *seq_of_k; /* [n.qt], [n.kt] */
    int64_t fold; /* sequences that share their weights and are computed together */

    struct exact_slot_lists slot;
    struct exact_tables     table;
    struct exact_packed     packed;
    struct exact_key_grads  grads;
    struct order           *order; /* labels and sweeps (exact_order.h); NULL: none */

    struct sources          source;
    struct position_tables  position;
    struct txl_rows         txl;
    struct project_matrices project;
    struct learned_slots    learned;
    struct exact_dropout    dropout;

    int                  threads;
    struct exact_scratch scratch;
};

/* A block of 64 queries of one head: one lane for each query. */
struct exact_block {
    const struct exact_seq *seq;
    int64_t                 h, kv; /* head, and key/value head within the stage */
    int64_t                 at; /* number of the block, through heads and sequences */
    int64_t i0;     /* query of lane 0; negative in a first block with unused lanes */
    int     r0, r1; /* lanes r0 to r1 have a query */
    int64_t pos;    /* position of lane 0 */
};

/*
 * Geometry (exact.c)
 */

/* Widths, heads and limits of a stage; no memory is touched. */
void exact_geometry(struct exact *x, const foci_plan *plan, const struct stage *s);
/* Cut the sequences of an execution into blocks and tiles.  On a null arena this only
 * counts bytes. */
void               exact_cut_seqs(struct exact *x, const foci_io *io, struct arena *a);
struct exact_block exact_block(const struct exact *x, int64_t head, int64_t qt);

/* Sequences that share their weights are folded: their blocks are computed together,
 * and the block of the first one stands for all.  These are the number of such blocks
 * of a head, block number i of them, how many sequences it stands for, and the block of
 * sequence number f among these. */
int64_t            exact_fold_blocks(const struct exact *x);
struct exact_block exact_fold_block(const struct exact *x, int64_t head, int64_t i);
int64_t            exact_fold_size(const struct exact *x, const struct exact_seq *s);
struct exact_block exact_fold_member(const struct exact_block *b, int64_t f);

/* Element of lane 0 of a block in arrays [heads][batch][len_q], as forward saves them. */
int64_t exact_saved_at(const struct exact *x, const struct exact_block *b);
int     exact_thread(void);
/* Threads for that many jobs: few where waking more would take longer. */
int exact_threads(const struct exact *x, int64_t jobs, double flops);
/* The factor of q.k that all rows of head h share. */
double exact_head_scale(const struct exact *x, int64_t h);

/* The head of the caller's tensors that key/value head kv of the stage is made of. */
static inline int64_t exact_input_head(const struct exact *x, int64_t kv)
{
    return x->kv0 + kv / x->kv_expand;
}

/* Whether there is a sweep in natural order; elsewhere all sweeps follow labels. */
static inline bool exact_natural(const struct exact *x)
{
    return !x->stage->order.label || x->support->n_rows;
}

/* Logits are in base 2 where they are exponents. */
#define LOG2_E 1.44269504088896340736

static inline double exact_logit_unit(const struct exact *x)
{
    return x->kind == FOCI_WEIGH_RELU2 ? 1 : LOG2_E;
}

/* Whether a row with this saved normaliser has seen no key.  Such a row has no share in
 * the gradient of a parameter, whatever its elements are. */
static inline bool exact_is_empty_row(const struct exact *x, float norm)
{
    return x->kind == FOCI_WEIGH_RELU2 ? norm == 0 : norm == INFINITY;
}

/* Positions of the rows of a tile: row i at first + list[i], or, where list is NULL, at
 * first + i. */
struct positions {
    int64_t        first;
    const int32_t *list;
};

static inline int64_t position_at(struct positions at, int i)
{
    return at.first + (at.list ? at.list[i] : i);
}

/*
 * Functions of the engine (exact_forward.c, exact_backward.c, exact_centroids.c,
 * exact_cost.c, exact_describe.c).  Sizes come from a dry run on a null arena.
 */

void        exact_forward_carve(struct exact *x, struct arena *a, float *saved);
void        exact_forward(const struct execution *exec, const struct stage *s,
                          const foci_io *io, float *saved);
size_t      exact_backward_bytes(const foci_plan *plan, const struct stage *s);
void        exact_backward(const struct execution *exec, const struct stage *s,
                           const foci_io *io, const float *saved, const foci_grads *g);
foci_status exact_advance(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, float *params);
void        exact_cost(const foci_plan *plan, const struct stage *s, foci_cost *c);
int exact_describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap);

/* Number the tiles of a sequence: keys, then the slots of each level. */
void exact_number_tiles(const struct exact *x, struct exact_seq *s, foci_slots *slots,
                        int64_t *slot_t0);
/* Whether blocks start at multiples of 64 in position: where tile tables are consulted,
 * and where distances come in tiles. */
bool exact_is_aligned(const struct exact *x);

#endif
