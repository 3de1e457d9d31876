/* exact.h -- exact attention in tiles, forward and backward: what its files share.
 *
 * Everything is turned over: 64 queries are the lanes of a block and scores are
 * s[key][query].  Maximum, sum and scale of a row of attention are then vectors,
 * and the five products of forward and backward are one kernel,
 *
 *     c[m][lanes] += sum over k of a(m, k) b[k][lanes],
 *
 * whose first operand is broadcast from rows as they are:
 *
 *     scores   s  [key][query] = K  [key][d]     Qt  [d][query]
 *     values   ot [dv][query] += V  [key][dv]^T  w   [key][query]
 *     dp          [key][query] = V  [key][dv]    dOt [dv][query]
 *     dv       [key][dv]      += w  [key][query] dO  [query][dv]
 *     dk       [key][d]       += ds [key][query] Q   [query][d]
 *     dqt      [d][query]     += K  [key][d]^T   ds  [key][query]
 *
 * Keys and values are packed once for each key/value head and execution (rounded,
 * mapped, padded, contiguous), queries block by block.  Time O(n^2 (d + dv)) on
 * full supports, memory O(n (d + dv)).
 *
 * A non-finite value must reach only the queries that see it, but 0 * inf is NaN:
 * in tiles where some pairs are hidden and an operand is not finite, products are
 * taken pair by pair (exact_pairs.c).
 */
#ifndef FOCI_EXACT_H
#define FOCI_EXACT_H

#include <math.h>

#include "engine/exact_source.h"
#include "plan/plan.h"
#include "state/state.h"

enum {
    MAX_PANEL = 256, /* keys in one turn of the exponential */
    STACK = 4,       /* tiles of gradients that are multiplied together, if they can */
    TILE = FOCI_TILE /* keys of a tile; LANES queries of a block are as many */
};

/* What is not finite about a tile of keys or a block of queries. */
enum { BAD_KEY = 1, BAD_VALUE = 2, BAD_QUERY = 1, BAD_GRAD = 2 };

struct exact_seq {
    struct seq s;
    int64_t    pos0;      /* position of query 0: nk - nq */
    int64_t    lead;      /* lanes before query 0 in the first block */
    int64_t    qt0, n_qt; /* its blocks, counted over all sequences */
    int64_t    kt0, n_kt; /* its tiles of keys, then of slots, likewise */

    const foci_mech  *mech;     /* with the length that masks are to know */
    const foci_slots *slots;    /* [n_levels] */
    const int64_t    *slot_t0;  /* [n_levels] first tile of a level */
    int               n_levels; /* of slots */
    int64_t           st0;      /* tiles of slots of the sequences before */
    uint8_t          *kinds;    /* its own table of tiles; NULL: the plan's serves */
    int64_t           n_rows;   /* query tiles of that table */
};

/* What positions come to, made once for an execution: exact_position.c. */
struct positions {
    float   *turns; /* [n_turns][dq] cosines and sines by position; NULL: no rope */
    int64_t  n_turns;
    float   *rel;         /* [heads][n_rel] biases by distance, in units of modify */
    int32_t *entry[2];    /* [n_rel] into the tables */
    int64_t  n_rel, rel0; /* distance 0 is at rel0 */
    float   *sums;        /* backward: diagonal sums */
    double  *fold;        /* [n_rel] */
};

/* A row for each distance, packed as keys are: exact_txl.c. */
struct distances {
    char  *rows, *sum; /* [heads][tiles of len_k] pieces */
    float *top; /* [heads][tiles][TILE] norm of the longest row of the tile so far */
};

/* Matrices that rows are multiplied by, of queries and of keys: exact_project.c. */
struct projections {
    float *by[2];   /* [heads][given][ldq] */
    float *back[2]; /* [heads][dq][ld_given] transposed, for the way back */
    float *d[2];    /* [heads][given][ldq] their gradients */
    float *wide;    /* [threads][TILE][ld_given] rows as they are given */
};

/* Learned slots: exact_mix.c. */
struct mixtures {
    float *keys, *values; /* [kv_heads][max_st][TILE] rows */
    char  *scratch;       /* [threads] pieces */
    size_t bytes;         /* of one */
};

/* One execution of one stage. */
struct exact {
    const foci_plan      *plan;
    const foci_problem   *p;
    const struct stage   *stage;
    const struct score   *score;
    const struct support *support;
    const struct kernels *k;
    const foci_io        *io;
    int                   kind;  /* a foci_weigh */
    bool                  bf16;  /* products on words */
    bool                  bare;  /* queries see slots alone, no keys */
    bool                  fused; /* forward, by exact_fused.c */

    /* Widths as they go into products, as packed for them, and of rows of floats; and of
     * rows of q and k as they are given. */
    int dq, dv, dq_pad, dv_pad, ldq, ldv;
    int given, ld_given;
    int per;   /* neighbours along a summed index in one element: words have two */
    int group; /* keys, and lanes, at which a causal tile is cut */
    int panel;

    /* Gradients of keys and values come in several sweeps and are summed in floats,
     * [kv_heads][batch][len_k] rows of ldq and ldv, before they are stored. */
    bool   collect;
    float *dk_rows, *dv_rows;
    float *dk_slots, *dv_slots; /* [kv_heads][max_st][TILE] rows, of slots */

    int64_t heads, head0, kv_heads, kv0, per_kv; /* of this stage */
    int64_t own; /* key/value heads that are made of each one that is given */
    int64_t max_seqs, max_qt, max_kt; /* by the plan */
    int64_t max_st;                   /* tiles of slots among max_kt */
    int64_t n_seqs, n_qt, n_kt;       /* of this execution */
    int64_t fold; /* sequences that are taken together: their weights are the same */

    struct order *order; /* labels and their sweeps (exact_order.h); NULL: none */

    struct exact_seq *seqs;
    int32_t          *seq_of_q, *seq_of_k; /* [n_qt], [n_kt] */
    foci_slots       *slots;               /* [max_seqs][n_levels] */
    int64_t          *slot_t0;             /* likewise */

    /* Tables of tiles made by the execution. */
    foci_mech *mechs;     /* [max_seqs] */
    uint8_t   *kinds;     /* of all sequences */
    uint8_t   *listed;    /* room for the tiles of a row */
    bool       by_cols;   /* they lie by key tile */
    bool       by_length; /* sequences of another length than the plan's have one */

    /* Packed keys and values, [kv_heads][max_kt] pieces: rows for scores and dp, and
     * what is summed over keys.  NULL: floats that lie as they should are read where
     * they are, and floats serve as both. */
    char  *keys, *values, *keys_sum, *values_sum;
    size_t key_size, value_size;
    float *norms,
        *top;       /* [kv_heads][max_kt][TILE] of keys, and of each tile the most */
    uint8_t *bad_k; /* [kv_heads][max_kt] */

    struct sources     from;
    struct positions   at;
    struct distances   far;
    struct projections projected;
    struct mixtures    mixed;
    bool               drops; /* some weights are dropped */
    float              kept;  /* factor of those that are not */

    int    together; /* blocks that forward takes at once */
    int    threads;
    char  *scratch; /* [threads] pieces */
    size_t scratch_bytes;
};

/* A block of queries of one head. */
struct block {
    const struct exact_seq *seq;
    int64_t                 h, kv; /* head, and key/value head within the stage */
    int64_t                 at; /* number of the block over all heads and sequences */
    int64_t i0;     /* query of lane 0; below 0 in a first block that leads */
    int     r0, r1; /* lanes that have a query */
    int64_t pos;    /* position of lane 0 */
};

/* exact.c */
void exact_geometry(struct exact *x, const foci_plan *plan, const struct stage *s);
void exact_seqs(struct exact *x, const foci_io *io, struct arena *a);
struct block exact_block(const struct exact *x, int64_t head, int64_t qt);
/* Blocks of a head, of sequences that are taken together the first one's; number i of
 * them; how many sequences go with it; and its block of the one number f. */
int64_t      exact_leads(const struct exact *x);
struct block exact_lead(const struct exact *x, int64_t head, int64_t i);
int64_t      exact_with(const struct exact *x, const struct exact_seq *s);
struct block exact_follow(const struct block *b, int64_t f);
/* Where what is saved of lane 0 of a block stands: [heads][batch][len_q]. */
int64_t exact_saved_at(const struct exact *x, const struct block *b);
int     exact_thread(void);
/* Threads for so many pieces of work: few where waking more would take longer. */
int    exact_threads(const struct exact *x, int64_t jobs, double flops);
double exact_head_scale(const struct exact *x, int64_t h);

/* The head of the tensors that key/value head kv of the stage is made of. */
static inline int64_t exact_given_head(const struct exact *x, int64_t kv)
{
    return x->kv0 + kv / x->own;
}

/* Whether keys and values need no packing. */
bool exact_keys_in_place(const struct exact *x);
bool exact_values_in_place(const struct exact *x);

/* The first operand of a product: element (i, t) at at[i row + t col].  Elements are
 * floats or words, four bytes each. */
struct operand {
    const char *at;
    int64_t     row, col;
};

/* Tile t of the keys or values of a sequence, by rows or to be summed over keys. */
struct operand exact_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t);
struct operand exact_values(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t);
struct operand exact_keys_sum(const struct exact *x, const struct exact_seq *s,
                              int64_t kv, int64_t t);
struct operand exact_values_sum(const struct exact *x, const struct exact_seq *s,
                                int64_t kv, int64_t t);

/* Words that are packed to be summed over rows. */
struct operand exact_summed(const struct exact *x, const char *at, int d_pad);

/* The same from row i (or, of a sum, from summed row t) on. */
static inline struct operand operand_from(struct operand a, int64_t i, int64_t t)
{
    a.at += (i * a.row + t * a.col) * 4;
    return a;
}

/* c[m][n] (+)= a b[k][n]: floats or words as the execution has it. */
static inline void exact_product(const struct exact *x, float *c, int64_t ldc,
                                 struct operand a, const void *b, int64_t ldb, int m,
                                 int n, int k, int add)
{
    const void *at = a.at;

    if (x->bf16)
        x->k->gemm_bf16(c, ldc, at, a.row, a.col, b, ldb, m, n, k, add);
    else
        x->k->gemm_f32(c, ldc, at, a.row, a.col, b, ldb, m, n, k, add);
}

/* The same of 64 columns where tiles of `a` follow one another and the next one, so many
 * rows on, is wanted soon: floats of long sequences come from the third cache. */
static inline void exact_product_ahead(const struct exact *x, float *c,
                                       struct operand a, const void *b, int m, int k,
                                       int add, const char *ahead)
{
    if (x->bf16) {
        x->k->gemm_bf16(c, LANES, (const void *)a.at, a.row, a.col, b, LANES, m, LANES,
                        k, add);
        return;
    }
    x->k->panel_f32(&(struct panel_f32){ .out = c,
                                         .sums = add ? c : NULL,
                                         .a = (const float *)(const void *)a.at,
                                         .b = b,
                                         .ldo = LANES,
                                         .lds = LANES,
                                         .ra = a.row,
                                         .ca = a.col,
                                         .m = m,
                                         .k = k,
                                         .ahead = ahead,
                                         .twice = true });
}

/* Whether there is a sweep in natural order. */
static inline bool exact_natural(const struct exact *x)
{
    return !x->stage->order.label || x->support->n_rows;
}

/* Logits are in base 2 where they are exponents. */
#define LOG2_E 1.44269504088896340736

static inline double exact_unit_of(const struct exact *x)
{
    return x->kind == FOCI_RELU2 ? 1 : LOG2_E;
}

/* Whether a row whose saved normaliser is this has seen no key.  Such a row brings no
 * gradient of a parameter, whatever stands in it. */
static inline bool exact_saw_nothing(const struct exact *x, float norm)
{
    return x->kind == FOCI_RELU2 ? norm == 0 : norm == INFINITY;
}

/* Where the rows of a tile stand in their sequence: row i at first + list[i], or, where
 * list is NULL, at first + i. */
struct places {
    int64_t        first;
    const int32_t *list;
};

static inline int64_t places_at(struct places at, int i)
{
    return at.first + (at.list ? at.list[i] : i);
}

/* exact_describe.c, exact_forward.c, exact_backward.c, exact_advance.c: functions of the
 * engine.  Sizes are by a dry run on a null arena. */
int exact_describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap);
void   exact_forward_take(struct exact *x, struct arena *a, float *saved);
void   exact_forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     float *saved);
size_t exact_backward_bytes(const foci_plan *plan, const struct stage *s);
foci_status exact_advance(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, float *params);
void exact_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    const float *saved, const foci_grads *g);

#endif
