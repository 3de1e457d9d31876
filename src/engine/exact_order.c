/* exact_order.c -- ordered sweeps from end to end: memory, labels, rounds. */
#include "engine/exact_order.h"

#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_shaw.h"
#include "engine/exact_sweep.h"
#include "engine/exact_tiles.h"

/* Whether labels are numbers without bounds at first. */
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
    o.piece_cap = order_pieces_before(o.q_rows, o.k_rows, x->max_seqs);
    o.sums_q = o.q_rows;
    if (!o.how.take) return o;
    o.takes = true;
    o.entries_q = o.sums_q = o.labels * min64(o.how.take, p->len_q);
    o.entries_k = o.labels * min64(o.how.take, p->len_k);
    o.cell_cap = o.labels;
    o.piece_cap = order_pieces_before(o.entries_q, o.entries_k, 1);
    return o;
}

int64_t order_saved_floats(const struct exact *x)
{
    const struct order o = describe(x);

    if (order_by_place(&o)) return 0;
    if (o.takes) return x->max_seqs * x->heads * (o.entries_q + o.entries_k);
    return o.sets * o.rounds * (o.q_rows + (o.how.shared ? 0 : o.k_rows));
}

/* Lists in place of labels. */
static void take_entries(const struct exact *x, struct order *o, struct arena *a,
                         float *saved, bool backward)
{
    const int64_t n = x->heads * (o->entries_q + o->entries_k);
    const int64_t rows = x->heads * o->q_rows;

    o->all_lists = saved != NULL;
    o->lists =
        saved ? (int32_t *)(void *)saved + rows : arena_take(a, n, sizeof *o->lists);
    o->taken = arena_take(a, rows, sizeof *o->taken);
    o->mean = arena_take(a, x->heads * x->p->len_q, (size_t)x->ldv * sizeof *o->mean);
    if (!backward) return;
    o->dk = arena_take(a, x->heads * o->entries_k, (size_t)x->ldq * sizeof *o->dk);
    o->dv = arena_take(a, x->heads * o->entries_k, (size_t)x->ldv * sizeof *o->dv);
    o->dq_rows = arena_take(a, rows, (size_t)x->ldq * sizeof *o->dq_rows);
    o->d_sink = arena_take(a, x->heads, sizeof *o->d_sink);
}

/* Labels that forward found are in `saved`; elsewhere they have to be found. */
static void take_labels(const struct exact *x, struct order *o, struct arena *a,
                        float *saved, bool backward)
{
    const int64_t n_q = o->sets * o->rounds * o->q_rows;
    const int64_t n_k = o->how.shared ? 0 : o->sets * o->rounds * o->k_rows;

    if (saved && !order_by_place(o)) {
        o->label_q = (int32_t *)(void *)saved + x->heads * o->q_rows;
        o->label_k = o->label_q + n_q;
    } else {
        o->label_q = arena_take(a, n_q, sizeof *o->label_q);
        o->label_k = arena_take(a, n_k, sizeof *o->label_k);
    }
    if (!unbounded(o) || (backward && !order_by_place(o))) return;
    o->raw_q = arena_take(a, n_q, sizeof *o->raw_q);
    o->raw_k = arena_take(a, n_k, sizeof *o->raw_k);
}

static void take_parts(const struct exact *x, struct order *o, struct arena *a)
{
    const int64_t parts = o->sets * x->max_seqs;

    o->parts = arena_take(a, parts, sizeof *o->parts);
    o->first = arena_take(a, parts + 1, sizeof *o->first);
    if (!o->takes) {
        o->list_q = arena_take(a, o->sets * o->q_rows, sizeof *o->list_q);
        o->list_k = arena_take(a, o->sets * o->k_rows, sizeof *o->list_k);
    }
    o->cells = arena_take(a, o->sets * o->cell_cap, sizeof *o->cells);
    o->pieces = arena_take(a, o->sets * o->piece_cap, sizeof *o->pieces);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

void order_take(struct exact *x, struct arena *a, float *saved, bool backward)
{
    struct order  dry;
    struct order *o = arena_take(a, 1, sizeof *o);

    if (!o) o = &dry;
    *o = describe(x);
    x->order = o;
    const int64_t rows = x->heads * o->sums_q;
    o->reach = arena_take(a, o->sets * o->rounds, sizeof *o->reach);
    if (o->takes)
        take_entries(x, o, a, saved, backward);
    else
        take_labels(x, o, a, saved, backward);
    take_parts(x, o, a);
    if (backward) {
        o->rows = arena_take(a, rows, sizeof *o->rows);
        o->dq = arena_take(a, rows, (size_t)x->ldq * sizeof *o->dq);
        if (!o->takes) o->dq_rows = o->dq;
        if (o->how.shared)
            o->dk = arena_take(a, x->heads * o->k_rows, (size_t)x->ldq * sizeof *o->dk);
    }
    if (!backward || o->takes) {
        o->o = arena_take(a, rows, (size_t)x->ldv * sizeof *o->o);
        o->m = arena_take(a, rows, sizeof *o->m);
        o->l = arena_take(a, rows, sizeof *o->l);
    }
    if (exact_counts(x, backward)) o->visible = arena_take(a, rows, sizeof *o->visible);
    if (o->how.shared) o->any = arena_take(a, rows, sizeof *o->any);
    o->scratch_bytes = larger(order_labels_scratch(x), order_cells_scratch(x));
    o->scratch_bytes = larger(o->scratch_bytes, backward ? sweep_backward_scratch(x)
                                                         : sweep_forward_scratch(x));
    /* Counting is done with the room of the forward pass. */
    if (o->takes) o->scratch_bytes = larger(o->scratch_bytes, take_scratch(x));
    if (o->takes || exact_counts(x, backward))
        o->scratch_bytes = larger(o->scratch_bytes, sweep_forward_scratch(x));
    o->scratch = arena_take(a, x->threads, o->scratch_bytes);
    if (!a->base) x->order = NULL;
}

/* Rows that have seen nothing yet. */
static void clear_any(const struct exact *x)
{
    if (x->order->any) memset(x->order->any, 0, (size_t)(x->heads * x->order->q_rows));
}

/* Rounds, and one more where rows that saw nothing see themselves. */
static int64_t rounds_of(const struct order *o)
{
    return o->rounds + (o->how.shared ? 1 : 0);
}

/* Row of lane 0 of a block in what is kept of rows. */
static int64_t row_of(const struct exact *x, const struct block *b)
{
    return (b->h - x->head0) * x->order->q_rows + order_q_row(x, b->seq) + b->i0;
}

/* And what they see in natural order. */
static void count_natural(struct exact *x)
{
    for (int64_t i = 0; i < x->heads * x->n_qt; i++) {
        const struct block b = exact_block(x, i / x->n_qt, i % x->n_qt);
        int64_t            visible[LANES];

        exact_visible_natural(x, &b, visible);
        for (int r = b.r0; r < b.r1; r++)
            x->order->visible[row_of(x, &b) + r] += (int32_t)visible[r];
    }
}

static void count(struct exact *x)
{
    struct order *o = x->order;

    if (!o->visible) return;
    memset(o->visible, 0, (size_t)(x->heads * o->q_rows) * sizeof *o->visible);
    clear_any(x);
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
    memset(o->o, 0, (size_t)(x->heads * o->sums_q * x->ldv) * sizeof *o->o);
}

void order_begin(struct exact *x, bool labels)
{
    struct order *o = x->order;

    o->seqs = o->takes ? 1 : x->n_seqs;
    o->n_parts = o->sets * o->seqs;
    o->first[0] = 0;
    if (o->takes) {
        if (!labels) take_begin_back(x);
        return;
    }
    if (labels || order_by_place(o)) {
        order_labels(x);
        order_settle(x);
    }
    count(x);
    if (o->o && !exact_natural(x)) order_start(x);
}

void order_forward(struct exact *x, float *saved)
{
    if (x->order->takes) {
        take_forward(x, saved);
        return;
    }
    clear_any(x);
    for (int64_t r = 0; r < rounds_of(x->order); r++) {
        order_cells(x, r, false);
        sweep_forward(x, r);
    }
}

/*
 * Blocks in natural order
 */

void order_visible(const struct exact *x, const struct block *b, int64_t *visible)
{
    memset(visible, 0, LANES * sizeof *visible);
    for (int r = b->r0; r < b->r1; r++)
        visible[r] =
            (x->order->takes ? x->order->taken : x->order->visible)[row_of(x, b) + r];
}

void order_keep(const struct exact *x, const struct block *b, const float *ot,
                const float *m, const float *l, float *tile)
{
    const struct order *o = x->order;
    const int64_t       row = row_of(x, b);
    _Alignas(64) float  ones[LANES];

    for (int r = 0; r < LANES; r++)
        ones[r] = 1;
    x->k->store_cols(tile, x->ldv, FOCI_F32, ot, ones, LANES, x->ldv);
    for (int r = b->r0; r < b->r1; r++) {
        o->m[row + r] = m[r];
        o->l[row + r] = l[r];
    }
    memcpy(o->o + (row + b->r0) * x->ldv, tile + (int64_t)b->r0 * x->ldv,
           (size_t)(b->r1 - b->r0) * (size_t)x->ldv * sizeof *tile);
}

void order_back(const struct exact *x, const struct block *b, float *ot, float *m,
                float *l, float *tile)
{
    const struct order *o = x->order;
    const int64_t       row = row_of(x, b);

    memset(tile, 0, (size_t)LANES * (size_t)x->ldv * sizeof *tile);
    memcpy(tile + (int64_t)b->r0 * x->ldv, o->o + (row + b->r0) * x->ldv,
           (size_t)(b->r1 - b->r0) * (size_t)x->ldv * sizeof *tile);
    x->k->pack_cols_f32(ot, tile, x->ldv, LANES, x->ldv);
    for (int r = 0; r < LANES; r++) {
        const bool live = r >= b->r0 && r < b->r1;
        m[r] = live ? o->m[row + r] : -INFINITY;
        l[r] = live ? o->l[row + r] : 0;
    }
}

/*
 * Backward
 */

void order_note(const struct exact *x, const struct block *b, int i,
                struct order_row row)
{
    if (!x->order->takes) x->order->rows[row_of(x, b) + i] = row;
}

void order_factors(const struct exact *x, float *mul)
{
    for (int i = 0; x->order->takes && i < LANES; i++)
        mul[i] = 1;
}

double order_sink(const struct exact *x, int64_t h)
{
    return x->order->takes ? x->order->d_sink[h] : 0;
}

void order_share_row(const struct exact *x, float *row, float share)
{
    for (int c = 0; c < x->dv; c++)
        row[c] *= share;
    if (!x->bf16) return;
    for (int c = 0; c < x->dv; c += TILE) {
        uint16_t  words[TILE];
        const int n = (int)min64(TILE, x->dv - c);

        x->k->store_rows(words, TILE, FOCI_BF16, row + c, TILE, 1.0f, 1, n);
        x->k->load_rows(row + c, n, words, TILE, FOCI_BF16, 1, n);
    }
}

void order_backward(struct exact *x, const foci_grads *g, const struct shaw_back *shaw)
{
    struct order *o = x->order;

    o->d_o = g->d_o;
    o->dbias = g->dbias;
    o->shaw = shaw;
    memset(o->dq_rows, 0, (size_t)(x->heads * o->q_rows * x->ldq) * sizeof *o->dq);
    if (o->takes) {
        take_backward(x);
        return;
    }
    if (o->how.shared)
        memset(o->dk, 0, (size_t)(x->heads * o->k_rows * x->ldq) * sizeof *o->dk);
    else
        o->dk = x->dk_rows;
    o->dv = x->dv_rows;
    clear_any(x);
    for (int64_t r = 0; r < rounds_of(o); r++) {
        order_cells(x, r, true);
        sweep_backward(x, r);
    }
}

void order_add_dq(const struct exact *x, const struct block *b, float *dqt)
{
    const float *dq = x->order->dq_rows + row_of(x, b) * x->ldq;

    for (int r = b->r0; r < b->r1; r++)
        for (int c = 0; c < x->dq; c++)
            dqt[c * LANES + r] += dq[(int64_t)r * x->ldq + c];
}

/* Queries are keys as well: from the gradients of those, by way of their maps. */
void order_add_keys(const struct exact *x, const struct block *b, float *d, float *tile,
                    float *tile2)
{
    const struct order *o = x->order;
    const float        *dk = o->dk + row_of(x, b) * x->ldq;
    const struct places at = { b->pos, NULL };
    struct mapped       mapped;

    if (!o->how.shared) return;
    exact_load_block(x, b, x->io->q, &x->p->q, x->dq, x->ldq, tile);
    exact_map(x, tile, LANES, at, true, &mapped);
    memset(tile2, 0, (size_t)LANES * (size_t)x->ldq * sizeof *tile2);
    for (int r = b->r0; r < b->r1; r++)
        if (b->pos + r >= x->stage->memory)
            memcpy(tile2 + (int64_t)r * x->ldq, dk + (int64_t)r * x->ldq,
                   (size_t)x->dq * sizeof *dk);
    exact_map_back(x, tile2, tile, LANES, at, true, &mapped);
    for (int r = b->r0; r < b->r1; r++)
        for (int c = 0; c < x->dq; c++)
            d[(int64_t)r * x->ldq + c] += tile2[(int64_t)r * x->ldq + c];
}
