/* exact_pack.h -- rows on their way into products of the exact engine and back: loaded as
 * floats, mapped, multiplied by matrices, rounded and packed.
 */
#ifndef FOCI_EXACT_PACK_H
#define FOCI_EXACT_PACK_H

#include "engine/exact.h"

/* exact_pack.c */
/* Whether queries, keys and values are packed from bf16 as they are stored, without a
 * turn through floats. */
bool exact_as_stored(const struct exact *x);
/* Rows of a block as they are stored, *ld apart, from lane 0 on; where the block does not
 * start with a query they are copied to room for a tile of them. */
const uint16_t *exact_stored_block(const struct exact *x, const struct block *b,
                                   const void *base, const foci_layout *l, int d,
                                   void *room, int64_t *ld);
/* Rows of q, o or d_o of a block as floats, zero in lanes without a query. */
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
bool exact_finite_stored(const struct exact *x, const uint16_t *rows, int64_t ld, int d,
                         int n);
/* Tile t of keys or values where it is stored as bf16. */
const uint16_t *exact_stored_tile(const struct exact *x, const struct exact_seq *s,
                                  int64_t kv, int64_t t, const void *base,
                                  const foci_layout *l);
/* From the squares of the n keys of tile number `at`, in place, to their norms, infinite
 * for those that are not finite; false if there are such. */
bool exact_measure_keys(const struct exact *x, int n, size_t at);
/* Whether it matters that a value is not finite: forward, which packs values for sums
 * alone, asks only where some pairs are hidden. */
bool exact_minds_values(const struct exact *x);

/* The way back from cols[d][LANES], times factor[LANES]. */
void exact_store_block(const struct exact *x, const struct block *b, void *base,
                       const foci_layout *l, const float *cols, int d, int ld,
                       const float *factor, float *tile);
/* And from rows tile[LANES][ldv], row i times factor[i]. */
void exact_store_rows_by(const struct exact *x, const struct block *b, void *base,
                         const foci_layout *l, const float *tile, const float *factor);
/* And from rows tile[LANES][ld]. */
void exact_store_rows(const struct exact *x, const struct block *b, void *base,
                      const foci_layout *l, const float *tile, int d, int ld);

/* Pack a tile of floats into whichever of rows and sum is wanted, as piece number at. */
void exact_pack(const struct exact *x, const float *tile, int ld, int d_pad, int n,
                char *rows, char *sum, size_t size, size_t at);

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

#endif
