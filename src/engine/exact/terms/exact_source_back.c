/* exact_source_back.c -- gradients of score sources, tile by tile. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/terms/exact_source_back.h"

void exact_source_back_carve(const struct exact *x, int64_t parts,
                             struct source_back *k, struct arena *a)
{
    const struct sources *s = &x->source;
    const int64_t         blocks = x->heads * x->max.qt, tiles = exact_source_tiles(x);

    *k = (struct source_back){ .parts = parts };
    if (!s->kinds) return;
    k->cols_size = (size_t)s->ldw * LANES * (x->bf16 ? 2 : sizeof(float));
    k->cols = arena_alloc(a, blocks, k->cols_size);
    k->rows = arena_alloc(a, blocks, k->cols_size);
    k->ab = arena_alloc(a, blocks * source_ab_floats(x), sizeof *k->ab);
    k->dq = arena_alloc(a, parts * blocks * source_dq_floats(x), sizeof *k->dq);
    k->dab = arena_alloc(a, parts * blocks * source_ab_floats(x), sizeof *k->dab);
    k->dk = arena_alloc(a, tiles * TILE * s->ldw, sizeof *k->dk);
    k->db2 = arena_alloc(a, tiles * TILE, sizeof *k->db2);
    k->dtable = arena_alloc(a, parts * x->heads, sizeof *k->dtable);
    k->dh = arena_alloc(a, blocks * source_dh_floats(x), sizeof *k->dh);
    k->dnets = arena_alloc(a, x->heads * source_nets_floats(x), sizeof *k->dnets);
    k->dweight = arena_alloc(a, x->heads, sizeof *k->dweight);
    k->ones = arena_alloc(a, (int64_t)LANES * x->granule, sizeof(float));
}

void exact_source_back_clear(const struct exact *x, const struct source_back *k)
{
    const size_t   rows = (size_t)exact_source_tiles(x) * TILE;
    const float    one = 1;
    const uint32_t pair = 0x3f803f80; /* two ones */

    if (!x->source.kinds) return;
    memset(k->dk, 0, rows * (size_t)x->source.ldw * sizeof *k->dk);
    memset(k->db2, 0, rows * sizeof *k->db2);
    memset(k->dtable, 0, (size_t)(k->parts * x->heads) * sizeof *k->dtable);
    memset(k->dnets, 0, (size_t)(x->heads * source_nets_floats(x)) * sizeof *k->dnets);
    memset(k->dweight, 0, (size_t)x->heads * sizeof *k->dweight);
    for (int i = 0; i < LANES * x->granule; i++)
        memcpy((char *)k->ones + 4 * (size_t)i, x->bf16 ? (const void *)&pair : &one, 4);
}

void exact_source_back_begin(const struct exact *x, const struct source_back *k,
                             int64_t part, int64_t at)
{
    if (!x->source.kinds) return;
    memset(source_dq_of(x, k, part, at), 0, (size_t)source_dq_floats(x) * sizeof(float));
    memset(source_dab_of(x, k, part, at), 0,
           (size_t)source_ab_floats(x) * sizeof(float));
}

/*
 * Rows of a block
 */

bool exact_source_back_queries(const struct exact *x, const struct exact_block *b,
                               const struct source_back *k, uint64_t blind,
                               struct source_scratch *r)
{
    const struct sources *s = &x->source;

    if (!s->kinds) return true;
    exact_source_rows(x, b, r);
    if (source_ab_floats(x))
        memcpy(k->ab + b->at * source_ab_floats(x), r->ab,
               (size_t)source_ab_floats(x) * sizeof(float));
    if (!s->w) return true;
    char *rows = k->rows + (size_t)b->at * k->cols_size;
    for (int i = 0; i < LANES; i++)
        if (blind >> i & 1)
            memset(r->rows + (int64_t)i * s->ldw, 0, (size_t)s->ldw * sizeof(float));
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)(void *)rows, r->rows, s->ldw, LANES,
                              s->w_pad);
    else
        memcpy(rows, r->rows, k->cols_size);
    const bool finite = exact_finite(x, r->rows, s->ldw, s->w, LANES);
    exact_source_pack_rows(x, r->rows, k->cols + (size_t)b->at * k->cols_size);
    return finite;
}

void exact_source_back_scores(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const struct source_back *k,
                              struct source_scratch *r, float *s)
{
    exact_source_tile(x, b, t, n, k->cols + (size_t)b->at * k->cols_size,
                      k->ab + b->at * source_ab_floats(x), r->tile, s);
}

bool exact_source_wants_floats(const struct exact *x)
{
    return x->source.kinds & (FOCI_SOURCE_TABLE | FOCI_SOURCE_OUTER);
}

bool exact_source_nonfinite(const struct exact *x, const struct exact_block *b,
                            int64_t t)
{
    return x->source.w && x->source.nonfinite[(b->h - x->head0) * x->source.tiles + t];
}

/*
 * A tile and a block
 */

/* dR += ds[n][LANES]; and the gradient of the weight of R, where sources are weighed. */
static void add_table(const struct exact *x, const struct exact_block *b, int64_t t,
                      int n, int64_t part, const struct source_back *k, const float *ds,
                      float *tile, float *dparams)
{
    const struct sources *s = &x->source;
    const int64_t         h = b->h - x->head0;
    const float           weight = (float)s->weight[h][SOURCE_TABLE];
    double                sum = 0;
    _Alignas(64) float    ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(tile, TILE, FOCI_F32, ds, ones, LANES, n);
    for (int i = b->r0; i < b->r1; i++) {
        const float *r = exact_source_table(x, h, b->pos + i) + t * TILE;
        const float *d = tile + (int64_t)i * TILE;
        float       *to = dparams + (r - x->io->params);

        for (int j = 0; !s->frozen && j < n; j++)
            to[j] += weight * d[j];
        for (int j = 0; s->mix >= 0 && j < n; j++)
            sum += (double)(d[j] * r[j]);
    }
    k->dtable[part * x->heads + h] += sum;
}

/* Whether several sequences, or several folds of them, add to R. */
static bool sums_columns(const struct exact *x)
{
    return x->source.kinds & FOCI_SOURCE_TABLE && x->n.seqs > x->fold;
}

/* The sum of a tile for a block of positions, of one head of its key/value head. */
static float *strip_of(const struct exact *x, const struct source_scratch *r, int64_t h,
                       int64_t pos)
{
    return r->columns + (h % x->per_kv * x->source.tiles + pos / LANES) * TILE * LANES;
}

void exact_source_back_tile_begin(const struct exact *x, struct source_scratch *r)
{
    if (sums_columns(x))
        memset(r->columns, 0,
               (size_t)(x->per_kv * x->source.tiles * TILE * LANES) *
                   sizeof *r->columns);
}

void exact_source_back_tile_end(const struct exact *x, int64_t kv, int64_t t,
                                int64_t part, const struct source_back *k,
                                struct source_scratch *r, float *dparams)
{
    const int n = (int)min64(TILE, x->p->len_k - t * TILE);

    if (!sums_columns(x) || !dparams) return;
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
        for (int64_t i = 0; i < x->p->len_q; i += LANES) {
            const struct exact_block b = { .h = x->head0 + h,
                                           .pos = i,
                                           .r1 = (int)min64(LANES, x->p->len_q - i) };
            add_table(x, &b, t, n, part, k, strip_of(x, r, h, i), r->tile, dparams);
        }
}

/* Add to dR at once, or to a sum over sequences. */
static void add_to_table(const struct exact *x, const struct source_tile *m,
                         const struct source_back *k, const float *ds,
                         struct source_scratch *r, float *dparams)
{
    float *sum = strip_of(x, r, m->b->h - x->head0, m->b->pos);

    if (!sums_columns(x)) {
        add_table(x, m->b, m->t, m->n, m->part, k, ds, r->tile, dparams);
        return;
    }
    for (int j = 0; j < m->n; j++)
        for (int i = m->b->r0; i < m->b->r1; i++)
            sum[j * LANES + i] += ds[j * LANES + i];
}

/* Gradients of a, which contains its weight, and of b. */
static void add_outer(const struct exact *x, const struct source_tile *m,
                      const struct source_back *k, const float *ds)
{
    const int64_t half = (int64_t)x->source.a.out * LANES;
    const int     split = x->source.b.out;
    const float  *ab = k->ab + m->b->at * source_ab_floats(x);
    float        *dab = source_dab_of(x, k, m->part, m->b->at);

    for (int j = 0; j < m->n; j++) {
        const int64_t at = m->t * TILE + j;
        const int64_t a = at / split * LANES, b = half + at % split * LANES;
        for (int i = 0; i < LANES; i++) {
            dab[a + i] += ds[j * LANES + i] * ab[b + i];
            dab[b + i] += ds[j * LANES + i] * ab[a + i];
        }
    }
}

/* dq += keys by ds. */
static void add_queries(const struct exact *x, const struct source_tile *m,
                        const struct source_back *k)
{
    const struct sources *s = &x->source;
    const int64_t         h = m->b->h - x->head0;
    float                *dq = source_dq_of(x, k, m->part, m->b->at);
    const float          *pairs = m->pairs;
    struct operand        sum = exact_source_operand(x, h, m->t);
    struct causal_cut     c = { 0 };

    sum = (struct operand){ sum.at, sum.col, sum.row };
    if (x->bf16)
        sum = exact_sum_operand(x, s->sum + (size_t)(h * s->tiles + m->t) * s->size,
                                s->w_pad);
    while (exact_causal_cut(x, m->b, m->t, m->n, &c))
        exact_product(x, dq + c.lane, LANES, operand_at(sum, 0, c.j / x->kpack),
                      pairs + (int64_t)c.j / x->kpack * LANES + c.lane, LANES, s->w_pad,
                      LANES - c.lane, exact_padded(x, c.m) / x->kpack, 1);
}

/* dk += ds by queries; and sums of ds, for the last bias of the net. */
static void add_keys(const struct exact *x, const struct source_tile *m,
                     const struct source_back *k, float *sums)
{
    const struct sources *s = &x->source;
    const int64_t         tile = (m->b->h - x->head0) * s->tiles + m->t;
    const struct operand  ds = { m->rows, LANES / x->kpack, 1 };
    const float          *q = (const void *)(k->rows + (size_t)m->b->at * k->cols_size);
    float                *dk = k->dk + tile * TILE * s->ldw;
    struct causal_cut     c = { 0 };

    while (exact_causal_cut(x, m->b, m->t, m->n, &c)) {
        const int rows = exact_padded(x, c.m), from = c.lane / x->kpack;
        const int deep = (LANES - c.lane) / x->kpack;

        exact_product(x, dk + (int64_t)c.j * s->ldw, s->ldw, operand_at(ds, c.j, from),
                      q + (int64_t)from * s->ldw, s->ldw, rows, s->ldw, deep, 1);
        if (!s->net.hidden) continue;
        exact_product(x, sums, x->granule, operand_at(ds, c.j, from), k->ones,
                      x->granule, rows, x->granule, deep, 0);
        for (int j = 0; j < c.m; j++)
            k->db2[tile * TILE + c.j + j] += (double)sums[(int64_t)j * x->granule];
    }
}

/* The same pair by pair, where an operand is not finite. */
static void add_nonfinite(const struct exact *x, const struct source_tile *m,
                          const struct source_back *k, const float *ds,
                          struct source_scratch *r)
{
    const struct sources *s = &x->source;
    const int64_t         tile = (m->b->h - x->head0) * s->tiles + m->t;
    float                *dq = source_dq_of(x, k, m->part, m->b->at);
    float                *dk = k->dk + tile * TILE * s->ldw;

    exact_source_keys(x, m->b->h - x->head0, m->t * TILE, r->rows);
    for (int j = 0; j < m->n; j++)
        for (int i = 0; i < LANES; i++)
            for (int c = 0; m->seen[j] >> i & 1 && c < s->w; c++)
                dq[c * LANES + i] +=
                    ds[j * LANES + i] * r->rows[(int64_t)j * s->ldw + c];
    exact_source_rows(x, m->b, r);
    for (int j = 0; j < m->n; j++)
        for (int i = 0; i < LANES; i++) {
            if (!(m->seen[j] >> i & 1)) continue;
            for (int c = 0; c < s->w; c++)
                dk[(int64_t)j * s->ldw + c] +=
                    ds[j * LANES + i] * r->rows[(int64_t)i * s->ldw + c];
            k->db2[tile * TILE + j] += (double)ds[j * LANES + i];
        }
}

/* ds[n][LANES] with zeros for hidden pairs. */
static void mask_ds(const struct exact *x, const struct source_tile *m, float *ds)
{
    if (x->bf16)
        x->k->load_rows(ds, LANES, m->rows, LANES, FOCI_BF16, m->n, LANES);
    else
        memcpy(ds, m->rows, (size_t)m->n * LANES * sizeof *ds);
    x->k->drop_f32(ds, m->n, m->seen);
}

void exact_source_back_tile(const struct exact *x, const struct source_tile *m,
                            const struct source_back *k, struct source_scratch *r,
                            float *dparams)
{
    const struct sources *s = &x->source;
    const float          *ds = m->ds;

    if (!s->kinds) return;
    if (m->seen) {
        mask_ds(x, m, r->ds);
        ds = r->ds;
    }
    if (s->kinds & FOCI_SOURCE_TABLE && dparams) add_to_table(x, m, k, ds, r, dparams);
    if (s->kinds & FOCI_SOURCE_OUTER) add_outer(x, m, k, ds);
    if (!s->w) return;
    if (m->seen) {
        add_nonfinite(x, m, k, ds, r);
        return;
    }
    add_queries(x, m, k);
    add_keys(x, m, k, r->tile);
}

void exact_source_back_finish(const struct exact *x, const struct exact_block *b,
                              const struct source_back *k, const uint8_t *begun)
{
    const int64_t blocks = x->heads * x->max.qt;
    float        *dq = k->dq ? source_dq_of(x, k, 0, b->at) : NULL;
    float        *dab = k->dab ? source_dab_of(x, k, 0, b->at) : NULL;

    for (int64_t part = 1; x->source.kinds && part < k->parts; part++) {
        if (!begun[part * blocks]) continue;
        for (int64_t i = 0; i < source_dq_floats(x); i++)
            dq[i] += source_dq_of(x, k, part, b->at)[i];
        for (int64_t i = 0; i < source_ab_floats(x); i++)
            dab[i] += source_dab_of(x, k, part, b->at)[i];
    }
}
