/* exact_slots.c -- slots: rows that stand for runs of keys, and are visible beside
 * them.
 *
 * The slots of a level follow the keys of a sequence as further tiles, padded to full
 * ones.  A slot is the mean of its keys, after their maps, and of their values; a copy
 * is the mean of one.  Backward, the gradients of slots are complete before those of
 * keys, and each key receives its share when it is stored.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"

/* Where slots depend on the length, there may be as many as keys. */
int64_t exact_max_slot_tiles(const struct exact *x)
{
    const foci_problem *p = x->p;
    int64_t             tiles = 0;

    for (int i = 0; i < x->stage->n_levels; i++) {
        const foci_slots *s = &x->stage->levels[i].slots;
        const int64_t     runs = p->len_k / s->run_len + p->max_docs;
        int64_t           n = x->table.by_length ? p->len_k : slots_of(s, p->len_k);

        if (p->max_docs && !x->table.by_length)
            n = s->tail      ? (p->len_k / s->run_len + 1) * s->tail
                : s->learned ? runs * s->learned
                             : runs;
        if (!s->learned) n = min64(n, p->len_k);
        tiles += p->max_docs ? n / TILE + p->max_docs : p->batch * div_up(n, TILE);
    }
    return tiles;
}

int exact_slot_level(const struct exact_seq *s, int64_t t)
{
    int level = s->n_levels - 1;

    while (level >= 0 && t < s->slot_t0[level])
        level--;
    return level;
}

int64_t exact_first_slot(const struct exact_seq *s, int level, int64_t t)
{
    return (t - s->slot_t0[level]) * TILE;
}

int exact_slots_in(const struct exact_seq *s, int64_t t)
{
    const int level = exact_slot_level(s, t);
    return (int)min64(TILE, slots_of(&s->slots[level], s->s.nk) -
                                exact_first_slot(s, level, t));
}

int64_t exact_visible_slots(const struct exact_seq *s, int level, int64_t pos)
{
    const foci_slots *slots = &s->slots[level];

    if (pos < 0) return 0;
    if (pos + 1 >= s->s.nk) return slots_of(slots, s->s.nk);
    if (slots->tail) return slots_of(slots, pos + 1);
    return (pos + 1) / slots->run_len * max64(1, slots->learned);
}

int64_t exact_slot_shown_at(const struct exact_seq *s, int level, int64_t slot)
{
    return slot_keys(&s->slots[level], slot, s->s.nk).end - 1;
}

/*
 * Means
 */

/* Rows that slots are the means of. */
struct slot_rows {
    const void        *base;
    const foci_layout *l;
    int                d, ld;
    bool               keys;
};

/* out[ld] = the mean of rows r of the sequence, summed 64 at a time. */
static void mean(const struct exact *x, const struct exact_seq *s, int64_t kv,
                 const struct slot_rows *from, foci_range r, float *scratch, float *out)
{
    const float   share = (float)(1 / (double)(r.end - r.begin));
    struct mapped mapped;

    memset(out, 0, (size_t)from->ld * sizeof *out);
    for (int64_t j = r.begin; j < r.end; j += TILE) {
        const int n = (int)min64(TILE, r.end - j);

        if (from->keys)
            exact_load_key_rows(x, s, kv, j, n, scratch, &mapped);
        else
            exact_load_rows(x, s, kv, j, n, from->base, from->l, from->d, from->ld,
                            scratch);
        for (int i = 1; i < n; i++)
            for (int c = 0; c < from->d; c++)
                scratch[c] += scratch[(int64_t)i * from->ld + c];
        for (int c = 0; c < from->d; c++)
            out[c] += scratch[c];
    }
    for (int c = 0; c < from->d; c++)
        out[c] *= share;
}

static void load_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, const struct slot_rows *from, float *tile,
                       float *scratch)
{
    const int     level = exact_slot_level(s, t), n = exact_slots_in(s, t);
    const int64_t slot0 = exact_first_slot(s, level, t);

    memset(tile, 0, (size_t)from->ld * TILE * sizeof *tile);
    for (int j = 0; j < n; j++)
        mean(x, s, kv, from, slot_keys(&s->slots[level], slot0 + j, s->s.nk), scratch,
             tile + (int64_t)j * from->ld);
}

void exact_load_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, float *tile, float *scratch)
{
    const struct slot_rows from = { x->io->k, &x->p->k, x->d.q, x->d.ldq, true };
    struct mapped          mapped;

    if (exact_slot_level(s, t) >= 0 && stage_learned(x->stage)) {
        exact_learned_load(x, s, kv, t, false, tile);
        return;
    }
    if (exact_slot_level(s, t) >= 0) {
        load_slots(x, s, kv, t, &from, tile, scratch);
        return;
    }
    const int n = exact_keys_in(s, t);
    exact_load_key_rows(x, s, kv, t * TILE, n, tile, &mapped);
    memset(tile + (int64_t)n * x->d.ldq, 0,
           (size_t)(TILE - n) * (size_t)x->d.ldq * sizeof *tile);
}

void exact_load_values(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *tile, float *scratch)
{
    const struct slot_rows from = { x->io->v, &x->p->v, x->d.v, x->d.ldv, false };

    if (exact_slot_level(s, t) >= 0 && stage_learned(x->stage))
        exact_learned_load(x, s, kv, t, true, tile);
    else if (exact_slot_level(s, t) >= 0)
        load_slots(x, s, kv, t, &from, tile, scratch);
    else
        exact_load_tile(x, s, kv, t, from.base, from.l, x->d.v, x->d.ldv, tile);
}

/*
 * Biases of means
 */

bool exact_has_count_bias(const struct exact *x)
{
    bool any = false;

    for (int i = 0; i < x->stage->n_levels; i++)
        any = any || x->stage->levels[i].slots.count_bias;
    return any;
}

void exact_slot_bias(const struct exact_seq *s, int64_t t, int n, float *bias)
{
    const int     level = exact_slot_level(s, t);
    const int64_t slot0 = exact_first_slot(s, level, t);

    for (int j = 0; j < n; j++) {
        const foci_range keys = slot_keys(&s->slots[level], slot0 + j, s->s.nk);
        const bool       counted = s->slots[level].count_bias;
        const float one = counted ? (float)log((double)(keys.end - keys.begin)) : 0;
        for (int r = 0; r < LANES; r++)
            bias[j * LANES + r] = one;
    }
}

/*
 * Gradients
 */

static size_t tile_of_slots(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t)
{
    return (size_t)(kv * x->max.st + s->st0 + t - s->slot_t0[0]);
}

void exact_store_slot_grads(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t, const float *dk, const float *dv)
{
    const size_t at = tile_of_slots(x, s, kv, t) * TILE;

    memcpy(x->grads.dk_slots + at * (size_t)x->d.ldq, dk,
           TILE * (size_t)x->d.ldq * sizeof *x->grads.dk_slots);
    memcpy(x->grads.dv_slots + at * (size_t)x->d.ldv, dv,
           TILE * (size_t)x->d.ldv * sizeof *x->grads.dv_slots);
}

/* The slot of a level that key j belongs to; -1: none. */
static int64_t slot_with(const foci_slots *s, int64_t j)
{
    const int64_t past = j % s->run_len - (s->run_len - s->tail);

    if (!s->tail) return j / s->run_len;
    return past < 0 ? -1 : j / s->run_len * s->tail + past;
}

void exact_add_slot_grads(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t j0, float *dk, float *dv)
{
    const int n = (int)min64(TILE, s->s.nk - j0);

    if (stage_learned(x->stage)) {
        exact_learned_back(x, s, kv, j0, dk, dv);
        return;
    }
    for (int level = 0; level < s->n_levels; level++)
        for (int j = 0; j < n; j++) {
            const int64_t slot = slot_with(&s->slots[level], j0 + j);
            if (slot < 0) continue;
            const size_t at =
                tile_of_slots(x, s, kv, s->slot_t0[level]) * TILE + (size_t)slot;
            const float     *from_k = x->grads.dk_slots + at * (size_t)x->d.ldq;
            const float     *from_v = x->grads.dv_slots + at * (size_t)x->d.ldv;
            const foci_range keys = slot_keys(&s->slots[level], slot, s->s.nk);
            const float      share = (float)(1 / (double)(keys.end - keys.begin));

            for (int c = 0; c < x->d.q; c++)
                dk[(int64_t)j * x->d.ldq + c] += share * from_k[c];
            for (int c = 0; c < x->d.v; c++)
                dv[(int64_t)j * x->d.ldv + c] += share * from_v[c];
        }
}
