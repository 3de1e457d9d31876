/* exact_pack.h -- rows of tensors on their way into products, and results on their way
 * out: loaded as floats, rounded, packed, stored.
 *
 * "Stored" rows are bf16 in the caller's tensors that are packed without a detour
 * through floats, because nothing is done to them.
 */
#ifndef FOCI_EXACT_PACK_H
#define FOCI_EXACT_PACK_H

#include "engine/exact/exact_product.h"

/*
 * Loading
 */

/* Rows of q, o or d_o of a block as floats, zero in lanes without a query. */
void exact_load_block(const struct exact *x, const struct exact_block *b,
                      const void *base, const foci_layout *l, int d, int ld,
                      float *tile);
/* Keys or values of a tile as floats, zero beyond the last key. */
void exact_load_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, const void *base, const foci_layout *l, int d, int ld,
                     float *tile);
/* n rows of keys or values from key j on. */
void exact_load_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j, int n, const void *base, const foci_layout *l, int d,
                     int ld, float *tile);

/* Whether queries, keys and values are packed from stored rows. */
bool exact_packs_stored(const struct exact *x);
/* Stored rows of a block from lane 0 on, *ld apart.  Where lane 0 has no query they are
 * copied to `scratch`, a tile of them. */
const uint16_t *exact_stored_block(const struct exact *x, const struct exact_block *b,
                                   const void *base, const foci_layout *l, int d,
                                   void *scratch, int64_t *ld);
/* Stored rows of tile t of keys or values. */
const uint16_t *exact_stored_tile(const struct exact *x, const struct exact_seq *s,
                                  int64_t kv, int64_t t, const void *base,
                                  const foci_layout *l);

/*
 * Rounding and packing
 */

/* Round to bf16 where products do, so that sums of single pairs agree with them;
 * scratch[TILE][ld]. */
void exact_round(const struct exact *x, float *tile, int ld, int d, void *scratch);
/* Multiply by the factor of weights that dropout keeps, then round. */
void exact_dropout_scale(const struct exact *x, float *tile, int ld, int d,
                         void *scratch);
/* Pack tile kt of keys and values; both arguments are scratch for a tile of floats. */
void exact_pack_tile(const struct exact *x, int64_t kv, int64_t kt, float *tile,
                     float *scratch);
/* Pack n rows tile[TILE][ld] as tile number `at` of rows and of sum, unless they are
 * NULL. */
void exact_pack(const struct exact *x, const float *tile, int ld, int d_pad, int n,
                char *rows, char *sum, size_t size, size_t at);

/* Whether n rows are finite, by their sums of squares: these overflow before an element
 * is infinite, which costs a slow tile and nothing else. */
bool exact_finite(const struct exact *x, const float *tile, int ld, int d, int n);
bool exact_finite_stored(const struct exact *x, const uint16_t *rows, int64_t ld, int d,
                         int n);
/* Replace the squares of the n keys of tile number `at` by their norms, infinite for
 * keys that are not finite; false if there are such. */
bool exact_key_norms(const struct exact *x, int n, size_t at);
/* Whether non-finite values must be found: forward, which packs values for sums alone,
 * needs to know only where some pairs are hidden. */
bool exact_checks_values(const struct exact *x);

/*
 * Storing
 */

/* A block of cols[d][LANES] times factor[LANES]; tile[LANES][ld] is scratch. */
void exact_store_block(const struct exact *x, const struct exact_block *b, void *base,
                       const foci_layout *l, const float *cols, int d, int ld,
                       const float *factor, float *tile);
/* A block of rows tile[LANES][d.ldv], row i times factor[i]. */
void exact_store_rows_by(const struct exact *x, const struct exact_block *b, void *base,
                         const foci_layout *l, const float *tile, const float *factor);
/* A block of rows tile[LANES][ld]. */
void exact_store_rows(const struct exact *x, const struct exact_block *b, void *base,
                      const foci_layout *l, const float *tile, int d, int ld);

#endif
