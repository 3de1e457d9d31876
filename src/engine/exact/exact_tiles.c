/* exact_tiles.c -- which tiles a block of queries meets, and which keys its lanes see. */
#include <string.h>

#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_order.h"
#include "engine/exact/slots/exact_slots.h"

static uint64_t lanes_from(int64_t r)
{
    return r <= 0 ? ~UINT64_C(0) : r >= LANES ? 0 : ~UINT64_C(0) << r;
}

uint64_t exact_lanes(const struct exact_block *b)
{
    return lanes_from(b->r0) & ~lanes_from(b->r1);
}

/* Start on the tiles of a level; if causal, up to what the last query may see. */
static void walk_level(struct exact_walk *w, int level)
{
    const struct exact     *x = w->x;
    const struct exact_seq *s = w->seq;
    const struct support   *table =
        level < 0 ? x->support : &x->stage->levels[level].support;
    const int64_t t0 = level < 0 ? 0 : s->slot_t0[level];
    int64_t       n = level < 0 ? s->s.nk : slots_of(&s->slots[level], s->s.nk);

    if (x->p->flags & FOCI_FLAG_CAUSAL)
        n = level < 0 ? min64(n, max64(w->last + 1, 0))
                      : exact_visible_slots(s, level, w->last);
    w->level = level;
    w->limit = t0 + div_up(n, TILE);
    w->next = t0;
    w->shift = -t0;
    w->run = 0;
    if (s->kinds && w->row >= 0)
        w->line = exact_table_row(x, s, w->row);
    else
        w->runs = support_row(table, w->row, &w->n_runs);
}

bool exact_block_wanted(const struct exact *x, const struct exact_block *b)
{
    const struct seq *s = &b->seq->s;
    const int64_t     row = s->b * x->p->len_q + s->q0 + b->i0;

    if (!x->exec.gates) return true;
    for (int64_t r = row + b->r0; r < row + b->r1; r++)
        if (x->exec.gates[(r * x->heads + b->h - x->head0) * x->exec.gate_step] != 0)
            return true;
    return false;
}

/* Blocks are aligned to positions wherever a table is consulted. */
struct exact_walk exact_walk_keys(const struct exact *x, const struct exact_block *b)
{
    struct exact_walk w = { .x = x,
                            .seq = b->seq,
                            .row = b->pos < 0 ? -1 : b->pos / TILE,
                            .last = b->pos + b->r1 - 1 };

    walk_level(&w, -1);
    return w;
}

struct exact_walk exact_walk_blocks(const struct exact *x, const struct exact_seq *s,
                                    int64_t t)
{
    struct exact_walk w = { .limit = s->n_qt };
    const int         level = exact_slot_level(s, t);

    if (s->kinds)
        w.line = exact_table_col(x, s, t);
    else if (level < 0)
        w.runs = support_col(x->support, t, &w.n_runs);
    else
        w.runs = support_col(&x->stage->levels[level].support, t - s->slot_t0[level],
                             &w.n_runs);
    /* The table counts tiles of positions, the caller blocks of the sequence. */
    if (level < 0 ? !x->support->all : !s->slots[level].all)
        w.shift = (s->pos0 - s->lead) / LANES;
    if (x->p->flags & FOCI_FLAG_CAUSAL) {
        const int64_t shown =
            level < 0 ? t * TILE
                      : exact_slot_shown_at(s, level, exact_first_slot(s, level, t));
        const int64_t first =
            shown - s->pos0 + s->lead; /* first query that sees a key of the tile */
        w.next = first <= 0 ? 0 : first / LANES;
    }
    w.next = max64(w.next, -w.shift);
    return w;
}

/* The next tile of a table that the execution made. */
static bool line_next(struct exact_walk *w, int64_t *tile, int32_t *mask)
{
    /* Rows of the table are numbered like the tiles returned, columns like positions. */
    const int64_t shift = w->seq ? 0 : w->shift;

    while (w->next < w->limit) {
        const int kind = exact_table_kind(w->line, w->next + shift);

        *tile = w->next++;
        *mask = kind == TILE_FULL ? -1 : MASK_BY_MECH;
        if (kind != TILE_SKIP) return true;
    }
    return false;
}

static bool table_next(struct exact_walk *w, int64_t *tile, int32_t *mask)
{
    for (; w->run < w->n_runs; w->run++) {
        const struct tile_run *r = &w->runs[w->run];

        w->next = max64(w->next, r->begin - w->shift);
        if (w->next >= w->limit) return false;
        if (w->next < r->end - w->shift) {
            *tile = w->next++;
            *mask = r->mask;
            return true;
        }
    }
    return false;
}

bool exact_next(struct exact_walk *w, int64_t *tile, int32_t *mask)
{
    for (;;) {
        if (w->line.kinds ? line_next(w, tile, mask) : table_next(w, tile, mask))
            return true;
        if (!w->seq || w->level + 1 >= w->seq->n_levels) return false;
        walk_level(w, w->level + 1);
    }
}

int64_t exact_mask_row(const struct exact *x, const struct exact_seq *s, int64_t h,
                       int64_t i)
{
    const foci_problem *p = x->p;
    const int64_t       batch = p->mask_batch > 1 ? s->s.b : 0;
    const int64_t       head = p->mask_heads > 1 ? h : 0;

    return ((batch * p->mask_heads + head) * p->len_q + s->s.q0 + i) * p->len_k +
           s->s.k0;
}

/* An entry of the plan's dictionary of masks, or the mechanism's mask evaluated. */
static const uint64_t *masks_of(const struct exact *x, const struct exact_block *b,
                                int level, int64_t j0, int32_t mask, uint64_t *scratch)
{
    const struct exact_seq *s = b->seq;
    const foci_range        rows = { b->pos, min64(b->pos + TILE, s->s.nk) };

    if (mask >= 0)
        return level < 0 ? x->support->masks[mask]
                         : x->stage->levels[level].support.masks[mask];
    tiles_look(s->mech, level, rows, j0,
               level < 0 ? s->s.nk : slots_of(&s->slots[level], s->s.nk), scratch);
    return scratch;
}

/* exact_tile_mask() of a tile of slots. */
static bool mask_slots(const struct exact *x, const struct exact_block *b, int level,
                       int64_t t, int32_t mask, int n, uint64_t *seen)
{
    const struct exact_seq *s = b->seq;
    const int64_t           slot0 = exact_first_slot(s, level, t);
    const bool              causal = x->p->flags & FOCI_FLAG_CAUSAL &&
                        exact_slot_shown_at(s, level, slot0 + n - 1) > b->pos + b->r0;
    uint64_t        scratch[TILE];
    const uint64_t *part = NULL;

    if (mask == -1 && !causal) return false;
    if (mask != -1) part = masks_of(x, b, level, slot0, mask, scratch);
    for (int j = 0; j < n; j++) {
        seen[j] = exact_lanes(b);
        if (part) seen[j] &= part[j];
        if (causal)
            seen[j] &= lanes_from(exact_slot_shown_at(s, level, slot0 + j) - b->pos);
    }
    return true;
}

bool exact_tile_mask(const struct exact *x, const struct exact_block *b, int64_t t,
                     int32_t mask, int n, uint64_t *seen)
{
    const int level = exact_slot_level(b->seq, t);

    assert(n > 0 && n <= TILE);
    if (level >= 0) return mask_slots(x, b, level, t, mask, n, seen);

    const int64_t j0 = t * TILE;
    const bool causal = x->p->flags & FOCI_FLAG_CAUSAL && j0 + n - 1 > b->pos + b->r0;
    const bool input_mask = x->p->flags & FOCI_FLAG_MASK;

    if (mask == -1 && !causal && !input_mask) return false;

    const uint64_t  lanes = exact_lanes(b);
    uint64_t        scratch[TILE];
    const uint64_t *part = mask == -1 ? NULL : masks_of(x, b, -1, j0, mask, scratch);
    for (int j = 0; j < n; j++) {
        seen[j] = lanes;
        if (part) seen[j] &= part[j];
        if (causal) seen[j] &= lanes_from(j0 + j - b->pos);
    }
    for (int r = b->r0; input_mask && r < b->r1; r++) {
        const uint8_t *row =
            x->io->mask + exact_mask_row(x, b->seq, b->h, b->i0 + r) + j0;
        for (int j = 0; j < n; j++)
            if (!row[j]) seen[j] &= ~(UINT64_C(1) << r);
    }
    return true;
}

bool exact_causal_cut(const struct exact *x, const struct exact_block *b, int64_t t,
                      int n, struct causal_cut *c)
{
    const int64_t over =
        t * TILE - b->pos; /* lanes before the first that sees key 0 of the tile */
    const bool crossed = x->p->flags & FOCI_FLAG_CAUSAL && over + n - 1 > b->r0 &&
                         exact_slot_level(b->seq, t) < 0;

    c->j += c->m;
    if (c->j >= n) return false;
    c->m = crossed ? (int)min64(x->granule, n - c->j) : n;
    const int64_t lane = crossed ? max64(0, over + c->j) : 0;
    if (lane >= LANES) return false;
    c->lane = (int)lane / x->granule * x->granule;
    return true;
}

bool exact_counts_keys(const struct exact *x, bool backward)
{
    const bool learned = x->score->n_factors || x->score->sink >= 0;
    return x->kind == FOCI_WEIGH_RELU2 || x->score->n_rows || (backward && learned);
}

void exact_count_visible_natural(const struct exact *x, const struct exact_block *b,
                                 int64_t visible[LANES])
{
    const int64_t nk = b->seq->s.nk;

    if (x->support->all && !(x->p->flags & FOCI_FLAG_MASK)) {
        for (int r = 0; r < LANES; r++)
            visible[r] = x->p->flags & FOCI_FLAG_CAUSAL
                             ? min64(nk, max64(0, b->pos + r + 1))
                             : nk;
        return;
    }
    struct exact_walk w = exact_walk_keys(x, b);
    int64_t           t;
    int32_t           mask;
    uint64_t          seen[TILE];

    memset(visible, 0, LANES * sizeof *visible);
    while (exact_next(&w, &t, &mask)) {
        const int n = exact_keys_in(b->seq, t);
        if (!exact_tile_mask(x, b, t, mask, n, seen)) {
            for (int r = 0; r < LANES; r++)
                visible[r] += n;
            continue;
        }
        for (int j = 0; j < n; j++)
            for (int r = 0; r < LANES; r++)
                visible[r] += (int64_t)(seen[j] >> r & 1);
    }
}

void exact_count_visible(const struct exact *x, const struct exact_block *b,
                         int64_t visible[LANES])
{
    if (x->order)
        order_count_visible(x, b, visible);
    else
        exact_count_visible_natural(x, b, visible);
}
