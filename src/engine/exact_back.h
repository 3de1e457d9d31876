/* exact_back.h -- gradients of exact attention: what the files of the backward pass share.
 *
 * exact_backward.c has its memory and its order, exact_back_block.c what is done to blocks
 * of queries before and after, exact_back_keys.c the tiles of keys that stay,
 * exact_back_meet.c the meeting of a tile and a block, and exact_back_panel.c that of
 * several of both.
 */
#ifndef FOCI_EXACT_BACK_H
#define FOCI_EXACT_BACK_H

#include "engine/exact_order.h"
#include "engine/exact_shaw.h"
#include "engine/exact_txl.h"

enum {
    MAX_RUN = 16, /* tiles of keys that stay at a time */
    PIECES = 16   /* of work there should be, some, whatever the number of threads */
};

/* Rows of a block, and what of it is not finite. */
struct back_rows {
    _Alignas(64) float plain[LANES], f[LANES], mul[LANES], norm[LANES], delta[LANES];
    double   d_factor, d_sink; /* its share of the gradients of parameters */
    unsigned bad;
};

/* Sums over the keys of each row: of gradients of logits, and of the scores that factors
 * multiply, by weights.  The former should be 0, but for the sink, and is not where the
 * output that delta is made of was rounded; see share_params. */
struct row_sums {
    _Alignas(64) float ds[LANES], mean[LANES];
};

struct back {
    struct exact      x;
    const foci_grads *g;
    const float      *saved;
    int64_t           parts;
    /* [heads][max_qt] pieces: queries and d_o as columns (first lanes) and as rows. */
    char             *q_cols, *q_rows, *g_cols, *g_rows;
    size_t            q_size, g_size;
    struct back_rows *rows;
    float            *dqt;  /* [parts][heads][max_qt][ldq][LANES] */
    struct row_sums  *sums; /* [parts][heads][max_qt], where they are wanted; or NULL */
    uint8_t          *met;  /* [parts][heads][max_qt]: the part's dqt has been begun */

    struct shaw_back   shaw;
    struct txl_back    txl;
    struct source_back from;
};

/* Operands of a meeting as products take them, where they are packed as tiles. */
struct back_words {
    char *keys, *values;
    char *q_cols, *q_rows, *g_cols, *g_rows;
};

/* Scratch of one thread. */
struct back_room {
    float    *tile, *tile2; /* [TILE][max ld] */
    float    *tile3;        /* [TILE][ldq], where keys are shared */
    float    *s, *dp;       /* [TILE][LANES] */
    float    *scores; /* [TILE][LANES] what factors multiply, where they are learned */
    uint16_t *w16, *ds16;     /* [TILE][LANES] */
    uint32_t *words;          /* [STACK][TILE / 2][LANES] ds of tiles that follow */
    int       waiting;        /* of them, the last ones, are still to be multiplied */
    float *dk, *dk_head, *dv; /* [run][TILE] rows, dv of each sequence taken together */
    float *all_k, *all_v;     /* [TILE] rows as given, of several heads */
    float *bias;
    uint64_t *seen, *stop, *keep;
    void     *panel; /* scratch of panels, where there are such, and what is seen of */
    uint64_t *panel_seen;  /* each of their tiles by each block, [TILE] */
    struct back_words own; /* for a meeting apart from panels */

    struct txl_room    txl;
    struct source_room from;
};

/*
 * Blocks of queries (exact_back_block.c)
 */

/* Round, pack, and find delta = d_o . o of a block. */
void back_prepare(struct back *k, const struct block *b, struct back_room *r);
/* Where a part has its dq of a block. */
float *back_dqt_of(const struct back *k, int64_t part, int64_t block);
/* A part's dq of a block, zero at first: many parts never meet most blocks. */
float *back_dqt(const struct back *k, int64_t part, int64_t block);
/* Whether sums over the keys of rows are wanted, and where a part has those of a block. */
bool             back_wants_sums(const struct exact *x);
struct row_sums *back_sums_of(const struct back *k, int64_t part, int64_t block);
/* dq of a block is complete: add up its parts and store it. */
void back_finish(const struct back *k, const struct block *b, struct back_room *r);
/* Gradients of the vectors beside keys and values of a head, block by block. */
void back_vectors(const struct back *k, int64_t head, struct back_room *r);
/* Gradients of the matrices of a head, of its queries or of its keys, once dq and dk are
 * stored. */
void back_project(const struct back *k, int64_t head, bool keys);
/* Add the blocks' shares, in order, to the gradients of parameters. */
void back_params(const struct back *k);

/*
 * Meetings (exact_back_meet.c)
 */

/* One tile of keys against one block of queries. */
struct meeting {
    const struct back  *k;
    const struct block *b;
    struct back_room   *r;
    int64_t             t, kt;
    int                 n;
    struct operand      key, value, key_sum;
    int64_t             part;
    float              *dqt, *dk, *dv;
    int64_t             with; /* sequences taken together, of which b is the first's */
    bool                more; /* the block meets tile t - 1 next */

    const struct back_words *own; /* in place of what is packed; NULL: that serves */
};

/* With the mask of the tile. */
void back_meet(struct meeting *s, int32_t mask);
/* Where gradients of logits come to lie. */
void back_place(const struct exact *x, struct back_room *r, void *at);

/*
 * Tiles of keys (exact_back_keys.c)
 */

/* Tiles of keys that stay, n from t on. */
struct back_run {
    const struct back      *k;
    const struct exact_seq *s;
    int64_t                 kv, t, n, part;
};

/* They meet several blocks at once; mask[i][j] is that of tile i and block j. */
struct back_panel {
    const struct back_run *run;
    struct block           block[PANEL_TILES];
    int                    n;
    int32_t                mask[PANEL_TILES][PANEL_TILES];
    bool                   meets[PANEL_TILES][PANEL_TILES];
};

/* Whether all meetings of the execution are of this kind; scratch for runs of so many
 * tiles; what is packed of a block and of keys as tiles, in place, and back again; whether
 * blocks are taken as they are stored instead, and that; whether all operands are finite;
 * and the meeting itself (exact_back_panel.c). */
bool back_has_panels(const struct exact *x);
void back_panel_take(const struct exact *x, int64_t run, struct arena *a,
                     struct back_room *r);
void back_tile_block(const struct back *k, const struct block *b, void *room);
bool back_as_stored(const struct exact *x, const struct back_room *r);
void back_take_block(const struct back *k, const struct block *b, void *room);
void back_tile_keys(const struct exact *x, int64_t kv, int64_t kt, void *room);
void back_untile(const struct back_run *u, const struct block *b, int64_t t,
                 const struct back_words *own);
bool back_panel_finite(const struct back_panel *w);
void back_panel(const struct back_panel *w, const struct back_panel *next,
                struct back_room *r);

/* Their dk and dv, by all blocks that see them. */
void back_keys(const struct back_run *u, struct back_room *r);
/* Key j of a sequence in dk_rows and dv_rows. */
int64_t back_collected(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j);
/* Keys that wait for all sweeps, or for all heads that are made of them, are stored in so
 * many jobs. */
int64_t back_store_jobs(const struct back *k);
void    back_store(const struct back *k, int64_t job, struct back_room *r);

#endif
