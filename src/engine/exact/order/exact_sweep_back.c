/* exact_sweep_back.c -- ordered sweeps backward: five products a tile, as in
 * exact_back_tile.c, of gathered rows.
 *
 * Sums of dq, dk and dv are rows of floats in memory.  Pieces that run at once must not
 * add to the same row.  The cells of a round share no rows, but heads share keys,
 * chunks overlap, and large cells are several pieces.  Such pieces have different
 * phases, which run one after the other, so every sum has the same order for any number
 * of threads.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_sweep_back.h"
#include "engine/exact/terms/exact_shaw.h"

enum { MAX_PHASES = 32 }; /* phases of one parallel region */

/*
 * Tiles
 */

static void sweep_back_scores(const struct exact *x, int slot,
                              struct sweep_back_scratch *r)
{
    const struct sweep_packed *p = &r->packed[slot];
    const int                  m = exact_padded(x, r->tiles[slot].k.n);
    const struct operand key = { p->keys, x->bf16 ? x->d.q_pad / 2 : x->d.ldq, 1 };
    const struct operand value = { p->values, x->bf16 ? x->d.v_pad / 2 : x->d.ldv, 1 };

    exact_product(x, r->s, LANES, key, r->q_cols, LANES, m, LANES,
                  x->d.q_pad / x->kpack, 0);
    exact_product(x, r->dp, LANES, value, r->g_cols, LANES, m, LANES,
                  x->d.v_pad / x->kpack, 0);
}

/* Whether something is summed over all pieces of a head, in order. */
static bool in_sequence(const struct exact *x)
{
    return x->order->dbias || x->position.sums || exact_has_shaw(x);
}

static struct shaw_lanes lanes_of(const struct sweep              *s,
                                  const struct sweep_back_scratch *r)
{
    return (struct shaw_lanes){ sweep_positions(s, &r->block.q, false), r->slot,
                                r->share, r->own, r->block.q.n };
}

/* Add what terms bring to scores and to dp.  Dropped weights have no part in dp. */
static void add_terms(const struct sweep *s, int slot, struct sweep_back_scratch *r)
{
    const struct exact      *x = s->x;
    const struct sweep_tile *t = &r->tiles[slot];

    if (exact_has_shaw(x)) {
        const struct shaw_lanes lanes = lanes_of(s, r);
        exact_shaw_back_scores_gathered(x, &lanes, sweep_positions(s, &t->k, true),
                                        t->k.n, x->order->shaw, r->s, r->dp);
    }
    if (!x->dropout.on) return;
    sweep_dropout_mask(s, &r->block, t, r->dropout_mask);
    x->k->drop_f32(r->dp, t->k.n, r->dropout_mask);
}

static void sweep_back_weights(const struct sweep *s, int slot, bool masked,
                               struct sweep_back_scratch *r)
{
    const struct exact    *x = s->x;
    const int              n = r->tiles[slot].k.n;
    const struct bias_rows bias = sweep_bias(s, &r->block, &r->tiles[slot], r->bias);
    struct grad_rows       g = {
              .f = r->f,
              .norm = r->norm,
              .delta = r->delta,
              .c = (float)x->score->cap,
              .unit = (float)exact_logit_unit(x),
              .kind = x->kind,
    };

    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, n, r->plain, r->f, bias, masked ? r->seen : NULL);
        g.f = NULL;
    }
    if (x->bf16)
        x->k->grad_bf16(r->s, r->dp, n, exact_padded(x, n) / 2, &g, r->w16, r->ds16,
                        r->pairs);
    else
        x->k->grad_f32(r->s, r->dp, n, &g);
}

static void add_dbias(const struct sweep *s, const struct sweep_tile *t,
                      const struct sweep_back_scratch *r)
{
    for (int i = 0; i < r->block.q.n; i++) {
        float *row = s->x->order->dbias +
                     exact_mask_row(s->x, s->task.seq, s->rows.h, r->block.q.row[i]);
        for (int j = 0; j < t->k.n; j++)
            if (r->seen[j] >> i & 1) row[t->k.row[j]] += r->dp[j * LANES + i];
    }
}

/* Give weights and ds to terms and to the caller's bias. */
static void add_terms_back(const struct sweep *s, int slot, struct sweep_back_scratch *r)
{
    const struct exact      *x = s->x;
    const struct sweep_tile *t = &r->tiles[slot];
    const int                n = t->k.n;
    const struct positions   keys = sweep_positions(s, &t->k, true);

    if (x->dropout.on && x->bf16) x->k->drop_rows_bf16(r->w16, n, r->dropout_mask);
    if (x->dropout.on && !x->bf16) x->k->drop_f32(r->s, n, r->dropout_mask);
    if (!in_sequence(x)) return;
    if (x->bf16) {
        x->k->load_rows(r->s, LANES, r->w16, LANES, FOCI_BF16, n, LANES);
        x->k->load_rows(r->dp, LANES, r->ds16, LANES, FOCI_BF16, n, LANES);
    }
    if (exact_has_shaw(x)) {
        const struct shaw_lanes lanes = lanes_of(s, r);
        exact_shaw_back_gathered(x, &lanes, keys, n, x->order->shaw, r->s, r->dp);
    }
    exact_position_back_gathered(x, s->rows.h, s->task.seq,
                                 sweep_positions(s, &r->block.q, false), r->block.live,
                                 keys, n, r->dp, 0);
    if (x->order->dbias) add_dbias(s, t, r);
}

static void sweep_back_products(const struct exact *x, int slot,
                                struct sweep_back_scratch *r)
{
    const struct sweep_packed *p = &r->packed[slot];
    const int                  m = exact_padded(x, r->tiles[slot].k.n);
    const int64_t              row = LANES / x->kpack;
    const struct operand       w = { x->bf16 ? (char *)r->w16 : (char *)r->s, row, 1 };
    const struct operand ds = { x->bf16 ? (char *)r->ds16 : (char *)r->dp, row, 1 };
    const struct operand sum = sweep_sum(x, p->keys_sum, x->d.q_pad, x->d.ldq);

    exact_product(x, p->dv, x->d.ldv, w, r->g_rows, x->d.ldv, m, x->d.ldv, (int)row, 1);
    exact_product(x, p->dk, x->d.ldq, ds, r->q_rows, x->d.ldq, m, x->d.ldq, (int)row, 1);
    exact_product(x, r->dqt, LANES, sum, x->bf16 ? (const void *)r->pairs : r->dp,
                  LANES, x->d.q_pad, LANES, m / x->kpack, 1);
}

static float from_bf16(uint32_t half)
{
    const uint32_t u = half << 16;
    float          y;

    memcpy(&y, &u, sizeof y);
    return y;
}

/* The products over visible pairs, where an operand is not finite: dv += w do, dk += ds
 * q, dq += ds k. */
static void nonfinite_products(const struct sweep *s, int slot,
                               struct sweep_back_scratch *r)
{
    const struct exact        *x = s->x;
    const struct sweep_tile   *t = &r->tiles[slot];
    const struct sweep_packed *p = &r->packed[slot];

    sweep_back_load_grads(s, r);
    for (int j = 0; j < t->k.n; j++)
        for (int i = 0; i < r->block.q.n; i++) {
            const int   at = j * LANES + i;
            const float w = x->bf16 ? from_bf16(r->w16[at]) : r->s[at];
            for (int c = 0; r->seen[j] >> i & 1 && c < x->d.v; c++)
                p->dv[(int64_t)j * x->d.ldv + c] +=
                    w * r->tile[(int64_t)i * x->d.ldv + c];
        }
    sweep_queries(s, &r->block.q, r->tile);
    sweep_keys(s, &t->k, r->tile2);
    for (int j = 0; j < t->k.n; j++)
        for (int i = 0; i < r->block.q.n; i++) {
            const int   at = j * LANES + i;
            const float ds = x->bf16 ? from_bf16(r->ds16[at]) : r->dp[at];
            for (int c = 0; r->seen[j] >> i & 1 && c < x->d.q; c++) {
                r->dqt[c * LANES + i] += ds * r->tile2[(int64_t)j * x->d.ldq + c];
                p->dk[(int64_t)j * x->d.ldq + c] +=
                    ds * r->mul[i] * r->tile[(int64_t)i * x->d.ldq + c];
            }
        }
}

/* Add the dq of the lanes to their rows. */
static void add_block(const struct exact *x, struct sweep_back_scratch *r)
{
    const struct gathered *g = &r->block.q;
    _Alignas(64) float     ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(r->tile, x->d.ldq, FOCI_F32, r->dqt, ones, g->n, x->d.ldq);
    for (int i = 0; i < g->n; i++) {
        float *to = x->order->dq + g->at[i] * x->d.ldq;
        for (int c = 0; c < x->d.q; c++)
            to[c] += r->tile[(int64_t)i * x->d.ldq + c];
    }
}

static void add_tile(const struct sweep *s, int slot, const struct sweep_back_scratch *r)
{
    const struct exact        *x = s->x;
    const struct order        *o = x->order;
    const struct gathered     *g = &r->tiles[slot].k;
    const struct sweep_packed *p = &r->packed[slot];
    const float                scale = (float)exact_head_scale(x, s->rows.h);
    const int64_t own = s->task.head * o->k_rows + order_k_row(x, s->task.seq);

    for (int j = 0; j < g->n; j++) {
        if (g->row[j] < 0) continue;
        float *dk = o->dk + (o->how.shared_qk ? own + g->row[j] : g->at[j]) * x->d.ldq;
        float *dv = o->dv + g->at[j] * x->d.ldv;

        for (int c = 0; c < x->d.q; c++)
            dk[c] += scale * p->dk[(int64_t)j * x->d.ldq + c];
        for (int c = 0; c < x->d.v; c++)
            dv[c] += p->dv[(int64_t)j * x->d.ldv + c];
    }
}

static void block_backward(const struct sweep *s, int64_t block, int n_tiles,
                           struct sweep_back_scratch *r)
{
    const struct exact *x = s->x;
    uint64_t            any = 0;

    sweep_back_pack_block(s, block, r);
    for (int t = 0; t < n_tiles; t++) {
        const enum seen seen = sweep_seen(s, &r->block, &r->tiles[t], r->seen);

        if (seen == SEEN_NONE) continue;
        for (int j = 0; x->order->any_seen && j < r->tiles[t].k.n; j++)
            any |= r->seen[j];
        sweep_back_scores(x, t, r);
        add_terms(s, t, r);
        sweep_back_weights(s, t, seen == SEEN_SOME, r);
        add_terms_back(s, t, r);
        if (seen == SEEN_SOME && (r->tiles[t].nonfinite || r->nonfinite))
            nonfinite_products(s, t, r);
        else
            sweep_back_products(x, t, r);
    }
    add_block(x, r);
    for (int i = 0; any && i < r->block.q.n; i++)
        if (any >> i & 1) x->order->any_seen[r->block.q.at[i]] = 1;
}

static void piece_backward(const struct sweep *s, struct sweep_back_scratch *r)
{
    const struct order_piece *piece = s->task.piece;
    const int64_t             end = piece->tile0 + piece->tiles;

    for (int64_t first = piece->tile0; first < end; first += SWEEP_TILES) {
        const int n = (int)min64(SWEEP_TILES, end - first);

        for (int t = 0; t < n; t++)
            sweep_back_pack_tile(s, first + t, t, r);
        for (int64_t b = 0; b < piece->blocks; b++)
            block_backward(s, piece->block0 + b, n, r);
        for (int t = 0; t < n; t++)
            add_tile(s, t, r);
    }
}

/* A phase of pieces, and one of the heads that share keys. */
struct sweep_phase {
    struct exact *x;
    int64_t       round, number, workers;
};

static struct sweep_back_scratch *sweep_back_scratch_of(const struct exact *x,
                                                        int                 thread)
{
    struct arena               mine = order_scratch(x, thread);
    struct sweep_back_scratch *scratch = arena_alloc(&mine, 1, sizeof *scratch);

    sweep_back_carve(x, scratch, &mine);
    return scratch;
}

static bool in_phase(const struct sweep_phase *t, const struct sweep *s)
{
    return s->task.piece->phase == t->number / t->x->per_kv &&
           s->task.head % t->x->per_kv == t->number % t->x->per_kv;
}

static void piece_job(void *arg, int64_t i, int thread)
{
    const struct sweep_phase *t = arg;
    const struct sweep        s = sweep_of(t->x, t->round, order_task(t->x, i));

    if (in_phase(t, &s)) piece_backward(&s, sweep_back_scratch_of(t->x, thread));
}

/* All pieces of some heads, in order. */
static void worker_job(void *arg, int64_t worker, int thread)
{
    const struct sweep_phase  *t = arg;
    struct sweep_back_scratch *scratch = sweep_back_scratch_of(t->x, thread);

    for (int64_t i = 0; i < order_tasks(t->x); i++) {
        const struct sweep s = sweep_of(t->x, t->round, order_task(t->x, i));

        if (in_phase(t, &s) && s.rows.kv % t->workers == worker)
            piece_backward(&s, scratch);
    }
}

/* Phases run one after the other, and in each phase the heads that share keys.  Pieces
 * of a head run in order where something is summed over them; all pieces do where heads
 * may share the gradient of a bias. */
void sweep_backward(struct exact *x, int64_t round)
{
    const int64_t tasks = order_tasks(x), n_phases = x->order->n_phases * x->per_kv;
    const int64_t workers = x->order->dbias ? 1 : x->kv_heads;
    const int     threads = exact_threads(x, tasks, x->plan->cost.backward_flops);
    const bool    in_order = in_sequence(x);
    struct sweep_phase phase[MAX_PHASES];
    struct phase       phases[MAX_PHASES];

    for (int64_t first = 0; first < n_phases; first += MAX_PHASES) {
        const int n = (int)min64(MAX_PHASES, n_phases - first);

        for (int t = 0; t < n; t++) {
            phase[t] = (struct sweep_phase){ x, round, first + t, workers };
            phases[t] = in_order ? (struct phase){ workers, 1, worker_job, &phase[t] }
                                 : (struct phase){ tasks, 1, piece_job, &phase[t] };
        }
        phases_run(x->k, x->exec.shared, threads, phases, n);
    }
}
