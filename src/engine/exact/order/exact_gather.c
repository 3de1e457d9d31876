/* exact_gather.c -- rows of a cell as blocks and tiles: their indices, and their
 * elements. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/order/exact_sweep.h"

enum { LINE = 64 }; /* bytes of a cache line */

void sweep_carve(const struct exact *x, struct sweep_block *b, struct sweep_tile *tiles,
                 struct arena *a)
{
    const int64_t n = x->order->rounds > 1 ? x->order->rounds * TILE : 0;

    b->label = arena_alloc(a, n, sizeof(int32_t));
    b->before = arena_alloc(a, x->order->how.chunk ? n : 0, sizeof(int32_t));
    for (int t = 0; t < SWEEP_TILES; t++)
        tiles[t].label = arena_alloc(a, n, sizeof(int32_t));
}

struct sweep sweep_of(const struct exact *x, int64_t round, struct order_task task)
{
    return (struct sweep){ .x = x,
                           .task = task,
                           .round = round,
                           .once = !x->order->how.weigh_repeats,
                           .rows = { .seq = task.seq,
                                     .h = x->head0 + task.head,
                                     .kv = task.head / x->per_kv } };
}

/* The number of the first row of the head and sequence among the sums, or of the first
 * entry of the head. */
static int64_t first_q(const struct sweep *s)
{
    if (s->x->order->topk) return s->task.head * s->x->order->sums_q;
    return s->task.head * s->x->order->q_rows + order_q_row(s->x, s->task.seq);
}

static int64_t first_k(const struct sweep *s)
{
    if (s->x->order->topk) return s->task.head * s->x->order->entries_k;
    return s->rows.kv * s->x->order->k_rows + order_k_row(s->x, s->task.seq);
}

/* Append rows list[first] to list[end] from element `at` on. */
static void append(const struct sweep *s, struct gathered *g, int at,
                   const int32_t *list, int64_t first, int64_t end, int64_t sums)
{
    const bool topk = s->x->order->topk;

    for (; g->n < at; g->n++) {
        g->row[g->n] = -1;
        g->pos[g->n] = 0;
        g->at[g->n] = -1;
    }
    for (int64_t i = first; i < end; i++, g->n++) {
        g->row[g->n] = g->pos[g->n] = list[i];
        g->at[g->n] = sums + (topk ? i : list[i]);
    }
}

/* Lanes without a row have position 0. */
static void fill_positions(struct gathered *g)
{
    for (int i = g->n; i < TILE; i++)
        g->pos[i] = 0;
}

/* Load the labels of gathered rows in the rounds before this one. */
static void load_labels(const struct sweep *s, const struct gathered *g, bool keys,
                        int32_t *label)
{
    const struct order *o = s->x->order;
    const bool          own = keys && !o->how.shared_qk;
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

/* With chunks, a label has the number of its cell, and whether the one before is
 * visible. */
static void split_labels(const struct sweep *s, struct sweep_block *b)
{
    for (int64_t i = 0; i < s->round * TILE; i++) {
        const int32_t label = b->label[i];
        b->label[i] = label < 0 ? -1 : label >> 1;
        b->before[i] = label < 0 || label & 1 ? -1 : (label >> 1) - 1;
    }
}

void sweep_block(const struct sweep *s, int64_t b, struct sweep_block *block)
{
    const struct cells       *p = s->task.part;
    const struct order_piece *piece = s->task.piece;
    struct gathered          *g = &block->q;

    g->n = 0;
    if (piece->cells > 1) {
        for (int32_t c = 0; c < piece->cells; c++) {
            const struct order_cell *cell = &p->cells[piece->cell0 + c];
            append(s, g, g->n, p->list_q, cell->q0, cell->q1, first_q(s));
        }
    } else {
        const struct order_cell *cell = &p->cells[piece->cell0];
        const int64_t            first = cell->q0 + b * LANES;
        append(s, g, 0, p->list_q, first, min64(first + LANES, cell->q1), first_q(s));
    }
    fill_positions(g);
    block->live = ~UINT64_C(0) >> (LANES - g->n);
    if (!sweep_dedups(s)) return;
    load_labels(s, g, false, block->label);
    if (s->x->order->how.chunk) split_labels(s, block);
}

/* Several small cells, each with the lanes of its queries. */
static void gather_cells(const struct sweep *s, struct sweep_tile *tile)
{
    const struct cells       *p = s->task.part;
    const struct order_piece *piece = s->task.piece;
    int                       lane = 0;

    for (int32_t c = 0; c < piece->cells; c++) {
        const struct order_cell *cell = &p->cells[piece->cell0 + c];
        const int                n = cell->q1 - cell->q0, from = tile->k.n;
        const int                at = order_key_slot(s->x, from, cell->k1 - cell->k0);

        append(s, &tile->k, at, p->list_k, cell->k0, cell->k1, first_k(s));
        for (int j = from; j < tile->k.n; j++)
            tile->lanes[j] = j < at ? 0 : (~UINT64_C(0) >> (LANES - n)) << lane;
        lane += n;
    }
}

void sweep_tile(const struct sweep *s, int64_t t, struct sweep_tile *tile)
{
    const struct cells       *p = s->task.part;
    const struct order_piece *piece = s->task.piece;

    tile->k.n = 0;
    tile->shared = piece->cells > 1;
    if (tile->shared) {
        gather_cells(s, tile);
    } else {
        const struct order_cell *cell = &p->cells[piece->cell0];
        const int64_t            first = cell->k0 + t * TILE;
        append(s, &tile->k, 0, p->list_k, first, min64(first + TILE, cell->k1),
               first_k(s));
    }
    if (!sweep_dedups(s)) return;
    load_labels(s, &tile->k, true, tile->label);
    for (int64_t i = 0; s->x->order->how.chunk && i < s->round * TILE; i++)
        tile->label[i] = tile->label[i] < 0 ? -2 : tile->label[i] >> 1;
}

/*
 * Rows
 */

/* Prefetch n rows, `step` bytes apart and `bytes` long: their indices are arbitrary, so
 * the hardware does not prefetch them. */
static void prefetch(const char *first, size_t step, size_t bytes, const int32_t *list,
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

static void prefetch_rows(const struct sweep *s, bool keys, const void *base,
                          const foci_layout *l, int d, const int32_t *list, int64_t n)
{
    const size_t el = foci_dtype_bytes(s->x->p->dtype);
    prefetch(first_row(s, keys, base, l), (size_t)l->row * el, (size_t)d * el, list, n);
}

void sweep_prefetch_keys(const struct sweep *s, int64_t t, int n)
{
    const struct exact      *x = s->x;
    const struct cells      *p = s->task.part;
    const struct order_cell *c = &p->cells[s->task.piece->cell0];
    const int32_t           *list = p->list_k + c->k0 + t * TILE;
    int64_t                  rows = min64((int64_t)n * TILE, c->k1 - c->k0 - t * TILE);

    if (s->task.piece->cells > 1)
        rows = p->cells[s->task.piece->cell0 + s->task.piece->cells - 1].k1 - c->k0;
    if (x->order->how.shared_qk)
        prefetch_rows(s, false, x->io->q, &x->p->q, x->d.q, list, rows);
    else
        prefetch_rows(s, true, x->io->k, &x->p->k, x->d.q, list, rows);
    prefetch_rows(s, true, x->io->v, &x->p->v, x->d.v, list, rows);
}

void sweep_prefetch_block(const struct sweep *s, int64_t b)
{
    const struct exact      *x = s->x;
    const struct cells      *p = s->task.part;
    const struct order_cell *c = &p->cells[s->task.piece->cell0];
    const int32_t           *list = p->list_q + c->q0 + b * LANES;
    const int64_t            rows = min64(LANES, c->q1 - c->q0 - b * LANES);

    if (rows <= 0 || s->task.piece->cells > 1) return;
    prefetch_rows(s, false, x->io->q, &x->p->q, x->d.q, list, rows);
    if (x->order->o && !x->order->topk)
        prefetch((const char *)(x->order->o + first_q(s) * x->d.ldv),
                 (size_t)x->d.ldv * sizeof(float), (size_t)x->d.v * sizeof(float), list,
                 rows);
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

    sweep_load(s, g, false, x->io->q, &x->p->q, x->d.q, x->d.ldq, tile);
    exact_map(x, tile, g->n, sweep_positions(s, g, false), false, &mapped);
}

void sweep_keys(const struct sweep *s, const struct gathered *g, float *tile)
{
    const struct exact *x = s->x;
    struct mapped       mapped;

    if (x->order->how.shared_qk)
        sweep_load(s, g, false, x->io->q, &x->p->q, x->d.q, x->d.ldq, tile);
    else
        sweep_load(s, g, true, x->io->k, &x->p->k, x->d.q, x->d.ldq, tile);
    exact_map(x, tile, g->n, sweep_positions(s, g, true), true, &mapped);
}
