/* exact_sweep_back.h -- ordered sweeps backward: scratch, and gathered rows as products
 * take them (exact_sweep_back_pack.c). */
#ifndef FOCI_EXACT_SWEEP_BACK_H
#define FOCI_EXACT_SWEEP_BACK_H

#include "engine/exact/order/exact_sweep.h"

/* A tile of keys, packed, and the sums of its gradients. */
struct sweep_packed {
    char  *keys, *keys_sum, *values;
    float *dk, *dv; /* [TILE][d.ldq], [TILE][d.ldv] */
};

/* Scratch of one thread. */
struct sweep_back_scratch {
    struct sweep_block  block;
    struct sweep_tile   tiles[SWEEP_TILES];
    struct sweep_packed packed[SWEEP_TILES];
    void               *q_cols, *q_rows, *g_cols, *g_rows;
    float              *tile, *tile2;  /* [TILE][max ld] */
    float              *s, *dp, *bias; /* [TILE][LANES] */
    uint16_t           *w16, *ds16;    /* [TILE][LANES] weights and ds as bf16 */
    uint32_t           *pairs; /* [TILE / 2][LANES] ds, bf16 pairs of two keys */
    float              *dqt;   /* [d.ldq][LANES] */
    uint64_t           *seen, *dropout_mask;

    /* Of the lanes. */
    unsigned nonfinite;
    int64_t  slot[LANES];              /* their lanes in blocks in natural order */
    float    share[LANES], own[LANES]; /* share of d_o, and factors, of entries */
    _Alignas(64) float plain[LANES], f[LANES], mul[LANES], norm[LANES], delta[LANES];
};

void sweep_back_carve(const struct exact *x, struct sweep_back_scratch *r,
                      struct arena *a);
/* Pack tile `number` of the piece as tile `slot` of the scratch, and zero its sums;
 * pack block `number`. */
void sweep_back_pack_tile(const struct sweep *s, int64_t number, int slot,
                          struct sweep_back_scratch *r);
void sweep_back_pack_block(const struct sweep *s, int64_t number,
                           struct sweep_back_scratch *r);
/* d_o of the lanes as products take it, in r->tile, times the share of an entry. */
void sweep_back_load_grads(const struct sweep *s, struct sweep_back_scratch *r);

#endif
