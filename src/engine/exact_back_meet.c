/* exact_back_meet.c -- a tile of keys meets a block of queries: weights once more, and
 * the products that their gradients go into. */
#include <math.h>
#include <string.h>

#include "engine/exact_back.h"
#include "engine/exact_pairs.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

/* Whether w and ds of the tile are wanted as floats too, in place of s and dp. */
static bool wants_floats(const struct meeting *s)
{
    return (exact_has_shaw(&s->k->x) || s->k->g->dbias ||
            exact_source_floats(&s->k->x)) &&
           exact_level(s->b->seq, s->t) < 0;
}

/* Words of the tile before which so many wait: they lie in the order of the keys, and
 * the last tile comes first. */
static uint32_t *words_of(const struct back_room *r, int waiting)
{
    return r->words + (int64_t)(STACK - 1 - waiting) * TILE / 2 * LANES;
}

/* Adds to the sums over the keys of each row, before anything is dropped or stopped. */
static void sum_rows(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    struct back_room   *r = s->r;
    struct row_sums    *sums = back_sums_of(s->k, s->part, s->b->at);

    x->k->grad_sums(sums->ds, sums->mean, x->bf16 ? (const void *)r->w16 : r->s,
                    x->bf16 ? (const void *)r->ds16 : r->dp,
                    x->bf16 ? FOCI_BF16 : FOCI_F32, r->scores, s->n,
                    x->kind == FOCI_L2NORM);
}

static void weights(struct meeting *s, bool masked)
{
    const struct exact     *x = &s->k->x;
    struct back_room       *r = s->r;
    const struct back_rows *rows = &s->k->rows[s->b->at];
    struct grad_rows        g = {
               .f = rows->f,
               .norm = rows->norm,
               .delta = rows->delta,
               .c = (float)x->score->cap,
               .unit = (float)exact_unit_of(x),
               .kind = x->kind,
    };

    const bool sums = s->k->sums && s->k->g->dparams;

    if (sums) memcpy(r->scores, r->s, (size_t)s->n * LANES * sizeof *r->s);
    if (exact_source_biases(x))
        exact_source_again(x, s->b, s->t, s->n, &s->k->from, &r->from, r->bias);
    const struct bias_rows bias = exact_tile_bias(x, s->b, s->t, s->n, r->bias);
    if (masked || bias.at || x->score->cap > 0) {
        exact_modify(x, r->s, s->n, rows->plain, rows->f, bias, masked ? r->seen : NULL);
        g.f = NULL;
    }
    if (x->bf16)
        x->k->grad_bf16(r->s, r->dp, s->n, exact_padded(x, s->n) / 2, &g, r->w16,
                        r->ds16, words_of(r, r->waiting));
    else
        x->k->grad_f32(r->s, r->dp, s->n, &g);
    if (sums) sum_rows(s);
    if (x->bf16 && wants_floats(s)) x->k->grad_f32(r->s, r->dp, s->n, &g);
}

/* dqt += keys ds of the tiles that wait, which begin `ahead` tiles after t. */
static void give_waiting(struct meeting *s, int ahead)
{
    const struct exact *x = &s->k->x;
    struct back_room   *r = s->r;

    if (r->waiting)
        exact_product(x, s->dqt, LANES,
                      operand_from(s->key_sum, 0, (int64_t)ahead * TILE / x->per),
                      words_of(r, r->waiting - 1), LANES, x->dq_pad, LANES,
                      r->waiting * TILE / x->per, 1);
    r->waiting = 0;
}

/* Whether the tile may wait for the next one, so that one product serves both. */
static bool may_wait(const struct meeting *s, const struct cut *c)
{
    const struct exact *x = &s->k->x;
    return x->bf16 && !x->k->sum_by_rows && c->m == TILE && s->r->waiting < STACK;
}

/* dqt += keys ds, words of two keys where products take words. */
static void query_products(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    const float *ds = x->bf16 ? (const float *)words_of(s->r, s->r->waiting) : s->r->dp;
    struct cut   c = { 0 };

    while (x->dq && exact_cut(x, s->b, s->t, s->n, &c)) {
        if (may_wait(s, &c)) {
            s->r->waiting++;
            if (!s->more || s->r->waiting == STACK) give_waiting(s, 0);
            return;
        }
        exact_product(x, s->dqt + c.lane, LANES,
                      operand_from(s->key_sum, 0, c.j / x->per),
                      ds + (int64_t)c.j / x->per * LANES + c.lane, LANES, x->dq_pad,
                      LANES - c.lane, exact_padded(x, c.m) / x->per, 1);
    }
    give_waiting(s, 1);
}

/* The gradient of the output of sequence number f of those taken together. */
static const float *grad_of(const struct meeting *s, bool cols, int64_t f)
{
    const struct block b = exact_follow(s->b, f);
    const char        *packed = cols ? s->k->g_cols : s->k->g_rows;

    if (s->own) return (const void *)(cols ? s->own->g_cols : s->own->g_rows);
    return (const void *)(packed + (size_t)b.at * s->k->g_size);
}

static const float *queries_of(const struct meeting *s, bool cols)
{
    const char *packed = cols ? s->k->q_cols : s->k->q_rows;

    if (s->own) return (const void *)(cols ? s->own->q_cols : s->own->q_rows);
    return (const void *)(packed + (size_t)s->b->at * s->k->q_size);
}

/* dv += w do, dk += ds q: on words, w and ds are rows of bf16. */
static void key_products(struct meeting *s)
{
    const struct exact  *x = &s->k->x;
    struct back_room    *r = s->r;
    const float         *q = queries_of(s, false);
    const int64_t        row = LANES / x->per;
    const struct operand w = { x->bf16 ? (char *)r->w16 : (char *)r->s, row, 1 };
    const struct operand ds = { x->bf16 ? (char *)r->ds16 : (char *)r->dp, row, 1 };
    struct cut           c = { 0 };

    while (exact_cut(x, s->b, s->t, s->n, &c)) {
        const int m = exact_padded(x, c.m), from = c.lane / x->per;
        const int deep = (LANES - c.lane) / x->per;

        for (int64_t f = 0; f < s->with; f++) {
            const float *g = grad_of(s, false, f);
            exact_product(x, s->dv + (f * TILE + c.j) * x->ldv, x->ldv,
                          operand_from(w, c.j, from), g + (int64_t)from * x->ldv,
                          x->ldv, m, x->ldv, deep, 1);
        }
        if (!x->dq) continue;
        exact_product(x, s->dk + (int64_t)c.j * x->ldq, x->ldq,
                      operand_from(ds, c.j, from), q + (int64_t)from * x->ldq, x->ldq,
                      m, x->ldq, deep, 1);
    }
}

/* Lanes that give the keys of the tile no gradient, by key; false: there are none. */
static bool stopped(const struct meeting *s, uint64_t *stop)
{
    const foci_mech *m = s->b->seq->mech;
    uint64_t         any = 0;

    if (!m->def->stop || exact_level(s->b->seq, s->t) >= 0) return false;
    memset(stop, 0, TILE * sizeof *stop);
    for (int r = s->b->r0; r < s->b->r1; r++) {
        const uint64_t keys = m->def->stop(m, s->b->pos + r, s->t * TILE);
        any |= keys;
        for (int j = 0; keys && j < s->n; j++)
            stop[j] |= (keys >> j & 1) << r;
    }
    return any != 0;
}

void back_place(const struct exact *x, struct back_room *r, void *at)
{
    if (x->bf16)
        r->ds16 = at;
    else
        r->dp = at;
}

/* The weights and gradients of those pairs count no more. */
static void drop_stopped(const struct exact *x, struct back_room *r, int n)
{
    if (exact_has_txl(x))
        back_place(x, r, exact_txl_copy(x, &r->txl, x->bf16 ? (void *)r->ds16 : r->dp));
    for (int j = 0; j < n; j++)
        for (int i = 0; r->stop[j] && i < LANES; i++) {
            if (!(r->stop[j] >> i & 1)) continue;
            if (x->bf16)
                r->w16[j * LANES + i] = r->ds16[j * LANES + i] = 0;
            else
                r->s[j * LANES + i] = r->dp[j * LANES + i] = 0;
        }
}

static struct operand value_of(const struct meeting *s, int64_t f)
{
    return f ? exact_values(&s->k->x, s->b->seq + f, s->b->kv, s->t) : s->value;
}

/* s = keys q, dp = values do, of sequences taken together their sum. */
static void scores(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    const float        *q = queries_of(s, true);
    struct cut          c = { 0 };

    if (exact_source_scores(x))
        exact_source_again(x, s->b, s->t, s->n, &s->k->from, &s->r->from, s->r->s);
    while (exact_cut(x, s->b, s->t, s->n, &c)) {
        const int     m = exact_padded(x, c.m), lanes = LANES - c.lane;
        const int64_t to = (int64_t)c.j * LANES + c.lane;

        if (x->dq)
            exact_product(x, s->r->s + to, LANES, operand_from(s->key, c.j, 0),
                          q + c.lane, LANES, m, lanes, x->dq_pad / x->per, 0);
        for (int64_t f = 0; f < s->with; f++) {
            const float *g = grad_of(s, true, f);
            exact_product(x, s->r->dp + to, LANES, operand_from(value_of(s, f), c.j, 0),
                          g + c.lane, LANES, m, lanes, x->dv_pad / x->per, f > 0);
        }
    }
}

/* What distances add to scores and to dp; and dropped weights take no part in dp. */
static void add_distances(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    struct back_room   *r = s->r;

    exact_shaw_scores_back(x, s->b, s->t, s->n, &s->k->shaw, r->s, r->dp);
    exact_txl_scores_back(x, s->b, s->t, s->n, s->more, &s->k->txl, &r->txl, r->s);
    if (!x->drops) return;
    uint64_t keys[LANES];
    exact_drop_keys(x, s->b, keys);
    exact_drop_keep(x, keys, exact_drop_number(s->b->seq, s->t), s->n, r->keep);
    x->k->drop_f32(r->dp, s->n, r->keep);
}

/* What becomes of weights and gradients of logits beside the five products. */
static void give_distances(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    struct back_room   *r = s->r;
    void               *ds = x->bf16 ? (void *)r->ds16 : r->dp;
    const int           dtype = x->bf16 ? FOCI_BF16 : FOCI_F32;

    if (x->drops && x->bf16) x->k->drop_rows_bf16(r->w16, s->n, r->keep);
    if (x->drops) x->k->drop_f32(r->s, s->n, r->keep);
    exact_bias_back(x, s->b, s->t, s->n, ds, dtype, s->part);
    exact_txl_back(x, s->b, s->t, s->n, &s->k->txl, &r->txl, s->part, ds);
    if (!wants_floats(s)) return;
    exact_shaw_sums_back(x, s->b, s->t, s->n, &s->k->shaw, s->part, r->s, r->dp);
    exact_given_back(x, s->b, s->t, s->n, r->dp, r->bias, s->k->g->dbias);
}

/* To sources, before anything of it is changed; `careful` about hidden pairs. */
static void give_sources(struct meeting *s, bool careful)
{
    const struct exact     *x = &s->k->x;
    struct back_room       *r = s->r;
    const struct source_met m = {
        .b = s->b,
        .t = s->t,
        .part = s->part,
        .n = s->n,
        .seen = careful ? r->seen : NULL,
        .ds = r->dp,
        .rows = x->bf16 ? (const void *)r->ds16 : r->dp,
        .words = x->bf16 ? (const void *)words_of(r, r->waiting) : r->dp,
    };

    exact_source_meet(x, &m, &s->k->from, &r->from, s->k->g->dparams);
}

/* Whether the tile or the block has something that is not finite. */
static bool is_bad(const struct meeting *s)
{
    const struct exact *x = &s->k->x;
    bool bad = s->k->rows[s->b->at].bad || exact_source_bad(x, s->b, s->t);

    for (int64_t f = 0; f < s->with; f++)
        bad = bad || x->bad_k[s->b->kv * x->max_kt + s->b->seq[f].kt0 + s->t];
    return bad;
}

/* Sequences taken together have their own values and gradients. */
static void pairs_backward(struct meeting *s, struct exact_pairs pairs)
{
    const struct exact *x = &s->k->x;
    struct back_room   *r = s->r;

    for (int64_t f = 0; f < s->with; f++) {
        const struct block b = exact_follow(s->b, f);

        pairs.dv = s->dv + f * TILE * x->ldv;
        exact_pairs_backward(x, &b, s->t, s->n, r->seen, &pairs, s->k->g->d_o, r->tile,
                             r->tile2);
    }
}

void back_meet(struct meeting *s, int32_t mask)
{
    const struct back  *k = s->k;
    const struct exact *x = &k->x;
    struct back_room   *r = s->r;
    const size_t        at = (size_t)s->b->at;
    const bool          masked = exact_seen(x, s->b, s->t, mask, s->n, r->seen);
    const bool          bad = is_bad(s);

    const bool stops = stopped(s, r->stop);

    scores(s);
    add_distances(s);
    weights(s, masked);
    give_distances(s);
    give_sources(s, masked && bad);
    if ((masked || stops) && bad) {
        if (!masked) memset(r->seen, 0xff, TILE * sizeof *r->seen);
        give_waiting(s, 1);
        const struct exact_pairs pairs = {
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
        pairs_backward(s, pairs);
        return;
    }
    query_products(s);
    if (stops) drop_stopped(x, r, s->n);
    key_products(s);
}
