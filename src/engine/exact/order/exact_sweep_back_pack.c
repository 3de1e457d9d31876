/* exact_sweep_back_pack.c -- ordered sweeps backward: scratch, and gathered rows as
 * products take them. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/order/exact_sweep_back.h"

static void carve_tiles(const struct exact *x, struct sweep_back_scratch *r,
                        struct arena *a)
{
    for (int t = 0; t < SWEEP_TILES; t++) {
        struct sweep_packed *p = &r->packed[t];

        p->keys = arena_alloc(a, 1, x->packed.key_bytes);
        p->keys_sum = x->bf16 ? arena_alloc(a, 1, x->packed.key_bytes) : p->keys;
        p->values = arena_alloc(a, 1, x->packed.value_bytes);
        p->dk = arena_alloc(a, TILE * (int64_t)x->d.ldq, sizeof(float));
        p->dv = arena_alloc(a, TILE * (int64_t)x->d.ldv, sizeof(float));
    }
}

void sweep_back_carve(const struct exact *x, struct sweep_back_scratch *r,
                      struct arena *a)
{
    const int64_t ld = max64(x->d.ldq, x->d.ldv),
                  nonfinite_products = (int64_t)TILE * LANES;
    const int64_t pairs = x->bf16 ? nonfinite_products : 0;

    sweep_carve(x, &r->block, r->tiles, a);
    carve_tiles(x, r, a);
    r->q_cols = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r->q_rows = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r->g_cols = arena_alloc(a, LANES * (int64_t)x->d.ldv, sizeof(float));
    r->g_rows = arena_alloc(a, LANES * (int64_t)x->d.ldv, sizeof(float));
    r->tile = arena_alloc(a, TILE * ld, sizeof(float));
    r->tile2 = arena_alloc(a, TILE * ld, sizeof(float));
    r->s = arena_alloc(a, nonfinite_products, sizeof(float));
    r->dp = arena_alloc(a, nonfinite_products, sizeof(float));
    r->bias = arena_alloc(a, sweep_has_bias(x) ? nonfinite_products : 0, sizeof(float));
    r->w16 = arena_alloc(a, pairs, sizeof(uint16_t));
    r->ds16 = arena_alloc(a, pairs, sizeof(uint16_t));
    r->pairs = arena_alloc(a, pairs / 2, sizeof(uint32_t));
    r->dqt = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r->seen = arena_alloc(a, TILE, sizeof(uint64_t));
    r->dropout_mask = arena_alloc(a, TILE, sizeof(uint64_t));
}

size_t sweep_backward_bytes(const struct exact *x)
{
    struct arena               one = { 0 };
    struct sweep_back_scratch *r = arena_alloc(&one, 1, sizeof *r);
    struct sweep_back_scratch  dry;

    (void)r;
    sweep_back_carve(x, &dry, &one);
    return one.used;
}

/*
 * Packing
 */

void sweep_back_pack_tile(const struct sweep *s, int64_t number, int slot,
                          struct sweep_back_scratch *r)
{
    const struct exact  *x = s->x;
    struct sweep_tile   *t = &r->tiles[slot];
    struct sweep_packed *p = &r->packed[slot];

    sweep_tile(s, number, t);
    sweep_keys(s, &t->k, r->tile);
    t->nonfinite =
        exact_finite(x, r->tile, x->d.ldq, x->d.q, t->k.n) ? 0 : NONFINITE_KEY;
    if (x->bf16) {
        x->k->pack_rows_bf16((void *)p->keys, r->tile, x->d.ldq, t->k.n, x->d.q_pad);
        x->k->pack_sum_bf16((void *)p->keys_sum, r->tile, x->d.ldq, t->k.n, x->d.q_pad);
    } else
        memcpy(p->keys, r->tile, x->packed.key_bytes);

    sweep_load(s, &t->k, true, x->io->v, &x->p->v, x->d.v, x->d.ldv, r->tile);
    if (!exact_finite(x, r->tile, x->d.ldv, x->d.v, t->k.n))
        t->nonfinite |= NONFINITE_VALUE;
    if (x->bf16)
        x->k->pack_rows_bf16((void *)p->values, r->tile, x->d.ldv, t->k.n, x->d.v_pad);
    else
        memcpy(p->values, r->tile, x->packed.value_bytes);
    memset(p->dk, 0, TILE * (size_t)x->d.ldq * sizeof(float));
    memset(p->dv, 0, TILE * (size_t)x->d.ldv * sizeof(float));
}

/* Rows as columns, the second operand of scores and dp; and as rows, that of dk and dv. */
static void pack_cols(const struct exact *x, const float *tile, int ld, int d,
                      int d_pad, void *cols)
{
    if (x->bf16)
        x->k->pack_cols_bf16(cols, tile, ld, LANES, d_pad);
    else
        x->k->pack_cols_f32(cols, tile, ld, LANES, d);
}

static void pack_rows(const struct exact *x, const float *tile, int ld, int d_pad,
                      void *rows)
{
    if (x->bf16)
        x->k->pack_pairs_bf16(rows, tile, ld, LANES, d_pad);
    else
        memcpy(rows, tile, LANES * (size_t)ld * sizeof *tile);
}

static void load_rows(const struct sweep *s, struct sweep_back_scratch *r)
{
    const struct exact     *x = s->x;
    const struct order     *o = x->order;
    const struct gathered  *g = &r->block.q;
    const struct exact_seq *seq = s->task.seq;
    const int64_t first = (s->task.head * x->max.qt + seq->qt0) * LANES + seq->lead;
    const int64_t at = s->task.head * o->q_rows + order_q_row(x, seq);
    const struct order_row none = { .norm = x->kind == FOCI_WEIGH_RELU2 ? 0 : INFINITY };
    const float            log_rounds = sweep_log_rounds(s);

    for (int i = 0; i < LANES; i++) {
        const bool             live = i < g->n;
        const struct order_row row = live ? o->rows[g->at[i]] : none;

        r->plain[i] = row.plain;
        r->f[i] = row.f;
        r->mul[i] = row.mul;
        r->norm[i] = row.norm - log_rounds;
        r->delta[i] = row.delta;
        r->share[i] = live && o->topk ? 1 / (float)o->chosen[at + g->row[i]] : 1;
        r->own[i] = o->topk ? row.mul : 1;
        r->slot[i] = live ? first + g->row[i] : 0;
    }
}

void sweep_back_load_grads(const struct sweep *s, struct sweep_back_scratch *r)
{
    const struct exact    *x = s->x;
    const struct gathered *g = &r->block.q;

    sweep_load(s, g, false, x->order->d_o, &x->p->o, x->d.v, x->d.ldv, r->tile);
    if (!x->order->topk) exact_round(x, r->tile, x->d.ldv, x->d.v, r->tile2);
    for (int i = 0; x->order->topk && i < g->n; i++)
        order_scale_grad(x, r->tile + (int64_t)i * x->d.ldv, r->share[i]);
    for (int64_t i = 0; x->dropout.on && i < (int64_t)LANES * x->d.ldv; i++)
        r->tile[i] *= x->dropout.scale;
}

void sweep_back_pack_block(const struct sweep *s, int64_t number,
                           struct sweep_back_scratch *r)
{
    const struct exact    *x = s->x;
    const struct gathered *g = &r->block.q;

    sweep_block(s, number, &r->block);
    load_rows(s, r);
    sweep_back_load_grads(s, r);
    r->nonfinite =
        exact_finite(x, r->tile, x->d.ldv, x->d.v, g->n) ? 0 : NONFINITE_GRAD;
    pack_cols(x, r->tile, x->d.ldv, x->d.v, x->d.v_pad, r->g_cols);
    pack_rows(x, r->tile, x->d.ldv, x->d.v_pad, r->g_rows);

    sweep_queries(s, g, r->tile);
    if (!exact_finite(x, r->tile, x->d.ldq, x->d.q, g->n))
        r->nonfinite |= NONFINITE_QUERY;
    pack_cols(x, r->tile, x->d.ldq, x->d.q, x->d.q_pad, r->q_cols);
    for (int i = 0; x->score->n_rows && i < g->n; i++)
        for (int c = 0; c < x->d.q; c++)
            r->tile[(int64_t)i * x->d.ldq + c] *= r->mul[i];
    pack_rows(x, r->tile, x->d.ldq, x->d.q_pad, r->q_rows);
    memset(r->dqt, 0, (size_t)x->d.ldq * LANES * sizeof *r->dqt);
}
