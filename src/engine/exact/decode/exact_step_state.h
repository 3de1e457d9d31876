/* exact_step_state.h -- what exact attention keeps of a sequence beside its pages:
 * finished slots, sums of unfinished ones, chains of tokens with equal labels; and the
 * functions of the decoder on it. */
#ifndef FOCI_EXACT_STEP_STATE_H
#define FOCI_EXACT_STEP_STATE_H

#include "engine/exact/exact.h"

enum { KNOWN_DISTANCES = 1 << 16 }; /* whose table entries a pool looks up in advance */

/* Which tokens have which label, in one round of one head.  Labels are numbered in
 * the order in which they appear; tokens of equal label form a chain, the last token
 * first. */
struct label_map {
    int64_t *label;  /* [cap_labels] by number */
    int32_t *last;   /* [cap_labels] last token with the label; -1: none */
    int32_t *table;  /* [n_table] open hashing to numbers; -1: free */
    int32_t *before; /* [cap] the token before in the chain; -1: none */
    int32_t *number; /* [cap] number of the token's label; -1: none */
    int64_t  n_labels, cap_labels, n_table, cap;
};

struct exact_state {
    struct stream level[FOCI_MAX_LEVELS]; /* finished slots */
    float        *sums[FOCI_MAX_LEVELS];  /* of the unfinished run: keys, then values */
    struct label_map *maps;               /* [n_maps] */
    int64_t           n_maps;
};

/* Shared by the states of a pool. */
struct exact_pool {
    int32_t *entry[2];  /* [KNOWN_DISTANCES] entries of the tables of biases */
    double  *frequency; /* [d.q / 2] of rope */
    double *norm; /* [heads][rounds] a bound of the vectors' norms, as of the last append */
};

/* Floats of a row of sums, and of all sums of one level: of keys [kv_heads][sets], then
 * of values. */
static inline int64_t sum_row(int64_t d) { return round_up(d, 16); }

static inline int64_t sum_floats(const foci_pool *pool, int g)
{
    const struct page_part *t = &pool->parts[g];
    return t->kv_heads * (t->sets * sum_row(t->dim_qk) + sum_row(pool->plan->p.dim_v));
}

/* Slots of a level that n tokens finish. */
static inline int64_t slots_done(const foci_slots *s, int64_t n)
{
    return s->tail ? slots_of(s, n) : n / s->run_len * max64(1, s->learned);
}

/*
 * Functions of the decoder
 */

/* exact_step_state.c */
foci_status exact_pool_make(foci_pool *pool, int g);
void        exact_pool_free(foci_pool *pool, int g);
foci_status exact_state_make(foci_state *state, int g);
foci_status exact_state_copy(const foci_state *from, foci_state *to, int g);
void        exact_state_free(foci_state *state, int g);
size_t      exact_state_bytes(const foci_state *state, int g);
void        exact_state_save(const foci_state *state, int g, struct state_writer *w);
foci_status exact_state_restore(foci_state *state, int g, struct state_reader *r);
foci_status exact_state_truncate(foci_state *state, int g, int64_t len, bool really);
foci_status exact_state_check(const foci_pool *pool, int g, const foci_step_io *io);
foci_status exact_state_reserve(foci_state *state, int g, int64_t tokens,
                                int64_t *pages);
void        exact_state_drop(foci_state *state, int g);

/* exact_step_append.c: new tokens; and the sums of the unfinished run of a level of
 * slots, from its tokens. */
size_t exact_append_bytes(const foci_pool *pool, int g);
void   exact_append(const struct state_step *step, int g);
void exact_sum_open(const foci_state *state, int g, int level, int64_t len, float *sums);

/*
 * Labels (exact_step_maps.c)
 */

/* The label of rows with NaN; no two of them share it. */
#define NO_LABEL INT64_MIN

/* How many maps a state has; how many different labels there can be, INT32_MAX: any
 * number. */
int64_t labels_maps(const struct stage *s);
int64_t labels_most(const struct stage *s);
/* Memory for so many tokens and labels in all. */
foci_status labels_reserve(foci_ctx *ctx, struct label_map *m, int64_t tokens,
                           int64_t labels);
/* Token `at` has this label; tokens are added in order. */
void labels_add(struct label_map *m, int64_t at, int64_t label);
/* The number of a label; -1: no token has it. */
int32_t labels_find(const struct label_map *m, int64_t label);
void    labels_cut(struct label_map *m, int64_t len, int64_t new_len);
/* Into an empty map. */
foci_status labels_copy(foci_ctx *ctx, const struct label_map *from, int64_t len,
                        struct label_map *to);
void        labels_free(foci_ctx *ctx, struct label_map *m);
size_t      labels_bytes(const struct label_map *m);
void        labels_save(const struct label_map *m, int64_t len, struct state_writer *w);
/* Into a map with memory for len tokens. */
foci_status labels_restore(const foci_pool *pool, struct label_map *m, int64_t len,
                           int64_t most, struct state_reader *r);

#endif
