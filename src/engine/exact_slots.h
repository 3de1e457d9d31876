/* exact_slots.h -- slots on the exact engine: rows that stand for several keys, as means
 * or learned mixtures of them.  Their tiles follow those of the keys.
 */
#ifndef FOCI_EXACT_SLOTS_H
#define FOCI_EXACT_SLOTS_H

#include "engine/exact.h"

/* exact_slots.c: tiles of slots. */
int64_t exact_max_slot_tiles(const struct exact *x);
/* Slots of tile t. */
int exact_slots_in(const struct exact_seq *s, int64_t t);
/* The level of tile t (-1: keys), and the first slot of it. */
int     exact_level(const struct exact_seq *s, int64_t t);
int64_t exact_slot_of(const struct exact_seq *s, int level, int64_t t);
/* Slots of a level that a causal query at `pos` may see, those before some number; and
 * the position from which on a slot is shown. */
int64_t exact_slots_seen(const struct exact_seq *s, int level, int64_t pos);
int64_t exact_slot_shown(const struct exact_seq *s, int level, int64_t slot);
/* Keys as they go into scores, or values, of a tile of keys or slots, as floats; room
 * for another tile. */
void exact_load_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, float *tile, float *room);
void exact_load_values(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *tile, float *room);
/* Whether logits of some slots grow by the log of their number of keys; and bias[n]
 * [LANES] of those of tile t. */
bool exact_counted(const struct exact *x);
void exact_slot_bias(const struct exact_seq *s, int64_t t, int n, float *bias);
/* Keep the gradients of a tile of slots, and add to those of up to a tile of keys from j0
 * on their share. */
void exact_keep_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                      int64_t t, const float *dk, const float *dv);
void exact_share_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j0, float *dk, float *dv);

/* exact_mix.c: learned slots.  They are made in so many jobs, which any thread may do, or
 * all of a sequence and head by one. */
void    exact_mix_take(struct exact *x, struct arena *a);
int64_t exact_mix_jobs(const struct exact *x);
void    exact_mix(const struct exact *x, int64_t jobs, int64_t i);
void    exact_mix_own(const struct exact *x, int64_t kv, const struct exact_seq *s);
/* Those of a tile, once they are made. */
void exact_mix_load(const struct exact *x, const struct exact_seq *s, int64_t kv,
                    int64_t t, bool values, float *tile);
/* The way back, as exact_share_slots(); and the gradients of the matrices, in jobs. */
void    exact_mix_share(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t j0, float *dk, float *dv);
int64_t exact_mix_params_jobs(const struct exact *x);
void    exact_mix_params(const struct exact *x, int64_t i, float *dparams);

#endif
