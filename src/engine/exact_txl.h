/* exact_txl.h -- a row for each distance on the exact engine.  All do nothing where there
 * are none.
 */
#ifndef FOCI_EXACT_TXL_H
#define FOCI_EXACT_TXL_H

#include "engine/exact.h"

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

#endif
