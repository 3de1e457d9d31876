/* exact_shaw.h -- vectors beside keys and values, by distance, on the exact engine.  All
 * do nothing where there are none.  Pairs are those of a block with keys at any places.
 */
#ifndef FOCI_EXACT_SHAW_H
#define FOCI_EXACT_SHAW_H

#include "engine/exact.h"

struct shaw {
    float *cols; /* [ldq][LANES] queries */
    float *met;  /* [vectors][LANES] q . aK */
    float *sums; /* [vectors][LANES] of weights; NULL: none beside values */
    float *tile; /* [TILE][LANES] */
};
bool        exact_has_shaw(const struct exact *x);
struct shaw exact_shaw_take(const struct exact *x, struct arena *a);
/* q[LANES][ldq] of head h, as maps leave them; bound[LANES] of their products. */
void exact_shaw_begin(const struct exact *x, int64_t h, const float *q, struct shaw *w,
                      float *bound);
void exact_shaw_scores(const struct exact *x, const struct block *b, int64_t t, int n,
                       const struct shaw *w, float *s);
/* Weights as floats, or as words of two keys. */
void exact_shaw_weights(const struct exact *x, const struct block *b, int64_t t, int n,
                        struct shaw *w, const float *weights, const uint32_t *words);
void exact_shaw_shrink(const struct exact *x, struct shaw *w, const float *shrink);
void exact_shaw_values(const struct exact *x, int64_t h, const struct shaw *w,
                       float *ot);
void exact_shaw_scores_pairs(const struct exact *x, struct places q, struct places k,
                             int n, const struct shaw *w, float *s);
void exact_shaw_weights_pairs(const struct exact *x, struct places q, struct places k,
                              int n, struct shaw *w, const float *weights,
                              const uint32_t *words);

struct shaw_back {
    int64_t parts;
    float  *met_k, *met_v;   /* [heads][max_qt][vectors][LANES] q . aK, do . aV */
    float  *sums_k, *sums_v; /* [parts] of the same: of ds, and of weights */
    float  *d_k, *d_v;       /* [heads][vectors][ld] */
};
void exact_shaw_take_back(const struct exact *x, int64_t parts, struct shaw_back *k,
                          struct arena *a);
/* room[LANES][ld] */
void exact_shaw_prepare_q(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *q, float *room);
void exact_shaw_prepare_g(const struct exact *x, const struct block *b,
                          const struct shaw_back *k, const float *g, float *room);
void exact_shaw_scores_back(const struct exact *x, const struct block *b, int64_t t,
                            int n, const struct shaw_back *k, float *s, float *dp);
/* w and ds [n][LANES] as floats. */
void exact_shaw_sums_back(const struct exact *x, const struct block *b, int64_t t,
                          int n, const struct shaw_back *k, int64_t part,
                          const float *w, const float *ds);
/* The same, in part 0, of lanes from anywhere: n of them, lane i in slot number slot[i]
 * of all blocks' lanes, with that share of its row's gradient and with factors of its
 * own. */
struct shaw_lanes {
    struct places  at;
    const int64_t *slot;
    const float   *share, *own;
    int            n;
};
void exact_shaw_scores_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                  struct places keys, int n, const struct shaw_back *k,
                                  float *s, float *dp);
void exact_shaw_sums_pairs_back(const struct exact *x, const struct shaw_lanes *l,
                                struct places keys, int n, const struct shaw_back *k,
                                const float *w, const float *ds);
/* Zero the sums of a part for block number `at`. */
void exact_shaw_begin_back(const struct exact *x, const struct shaw_back *k,
                           int64_t part, int64_t at);
/* dqt += what the vectors beside the keys bring; met[part heads max_qt]: the part has
 * been begun. */
void exact_shaw_finish(const struct exact *x, const struct block *b,
                       const struct shaw_back *k, const uint8_t *met, float *dqt);
/* A block's share of the gradients of the vectors: q with the factors of rows. */
void exact_shaw_clear(const struct exact *x, const struct shaw_back *k, int64_t head);
void exact_shaw_vectors(const struct exact *x, const struct block *b,
                        const struct shaw_back *k, const float *q, const float *g);
void exact_shaw_params(const struct exact *x, const struct shaw_back *k, float *dparams);

#endif
