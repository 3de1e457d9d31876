/* exact_shaw.h -- Shaw's term of the score: learned vectors aK beside keys and aV
 * beside values, one for each clipped distance.
 *
 *     s_ij = q_i . (k_j + aK[j - i]),    o_i = sum over j of w_ij (v_j + aV[j - i])
 *
 * Functions do nothing where the score has no such term.  Functions with `gathered` in
 * their name take queries and keys at any positions, the others a block and a tile.
 */
#ifndef FOCI_EXACT_SHAW_H
#define FOCI_EXACT_SHAW_H

#include "engine/exact/exact.h"

/*
 * Forward
 */

/* Scratch of one thread. */
struct shaw_scratch {
    float *cols;     /* [d.ldq][LANES] queries */
    float *products; /* [vectors][LANES] q . aK */
    float *sums; /* [vectors][LANES] sums of weights; NULL: no vectors beside values */
    float *tile; /* [TILE][LANES] */
};

bool                exact_has_shaw(const struct exact *x);
struct shaw_scratch exact_shaw_scratch(const struct exact *x, struct arena *a);
/* A block starts: q[LANES][d.ldq] of head h after their maps; bound[LANES] of q . aK. */
void exact_shaw_begin(const struct exact *x, int64_t h, const float *q,
                      struct shaw_scratch *w, float *bound);
/* s[n][LANES] += q . aK */
void exact_shaw_scores(const struct exact *x, const struct exact_block *b, int64_t t,
                       int n, const struct shaw_scratch *w, float *s);
void exact_shaw_scores_gathered(const struct exact *x, struct positions q,
                                struct positions k, int n, const struct shaw_scratch *w,
                                float *s);
/* Sum up weights[n][LANES], floats, or bf16 pairs of two keys. */
void exact_shaw_weights(const struct exact *x, const struct exact_block *b, int64_t t,
                        int n, struct shaw_scratch *w, const float *weights,
                        const uint32_t *pairs);
void exact_shaw_weights_gathered(const struct exact *x, struct positions q,
                                 struct positions k, int n, struct shaw_scratch *w,
                                 const float *weights, const uint32_t *pairs);
/* References have risen: times shrink[LANES]. */
void exact_shaw_shrink(const struct exact *x, struct shaw_scratch *w,
                       const float *shrink);
/* ot[d.v][LANES] += sums of weights by aV. */
void exact_shaw_values(const struct exact *x, int64_t h, const struct shaw_scratch *w,
                       float *ot);

/*
 * Backward
 */

struct shaw_back {
    int64_t parts;
    float  *products_k;      /* [heads][max.qt][vectors][LANES] q . aK */
    float  *products_v;      /* likewise, do . aV */
    float  *sums_k, *sums_v; /* [parts] likewise, sums of ds and of weights */
    float  *d_k, *d_v;       /* [heads][vectors][ld] */
};

void exact_shaw_back_carve(const struct exact *x, int64_t parts, struct shaw_back *k,
                           struct arena *a);
/* Products of a block's queries, or gradients of outputs, with the vectors;
 * scratch[LANES][ld]. */
void exact_shaw_back_queries(const struct exact *x, const struct exact_block *b,
                             const struct shaw_back *k, const float *q, float *scratch);
void exact_shaw_back_grads(const struct exact *x, const struct exact_block *b,
                           const struct shaw_back *k, const float *g, float *scratch);
/* Zero the sums of a part for block number `at`. */
void exact_shaw_back_begin(const struct exact *x, const struct shaw_back *k,
                           int64_t part, int64_t at);
/* s += q . aK, dp += do . aV */
void exact_shaw_back_scores(const struct exact *x, const struct exact_block *b,
                            int64_t t, int n, const struct shaw_back *k, float *s,
                            float *dp);
/* Sum up weights w and gradients ds [n][LANES], floats. */
void exact_shaw_back_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                          int n, const struct shaw_back *k, int64_t part,
                          const float *w, const float *ds);

/* Gathered lanes, n of them, whose sums are in part 0: lane i is in slot[i] of all
 * lanes of all blocks, has that share of the gradient of its row, and factors of its
 * own. */
struct shaw_lanes {
    struct positions at;
    const int64_t   *slot;
    const float     *share, *own;
    int              n;
};
void exact_shaw_back_scores_gathered(const struct exact *x, const struct shaw_lanes *l,
                                     struct positions keys, int n,
                                     const struct shaw_back *k, float *s, float *dp);
void exact_shaw_back_gathered(const struct exact *x, const struct shaw_lanes *l,
                              struct positions keys, int n, const struct shaw_back *k,
                              const float *w, const float *ds);

/* A block is complete: add up its parts, those whose begun[part heads max.qt] is set;
 * and dqt += sums of ds by aK. */
void exact_shaw_back_finish(const struct exact *x, const struct exact_block *b,
                            const struct shaw_back *k, const uint8_t *begun, float *dqt);
/* Gradients of the vectors of a head: zeroed; a block's share, from q times the factors
 * of rows and from gradients of outputs g; added to those of the parameters. */
void exact_shaw_back_clear(const struct exact *x, const struct shaw_back *k,
                           int64_t head);
void exact_shaw_back_vectors(const struct exact *x, const struct exact_block *b,
                             const struct shaw_back *k, const float *q, const float *g);
void exact_shaw_params(const struct exact *x, const struct shaw_back *k, float *dparams);

#endif
