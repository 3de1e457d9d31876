/* exact_gather.c -- rows of a cell as blocks and tiles: which they are, what they see,
 * their elements. */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_sweep.h"
#include "engine/exact_tiles.h"

enum { LINE = 64 }; /* of the cache */

void sweep_take(const struct exact *x, struct sweep_block *b, struct sweep_tile *tiles,
                struct arena *a)
{
    const int64_t n = x->order->rounds > 1 ? x->order->rounds * TILE : 0;

    b->label = arena_take(a, n, sizeof(int32_t));
    b->before = arena_take(a, x->order->how.chunk ? n : 0, sizeof(int32_t));
    for (int t = 0; t < SWEEP_TILES; t++)
        tiles[t].label = arena_take(a, n, sizeof(int32_t));
}

struct sweep sweep_of(const struct exact *x, int64_t round, struct task task)
{
    return (struct sweep){ .x = x,
                           .task = task,
                           .round = round,
                           .once = !x->order->how.again,
                           .rows = { .seq = task.seq,
                                     .h = x->head0 + task.head,
                                     .kv = task.head / x->per_kv } };
}

/* Number of the first row of the head and sequence in what is summed, or of the first
 * entry of the head. */
static int64_t sums_q(const struct sweep *s)
{
    if (s->x->order->takes) return s->task.head * s->x->order->sums_q;
    return s->task.head * s->x->order->q_rows + order_q_row(s->x, s->task.seq);
}

static int64_t sums_k(const struct sweep *s)
{
    if (s->x->order->takes) return s->task.head * s->x->order->entries_k;
    return s->rows.kv * s->x->order->k_rows + order_k_row(s->x, s->task.seq);
}

/* Rows list[first] to list[end] from slot `at` on. */
static void append(const struct sweep *s, struct gathered *g, int at,
                   const int32_t *list, int64_t first, int64_t end, int64_t sums)
{
    const bool takes = s->x->order->takes;

    for (; g->n < at; g->n++) {
        g->row[g->n] = -1;
        g->place[g->n] = 0;
        g->at[g->n] = -1;
    }
    for (int64_t i = first; i < end; i++, g->n++) {
        g->row[g->n] = g->place[g->n] = list[i];
        g->at[g->n] = sums + (takes ? i : list[i]);
    }
}

/* Lanes without a row stand at the beginning. */
static void fill_places(struct gathered *g)
{
    for (int i = g->n; i < TILE; i++)
        g->place[i] = 0;
}

/* Labels of gathered rows in the rounds before this one. */
static void load_labels(const struct sweep *s, const struct gathered *g, bool keys,
                        int32_t *label)
{
    const struct order *o = s->x->order;
    const bool          own = keys && !o->how.shared;
    const int64_t       rows = own ? o->k_rows : o->q_rows;
    const int64_t       first =
        own ? order_k_row(s->x, s->task.seq) : order_q_row(s->x, s->task.seq);

    for (int64_t r = 0; r < s->round; r++) {
        const int32_t *from = (own ? o->label_k : o->label_q) +
                              (s->task.set * o->rounds + r) * rows + first;
        for (int i = 0; i < TILE; i++)
            label[r * TILE + i] = i < g->n && g->row[i] >= 0 ? from[g->row[i]] : -1;
    }
}

/* In chunks a label says which cell it is and whether the one before is seen. */
static void split_labels(const struct sweep *s, struct sweep_block *b)
{
    for (int64_t i = 0; i < s->round * TILE; i++) {
        const int32_t label = b->label[i];
        b->label[i] = label < 0 ? -1 : label >> 1;
        b->before[i] = label < 0 || label & 1 ? -1 : (label >> 1) - 1;
    }
}

/* Whether pairs may have met in an earlier round. */
static bool again(const struct sweep *s)
{
    return s->once && s->round && s->round < s->x->order->rounds;
}

void sweep_block(const struct sweep *s, int64_t b, struct sweep_block *block)
{
    const struct cells *p = s->task.part;
    const struct piece *piece = s->task.piece;
    struct gathered    *g = &block->q;

    g->n = 0;
    if (piece->cells > 1) {
        for (int32_t c = 0; c < piece->cells; c++) {
            const struct cell *cell = &p->cells[piece->cell0 + c];
            append(s, g, g->n, p->list_q, cell->q0, cell->q1, sums_q(s));
        }
    } else {
        const struct cell *cell = &p->cells[piece->cell0];
        const int64_t      first = cell->q0 + b * LANES;
        append(s, g, 0, p->list_q, first, min64(first + LANES, cell->q1), sums_q(s));
    }
    fill_places(g);
    block->live = ~UINT64_C(0) >> (LANES - g->n);
    if (!again(s)) return;
    load_labels(s, g, false, block->label);
    if (s->x->order->how.chunk) split_labels(s, block);
}

/* Several small cells, each with the lanes of its queries. */
static void share_tile(const struct sweep *s, struct sweep_tile *tile)
{
    const struct cells *p = s->task.part;
    const struct piece *piece = s->task.piece;
    int                 lane = 0;

    for (int32_t c = 0; c < piece->cells; c++) {
        const struct cell *cell = &p->cells[piece->cell0 + c];
        const int          n = cell->q1 - cell->q0, from = tile->k.n;
        const int          at = order_place(s->x, from, cell->k1 - cell->k0);

        append(s, &tile->k, at, p->list_k, cell->k0, cell->k1, sums_k(s));
        for (int j = from; j < tile->k.n; j++)
            tile->lanes[j] = j < at ? 0 : (~UINT64_C(0) >> (LANES - n)) << lane;
        lane += n;
    }
}

void sweep_tile(const struct sweep *s, int64_t t, struct sweep_tile *tile)
{
    const struct cells *p = s->task.part;
    const struct piece *piece = s->task.piece;

    tile->k.n = 0;
    tile->shared = piece->cells > 1;
    if (tile->shared) {
        share_tile(s, tile);
    } else {
        const struct cell *cell = &p->cells[piece->cell0];
        const int64_t      first = cell->k0 + t * TILE;
        append(s, &tile->k, 0, p->list_k, first, min64(first + TILE, cell->k1),
               sums_k(s));
    }
    if (!again(s)) return;
    load_labels(s, &tile->k, true, tile->label);
    for (int64_t i = 0; s->x->order->how.chunk && i < s->round * TILE; i++)
        tile->label[i] = tile->label[i] < 0 ? -2 : tile->label[i] >> 1;
}

/*
 * What is seen
 */

/* Lanes of one cell, and its keys, are in the order of their places.  *lane moves to the
 * first of them that is not before key j, as keys go by; from LANES on there is none. */
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

/* Pairs that agreed in an earlier round. */
static void hide_again(const struct sweep *s, const struct sweep_block *b,
                       const struct sweep_tile *t, uint64_t *seen)
{
    const struct exact *x = s->x;
    uint64_t            met[TILE];

    for (int64_t r = 0; r < s->round; r++) {
        x->k->match(met, b->label + r * TILE, t->label + r * TILE, t->k.n);
        for (int j = 0; j < t->k.n; j++)
            seen[j] &= ~met[j];
        if (!x->order->how.chunk) continue;
        x->k->match(met, b->before + r * TILE, t->label + r * TILE, t->k.n);
        for (int j = 0; j < t->k.n; j++)
            seen[j] &= ~met[j];
    }
}

static void hide_given(const struct sweep *s, const struct sweep_block *b,
                       const struct sweep_tile *t, uint64_t *seen)
{
    for (int i = 0; i < b->q.n; i++) {
        const uint8_t *row =
            s->x->io->mask + exact_given_row(s->x, s->task.seq, s->rows.h, b->q.row[i]);
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
    const bool          causal = x->p->flags & FOCI_CAUSAL;
    const bool          self = o->how.shared && s->round < o->rounds;
    uint64_t            some = 0, every = b->live;

    if (causal && !t->shared && t->k.row[0] > last) return SEEN_NONE;
    for (int j = 0; j < t->k.n; j++)
        seen[j] = t->shared ? t->lanes[j] : b->live;
    if (causal) hide_later(s, b, t, seen);
    if (self) hide_self(b, t, seen);
    if (again(s)) hide_again(s, b, t, seen);
    if (x->p->flags & FOCI_MASK) hide_given(s, b, t, seen);
    for (int j = 0; j < t->k.n; j++) {
        seen[j] &= b->live;
        some |= seen[j];
        every &= seen[j];
    }
    return !some ? SEEN_NONE : every == b->live ? SEEN_ALL : SEEN_SOME;
}

float sweep_more(const struct sweep *s)
{
    const struct order *o = s->x->order;
    return o->how.again && s->round == o->rounds ? log2f((float)o->rounds) : 0;
}

bool sweep_biased(const struct exact *x)
{
    return exact_biased(x) || x->score->slope || x->score->n_tables;
}

struct bias_rows sweep_bias(const struct sweep *s, const struct sweep_block *b,
                            const struct sweep_tile *t, float *room)
{
    const struct exact *x = s->x;
    const float         unit = (float)exact_bias_unit(x);

    if (!sweep_biased(x)) return (struct bias_rows){ NULL, 0 };
    memset(room, 0, (size_t)t->k.n * LANES * sizeof *room);
    for (int i = 0; x->io->bias && i < b->q.n; i++) {
        const float *row =
            x->io->bias + exact_given_row(x, s->task.seq, s->rows.h, b->q.row[i]);
        for (int j = 0; j < t->k.n; j++)
            if (t->k.row[j] >= 0) room[j * LANES + i] = row[t->k.row[j]] * unit;
    }
    exact_bias_pairs(x, s->rows.h, sweep_places(s, &b->q, false),
                     sweep_places(s, &t->k, true), t->k.n, room);
    return (struct bias_rows){ room, LANES };
}

void sweep_keep(const struct sweep *s, const struct sweep_block *b,
                const struct sweep_tile *t, uint64_t *keep)
{
    const struct seq     *seq = &s->task.seq->s;
    _Alignas(64) uint64_t keys[LANES] = { 0 };

    for (int i = 0; i < b->q.n; i++)
        keys[i] = exact_drop_key(s->x, seq->b, s->rows.h, seq->q0 + b->q.row[i]);
    for (int j = 0; j < t->k.n; j++)
        exact_drop_keep(s->x, keys, seq->k0 + t->k.place[j], 1, &keep[j]);
}

/*
 * Elements
 */

/* Rows of a cell lie anywhere: no hardware guesses where the next one is.  Ask for the
 * lines of n rows, `step` bytes apart and `bytes` long, before they are read. */
static void ask(const char *first, size_t step, size_t bytes, const int32_t *list,
                int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (size_t c = 0; c < bytes; c += LINE)
            __builtin_prefetch(first + (size_t)list[i] * step + c, 0, 2);
}

static const char *first_row(const struct sweep *s, bool keys, const void *base,
                             const foci_layout *l)
{
    const struct exact *x = s->x;
    const struct seq   *q = &s->task.seq->s;
    const int64_t       head = keys ? x->kv0 + s->rows.kv : s->rows.h;
    const int64_t       at =
        q->b * l->batch + (keys ? q->k0 : q->q0) * l->row + head * l->head;

    return (const char *)base + (size_t)at * foci_dtype_bytes(x->p->dtype);
}

static void ask_rows(const struct sweep *s, bool keys, const void *base,
                     const foci_layout *l, int d, const int32_t *list, int64_t n)
{
    const size_t el = foci_dtype_bytes(s->x->p->dtype);
    ask(first_row(s, keys, base, l), (size_t)l->row * el, (size_t)d * el, list, n);
}

void sweep_ask_keys(const struct sweep *s, int64_t t, int n)
{
    const struct exact *x = s->x;
    const struct cells *p = s->task.part;
    const struct cell  *c = &p->cells[s->task.piece->cell0];
    const int32_t      *list = p->list_k + c->k0 + t * TILE;
    int64_t             rows = min64((int64_t)n * TILE, c->k1 - c->k0 - t * TILE);

    if (s->task.piece->cells > 1)
        rows = p->cells[s->task.piece->cell0 + s->task.piece->cells - 1].k1 - c->k0;
    if (x->order->how.shared)
        ask_rows(s, false, x->io->q, &x->p->q, x->dq, list, rows);
    else
        ask_rows(s, true, x->io->k, &x->p->k, x->dq, list, rows);
    ask_rows(s, true, x->io->v, &x->p->v, x->dv, list, rows);
}

void sweep_ask_block(const struct sweep *s, int64_t b)
{
    const struct exact *x = s->x;
    const struct cells *p = s->task.part;
    const struct cell  *c = &p->cells[s->task.piece->cell0];
    const int32_t      *list = p->list_q + c->q0 + b * LANES;
    const int64_t       rows = min64(LANES, c->q1 - c->q0 - b * LANES);

    if (rows <= 0 || s->task.piece->cells > 1) return;
    ask_rows(s, false, x->io->q, &x->p->q, x->dq, list, rows);
    if (x->order->o && !x->order->takes)
        ask((const char *)(x->order->o + sums_q(s) * x->ldv),
            (size_t)x->ldv * sizeof(float), (size_t)x->dv * sizeof(float), list, rows);
}

void sweep_load(const struct sweep *s, const struct gathered *g, bool keys,
                const void *base, const foci_layout *l, int d, int ld, float *tile)
{
    const struct exact *x = s->x;
    const char         *first = first_row(s, keys, base, l);
    const size_t        step = (size_t)l->row * foci_dtype_bytes(x->p->dtype);

    for (int i = 0; i < g->n; i++) {
        float *row = tile + (int64_t)i * ld;
        if (g->row[i] < 0)
            memset(row, 0, (size_t)ld * sizeof *row);
        else
            x->k->load_rows(row, ld, first + (size_t)g->row[i] * step, 0,
                            (int)x->p->dtype, 1, d);
    }
    memset(tile + (int64_t)g->n * ld, 0,
           (size_t)(TILE - g->n) * (size_t)ld * sizeof *tile);
}

void sweep_queries(const struct sweep *s, const struct gathered *g, float *tile)
{
    const struct exact *x = s->x;
    struct mapped       mapped;

    sweep_load(s, g, false, x->io->q, &x->p->q, x->dq, x->ldq, tile);
    exact_map(x, tile, g->n, sweep_places(s, g, false), false, &mapped);
}

void sweep_keys(const struct sweep *s, const struct gathered *g, float *tile)
{
    const struct exact *x = s->x;
    struct mapped       mapped;

    if (x->order->how.shared)
        sweep_load(s, g, false, x->io->q, &x->p->q, x->dq, x->ldq, tile);
    else
        sweep_load(s, g, true, x->io->k, &x->p->k, x->dq, x->ldq, tile);
    exact_map(x, tile, g->n, sweep_places(s, g, true), true, &mapped);
}
