/* exact_backward.c -- gradients of exact attention in tiles, five products a tile.
 *
 * A tile of keys stays, blocks of queries go by: its dk and dv are summed in place,
 * dq of each block in memory.  Where blocks gain by meeting neighbours one after the
 * other, a run of a few tiles stays.  Work is shared out as (sequence, key/value head, part
 * of the key tiles).  Each part has its own dq, and the parts are added up in order
 * at the end; their number depends on the shape alone, so results do not depend on
 * the number of threads.
 *
 * Weights are recomputed from the normaliser that forward saved.  The factor that all
 * rows of a head share stays out of the products and is applied to their sums.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/exact_order.h"

/* Rows of a block, and what of it is not finite. */
struct rows {
    _Alignas(64) float plain[LANES], f[LANES], mul[LANES], norm[LANES], delta[LANES];
    double   d_factor, d_sink; /* its share of the gradients of parameters */
    unsigned bad;
};

struct back {
    struct exact      x;
    const foci_grads *g;
    const float      *saved;
    int64_t           parts;
    /* [heads][max_qt] pieces: queries and d_o as columns (first lanes) and as rows. */
    char        *q_cols, *q_rows, *g_cols, *g_rows;
    size_t       q_size, g_size;
    struct rows *rows;
    float       *dqt; /* [parts][heads][max_qt][ldq][LANES] */
    uint8_t     *met; /* [parts][heads][max_qt]: the part's dqt has been begun */

    struct shaw_back shaw;
    struct txl_back  txl;
};

/* Scratch of one thread. */
struct room {
    float    *tile, *tile2; /* [TILE][max ld] */
    float    *tile3;        /* [TILE][ldq], where keys are shared */
    float    *s, *dp;       /* [TILE][LANES] */
    uint16_t *w16, *ds16;   /* [TILE][LANES] */
    uint32_t *words;        /* [STACK][TILE / 2][LANES] ds of tiles that follow */
    int       waiting;      /* of them, the last ones, are still to be multiplied */
    float    *dk, *dk_head, *dv; /* [run][TILE] rows */
    float    *bias;
    uint64_t *seen, *stop, *keep;

    struct txl_room txl;
};

/* Some sixteen pieces of work, whatever the number of threads. */
enum { PIECES = 16, MIN_RUN = 2, MAX_RUN = 16 };

/* Tiles of keys that stay at a time: more of them cost fewer ends of runs, but leave
 * fewer pieces. */
static int64_t tiles_in_run(const struct exact *x)
{
    const int64_t tiles =
        x->p->batch * x->kv_heads * div_up(x->p->len_k, TILE) / PIECES;

    return exact_has_txl(x) ? max64(MIN_RUN, min64(MAX_RUN, tiles)) : 1;
}

static struct room room_take(const struct exact *x, struct arena *a)
{
    const int64_t ld = max64(x->ldq, x->ldv), pairs = (int64_t)TILE * LANES;
    const int64_t run = tiles_in_run(x);
    struct room   r;

    r.tile = arena_take(a, TILE * ld, sizeof(float));
    r.tile2 = arena_take(a, TILE * ld, sizeof(float));
    r.tile3 = arena_take(a, x->stage->order.shared ? TILE * (int64_t)x->ldq : 0,
                         sizeof(float));
    r.s = arena_take(a, pairs, sizeof(float));
    r.dp = arena_take(a, pairs, sizeof(float));
    r.w16 = x->bf16 ? arena_take(a, pairs, sizeof(uint16_t)) : NULL;
    r.ds16 = x->bf16 ? arena_take(a, pairs, sizeof(uint16_t)) : NULL;
    r.words = x->bf16 ? arena_take(a, STACK * pairs / 2, sizeof(uint32_t)) : NULL;
    r.waiting = 0;
    r.dk = arena_take(a, run * TILE * (int64_t)x->ldq, sizeof(float));
    r.dk_head = arena_take(a, run * TILE * (int64_t)x->ldq, sizeof(float));
    r.dv = arena_take(a, run * TILE * (int64_t)x->ldv, sizeof(float));
    r.bias = exact_biased(x) ? arena_take(a, pairs, sizeof(float)) : NULL;
    r.seen = arena_take(a, TILE, sizeof(uint64_t));
    r.stop = arena_take(a, TILE, sizeof(uint64_t));
    r.keep = x->drops ? arena_take(a, TILE, sizeof(uint64_t)) : NULL;
    r.txl = exact_txl_room_back(x, run, a);
    return r;
}

static void take_collected(struct exact *x, struct arena *a)
{
    const int64_t rows = x->kv_heads * x->p->batch * x->p->len_k;

    x->dk_slots =
        arena_take(a, x->kv_heads * x->max_st * TILE, (size_t)x->ldq * sizeof(float));
    x->dv_slots =
        arena_take(a, x->kv_heads * x->max_st * TILE, (size_t)x->ldv * sizeof(float));
    if (!x->collect) return;
    x->dk_rows = arena_take(a, rows, (size_t)x->ldq * sizeof(float));
    x->dv_rows = arena_take(a, rows, (size_t)x->ldv * sizeof(float));
}

/* A gradient of the given bias, which heads and sequences may share, wants pieces of key
 * tiles alone. */
static int64_t count_parts(const struct exact *x)
{
    const int64_t jobs = max64(1, x->p->batch * x->kv_heads);
    const int64_t parts =
        x->p->flags & FOCI_BIAS ? max64(PIECES / jobs, PIECES / 2) : PIECES / jobs;

    return max64(1, min64(parts, div_up(x->p->len_k, TILE * tiles_in_run(x))));
}

static void back_take(struct back *k, struct arena *a)
{
    struct exact *x = &k->x;
    const int64_t blocks = x->heads * x->max_qt;
    /* Without a sweep in natural order what is packed is not kept. */
    const int64_t k_tiles = exact_natural(x) ? x->kv_heads * x->max_kt : 0;
    const int64_t pieces = exact_natural(x) ? blocks : x->threads;
    const size_t  el = x->bf16 ? 2 : sizeof(float);
    struct arena  one = { 0 };

    exact_seqs(x, x->io, a);
    if (x->stage->order.label) order_take(x, a, (float *)k->saved, true);
    if (!exact_keys_in_place(x)) x->keys = arena_take(a, k_tiles, x->key_size);
    if (!exact_values_in_place(x)) x->values = arena_take(a, k_tiles, x->value_size);
    x->keys_sum = x->bf16 ? arena_take(a, k_tiles, x->key_size) : NULL;
    x->norms = arena_take(a, k_tiles, TILE * sizeof *x->norms);
    x->top = arena_take(a, k_tiles, sizeof *x->top);
    x->bad_k = arena_take(a, k_tiles, 1);

    k->q_size = (size_t)x->ldq * LANES * el;
    k->g_size = (size_t)x->ldv * LANES * el;
    k->q_cols = arena_take(a, pieces, k->q_size);
    k->q_rows = arena_take(a, pieces, k->q_size);
    k->g_cols = arena_take(a, pieces, k->g_size);
    k->g_rows = arena_take(a, pieces, k->g_size);
    k->rows = arena_take(a, blocks, sizeof *k->rows);

    k->parts = exact_natural(x) ? count_parts(x) : 1;
    k->dqt = arena_take(a, k->parts * pieces, (size_t)x->ldq * LANES * sizeof(float));
    k->met = arena_take(a, k->parts * blocks, 1);
    take_collected(x, a);
    exact_position_take(x, a);
    exact_position_take_back(x, k->parts, a);
    exact_txl_take(x, a, true);
    exact_txl_take_back(x, k->parts, &k->txl, a);
    exact_shaw_take_back(x, k->parts, &k->shaw, a);

    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->threads, one.used);
}

size_t exact_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct back  k = { 0 };
    struct arena a = { 0 };

    exact_geometry(&k.x, plan, s);
    back_take(&k, &a);
    return a.used;
}

/* Where the packed rows of a block lie: with those of all others, or the thread's. */
static size_t piece_of(const struct back *k, int64_t block)
{
    return exact_natural(&k->x) ? (size_t)block : (size_t)exact_thread();
}

static float *dqt_of(const struct back *k, int64_t part, int64_t block)
{
    const struct exact *x = &k->x;

    if (!exact_natural(x)) return k->dqt + (int64_t)exact_thread() * x->ldq * LANES;
    return k->dqt + (part * x->heads * x->max_qt + block) * x->ldq * LANES;
}

static uint8_t *met(const struct back *k, int64_t part, int64_t block)
{
    return k->met + part * k->x.heads * k->x.max_qt + block;
}

/* A part's dq of a block, zero at first: many parts never meet most blocks. */
static float *dqt_begun(const struct back *k, int64_t part, int64_t block)
{
    float   *dqt = dqt_of(k, part, block);
    uint8_t *begun = met(k, part, block);

    if (!*begun) {
        memset(dqt, 0, (size_t)k->x.ldq * LANES * sizeof *dqt);
        exact_shaw_begin_back(&k->x, &k->shaw, part, block);
        exact_txl_begin_back(&k->x, &k->txl, part, block);
    }
    *begun = 1;
    return dqt;
}

/* Factors of rows stay out of the gradients of logits: queries have them where dk is
 * summed, and dq has them at the end. */
static void times_rows(const struct exact *x, const struct rows *rows, float *q)
{
    for (int i = 0; x->score->n_rows && i < LANES; i++)
        for (int c = 0; c < x->dq; c++)
            q[(int64_t)i * x->ldq + c] *= rows->mul[i];
}

/* Bits of the lanes that see no key.  A sink leaves them a normaliser all the same; that
 * matters only where 0 times what stands in them is not 0. */
static uint64_t blind_lanes(const struct exact *x, const struct block *b,
                            const struct rows *rows)
{
    const bool ask = x->score->sink >= 0 && rows->bad;
    uint64_t   blind = 0;
    int64_t    visible[LANES] = { 0 };

    if (ask) exact_visible(x, b, visible);
    for (int i = 0; i < LANES; i++)
        if (exact_saw_nothing(x, rows->norm[i]) || (ask && !visible[i]))
            blind |= UINT64_C(1) << i;
    return blind;
}

/* Round, pack, and find delta = d_o . o of a block. */
static void prepare(struct back *k, const struct block *b, struct room *r)
{
    struct exact *x = &k->x;
    struct rows  *rows = &k->rows[b->at];
    const size_t  piece = piece_of(k, b->at);
    char   *qc = k->q_cols + piece * k->q_size, *qr = k->q_rows + piece * k->q_size;
    char   *gc = k->g_cols + piece * k->g_size, *gr = k->g_rows + piece * k->g_size;
    int64_t visible[LANES];
    struct mapped mapped;

    exact_load_block(x, b, k->g->d_o, &x->p->o, x->dv, x->ldv, r->tile);
    exact_round(x, r->tile, x->ldv, x->dv, r->tile2);
    exact_raise(x, r->tile, x->ldv, x->dv, r->tile2);
    exact_load_block(x, b, x->io->o, &x->p->o, x->dv, x->ldv, r->tile2);
    x->k->row_dot(rows->delta, r->tile, r->tile2, x->ldv, LANES, x->dv);
    rows->bad = exact_finite(x, r->tile, x->ldv, x->dv, LANES) ? 0 : BAD_GRAD;
    for (int i = 0; x->drops && i < LANES; i++)
        rows->delta[i] /= x->kept;
    exact_shaw_prepare_g(x, b, &k->shaw, r->tile, r->tile2);
    if (x->bf16) {
        x->k->pack_cols_bf16((uint32_t *)gc, r->tile, x->ldv, LANES, x->dv_pad);
        x->k->pack_pairs_bf16((uint32_t *)gr, r->tile, x->ldv, LANES, x->dv_pad);
    } else {
        x->k->pack_cols_f32((float *)gc, r->tile, x->ldv, LANES, x->dv);
        memcpy(gr, r->tile, k->g_size);
    }

    /* Lanes without a query weigh nothing. */
    for (int i = 0; i < LANES; i++)
        rows->norm[i] = i >= b->r0 && i < b->r1 ? k->saved[exact_saved_at(x, b) + i]
                        : x->kind == FOCI_RELU2 ? 0
                                                : INFINITY;
    exact_load_block(x, b, x->io->q, &x->p->q, x->dq, x->ldq, r->tile);
    if (!exact_finite(x, r->tile, x->ldq, x->dq, LANES)) rows->bad |= BAD_QUERY;
    exact_map(x, r->tile, LANES, (struct places){ b->pos, NULL }, false, &mapped);
    if (x->score->n_rows) exact_visible(x, b, visible);
    exact_factors(x, b, visible, rows->plain, rows->f, rows->mul);
    if (x->order) order_factors(x, rows->mul);
    exact_shaw_prepare_q(x, b, &k->shaw, r->tile, r->tile2);
    exact_txl_prepare(x, b, &k->txl, blind_lanes(x, b, rows), rows->mul, r->tile,
                      &r->txl);
    if (x->bf16)
        x->k->pack_cols_bf16((uint32_t *)qc, r->tile, x->ldq, LANES, x->dq_pad);
    else
        x->k->pack_cols_f32((float *)qc, r->tile, x->ldq, LANES, x->dq);
    times_rows(x, rows, r->tile);
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)qr, r->tile, x->ldq, LANES, x->dq_pad);
    else
        memcpy(qr, r->tile, k->q_size);

    for (int i = b->r0; x->order && i < b->r1; i++)
        order_note(x, b, i,
                   (struct order_row){ rows->plain[i], rows->f[i], rows->mul[i],
                                       rows->norm[i], rows->delta[i] });
    for (int64_t part = 0; part < k->parts; part++)
        *met(k, part, b->at) = 0;
}

/* One tile of keys against one block of queries. */
struct meeting {
    const struct back  *k;
    const struct block *b;
    struct room        *r;
    int64_t             t, kt;
    int                 n;
    struct operand      key, value, key_sum;
    int64_t             part;
    float              *dqt, *dk, *dv;
    bool                more; /* the block meets tile t - 1 next */
};

/* Whether w and ds of the tile are wanted as floats too, in place of s and dp. */
static bool wants_floats(const struct meeting *s)
{
    return (exact_has_shaw(&s->k->x) || s->k->g->dbias) &&
           exact_level(s->b->seq, s->t) < 0;
}

/* Words of the tile before which so many wait: they lie in the order of the keys, and
 * the last tile comes first. */
static uint32_t *words_of(const struct room *r, int waiting)
{
    return r->words + (int64_t)(STACK - 1 - waiting) * TILE / 2 * LANES;
}

static void weights(struct meeting *s, bool masked)
{
    const struct exact *x = &s->k->x;
    struct room        *r = s->r;
    const struct rows  *rows = &s->k->rows[s->b->at];
    struct grad_rows    g = {
           .f = rows->f,
           .norm = rows->norm,
           .delta = rows->delta,
           .c = (float)x->score->cap,
           .unit = (float)exact_unit_of(x),
           .kind = x->kind,
    };

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
    if (x->bf16 && wants_floats(s)) x->k->grad_f32(r->s, r->dp, s->n, &g);
}

/* dqt += keys ds of the tiles that wait, which begin `ahead` tiles after t. */
static void give_waiting(struct meeting *s, int ahead)
{
    const struct exact *x = &s->k->x;
    struct room        *r = s->r;

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

    while (exact_cut(x, s->b, s->t, s->n, &c)) {
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

/* dv += w do, dk += ds q: on words, w and ds are rows of bf16. */
static void key_products(struct meeting *s)
{
    const struct exact  *x = &s->k->x;
    struct room         *r = s->r;
    const size_t         at = (size_t)s->b->at;
    const float         *g = (const float *)(s->k->g_rows + at * s->k->g_size);
    const float         *q = (const float *)(s->k->q_rows + at * s->k->q_size);
    const int64_t        row = LANES / x->per;
    const struct operand w = { x->bf16 ? (char *)r->w16 : (char *)r->s, row, 1 };
    const struct operand ds = { x->bf16 ? (char *)r->ds16 : (char *)r->dp, row, 1 };
    struct cut           c = { 0 };

    while (exact_cut(x, s->b, s->t, s->n, &c)) {
        const int m = exact_padded(x, c.m), from = c.lane / x->per;
        const int deep = (LANES - c.lane) / x->per;

        exact_product(x, s->dv + (int64_t)c.j * x->ldv, x->ldv,
                      operand_from(w, c.j, from), g + (int64_t)from * x->ldv, x->ldv, m,
                      x->ldv, deep, 1);
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

/* Where gradients of logits come to lie. */
static void place_ds(const struct exact *x, struct room *r, void *at)
{
    if (x->bf16)
        r->ds16 = at;
    else
        r->dp = at;
}

/* The weights and gradients of those pairs count no more. */
static void drop_stopped(const struct exact *x, struct room *r, int n)
{
    if (exact_has_txl(x))
        place_ds(x, r, exact_txl_copy(x, &r->txl, x->bf16 ? (void *)r->ds16 : r->dp));
    for (int j = 0; j < n; j++)
        for (int i = 0; r->stop[j] && i < LANES; i++) {
            if (!(r->stop[j] >> i & 1)) continue;
            if (x->bf16)
                r->w16[j * LANES + i] = r->ds16[j * LANES + i] = 0;
            else
                r->s[j * LANES + i] = r->dp[j * LANES + i] = 0;
        }
}

/* s = keys q, dp = values do. */
static void scores(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    const size_t        at = (size_t)s->b->at;
    const float        *q = (const float *)(s->k->q_cols + at * s->k->q_size);
    const float        *g = (const float *)(s->k->g_cols + at * s->k->g_size);
    struct cut          c = { 0 };

    while (exact_cut(x, s->b, s->t, s->n, &c)) {
        const int     m = exact_padded(x, c.m), lanes = LANES - c.lane;
        const int64_t to = (int64_t)c.j * LANES + c.lane;

        exact_product(x, s->r->s + to, LANES, operand_from(s->key, c.j, 0), q + c.lane,
                      LANES, m, lanes, x->dq_pad / x->per, 0);
        exact_product(x, s->r->dp + to, LANES, operand_from(s->value, c.j, 0),
                      g + c.lane, LANES, m, lanes, x->dv_pad / x->per, 0);
    }
}

/* What distances add to scores and to dp; and dropped weights take no part in dp. */
static void add_distances(struct meeting *s)
{
    const struct exact *x = &s->k->x;
    struct room        *r = s->r;

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
    struct room        *r = s->r;
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

static void meet(struct meeting *s, int32_t mask)
{
    const struct back  *k = s->k;
    const struct exact *x = &k->x;
    struct room        *r = s->r;
    const size_t        at = (size_t)s->b->at;
    const bool          masked = exact_seen(x, s->b, s->t, mask, s->n, r->seen);
    const bool          bad = x->bad_k[s->b->kv * x->max_kt + s->kt] || k->rows[at].bad;

    const bool stops = stopped(s, r->stop);

    scores(s);
    add_distances(s);
    weights(s, masked);
    give_distances(s);
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
        exact_pairs_backward(x, s->b, s->t, s->n, r->seen, &pairs, k->g->d_o, r->tile,
                             r->tile2);
        return;
    }
    query_products(s);
    if (stops) drop_stopped(x, r, s->n);
    key_products(s);
}

/* Rows of tile t in dk_rows and dv_rows. */
static int64_t collected_at(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t)
{
    return (kv * x->p->batch + s->s.b) * x->p->len_k + s->s.k0 + t * TILE;
}

/* What this sweep finds of dk and dv of a tile, added to what others do. */
static void collect_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t t, const float *dk, const float *dv)
{
    const int64_t at = collected_at(x, s, kv, t), n = exact_keys_in(s, t);
    float        *all_k = x->dk_rows + at * x->ldq, *all_v = x->dv_rows + at * x->ldv;

    for (int64_t i = 0; i < n * x->ldq; i++)
        all_k[i] += dk[i];
    for (int64_t i = 0; i < n * x->ldv; i++)
        all_v[i] += dv[i];
}

/* dk and dv of a tile are complete: round and store them. */
static void store_tile(const struct back *k, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *dk, float *dv, struct room *r)
{
    const struct exact *x = &k->x;
    const foci_problem *p = x->p;
    const int           n = exact_keys_in(s, t);
    const int64_t       row = s->s.k0 + t * TILE, head = x->kv0 + kv;
    const size_t        el = foci_dtype_bytes(p->dtype);
    const struct places at = { t * TILE, NULL };
    struct mapped       mapped;

    exact_share_slots(x, s, kv, t, dk, dv);
    if (x->stage->order.shared)
        memset(dk, 0, (size_t)n * (size_t)x->ldq * sizeof *dk);
    else if (exact_maps(x)) {
        exact_load_tile(x, s, kv, t, x->io->k, &p->k, x->dq, x->ldq, r->tile);
        exact_map(x, r->tile, n, at, true, &mapped);
        exact_map_back(x, dk, r->tile, n, at, true, &mapped);
    }
    for (int j = 0; j < n && t * TILE + j < x->stage->memory; j++) {
        memset(dk + (int64_t)j * x->ldq, 0, (size_t)x->dq * sizeof(float));
        memset(dv + (int64_t)j * x->ldv, 0, (size_t)x->dv * sizeof(float));
    }
    if (k->g->dk)
        x->k->store_rows(
            (char *)k->g->dk +
                (size_t)(s->s.b * p->k.batch + row * p->k.row + head * p->k.head) * el,
            p->k.row, (int)p->dtype, dk, x->ldq, 1.0f, n, x->dq);
    if (k->g->dv)
        x->k->store_rows(
            (char *)k->g->dv +
                (size_t)(s->s.b * p->v.batch + row * p->v.row + head * p->v.head) * el,
            p->v.row, (int)p->dtype, dv, x->ldv, 1.0f, n, x->dv);
}

/* What a walk over the blocks of a tile has come to. */
struct column {
    struct walk w;
    int64_t     qt; /* -1: there are no more */
    int32_t     mask;
};

static void column_next(struct column *c)
{
    if (!exact_next(&c->w, &c->qt, &c->mask)) c->qt = -1;
}

/* The first block that a tile of the run is to meet; -1: none. */
static int64_t first_block(const struct column *c, int64_t n)
{
    int64_t first = -1;

    for (int64_t i = 0; i < n; i++)
        if (c[i].qt >= 0 && (first < 0 || c[i].qt < first)) first = c[i].qt;
    return first;
}

/* Tiles of keys that stay, n from t on. */
struct run {
    const struct back      *k;
    const struct exact_seq *s;
    int64_t                 kv, t, n, part;
};

/* A block meets those tiles of the run that see it, from the last on. */
static void meet_run(const struct run *u, const struct block *b, int64_t qt,
                     struct column *c, struct room *r)
{
    const struct back  *k = u->k;
    const struct exact *x = &k->x;
    const bool          wanted = exact_wanted(x, b);

    for (int64_t i = u->n - 1; i >= 0; i--) {
        const int64_t t = u->t + i;
        const int32_t mask = c[i].mask;

        if (c[i].qt != qt) continue;
        column_next(&c[i]);
        if (!wanted) continue;
        struct meeting st = {
            .k = k,
            .b = b,
            .r = r,
            .t = t,
            .kt = u->s->kt0 + t,
            .n = exact_keys_in(u->s, t),
            .key = exact_keys(x, u->s, u->kv, t),
            .value = exact_values(x, u->s, u->kv, t),
            .key_sum = exact_keys_sum(x, u->s, u->kv, t),
            .part = u->part,
            .dqt = dqt_begun(k, u->part, b->at),
            .dk = r->dk_head + i * TILE * x->ldq,
            .dv = r->dv + i * TILE * x->ldv,
            .more = i > 0 && c[i - 1].qt == qt,
        };
        if (exact_has_txl(x)) place_ds(x, r, exact_txl_place(x, &r->txl, i));
        meet(&st, mask);
    }
    exact_txl_end_back(x, b, &k->txl, k->rows[b->at].mul, &r->txl, u->part,
                       dqt_of(k, u->part, b->at));
}

/* dk and dv of the run are complete, as far as this sweep goes. */
static void leave_run(const struct run *u, struct room *r)
{
    const struct exact *x = &u->k->x;

    for (int64_t i = 0; i < u->n; i++) {
        const int64_t t = u->t + i;
        float        *dk = r->dk + i * TILE * x->ldq, *dv = r->dv + i * TILE * x->ldv;

        if (exact_level(u->s, t) >= 0)
            exact_keep_slots(x, u->s, u->kv, t, dk, dv);
        else if (x->collect)
            collect_tile(x, u->s, u->kv, t, dk, dv);
        else
            store_tile(u->k, u->s, u->kv, t, dk, dv, r);
    }
}

static void key_run(const struct run *u, struct room *r)
{
    const struct exact *x = &u->k->x;
    const int64_t       count = u->n * TILE * x->ldq;
    struct column       c[MAX_RUN];

    memset(r->dk, 0, (size_t)count * sizeof(float));
    memset(r->dv, 0, (size_t)(u->n * TILE * x->ldv) * sizeof(float));
    for (int64_t h = u->kv * x->per_kv; h < (u->kv + 1) * x->per_kv; h++) {
        const float scale = (float)exact_head_scale(x, x->head0 + h);

        memset(r->dk_head, 0, (size_t)count * sizeof(float));
        for (int64_t i = 0; i < u->n; i++) {
            c[i].w = exact_walk_blocks(x, u->s, u->t + i);
            column_next(&c[i]);
        }
        for (int64_t qt; (qt = first_block(c, u->n)) >= 0;) {
            const struct block b = exact_block(x, h, u->s->qt0 + qt);
            meet_run(u, &b, qt, c, r);
        }
        for (int64_t i = 0; i < count; i++)
            r->dk[i] += scale * r->dk_head[i];
    }
    leave_run(u, r);
}

/* All sweeps have added to the tile. */
static void store_collected(const struct back *k, int64_t kv, int64_t kt, struct room *r)
{
    const struct exact     *x = &k->x;
    const struct exact_seq *s = &x->seqs[x->seq_of_k[kt]];
    const int64_t           at = collected_at(x, s, kv, kt - s->kt0);
    const size_t            n = (size_t)exact_keys_in(s, kt - s->kt0);

    if (exact_level(s, kt - s->kt0) >= 0) return;
    memcpy(r->dk, x->dk_rows + at * x->ldq, n * (size_t)x->ldq * sizeof *r->dk);
    memcpy(r->dv, x->dv_rows + at * x->ldv, n * (size_t)x->ldv * sizeof *r->dv);
    store_tile(k, s, kv, kt - s->kt0, r->dk, r->dv, r);
}

static void add_parts(const struct back *k, const struct block *b)
{
    const struct exact *x = &k->x;
    float              *dqt = dqt_of(k, 0, b->at);

    dqt_begun(k, 0, b->at);
    if (!exact_natural(x)) memset(dqt, 0, (size_t)x->ldq * LANES * sizeof *dqt);
    for (int64_t part = 1; part < k->parts; part++) {
        const float *more = dqt_of(k, part, b->at);
        if (!*met(k, part, b->at)) continue;
        for (int64_t i = 0; i < (int64_t)x->dq * LANES; i++)
            dqt[i] += more[i];
    }
    if (x->order) order_add_dq(x, b, dqt);
}

/* The block's share of the gradients of what multiplies the logits and of the sink.
 * A row that sees nothing has none, whatever stands in it.  q[LANES][ldq]; d_factor is
 * what vectors added to queries bring. */
static void share_params(const struct back *k, const struct block *b, const float *q,
                         double d_factor)
{
    const struct exact *x = &k->x;
    struct rows        *rows = &k->rows[b->at];
    const float        *dqt = dqt_of(k, 0, b->at);
    int64_t             visible[LANES];

    rows->d_factor = d_factor;
    rows->d_sink = 0;
    exact_visible(x, b, visible);
    for (int i = b->r0; i < b->r1; i++) {
        if (!visible[i]) continue;
        for (int c = 0; x->score->n_factors && c < x->dq; c++)
            rows->d_factor += (double)dqt[c * LANES + i] *
                              (double)q[(int64_t)i * x->ldq + c] * (double)rows->mul[i];
        if (x->score->sink < 0 || rows->norm[i] == INFINITY) continue;
        const double sink = (double)x->io->params[x->score->sink + b->h - x->head0];
        rows->d_sink -=
            exp2(sink * LOG2_E - (double)rows->norm[i]) * (double)rows->delta[i];
    }
}

/* dq of a block is complete: add up its parts and store it. */
static void finish(const struct back *k, const struct block *b, struct room *r)
{
    const struct exact *x = &k->x;
    float              *dqt = dqt_of(k, 0, b->at);
    const bool          learned = x->score->n_factors || x->score->sink >= 0;
    const struct places at = { b->pos, NULL };
    struct mapped       mapped;
    _Alignas(64) float  scale[LANES], ones[LANES];

    add_parts(k, b);
    const double more = exact_txl_finish(x, b, &k->txl, met(k, 0, b->at),
                                         k->rows[b->at].mul, &r->txl, dqt);
    exact_shaw_finish(x, b, &k->shaw, met(k, 0, b->at), dqt);
    if (learned || exact_maps(x)) {
        exact_load_block(x, b, x->io->q, &x->p->q, x->dq, x->ldq, r->tile);
        exact_map(x, r->tile, LANES, at, false, &mapped);
    }
    if (learned && k->g->dparams) share_params(k, b, r->tile, more);
    if (!k->g->dq) return;

    for (int i = 0; i < LANES; i++) {
        scale[i] = (float)(exact_head_scale(x, b->h) * (double)k->rows[b->at].mul[i]);
        ones[i] = 1;
    }
    if (!exact_maps(x)) {
        exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->dq, x->ldq, scale, r->tile);
        return;
    }
    x->k->store_cols(r->tile2, x->ldq, FOCI_F32, dqt, scale, LANES, x->dq);
    exact_map_back(x, r->tile2, r->tile, LANES, at, false, &mapped);
    if (x->order) order_add_keys(x, b, r->tile2, r->tile, r->tile3);
    x->k->pack_cols_f32(dqt, r->tile2, x->ldq, LANES, x->dq);
    exact_store_block(x, b, k->g->dq, &x->p->q, dqt, x->dq, x->ldq, ones, r->tile);
}

/* Gradients of the vectors beside keys and values of a head, block by block. */
static void share_vectors(const struct back *k, int64_t head, struct room *r)
{
    const struct exact *x = &k->x;
    struct mapped       mapped;

    exact_shaw_clear(x, &k->shaw, head);
    for (int64_t qt = 0; qt < x->n_qt; qt++) {
        const struct block b = exact_block(x, head, qt);
        const uint64_t     blind = blind_lanes(x, &b, &k->rows[b.at]);

        exact_load_block(x, &b, x->io->q, &x->p->q, x->dq, x->ldq, r->tile);
        exact_map(x, r->tile, LANES, (struct places){ b.pos, NULL }, false, &mapped);
        times_rows(x, &k->rows[b.at], r->tile);
        exact_load_block(x, &b, k->g->d_o, &x->p->o, x->dv, x->ldv, r->tile2);
        exact_raise(x, r->tile2, x->ldv, x->dv, r->dv);
        for (int i = 0; i < LANES; i++) {
            if (!(blind >> i & 1)) continue;
            memset(r->tile + (int64_t)i * x->ldq, 0, (size_t)x->ldq * sizeof(float));
            memset(r->tile2 + (int64_t)i * x->ldv, 0, (size_t)x->ldv * sizeof(float));
        }
        exact_shaw_vectors(x, &b, &k->shaw, r->tile, r->tile2);
    }
}

/* Add the blocks' shares, in order, to the gradients of parameters. */
static void add_params(const struct back *k)
{
    const struct exact *x = &k->x;
    const struct score *s = x->score;

    for (int64_t h = 0; h < x->heads; h++) {
        double d_factor = 0, d_sink = 0;
        for (int64_t qt = 0; qt < x->n_qt; qt++) {
            d_factor += k->rows[h * x->max_qt + qt].d_factor;
            d_sink += k->rows[h * x->max_qt + qt].d_sink;
        }
        if (x->order) d_sink += order_sink(x, h);
        if (s->sink >= 0) k->g->dparams[s->sink + h] += (float)d_sink;
        for (int i = 0; i < s->n_factors; i++) {
            double others = s->scale;
            for (int j = 0; j < s->n_factors; j++)
                if (j != i) others *= (double)x->io->params[s->factor[j] + h];
            k->g->dparams[s->factor[i] + h] += (float)(d_factor * others);
        }
    }
    exact_position_params(x, k->parts, k->g->dparams);
    exact_shaw_params(x, &k->shaw, k->g->dparams);
    exact_txl_params(x, &k->txl, k->g->dparams);
}

static void clear(const struct back *k)
{
    const struct exact *x = &k->x;

    if (x->collect) {
        const size_t rows = (size_t)(x->kv_heads * x->p->batch * x->p->len_k);
        memset(x->dk_rows, 0, rows * (size_t)x->ldq * sizeof(float));
        memset(x->dv_rows, 0, rows * (size_t)x->ldv * sizeof(float));
    }
    exact_position_clear(x, k->parts);
    if (k->g->dq) exact_clear(x, k->g->dq, &x->p->q, x->head0, x->heads, x->dq, true);
    if (k->g->dk) exact_clear(x, k->g->dk, &x->p->k, x->kv0, x->kv_heads, x->dq, false);
    if (k->g->dv) exact_clear(x, k->g->dv, &x->p->v, x->kv0, x->kv_heads, x->dv, false);
}

/* A part of the tiles of keys, or of slots, of a sequence and key/value head.  On full
 * supports it is every part-th run, to and fro so that parts of a causal sequence weigh
 * alike; on others neighbours, which see much the same queries. */
static void job(const struct back *k, int64_t i, int64_t part, bool slots,
                struct room *r)
{
    const struct exact     *x = &k->x;
    const struct exact_seq *s = &x->seqs[i / x->kv_heads];
    const int64_t           raw = div_up(s->s.nk, TILE);
    const int64_t           t0 = slots ? raw : 0, n = slots ? s->n_kt - raw : raw;
    const int64_t           most = tiles_in_run(x), runs = div_up(n, most);
    const bool              all = x->support->all;
    const int64_t           first = all ? 0 : runs * part / k->parts;
    const int64_t end = all ? div_up(runs, k->parts) : runs * (part + 1) / k->parts;

    for (int64_t at = first; at < end; at++) {
        const int64_t    mine = at % 2 ? k->parts - 1 - part : part;
        const int64_t    t = (all ? at * k->parts + mine : at) * most;
        const struct run u = { k, s, i % x->kv_heads, t0 + t, min64(most, n - t), part };

        if (t < n) key_run(&u, r);
    }
}

/* Jobs that threads share: of a sequence and key/value head each, or of all of them, so
 * that what they share is summed in order. */
static int64_t count_jobs(const struct back *k)
{
    const struct exact *x = &k->x;
    return k->g->dbias ? k->parts : k->parts * x->n_seqs * x->kv_heads;
}

static void jobs_of(const struct back *k, int64_t i, bool slots, struct room *r)
{
    const struct exact *x = &k->x;

    if (!k->g->dbias) {
        job(k, i / k->parts, i % k->parts, slots, r);
        return;
    }
    for (int64_t j = 0; j < x->n_seqs * x->kv_heads; j++)
        job(k, j, i, slots, r);
}

void exact_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    const float *saved, const foci_grads *g)
{
    struct back  k = { .g = g, .saved = saved };
    struct arena a = { .base = io->work };

    exact_geometry(&k.x, plan, s);
    k.x.io = io;
    k.x.by_cols = true;
    if (!k.x.max_seqs) return;
    back_take(&k, &a);
    clear(&k);
    exact_position_make(&k.x);
    exact_txl_clear(&k.x, &k.txl);
    if (k.x.order) order_begin(&k.x, false);

    const struct exact *x = &k.x;
    const bool          natural = exact_natural(x);
    const int64_t       tiles = x->kv_heads * x->n_kt, blocks = x->heads * x->n_qt;
    const int64_t       jobs = natural ? count_jobs(&k) : 0;
    const int           threads =
        exact_threads(x, max64(jobs, blocks), plan->cost.backward_flops);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena mine = { .base = x->scratch +
                                      (size_t)exact_thread() * x->scratch_bytes };
        struct room  room = room_take(x, &mine);

        if (x->k->begin) x->k->begin();
#pragma omp for schedule(dynamic, 4) nowait
        for (int64_t i = 0; i < (natural ? tiles : 0); i++)
            exact_pack_tile(x, i / x->n_kt, i % x->n_kt, room.tile, room.tile2);
#pragma omp for schedule(dynamic, 4) nowait
        for (int64_t i = 0; i < exact_txl_tiles(x); i++)
            exact_txl_make(x, i, room.tile);
#pragma omp for schedule(dynamic, 4)
        for (int64_t i = 0; i < blocks; i++) {
            const struct block b = exact_block(x, i / x->n_qt, i % x->n_qt);
            prepare(&k, &b, &room);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < (s->n_levels ? jobs : 0); i++)
            jobs_of(&k, i, true, &room);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < jobs; i++)
            jobs_of(&k, i, false, &room);
        if (x->k->end) x->k->end();
    }
    for (int64_t i = 0; x->order && exact_has_shaw(x) && i < x->heads * x->max_qt; i++)
        dqt_begun(&k, 0, i);
    if (x->order) order_backward(&k.x, g, &k.shaw);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena mine = { .base = x->scratch +
                                      (size_t)exact_thread() * x->scratch_bytes };
        struct room  room = room_take(x, &mine);

        if (x->k->begin) x->k->begin();
#pragma omp for schedule(dynamic, 4) nowait
        for (int64_t i = 0; i < (x->collect ? tiles : 0); i++)
            store_collected(&k, i / x->n_kt, i % x->n_kt, &room);
#pragma omp for schedule(dynamic, 4) nowait
        for (int64_t i = 0; i < (g->dparams ? exact_txl_tiles(x) : 0); i++)
            exact_txl_params_rows(x, &k.txl, i, g->dparams);
#pragma omp for schedule(dynamic, 4)
        for (int64_t i = 0; i < blocks; i++) {
            const struct block b = exact_block(x, i / x->n_qt, i % x->n_qt);
            finish(&k, &b, &room);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t h = 0; h < (exact_has_shaw(x) && g->dparams ? x->heads : 0); h++)
            share_vectors(&k, h, &room);
        if (x->k->end) x->k->end();
    }
    if (g->dparams) add_params(&k);
}
