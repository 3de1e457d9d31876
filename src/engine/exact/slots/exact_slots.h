/* exact_slots.h -- slots: rows that stand for several keys, as copies, means or learned
 * mixtures of them.  The tiles of the slots of a sequence follow those of its keys,
 * level by level. */
#ifndef FOCI_EXACT_SLOTS_H
#define FOCI_EXACT_SLOTS_H

#include "engine/exact/exact.h"

/*
 * Tiles of slots (exact_slots.c)
 */

/* At most, of all sequences together. */
int64_t exact_max_slot_tiles(const struct exact *x);
/* Slots of tile t; the level of tile t (-1: keys); and the first slot in it. */
int     exact_slots_in(const struct exact_seq *s, int64_t t);
int     exact_slot_level(const struct exact_seq *s, int64_t t);
int64_t exact_first_slot(const struct exact_seq *s, int level, int64_t t);
/* A causal query at `pos` sees the first so many slots of a level; and the position
 * from which on a slot is visible. */
int64_t exact_visible_slots(const struct exact_seq *s, int level, int64_t pos);
int64_t exact_slot_shown_at(const struct exact_seq *s, int level, int64_t slot);

/* Keys after their maps, or values, of a tile of keys or slots as floats; scratch for
 * another tile. */
void exact_load_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, float *tile, float *scratch);
void exact_load_values(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *tile, float *scratch);
/* Whether logits of some slots have the log of their number of keys as bias; and
 * bias[n][LANES] of tile t. */
bool exact_has_count_bias(const struct exact *x);
void exact_slot_bias(const struct exact_seq *s, int64_t t, int n, float *bias);
/* Backward: store the gradients of a tile of slots, then add to those of the keys from
 * j0 on, up to a tile of them, their share. */
void exact_store_slot_grads(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t, const float *dk, const float *dv);
void exact_add_slot_grads(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t j0, float *dk, float *dv);

/*
 * Learned slots (exact_learned.c)
 */

void exact_learned_carve(struct exact *x, struct arena *a);
/* Slots are multiplied in exact_learned_jobs() jobs, or all those of a sequence and
 * head by one call. */
int64_t exact_learned_jobs(const struct exact *x);
void    exact_learned_job(const struct exact *x, int64_t jobs, int64_t i);
void exact_learned_head(const struct exact *x, int64_t kv, const struct exact_seq *s);
/* The slots of a tile, once they are made. */
void exact_learned_load(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t t, bool values, float *tile);
/* As exact_add_slot_grads(); and the gradients of the matrices, in jobs. */
void    exact_learned_back(const struct exact *x, const struct exact_seq *s, int64_t kv,
                           int64_t j0, float *dk, float *dv);
int64_t exact_learned_params_jobs(const struct exact *x);
void    exact_learned_params(const struct exact *x, int64_t i, float *dparams);

#endif
