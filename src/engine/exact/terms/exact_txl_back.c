/* exact_txl_back.c -- txl backward.
 *
 * A run of key tiles stays, and a block meets it from the nearest tile on, so that a
 * tile of R is complete as soon as the next tile of keys has been met.
 */
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/terms/exact_txl.h"

/*
 * Memory
 */

void exact_txl_back_carve(const struct exact *x, int64_t parts, struct txl_back *k,
                          struct arena *a)
{
    const int64_t blocks = x->heads * x->max.qt;
    const size_t  rows = (size_t)x->d.ldq * LANES * (x->bf16 ? 2 : sizeof(float));
    const size_t  tile = (size_t)x->d.ldq * LANES * sizeof(float);

    if (!exact_has_txl(x)) return;
    k->parts = parts;
    k->size = rows;
    k->cols = arena_alloc(a, blocks, rows);
    k->rows = arena_alloc(a, blocks, rows);
    k->dr = arena_alloc(a, parts * x->heads * x->max.kt, tile);
    k->dr_begun = arena_alloc(a, parts * x->heads * x->max.kt, 1);
    k->d_u = arena_alloc(a, blocks * x->d.q, sizeof *k->d_u);
    k->d_w = arena_alloc(a, parts * blocks * x->d.q, sizeof *k->d_w);
}

static size_t ds_size(const struct exact *x)
{
    return (size_t)TILE * LANES * (x->bf16 ? sizeof(uint16_t) : sizeof(float));
}

struct txl_back_scratch exact_txl_back_scratch(const struct exact *x, int64_t run,
                                               struct arena *a)
{
    const int64_t           pairs = (int64_t)TILE * LANES;
    struct txl_back_scratch r = { .cached = -1, .due = -1 };

    if (!exact_has_txl(x)) return r;
    r.tile = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    for (int i = 0; i < 2; i++)
        r.band[i] = arena_alloc(a, pairs, sizeof(float));
    r.ds = arena_alloc(a, run + 2, ds_size(x));
    r.copy = arena_alloc(a, 1, ds_size(x));
    r.dqt = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r.rows = arena_alloc(a, 1, ds_size(x));
    r.pairs = x->bf16 ? arena_alloc(a, STACK, ds_size(x)) : r.rows;
    return r;
}

void *exact_txl_back_ds(const struct exact *x, const struct txl_back_scratch *r,
                        int64_t i)
{
    return r->ds + (size_t)(i + 1) * ds_size(x);
}

void *exact_txl_back_copy(const struct exact *x, const struct txl_back_scratch *r,
                          const void *ds)
{
    return memcpy(r->copy, ds, ds_size(x));
}

static double *d_w_of(const struct exact *x, const struct txl_back *k, int64_t part,
                      int64_t at)
{
    return k->d_w + (part * x->heads * x->max.qt + at) * x->d.q;
}

/* The number of a tile of dr, and its address. */
static int64_t dr_at(const struct exact *x, int64_t part, int64_t head, int64_t kt)
{
    return (part * x->heads + head) * x->max.kt + kt;
}

static float *dr_of(const struct exact *x, const struct txl_back *k, int64_t at)
{
    return k->dr + at * x->d.ldq * LANES;
}

void exact_txl_back_queries(const struct exact *x, const struct exact_block *b,
                            const struct txl_back *k, uint64_t blind, const float *mul,
                            float *q, struct txl_back_scratch *r)
{
    if (!k->cols) return;
    char *rows = k->rows + (size_t)b->at * k->size;

    memcpy(r->tile, q, LANES * (size_t)x->d.ldq * sizeof *q);
    exact_txl_add_vector(x, exact_txl_vector(x, x->score->txl_w, b->h), r->tile);
    exact_txl_pack_cols(x, r->tile, k->cols + (size_t)b->at * k->size);
    for (int i = 0; i < LANES; i++) {
        float *const row = r->tile + (int64_t)i * x->d.ldq;

        if (blind >> i & 1) memset(row, 0, (size_t)x->d.q * sizeof *row);
        for (int c = 0; x->score->n_rows && c < x->d.q; c++)
            row[c] *= mul[i];
    }
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)rows, r->tile, x->d.ldq, LANES, x->d.q_pad);
    else
        memcpy(rows, r->tile, k->size);
    exact_txl_add_u(x, b->h, q);
}

void exact_txl_back_begin(const struct exact *x, const struct txl_back *k, int64_t part,
                          int64_t at)
{
    if (k->cols) memset(d_w_of(x, k, part, at), 0, (size_t)x->d.q * sizeof *k->d_w);
}

void exact_txl_back_clear(const struct exact *x, const struct txl_back *k)
{
    if (k->cols) memset(k->dr_begun, 0, (size_t)(k->parts * x->heads * x->max.kt));
}

/* Lanes of a tile of R that a block meets: those before the distance, which belong
 * to the farther tile of keys; those from it on, which belong to the nearer one; or
 * both. */
enum side { FARTHER, NEARER, BOTH };

/* Rows of one product, and the lanes of those from `row` on. */
static int rows_at_once(const struct exact *x, enum side side)
{
    return side == BOTH ? TILE : x->granule;
}

static foci_range lanes_of(const struct exact *x, enum side side, int row)
{
    if (side == BOTH) return (foci_range){ 0, LANES };
    return side == NEARER ? (foci_range){ row, LANES }
                          : (foci_range){ 0, row + x->granule };
}

static void multiply_side(const struct exact *x, const struct exact_block *b, int64_t m,
                          enum side side, const struct txl_back *k, float *band)
{
    const float *q = (const float *)(k->cols + (size_t)b->at * k->size);
    const int    step = rows_at_once(x, side);

    for (int row = 0; row < TILE; row += step) {
        const foci_range lanes = lanes_of(x, side, row);

        exact_product(x, band + (int64_t)row * LANES + lanes.begin, LANES,
                      operand_at(exact_txl_rows(x, b->h, m), row, 0), q + lanes.begin,
                      LANES, step, (int)(lanes.end - lanes.begin),
                      x->d.q_pad / x->kpack, 0);
    }
}

void exact_txl_back_scores(const struct exact *x, const struct exact_block *b,
                           int64_t t, int n, bool more, const struct txl_back *k,
                           struct txl_back_scratch *r, float *s)
{
    if (!k->cols) return;
    const int64_t m = txl_tiles_ahead(b, t);
    /* Where the first query sees all of its own tile, no pair of it is hidden, so
     * scores of the lanes before that query must be numbers. */
    const bool   all = m == 0 && n - 1 <= b->r0;
    float *const nearer = r->band[0], *const farther = r->band[1];

    if (m > 0 && r->cached != m - 1) multiply_side(x, b, m - 1, FARTHER, k, nearer);
    multiply_side(x, b, m, more || all ? BOTH : NEARER, k, farther);
    x->k->skew(s, m > 0 ? nearer : farther, farther, n);
    r->band[0] = farther;
    r->band[1] = nearer;
    r->cached = more ? m : -1;
}

/* The bf16 pairs of a tile, after those pending. */
static const float *pairs_of(const struct exact *x, const struct txl_back_scratch *r)
{
    return (const float *)(r->pairs + (size_t)r->pending * ds_size(x));
}

/* r->dqt += R by the pending tiles, the last of which is tile m; all lanes. */
static void multiply_pending(const struct exact *x, const struct exact_block *b,
                             int64_t m, struct txl_back_scratch *r)
{
    const int n = r->pending;

    r->pending = 0;
    if (!n) return;
    exact_product(x, r->dqt, LANES, exact_txl_rows_sum(x, b->h, m - n + 1),
                  pairs_of(x, r), LANES, x->d.q_pad, LANES, n * TILE / x->kpack,
                  r->begun);
    r->begun = true;
}

/* r->dqt += R by one tile, for the lanes of one side. */
static void add_queries(const struct exact *x, const struct exact_block *b, int64_t m,
                        enum side side, struct txl_back_scratch *r)
{
    const float *band = pairs_of(x, r);

    multiply_pending(x, b, m - 1, r);
    if (!r->begun) memset(r->dqt, 0, (size_t)x->d.ldq * LANES * sizeof *r->dqt);
    r->begun = true;
    for (int row = 0; row < TILE; row += x->granule) {
        const foci_range lanes = lanes_of(x, side, row);

        exact_product(x, r->dqt + lanes.begin, LANES,
                      operand_at(exact_txl_rows_sum(x, b->h, m), 0, row / x->kpack),
                      band + (int64_t)row / x->kpack * LANES + lanes.begin, LANES,
                      x->d.q_pad, (int)(lanes.end - lanes.begin), x->granule / x->kpack,
                      1);
    }
}

/* dr += ds by queries. */
static void add_rows(const struct exact *x, const struct exact_block *b, int64_t m,
                     enum side side, const struct txl_back *k,
                     struct txl_back_scratch *r, int64_t part)
{
    const struct operand rows = { r->rows, LANES / x->kpack, 1 };
    const float         *q = (const float *)(k->rows + (size_t)b->at * k->size);
    const int64_t        at = dr_at(x, part, b->h - x->head0, b->seq->kt0 + m);
    float               *dr = dr_of(x, k, at);
    const int            step = rows_at_once(x, side);
    const bool           add = side != BOTH || k->dr_begun[at];

    if (add && !k->dr_begun[at]) memset(dr, 0, LANES * (size_t)x->d.ldq * sizeof *dr);
    k->dr_begun[at] = 1;
    for (int row = 0; row < TILE; row += step) {
        const foci_range lanes = lanes_of(x, side, row);
        const int64_t    from = lanes.begin / x->kpack;

        exact_product(x, dr + (int64_t)row * x->d.ldq, x->d.ldq,
                      operand_at(rows, row, from), q + from * x->d.ldq, x->d.ldq, step,
                      x->d.ldq, (int)(lanes.end - lanes.begin) / x->kpack, add);
    }
}

/* Add ds to tile m of R: those of the farther tile of keys, which the nearer one
 * follows. */
static void add_ds(const struct exact *x, const struct exact_block *b, int64_t m,
                   enum side side, const void *ds, const struct txl_back *k,
                   struct txl_back_scratch *r, int64_t part)
{
    if (x->bf16)
        x->k->unskew_bf16((uint16_t *)r->rows, (uint32_t *)pairs_of(x, r), ds);
    else
        x->k->unskew_f32((float *)r->rows, ds);
    if (side == BOTH)
        r->pending++;
    else
        add_queries(x, b, m, side, r);
    if (!x->bf16 || x->k->sum_by_rows || r->pending == STACK)
        multiply_pending(x, b, m, r);
    add_rows(x, b, m, side, k, r, part);
}

/* Finish the tile of keys last met, whose ds are at `ds`, and which no other follows. */
static void add_last(const struct exact *x, const struct exact_block *b, char *ds,
                     const struct txl_back *k, struct txl_back_scratch *r, int64_t part)
{
    if (r->due < 0) return;
    memset(ds - ds_size(x), 0, ds_size(x));
    add_ds(x, b, r->due, NEARER, ds - ds_size(x), k, r, part);
    r->due = -1;
}

void exact_txl_back_tile(const struct exact *x, const struct exact_block *b, int64_t t,
                         int n, const struct txl_back *k, struct txl_back_scratch *r,
                         int64_t part, void *ds)
{
    if (!k->cols) return;
    const int64_t m = txl_tiles_ahead(b, t);
    const size_t  size = ds_size(x), used = size / TILE * (size_t)n;
    char *const   farther = ds;

    if (r->due != m - 1) add_last(x, b, r->last, k, r, part);
    memset(farther + used, 0, size - used);
    if (r->due < 0) memset(farther + size, 0, size);
    if (m > 0) add_ds(x, b, m - 1, r->due < 0 ? FARTHER : BOTH, farther, k, r, part);
    r->due = m;
    r->last = farther;
}

/* sum[c] += the sum of row c of dqt times the factors of lanes.  Lanes without a query,
 * whose elements are arbitrary, are zeroed.  tile[LANES][LANES] is scratch. */
static void sum_rows(const struct exact *x, const struct exact_block *b,
                     const float *mul, float *dqt, float *tile, double *sum)
{
    _Alignas(64) float out[LANES];

    for (int c = 0; c < x->d.q && b->r1 - b->r0 < LANES; c++) {
        memset(dqt + (int64_t)c * LANES, 0, (size_t)b->r0 * sizeof *dqt);
        memset(dqt + (int64_t)c * LANES + b->r1, 0,
               (size_t)(LANES - b->r1) * sizeof *dqt);
    }
    for (int i = 0; i < LANES; i++)
        memcpy(tile + (int64_t)i * LANES, mul, LANES * sizeof *tile);
    for (int c = 0; c < x->d.q; c += LANES) {
        const int n = (int)min64(LANES, x->d.q - c);

        x->k->row_dot(out, dqt + (int64_t)c * LANES, tile, LANES, n, LANES);
        for (int e = 0; e < n; e++)
            sum[c + e] += (double)out[e];
    }
}

void exact_txl_back_run_end(const struct exact *x, const struct exact_block *b,
                            const struct txl_back *k, const float *mul,
                            struct txl_back_scratch *r, int64_t part, float *dqt)
{
    if (!k->cols || r->due < 0) return;
    add_last(x, b, r->last, k, r, part);
    sum_rows(x, b, mul, r->dqt, r->band[1], d_w_of(x, k, part, b->at));
    exact_txl_add(dqt, r->dqt, (int64_t)x->d.q * LANES);
    r->begun = false;
}

double exact_txl_back_finish(const struct exact *x, const struct exact_block *b,
                             const struct txl_back *k, const uint8_t *begun,
                             const float *mul, struct txl_back_scratch *r, float *dqt)
{
    if (!k->cols) return 0;
    double      *du = k->d_u + b->at * x->d.q, *dw = d_w_of(x, k, 0, b->at), sum = 0;
    const float *u = exact_txl_vector(x, x->score->txl_u, b->h);
    const float *w = exact_txl_vector(x, x->score->txl_w, b->h);

    for (int64_t part = 1; part < k->parts; part++)
        for (int c = 0; begun[part * x->heads * x->max.qt] && c < x->d.q; c++)
            dw[c] += d_w_of(x, k, part, b->at)[c];
    memset(du, 0, (size_t)x->d.q * sizeof *du);
    sum_rows(x, b, mul, dqt, r->band[0], du);
    for (int c = 0; c < x->d.q; c++) {
        du[c] -= dw[c];
        sum += du[c] * (double)u[c] + dw[c] * (double)w[c];
    }
    return sum;
}

void exact_txl_params_rows(const struct exact *x, const struct txl_back *k, int64_t at,
                           float *dparams)
{
    const int64_t head = at / txl_n_tiles(x), m = at % txl_n_tiles(x);
    const float   scale = (float)exact_head_scale(x, x->head0 + head);
    const int64_t n = min64(TILE, x->p->len_k - m * TILE);
    float *out = dparams + x->score->txl_r + (head * x->p->len_k + m * TILE) * x->d.q;
    float *sum = NULL;

    for (int64_t s = 0; s < x->n.seqs; s++)
        for (int64_t part = 0; part < k->parts && m < x->seqs[s].n_kt; part++) {
            const int64_t dr_tile = dr_at(x, part, head, x->seqs[s].kt0 + m);
            float        *dr = dr_of(x, k, dr_tile);

            if (!k->dr_begun[dr_tile]) continue;
            if (sum) exact_txl_add(sum, dr, n * x->d.ldq);
            if (!sum) sum = dr;
        }
    for (int64_t i = 0; sum && i < n; i++)
        for (int c = 0; c < x->d.q; c++)
            out[i * x->d.q + c] += scale * sum[i * x->d.ldq + c];
}

void exact_txl_params(const struct exact *x, const struct txl_back *k, float *dparams)
{
    if (!k->cols) return;
    for (int64_t h = 0; h < x->heads; h++) {
        const double scale = exact_head_scale(x, x->head0 + h);

        for (int c = 0; c < x->d.q; c++) {
            double du = 0, dw = 0;
            for (int64_t qt = 0; qt < x->n.qt; qt++) {
                du += k->d_u[(h * x->max.qt + qt) * x->d.q + c];
                dw += k->d_w[(h * x->max.qt + qt) * x->d.q + c];
            }
            dparams[x->score->txl_u + h * x->d.q + c] += (float)(scale * du);
            dparams[x->score->txl_w + h * x->d.q + c] += (float)(scale * dw);
        }
    }
}
