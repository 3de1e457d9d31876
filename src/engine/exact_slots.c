/* exact_slots.c -- slots: rows that stand for runs of keys, and are seen beside them.
 *
 * The slots of a level follow the keys of a sequence as further tiles, padded to whole
 * ones.  A slot is the mean of its keys as they go into scores, and of their values; a
 * copy is the mean of one.  Going back, the gradients of slots are found before those of
 * keys, and each key takes its share when it is stored.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"

/* At most, of all sequences together.  Where slots depend on the length, there may be as
 * many as keys. */
int64_t exact_max_slot_tiles(const struct exact *x)
{
    const foci_problem *p = x->p;
    int64_t             tiles = 0;

    for (int i = 0; i < x->stage->n_levels; i++) {
        const foci_slots *s = &x->stage->levels[i].slots;
        const int64_t     runs = p->len_k / s->every + p->max_docs;
        int64_t           n = x->by_length ? p->len_k : slots_of(s, p->len_k);

        if (p->max_docs && !x->by_length)
            n = s->take      ? (p->len_k / s->every + 1) * s->take
                : s->learned ? runs * s->learned
                             : runs;
        if (!s->learned) n = min64(n, p->len_k);
        tiles += p->max_docs ? n / TILE + p->max_docs : p->batch * div_up(n, TILE);
    }
    return tiles;
}

int exact_level(const struct exact_seq *s, int64_t t)
{
    int level = s->n_levels - 1;

    while (level >= 0 && t < s->slot_t0[level])
        level--;
    return level;
}

int64_t exact_slot_of(const struct exact_seq *s, int level, int64_t t)
{
    return (t - s->slot_t0[level]) * TILE;
}

int exact_slots_in(const struct exact_seq *s, int64_t t)
{
    const int level = exact_level(s, t);
    return (int)min64(TILE,
                      slots_of(&s->slots[level], s->s.nk) - exact_slot_of(s, level, t));
}

int64_t exact_slots_seen(const struct exact_seq *s, int level, int64_t pos)
{
    const foci_slots *slots = &s->slots[level];

    if (pos < 0) return 0;
    if (pos + 1 >= s->s.nk) return slots_of(slots, s->s.nk);
    if (slots->take) return slots_of(slots, pos + 1);
    return (pos + 1) / slots->every * max64(1, slots->learned);
}

int64_t exact_slot_shown(const struct exact_seq *s, int level, int64_t slot)
{
    return slot_keys(&s->slots[level], slot, s->s.nk).end - 1;
}

/*
 * Means
 */

/* What the rows of a slot are the mean of. */
struct source {
    const void        *base;
    const foci_layout *l;
    int                d, ld;
    bool               keys;
};

/* out[ld] = the mean of rows r of the sequence, summed 64 at a time. */
static void mean(const struct exact *x, const struct exact_seq *s, int64_t kv,
                 const struct source *from, foci_range r, float *room, float *out)
{
    const float   share = (float)(1 / (double)(r.end - r.begin));
    struct mapped mapped;

    memset(out, 0, (size_t)from->ld * sizeof *out);
    for (int64_t j = r.begin; j < r.end; j += TILE) {
        const int n = (int)min64(TILE, r.end - j);

        if (from->keys)
            exact_load_mapped(x, s, kv, j, n, room, &mapped);
        else
            exact_load_rows(x, s, kv, j, n, from->base, from->l, from->d, from->ld,
                            room);
        for (int i = 1; i < n; i++)
            for (int c = 0; c < from->d; c++)
                room[c] += room[(int64_t)i * from->ld + c];
        for (int c = 0; c < from->d; c++)
            out[c] += room[c];
    }
    for (int c = 0; c < from->d; c++)
        out[c] *= share;
}

static void load_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, const struct source *from, float *tile, float *room)
{
    const int     level = exact_level(s, t), n = exact_slots_in(s, t);
    const int64_t slot0 = exact_slot_of(s, level, t);

    memset(tile, 0, (size_t)from->ld * TILE * sizeof *tile);
    for (int j = 0; j < n; j++)
        mean(x, s, kv, from, slot_keys(&s->slots[level], slot0 + j, s->s.nk), room,
             tile + (int64_t)j * from->ld);
}

void exact_load_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, float *tile, float *room)
{
    const struct source from = { x->io->k, &x->p->k, x->dq, x->ldq, true };
    struct mapped       mapped;

    if (exact_level(s, t) >= 0 && stage_learned(x->stage)) {
        exact_mix_load(x, s, kv, t, false, tile);
        return;
    }
    if (exact_level(s, t) >= 0) {
        load_slots(x, s, kv, t, &from, tile, room);
        return;
    }
    const int n = exact_keys_in(s, t);
    exact_load_mapped(x, s, kv, t * TILE, n, tile, &mapped);
    memset(tile + (int64_t)n * x->ldq, 0,
           (size_t)(TILE - n) * (size_t)x->ldq * sizeof *tile);
}

void exact_load_values(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *tile, float *room)
{
    const struct source from = { x->io->v, &x->p->v, x->dv, x->ldv, false };

    if (exact_level(s, t) >= 0 && stage_learned(x->stage))
        exact_mix_load(x, s, kv, t, true, tile);
    else if (exact_level(s, t) >= 0)
        load_slots(x, s, kv, t, &from, tile, room);
    else
        exact_load_tile(x, s, kv, t, from.base, from.l, x->dv, x->ldv, tile);
}

/*
 * Logits of means
 */

bool exact_counted(const struct exact *x)
{
    bool any = false;

    for (int i = 0; i < x->stage->n_levels; i++)
        any = any || x->stage->levels[i].slots.count_bias;
    return any;
}

void exact_slot_bias(const struct exact_seq *s, int64_t t, int n, float *bias)
{
    const int     level = exact_level(s, t);
    const int64_t slot0 = exact_slot_of(s, level, t);

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
    return (size_t)(kv * x->max_st + s->st0 + t - s->slot_t0[0]);
}

void exact_keep_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                      int64_t t, const float *dk, const float *dv)
{
    const size_t at = tile_of_slots(x, s, kv, t) * TILE;

    memcpy(x->dk_slots + at * (size_t)x->ldq, dk,
           TILE * (size_t)x->ldq * sizeof *x->dk_slots);
    memcpy(x->dv_slots + at * (size_t)x->ldv, dv,
           TILE * (size_t)x->ldv * sizeof *x->dv_slots);
}

/* The slot of a level that key j is in; -1: none. */
static int64_t slot_with(const foci_slots *s, int64_t j)
{
    const int64_t past = j % s->every - (s->every - s->take);

    if (!s->take) return j / s->every;
    return past < 0 ? -1 : j / s->every * s->take + past;
}

void exact_share_slots(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j0, float *dk, float *dv)
{
    const int n = (int)min64(TILE, s->s.nk - j0);

    if (stage_learned(x->stage)) {
        exact_mix_share(x, s, kv, j0, dk, dv);
        return;
    }
    for (int level = 0; level < s->n_levels; level++)
        for (int j = 0; j < n; j++) {
            const int64_t slot = slot_with(&s->slots[level], j0 + j);
            if (slot < 0) continue;
            const size_t at =
                tile_of_slots(x, s, kv, s->slot_t0[level]) * TILE + (size_t)slot;
            const float     *from_k = x->dk_slots + at * (size_t)x->ldq;
            const float     *from_v = x->dv_slots + at * (size_t)x->ldv;
            const foci_range keys = slot_keys(&s->slots[level], slot, s->s.nk);
            const float      share = (float)(1 / (double)(keys.end - keys.begin));

            for (int c = 0; c < x->dq; c++)
                dk[(int64_t)j * x->ldq + c] += share * from_k[c];
            for (int c = 0; c < x->dv; c++)
                dv[(int64_t)j * x->ldv + c] += share * from_v[c];
        }
}
