/* exact_sweep_back.c -- ordered sweeps backward: five products a tile, as in
 * exact_backward.c, on gathered rows.
 *
 * Sums of dq, dk and dv are rows of floats in memory.  Pieces that run at once must not
 * add to the same row: cells of a round share none, but heads share keys, cells cut into
 * chunks overlap and large cells are several pieces.  Such pieces have different phases,
 * which follow one another, so that every sum has its order whatever the threads do.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_sweep.h"
#include "engine/exact_tiles.h"

/* Keys of a tile, packed, and what is summed for them. */
struct packed {
    char  *keys, *keys_sum, *values;
    float *dk, *dv; /* [TILE][ldq], [TILE][ldv] */
};

enum { MOST_TURNS = 32 }; /* phases that one team of threads goes through */

/* Scratch of one thread. */
struct room {
    struct sweep_block block;
    struct sweep_tile  tiles[SWEEP_TILES];
    struct packed      packed[SWEEP_TILES];
    void              *q_cols, *q_rows, *g_cols, *g_rows;
    float             *tile, *tile2;  /* [TILE][max ld] */
    float             *s, *dp, *bias; /* [TILE][LANES] */
    uint16_t          *w16, *ds16;
    uint32_t          *words;
    float             *dqt; /* [ldq][LANES] */
    uint64_t          *seen, *keep;
    unsigned           bad;         /* of the block */
    int64_t            slot[LANES]; /* of the lanes, in blocks in natural order */
    float              share[LANES], own[LANES];
    _Alignas(64) float plain[LANES], f[LANES], mul[LANES], norm[LANES], delta[LANES];
};

static void take_tiles(const struct exact *x, struct room *r, struct arena *a)
{
    for (int t = 0; t < SWEEP_TILES; t++) {
        struct packed *p = &r->packed[t];

        p->keys = arena_take(a, 1, x->key_size);
        p->keys_sum = x->bf16 ? arena_take(a, 1, x->key_size) : p->keys;
        p->values = arena_take(a, 1, x->value_size);
        p->dk = arena_take(a, TILE * (int64_t)x->ldq, sizeof(float));
        p->dv = arena_take(a, TILE * (int64_t)x->ldv, sizeof(float));
    }
}

static void room_take(const struct exact *x, struct room *r, struct arena *a)
{
    const int64_t ld = max64(x->ldq, x->ldv), pairs = (int64_t)TILE * LANES;
    const int64_t words = x->bf16 ? pairs : 0;

    sweep_take(x, &r->block, r->tiles, a);
    take_tiles(x, r, a);
    r->q_cols = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r->q_rows = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r->g_cols = arena_take(a, LANES * (int64_t)x->ldv, sizeof(float));
    r->g_rows = arena_take(a, LANES * (int64_t)x->ldv, sizeof(float));
    r->tile = arena_take(a, TILE * ld, sizeof(float));
    r->tile2 = arena_take(a, TILE * ld, sizeof(float));
    r->s = arena_take(a, pairs, sizeof(float));
    r->dp = arena_take(a, pairs, sizeof(float));
    r->bias = arena_take(a, sweep_biased(x) ? pairs : 0, sizeof(float));
    r->w16 = arena_take(a, words, sizeof(uint16_t));
    r->ds16 = arena_take(a, words, sizeof(uint16_t));
    r->words = arena_take(a, words / 2, sizeof(uint32_t));
    r->dqt = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r->seen = arena_take(a, TILE, sizeof(uint64_t));
    r->keep = arena_take(a, TILE, sizeof(uint64_t));
}

size_t sweep_backward_scratch(const struct exact *x)
{
    struct arena one = { 0 };
    struct room *r = arena_take(&one, 1, sizeof *r);
    struct room  dry;

    (void)r;
    room_take(x, &dry, &one);
    return one.used;
}

/*
 * Packing
 */

static void pack_tile(const struct sweep *s, int64_t number, int slot, struct room *r)
{
    const struct exact *x = s->x;
    struct sweep_tile  *t = &r->tiles[slot];
    struct packed      *p = &r->packed[slot];

    sweep_tile(s, number, t);
    sweep_keys(s, &t->k, r->tile);
    t->bad = exact_finite(x, r->tile, x->ldq, x->dq, t->k.n) ? 0 : BAD_KEY;
    if (x->bf16) {
        x->k->pack_rows_bf16((void *)p->keys, r->tile, x->ldq, t->k.n, x->dq_pad);
        x->k->pack_sum_bf16((void *)p->keys_sum, r->tile, x->ldq, t->k.n, x->dq_pad);
    } else
        memcpy(p->keys, r->tile, x->key_size);

    sweep_load(s, &t->k, true, x->io->v, &x->p->v, x->dv, x->ldv, r->tile);
    if (!exact_finite(x, r->tile, x->ldv, x->dv, t->k.n)) t->bad |= BAD_VALUE;
    if (x->bf16)
        x->k->pack_rows_bf16((void *)p->values, r->tile, x->ldv, t->k.n, x->dv_pad);
    else
        memcpy(p->values, r->tile, x->value_size);
    memset(p->dk, 0, TILE * (size_t)x->ldq * sizeof(float));
    memset(p->dv, 0, TILE * (size_t)x->ldv * sizeof(float));
}

/* As columns, and as rows over which gradients of keys and values are summed. */
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

static void load_rows(const struct sweep *s, struct room *r)
{
    const struct exact     *x = s->x;
    const struct order     *o = x->order;
    const struct gathered  *g = &r->block.q;
    const struct exact_seq *seq = s->task.seq;
    const int64_t first = (s->task.head * x->max_qt + seq->qt0) * LANES + seq->lead;
    const int64_t at = s->task.head * o->q_rows + order_q_row(x, seq);
    const struct order_row none = { .norm = x->kind == FOCI_RELU2 ? 0 : INFINITY };

    for (int i = 0; i < LANES; i++) {
        const bool             live = i < g->n;
        const struct order_row row = live ? o->rows[g->at[i]] : none;

        r->plain[i] = row.plain;
        r->f[i] = row.f;
        r->mul[i] = row.mul;
        r->norm[i] = row.norm;
        r->delta[i] = row.delta;
        r->share[i] = live && o->takes ? 1 / (float)o->taken[at + g->row[i]] : 1;
        r->own[i] = o->takes ? row.mul : 1;
        r->slot[i] = live ? first + g->row[i] : 0;
    }
}

/* d_o of the lanes as products take it, times the share of an entry. */
static void load_grads(const struct sweep *s, struct room *r)
{
    const struct exact    *x = s->x;
    const struct gathered *g = &r->block.q;

    sweep_load(s, g, false, x->order->d_o, &x->p->o, x->dv, x->ldv, r->tile);
    if (!x->order->takes) exact_round(x, r->tile, x->ldv, x->dv, r->tile2);
    for (int i = 0; x->order->takes && i < g->n; i++)
        order_share_row(x, r->tile + (int64_t)i * x->ldv, r->share[i]);
    for (int64_t i = 0; x->drops && i < (int64_t)LANES * x->ldv; i++)
        r->tile[i] *= x->kept;
}

static void pack_block(const struct sweep *s, int64_t number, struct room *r)
{
    const struct exact    *x = s->x;
    const struct gathered *g = &r->block.q;

    sweep_block(s, number, &r->block);
    load_rows(s, r);
    load_grads(s, r);
    r->bad = exact_finite(x, r->tile, x->ldv, x->dv, g->n) ? 0 : BAD_GRAD;
    pack_cols(x, r->tile, x->ldv, x->dv, x->dv_pad, r->g_cols);
    pack_rows(x, r->tile, x->ldv, x->dv_pad, r->g_rows);

    sweep_queries(s, g, r->tile);
    if (!exact_finite(x, r->tile, x->ldq, x->dq, g->n)) r->bad |= BAD_QUERY;
    pack_cols(x, r->tile, x->ldq, x->dq, x->dq_pad, r->q_cols);
    for (int i = 0; x->score->n_rows && i < g->n; i++)
        for (int c = 0; c < x->dq; c++)
            r->tile[(int64_t)i * x->ldq + c] *= r->mul[i];
    pack_rows(x, r->tile, x->ldq, x->dq_pad, r->q_rows);
    memset(r->dqt, 0, (size_t)x->ldq * LANES * sizeof *r->dqt);
}

/*
 * Tiles
 */

static void scores(const struct exact *x, int slot, struct room *r)
{
    const struct packed *p = &r->packed[slot];
    const int            m = exact_padded(x, r->tiles[slot].k.n);
    const struct operand key = { p->keys, x->bf16 ? x->dq_pad / 2 : x->ldq, 1 };
    const struct operand value = { p->values, x->bf16 ? x->dv_pad / 2 : x->ldv, 1 };

    exact_product(x, r->s, LANES, key, r->q_cols, LANES, m, LANES, x->dq_pad / x->per,
                  0);
    exact_product(x, r->dp, LANES, value, r->g_cols, LANES, m, LANES,
                  x->dv_pad / x->per, 0);
}

/* Whether something is summed over all pieces of a head. */
static bool alone(const struct exact *x)
{
    return x->order->dbias || x->at.sums || exact_has_shaw(x);
}

static struct shaw_lanes lanes_of(const struct sweep *s, const struct room *r)
{
    return (struct shaw_lanes){ sweep_places(s, &r->block.q, false), r->slot, r->share,
                                r->own, r->block.q.n };
}

/* What distances add to scores and to dp; and dropped weights take no part in dp. */
static void add_distances(const struct sweep *s, int slot, struct room *r)
{
    const struct exact      *x = s->x;
    const struct sweep_tile *t = &r->tiles[slot];

    if (exact_has_shaw(x)) {
        const struct shaw_lanes lanes = lanes_of(s, r);
        exact_shaw_scores_pairs_back(x, &lanes, sweep_places(s, &t->k, true), t->k.n,
                                     x->order->shaw, r->s, r->dp);
    }
    if (!x->drops) return;
    sweep_keep(s, &r->block, t, r->keep);
    x->k->drop_f32(r->dp, t->k.n, r->keep);
}

static void weights(const struct sweep *s, int slot, bool masked, struct room *r)
{
    const struct exact    *x = s->x;
    const int              n = r->tiles[slot].k.n;
    const struct bias_rows bias = sweep_bias(s, &r->block, &r->tiles[slot], r->bias);
    struct grad_rows       g = {
              .f = r->f,
              .norm = r->norm,
              .delta = r->delta,
              .c = (float)x->score->cap,
              .unit = (float)exact_unit_of(x),
              .kind = x->kind,
    };

    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, n, r->plain, r->f, bias, masked ? r->seen : NULL);
        g.f = NULL;
    }
    if (x->bf16)
        x->k->grad_bf16(r->s, r->dp, n, exact_padded(x, n) / 2, &g, r->w16, r->ds16,
                        r->words);
    else
        x->k->grad_f32(r->s, r->dp, n, &g);
}

static void given_back(const struct sweep *s, const struct sweep_tile *t,
                       const struct room *r)
{
    for (int i = 0; i < r->block.q.n; i++) {
        float *row = s->x->order->dbias +
                     exact_given_row(s->x, s->task.seq, s->rows.h, r->block.q.row[i]);
        for (int j = 0; j < t->k.n; j++)
            if (r->seen[j] >> i & 1) row[t->k.row[j]] += r->dp[j * LANES + i];
    }
}

/* What becomes of weights and gradients of logits beside the five products. */
static void give_distances(const struct sweep *s, int slot, struct room *r)
{
    const struct exact      *x = s->x;
    const struct sweep_tile *t = &r->tiles[slot];
    const int                n = t->k.n;
    const struct places      keys = sweep_places(s, &t->k, true);

    if (x->drops && x->bf16) x->k->drop_rows_bf16(r->w16, n, r->keep);
    if (x->drops && !x->bf16) x->k->drop_f32(r->s, n, r->keep);
    if (!alone(x)) return;
    if (x->bf16) {
        x->k->load_rows(r->s, LANES, r->w16, LANES, FOCI_BF16, n, LANES);
        x->k->load_rows(r->dp, LANES, r->ds16, LANES, FOCI_BF16, n, LANES);
    }
    if (exact_has_shaw(x)) {
        const struct shaw_lanes lanes = lanes_of(s, r);
        exact_shaw_sums_pairs_back(x, &lanes, keys, n, x->order->shaw, r->s, r->dp);
    }
    exact_bias_pairs_back(x, s->rows.h, s->task.seq, sweep_places(s, &r->block.q, false),
                          r->block.live, keys, n, r->dp, 0);
    if (x->order->dbias) given_back(s, t, r);
}

static void products(const struct exact *x, int slot, struct room *r)
{
    const struct packed *p = &r->packed[slot];
    const int            m = exact_padded(x, r->tiles[slot].k.n);
    const int64_t        row = LANES / x->per;
    const struct operand w = { x->bf16 ? (char *)r->w16 : (char *)r->s, row, 1 };
    const struct operand ds = { x->bf16 ? (char *)r->ds16 : (char *)r->dp, row, 1 };
    const struct operand sum = sweep_sum(x, p->keys_sum, x->dq_pad, x->ldq);

    exact_product(x, p->dv, x->ldv, w, r->g_rows, x->ldv, m, x->ldv, (int)row, 1);
    exact_product(x, p->dk, x->ldq, ds, r->q_rows, x->ldq, m, x->ldq, (int)row, 1);
    exact_product(x, r->dqt, LANES, sum, x->bf16 ? (const void *)r->words : r->dp,
                  LANES, x->dq_pad, LANES, m / x->per, 1);
}

static float from_bf16(uint32_t half)
{
    const uint32_t u = half << 16;
    float          y;

    memcpy(&y, &u, sizeof y);
    return y;
}

/* What is not finite reaches only what sees it: dv += w do, dk += ds q, dq += ds k over
 * the pairs that are seen, with two tiles of room. */
static void pairs(const struct sweep *s, int slot, struct room *r)
{
    const struct exact      *x = s->x;
    const struct sweep_tile *t = &r->tiles[slot];
    const struct packed     *p = &r->packed[slot];

    load_grads(s, r);
    for (int j = 0; j < t->k.n; j++)
        for (int i = 0; i < r->block.q.n; i++) {
            const int   at = j * LANES + i;
            const float w = x->bf16 ? from_bf16(r->w16[at]) : r->s[at];
            for (int c = 0; r->seen[j] >> i & 1 && c < x->dv; c++)
                p->dv[(int64_t)j * x->ldv + c] += w * r->tile[(int64_t)i * x->ldv + c];
        }
    sweep_queries(s, &r->block.q, r->tile);
    sweep_keys(s, &t->k, r->tile2);
    for (int j = 0; j < t->k.n; j++)
        for (int i = 0; i < r->block.q.n; i++) {
            const int   at = j * LANES + i;
            const float ds = x->bf16 ? from_bf16(r->ds16[at]) : r->dp[at];
            for (int c = 0; r->seen[j] >> i & 1 && c < x->dq; c++) {
                r->dqt[c * LANES + i] += ds * r->tile2[(int64_t)j * x->ldq + c];
                p->dk[(int64_t)j * x->ldq + c] +=
                    ds * r->mul[i] * r->tile[(int64_t)i * x->ldq + c];
            }
        }
}

/* dq of the lanes, added to their rows. */
static void add_block(const struct exact *x, struct room *r)
{
    const struct gathered *g = &r->block.q;
    _Alignas(64) float     ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(r->tile, x->ldq, FOCI_F32, r->dqt, ones, g->n, x->ldq);
    for (int i = 0; i < g->n; i++) {
        float *to = x->order->dq + g->at[i] * x->ldq;
        for (int c = 0; c < x->dq; c++)
            to[c] += r->tile[(int64_t)i * x->ldq + c];
    }
}

static void add_tile(const struct sweep *s, int slot, const struct room *r)
{
    const struct exact    *x = s->x;
    const struct order    *o = x->order;
    const struct gathered *g = &r->tiles[slot].k;
    const struct packed   *p = &r->packed[slot];
    const float            scale = (float)exact_head_scale(x, s->rows.h);
    const int64_t          own = s->task.head * o->k_rows + order_k_row(x, s->task.seq);

    for (int j = 0; j < g->n; j++) {
        if (g->row[j] < 0) continue;
        float *dk = o->dk + (o->how.shared ? own + g->row[j] : g->at[j]) * x->ldq;
        float *dv = o->dv + g->at[j] * x->ldv;

        for (int c = 0; c < x->dq; c++)
            dk[c] += scale * p->dk[(int64_t)j * x->ldq + c];
        for (int c = 0; c < x->dv; c++)
            dv[c] += p->dv[(int64_t)j * x->ldv + c];
    }
}

static void block_backward(const struct sweep *s, int64_t block, int n_tiles,
                           struct room *r)
{
    const struct exact *x = s->x;
    uint64_t            any = 0;

    pack_block(s, block, r);
    for (int t = 0; t < n_tiles; t++) {
        const enum seen seen = sweep_seen(s, &r->block, &r->tiles[t], r->seen);

        if (seen == SEEN_NONE) continue;
        for (int j = 0; x->order->any && j < r->tiles[t].k.n; j++)
            any |= r->seen[j];
        scores(x, t, r);
        add_distances(s, t, r);
        weights(s, t, seen == SEEN_SOME, r);
        give_distances(s, t, r);
        if (seen == SEEN_SOME && (r->tiles[t].bad || r->bad))
            pairs(s, t, r);
        else
            products(x, t, r);
    }
    add_block(x, r);
    for (int i = 0; any && i < r->block.q.n; i++)
        if (any >> i & 1) x->order->any[r->block.q.at[i]] = 1;
}

static void piece_backward(const struct sweep *s, struct room *r)
{
    const struct piece *piece = s->task.piece;
    const int64_t       end = piece->tile0 + piece->tiles;

    for (int64_t first = piece->tile0; first < end; first += SWEEP_TILES) {
        const int n = (int)min64(SWEEP_TILES, end - first);

        for (int t = 0; t < n; t++)
            pack_tile(s, first + t, t, r);
        for (int64_t b = 0; b < piece->blocks; b++)
            block_backward(s, piece->block0 + b, n, r);
        for (int t = 0; t < n; t++)
            add_tile(s, t, r);
    }
}

/* A turn: a phase of the pieces, and among the heads that share keys one each. */
struct turn {
    struct exact *x;
    int64_t       round, number, workers;
};

static struct room *room_of(const struct exact *x, int thread)
{
    const struct order *o = x->order;
    struct arena mine = { .base = o->scratch + (size_t)thread * o->scratch_bytes };
    struct room *room = arena_take(&mine, 1, sizeof *room);

    room_take(x, room, &mine);
    return room;
}

static bool has_turn(const struct turn *t, const struct sweep *s)
{
    return s->task.piece->phase == t->number / t->x->per_kv &&
           s->task.head % t->x->per_kv == t->number % t->x->per_kv;
}

static void piece_job(void *arg, int64_t i, int thread)
{
    const struct turn *t = arg;
    const struct sweep s = sweep_of(t->x, t->round, order_task(t->x, i));

    if (has_turn(t, &s)) piece_backward(&s, room_of(t->x, thread));
}

/* All pieces of some heads, one after the other. */
static void worker_job(void *arg, int64_t worker, int thread)
{
    const struct turn *t = arg;
    struct room       *room = room_of(t->x, thread);

    for (int64_t i = 0; i < order_tasks(t->x); i++) {
        const struct sweep s = sweep_of(t->x, t->round, order_task(t->x, i));

        if (has_turn(t, &s) && s.rows.kv % t->workers == worker)
            piece_backward(&s, room);
    }
}

/* Phases one after the other, and in each the heads that share keys.  What is summed
 * over the pieces of a head has them one after the other; the gradient of a bias that
 * heads may share, all. */
void sweep_backward(struct exact *x, int64_t round)
{
    const int64_t tasks = order_tasks(x), turns = x->order->n_phases * x->per_kv;
    const int64_t workers = x->order->dbias ? 1 : x->kv_heads;
    const int     threads = exact_threads(x, tasks, x->plan->cost.backward_flops);
    const bool    whole = alone(x);
    struct turn   turn[MOST_TURNS];
    struct phase  phases[MOST_TURNS];

    for (int64_t first = 0; first < turns; first += MOST_TURNS) {
        const int n = (int)min64(MOST_TURNS, turns - first);

        for (int t = 0; t < n; t++) {
            turn[t] = (struct turn){ x, round, first + t, workers };
            phases[t] = whole ? (struct phase){ workers, 1, worker_job, &turn[t] }
                              : (struct phase){ tasks, 1, piece_job, &turn[t] };
        }
        phases_run(x->k, x->plan->shared, threads, phases, n);
    }
}
