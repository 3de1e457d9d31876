/* exact_score.h -- from products to logits and weights: factors of rows, biases,
 * dropout. */
#ifndef FOCI_EXACT_SCORE_H
#define FOCI_EXACT_SCORE_H

#include "engine/exact/exact.h"
#include "engine/exact/terms/exact_position.h"

/*
 * Logits (exact_score.c)
 */

/* Factors of q.k, [LANES] each: `plain`, as k->modify() wants them; `f`, times the
 * unit of logits, as k->weigh wants them; `mul`, what each row contributes; mul may
 * be NULL. */
void exact_factors(const struct exact *x, const struct exact_block *b,
                   const int64_t *visible, float *plain, float *f, float *mul);
/* relu2's 1/n. */
void exact_shares(const struct exact *x, const int64_t *visible, float *share);

/* Whether logits have a bias: the caller's, of slots, or of score sources. */
bool exact_has_bias(const struct exact *x);
/* bias[n][LANES] of tile t, 0 in lanes without a query.  The bias of score sources is
 * in it already. */
void exact_fill_bias(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, float *bias);
/* Scores s[n][LANES] to logits: scaled, biased, capped, and -inf where `seen` hides
 * them. */
void exact_modify(const struct exact *x, float *s, int n, const float *plain,
                  const float *f, struct bias_rows bias, const uint64_t *seen);
/* dbias += ds[n][LANES] of tile t, unless dbias is NULL; scratch[LANES][TILE]. */
void exact_add_dbias(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, const float *ds, float *scratch, float *dbias);

/*
 * Dropout (exact_dropout.c)
 */

/* The hash of the seed, batch entry b, head h and row `row` of q; of all lanes of a
 * block. */
uint64_t exact_dropout_key(const struct exact *x, int64_t b, int64_t h, int64_t row);
void     exact_dropout_keys(const struct exact *x, const struct exact_block *b,
                            uint64_t *keys);
/* The number of the first key of tile t.  Slots of level l are numbered from 2^40 (l +
 * 1) on. */
int64_t exact_dropout_column(const struct exact_seq *s, int64_t t);
/* Bits of the weights that are not dropped, for n keys from number `first` on. */
void exact_dropout_mask(const struct exact *x, const uint64_t *keys, int64_t first,
                        int n, uint64_t *dropout_mask);

#endif
