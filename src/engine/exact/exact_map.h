/* exact_map.h -- row maps: what is applied to rows of q and k before their product.
 *
 * In order: projection, standardisation (mean 0, variance 1), normalisation (norm 1),
 * rope. Most mechanisms have none of these.
 */
#ifndef FOCI_EXACT_MAP_H
#define FOCI_EXACT_MAP_H

#include "engine/exact/exact_pack.h"
#include "engine/exact/terms/exact_project.h"

/* What the maps divided the rows of a tile by, for the backward pass. */
struct mapped {
    _Alignas(64) float norm[TILE], sd[TILE];
};

/* Whether rows of q and k have a map. */
bool exact_has_map(const struct exact *x);
/* Queries of a block after all maps, and n keys of a sequence from key j on. */
void exact_load_queries(const struct exact *x, const struct exact_block *b, float *tile,
                        struct mapped *m);
void exact_load_key_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t j, int n, float *tile, struct mapped *m);

/* The maps that follow projection, of n rows tile[n][d.ldq] of queries or of keys. */
void exact_map(const struct exact *x, float *tile, int n, struct positions at,
               bool keys, struct mapped *m);
/* From the gradient d[n][d.ldq] of mapped rows to that of the rows before exact_map(),
 * in place.  `tile` has the mapped rows and is overwritten. */
void exact_map_back(const struct exact *x, float *d, float *tile, int n,
                    struct positions at, bool keys, const struct mapped *m);
/* Standardise n rows; sd[n] is what they were divided by. */
void exact_standardise(float *tile, int ld, int d, int n, float *sd);

#endif
