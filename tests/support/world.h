/* world.h -- sequences that are decoded side by side, and what the causal forward makes
 * of them. */
#ifndef FOCI_TESTS_WORLD_H
#define FOCI_TESTS_WORLD_H

#include "support/trial.h"

enum { HEADS = 4, MAX_SEQS = 3, N_SHAPES = 3 };

/* One sequence: inputs, what forward makes of them, what steps made. */
struct sequence {
    int64_t     len, done;
    char       *q, *k, *v, *x, *want, *got;
    int32_t    *words;
    double     *size; /* [len][heads] magnitudes of the weights of a row, summed */
    foci_state *state;
};

struct world {
    foci_ctx       *ctx;
    foci_plan      *plan;
    foci_pool      *pool;
    const char     *spec;
    float          *params;
    struct sequence seq[MAX_SEQS];
    int             n;
    struct rng      rng;
};

/* Causal, for one token: a world plans for its longest sequence. */
extern const foci_problem world_shapes[N_SHAPES];

/* One plan serves sequences of all lengths: tensors and lists may depend on the length
 * it is made for.  Without a plan where the spec cannot be causal. */
struct world world_make(foci_ctx *ctx, const char *spec, const foci_problem *p,
                        const int64_t *lens, int n, uint64_t seed);
void         world_free(struct world *w);
size_t       world_row_bytes(const struct world *w, int64_t heads, int64_t dim);

/* The causal forward over the whole sequence. */
void world_expect(struct world *w, struct sequence *s);

/* Whether appending needs outputs. */
bool world_must_attend(const foci_plan *plan);

/* One step of all sequences, n[i] tokens each; a full pool is grown and tried again.
 * Where nothing is attended, what was wanted counts as what came. */
void world_step(struct world *w, const int32_t *n, bool attend);

/* Steps of every size, until all sequences are through; between them states are copied,
 * saved and restored, and cut back. */
void world_run(struct world *w);

/* Within 2e-5 of the largest value, about 4, times the sum of the weights; with 16 bits
 * weights and results are rounded. */
void world_compare(const struct world *w, const struct sequence *s);

#endif
