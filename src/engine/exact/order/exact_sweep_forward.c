/* exact_sweep_forward.c -- ordered sweeps forward: cells continue the softmax of their
 * rows. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_nonfinite.h"
#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_sweep.h"
#include "engine/exact/terms/exact_shaw.h"

/* Scratch of one thread. */
struct sweep_scratch {
    struct sweep_block  block;
    struct sweep_tile   tiles[SWEEP_TILES];
    char               *keys[SWEEP_TILES], *values[SWEEP_TILES]; /* packed */
    float              *tile;                                    /* [TILE][max ld] */
    void               *q;                                       /* packed queries */
    float              *s, *bias;                                /* [TILE][LANES] */
    uint32_t           *w;  /* [TILE / 2][LANES] weights, bf16 pairs of two keys */
    float              *ot; /* [d.ldv][LANES] */
    uint64_t           *seen, *dropout_mask;
    struct shaw_scratch shaw;
};

static struct sweep_scratch sweep_scratch_carve(const struct exact *x, struct arena *a)
{
    const int64_t        ld = max64(x->d.ldq, x->d.ldv), pairs = (int64_t)TILE * LANES;
    struct sweep_scratch r;

    sweep_carve(x, &r.block, r.tiles, a);
    for (int t = 0; t < SWEEP_TILES; t++) {
        r.keys[t] = arena_alloc(a, 1, x->packed.key_bytes);
        r.values[t] = arena_alloc(a, 1, x->packed.value_bytes);
    }
    r.tile = arena_alloc(a, TILE * ld, sizeof(float));
    r.q = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r.s = arena_alloc(a, pairs, sizeof(float));
    r.bias = arena_alloc(a, sweep_has_bias(x) ? pairs : 0, sizeof(float));
    r.w = arena_alloc(a, x->bf16 ? pairs / 2 : 0, sizeof(uint32_t));
    r.ot = arena_alloc(a, LANES * (int64_t)x->d.ldv, sizeof(float));
    r.seen = arena_alloc(a, TILE, sizeof(uint64_t));
    r.dropout_mask = arena_alloc(a, TILE, sizeof(uint64_t));
    r.shaw = exact_shaw_scratch(x, a);
    return r;
}

size_t sweep_forward_bytes(const struct exact *x)
{
    struct arena one = { 0 };
    sweep_scratch_carve(x, &one);
    return one.used;
}

/*
 * Packing
 */

static void pack_tile(const struct sweep *s, int64_t number, int slot,
                      struct sweep_scratch *r)
{
    const struct exact *x = s->x;
    struct sweep_tile  *t = &r->tiles[slot];

    sweep_tile(s, number, t);
    sweep_keys(s, &t->k, r->tile);
    if (x->bf16)
        x->k->pack_rows_bf16((void *)r->keys[slot], r->tile, x->d.ldq, t->k.n,
                             x->d.q_pad);
    else
        memcpy(r->keys[slot], r->tile, x->packed.key_bytes);

    sweep_load(s, &t->k, true, x->io->v, &x->p->v, x->d.v, x->d.ldv, r->tile);
    t->nonfinite =
        exact_finite(x, r->tile, x->d.ldv, x->d.v, t->k.n) ? 0 : NONFINITE_VALUE;
    if (x->bf16)
        x->k->pack_sum_bf16((void *)r->values[slot], r->tile, x->d.ldv, t->k.n,
                            x->d.v_pad);
    else
        memcpy(r->values[slot], r->tile, x->packed.value_bytes);
}

static void sweep_pack_queries(const struct sweep *s, struct sweep_scratch *r)
{
    const struct exact *x = s->x;
    _Alignas(64) float  bound[LANES];

    sweep_queries(s, &r->block.q, r->tile);
    exact_shaw_begin(x, s->rows.h, r->tile, &r->shaw, bound);
    if (x->bf16)
        x->k->pack_cols_bf16(r->q, r->tile, x->d.ldq, LANES, x->d.q_pad);
    else
        x->k->pack_cols_f32(r->q, r->tile, x->d.ldq, LANES, x->d.q);
}

/*
 * Running rows
 */

struct sweep_pass {
    const struct sweep   *s;
    struct sweep_scratch *r;
    uint64_t              any;
    _Alignas(64) float m[LANES], l[LANES], plain[LANES], f[LANES], shrink[LANES];
};

static void load_state(struct sweep_pass *p)
{
    const struct exact    *x = p->s->x;
    const struct order    *o = x->order;
    const struct gathered *g = &p->r->block.q;
    const size_t           row = (size_t)x->d.ldv * sizeof(float);

    for (int i = 0; i < LANES; i++) {
        p->m[i] = i < g->n ? o->m[g->at[i]] : -INFINITY;
        p->l[i] = i < g->n ? o->l[g->at[i]] : 0;
        if (i < g->n)
            memcpy(p->r->tile + (int64_t)i * x->d.ldv, o->o + g->at[i] * x->d.ldv, row);
        else
            memset(p->r->tile + (int64_t)i * x->d.ldv, 0, row);
    }
    x->k->pack_cols_f32(p->r->ot, p->r->tile, x->d.ldv, LANES, x->d.ldv);
}

static void store_state(const struct sweep_pass *p)
{
    const struct exact    *x = p->s->x;
    const struct order    *o = x->order;
    const struct gathered *g = &p->r->block.q;
    _Alignas(64) float     ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(p->r->tile, x->d.ldv, FOCI_F32, p->r->ot, ones, g->n, x->d.ldv);
    for (int i = 0; i < g->n; i++) {
        o->m[g->at[i]] = p->m[i];
        o->l[g->at[i]] = p->l[i];
        memcpy(o->o + g->at[i] * x->d.ldv, p->r->tile + (int64_t)i * x->d.ldv,
               (size_t)x->d.ldv * sizeof(float));
        if (o->any_seen && p->any >> i & 1) o->any_seen[g->at[i]] = 1;
    }
}

static void find_factors(const struct sweep *s, const struct gathered *g, float *plain,
                         float *f)
{
    int64_t visible[LANES] = { 0 };

    for (int i = 0; s->x->order->visible && i < g->n; i++)
        visible[i] = s->x->order->visible[g->at[i]];
    exact_factors(s->x, &s->rows, visible, plain, f, NULL);
}

/*
 * Tiles
 */

/* Scores of a tile to logits, if more than a factor applies, then to weights. */
static void sweep_weights(struct sweep_pass *p, int slot, bool masked)
{
    const struct exact      *x = p->s->x;
    struct sweep_scratch    *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const int                n = t->k.n;
    const struct bias_rows   bias = sweep_bias(p->s, &r->block, t, r->bias);
    const float             *f = p->f, log_rounds = sweep_log_rounds(p->s);
    int                      moved;

    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, n, p->plain, p->f, bias, masked ? r->seen : NULL);
        f = NULL;
    }
    for (int i = 0; i < LANES; i++)
        p->m[i] -= log_rounds;
    if (x->bf16)
        moved = x->k->weigh_bf16(r->s, r->w, n, exact_padded(x, n) / 2, f, p->m, p->l,
                                 p->shrink, x->kind);
    else
        moved = x->k->weigh_f32(r->s, n, f, p->m, p->l, p->shrink, x->kind);
    for (int i = 0; i < LANES; i++)
        p->m[i] += log_rounds;
    if (!moved) return;
    x->k->shrink(r->ot, x->d.v, p->shrink);
    exact_shaw_shrink(x, &r->shaw, p->shrink);
}

static void sweep_scores(struct sweep_pass *p, int slot)
{
    const struct exact      *x = p->s->x;
    struct sweep_scratch    *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const struct operand keys = { r->keys[slot], x->bf16 ? x->d.q_pad / 2 : x->d.ldq,
                                  1 };

    exact_product(x, r->s, LANES, keys, r->q, LANES, exact_padded(x, t->k.n), LANES,
                  x->d.q_pad / x->kpack, 0);
    exact_shaw_scores_gathered(x, sweep_positions(p->s, &r->block.q, false),
                               sweep_positions(p->s, &t->k, true), t->k.n, &r->shaw,
                               r->s);
}

/* Dropped weights count in the normaliser and nowhere else. */
static void drop_weights(struct sweep_pass *p, int slot)
{
    const struct exact   *x = p->s->x;
    struct sweep_scratch *r = p->r;
    const int             n = r->tiles[slot].k.n;

    sweep_dropout_mask(p->s, &r->block, &r->tiles[slot], r->dropout_mask);
    if (x->bf16)
        x->k->drop_pairs_bf16(r->w, n, r->dropout_mask);
    else
        x->k->drop_f32(r->s, n, r->dropout_mask);
    for (int j = 0; j < n; j++)
        r->seen[j] &= r->dropout_mask[j];
}

static void values(struct sweep_pass *p, int slot, bool masked)
{
    const struct exact      *x = p->s->x;
    struct sweep_scratch    *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const struct operand     sum = sweep_sum(x, r->values[slot], x->d.v_pad, x->d.ldv);

    exact_shaw_weights_gathered(x, sweep_positions(p->s, &r->block.q, false),
                                sweep_positions(p->s, &t->k, true), t->k.n, &r->shaw,
                                r->s, r->w);
    if (masked && t->nonfinite) {
        sweep_load(p->s, &t->k, true, x->io->v, &x->p->v, x->d.v, x->d.ldv, r->tile);
        exact_nonfinite_values(x, 0, r->block.q.n, t->k.n, r->seen,
                               x->bf16 ? NULL : r->s, x->bf16 ? r->w : NULL, r->tile,
                               r->ot);
        return;
    }
    exact_product(x, r->ot, LANES, sum, x->bf16 ? (const void *)r->w : r->s, LANES,
                  x->d.v_pad, LANES, exact_padded(x, t->k.n) / x->kpack, 1);
}

/* One block and the packed tiles. */
static void block_forward(const struct sweep *s, int64_t block, int n_tiles,
                          struct sweep_scratch *r)
{
    struct sweep_pass p = { .s = s, .r = r };

    sweep_block(s, block, &r->block);
    sweep_pack_queries(s, r);
    load_state(&p);
    find_factors(s, &r->block.q, p.plain, p.f);
    for (int t = 0; t < n_tiles; t++) {
        const enum seen seen = sweep_seen(s, &r->block, &r->tiles[t], r->seen);

        if (seen == SEEN_NONE) continue;
        for (int j = 0; s->x->order->any_seen && j < r->tiles[t].k.n; j++)
            p.any |= r->seen[j];
        sweep_scores(&p, t);
        sweep_weights(&p, t, seen == SEEN_SOME);
        if (s->x->dropout.on) drop_weights(&p, t);
        values(&p, t, seen == SEEN_SOME || s->x->dropout.on);
    }
    exact_shaw_values(s->x, s->rows.h, &r->shaw, r->ot);
    store_state(&p);
}

static void piece_forward(const struct sweep *s, struct sweep_scratch *r)
{
    const struct order_piece *piece = s->task.piece;

    for (int64_t first = 0; first < piece->tiles; first += SWEEP_TILES) {
        const int n = (int)min64(SWEEP_TILES, piece->tiles - first);

        sweep_prefetch_keys(s, first, n);
        sweep_prefetch_block(s, piece->block0);
        for (int t = 0; t < n; t++)
            pack_tile(s, first + t, t, r);
        for (int64_t b = 0; b < piece->blocks; b++) {
            if (b + 1 < piece->blocks) sweep_prefetch_block(s, piece->block0 + b + 1);
            block_forward(s, piece->block0 + b, n, r);
        }
    }
}

/* A key is counted once, however often it weighs. */
static void piece_count(const struct sweep *s, struct sweep_scratch *r)
{
    const struct order_piece *piece = s->task.piece;
    const struct order       *o = s->x->order;
    struct sweep              first = *s;

    first.once = true;
    for (int64_t b = 0; b < piece->blocks; b++) {
        sweep_block(&first, piece->block0 + b, &r->block);
        for (int64_t t = 0; t < piece->tiles; t++) {
            sweep_tile(&first, t, r->tiles);
            if (sweep_seen(&first, &r->block, r->tiles, r->seen) == SEEN_NONE) continue;
            for (int j = 0; j < r->tiles->k.n; j++)
                for (uint64_t left = r->seen[j]; left; left &= left - 1) {
                    const int64_t at = r->block.q.at[__builtin_ctzll(left)];
                    o->visible[at]++;
                    if (o->any_seen) o->any_seen[at] = 1;
                }
        }
    }
}

/* A round over all pieces. */
struct sweep_round {
    struct exact *x;
    int64_t       number;
    void (*piece)(const struct sweep *s, struct sweep_scratch *r);
};

static void piece_job(void *arg, int64_t i, int thread)
{
    const struct sweep_round *u = arg;
    struct arena              mine = order_scratch(u->x, thread);
    struct sweep_scratch      scratch = sweep_scratch_carve(u->x, &mine);
    const struct sweep        s = sweep_of(u->x, u->number, order_task(u->x, i));

    u->piece(&s, &scratch);
}

static void run_round(struct exact *x, int64_t round,
                      void (*piece)(const struct sweep *s, struct sweep_scratch *r))
{
    const int64_t      tasks = order_tasks(x);
    const int          threads = exact_threads(x, tasks, x->plan->cost.forward_flops);
    struct sweep_round all = { x, round, piece };

    phases_run(x->k, x->exec.shared, threads,
               &(struct phase){ tasks, 1, piece_job, &all }, 1);
}

void sweep_count(struct exact *x, int64_t round) { run_round(x, round, piece_count); }

void sweep_forward(struct exact *x, int64_t round)
{
    run_round(x, round, piece_forward);
}
