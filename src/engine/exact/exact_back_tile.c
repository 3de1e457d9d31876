/* exact_back_tile.c -- backward, one tile of keys and one block of queries: recompute
 * the weights, and the five products. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_back.h"
#include "engine/exact/exact_nonfinite.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"

/* Whether weights and ds are wanted as floats too, in place of s and dp. */
static bool wants_floats(const struct back_tile *s)
{
    return (exact_has_shaw(&s->k->x) || s->k->g->dbias ||
            exact_source_wants_floats(&s->k->x)) &&
           exact_slot_level(s->b->seq, s->t) < 0;
}

/* The bf16 pairs of a tile before which so many tiles are pending.  They are in the
 * order of the keys, and the last tile comes first. */
static uint32_t *pairs_of(const struct back_scratch *r, int pending)
{
    return r->ds_pairs + (int64_t)(STACK - 1 - pending) * TILE / 2 * LANES;
}

/* Add to the sums over the keys of each row, before dropout and stops. */
static void sum_rows(struct back_tile *s)
{
    const struct exact   *x = &s->k->x;
    struct back_scratch  *r = s->r;
    struct back_row_sums *sums = back_sums_of(s->k, s->part, s->b->at);

    x->k->grad_sums(sums->ds, sums->mean, x->bf16 ? (const void *)r->w16 : r->s,
                    x->bf16 ? (const void *)r->ds16 : r->dp,
                    x->bf16 ? FOCI_BF16 : FOCI_F32, r->scores, s->n,
                    x->kind == FOCI_WEIGH_L2NORM);
}

static void back_weights(struct back_tile *s, bool masked)
{
    const struct exact     *x = &s->k->x;
    struct back_scratch    *r = s->r;
    const struct back_rows *rows = &s->k->rows[s->b->at];
    struct grad_rows        g = {
               .f = rows->f,
               .norm = rows->norm,
               .delta = rows->delta,
               .c = (float)x->score->cap,
               .unit = (float)exact_logit_unit(x),
               .kind = x->kind,
    };
    const bool sums = s->k->sums && s->k->g->dparams;

    if (sums) memcpy(r->scores, r->s, (size_t)s->n * LANES * sizeof *r->s);
    if (exact_source_biases(x))
        exact_source_back_scores(x, s->b, s->t, s->n, &s->k->source, &r->source,
                                 r->bias);
    const struct bias_rows bias = exact_tile_bias(x, s->b, s->t, s->n, r->bias);
    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, s->n, rows->plain, rows->f, bias, masked ? r->seen : NULL);
        g.f = NULL;
    }
    if (x->bf16)
        x->k->grad_bf16(r->s, r->dp, s->n, exact_padded(x, s->n) / 2, &g, r->w16,
                        r->ds16, pairs_of(r, r->pending));
    else
        x->k->grad_f32(r->s, r->dp, s->n, &g);
    if (sums) sum_rows(s);
    if (x->bf16 && wants_floats(s)) x->k->grad_f32(r->s, r->dp, s->n, &g);
}

/* dqt += keys by ds of the pending tiles, the first of which is `ahead` tiles after t. */
static void multiply_pending(struct back_tile *s, int ahead)
{
    const struct exact  *x = &s->k->x;
    struct back_scratch *r = s->r;

    if (r->pending)
        exact_product(x, s->dqt, LANES,
                      operand_at(s->key_sum, 0, (int64_t)ahead * TILE / x->kpack),
                      pairs_of(r, r->pending - 1), LANES, x->d.q_pad, LANES,
                      r->pending * TILE / x->kpack, 1);
    r->pending = 0;
}

/* Whether the tile can wait for the next one, so that one product takes both. */
static bool may_defer(const struct back_tile *s, const struct causal_cut *c)
{
    const struct exact *x = &s->k->x;
    return x->bf16 && !x->k->sum_by_rows && c->m == TILE && s->r->pending < STACK;
}

/* dqt += keys by ds. */
static void query_products(struct back_tile *s)
{
    const struct exact *x = &s->k->x;
    const float *ds = x->bf16 ? (const float *)pairs_of(s->r, s->r->pending) : s->r->dp;
    struct causal_cut c = { 0 };

    while (x->d.q && exact_causal_cut(x, s->b, s->t, s->n, &c)) {
        if (may_defer(s, &c)) {
            s->r->pending++;
            if (!s->more || s->r->pending == STACK) multiply_pending(s, 0);
            return;
        }
        exact_product(x, s->dqt + c.lane, LANES,
                      operand_at(s->key_sum, 0, c.j / x->kpack),
                      ds + (int64_t)c.j / x->kpack * LANES + c.lane, LANES, x->d.q_pad,
                      LANES - c.lane, exact_padded(x, c.m) / x->kpack, 1);
    }
    multiply_pending(s, 1);
}

/* The gradient of the output of folded sequence number f. */
static const float *grad_of(const struct back_tile *s, bool cols, int64_t f)
{
    const struct exact_block b = exact_fold_member(s->b, f);
    const char              *packed = cols ? s->k->g_cols : s->k->g_rows;

    if (s->apart) return (const void *)(cols ? s->apart->g_cols : s->apart->g_rows);
    return (const void *)(packed + (size_t)b.at * s->k->g_size);
}

static const float *queries_of(const struct back_tile *s, bool cols)
{
    const char *packed = cols ? s->k->q_cols : s->k->q_rows;

    if (s->apart) return (const void *)(cols ? s->apart->q_cols : s->apart->q_rows);
    return (const void *)(packed + (size_t)s->b->at * s->k->q_size);
}

/* dv += w by do, dk += ds by q. */
static void key_products(struct back_tile *s)
{
    const struct exact  *x = &s->k->x;
    struct back_scratch *r = s->r;
    const float         *q = queries_of(s, false);
    const int64_t        row = LANES / x->kpack;
    const struct operand w = { x->bf16 ? (char *)r->w16 : (char *)r->s, row, 1 };
    const struct operand ds = { x->bf16 ? (char *)r->ds16 : (char *)r->dp, row, 1 };
    struct causal_cut    c = { 0 };

    while (exact_causal_cut(x, s->b, s->t, s->n, &c)) {
        const int m = exact_padded(x, c.m), first = c.lane / x->kpack;
        const int deep = (LANES - c.lane) / x->kpack;

        for (int64_t f = 0; f < s->fold; f++) {
            const float *g = grad_of(s, false, f);
            exact_product(x, s->dv + (f * TILE + c.j) * x->d.ldv, x->d.ldv,
                          operand_at(w, c.j, first), g + (int64_t)first * x->d.ldv,
                          x->d.ldv, m, x->d.ldv, deep, 1);
        }
        if (!x->d.q) continue;
        exact_product(x, s->dk + (int64_t)c.j * x->d.ldq, x->d.ldq,
                      operand_at(ds, c.j, first), q + (int64_t)first * x->d.ldq,
                      x->d.ldq, m, x->d.ldq, deep, 1);
    }
}

/* Lanes whose pairs give the keys of the tile no gradient; false: there are none. */
static bool find_stopped(const struct back_tile *s, uint64_t *stop)
{
    const foci_mech *m = s->b->seq->mech;
    uint64_t         any = 0;

    if (!m->def->stop || exact_slot_level(s->b->seq, s->t) >= 0) return false;
    memset(stop, 0, TILE * sizeof *stop);
    for (int r = s->b->r0; r < s->b->r1; r++) {
        const uint64_t keys = m->def->stop(m, s->b->pos + r, s->t * TILE);
        any |= keys;
        for (int j = 0; keys && j < s->n; j++)
            stop[j] |= (keys >> j & 1) << r;
    }
    return any != 0;
}

void back_set_ds(const struct exact *x, struct back_scratch *r, void *at)
{
    if (x->bf16)
        r->ds16 = at;
    else
        r->dp = at;
}

/* Zero the weights and ds of those pairs. */
static void drop_stopped(const struct exact *x, struct back_scratch *r, int n)
{
    if (exact_has_txl(x))
        back_set_ds(x, r,
                    exact_txl_back_copy(x, &r->txl, x->bf16 ? (void *)r->ds16 : r->dp));
    for (int j = 0; j < n; j++)
        for (int i = 0; r->stop[j] && i < LANES; i++) {
            if (!(r->stop[j] >> i & 1)) continue;
            if (x->bf16)
                r->w16[j * LANES + i] = r->ds16[j * LANES + i] = 0;
            else
                r->s[j * LANES + i] = r->dp[j * LANES + i] = 0;
        }
}

static struct operand value_of(const struct back_tile *s, int64_t f)
{
    return f ? exact_values(&s->k->x, s->b->seq + f, s->b->kv, s->t) : s->value;
}

/* s = keys by q, dp = values by do, summed over folded sequences. */
static void back_scores(struct back_tile *s)
{
    const struct exact *x = &s->k->x;
    const float        *q = queries_of(s, true);
    struct causal_cut   c = { 0 };

    if (exact_source_scores(x))
        exact_source_back_scores(x, s->b, s->t, s->n, &s->k->source, &s->r->source,
                                 s->r->s);
    while (exact_causal_cut(x, s->b, s->t, s->n, &c)) {
        const int     m = exact_padded(x, c.m), lanes = LANES - c.lane;
        const int64_t to = (int64_t)c.j * LANES + c.lane;

        if (x->d.q)
            exact_product(x, s->r->s + to, LANES, operand_at(s->key, c.j, 0),
                          q + c.lane, LANES, m, lanes, x->d.q_pad / x->kpack, 0);
        for (int64_t f = 0; f < s->fold; f++) {
            const float *g = grad_of(s, true, f);
            exact_product(x, s->r->dp + to, LANES, operand_at(value_of(s, f), c.j, 0),
                          g + c.lane, LANES, m, lanes, x->d.v_pad / x->kpack, f > 0);
        }
    }
}

/* Add what terms bring to scores and to dp.  Dropped weights have no part in dp. */
static void add_terms(struct back_tile *s)
{
    const struct exact  *x = &s->k->x;
    struct back_scratch *r = s->r;

    exact_shaw_back_scores(x, s->b, s->t, s->n, &s->k->shaw, r->s, r->dp);
    exact_txl_back_scores(x, s->b, s->t, s->n, s->more, &s->k->txl, &r->txl, r->s);
    if (!x->dropout.on) return;
    uint64_t keys[LANES];
    exact_dropout_keys(x, s->b, keys);
    exact_dropout_mask(x, keys, exact_dropout_column(s->b->seq, s->t), s->n,
                       r->dropout_mask);
    x->k->drop_f32(r->dp, s->n, r->dropout_mask);
}

/* Give weights and ds to terms and to the caller's bias. */
static void add_terms_back(struct back_tile *s)
{
    const struct exact  *x = &s->k->x;
    struct back_scratch *r = s->r;
    void                *ds = x->bf16 ? (void *)r->ds16 : r->dp;
    const int            dtype = x->bf16 ? FOCI_BF16 : FOCI_F32;

    if (x->dropout.on && x->bf16) x->k->drop_rows_bf16(r->w16, s->n, r->dropout_mask);
    if (x->dropout.on) x->k->drop_f32(r->s, s->n, r->dropout_mask);
    exact_position_back_tile(x, s->b, s->t, s->n, ds, dtype, s->part);
    exact_txl_back_tile(x, s->b, s->t, s->n, &s->k->txl, &r->txl, s->part, ds);
    if (!wants_floats(s)) return;
    exact_shaw_back_tile(x, s->b, s->t, s->n, &s->k->shaw, s->part, r->s, r->dp);
    exact_add_dbias(x, s->b, s->t, s->n, r->dp, r->bias, s->k->g->dbias);
}

/* Give ds to score sources, before it is changed; `careful`: some pairs are hidden and
 * an operand is not finite. */
static void add_source_grads(struct back_tile *s, bool careful)
{
    const struct exact      *x = &s->k->x;
    struct back_scratch     *r = s->r;
    const struct source_tile m = {
        .b = s->b,
        .t = s->t,
        .part = s->part,
        .n = s->n,
        .seen = careful ? r->seen : NULL,
        .ds = r->dp,
        .rows = x->bf16 ? (const void *)r->ds16 : r->dp,
        .pairs = x->bf16 ? (const void *)pairs_of(r, r->pending) : r->dp,
    };

    exact_source_back_tile(x, &m, &s->k->source, &r->source, s->k->g->dparams);
}

/* Whether an operand of the tile or of the block is not finite. */
static bool is_nonfinite(const struct back_tile *s)
{
    const struct exact *x = &s->k->x;
    bool                nonfinite =
        s->k->rows[s->b->at].nonfinite || exact_source_nonfinite(x, s->b, s->t);

    for (int64_t f = 0; f < s->fold; f++)
        nonfinite = nonfinite ||
                    x->packed.nonfinite[s->b->kv * x->max.kt + s->b->seq[f].kt0 + s->t];
    return nonfinite;
}

/* Folded sequences have their own values and gradients. */
static void nonfinite_backward(struct back_tile *s, struct nonfinite_grads grads)
{
    const struct exact  *x = &s->k->x;
    struct back_scratch *r = s->r;

    for (int64_t f = 0; f < s->fold; f++) {
        const struct exact_block b = exact_fold_member(s->b, f);

        grads.dv = s->dv + f * TILE * x->d.ldv;
        exact_nonfinite_backward(x, &b, s->t, s->n, r->seen, &grads, s->k->g->d_o,
                                 r->tile, r->tile2);
    }
}

void back_tile(struct back_tile *s, int32_t mask)
{
    const struct exact_back *k = s->k;
    const struct exact      *x = &k->x;
    struct back_scratch     *r = s->r;
    const size_t             at = (size_t)s->b->at;
    const bool masked = exact_tile_mask(x, s->b, s->t, mask, s->n, r->seen);
    const bool nonfinite = is_nonfinite(s);
    const bool stops = find_stopped(s, r->stop);

    back_scores(s);
    add_terms(s);
    back_weights(s, masked);
    add_terms_back(s);
    add_source_grads(s, masked && nonfinite);
    if ((masked || stops) && nonfinite) {
        if (!masked) memset(r->seen, 0xff, TILE * sizeof *r->seen);
        multiply_pending(s, 1);
        const struct nonfinite_grads grads = {
            .w = x->bf16 ? NULL : r->s,
            .ds = x->bf16 ? NULL : r->dp,
            .w16 = r->w16,
            .ds16 = r->ds16,
            .mul = k->rows[at].mul,
            .stop = stops ? r->stop : NULL,
            .dk = s->dk,
            .dv = s->dv,
            .dqt = s->dqt,
        };
        nonfinite_backward(s, grads);
        return;
    }
    query_products(s);
    if (stops) drop_stopped(x, r, s->n);
    key_products(s);
}
