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
    int                   kind; /* a foci_weigh */
    bool                  bf16; /* products on words */
    bool                  bare; /* queries see slots alone, no keys */

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

/* exact_describe.c: one of the functions of the engine. */
int exact_describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap);
void         exact_seqs(struct exact *x, const foci_io *io, struct arena *a);
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

/* exact_rows.c: the rows of a block. */
void exact_visible(const struct exact *x, const struct block *b, int64_t visible[LANES]);
/* In the sweep in natural order alone. */
void exact_visible_natural(const struct exact *x, const struct block *b,
                           int64_t visible[LANES]);
/* Whether anybody asks for them. */
bool exact_counts(const struct exact *x, bool backward);
/* The factors of q.k as modify and as weigh want them, and the rows' part alone. */
void exact_factors(const struct exact *x, const struct block *b, const int64_t *visible,
                   float *plain, float *f, float *mul);
/* relu2's 1/n. */
void exact_shares(const struct exact *x, const int64_t *visible, float *share);

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
/* Whether logits have a bias that is given, of slots, or of sources. */
bool exact_biased(const struct exact *x);
/* That bias[n][LANES] of the tile, 0 in lanes without a query; that of sources is there
 * already. */
void exact_bias(const struct exact *x, const struct block *b, int64_t t, int n,
                float *bias);

/* Lanes that have a query. */
uint64_t exact_lanes(const struct block *b);

/* Keys, or slots, of tile t. */
int               exact_slots_in(const struct exact_seq *s, int64_t t);
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

/* exact_slots.c: tiles of slots. */
int64_t exact_max_slot_tiles(const struct exact *x);
/* The level of tile t (-1: keys), and the first slot of it. */
int     exact_level(const struct exact_seq *s, int64_t t);
int64_t exact_slot_of(const struct exact_seq *s, int level, int64_t t);
/* Slots of a level that a causal query at `pos` may see, those before some number; and
 * the position from which on a slot is shown. */
int64_t exact_slots_seen(const struct exact_seq *s, int level, int64_t pos);
int64_t exact_slot_shown(const struct exact_seq *s, int level, int64_t slot);
/* Keys as they go into scores, or values, of a tile of keys or slots, as floats; room
 * for another tile. */
void exact_load_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, float *tile, float *room);
void exact_load_values(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *tile, float *room);
/* Whether logits of some slots grow by the log of their number of keys; and bias[n]
 * [LANES] of those of tile t. */
bool exact_counted(const struct exact *x);
void exact_slot_bias(const struct exact_seq *s, int64_t t, int n, float *bias);
/* Keep the gradients of a tile of slots, and add to those of up to a tile of keys from j0
 * on their share. */
void exact_keep_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                      int64_t t, const float *dk, const float *dv);
void exact_share_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j0, float *dk, float *dv);

/* exact_live.c: tables of sequences of another length than the plan's. */
void        exact_live_take(struct exact *x, struct arena *a);
void        exact_live_mech(struct exact *x, struct exact_seq *s, int64_t i);
uint8_t    *exact_live_make(const struct exact *x, struct exact_seq *s, uint8_t *at);
struct live exact_live_row(const struct exact *x, const struct exact_seq *s,
                           int64_t row);
struct live exact_live_col(const struct exact *x, const struct exact_seq *s, int64_t t);
int         exact_live_kind(struct live l, int64_t t);

/* exact_pack.c */
/* Rows of q, o or d_o of a block as floats, zero in lanes without a query. */
/* Whether queries, keys and values are packed from bf16 as they are stored, without a
 * turn through floats. */
bool exact_as_stored(const struct exact *x);
/* Rows of a block as they are stored, *ld apart, from lane 0 on; where the block does not
 * start with a query they are copied to room for a tile of them. */
const uint16_t *exact_stored_block(const struct exact *x, const struct block *b,
                                   const void *base, const foci_layout *l, int d,
                                   void *room, int64_t *ld);
void exact_load_block(const struct exact *x, const struct block *b, const void *base,
                      const foci_layout *l, int d, int ld, float *tile);
/* Keys or values of a tile as floats; what lies beyond the keys is zero. */
void exact_load_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, const void *base, const foci_layout *l, int d, int ld,
                     float *tile);
/* n rows of keys or values from j on. */
void exact_load_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j, int n, const void *base, const foci_layout *l, int d,
                     int ld, float *tile);
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

/* What the maps of the rows of a tile leave for the way back. */
struct mapped {
    _Alignas(64) float norm[TILE], sd[TILE];
};

/* Rows of mean 0 and variance 1; sd[n] is what they were divided by. */
void exact_standard(float *tile, int ld, int d, int n, float *sd);
/* Queries of a block as they go into scores; so are n keys from j on of a sequence. */
void exact_load_queries(const struct exact *x, const struct block *b, float *tile,
                        struct mapped *m);
void exact_load_mapped(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j, int n, float *tile, struct mapped *m);
/* Whether rows of q and k are changed before they meet. */
bool exact_maps(const struct exact *x);
/* Change n rows tile[n][ldq] of queries, or of keys. */
void exact_map(const struct exact *x, float *tile, int n, struct places at, bool keys,
               struct mapped *m);
/* From the gradient d[n][ldq] of changed rows to that of the rows as given, in place;
 * tile holds the changed rows, and is spoilt. */
void exact_map_back(const struct exact *x, float *d, float *tile, int n,
                    struct places at, bool keys, const struct mapped *m);
/* Round to bf16 where products do; room for TILE rows of ld. */
void exact_round(const struct exact *x, float *tile, int ld, int d, void *room);
/* Times the factor of weights that dropout leaves, rounded as products do. */
void exact_raise(const struct exact *x, float *tile, int ld, int d, void *room);
/* Pack one tile of keys and values; scratch: two tiles of floats. */
void exact_pack_tile(const struct exact *x, int64_t kv, int64_t kt, float *tile,
                     float *room);
bool exact_finite(const struct exact *x, const float *tile, int ld, int d, int n);

/* The way back from cols[d][LANES], times factor[LANES]. */
void exact_store_block(const struct exact *x, const struct block *b, void *base,
                       const foci_layout *l, const float *cols, int d, int ld,
                       const float *factor, float *tile);
/* And from rows tile[LANES][ld]. */
void exact_store_rows(const struct exact *x, const struct block *b, void *base,
                      const foci_layout *l, const float *tile, int d, int ld);

/* Pack a tile of floats into whichever of rows and sum is wanted, as piece number at. */
void exact_pack(const struct exact *x, const float *tile, int ld, int d_pad, int n,
                char *rows, char *sum, size_t size, size_t at);

/* exact_position.c */
void exact_position_take(struct exact *x, struct arena *a);
void exact_position_make(const struct exact *x);
/* Turn n rows [n][ldq] by their positions, or back. */
void exact_turn(const struct exact *x, float *tile, int n, struct places at, bool back);

/* Biases of n keys for a block, row j at at + j ld; at NULL: none. */
struct bias_rows {
    const float *at;
    int64_t      ld;
};
/* By distance, of tile t, and others: room[TILE][LANES] where there are such.  Those of
 * sources stand in it already. */
struct bias_rows exact_tile_bias(const struct exact *x, const struct block *b,
                                 int64_t t, int n, float *room);
/* What all biases are multiplied by: where scores are capped nothing, else the unit of
 * exponents, which then is part of the factors. */
double exact_bias_unit(const struct exact *x);
/* The largest bias by distance that each lane meets, where all keys are seen. */
void exact_bias_top(const struct exact *x, const struct block *b, float *top);
/* bias[n][LANES] += biases by distance, of keys and queries at any places. */
void exact_bias_pairs(const struct exact *x, int64_t h, struct places q,
                      struct places k, int n, float *bias);

/* s[n][LANES] as logits: scaled, biased, capped, hidden where `seen` says so. */
void exact_modify(const struct exact *x, float *s, int n, const float *plain,
                  const float *f, struct bias_rows bias, const uint64_t *seen);
/* dbias += ds[n][LANES] of tile t, where a gradient of the given bias is wanted;
 * room[LANES][TILE]. */
void exact_given_back(const struct exact *x, const struct block *b, int64_t t, int n,
                      const float *ds, float *room, float *dbias);

/* Gradients of the tables: room of so many parts; ds[n][LANES] of `dtype`. */
void exact_position_take_back(struct exact *x, int64_t parts, struct arena *a);
void exact_position_clear(const struct exact *x, int64_t parts);
void exact_bias_back(const struct exact *x, const struct block *b, int64_t t, int n,
                     const void *ds, int dtype, int64_t part);
void exact_bias_pairs_back(const struct exact *x, int64_t h, const struct exact_seq *s,
                           struct places q, uint64_t lanes, struct places k, int n,
                           const float *ds, int64_t part);
void exact_position_params(const struct exact *x, int64_t parts, float *dparams);

/* exact_shaw.c: vectors beside keys and values.  All do nothing where there are none.
 * Pairs are those of a block with keys at any places. */
struct shaw {
    float *cols; /* [ldq][LANES] queries */
    float *met;  /* [vectors][LANES] q . aK */
    float *sums; /* [vectors][LANES] of weights; NULL: none beside values */
    float *tile; /* [TILE][LANES] */
};
bool        exact_has_shaw(const struct exact *x);
struct shaw exact_shaw_take(const struct exact *x, struct arena *a);
/* q[LANES][ldq] of head h, as maps leave them; bound[LANES] of their products. */
void exact_shaw_begin(const struct exact *x, int64_t h, const float *q, struct shaw *w,
                      float *bound);
void exact_shaw_scores(const struct exact *x, const struct block *b, int64_t t, int n,
                       const struct shaw *w, float *s);
/* Weights as floats, or as words of two keys. */
void exact_shaw_weights(const struct exact *x, const struct block *b, int64_t t, int n,
                        struct shaw *w, const float *weights, const uint32_t *words);
void exact_shaw_shrink(const struct exact *x, struct shaw *w, const float *shrink);
void exact_shaw_values(const struct exact *x, int64_t h, const struct shaw *w,
                       float *ot);
void exact_shaw_scores_pairs(const struct exact *x, struct places q, struct places k,
                             int n, const struct shaw *w, float *s);
void exact_shaw_weights_pairs(const struct exact *x, struct places q, struct places k,
                              int n, struct shaw *w, const float *weights,
                              const uint32_t *words);

struct shaw_back {
    int64_t parts;
    float  *met_k, *met_v;   /* [heads][max_qt][vectors][LANES] q . aK, do . aV */
    float  *sums_k, *sums_v; /* [parts] of the same: of ds, and of weights */
    float  *d_k, *d_v;       /* [heads][vectors][ld] */
};
void exact_shaw_take_back(const struct exact *x, int64_t parts, struct shaw_back *k,
                          struct arena *a);
/* room[LANES][ld] */
void exact_shaw_prepare_q(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *q, float *room);
void exact_shaw_prepare_g(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *g, float *room);
void exact_shaw_scores_back(const struct exact *x, const struct block *b, int64_t t,
                            int n, const struct shaw_back *k, float *s, float *dp);
/* w and ds [n][LANES] as floats. */
void exact_shaw_sums_back(const struct exact *x, const struct block *b, int64_t t,
                          int n, const struct shaw_back *k, int64_t part,
                          const float *w, const float *ds);
/* The same, in part 0, of lanes from anywhere: n of them, lane i in slot number slot[i]
 * of all blocks' lanes, with that share of its row's gradient and with factors of its
 * own. */
struct shaw_lanes {
    struct places  at;
    const int64_t *slot;
    const float   *share, *own;
    int            n;
};
void exact_shaw_scores_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                  struct places keys, int n, const struct shaw_back *k,
                                  float *s, float *dp);
void exact_shaw_sums_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                struct places keys, int n, const struct shaw_back *k,
                                const float *w, const float *ds);
/* Zero the sums of a part for block number `at`. */
void exact_shaw_begin_back(const struct exact *x, const struct shaw_back *k,
                           int64_t part, int64_t at);
/* dqt += what the vectors beside the keys bring; met[part heads max_qt]: the part has
 * been begun. */
void exact_shaw_finish(const struct exact *x, const struct block *b,
                       const struct shaw_back *k, const uint8_t *met, float *dqt);
/* A block's share of the gradients of the vectors: q with the factors of rows. */
void exact_shaw_clear(const struct exact *x, const struct shaw_back *k, int64_t head);
void exact_shaw_vectors(const struct exact *x, const struct block *b,
                        const struct shaw_back *k, const float *q, const float *g);
void exact_shaw_params(const struct exact *x, const struct shaw_back *k, float *dparams);

/* exact_txl.c: a row for each distance.  All do nothing where there are none. */
struct txl {
    float  *tile;
    void   *q;       /* q + w as columns */
    float  *band[2]; /* [TILE][LANES] products with tiles of R */
    int64_t held;    /* of tile number `held`, in the first */
};
bool exact_has_txl(const struct exact *x);
void exact_txl_take(struct exact *x, struct arena *a, bool back);
/* R is packed tile by tile, so many in all; tile[TILE][ldq]. */
int64_t    exact_txl_tiles(const struct exact *x);
void       exact_txl_make(const struct exact *x, int64_t at, float *tile);
void       exact_add_u(const struct exact *x, int64_t h, float *q);
struct txl exact_txl_room(const struct exact *x, struct arena *a);
/* q[LANES][ldq] gets u; bound[LANES] of products grows by that of those with R. */
void exact_txl_begin(const struct exact *x, const struct block *b, float *q,
                     struct txl *w, float *bound);
void exact_txl_scores(const struct exact *x, const struct block *b, int64_t t, int n,
                      struct txl *w, float *s);

struct txl_back {
    int64_t  parts;
    char    *cols, *rows; /* [heads][max_qt] pieces: q + w */
    size_t   size;
    float   *dr;       /* [parts][heads][max_kt][TILE][ldq] */
    uint8_t *dr_begun; /* [parts][heads][max_kt]: there is something in it */
    double  *d_u;      /* [heads][max_qt][dq] */
    double  *d_w;      /* [parts] of the same */
};
struct txl_room { /* of a thread */
    float  *tile;
    float  *band[2]; /* [TILE][LANES] products with tiles of R */
    int64_t held;    /* of tile number `held`, all lanes, in the first; -1: none */
    char   *ds;      /* [run + 2][TILE][LANES] by key: a run and a tile at each end */
    char   *spare;   /* one more */
    int64_t given;   /* tile of R to which the tile of keys last met is due; -1: none */
    char   *last;    /* ds of that */
    char   *rows;    /* ds by distance, floats or bf16 */
    char  *words; /* the same; or [STACK][TILE / 2][LANES] words of tiles that follow */
    int    waiting; /* of them, the first ones, are still to be multiplied */
    float *dqt;     /* [ldq][LANES] ds by R */
    bool   begun;   /* there is something in it */
};
void exact_txl_take_back(const struct exact *x, int64_t parts, struct txl_back *k,
                         struct arena *a);
struct txl_room exact_txl_room_back(const struct exact *x, int64_t run, struct arena *a);
/* Where ds[TILE][LANES] of tile i of a run of keys is to lie; and a copy to be changed. */
void *exact_txl_place(const struct exact *x, const struct txl_room *r, int64_t i);
void *exact_txl_copy(const struct exact *x, const struct txl_room *r, const void *ds);
/* q[LANES][ldq] gets u; lanes whose bit of `blind` is set see nothing, mul[LANES] are the
 * factors of rows. */
void exact_txl_prepare(const struct exact *x, const struct block *b,
                       const struct txl_back *k, uint64_t blind, const float *mul,
                       float *q, struct txl_room *r);
void exact_txl_clear(const struct exact *x, const struct txl_back *k);
/* With `more`, the block meets tile t - 1 next. */
void exact_txl_scores_back(const struct exact *x, const struct block *b, int64_t t,
                           int n, bool more, const struct txl_back *k,
                           struct txl_room *r, float *s);
/* ds[n][LANES], floats or bf16, at its place. */
void exact_txl_back(const struct exact *x, const struct block *b, int64_t t, int n,
                    const struct txl_back *k, struct txl_room *r, int64_t part,
                    void *ds);
/* The block has met all tiles of keys that stay: dqt += ds by R. */
void exact_txl_end_back(const struct exact *x, const struct block *b,
                        const struct txl_back *k, const float *mul, struct txl_room *r,
                        int64_t part, float *dqt);
void exact_txl_begin_back(const struct exact *x, const struct txl_back *k, int64_t part,
                          int64_t at);
/* Shares of u and w, from the block's whole dqt; the result is theirs in the gradient of
 * factors. */
double exact_txl_finish(const struct exact *x, const struct block *b,
                        const struct txl_back *k, const uint8_t *met, const float *mul,
                        struct txl_room *r, float *dqt);
/* Gradients of u and w, and of R: tile `at` of exact_txl_tiles(), from all sequences and
 * parts. */
void exact_txl_params(const struct exact *x, const struct txl_back *k, float *dparams);
void exact_txl_params_rows(const struct exact *x, const struct txl_back *k, int64_t at,
                           float *dparams);

/* exact_project.c: rows of q and k times matrices of their heads.  Heads are counted in
 * the stage. */
bool exact_projects(const struct exact *x);
void exact_project_take(struct exact *x, struct arena *a, bool back);
void exact_project_make(const struct exact *x, bool back);
/* The thread's rows as they are given. */
float *exact_wide(const struct exact *x);
/* to[n][ldq] = wide[n][ld_given] times the matrix; and wide = d[n][ldq] times the
 * transposed one. */
void exact_project(const struct exact *x, int64_t head, bool keys, const float *wide,
                   int n, float *to);
void exact_project_back(const struct exact *x, int64_t head, bool keys, const float *d,
                        int n, float *wide);
/* The gradient of a matrix takes d[n][ldq] of rows wide[n][ld_given], which are spoilt. */
void exact_project_sum(const struct exact *x, int64_t head, bool keys, float *wide,
                       const float *d, int n);
void exact_project_params(const struct exact *x, float *dparams);

/* exact_mix.c: learned slots.  They are made in so many jobs, which any thread may do, or
 * all of a sequence and head by one. */
void    exact_mix_take(struct exact *x, struct arena *a);
int64_t exact_mix_jobs(const struct exact *x);
void    exact_mix(const struct exact *x, int64_t jobs, int64_t i);
void    exact_mix_own(const struct exact *x, int64_t kv, const struct exact_seq *s);
/* Those of a tile, once they are made. */
void exact_mix_load(const struct exact *x, const struct exact_seq *s, int64_t kv,
                    int64_t t, bool values, float *tile);
/* The way back, as exact_share_slots(); and the gradients of the matrices, in jobs. */
void    exact_mix_share(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t j0, float *dk, float *dv);
int64_t exact_mix_params_jobs(const struct exact *x);
void    exact_mix_params(const struct exact *x, int64_t i, float *dparams);

/* exact_dropout.c */
/* The hash of the seed, batch entry b, head h and row i of q; of the lanes of a block. */
uint64_t exact_drop_key(const struct exact *x, int64_t b, int64_t h, int64_t row);
void     exact_drop_keys(const struct exact *x, const struct block *b, uint64_t *keys);
/* The number of the first key of tile t, or of its first slot: slots of level l are
 * counted from 2^40 (l + 1) on. */
int64_t exact_drop_number(const struct exact_seq *s, int64_t t);
/* Bits of the weights that stay, for n keys from number `first` on. */
void exact_drop_keep(const struct exact *x, const uint64_t *keys, int64_t first, int n,
                     uint64_t *keep);

/* exact_pairs.c: products over the visible pairs of a tile, one by one.  Weights are
 * floats, or words of two keys; the other is NULL. */
void exact_pairs_forward(const struct exact *x, const struct block *b, int64_t t, int n,
                         const uint64_t *seen, const float *w, const uint32_t *words,
                         float *tile, float *room, float *ot);

/* The same with the values at hand: lanes r0 to r1, values tile[n][ldv]. */
void exact_pairs_values(const struct exact *x, int r0, int r1, int n,
                        const uint64_t *seen, const float *w, const uint32_t *words,
                        const float *tile, float *ot);

/* w and ds [n][LANES] as floats or as bf16. */
struct exact_pairs {
    const float    *w, *ds;
    const uint16_t *w16, *ds16;
    const float    *mul;           /* [LANES] factors of the rows */
    const uint64_t *stop;          /* [n] lanes that give no gradient; NULL: none */
    float          *dk, *dv, *dqt; /* [n][ldq], [n][ldv], [dq][LANES] */
};
void exact_pairs_backward(const struct exact *x, const struct block *b, int64_t t,
                          int n, const uint64_t *seen, const struct exact_pairs *pairs,
                          const void *d_o, float *tile, float *tile2);

/* exact_forward.c, exact_backward.c: sizes by a dry run on a null arena. */
void   exact_forward_take(struct exact *x, struct arena *a, float *saved);
void   exact_forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     float *saved);
size_t exact_backward_bytes(const foci_plan *plan, const struct stage *s);
foci_status exact_advance(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, float *params);
void exact_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    const float *saved, const foci_grads *g);

#endif
