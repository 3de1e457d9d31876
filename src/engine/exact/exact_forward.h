/* exact_forward.h -- the forward pass of a block of queries: what its files share.
 *
 * exact_forward.c has memory, jobs and order; exact_forward_block.c takes a block
 * through its keys, panel by panel; exact_reference.c chooses the references of the softmax and
 * stores outputs and normalisers.
 */
#ifndef FOCI_EXACT_FORWARD_H
#define FOCI_EXACT_FORWARD_H

#include "engine/exact/exact_fused.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"

/* Scratch of one thread. */
struct forward_scratch {
    float    *tile, *tile2; /* [TILE][max ld] */
    void     *q;            /* packed queries */
    float    *s;            /* [panel][LANES] scores, then weights */
    uint32_t *w;            /* [panel / 2][LANES] weights, bf16 pairs of two keys */
    float    *ot;           /* [d.ldv][LANES] sums of values, of each folded sequence */
    float    *bias;         /* [TILE][LANES] */
    uint64_t *seen;         /* [panel] lanes that see a key */

    struct fused_scratch fused;
    char                *key,
        *value; /* one tile of each, where all others are packed for exact_fused.c */

    struct shaw_scratch   shaw;
    struct txl_scratch    txl;
    struct source_scratch source;
};

/* Tiles of keys whose weights are computed in one call.  All but the last are full. */
struct forward_panel {
    int     n_tiles, n; /* tiles, and keys in all */
    int64_t tile[MAX_PANEL / TILE];
    bool    masked[MAX_PANEL / TILE];
    bool    any_masked;
};

/* The state of a block on its way through its keys. */
struct forward_pass {
    const struct exact       *x;
    const struct exact_block *b;
    struct forward_scratch   *r;
    struct forward_panel      panel;
    bool                      fixed; /* no reference will move */
    bool     fresh; /* ot is uninitialised: the next product overwrites it */
    int64_t  fold;  /* sequences computed together */
    uint64_t dropout_keys[LANES];
    /* Of the lanes: reference and sum of weights, factors of q.k before and after the
     * unit of logits, and by how much sums shrink when references rise. */
    _Alignas(64) float m[LANES], l[LANES], plain[LANES], f[LANES], shrink[LANES];
};

/* The sums of values of folded sequence number f. */
static inline float *forward_sum(const struct forward_pass *p, int64_t f)
{
    return p->r->ot + f * p->x->d.ldv * LANES;
}

/* exact_forward_block.c: n blocks of one head from first key to last; and the output of
 * a block after all sweeps. */
void forward_blocks(const struct exact *x, const struct exact_block *b, int n,
                    struct forward_scratch *r, float *saved);
void forward_finish(const struct exact *x, const struct exact_block *b,
                    struct forward_scratch *r, float *saved);

/* exact_reference.c: references and sums before the first key, from norms[LANES] of the
 * queries and a bound of what terms add to their products; true: no reference will
 * move. */
bool forward_references(struct forward_pass *p, const float *norms,
                        const float *term_bound);
/* Divide by the normaliser and store; visible[LANES] keys of each row, for relu2. */
void forward_store(struct forward_pass *p, const int64_t *visible, float *saved);

#endif
