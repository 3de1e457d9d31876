/* exact_position.h -- what positions add: rotations of q and k (rope), and biases by
 * distance (alibi, t5, bias).
 *
 * The distance of a pair is the position of its query less that of its key.
 */
#ifndef FOCI_EXACT_POSITION_H
#define FOCI_EXACT_POSITION_H

#include "engine/exact/exact.h"

/* Biases of the n keys of a tile for a block: row j at at + j ld.  at NULL: none. */
struct bias_rows {
    const float *at;
    int64_t      ld;
};

void exact_position_carve(struct exact *x, struct arena *a);
/* Cosines, sines and biases by distance, once for an execution. */
void exact_position_prepare(const struct exact *x);

/* exact_rope.c: rotate n rows [n][d.ldq] by the angles of their positions; `back`: by
 * their negatives. */
void exact_rope_prepare(const struct exact *x, const struct position_tables *p);
void exact_rope(const struct exact *x, float *tile, int n, struct positions at,
                bool back);

/* Biases by distance and others of tile t; scratch[TILE][LANES] where exact_has_bias(),
 * which has the bias of score sources already. */
struct bias_rows exact_tile_bias(const struct exact *x, const struct exact_block *b,
                                 int64_t t, int n, float *scratch);
/* bias[n][LANES] += biases by distance, of keys and queries at any positions. */
void exact_position_bias_gathered(const struct exact *x, int64_t h, struct positions q,
                                  struct positions k, int n, float *bias);
/* The largest bias by distance that each lane meets, where all keys are seen. */
void exact_position_max_bias(const struct exact *x, const struct exact_block *b,
                             float *top);
/* What all biases are multiplied by: the unit of exponents, which then is part of the
 * factors; 1 where scores are capped. */
double exact_bias_unit(const struct exact *x);

/* Gradients of the tables: memory for so many parts, zeroed; ds[n][LANES] of a tile, of
 * `dtype`, or of pairs at any positions; and all of them added up. */
void exact_position_back_carve(struct exact *x, int64_t parts, struct arena *a);
void exact_position_back_clear(const struct exact *x, int64_t parts);
void exact_position_back_tile(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const void *ds, int dtype, int64_t part);
void exact_position_back_gathered(const struct exact *x, int64_t h,
                                  const struct exact_seq *s, struct positions q,
                                  uint64_t lanes, struct positions k, int n,
                                  const float *ds, int64_t part);
void exact_position_params(const struct exact *x, int64_t parts, float *dparams);

#endif
