/* exact_txl.h -- Transformer-XL's term of the score: a row R[i - j] for each distance,
 * which queries meet as they meet keys, and two vectors u and w that are added to
 * queries.
 *
 *     s_ij = (q_i + u) . k_j + (q_i + w) . R[i - j]
 *
 * Functions do nothing where the score has no such term.
 */
#ifndef FOCI_EXACT_TXL_H
#define FOCI_EXACT_TXL_H

#include "engine/exact/exact_product.h"

/* Scratch of one thread, forward. */
struct txl_scratch {
    float  *tile;
    void   *q;       /* q + w as columns */
    float  *band[2]; /* [TILE][LANES] products with tiles of R */
    int64_t cached;  /* tile of R whose product is in band[0]; -1: none */
};

/*
 * Forward (exact_txl.c)
 */

bool               exact_has_txl(const struct exact *x);
void               exact_txl_carve(struct exact *x, struct arena *a, bool back);
struct txl_scratch exact_txl_scratch(const struct exact *x, struct arena *a);
/* R is packed in exact_txl_tiles() jobs; tile[TILE][d.ldq] is scratch. */
int64_t exact_txl_tiles(const struct exact *x);
void    exact_txl_pack(const struct exact *x, int64_t at, float *tile);
void    exact_txl_add_u(const struct exact *x, int64_t h, float *q);
/* Adds u to q[LANES][d.ldq], and to bound[LANES] a bound of the products with R. */
void exact_txl_begin(const struct exact *x, const struct exact_block *b, float *q,
                     struct txl_scratch *w, float *bound);
/* s[n][LANES] += products with R. */
void exact_txl_scores(const struct exact *x, const struct exact_block *b, int64_t t,
                      int n, struct txl_scratch *w, float *s);

/* What the files share: vector u or w of head h, at offset `at` of the parameters; tile
 * m of R, by rows and to be summed over distances; q[LANES][d.ldq] += v; rows packed as
 * columns; to += more; and how many tiles a block is ahead of tile t of keys. */
const float   *exact_txl_vector(const struct exact *x, int64_t at, int64_t h);
struct operand exact_txl_rows(const struct exact *x, int64_t h, int64_t m);
struct operand exact_txl_rows_sum(const struct exact *x, int64_t h, int64_t m);
void           exact_txl_add_vector(const struct exact *x, const float *v, float *q);
void exact_txl_pack_cols(const struct exact *x, const float *rows, void *cols);
void exact_txl_add(float *restrict to, const float *restrict more, int64_t n);

static inline int64_t txl_tiles_ahead(const struct exact_block *b, int64_t t)
{
    return b->pos / TILE - t;
}

static inline int64_t txl_n_tiles(const struct exact *x)
{
    return div_up(x->p->len_k, TILE);
}

/*
 * Backward (exact_txl_back.c)
 */

struct txl_back {
    int64_t  parts;
    char    *cols, *rows; /* [heads][max.qt] q + w, as columns and as rows */
    size_t   size;
    float   *dr;       /* [parts][heads][max.kt][TILE][d.ldq] */
    uint8_t *dr_begun; /* [parts][heads][max.kt] dr is initialised */
    double  *d_u;      /* [heads][max.qt][d.q] */
    double  *d_w;      /* [parts] likewise */
};

/* Scratch of one thread, backward. */
struct txl_back_scratch {
    float  *tile;
    float  *band[2]; /* [TILE][LANES] products with tiles of R */
    int64_t cached; /* tile of R whose product, for all lanes, is in band[0]; -1: none */
    char   *ds;     /* [run + 2][TILE][LANES] by key: a run, and a tile at each end */
    char   *copy;   /* [TILE][LANES] of one tile of ds that will be changed */
    int64_t due;    /* tile of R that waits for the next tile of keys; -1: none */
    char   *last;   /* ds of the tile of keys last met */
    char   *rows;   /* [TILE][LANES] ds by distance, floats or bf16 */
    char *pairs; /* the same; or [STACK][TILE / 2][LANES] bf16 pairs of several tiles */
    int   pending; /* tiles of these, the first ones, that are still to be multiplied */
    float *dqt;    /* [d.ldq][LANES] ds by R */
    bool   begun;  /* dqt is initialised */
};

void exact_txl_back_carve(const struct exact *x, int64_t parts, struct txl_back *k,
                          struct arena *a);
struct txl_back_scratch exact_txl_back_scratch(const struct exact *x, int64_t run,
                                               struct arena *a);
void exact_txl_back_clear(const struct exact *x, const struct txl_back *k);
/* Where ds[TILE][LANES] of tile i of a run of keys must lie; a copy of it to be
 * changed. */
void *exact_txl_back_ds(const struct exact *x, const struct txl_back_scratch *r,
                        int64_t i);
void *exact_txl_back_copy(const struct exact *x, const struct txl_back_scratch *r,
                          const void *ds);
/* Adds u to q[LANES][d.ldq].  Lanes whose bit of `blind` is set see nothing; mul[LANES]
 * are the factors of rows. */
void exact_txl_back_queries(const struct exact *x, const struct exact_block *b,
                            const struct txl_back *k, uint64_t blind, const float *mul,
                            float *q, struct txl_back_scratch *r);
/* Zero the sums of a part for block number `at`. */
void exact_txl_back_begin(const struct exact *x, const struct txl_back *k, int64_t part,
                          int64_t at);
/* s[n][LANES] += products with R; `more`: the block meets tile t - 1 next. */
void exact_txl_back_scores(const struct exact *x, const struct exact_block *b,
                           int64_t t, int n, bool more, const struct txl_back *k,
                           struct txl_back_scratch *r, float *s);
/* Take ds[n][LANES] of tile t, which lies where exact_txl_back_ds() said. */
void exact_txl_back_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                         int n, const struct txl_back *k, struct txl_back_scratch *r,
                         int64_t part, void *ds);
/* The block has met all tiles of the run: dqt += ds by R. */
void exact_txl_back_run_end(const struct exact *x, const struct exact_block *b,
                            const struct txl_back *k, const float *mul,
                            struct txl_back_scratch *r, int64_t part, float *dqt);
/* Shares of u and w, from the complete dqt of a block; the result is their share in the
 * gradient of the factors of q.k. */
double exact_txl_back_finish(const struct exact *x, const struct exact_block *b,
                             const struct txl_back *k, const uint8_t *begun,
                             const float *mul, struct txl_back_scratch *r, float *dqt);
/* Gradients of u and w; and of R, tile `at` of exact_txl_tiles(). */
void exact_txl_params(const struct exact *x, const struct txl_back *k, float *dparams);
void exact_txl_params_rows(const struct exact *x, const struct txl_back *k, int64_t at,
                           float *dparams);

#endif
