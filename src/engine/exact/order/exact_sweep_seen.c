/* exact_sweep_seen.c -- which gathered keys the lanes of a gathered block see, their
 * biases and their dropout masks. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_sweep.h"

/*
 * Visibility
 */

/* The lanes of one cell, and its keys, are in the order of their positions.  As keys
 * go by, *lane moves to the first lane of the cell that is not before key j; LANES:
 * none. */
static void find_lane(const struct sweep_block *b, const struct sweep_tile *t,
                      int64_t shift, int j, int *lane)
{
    const uint64_t lanes = t->shared ? t->lanes[j] : b->live;

    if (t->shared && (!j || lanes != t->lanes[j - 1]))
        *lane = lanes ? __builtin_ctzll(lanes) : LANES;
    while (*lane < LANES && lanes >> *lane & 1 && b->q.row[*lane] + shift < t->k.row[j])
        ++*lane;
}

static void hide_later(const struct sweep *s, const struct sweep_block *b,
                       const struct sweep_tile *t, uint64_t *seen)
{
    int lane = 0;

    for (int j = 0; j < t->k.n; j++) {
        find_lane(b, t, s->task.seq->pos0, j, &lane);
        seen[j] &= lane < LANES ? ~UINT64_C(0) << lane : 0;
    }
}

static void hide_self(const struct sweep_block *b, const struct sweep_tile *t,
                      uint64_t *seen)
{
    int lane = 0;

    for (int j = 0; j < t->k.n; j++) {
        find_lane(b, t, 0, j, &lane);
        if (lane < b->q.n && b->q.row[lane] == t->k.row[j])
            seen[j] &= ~(UINT64_C(1) << lane);
    }
}

/* Hide pairs that shared a label in an earlier round. */
static void hide_repeated(const struct sweep *s, const struct sweep_block *b,
                          const struct sweep_tile *t, uint64_t *seen)
{
    const struct exact *x = s->x;
    uint64_t            repeated[TILE];

    for (int64_t r = 0; r < s->round; r++) {
        x->k->match(repeated, b->label + r * TILE, t->label + r * TILE, t->k.n);
        for (int j = 0; j < t->k.n; j++)
            seen[j] &= ~repeated[j];
        if (!x->order->how.chunk) continue;
        x->k->match(repeated, b->before + r * TILE, t->label + r * TILE, t->k.n);
        for (int j = 0; j < t->k.n; j++)
            seen[j] &= ~repeated[j];
    }
}

static void hide_masked(const struct sweep *s, const struct sweep_block *b,
                        const struct sweep_tile *t, uint64_t *seen)
{
    for (int i = 0; i < b->q.n; i++) {
        const uint8_t *row =
            s->x->io->mask + exact_mask_row(s->x, s->task.seq, s->rows.h, b->q.row[i]);
        for (int j = 0; j < t->k.n; j++)
            if (t->k.row[j] >= 0 && !row[t->k.row[j]]) seen[j] &= ~(UINT64_C(1) << i);
    }
}

enum seen sweep_seen(const struct sweep *s, const struct sweep_block *b,
                     const struct sweep_tile *t, uint64_t *seen)
{
    const struct exact *x = s->x;
    const struct order *o = x->order;
    const int64_t       last = b->q.row[b->q.n - 1] + s->task.seq->pos0;
    const bool          causal = x->p->flags & FOCI_FLAG_CAUSAL;
    const bool          self = o->how.shared_qk && s->round < o->rounds;
    uint64_t            some = 0, every = b->live;

    if (causal && !t->shared && t->k.row[0] > last) return SEEN_NONE;
    for (int j = 0; j < t->k.n; j++)
        seen[j] = t->shared ? t->lanes[j] : b->live;
    if (causal) hide_later(s, b, t, seen);
    if (self) hide_self(b, t, seen);
    if (sweep_dedups(s)) hide_repeated(s, b, t, seen);
    if (x->p->flags & FOCI_FLAG_MASK) hide_masked(s, b, t, seen);
    for (int j = 0; j < t->k.n; j++) {
        seen[j] &= b->live;
        some |= seen[j];
        every &= seen[j];
    }
    return !some ? SEEN_NONE : every == b->live ? SEEN_ALL : SEEN_SOME;
}

float sweep_log_rounds(const struct sweep *s)
{
    const struct order *o = s->x->order;
    return o->how.weigh_repeats && s->round == o->rounds ? log2f((float)o->rounds) : 0;
}

bool sweep_has_bias(const struct exact *x)
{
    return exact_has_bias(x) || x->score->slope || x->score->n_tables;
}

struct bias_rows sweep_bias(const struct sweep *s, const struct sweep_block *b,
                            const struct sweep_tile *t, float *scratch)
{
    const struct exact *x = s->x;
    const float         unit = (float)exact_bias_unit(x);

    if (!sweep_has_bias(x)) return (struct bias_rows){ NULL, 0 };
    memset(scratch, 0, (size_t)t->k.n * LANES * sizeof *scratch);
    for (int i = 0; x->io->bias && i < b->q.n; i++) {
        const float *row =
            x->io->bias + exact_mask_row(x, s->task.seq, s->rows.h, b->q.row[i]);
        for (int j = 0; j < t->k.n; j++)
            if (t->k.row[j] >= 0) scratch[j * LANES + i] = row[t->k.row[j]] * unit;
    }
    exact_position_bias_gathered(x, s->rows.h, sweep_positions(s, &b->q, false),
                                 sweep_positions(s, &t->k, true), t->k.n, scratch);
    return (struct bias_rows){ scratch, LANES };
}

void sweep_dropout_mask(const struct sweep *s, const struct sweep_block *b,
                        const struct sweep_tile *t, uint64_t *dropout_mask)
{
    const struct seq     *seq = &s->task.seq->s;
    _Alignas(64) uint64_t keys[LANES] = { 0 };

    for (int i = 0; i < b->q.n; i++)
        keys[i] = exact_dropout_key(s->x, seq->b, s->rows.h, seq->q0 + b->q.row[i]);
    for (int j = 0; j < t->k.n; j++)
        exact_dropout_mask(s->x, keys, seq->k0 + t->k.pos[j], 1, &dropout_mask[j]);
}
