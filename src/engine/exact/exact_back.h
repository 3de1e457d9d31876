/* exact_back.h -- the backward pass: what its files share.
 *
 * exact_backward.c has jobs and their order, exact_back_memory.c memory;
 * exact_back_block.c prepares blocks of queries and finishes their sums;
 * exact_back_keys.c keeps a run of key tiles while blocks go by; exact_back_tile.c
 * takes one tile and one block; exact_back_panel.c takes several of both in one kernel.
 */
#ifndef FOCI_EXACT_BACK_H
#define FOCI_EXACT_BACK_H

#include "engine/exact/exact_product.h"
#include "engine/exact/order/exact_order.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_source_back.h"
#include "engine/exact/terms/exact_txl.h"

enum {
    MAX_RUN = 16, /* tiles of keys of a run */
    PIECES = 16   /* jobs there should be at least, whatever the number of threads */
};

/* Per-row data of a block: factors of q.k (exact_factors()), the
 * logarithm of the normaliser, delta = d_o . o, and the block's share in gradients
 * of parameters. */
struct back_rows {
    _Alignas(64) float plain[LANES], f[LANES], mul[LANES], norm[LANES], delta[LANES];
    double   d_factor, d_sink;
    unsigned nonfinite; /* NONFINITE_QUERY, NONFINITE_GRAD */
};

/* Sums over the keys of each row: of the gradients of its logits, and of its weights
 * times the scores that factors multiply.  The former should be 0, but for the sink,
 * and is not where rounding of the output changed delta (see add_param_shares()). */
struct back_row_sums {
    _Alignas(64) float ds[LANES], mean[LANES];
};

struct exact_back {
    struct exact      x;
    const foci_grads *g;
    const float      *saved;
    int64_t           parts; /* of the key tiles; each has its own dq */

    /* [heads][max.qt] queries and d_o, as columns (the second operand of scores and dp)
     * and as rows (of dk and dv). */
    char                 *q_cols, *q_rows, *g_cols, *g_rows;
    size_t                q_size, g_size;
    struct back_rows     *rows;
    float                *dqt;   /* [parts][heads][max.qt][d.ldq][LANES] */
    uint8_t              *begun; /* [parts][heads][max.qt] dqt is initialised */
    struct back_row_sums *sums;  /* [parts][heads][max.qt]; NULL: not wanted */

    struct shaw_back   shaw;
    struct txl_back    txl;
    struct source_back source;
};

/* Operands of one tile and block in the layout of the separate kernels, where all
 * others are in the layout of the panel kernel. */
struct back_operands {
    char *keys, *values;
    char *q_cols, *q_rows, *g_cols, *g_rows;
};

/* Scratch of one thread. */
struct back_scratch {
    float    *tile, *tile2; /* [TILE][max ld] */
    float    *tile3;        /* [TILE][d.ldq], where queries are keys too */
    float    *s, *dp;       /* [TILE][LANES] scores, then weights; dp, then ds */
    float    *scores; /* [TILE][LANES] what factors multiply, where they are learned */
    uint16_t *w16, *ds16; /* [TILE][LANES] weights and ds as bf16 */
    uint32_t *ds_pairs;   /* [STACK][TILE / 2][LANES] ds, bf16 pairs of two keys */
    int       pending;    /* tiles of these, the last ones, still to be multiplied */
    float    *dk, *dk_head, *dv; /* [run][TILE] rows; dv for each folded sequence */
    float    *sum_k, *sum_v;     /* [TILE] rows of the caller's heads */
    float    *bias;              /* [TILE][LANES] */
    uint64_t *seen, *stop, *dropout_mask; /* [TILE] lanes */
    void     *panel;      /* scratch of the panel kernel; NULL: not used */
    uint64_t *panel_seen; /* [run][blocks][TILE] lanes */

    struct back_operands    apart;
    struct txl_back_scratch txl;
    struct source_scratch   source;
};

/*
 * Memory (exact_back_memory.c)
 */

/* The memory of an execution; the scratch of a thread. */
void                back_carve(struct exact_back *k, struct arena *a);
struct back_scratch back_scratch_of(const struct exact *x, int thread);
/* Tiles of keys of a run.  Long runs have fewer ends, where work is lost, but make
 * fewer jobs. */
int64_t back_tiles_of_run(const struct exact *x);

/*
 * Blocks of queries (exact_back_block.c)
 */

/* Round and pack a block, and find delta. */
void back_prepare(struct exact_back *k, const struct exact_block *b,
                  struct back_scratch *r);
/* dq of a block in one part: its address; and the same, initialised with zeros. */
float *back_dqt_of(const struct exact_back *k, int64_t part, int64_t block);
float *back_dqt(const struct exact_back *k, int64_t part, int64_t block);
/* Whether sums over the keys of rows are wanted, and those of a part and block. */
bool                  back_wants_sums(const struct exact *x);
struct back_row_sums *back_sums_of(const struct exact_back *k, int64_t part,
                                   int64_t block);
/* A block has met all keys: add up its parts and store dq. */
void back_finish(const struct exact_back *k, const struct exact_block *b,
                 struct back_scratch *r);
/* Gradients of Shaw's vectors of a head, block by block. */
void back_shaw_vectors(const struct exact_back *k, int64_t head, struct back_scratch *r);
/* Gradients of the projections of a head, of queries or of keys, once dq and dk are
 * stored. */
void back_project(const struct exact_back *k, int64_t head, bool keys);
/* Add the shares of blocks, in order, to the gradients of parameters. */
void back_params(const struct exact_back *k);

/*
 * One tile of keys and one block of queries (exact_back_tile.c)
 */

struct back_tile {
    const struct exact_back  *k;
    const struct exact_block *b;
    struct back_scratch      *r;
    int64_t                   t, kt;
    int                       n;
    struct operand            key, value, key_sum;
    int64_t                   part;
    float                    *dqt, *dk, *dv;
    int64_t fold; /* sequences computed together, of which b is the first's */
    bool    more; /* the block meets tile t - 1 next */

    const struct back_operands *apart; /* NULL: operands are where they are for all */
};

void back_tile(struct back_tile *s, int32_t mask);
/* Set where gradients of logits go. */
void back_set_ds(const struct exact *x, struct back_scratch *r, void *at);

/*
 * Runs of key tiles (exact_back_keys.c)
 */

/* Tiles of keys that stay while blocks go by: n of them from t on. */
struct back_run {
    const struct exact_back *k;
    const struct exact_seq  *s;
    int64_t                  kv, t, n, part;
};

/* dk and dv of a run, from all blocks that see it. */
void back_keys(const struct back_run *u, struct back_scratch *r);
/* The row of key j of a sequence in x->grads. */
int64_t back_key_row(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j);
/* Store the gradients of keys that were collected from several sweeps or heads, in
 * back_store_jobs() jobs. */
int64_t back_store_jobs(const struct exact_back *k);
void    back_store(const struct exact_back *k, int64_t job, struct back_scratch *r);

/*
 * Panels (exact_back_panel.c)
 */

/* A run and several blocks; mask[i][j] is that of tile i and block j. */
struct back_panel {
    const struct back_run *run;
    struct exact_block     block[PANEL_TILES];
    int                    n;
    int32_t                mask[PANEL_TILES][PANEL_TILES];
    bool                   meets[PANEL_TILES][PANEL_TILES];
};

/* Whether the execution uses the panel kernel; then its operands are packed for it. */
bool back_has_panels(const struct exact *x);
void back_panel_carve(const struct exact *x, int64_t run, struct arena *a,
                      struct back_scratch *r);
/* Convert a block, and a tile of keys and values, from the layout of the separate kernels
 * to that of the panel kernel, in place; and convert back, to `to`. */
void back_panel_pack_block(const struct exact_back *k, const struct exact_block *b,
                           void *scratch);
void back_panel_pack_keys(const struct exact *x, int64_t kv, int64_t kt, void *scratch);
void back_panel_unpack(const struct back_run *u, const struct exact_block *b, int64_t t,
                       const struct back_operands *to);
/* Whether blocks are packed from stored rows (exact_pack.h); and pack one. */
bool back_packs_stored(const struct exact *x, const struct back_scratch *r);
void back_panel_pack_stored(const struct exact_back *k, const struct exact_block *b,
                            void *scratch);
/* Whether all operands of a panel, of a block and of a run are finite. */
bool back_panel_finite(const struct back_panel *w);
bool back_block_finite(const struct back_run *u, const struct exact_block *b);
bool back_tiles_finite(const struct back_run *u);
/* All tiles and blocks of a panel; the operands of the next one are prefetched. */
void back_panel(const struct back_panel *w, const struct back_panel *next,
                struct back_scratch *r);

#endif
