/* exact_sweep.c -- ordered sweeps forward: cells continue the softmax of their rows. */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_pairs.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_sweep.h"
#include "engine/exact_tiles.h"

/* Scratch of one thread. */
struct room {
    struct sweep_block block;
    struct sweep_tile  tiles[SWEEP_TILES];
    char              *keys[SWEEP_TILES], *values[SWEEP_TILES]; /* packed */
    float             *tile;                                    /* [TILE][max ld] */
    void              *q;                                       /* packed queries */
    float             *s, *bias;                                /* [TILE][LANES] */
    uint32_t          *w;  /* [TILE / 2][LANES] weights as words */
    float             *ot; /* [ldv][LANES] */
    uint64_t          *seen, *keep;
    struct shaw        shaw;
};

static struct room room_take(const struct exact *x, struct arena *a)
{
    const int64_t ld = max64(x->ldq, x->ldv), pairs = (int64_t)TILE * LANES;
    struct room   r;

    sweep_take(x, &r.block, r.tiles, a);
    for (int t = 0; t < SWEEP_TILES; t++) {
        r.keys[t] = arena_take(a, 1, x->key_size);
        r.values[t] = arena_take(a, 1, x->value_size);
    }
    r.tile = arena_take(a, TILE * ld, sizeof(float));
    r.q = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r.s = arena_take(a, pairs, sizeof(float));
    r.bias = arena_take(a, sweep_biased(x) ? pairs : 0, sizeof(float));
    r.w = arena_take(a, x->bf16 ? pairs / 2 : 0, sizeof(uint32_t));
    r.ot = arena_take(a, LANES * (int64_t)x->ldv, sizeof(float));
    r.seen = arena_take(a, TILE, sizeof(uint64_t));
    r.keep = arena_take(a, TILE, sizeof(uint64_t));
    r.shaw = exact_shaw_take(x, a);
    return r;
}

size_t sweep_forward_scratch(const struct exact *x)
{
    struct arena one = { 0 };
    room_take(x, &one);
    return one.used;
}

/*
 * Packing
 */

static void pack_tile(const struct sweep *s, int64_t number, int slot, struct room *r)
{
    const struct exact *x = s->x;
    struct sweep_tile  *t = &r->tiles[slot];

    sweep_tile(s, number, t);
    sweep_keys(s, &t->k, r->tile);
    if (x->bf16)
        x->k->pack_rows_bf16((void *)r->keys[slot], r->tile, x->ldq, t->k.n, x->dq_pad);
    else
        memcpy(r->keys[slot], r->tile, x->key_size);

    sweep_load(s, &t->k, true, x->io->v, &x->p->v, x->dv, x->ldv, r->tile);
    t->bad = exact_finite(x, r->tile, x->ldv, x->dv, t->k.n) ? 0 : BAD_VALUE;
    if (x->bf16)
        x->k->pack_sum_bf16((void *)r->values[slot], r->tile, x->ldv, t->k.n, x->dv_pad);
    else
        memcpy(r->values[slot], r->tile, x->value_size);
}

static void pack_queries(const struct sweep *s, struct room *r)
{
    const struct exact *x = s->x;
    _Alignas(64) float  bound[LANES];

    sweep_queries(s, &r->block.q, r->tile);
    exact_shaw_begin(x, s->rows.h, r->tile, &r->shaw, bound);
    if (x->bf16)
        x->k->pack_cols_bf16(r->q, r->tile, x->ldq, LANES, x->dq_pad);
    else
        x->k->pack_cols_f32(r->q, r->tile, x->ldq, LANES, x->dq);
}

/*
 * Running rows
 */

struct pass {
    const struct sweep *s;
    struct room        *r;
    uint64_t            any;
    _Alignas(64) float m[LANES], l[LANES], plain[LANES], f[LANES], shrink[LANES];
};

static void load_state(struct pass *p)
{
    const struct exact    *x = p->s->x;
    const struct order    *o = x->order;
    const struct gathered *g = &p->r->block.q;
    const size_t           row = (size_t)x->ldv * sizeof(float);

    for (int i = 0; i < LANES; i++) {
        p->m[i] = i < g->n ? o->m[g->at[i]] : -INFINITY;
        p->l[i] = i < g->n ? o->l[g->at[i]] : 0;
        if (i < g->n)
            memcpy(p->r->tile + (int64_t)i * x->ldv, o->o + g->at[i] * x->ldv, row);
        else
            memset(p->r->tile + (int64_t)i * x->ldv, 0, row);
    }
    x->k->pack_cols_f32(p->r->ot, p->r->tile, x->ldv, LANES, x->ldv);
}

static void store_state(const struct pass *p)
{
    const struct exact    *x = p->s->x;
    const struct order    *o = x->order;
    const struct gathered *g = &p->r->block.q;
    _Alignas(64) float     ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(p->r->tile, x->ldv, FOCI_F32, p->r->ot, ones, g->n, x->ldv);
    for (int i = 0; i < g->n; i++) {
        o->m[g->at[i]] = p->m[i];
        o->l[g->at[i]] = p->l[i];
        memcpy(o->o + g->at[i] * x->ldv, p->r->tile + (int64_t)i * x->ldv,
               (size_t)x->ldv * sizeof(float));
        if (o->any && p->any >> i & 1) o->any[g->at[i]] = 1;
    }
}

static void factors(const struct sweep *s, const struct gathered *g, float *plain,
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

/* Scores of a tile as logits, if more than a factor is wanted, then as weights. */
static void weights(struct pass *p, int slot, bool masked)
{
    const struct exact      *x = p->s->x;
    struct room             *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const int                n = t->k.n;
    const struct bias_rows   bias = sweep_bias(p->s, &r->block, t, r->bias);
    const float             *f = p->f, more = sweep_more(p->s);
    int                      moved;

    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, n, p->plain, p->f, bias, masked ? r->seen : NULL);
        f = NULL;
    }
    for (int i = 0; i < LANES; i++)
        p->m[i] -= more;
    if (x->bf16)
        moved = x->k->weigh_bf16(r->s, r->w, n, exact_padded(x, n) / 2, f, p->m, p->l,
                                 p->shrink, x->kind);
    else
        moved = x->k->weigh_f32(r->s, n, f, p->m, p->l, p->shrink, x->kind);
    for (int i = 0; i < LANES; i++)
        p->m[i] += more;
    if (!moved) return;
    x->k->shrink(r->ot, x->dv, p->shrink);
    exact_shaw_shrink(x, &r->shaw, p->shrink);
}

static void scores(struct pass *p, int slot)
{
    const struct exact      *x = p->s->x;
    struct room             *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const struct operand keys = { r->keys[slot], x->bf16 ? x->dq_pad / 2 : x->ldq, 1 };

    exact_product(x, r->s, LANES, keys, r->q, LANES, exact_padded(x, t->k.n), LANES,
                  x->dq_pad / x->per, 0);
    exact_shaw_scores_pairs(x, sweep_places(p->s, &r->block.q, false),
                            sweep_places(p->s, &t->k, true), t->k.n, &r->shaw, r->s);
}

/* Dropped weights count in the sum that rows are divided by, and nowhere else. */
static void drop(struct pass *p, int slot)
{
    const struct exact *x = p->s->x;
    struct room        *r = p->r;
    const int           n = r->tiles[slot].k.n;

    sweep_keep(p->s, &r->block, &r->tiles[slot], r->keep);
    if (x->bf16)
        x->k->drop_words_bf16(r->w, n, r->keep);
    else
        x->k->drop_f32(r->s, n, r->keep);
    for (int j = 0; j < n; j++)
        r->seen[j] &= r->keep[j];
}

static void values(struct pass *p, int slot, bool masked)
{
    const struct exact      *x = p->s->x;
    struct room             *r = p->r;
    const struct sweep_tile *t = &r->tiles[slot];
    const struct operand     sum = sweep_sum(x, r->values[slot], x->dv_pad, x->ldv);

    exact_shaw_weights_pairs(x, sweep_places(p->s, &r->block.q, false),
                             sweep_places(p->s, &t->k, true), t->k.n, &r->shaw, r->s,
                             r->w);
    if (masked && t->bad) {
        sweep_load(p->s, &t->k, true, x->io->v, &x->p->v, x->dv, x->ldv, r->tile);
        exact_pairs_values(x, 0, r->block.q.n, t->k.n, r->seen, x->bf16 ? NULL : r->s,
                           x->bf16 ? r->w : NULL, r->tile, r->ot);
        return;
    }
    exact_product(x, r->ot, LANES, sum, x->bf16 ? (const void *)r->w : r->s, LANES,
                  x->dv_pad, LANES, exact_padded(x, t->k.n) / x->per, 1);
}

/* One block against the tiles that are packed. */
static void block_forward(const struct sweep *s, int64_t block, int n_tiles,
                          struct room *r)
{
    struct pass p = { .s = s, .r = r };

    sweep_block(s, block, &r->block);
    pack_queries(s, r);
    load_state(&p);
    factors(s, &r->block.q, p.plain, p.f);
    for (int t = 0; t < n_tiles; t++) {
        const enum seen seen = sweep_seen(s, &r->block, &r->tiles[t], r->seen);

        if (seen == SEEN_NONE) continue;
        for (int j = 0; s->x->order->any && j < r->tiles[t].k.n; j++)
            p.any |= r->seen[j];
        scores(&p, t);
        weights(&p, t, seen == SEEN_SOME);
        if (s->x->drops) drop(&p, t);
        values(&p, t, seen == SEEN_SOME || s->x->drops);
    }
    exact_shaw_values(s->x, s->rows.h, &r->shaw, r->ot);
    store_state(&p);
}

static void piece_forward(const struct sweep *s, struct room *r)
{
    const struct piece *piece = s->task.piece;

    for (int64_t first = 0; first < piece->tiles; first += SWEEP_TILES) {
        const int n = (int)min64(SWEEP_TILES, piece->tiles - first);

        sweep_ask_keys(s, first, n);
        sweep_ask_block(s, piece->block0);
        for (int t = 0; t < n; t++)
            pack_tile(s, first + t, t, r);
        for (int64_t b = 0; b < piece->blocks; b++) {
            if (b + 1 < piece->blocks) sweep_ask_block(s, piece->block0 + b + 1);
            block_forward(s, piece->block0 + b, n, r);
        }
    }
}

/* A key is one however often it weighs. */
static void piece_count(const struct sweep *s, struct room *r)
{
    const struct piece *piece = s->task.piece;
    const struct order *o = s->x->order;
    struct sweep        first = *s;

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
                    if (o->any) o->any[at] = 1;
                }
        }
    }
}

/* A round over all pieces. */
struct round {
    struct exact *x;
    int64_t       number;
    void (*piece)(const struct sweep *s, struct room *r);
};

static void piece_job(void *arg, int64_t i, int thread)
{
    const struct round *u = arg;
    const struct order *o = u->x->order;
    struct arena mine = { .base = o->scratch + (size_t)thread * o->scratch_bytes };
    struct room  room = room_take(u->x, &mine);
    const struct sweep s = sweep_of(u->x, u->number, order_task(u->x, i));

    u->piece(&s, &room);
}

static void run(struct exact *x, int64_t round,
                void (*piece)(const struct sweep *s, struct room *r))
{
    const int64_t tasks = order_tasks(x);
    const int     threads = exact_threads(x, tasks, x->plan->cost.forward_flops);
    struct round  all = { x, round, piece };

    phases_run(x->k, x->plan->shared, threads,
               &(struct phase){ tasks, 1, piece_job, &all }, 1);
}

void sweep_count(struct exact *x, int64_t round) { run(x, round, piece_count); }

void sweep_forward(struct exact *x, int64_t round) { run(x, round, piece_forward); }
