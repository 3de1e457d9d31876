/* exact_score.h -- from products to logits and weights on the exact engine: factors of
 * rows, biases by position and as given, dropout.
 */
#ifndef FOCI_EXACT_SCORE_H
#define FOCI_EXACT_SCORE_H

#include "engine/exact.h"

/* exact_score.c */
/* The factors of q.k as modify and as weigh want them, and the rows' part alone. */
void exact_factors(const struct exact *x, const struct block *b, const int64_t *visible,
                   float *plain, float *f, float *mul);
/* relu2's 1/n. */
void exact_shares(const struct exact *x, const int64_t *visible, float *share);

/* Whether logits have a bias that is given, of slots, or of sources. */
bool exact_biased(const struct exact *x);
/* That bias[n][LANES] of the tile, 0 in lanes without a query; that of sources is there
 * already. */
void exact_bias(const struct exact *x, const struct block *b, int64_t t, int n,
                float *bias);

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

#endif
