/* exact_forward.c -- online softmax (and its kin) over panels of keys.
 *
 * One block of 64 queries goes down its keys: scores, weights, values.  The running
 * sum ot[dv][64] is relative to a reference m that lags at most 8 (in base 2) behind
 * the true maximum, so that it is rarely rescaled; numerator and denominator share
 * the reference and nothing is lost.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact_fused.h"
#include "engine/exact_order.h"
#include "engine/exact_pack.h"
#include "engine/exact_pairs.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"
#include "engine/rest.h"

enum { OWN_TILES = 8 }; /* tiles of a head that its blocks' thread packs by itself */

/* Scratch of one thread. */
struct room {
    float    *tile, *tile2; /* [TILE][max ld] */
    void     *q;            /* packed queries */
    float    *s;            /* [MAX_PANEL][LANES] scores, then weights */
    uint32_t *w;            /* [MAX_PANEL / 2][LANES] weights as words */
    float    *ot;           /* [ldv][LANES] of each sequence taken together */
    float    *bias;         /* [TILE][LANES] */
    uint64_t *seen;         /* [MAX_PANEL] */

    struct fused fused;
    char *key, *value; /* a tile of each, where all are packed for another kernel */

    struct shaw        shaw;
    struct txl         txl;
    struct source_room from;
};

static struct room room_take(const struct exact *x, struct arena *a)
{
    const int64_t ld = max64(x->ldq, x->ldv);
    struct room   r;

    r.tile = arena_take(a, TILE * ld, sizeof(float));
    r.tile2 = arena_take(a, TILE * ld, sizeof(float));
    r.q = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r.s = arena_take(a, (int64_t)x->panel * LANES, sizeof(float));
    r.w =
        x->bf16 ? arena_take(a, (int64_t)x->panel / 2 * LANES, sizeof(uint32_t)) : NULL;
    r.ot = arena_take(a, exact_fold_most(x) * LANES * x->ldv, sizeof(float));
    r.bias =
        exact_biased(x) ? arena_take(a, (int64_t)TILE * LANES, sizeof(float)) : NULL;
    r.seen = arena_take(a, x->panel, sizeof(uint64_t));
    r.fused = exact_fused_take(x, a);
    r.key = x->fused ? arena_take(a, 1, x->key_size) : NULL;
    r.value = x->fused ? arena_take(a, 1, x->value_size) : NULL;
    r.shaw = exact_shaw_take(x, a);
    r.txl = exact_txl_room(x, a);
    r.from = exact_source_room(x, false, a);
    return r;
}

void exact_forward_take(struct exact *x, struct arena *a, float *saved)
{
    const int64_t tiles = exact_natural(x) ? x->kv_heads * x->max_kt : 0;
    struct arena  one = { 0 };

    exact_fused_geometry(x);
    exact_seqs(x, x->io, a);
    if (x->stage->order.label) order_take(x, a, saved, false);
    if (!exact_keys_in_place(x)) x->keys = arena_take(a, tiles, x->key_size);
    if (x->bf16)
        x->values_sum = arena_take(a, tiles, x->value_size);
    else if (!exact_values_in_place(x))
        x->values = arena_take(a, tiles, x->value_size);
    x->norms = arena_take(a, tiles, TILE * sizeof *x->norms);
    x->top = arena_take(a, tiles, sizeof *x->top);
    x->bad_k = arena_take(a, tiles, 1);
    exact_position_take(x, a);
    exact_txl_take(x, a, false);
    exact_project_take(x, a, false);
    exact_mix_take(x, a);
    exact_source_take(x, a, false);
    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->threads, one.used);
}

/* A panel of key tiles on its way through the block. */
struct panel {
    int     n_tiles, n; /* tiles, and keys in all; all tiles but the last are whole */
    int64_t tile[MAX_PANEL / TILE];
    bool    masked[MAX_PANEL / TILE];
    bool    any_masked;
};

struct pass {
    const struct exact *x;
    const struct block *b;
    struct room        *r;
    struct panel        panel;
    bool                still; /* no reference moves */
    bool                fresh; /* the dv_pad rows of ot hold nothing, not even 0 */
    int64_t             with;  /* sequences taken together */
    uint64_t            drop_keys[LANES];
    _Alignas(64) float m[LANES], l[LANES], plain[LANES], f[LANES], shrink[LANES];
};

/* What sources other than q and k make of a tile. */
static void source_logits(struct pass *p, int64_t t, int n, float *s)
{
    struct source_room *r = &p->r->from;
    exact_source_tile(p->x, p->b, t, n, r->q, r->ab, r->tile, s);
}

/* Tile t of the keys as an operand, packed for this where all are packed otherwise. */
static struct operand keys_of(struct pass *p, int64_t t, int n)
{
    const struct exact *x = p->x;
    struct room        *r = p->r;

    if (!x->fused) return exact_keys(x, p->b->seq, p->b->kv, t);
    exact_load_keys(x, p->b->seq, p->b->kv, t, r->tile, r->tile2);
    exact_pack(x, r->tile, x->ldq, x->dq_pad, n, r->key, NULL, x->key_size, 0);
    return (struct operand){ r->key, x->dq_pad / 2, 1 };
}

static struct operand values_sum_of(struct pass *p, const struct block *b, int64_t t,
                                    int n)
{
    const struct exact *x = p->x;
    struct room        *r = p->r;

    if (!x->fused) return exact_values_sum(x, b->seq, b->kv, t);
    exact_load_values(x, b->seq, b->kv, t, r->tile, r->tile2);
    exact_pack(x, r->tile, x->ldv, x->dv_pad, n, NULL, r->value, x->value_size, 0);
    return exact_summed(x, r->value, x->dv_pad);
}

/* Where the rows that follow `tiles` tiles begin, or the tile itself where rows lie
 * apart. */
static const char *next_tile(struct operand a, int tiles, int64_t row, int d)
{
    return row == d ? a.at + (int64_t)tiles * TILE * row * (int64_t)sizeof(float)
                    : a.at;
}

static void scores(struct pass *p, int64_t t, int n, float *s)
{
    const struct exact *x = p->x;
    const float        *q = p->r->q;
    struct cut          c = { 0 };

    if (exact_source_scores(x)) {
        source_logits(p, t, n, s);
        return;
    }
    const struct operand keys = keys_of(p, t, n);
    while (exact_cut(x, p->b, t, n, &c))
        if (c.m == TILE && !x->bf16)
            exact_product_ahead(x, s, keys, q, TILE, x->dq_pad, 0,
                                next_tile(keys, 1, keys.row, x->dq));
        else
            exact_product(x, s + (int64_t)c.j * LANES + c.lane, LANES,
                          operand_from(keys, c.j, 0), q + c.lane, LANES,
                          exact_padded(x, c.m), LANES - c.lane, x->dq_pad / x->per, 0);
}

/* The sums of values of sequence number f of those taken together. */
static float *sum_of(const struct pass *p, int64_t f)
{
    return p->r->ot + f * p->x->ldv * LANES;
}

/* The sum is to be added to. */
static void need_sum(const struct exact *x, float *ot, bool *fresh)
{
    if (*fresh) memset(ot, 0, (size_t)x->dv_pad * LANES * sizeof *ot);
    *fresh = false;
}

/* ot += values of tile t, times the weights from key `at` of the panel on.  The first
 * product overwrites ot, if every lane takes part. */
static void values(struct pass *p, const struct block *b, int64_t t, int n, int at,
                   float *ot, bool *fresh)
{
    const struct exact  *x = p->x;
    const struct operand sum = values_sum_of(p, b, t, n);
    const float         *w = x->bf16 ? (const float *)p->r->w : p->r->s;
    struct cut           c = { 0 };

    while (exact_cut(x, b, t, n, &c)) {
        if (c.m == n && n % TILE == 0 && !x->bf16) {
            exact_product_ahead(x, ot, sum, w + (int64_t)at * LANES, x->dv_pad, n,
                                !*fresh, next_tile(sum, n / TILE, sum.col, x->dv));
            *fresh = false;
            continue;
        }
        if (c.lane) need_sum(x, ot, fresh);
        exact_product(x, ot + c.lane, LANES, operand_from(sum, 0, c.j / x->per),
                      w + (int64_t)(at + c.j) / x->per * LANES + c.lane, LANES,
                      x->dv_pad, LANES - c.lane, exact_padded(x, c.m) / x->per, !*fresh);
        *fresh = false;
    }
}

/* Tiles of the panel, from the i-th on, whose values one product takes: they follow one
 * another, are seen by all lanes, and are packed so that they lie as one. */
static int in_one(const struct pass *p, int i)
{
    const struct exact *x = p->x;
    const struct panel *pa = &p->panel;
    int                 n = 1;

    if (x->bf16 && (x->k->sum_by_rows || p->with == 1)) return 1;
    while (i + n < pa->n_tiles && !pa->masked[i] && !pa->masked[i + n] &&
           pa->tile[i + n] == pa->tile[i] + n)
        n++;
    return n;
}

/* The values of one sequence. */
static void values_of(struct pass *p, const struct block *b, float *ot, bool *fresh)
{
    const struct exact *x = p->x;
    const struct panel *pa = &p->panel;

    for (int i = 0, tiles; i < pa->n_tiles; i += tiles) {
        tiles = in_one(p, i);
        const int     at = i * TILE;
        const int     n = (int)min64((int64_t)tiles * TILE, pa->n - at);
        const int64_t kt = b->seq->kt0 + pa->tile[i];
        const bool    bad = x->bad_k[b->kv * x->max_kt + kt] & BAD_VALUE;

        if (!bad || !pa->masked[i]) {
            values(p, b, pa->tile[i], n, at, ot, fresh);
            continue;
        }
        need_sum(x, ot, fresh);
        exact_pairs_forward(x, b, pa->tile[i], n, p->r->seen + at,
                            x->bf16 ? NULL : p->r->s + (int64_t)at * LANES,
                            x->bf16 ? p->r->w + (int64_t)at / 2 * LANES : NULL,
                            p->r->tile, p->r->tile2, ot);
    }
}

static void all_values(struct pass *p)
{
    bool fresh = p->fresh;

    for (int64_t f = 0; f < p->with; f++) {
        const struct block b = exact_follow(p->b, f);

        fresh = p->fresh;
        values_of(p, &b, sum_of(p, f), &fresh);
    }
    p->fresh = fresh;
}

/* Scores of the panel, and logits of them where more than a factor is wanted; true:
 * they are logits. */
static bool logits(struct pass *p)
{
    const struct exact *x = p->x;
    struct room        *r = p->r;
    const struct panel *pa = &p->panel;
    const bool          modified =
        pa->any_masked || x->at.rel || exact_biased(x) || x->score->cap > 0;

    for (int i = 0; i < pa->n_tiles; i++) {
        const int     at = i * TILE, n = (int)min64(TILE, pa->n - at);
        const int64_t t = pa->tile[i];
        float        *s = r->s + (int64_t)at * LANES;

        scores(p, t, n, s);
        exact_shaw_scores(x, p->b, t, n, &r->shaw, s);
        exact_txl_scores(x, p->b, t, n, &r->txl, s);
        if (!modified) continue;
        if (exact_source_biases(x)) source_logits(p, t, n, r->bias);
        exact_modify(x, s, n, p->plain, p->f, exact_tile_bias(x, p->b, t, n, r->bias),
                     pa->masked[i] ? r->seen + at : NULL);
    }
    return modified;
}

/* Dropped weights count in the sum that rows are divided by, and nowhere else. */
static void drop_weights(struct pass *p)
{
    const struct exact *x = p->x;
    const struct block *b = p->b;
    struct panel       *pa = &p->panel;
    uint64_t            keep[TILE];

    for (int i = 0; i < pa->n_tiles; i++) {
        const int at = i * TILE, n = (int)min64(TILE, pa->n - at);

        exact_drop_keep(x, p->drop_keys, exact_drop_number(b->seq, pa->tile[i]), n,
                        keep);
        if (x->bf16)
            x->k->drop_words_bf16(p->r->w + (int64_t)at / 2 * LANES, n, keep);
        else
            x->k->drop_f32(p->r->s + (int64_t)at * LANES, n, keep);
        pa->masked[i] = true;
        for (int j = 0; j < n; j++)
            p->r->seen[at + j] &= keep[j];
    }
}

static void flush(struct pass *p)
{
    const struct exact *x = p->x;
    struct room        *r = p->r;
    struct panel       *pa = &p->panel;

    if (!pa->n) return;
    const float *f = logits(p) ? NULL : p->f;
    float       *shrink = p->still ? NULL : p->shrink;
    const int    moved =
        x->bf16 ? x->k->weigh_bf16(r->s, r->w, pa->n, exact_padded(x, pa->n) / 2, f,
                                      p->m, p->l, shrink, x->kind)
                   : x->k->weigh_f32(r->s, pa->n, f, p->m, p->l, shrink, x->kind);
    if (moved) {
        for (int64_t f = 0; !p->fresh && f < p->with; f++)
            x->k->shrink(sum_of(p, f), x->dv, p->shrink);
        exact_shaw_shrink(x, &r->shaw, p->shrink);
    }
    if (x->drops) drop_weights(p);
    for (int i = 0; i < pa->n_tiles; i++)
        exact_shaw_weights(x, p->b, pa->tile[i], (int)min64(TILE, pa->n - i * TILE),
                           &r->shaw, r->s + (int64_t)i * TILE * LANES,
                           x->bf16 ? r->w + (int64_t)i * TILE / 2 * LANES : NULL);
    all_values(p);
    *pa = (struct panel){ 0 };
}

/* Full tiles of a panel that has masked ones are seen by every lane. */
static void push(struct pass *p, int64_t t, int32_t mask)
{
    const struct exact *x = p->x;
    struct panel       *pa = &p->panel;
    const int           n = exact_keys_in(p->b->seq, t);
    uint64_t           *seen = p->r->seen + pa->n;

    pa->masked[pa->n_tiles] = exact_seen(x, p->b, t, mask, n, seen);
    if (pa->masked[pa->n_tiles])
        pa->any_masked = true;
    else
        for (int j = 0; j < n; j++)
            seen[j] = ~UINT64_C(0);
    pa->tile[pa->n_tiles++] = t;
    pa->n += n;
    /* Tiles start at multiples of 64 of the panel. */
    if (n < TILE || pa->n + TILE > x->panel) flush(p);
}

/* Packed as they are stored, and the squares of their norms. */
static void take_queries(const struct exact *x, const struct block *b, struct room *r,
                         float *squares)
{
    int64_t         ld;
    const uint16_t *q =
        exact_stored_block(x, b, x->io->q, &x->p->q, x->dq, r->tile, &ld);

    memset(squares + b->r1, 0, (size_t)(LANES - b->r1) * sizeof *squares);
    x->k->squares_bf16(squares, q, ld, b->r1, x->dq);
    x->k->take_cols_bf16(r->q, q, ld, b->r1, x->dq, x->dq_pad);
}

/* By way of floats. */
static void load_queries(const struct exact *x, const struct block *b, struct room *r,
                         float *squares, float *more)
{
    struct mapped mapped;

    exact_load_queries(x, b, r->tile, &mapped);
    exact_shaw_begin(x, b->h, r->tile, &r->shaw, more);
    exact_txl_begin(x, b, r->tile, &r->txl, more);
    x->k->row_dot(squares, r->tile, r->tile, x->ldq, LANES, x->dq);
    if (x->bf16)
        x->k->pack_cols_bf16(r->q, r->tile, x->ldq, LANES, x->dq_pad);
    else
        x->k->pack_cols_f32(r->q, r->tile, x->ldq, LANES, x->dq);
}

/* norms[LANES] of the queries as they go into scores, and `more`, a bound of what is
 * added to the products with keys. */
static void pack_queries(const struct exact *x, const struct block *b, struct room *r,
                         float *norms, float *more)
{
    memset(more, 0, LANES * sizeof *more);
    exact_source_begin(x, b, &r->from);
    if (exact_source_scores(x)) return;
    if (exact_as_stored(x) && !exact_has_shaw(x) && !exact_has_txl(x))
        take_queries(x, b, r, norms);
    else
        load_queries(x, b, r, norms, more);
    for (int i = 0; i < LANES; i++)
        norms[i] = sqrtf(norms[i]);
}

void exact_longest_keys(const struct exact *x, const struct block *b, float *longest)
{
    const int64_t first = b->kv * x->max_kt + b->seq->kt0;
    const bool    causal = x->p->flags & FOCI_CAUSAL;
    const int64_t whole = causal ? max64(0, min64(b->seq->n_kt, (b->pos + 1) / TILE))
                                 : b->seq->n_kt; /* tiles that every lane sees whole */
    float         top = 0;

    for (int64_t t = 0; t < whole; t++)
        top = x->top[first + t] > top ? x->top[first + t] : top;
    int64_t j = whole * TILE; /* keys whose norms are in top */
    for (int r = 0; r < LANES; r++) {
        const int64_t end = causal ? min64(b->seq->s.nk, b->pos + r + 1) : j;
        for (; j < end; j++)
            top = x->norms[first * TILE + j] > top ? x->norms[first * TILE + j] : top;
        longest[r] = top;
    }
}

/* Bounds of the rows' logits, from those of their products and their largest biases. */
static void bounds_of(const struct exact *x, const float *product, const float *bias,
                      float *bound)
{
    const float cap = (float)x->score->cap;

    for (int r = 0; r < LANES; r++)
        bound[r] = product[r] + bias[r];
    for (int r = 0; r < LANES && cap > 0; r++)
        bound[r] = (float)exact_unit_of(x) * cap * tanhf(bound[r] / cap);
}

/* The references of the lanes whose bound is not too far above their logits, nor below
 * the sink; true: of all. */
static bool hold(struct pass *p, const float *product, const float *bound, float sink)
{
    const struct exact *x = p->x;
    const float         most = x->kind == FOCI_L2NORM ? 15 : 30;
    const float         unit = x->score->cap > 0 ? (float)exact_unit_of(x) : 1;
    int                 held = 0;

    for (int r = 0; r < LANES; r++) {
        const int ok = (product[r] * unit <= most) & (fabsf(bound[r]) <= FLT_MAX) &
                       (sink - bound[r] <= most);

        p->m[r] = ok ? bound[r] : sink;
        held += ok;
    }
    return held == LANES;
}

/* Where logits start.  |q||k| bounds a row's products, and the largest bias is one of a
 * key it sees: a bound that is not far above the logits serves as its reference.
 * Weights then need no maximum and nothing is ever rescaled.  A row without such a
 * bound starts from nothing.  The choice is each lane's own and rests on the keys it
 * sees, as its result must.  true: no reference will move. */
static bool start(struct pass *p, const float *norms, const float *more)
{
    const struct exact *x = p->x;
    const float        *f = x->score->cap > 0 ? p->plain : p->f;
    const bool bounds = x->support->all && !x->stage->n_levels && !exact_biased(x) &&
                        !exact_source_scores(x);
    float longest[LANES], product[LANES], bound[LANES], bias[LANES] = { 0 };
    float sink = -INFINITY;
    bool  still = false;

    if (x->score->sink >= 0)
        sink = x->io->params[x->score->sink + p->b->h - x->head0] * (float)LOG2_E;
    for (int r = 0; r < LANES; r++)
        p->m[r] = sink;
    if (bounds) {
        exact_longest_keys(x, p->b, longest);
        if (x->at.rel) exact_bias_top(x, p->b, bias);
        for (int r = 0; r < LANES; r++)
            product[r] = fabsf(f[r]) * (norms[r] * longest[r] + more[r]);
        bounds_of(x, product, bias, bound);
        still = hold(p, product, bound, sink);
    }
    for (int r = 0; r < LANES; r++)
        p->l[r] = sink == -INFINITY ? 0 : exp2f(sink - p->m[r]);
    return still;
}

/* The logarithm of what the rows were divided by: for backward, and for the caller.
 * m and log2(l) may be large and of opposite sign, so their sum is taken in double. */
void exact_keep_norms(const struct exact *x, const struct block *b, const float *m,
                      const float *l, const float *share, float *saved)
{
    float norm[LANES];

    for (int r = 0; r < LANES; r++) {
        const double half = x->kind == FOCI_L2NORM ? 0.5 : 1;
        if (x->kind == FOCI_RELU2)
            norm[r] = share[r];
        else
            norm[r] = l[r] == 0 ? INFINITY : (float)(m[r] + log2((double)l[r]) * half);
    }
    if (saved)
        memcpy(saved + exact_saved_at(x, b) + b->r0, norm + b->r0,
               (size_t)(b->r1 - b->r0) * sizeof *norm);
    if (!x->io->lse) return;

    float *lse = x->io->lse + (b->seq->s.b * x->p->heads + b->h) * x->p->len_q +
                 b->seq->s.q0 + b->i0;
    for (int r = b->r0; r < b->r1; r++) {
        if (x->kind == FOCI_RELU2)
            lse[r] = norm[r] == 0 ? -INFINITY : -logf(norm[r]);
        else
            lse[r] = norm[r] == INFINITY ? -INFINITY : norm[r] / (float)LOG2_E;
    }
}

/* Divide by the normaliser and store. */
static void finish(struct pass *p, const int64_t *visible, float *saved)
{
    const struct exact *x = p->x;
    _Alignas(64) float  factor[LANES];

    if (x->kind == FOCI_RELU2) exact_shares(x, visible, factor);
    for (int r = 0; r < LANES && x->kind != FOCI_RELU2; r++) {
        const float l = p->l[r];
        factor[r] = l == 0 ? 0 : 1 / (x->kind == FOCI_L2NORM ? sqrtf(l) : l);
    }
    for (int64_t f = 0; (saved || x->io->lse) && f < p->with; f++) {
        const struct block b = exact_follow(p->b, f);
        exact_keep_norms(x, &b, p->m, p->l, factor, saved);
    }
    for (int r = 0; r < LANES && x->drops; r++)
        factor[r] *= x->kept;
    for (int64_t f = 0; f < p->with; f++) {
        const struct block b = exact_follow(p->b, f);
        exact_store_block(x, &b, x->io->o, &x->p->o, sum_of(p, f), x->dv, x->ldv,
                          factor, p->r->tile);
    }
}

static void block_forward(const struct exact *x, const struct block *b, struct room *r,
                          float *saved)
{
    struct pass p = {
        .x = x, .b = b, .r = r, .fresh = true, .with = exact_with(x, b->seq)
    };
    int64_t            visible[LANES], t;
    int32_t            mask;
    _Alignas(64) float norms[LANES], more[LANES];

    pack_queries(x, b, r, norms, more);
    exact_drop_keys(x, b, p.drop_keys);
    if (exact_counts(x, false)) exact_visible(x, b, visible);
    exact_factors(x, b, visible, p.plain, p.f, NULL);
    for (int64_t f = 0; f < p.with; f++)
        memset(sum_of(&p, f) + (int64_t)x->dv_pad * LANES, 0,
               (size_t)(x->ldv - x->dv_pad) * LANES * sizeof *r->ot);
    p.still = start(&p, norms, more);
    struct walk w = exact_walk_keys(x, b);
    while (exact_wanted(x, b) && exact_next(&w, &t, &mask))
        push(&p, t, mask);
    flush(&p);
    for (int64_t f = 0; f < p.with; f++) {
        bool fresh = p.fresh;
        need_sum(x, sum_of(&p, f), &fresh);
    }
    exact_shaw_values(x, b->h, &r->shaw, r->ot);
    if (x->order)
        order_keep(x, b, r->ot, p.m, p.l, r->tile);
    else
        finish(&p, visible, saved);
}

/* Blocks that go down their keys together, where they are fused. */
static void blocks_forward(const struct exact *x, const struct block *b, int n,
                           struct room *r, float *saved)
{
    const unsigned done =
        x->fused ? exact_fused_blocks(x, b, n, &r->fused, r->tile, saved) : 0;

    for (int i = 0; i < n; i++)
        if (!(done >> i & 1)) block_forward(x, &b[i], r, saved);
}

/* The rows of a block after all sweeps. */
static void block_finish(const struct exact *x, const struct block *b, struct room *r,
                         float *saved)
{
    struct pass p = { .x = x, .b = b, .r = r, .with = 1 };
    int64_t     visible[LANES];

    if (exact_counts(x, false)) exact_visible(x, b, visible);
    order_back(x, b, r->ot, p.m, p.l, r->tile);
    finish(&p, visible, saved);
}

/* Rows that no sequence has saw nothing. */
static void clear_lse(const struct exact *x)
{
    const foci_problem *p = x->p;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = x->head0; h < x->head0 + x->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++)
                x->io->lse[(b * p->heads + h) * p->len_q + i] = -INFINITY;
}

/* A key/value head of a sequence: its tiles are packed and its blocks attended by one
 * thread, which then has them in its cache. */
static void own_sweep(const struct exact *x, int64_t kv, const struct exact_seq *s,
                      struct room *room, float *saved)
{
    exact_mix_own(x, kv, s);
    for (int64_t t = 0; t < s->n_kt; t++)
        exact_pack_tile(x, kv, s->kt0 + t, room->tile, room->tile2);
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
        for (int64_t t = 0; t < s->n_qt; t++) {
            const struct block b = exact_block(x, h, s->qt0 + t);
            blocks_forward(x, &b, 1, room, saved);
        }
}

/* Few tiles to a head: waiting for all of them to be packed, and fetching them from
 * another core, would cost more than uneven shares do.  Rows of distances and keys of
 * sources all must wait for. */
static bool each_its_own(const struct exact *x, int threads)
{
    const int64_t owners = x->kv_heads * x->n_seqs;

    if (exact_txl_tiles(x) || exact_source_tiles(x) || x->fold > 1) return false;
    for (int64_t s = 0; s < x->n_seqs; s++)
        if (x->seqs[s].n_kt > OWN_TILES) return false;
    /* An eighth more than even shares would take is the most to be lost. */
    const int64_t turns = div_up(owners, threads);
    return owners >= x->heads * x->n_qt || turns * threads * 8 <= owners * 9;
}

/* What jobs of a sweep need. */
struct job {
    const struct exact *x;
    float              *saved;
};

static struct room room_of(const struct exact *x, int thread)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    return room_take(x, &mine);
}

static void own_job(void *arg, int64_t i, int thread)
{
    const struct job   *w = arg;
    const struct exact *x = w->x;
    struct room         room = room_of(x, thread);

    own_sweep(x, i / x->n_seqs, &x->seqs[i % x->n_seqs], &room, w->saved);
}

static void mix_job(void *arg, int64_t i, int thread)
{
    const struct job *w = arg;

    (void)thread;
    exact_mix(w->x, exact_mix_jobs(w->x), i);
}

/* Rows of distances, keys of sources, then tiles of keys. */
static void pack_job(void *arg, int64_t i, int thread)
{
    const struct job   *w = arg;
    const struct exact *x = w->x;
    struct room         room = room_of(x, thread);
    const int64_t       source = i - exact_txl_tiles(x);
    const int64_t       tile = source - exact_source_tiles(x);

    if (source < 0)
        exact_txl_make(x, i, room.tile);
    else if (tile < 0)
        exact_source_make(x, source, &room.from);
    else
        exact_pack_tile(x, tile / x->n_kt, tile % x->n_kt, room.tile, room.tile2);
}

/* The last blocks of a causal sequence are the dearest: they go first. */
static void block_job(void *arg, int64_t i, int thread)
{
    const struct job   *w = arg;
    const struct exact *x = w->x;
    const int64_t       leads = exact_leads(x), jobs = div_up(leads, x->together);
    const int64_t       end = leads - i % jobs * x->together;
    const int           n = (int)min64(x->together, end);
    struct room         room = room_of(x, thread);
    struct block        b[FUSED_BLOCKS];

    for (int k = 0; k < n; k++)
        b[k] = exact_lead(x, i / jobs, end - n + k);
    blocks_forward(x, b, n, &room, w->saved);
}

static void finish_job(void *arg, int64_t i, int thread)
{
    const struct job   *w = arg;
    const struct exact *x = w->x;
    const struct block  b = exact_block(x, i / x->n_qt, i % x->n_qt);
    struct room         room = room_of(x, thread);

    block_finish(x, &b, &room, w->saved);
}

/* Tiles are packed and blocks go down their keys, in natural order. */
static void natural_sweep(const struct exact *x, int threads, float *saved)
{
    struct job         w = { x, saved };
    const int64_t      made = exact_txl_tiles(x) + exact_source_tiles(x);
    const struct phase own = { x->kv_heads * x->n_seqs, 1, own_job, &w };
    const struct phase all[] = {
        { exact_mix_jobs(x), 1, mix_job, &w },
        { made + x->kv_heads * x->n_kt, 4, pack_job, &w },
        { x->heads * div_up(exact_leads(x), x->together), 1, block_job, &w },
    };

    if (each_its_own(x, threads))
        phases_run(x->k, x->plan->shared, threads, &own, 1);
    else
        phases_run(x->k, x->plan->shared, threads, all, 3);
}

static void finish_all(const struct exact *x, int threads, float *saved)
{
    struct job w = { x, saved };

    phases_run(x->k, x->plan->shared, threads,
               &(struct phase){ x->heads * x->n_qt, 4, finish_job, &w }, 1);
}

void exact_forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                   float *saved)
{
    struct exact x;
    struct arena a = { .base = io->work };

    exact_geometry(&x, plan, s);
    x.io = io;
    if (!x.max_seqs) return;
    exact_forward_take(&x, &a, saved);
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    if (io->lse) clear_lse(&x);
    exact_position_make(&x);
    exact_project_make(&x, false);
    exact_source_open(&x);

    const int64_t tiles = x.kv_heads * x.n_kt, blocks = x.heads * x.n_qt;
    const int     threads =
        exact_threads(&x, max64(tiles, blocks), plan->cost.forward_flops);
    if (x.order) order_begin(&x, true);
    if (exact_natural(&x)) natural_sweep(&x, threads, saved);
    if (!x.order) return;
    order_forward(&x, saved);
    if (!s->order.take) finish_all(&x, threads, saved);
}
