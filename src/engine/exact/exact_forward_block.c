/* exact_forward_block.c -- a block of 64 queries goes through its keys: scores, weights,
 * values.
 *
 * Weights are relative to a reference m that lags at most 8 (in base 2) behind the true
 * maximum, so that the running sum ot[dv][64] is rarely rescaled.  Numerator and
 * denominator share the reference, so nothing is lost.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_forward.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_nonfinite.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_order.h"

/* Scores of a tile by score sources other than q.k. */
static void source_scores(struct forward_pass *p, int64_t t, int n, float *s)
{
    struct source_scratch *r = &p->r->source;
    exact_source_tile(p->x, p->b, t, n, r->q, r->ab, r->tile, s);
}

/* Tile t of the keys.  Where all are packed for the fused kernel, it is packed here. */
static struct operand keys_operand(struct forward_pass *p, int64_t t, int n)
{
    const struct exact     *x = p->x;
    struct forward_scratch *r = p->r;

    if (!x->fused) return exact_keys(x, p->b->seq, p->b->kv, t);
    exact_load_keys(x, p->b->seq, p->b->kv, t, r->tile, r->tile2);
    exact_pack(x, r->tile, x->d.ldq, x->d.q_pad, n, r->key, NULL, x->packed.key_bytes,
               0);
    return (struct operand){ r->key, x->d.q_pad / 2, 1 };
}

static struct operand values_operand(struct forward_pass      *p,
                                     const struct exact_block *b, int64_t t, int n)
{
    const struct exact     *x = p->x;
    struct forward_scratch *r = p->r;

    if (!x->fused) return exact_values_sum(x, b->seq, b->kv, t);
    exact_load_values(x, b->seq, b->kv, t, r->tile, r->tile2);
    exact_pack(x, r->tile, x->d.ldv, x->d.v_pad, n, NULL, r->value,
               x->packed.value_bytes, 0);
    return exact_sum_operand(x, r->value, x->d.v_pad);
}

/* The address after `tiles` tiles of contiguous rows; the tile itself where rows are
 * apart. */
static const char *next_rows(struct operand a, int tiles, int64_t row, int d)
{
    return row == d ? a.at + (int64_t)tiles * TILE * row * (int64_t)sizeof(float)
                    : a.at;
}

static void forward_scores(struct forward_pass *p, int64_t t, int n, float *s)
{
    const struct exact *x = p->x;
    const float        *q = p->r->q;
    struct causal_cut   c = { 0 };

    if (exact_source_scores(x)) {
        source_scores(p, t, n, s);
        return;
    }
    const struct operand keys = keys_operand(p, t, n);
    while (exact_causal_cut(x, p->b, t, n, &c))
        if (c.m == TILE && !x->bf16)
            exact_product_prefetch(x, s, keys, q, TILE, x->d.q_pad, 0,
                                   next_rows(keys, 1, keys.row, x->d.q));
        else
            exact_product(x, s + (int64_t)c.j * LANES + c.lane, LANES,
                          operand_at(keys, c.j, 0), q + c.lane, LANES,
                          exact_padded(x, c.m), LANES - c.lane, x->d.q_pad / x->kpack,
                          0);
}

/* Initialise sums that will be added to. */
static void clear_if_fresh(const struct exact *x, float *ot, bool *fresh)
{
    if (*fresh) memset(ot, 0, (size_t)x->d.v_pad * LANES * sizeof *ot);
    *fresh = false;
}

/* ot += values of tile t by the weights from key `at` of the panel on.  If every lane
 * takes part, the first product overwrites ot instead. */
static void values(struct forward_pass *p, const struct exact_block *b, int64_t t,
                   int n, int at, float *ot, bool *fresh)
{
    const struct exact  *x = p->x;
    const struct operand sum = values_operand(p, b, t, n);
    const float         *w = x->bf16 ? (const float *)p->r->w : p->r->s;
    struct causal_cut    c = { 0 };

    while (exact_causal_cut(x, b, t, n, &c)) {
        if (c.m == n && n % TILE == 0 && !x->bf16) {
            exact_product_prefetch(x, ot, sum, w + (int64_t)at * LANES, x->d.v_pad, n,
                                   !*fresh, next_rows(sum, n / TILE, sum.col, x->d.v));
            *fresh = false;
            continue;
        }
        if (c.lane) clear_if_fresh(x, ot, fresh);
        exact_product(x, ot + c.lane, LANES, operand_at(sum, 0, c.j / x->kpack),
                      w + (int64_t)(at + c.j) / x->kpack * LANES + c.lane, LANES,
                      x->d.v_pad, LANES - c.lane, exact_padded(x, c.m) / x->kpack,
                      !*fresh);
        *fresh = false;
    }
}

/* Tiles of the panel, from the i-th on, whose values one product takes: neighbours,
 * unmasked, and packed contiguously. */
static int tiles_in_product(const struct forward_pass *p, int i)
{
    const struct exact         *x = p->x;
    const struct forward_panel *pa = &p->panel;
    int                         n = 1;

    if (x->bf16 && (x->k->sum_by_rows || p->fold == 1)) return 1;
    while (i + n < pa->n_tiles && !pa->masked[i] && !pa->masked[i + n] &&
           pa->tile[i + n] == pa->tile[i] + n)
        n++;
    return n;
}

/* Add the values of one folded sequence. */
static void seq_values(struct forward_pass *p, const struct exact_block *b, float *ot,
                       bool *fresh)
{
    const struct exact         *x = p->x;
    const struct forward_panel *pa = &p->panel;

    for (int i = 0, tiles; i < pa->n_tiles; i += tiles) {
        tiles = tiles_in_product(p, i);
        const int     at = i * TILE;
        const int     n = (int)min64((int64_t)tiles * TILE, pa->n - at);
        const int64_t kt = b->seq->kt0 + pa->tile[i];
        const bool bad = x->packed.nonfinite[b->kv * x->max.kt + kt] & NONFINITE_VALUE;

        if (!bad || !pa->masked[i]) {
            values(p, b, pa->tile[i], n, at, ot, fresh);
            continue;
        }
        clear_if_fresh(x, ot, fresh);
        exact_nonfinite_forward(x, b, pa->tile[i], n, p->r->seen + at,
                                x->bf16 ? NULL : p->r->s + (int64_t)at * LANES,
                                x->bf16 ? p->r->w + (int64_t)at / 2 * LANES : NULL,
                                p->r->tile, p->r->tile2, ot);
    }
}

static void add_values(struct forward_pass *p)
{
    bool fresh = p->fresh;

    for (int64_t f = 0; f < p->fold; f++) {
        const struct exact_block b = exact_fold_member(p->b, f);

        fresh = p->fresh;
        seq_values(p, &b, forward_sum(p, f), &fresh);
    }
    p->fresh = fresh;
}

/* Scores of the panel.  true: they are logits, because more than a factor applies to
 * them. */
static bool logits(struct forward_pass *p)
{
    const struct exact         *x = p->x;
    struct forward_scratch     *r = p->r;
    const struct forward_panel *pa = &p->panel;
    const bool                  modified =
        pa->any_masked || x->position.rel || exact_has_bias(x) || x->score->cap > 0;

    for (int i = 0; i < pa->n_tiles; i++) {
        const int     at = i * TILE, n = (int)min64(TILE, pa->n - at);
        const int64_t t = pa->tile[i];
        float        *s = r->s + (int64_t)at * LANES;

        forward_scores(p, t, n, s);
        exact_shaw_scores(x, p->b, t, n, &r->shaw, s);
        exact_txl_scores(x, p->b, t, n, &r->txl, s);
        if (!modified) continue;
        if (exact_source_biases(x)) source_scores(p, t, n, r->bias);
        exact_modify(x, s, n, p->plain, p->f, exact_tile_bias(x, p->b, t, n, r->bias),
                     pa->masked[i] ? r->seen + at : NULL);
    }
    return modified;
}

/* Dropped weights count in the normaliser and nowhere else. */
static void drop_weights(struct forward_pass *p)
{
    const struct exact       *x = p->x;
    const struct exact_block *b = p->b;
    struct forward_panel     *pa = &p->panel;
    uint64_t                  dropout_mask[TILE];

    for (int i = 0; i < pa->n_tiles; i++) {
        const int at = i * TILE, n = (int)min64(TILE, pa->n - at);

        exact_dropout_mask(x, p->dropout_keys,
                           exact_dropout_column(b->seq, pa->tile[i]), n, dropout_mask);
        if (x->bf16)
            x->k->drop_pairs_bf16(p->r->w + (int64_t)at / 2 * LANES, n, dropout_mask);
        else
            x->k->drop_f32(p->r->s + (int64_t)at * LANES, n, dropout_mask);
        pa->masked[i] = true;
        for (int j = 0; j < n; j++)
            p->r->seen[at + j] &= dropout_mask[j];
    }
}

static void flush_panel(struct forward_pass *p)
{
    const struct exact     *x = p->x;
    struct forward_scratch *r = p->r;
    struct forward_panel   *pa = &p->panel;

    if (!pa->n) return;
    const float *f = logits(p) ? NULL : p->f;
    float       *shrink = p->fixed ? NULL : p->shrink;
    const int    moved =
        x->bf16 ? x->k->weigh_bf16(r->s, r->w, pa->n, exact_padded(x, pa->n) / 2, f,
                                      p->m, p->l, shrink, x->kind)
                   : x->k->weigh_f32(r->s, pa->n, f, p->m, p->l, shrink, x->kind);
    if (moved) {
        for (int64_t f = 0; !p->fresh && f < p->fold; f++)
            x->k->shrink(forward_sum(p, f), x->d.v, p->shrink);
        exact_shaw_shrink(x, &r->shaw, p->shrink);
    }
    if (x->dropout.on) drop_weights(p);
    for (int i = 0; i < pa->n_tiles; i++)
        exact_shaw_weights(x, p->b, pa->tile[i], (int)min64(TILE, pa->n - i * TILE),
                           &r->shaw, r->s + (int64_t)i * TILE * LANES,
                           x->bf16 ? r->w + (int64_t)i * TILE / 2 * LANES : NULL);
    add_values(p);
    *pa = (struct forward_panel){ 0 };
}

/* Append a tile.  In a panel with masked tiles, all lanes see the keys of the others. */
static void push_tile(struct forward_pass *p, int64_t t, int32_t mask)
{
    const struct exact   *x = p->x;
    struct forward_panel *pa = &p->panel;
    const int             n = exact_keys_in(p->b->seq, t);
    uint64_t             *seen = p->r->seen + pa->n;

    assert(pa->n_tiles < MAX_PANEL / TILE && pa->n % TILE == 0);
    pa->masked[pa->n_tiles] = exact_tile_mask(x, p->b, t, mask, n, seen);
    if (pa->masked[pa->n_tiles])
        pa->any_masked = true;
    else
        for (int j = 0; j < n; j++)
            seen[j] = ~UINT64_C(0);
    pa->tile[pa->n_tiles++] = t;
    pa->n += n;
    /* Tiles start at multiples of 64 of the panel. */
    if (n < TILE || pa->n + TILE > x->panel) flush_panel(p);
}

/* Pack stored queries, and find the squares of their norms. */
static void pack_stored_queries(const struct exact *x, const struct exact_block *b,
                                struct forward_scratch *r, float *squares)
{
    int64_t         ld;
    const uint16_t *q =
        exact_stored_block(x, b, x->io->q, &x->p->q, x->d.q, r->tile, &ld);

    memset(squares + b->r1, 0, (size_t)(LANES - b->r1) * sizeof *squares);
    x->k->squares_bf16(squares, q, ld, b->r1, x->d.q);
    x->k->pack_cols_from_bf16(r->q, q, ld, b->r1, x->d.q, x->d.q_pad);
}

/* Load queries as floats, apply their maps, start the terms, and pack. */
static void load_queries(const struct exact *x, const struct exact_block *b,
                         struct forward_scratch *r, float *squares, float *extra)
{
    struct mapped mapped;

    exact_load_queries(x, b, r->tile, &mapped);
    exact_shaw_begin(x, b->h, r->tile, &r->shaw, extra);
    exact_txl_begin(x, b, r->tile, &r->txl, extra);
    x->k->row_dot(squares, r->tile, r->tile, x->d.ldq, LANES, x->d.q);
    if (x->bf16)
        x->k->pack_cols_bf16(r->q, r->tile, x->d.ldq, LANES, x->d.q_pad);
    else
        x->k->pack_cols_f32(r->q, r->tile, x->d.ldq, LANES, x->d.q);
}

/* norms[LANES] of the queries after their maps, and a bound of what terms add to their
 * products with keys. */
static void forward_pack_queries(const struct exact *x, const struct exact_block *b,
                                 struct forward_scratch *r, float *norms, float *extra)
{
    memset(extra, 0, LANES * sizeof *extra);
    exact_source_begin(x, b, &r->source);
    if (exact_source_scores(x)) return;
    if (exact_packs_stored(x) && !exact_has_shaw(x) && !exact_has_txl(x))
        pack_stored_queries(x, b, r, norms);
    else
        load_queries(x, b, r, norms, extra);
    for (int i = 0; i < LANES; i++)
        norms[i] = sqrtf(norms[i]);
}

static void block_forward(const struct exact *x, const struct exact_block *b,
                          struct forward_scratch *r, float *saved)
{
    struct forward_pass p = {
        .x = x, .b = b, .r = r, .fresh = true, .fold = exact_fold_size(x, b->seq)
    };
    int64_t            visible[LANES], t;
    int32_t            mask;
    _Alignas(64) float norms[LANES], extra[LANES];

    forward_pack_queries(x, b, r, norms, extra);
    exact_dropout_keys(x, b, p.dropout_keys);
    if (exact_counts_keys(x, false)) exact_count_visible(x, b, visible);
    exact_factors(x, b, visible, p.plain, p.f, NULL);
    for (int64_t f = 0; f < p.fold; f++)
        memset(forward_sum(&p, f) + (int64_t)x->d.v_pad * LANES, 0,
               (size_t)(x->d.ldv - x->d.v_pad) * LANES * sizeof *r->ot);
    p.fixed = forward_references(&p, norms, extra);
    struct exact_walk w = exact_walk_keys(x, b);
    while (exact_block_wanted(x, b) && exact_next(&w, &t, &mask))
        push_tile(&p, t, mask);
    flush_panel(&p);
    for (int64_t f = 0; f < p.fold; f++) {
        bool fresh = p.fresh;
        clear_if_fresh(x, forward_sum(&p, f), &fresh);
    }
    exact_shaw_values(x, b->h, &r->shaw, r->ot);
    if (x->order)
        order_save_block(x, b, r->ot, p.m, p.l, r->tile);
    else
        forward_store(&p, visible, saved);
}

void forward_blocks(const struct exact *x, const struct exact_block *b, int n,
                    struct forward_scratch *r, float *saved)
{
    const unsigned done =
        x->fused ? exact_fused_blocks(x, b, n, &r->fused, r->tile, saved) : 0;

    for (int i = 0; i < n; i++)
        if (!(done >> i & 1)) block_forward(x, &b[i], r, saved);
}

void forward_finish(const struct exact *x, const struct exact_block *b,
                    struct forward_scratch *r, float *saved)
{
    struct forward_pass p = { .x = x, .b = b, .r = r, .fold = 1 };
    int64_t             visible[LANES];

    if (exact_counts_keys(x, false)) exact_count_visible(x, b, visible);
    order_load_block(x, b, r->ot, p.m, p.l, r->tile);
    forward_store(&p, visible, saved);
}
