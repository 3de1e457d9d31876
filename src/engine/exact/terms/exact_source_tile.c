/* exact_source_tile.c -- logits of score sources: keys and rows as products take them,
 * and tiles of scores. */
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"

/*
 * Keys
 */

void exact_source_keys(const struct exact *x, int64_t h, int64_t j0, float *tile)
{
    const struct sources *s = &x->source;
    const int             n = (int)min64(TILE, x->p->len_k - j0);
    const int64_t         max = s->net.out;
    const float          *params = x->io->params;

    memset(tile, 0, (size_t)TILE * (size_t)s->ldw * sizeof *tile);
    if (s->rank) {
        int64_t shape[2];
        exact_source_shape(&x->stage->group->mech, FOCI_ROLE_R2, shape);
        const float *r2 = params + s->r2 + (h * shape[0] + j0) * s->rank;
        for (int j = 0; j < n; j++)
            memcpy(tile + (int64_t)j * s->ldw, r2 + (int64_t)j * s->rank,
                   (size_t)s->rank * sizeof *tile);
    }
    const float *w2 = params + s->net.w2 + h * s->net.hidden * max + j0;
    for (int c = 0; c < s->net.hidden; c++)
        for (int j = 0; j < n; j++)
            tile[(int64_t)j * s->ldw + s->rank + c] = w2[c * max + j];
}

void exact_source_pack_keys(const struct exact *x, int64_t at, struct source_scratch *r)
{
    const struct sources *s = &x->source;
    const int64_t         h = at / s->tiles, j0 = at % s->tiles * TILE;
    const int             n = (int)min64(TILE, x->p->len_k - j0);

    exact_source_keys(x, h, j0, r->rows);
    s->nonfinite[at] = !exact_finite(x, r->rows, s->ldw, s->w, n);
    exact_pack(x, r->rows, s->ldw, s->w_pad, n, s->keys, s->sum, s->size, (size_t)at);
}

/*
 * Rows of a block
 */

/* Load the hidden states of a block, as rows and transposed. */
static void load_x(const struct exact *x, const struct exact_block *b,
                   struct source_scratch *r)
{
    const foci_layout *l = &x->p->x;
    const struct seq  *s = &b->seq->s;
    const int          ld = x->source.ldx, d = (int)x->p->dim_x;
    const char        *rows = (const char *)x->io->x +
                       (size_t)(s->b * l->batch + (s->q0 + b->i0 + b->r0) * l->row) *
                           foci_dtype_bytes(x->p->dtype);

    memset(r->x, 0, (size_t)LANES * (size_t)ld * sizeof *r->x);
    x->k->load_rows(r->x + (int64_t)b->r0 * ld, ld, rows, l->row, (int)x->p->dtype,
                    b->r1 - b->r0, d);
    x->k->pack_cols_f32(r->xt, r->x, ld, LANES, d);
}

void exact_source_x(const struct exact *x, const struct exact_block *b,
                    struct source_scratch *r)
{
    if (exact_source_nets(x)) load_x(x, b, r);
}

const float *exact_source_factor(const struct exact *x, int64_t h, int64_t pos)
{
    int64_t shape[2];

    exact_source_shape(&x->stage->group->mech, FOCI_ROLE_R1, shape);
    return x->io->params + x->source.r1 + (h * shape[0] + pos) * shape[1];
}

static void exact_source_tile_fill(float *row, int n, float with)
{
    for (int i = 0; i < n; i++)
        row[i] = with;
}

void exact_source_rows(const struct exact *x, const struct exact_block *b,
                       struct source_scratch *r)
{
    const struct sources *s = &x->source;
    const int64_t         h = b->h - x->head0;
    _Alignas(64) float    weight[LANES];

    if (!s->kinds) return;
    exact_source_x(x, b, r);
    memset(r->rows, 0, (size_t)LANES * (size_t)s->ldw * sizeof *r->rows);
    for (int i = b->r0; s->rank && i < b->r1; i++) {
        const float *row = exact_source_factor(x, h, b->pos + i);
        const float  by = (float)s->weight[h][SOURCE_FACTORS];
        for (int c = 0; c < s->rank; c++)
            r->rows[(int64_t)i * s->ldw + c] = by * row[c];
    }
    if (s->net.hidden) {
        exact_source_tile_fill(weight, LANES, (float)s->weight[h][SOURCE_NET]);
        exact_net_hidden(x, &s->net, h, r);
        x->k->store_cols(r->rows + s->rank, s->ldw, FOCI_F32, r->h, weight, LANES,
                         s->net.hidden);
    }
    if (!s->a.out) return;
    const struct net_layer a = exact_net_second(x, &s->a, h);
    const struct net_layer n = exact_net_second(x, &s->b, h);
    exact_source_tile_fill(weight, LANES, (float)s->weight[h][SOURCE_OUTER]);
    exact_net_hidden(x, &s->a, h, r);
    net_layer_apply(&a, r->h, r->ab);
    x->k->shrink(r->ab, s->a.out, weight);
    exact_net_hidden(x, &s->b, h, r);
    net_layer_apply(&n, r->h, r->ab + (int64_t)s->a.out * LANES);
}

/* The factor of sources where they are added as a bias. */
static float unit_of(const struct exact *x)
{
    return x->source.qk ? (float)exact_bias_unit(x) : 1;
}

void exact_source_pack_rows(const struct exact *x, float *rows, void *cols)
{
    const struct sources *s = &x->source;
    const float           unit = unit_of(x);

    for (int64_t i = 0; unit != 1 && i < (int64_t)LANES * s->ldw; i++)
        rows[i] *= unit;
    if (!s->w) return;
    if (x->bf16)
        x->k->pack_cols_bf16(cols, rows, s->ldw, LANES, s->w_pad);
    else
        x->k->pack_cols_f32(cols, rows, s->ldw, LANES, s->w);
}

void exact_source_begin(const struct exact *x, const struct exact_block *b,
                        struct source_scratch *r)
{
    if (!x->source.kinds) return;
    exact_source_rows(x, b, r);
    exact_source_pack_rows(x, r->rows, r->q);
}

/*
 * Tiles of logits
 */

const float *exact_source_table(const struct exact *x, int64_t h, int64_t pos)
{
    return x->io->params + x->source.r + (h * x->source.max + pos) * x->source.max;
}

/* s[n][LANES] = factor times R, transposed. */
static void table(const struct exact *x, const struct exact_block *b, int64_t t, int n,
                  float by, float *tile, float *s)
{
    const float *r = exact_source_table(x, b->h - x->head0, b->pos + b->r0) + t * TILE;
    _Alignas(64) float factor[LANES];

    memset(tile, 0, (size_t)b->r0 * TILE * sizeof *tile);
    x->k->load_rows(tile + (int64_t)b->r0 * TILE, TILE, r, x->source.max, FOCI_F32,
                    b->r1 - b->r0, n);
    x->k->pack_cols_f32(s, tile, TILE, b->r1, n);
    if (by == 1) return;
    exact_source_tile_fill(factor, LANES, by);
    x->k->shrink(s, n, factor);
}

/* s[n][LANES] += factor times a b. */
static void outer(const struct exact *x, int64_t t, int n, float by, const float *ab,
                  float *s)
{
    const int    split = x->source.b.out;
    const float *second = ab + (int64_t)x->source.a.out * LANES;

    for (int j = 0; j < n; j++) {
        const int64_t at = t * TILE + j;
        const float  *a = ab + at / split * LANES, *b = second + at % split * LANES;
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] += by * a[i] * b[i];
    }
}

/* The part of the logits that is not a product; false: there is none. */
static bool base(const struct exact *x, const struct exact_block *b, int64_t t, int n,
                 const float *ab, float *tile, float *s)
{
    const struct sources *from = &x->source;
    const double         *weight = from->weight[b->h - x->head0];
    const float           unit = unit_of(x);

    if (from->kinds == FOCI_SOURCE_FACTORS) return false;
    if (from->kinds & FOCI_SOURCE_TABLE)
        table(x, b, t, n, (float)weight[SOURCE_TABLE] * unit, tile, s);
    else
        memset(s, 0, (size_t)n * LANES * sizeof *s);
    if (from->kinds & FOCI_SOURCE_OUTER) outer(x, t, n, unit, ab, s);
    if (!(from->kinds & FOCI_SOURCE_NET)) return true;
    const float *b2 =
        x->io->params + from->net.b2 + (b->h - x->head0) * from->net.out + t * TILE;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] += (float)weight[SOURCE_NET] * unit * b2[j];
    return true;
}

struct operand exact_source_operand(const struct exact *x, int64_t h, int64_t t)
{
    const struct sources *s = &x->source;
    return (struct operand){ s->keys + (size_t)(h * s->tiles + t) * s->size,
                             x->bf16 ? s->w_pad / 2 : s->ldw, 1 };
}

void exact_source_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                       int n, const void *q, const float *ab, float *tile, float *s)
{
    const struct sources *source = &x->source;
    const bool            add = base(x, b, t, n, ab, tile, s);
    const float          *cols = q;
    struct causal_cut     c = { 0 };

    if (!source->w) return;
    const struct operand keys = exact_source_operand(x, b->h - x->head0, t);
    while (exact_causal_cut(x, b, t, n, &c))
        exact_product(x, s + (int64_t)c.j * LANES + c.lane, LANES,
                      operand_at(keys, c.j, 0), cols + c.lane, LANES,
                      exact_padded(x, c.m), LANES - c.lane, source->w_pad / x->kpack,
                      add);
}
