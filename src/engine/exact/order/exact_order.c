/* exact_order.c -- ordered sweeps from end to end: memory, labels, rounds. */
#include "engine/exact/order/exact_order.h"

#include <math.h>
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_sweep.h"
#include "engine/exact/terms/exact_shaw.h"

/* Whether labels are any numbers at first. */
static bool unbounded(const struct order *o)
{
    return o->how.label == FOCI_LABEL_FLOOR || o->how.label == FOCI_LABEL_PLACE;
}

static struct order describe(const struct exact *x)
{
    const foci_problem *p = x->p;
    struct order        o = { .how = x->stage->order,
                              .labels = vectors_count(x->stage),
                              .q_rows = p->batch * p->len_q,
                              .k_rows = p->batch * p->len_k };

    o.rounds = max64(1, o.how.rounds);
    o.sets = order_by_place(&o) ? 1 : x->heads;
    o.cell_cap = o.q_rows;
    o.piece_cap = order_pieces_before(o.q_rows, o.k_rows, x->max.seqs);
    o.sums_q = o.q_rows;
    if (!o.how.topk) return o;
    o.topk = true;
    o.entries_q = o.sums_q = o.labels * min64(o.how.topk, p->len_q);
    o.entries_k = o.labels * min64(o.how.topk, p->len_k);
    o.cell_cap = o.labels;
    o.piece_cap = order_pieces_before(o.entries_q, o.entries_k, 1);
    return o;
}

int64_t order_saved_floats(const struct exact *x)
{
    const struct order o = describe(x);

    if (order_by_place(&o)) return 0;
    if (o.topk) return x->max.seqs * x->heads * (o.entries_q + o.entries_k);
    return o.sets * o.rounds * (o.q_rows + (o.how.shared_qk ? 0 : o.k_rows));
}

/* Lists, where each label takes a number of rows. */
static void carve_entries(const struct exact *x, struct order *o, struct arena *a,
                          float *saved, bool backward)
{
    const int64_t n = x->heads * (o->entries_q + o->entries_k);
    const int64_t rows = x->heads * o->q_rows;

    o->all_lists = saved != NULL;
    o->lists =
        saved ? (int32_t *)(void *)saved + rows : arena_alloc(a, n, sizeof *o->lists);
    o->chosen = arena_alloc(a, rows, sizeof *o->chosen);
    o->mean =
        arena_alloc(a, x->heads * x->p->len_q, (size_t)x->d.ldv * sizeof *o->mean);
    if (!backward) return;
    o->dk = arena_alloc(a, x->heads * o->entries_k, (size_t)x->d.ldq * sizeof *o->dk);
    o->dv = arena_alloc(a, x->heads * o->entries_k, (size_t)x->d.ldv * sizeof *o->dv);
    o->dq_rows = arena_alloc(a, rows, (size_t)x->d.ldq * sizeof *o->dq_rows);
    o->d_sink = arena_alloc(a, x->heads, sizeof *o->d_sink);
}

/* Labels found by forward are in `saved`; otherwise they must be found. */
static void carve_labels(const struct exact *x, struct order *o, struct arena *a,
                         float *saved, bool backward)
{
    const int64_t n_q = o->sets * o->rounds * o->q_rows;
    const int64_t n_k = o->how.shared_qk ? 0 : o->sets * o->rounds * o->k_rows;

    if (saved && !order_by_place(o)) {
        o->label_q = (int32_t *)(void *)saved + x->heads * o->q_rows;
        o->label_k = o->label_q + n_q;
    } else {
        o->label_q = arena_alloc(a, n_q, sizeof *o->label_q);
        o->label_k = arena_alloc(a, n_k, sizeof *o->label_k);
    }
    if (!unbounded(o) || (backward && !order_by_place(o))) return;
    o->raw_q = arena_alloc(a, n_q, sizeof *o->raw_q);
    o->raw_k = arena_alloc(a, n_k, sizeof *o->raw_k);
}

static void carve_parts(const struct exact *x, struct order *o, struct arena *a)
{
    const int64_t parts = o->sets * x->max.seqs;

    o->parts = arena_alloc(a, parts, sizeof *o->parts);
    o->first = arena_alloc(a, parts + 1, sizeof *o->first);
    if (!o->topk) {
        o->list_q = arena_alloc(a, o->sets * o->q_rows, sizeof *o->list_q);
        o->list_k = arena_alloc(a, o->sets * o->k_rows, sizeof *o->list_k);
    }
    o->cells = arena_alloc(a, o->sets * o->cell_cap, sizeof *o->cells);
    o->pieces = arena_alloc(a, o->sets * o->piece_cap, sizeof *o->pieces);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

void order_carve(struct exact *x, struct arena *a, float *saved, bool backward)
{
    struct order  dry;
    struct order *o = arena_alloc(a, 1, sizeof *o);

    if (!o) o = &dry;
    *o = describe(x);
    x->order = o;
    const int64_t rows = x->heads * o->sums_q;
    o->vector_norm = arena_alloc(a, o->sets * o->rounds, sizeof *o->vector_norm);
    if (o->topk)
        carve_entries(x, o, a, saved, backward);
    else
        carve_labels(x, o, a, saved, backward);
    carve_parts(x, o, a);
    if (backward) {
        o->rows = arena_alloc(a, rows, sizeof *o->rows);
        o->dq = arena_alloc(a, rows, (size_t)x->d.ldq * sizeof *o->dq);
        if (!o->topk) o->dq_rows = o->dq;
        if (o->how.shared_qk)
            o->dk =
                arena_alloc(a, x->heads * o->k_rows, (size_t)x->d.ldq * sizeof *o->dk);
    }
    if (!backward || o->topk) {
        o->o = arena_alloc(a, rows, (size_t)x->d.ldv * sizeof *o->o);
        o->m = arena_alloc(a, rows, sizeof *o->m);
        o->l = arena_alloc(a, rows, sizeof *o->l);
    }
    if (exact_counts_keys(x, backward))
        o->visible = arena_alloc(a, rows, sizeof *o->visible);
    if (o->how.shared_qk) o->any_seen = arena_alloc(a, rows, sizeof *o->any_seen);
    o->scratch_bytes = larger(order_labels_bytes(x), order_cells_bytes(x));
    o->scratch_bytes = larger(o->scratch_bytes, backward ? sweep_backward_bytes(x)
                                                         : sweep_forward_bytes(x));
    /* Counting uses the scratch of the forward pass. */
    if (o->topk) o->scratch_bytes = larger(o->scratch_bytes, topk_scratch_bytes(x));
    if (o->topk || exact_counts_keys(x, backward))
        o->scratch_bytes = larger(o->scratch_bytes, sweep_forward_bytes(x));
    o->scratch = arena_alloc(a, x->threads, o->scratch_bytes);
    if (!a->base) x->order = NULL;
}

/* No row has seen anything yet. */
static void clear_seen(const struct exact *x)
{
    if (x->order->any_seen)
        memset(x->order->any_seen, 0, (size_t)(x->heads * x->order->q_rows));
}

/* The rounds, and one more in which rows that have seen nothing see themselves. */
static int64_t rounds_of(const struct order *o)
{
    return o->rounds + (o->how.shared_qk ? 1 : 0);
}

/* The running row of lane 0 of a block. */
static int64_t order_row_of(const struct exact *x, const struct exact_block *b)
{
    return (b->h - x->head0) * x->order->q_rows + order_q_row(x, b->seq) + b->i0;
}

/* Add the keys that rows see in natural order. */
static void count_natural(struct exact *x)
{
    for (int64_t i = 0; i < x->heads * x->n.qt; i++) {
        const struct exact_block b = exact_block(x, i / x->n.qt, i % x->n.qt);
        int64_t                  visible[LANES];

        exact_count_visible_natural(x, &b, visible);
        for (int r = b.r0; r < b.r1; r++)
            x->order->visible[order_row_of(x, &b) + r] += (int32_t)visible[r];
    }
}

static void count_visible(struct exact *x)
{
    struct order *o = x->order;

    if (!o->visible) return;
    memset(o->visible, 0, (size_t)(x->heads * o->q_rows) * sizeof *o->visible);
    clear_seen(x);
    for (int64_t r = 0; r < rounds_of(o); r++) {
        order_cells(x, r, false);
        sweep_count(x, r);
    }
    if (exact_natural(x)) count_natural(x);
}

void order_start(struct exact *x)
{
    struct order *o = x->order;

    for (int64_t h = 0; h < x->heads; h++) {
        const float sink = x->score->sink < 0
                               ? -INFINITY
                               : x->io->params[x->score->sink + h] * (float)LOG2_E;
        for (int64_t i = 0; i < o->sums_q; i++) {
            o->m[h * o->sums_q + i] = sink;
            o->l[h * o->sums_q + i] = sink == -INFINITY ? 0.0f : 1.0f;
        }
    }
    memset(o->o, 0, (size_t)(x->heads * o->sums_q * x->d.ldv) * sizeof *o->o);
}

void order_begin(struct exact *x, bool labels)
{
    struct order *o = x->order;

    o->seqs = o->topk ? 1 : x->n.seqs;
    o->n_parts = o->sets * o->seqs;
    o->first[0] = 0;
    if (o->topk) {
        if (!labels) topk_begin_back(x);
        return;
    }
    if (labels || order_by_place(o)) {
        order_labels(x);
        order_number_labels(x);
    }
    count_visible(x);
    if (o->o && !exact_natural(x)) order_start(x);
}

void order_forward(struct exact *x, float *saved)
{
    if (x->order->topk) {
        topk_forward(x, saved);
        return;
    }
    clear_seen(x);
    for (int64_t r = 0; r < rounds_of(x->order); r++) {
        order_cells(x, r, false);
        sweep_forward(x, r);
    }
}

/*
 * Blocks in natural order
 */

void order_count_visible(const struct exact *x, const struct exact_block *b,
                         int64_t *visible)
{
    memset(visible, 0, LANES * sizeof *visible);
    for (int r = b->r0; r < b->r1; r++)
        visible[r] = (x->order->topk ? x->order->chosen
                                     : x->order->visible)[order_row_of(x, b) + r];
}

void order_save_block(const struct exact *x, const struct exact_block *b,
                      const float *ot, const float *m, const float *l, float *tile)
{
    const struct order *o = x->order;
    const int64_t       row = order_row_of(x, b);
    _Alignas(64) float  ones[LANES];

    for (int r = 0; r < LANES; r++)
        ones[r] = 1;
    x->k->store_cols(tile, x->d.ldv, FOCI_F32, ot, ones, LANES, x->d.ldv);
    for (int r = b->r0; r < b->r1; r++) {
        o->m[row + r] = m[r];
        o->l[row + r] = l[r];
    }
    memcpy(o->o + (row + b->r0) * x->d.ldv, tile + (int64_t)b->r0 * x->d.ldv,
           (size_t)(b->r1 - b->r0) * (size_t)x->d.ldv * sizeof *tile);
}

void order_load_block(const struct exact *x, const struct exact_block *b, float *ot,
                      float *m, float *l, float *tile)
{
    const struct order *o = x->order;
    const int64_t       row = order_row_of(x, b);

    memset(tile, 0, (size_t)LANES * (size_t)x->d.ldv * sizeof *tile);
    memcpy(tile + (int64_t)b->r0 * x->d.ldv, o->o + (row + b->r0) * x->d.ldv,
           (size_t)(b->r1 - b->r0) * (size_t)x->d.ldv * sizeof *tile);
    x->k->pack_cols_f32(ot, tile, x->d.ldv, LANES, x->d.ldv);
    for (int r = 0; r < LANES; r++) {
        const bool live = r >= b->r0 && r < b->r1;
        m[r] = live ? o->m[row + r] : -INFINITY;
        l[r] = live ? o->l[row + r] : 0;
    }
}

/*
 * Backward
 */

void order_save_row(const struct exact *x, const struct exact_block *b, int i,
                    struct order_row row)
{
    if (!x->order->topk) x->order->rows[order_row_of(x, b) + i] = row;
}

void order_clear_factors(const struct exact *x, float *mul)
{
    for (int i = 0; x->order->topk && i < LANES; i++)
        mul[i] = 1;
}

double order_sink(const struct exact *x, int64_t h)
{
    return x->order->topk ? x->order->d_sink[h] : 0;
}

void order_scale_grad(const struct exact *x, float *row, float share)
{
    for (int c = 0; c < x->d.v; c++)
        row[c] *= share;
    if (!x->bf16) return;
    for (int c = 0; c < x->d.v; c += TILE) {
        uint16_t  rounded[TILE];
        const int n = (int)min64(TILE, x->d.v - c);

        x->k->store_rows(rounded, TILE, FOCI_BF16, row + c, TILE, 1.0f, 1, n);
        x->k->load_rows(row + c, n, rounded, TILE, FOCI_BF16, 1, n);
    }
}

void order_backward(struct exact *x, const foci_grads *g, const struct shaw_back *shaw)
{
    struct order *o = x->order;

    o->d_o = g->d_o;
    o->dbias = g->dbias;
    o->shaw = shaw;
    memset(o->dq_rows, 0, (size_t)(x->heads * o->q_rows * x->d.ldq) * sizeof *o->dq);
    if (o->topk) {
        topk_backward(x);
        return;
    }
    if (o->how.shared_qk)
        memset(o->dk, 0, (size_t)(x->heads * o->k_rows * x->d.ldq) * sizeof *o->dk);
    else
        o->dk = x->grads.dk;
    o->dv = x->grads.dv;
    clear_seen(x);
    for (int64_t r = 0; r < rounds_of(o); r++) {
        order_cells(x, r, true);
        sweep_backward(x, r);
    }
}

void order_add_dq(const struct exact *x, const struct exact_block *b, float *dqt)
{
    const float *dq = x->order->dq_rows + order_row_of(x, b) * x->d.ldq;

    for (int r = b->r0; r < b->r1; r++)
        for (int c = 0; c < x->d.q; c++)
            dqt[c * LANES + r] += dq[(int64_t)r * x->d.ldq + c];
}

/* Queries are keys too: add their gradients as keys, through the maps of keys. */
void order_add_shared_keys(const struct exact *x, const struct exact_block *b, float *d,
                           float *tile, float *tile2)
{
    const struct order    *o = x->order;
    const float           *dk = o->dk + order_row_of(x, b) * x->d.ldq;
    const struct positions at = { b->pos, NULL };
    struct mapped          mapped;

    if (!o->how.shared_qk) return;
    exact_load_block(x, b, x->io->q, &x->p->q, x->d.q, x->d.ldq, tile);
    exact_map(x, tile, LANES, at, true, &mapped);
    memset(tile2, 0, (size_t)LANES * (size_t)x->d.ldq * sizeof *tile2);
    for (int r = b->r0; r < b->r1; r++)
        if (b->pos + r >= x->stage->memory)
            memcpy(tile2 + (int64_t)r * x->d.ldq, dk + (int64_t)r * x->d.ldq,
                   (size_t)x->d.q * sizeof *dk);
    exact_map_back(x, tile2, tile, LANES, at, true, &mapped);
    for (int r = b->r0; r < b->r1; r++)
        for (int c = 0; c < x->d.q; c++)
            d[(int64_t)r * x->d.ldq + c] += tile2[(int64_t)r * x->d.ldq + c];
}
