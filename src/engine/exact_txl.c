/* exact_txl.c -- queries that meet a row for each distance, R, as they meet keys.
 *
 * Blocks of queries start at multiples of 64, so that the distances of a block to a
 * tile of keys are those of two tiles of R, m - 1 and m: m is how many tiles the block
 * is ahead.  The products of q + w with them are a band, by distance and lane, and the
 * kernel `skew` hands it out by key and lane.  The next tile of keys needs m - 2 and
 * m - 1, so that forward takes one product a tile.  Backward has tiles of keys that
 * stay, and each block needs both; but of the first only lanes before the distance, of
 * the second only lanes from it on, are ever met.
 */
#include <math.h>
#include <string.h>

#include "engine/exact.h"

bool exact_has_txl(const struct exact *x) { return x->score->txl_r >= 0; }

static int64_t n_tiles(const struct exact *x) { return div_up(x->p->len_k, TILE); }

static const float *vector(const struct exact *x, int64_t at, int64_t h)
{
    return x->io->params + at + (h - x->head0) * x->dq;
}

void exact_txl_take(struct exact *x, struct arena *a, bool back)
{
    const int64_t     tiles = x->heads * n_tiles(x);
    struct distances *r = &x->far;

    if (!exact_has_txl(x)) return;
    r->rows = arena_take(a, tiles, x->key_size);
    r->sum = x->bf16 && back ? arena_take(a, tiles, x->key_size) : NULL;
    r->top = arena_take(a, tiles * TILE, sizeof *r->top);
}

void exact_txl_make(const struct exact *x, float *tile)
{
    const struct distances *r = &x->far;

    if (!r->rows) return;
    for (int64_t h = 0; h < x->heads; h++) {
        float top = 0;

        for (int64_t t = 0; t < n_tiles(x); t++) {
            const int64_t at = h * n_tiles(x) + t;
            const int     n = (int)min64(TILE, x->p->len_k - t * TILE);
            float        *tops = r->top + at * TILE;

            x->k->load_rows(tile, x->ldq,
                            x->io->params + x->score->txl_r +
                                (h * x->p->len_k + t * TILE) * x->dq,
                            x->dq, FOCI_F32, n, x->dq);
            memset(tile + (int64_t)n * x->ldq, 0,
                   (size_t)(TILE - n) * (size_t)x->ldq * sizeof *tile);
            x->k->row_dot(tops, tile, tile, x->ldq, TILE, x->dq);
            for (int i = 0; i < TILE; i++)
                tops[i] = top =
                    fmaxf(top, isfinite(tops[i]) ? sqrtf(tops[i]) : INFINITY);
            exact_pack(x, tile, x->ldq, x->dq_pad, TILE, r->rows, r->sum, x->key_size,
                       (size_t)at);
        }
    }
}

/* Tile m of a head, by rows or to be summed over distances. */
static struct operand rows_of(const struct exact *x, int64_t h, int64_t m)
{
    const size_t at = (size_t)((h - x->head0) * n_tiles(x) + m) * x->key_size;
    return (struct operand){ x->far.rows + at, x->bf16 ? x->dq_pad / 2 : x->ldq, 1 };
}

static struct operand sum_of(const struct exact *x, int64_t h, int64_t m)
{
    const size_t at = (size_t)((h - x->head0) * n_tiles(x) + m) * x->key_size;

    if (!x->bf16) return (struct operand){ x->far.rows + at, 1, x->ldq };
    return x->k->sum_by_rows ? (struct operand){ x->far.sum + at, TILE / 2, 1 }
                             : (struct operand){ x->far.sum + at, 1, x->dq_pad };
}

/* out[LANES][ldq] = q + v; q may be out. */
static void add_vector(const struct exact *x, const float *q, const float *v, float *out)
{
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < x->ldq; c++)
            out[(int64_t)i * x->ldq + c] =
                q[(int64_t)i * x->ldq + c] + (c < x->dq ? v[c] : 0);
}

void exact_add_u(const struct exact *x, int64_t h, float *q)
{
    if (exact_has_txl(x)) add_vector(x, q, vector(x, x->score->txl_u, h), q);
}

static void pack_cols(const struct exact *x, const float *rows, void *cols)
{
    if (x->bf16)
        x->k->pack_cols_bf16(cols, rows, x->ldq, LANES, x->dq_pad);
    else
        x->k->pack_cols_f32(cols, rows, x->ldq, LANES, x->dq);
}

/* How many tiles a block is ahead of tile t. */
static int64_t ahead(const struct block *b, int64_t t) { return b->pos / TILE - t; }

/*
 * Forward
 */

struct txl exact_txl_room(const struct exact *x, struct arena *a)
{
    struct txl w = { 0 };

    if (!exact_has_txl(x)) return w;
    w.tile = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    w.q = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    for (int i = 0; i < 2; i++)
        w.band[i] = arena_take(a, (int64_t)TILE * LANES, sizeof(float));
    return w;
}

void exact_txl_begin(const struct exact *x, const struct block *b, float *q,
                     struct txl *w, float *bound)
{
    if (!w->q) return;
    const float       *tops = x->far.top + (b->h - x->head0) * n_tiles(x) * TILE;
    _Alignas(64) float norm[LANES];

    add_vector(x, q, vector(x, x->score->txl_w, b->h), w->tile);
    pack_cols(x, w->tile, w->q);
    w->held = -1;
    x->k->row_dot(norm, w->tile, w->tile, x->ldq, LANES, x->dq);
    for (int i = 0; i < LANES; i++) {
        const int64_t far = min64(b->pos + i, n_tiles(x) * TILE - 1);
        if (far >= 0) bound[i] += sqrtf(norm[i]) * tops[far];
    }
    exact_add_u(x, b->h, q);
}

static void meet_tile(const struct exact *x, int64_t h, int64_t m, const void *q,
                      float *band)
{
    exact_product(x, band, LANES, rows_of(x, h, m), q, LANES, TILE, LANES,
                  x->dq_pad / x->per, 0);
}

void exact_txl_scores(const struct exact *x, const struct block *b, int64_t t, int n,
                      struct txl *w, float *s)
{
    if (!w->q) return;
    const int64_t m = ahead(b, t);

    if (w->held != m) meet_tile(x, b->h, m, w->q, w->band[0]);
    if (m > 0) meet_tile(x, b->h, m - 1, w->q, w->band[1]);
    x->k->skew(s, w->band[m > 0], w->band[0], n);

    float *const next = w->band[1];
    w->band[1] = w->band[0];
    w->band[0] = next;
    w->held = m - 1;
}

/*
 * Backward
 */

void exact_txl_take_back(const struct exact *x, int64_t parts, struct txl_back *k,
                         struct arena *a)
{
    const int64_t blocks = x->heads * x->max_qt;
    const size_t  rows = (size_t)x->ldq * LANES * (x->bf16 ? 2 : sizeof(float));
    const size_t  tile = (size_t)x->ldq * LANES * sizeof(float);

    if (!exact_has_txl(x)) return;
    k->parts = parts;
    k->size = rows;
    k->cols = arena_take(a, blocks, rows);
    k->rows = arena_take(a, blocks, rows);
    k->dqt = arena_take(a, parts * blocks, tile);
    k->dr = arena_take(a, parts * x->heads * x->max_kt, tile);
    k->d_u = arena_take(a, blocks * x->dq, sizeof *k->d_u);
    k->d_w = arena_take(a, blocks * x->dq, sizeof *k->d_w);
}

struct txl_room exact_txl_room_back(const struct exact *x, struct arena *a)
{
    struct txl_room r = { 0 };

    if (!exact_has_txl(x)) return r;
    r.tile = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r.band = arena_take(a, (int64_t)2 * TILE * LANES, sizeof(float));
    if (!x->bf16) return r;
    r.rows = arena_take(a, (int64_t)TILE * LANES, sizeof *r.rows);
    r.words = arena_take(a, (int64_t)TILE * LANES, sizeof *r.words);
    return r;
}

static float *dqt_of(const struct exact *x, const struct txl_back *k, int64_t part,
                     int64_t at)
{
    return k->dqt + (part * x->heads * x->max_qt + at) * x->ldq * LANES;
}

static float *dr_of(const struct exact *x, const struct txl_back *k, int64_t part,
                    int64_t head, int64_t kt)
{
    return k->dr + ((part * x->heads + head) * x->max_kt + kt) * x->ldq * LANES;
}

void exact_txl_prepare(const struct exact *x, const struct block *b,
                       const struct txl_back *k, const float *norm, const float *mul,
                       float *q, struct txl_room *r)
{
    if (!k->cols) return;
    char *rows = k->rows + (size_t)b->at * k->size;

    add_vector(x, q, vector(x, x->score->txl_w, b->h), r->tile);
    pack_cols(x, r->tile, k->cols + (size_t)b->at * k->size);
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < x->dq; c++)
            if (exact_saw_nothing(x, norm[i]))
                r->tile[(int64_t)i * x->ldq + c] = 0;
            else
                r->tile[(int64_t)i * x->ldq + c] *= mul[i];
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)rows, r->tile, x->ldq, LANES, x->dq_pad);
    else
        memcpy(rows, r->tile, k->size);
    exact_add_u(x, b->h, q);
}

void exact_txl_begin_back(const struct exact *x, const struct txl_back *k, int64_t part,
                          int64_t at)
{
    if (k->cols)
        memset(dqt_of(x, k, part, at), 0, (size_t)x->ldq * LANES * sizeof(float));
}

void exact_txl_clear(const struct exact *x, const struct txl_back *k, int64_t head,
                     int64_t kt)
{
    for (int64_t part = 0; k->dr && part < k->parts; part++)
        memset(dr_of(x, k, part, head, kt), 0, (size_t)x->ldq * LANES * sizeof(float));
}

/* Lanes of half a band that rows from `row` on, a group of them, can meet. */
static foci_range lanes_of(const struct exact *x, bool high, int row)
{
    return high ? (foci_range){ row, LANES } : (foci_range){ 0, row + x->group };
}

void exact_txl_scores_back(const struct exact *x, const struct block *b, int64_t t,
                           int n, const struct txl_back *k, struct txl_room *r, float *s)
{
    if (!k->cols) return;
    const int64_t m = ahead(b, t);
    const float  *q = (const float *)(k->cols + (size_t)b->at * k->size);

    for (int high = m > 0 ? 0 : 1; high < 2; high++)
        for (int row = 0; row < TILE; row += x->group) {
            const foci_range lanes = lanes_of(x, high, row);

            exact_product(
                x, r->band + (int64_t)(high * TILE + row) * LANES + lanes.begin, LANES,
                operand_from(rows_of(x, b->h, m - 1 + high), row, 0), q + lanes.begin,
                LANES, x->group, (int)(lanes.end - lanes.begin), x->dq_pad / x->per, 0);
        }
    const float *high = r->band + (int64_t)TILE * LANES;
    x->k->skew(s, m > 0 ? r->band : high, high, n);
}

/* dqt += R by band, dr += band by rows of queries: half of the band. */
static void half_back(const struct exact *x, const struct block *b, int64_t m, int high,
                      const struct txl_back *k, const struct txl_room *r, int64_t part)
{
    const int64_t        half = (int64_t)high * TILE * LANES / x->per;
    const float         *band = (x->bf16 ? (const float *)r->words : r->band) + half;
    const struct operand rows = {
        (const char *)((x->bf16 ? (const float *)r->rows : r->band) + half),
        LANES / x->per, 1
    };
    const float *q = (const float *)(k->rows + (size_t)b->at * k->size);
    float       *dqt = dqt_of(x, k, part, b->at);
    float       *dr = dr_of(x, k, part, b->h - x->head0, b->seq->kt0 + m);

    for (int row = 0; row < TILE; row += x->group) {
        const foci_range lanes = lanes_of(x, high, row);
        const int        n = (int)(lanes.end - lanes.begin);
        const int64_t    from = lanes.begin / x->per;

        exact_product(x, dqt + lanes.begin, LANES,
                      operand_from(sum_of(x, b->h, m), 0, row / x->per),
                      band + (int64_t)row / x->per * LANES + lanes.begin, LANES,
                      x->dq_pad, n, x->group / x->per, 1);
        exact_product(x, dr + (int64_t)row * x->ldq, x->ldq,
                      operand_from(rows, row, from), q + from * x->ldq, x->ldq,
                      x->group, x->ldq, n / x->per, 1);
    }
}

void exact_txl_back(const struct exact *x, const struct block *b, int64_t t, int n,
                    const struct txl_back *k, struct txl_room *r, int64_t part,
                    const void *ds, int dtype)
{
    if (!k->cols) return;
    const int64_t m = ahead(b, t);

    x->k->unskew(r->band, ds, dtype, n);
    for (int high = m > 0 ? 0 : 1; high < 2; high++) {
        const int64_t half = (int64_t)high * TILE * LANES;

        if (x->bf16) {
            x->k->pack_rows_bf16(r->rows + half / 2, r->band + half, LANES, TILE, LANES);
            x->k->pack_pairs_bf16(r->words + half / 2, r->band + half, LANES, TILE,
                                  LANES);
        }
        half_back(x, b, m - 1 + high, high, k, r, part);
    }
}

/* sum[c] = what the rows of dqt have in column c, times their factors. */
static void sum_rows(const struct exact *x, const struct block *b, const float *dqt,
                     const float *mul, double *sum)
{
    for (int c = 0; c < x->dq; c++) {
        sum[c] = 0;
        for (int i = b->r0; i < b->r1; i++)
            sum[c] += (double)dqt[c * LANES + i] * (double)mul[i];
    }
}

double exact_txl_finish(const struct exact *x, const struct block *b,
                        const struct txl_back *k, const uint8_t *met, const float *mul,
                        float *dqt)
{
    if (!k->cols) return 0;
    float       *far = dqt_of(x, k, 0, b->at);
    double      *du = k->d_u + b->at * x->dq, *dw = k->d_w + b->at * x->dq, sum = 0;
    const float *u = vector(x, x->score->txl_u, b->h);
    const float *w = vector(x, x->score->txl_w, b->h);

    for (int64_t part = 1; part < k->parts; part++)
        for (int64_t i = 0;
             met[part * x->heads * x->max_qt] && i < (int64_t)x->dq * LANES; i++)
            far[i] += dqt_of(x, k, part, b->at)[i];
    sum_rows(x, b, dqt, mul, du);
    sum_rows(x, b, far, mul, dw);
    for (int c = 0; c < x->dq; c++)
        sum += du[c] * (double)u[c] + dw[c] * (double)w[c];
    for (int64_t i = 0; i < (int64_t)x->dq * LANES; i++)
        dqt[i] += far[i];
    return sum;
}

/* Tile m of a head's gradient: all sequences and parts into the first. */
static void add_rows(const struct exact *x, const struct txl_back *k, int64_t head,
                     int64_t m, float *dparams)
{
    const float   scale = (float)exact_head_scale(x, x->head0 + head);
    const int64_t n = min64(TILE, x->p->len_k - m * TILE);
    float *out = dparams + x->score->txl_r + (head * x->p->len_k + m * TILE) * x->dq;
    float *sum = NULL;

    for (int64_t s = 0; s < x->n_seqs; s++)
        for (int64_t part = 0; part < k->parts && m < x->seqs[s].n_kt; part++) {
            float *dr = dr_of(x, k, part, head, x->seqs[s].kt0 + m);
            for (int64_t i = 0; sum && i < n * x->ldq; i++)
                sum[i] += dr[i];
            if (!sum) sum = dr;
        }
    for (int64_t i = 0; sum && i < n; i++)
        for (int c = 0; c < x->dq; c++)
            out[i * x->dq + c] += scale * sum[i * x->ldq + c];
}

void exact_txl_params(const struct exact *x, const struct txl_back *k, float *dparams)
{
    if (!k->cols) return;
    for (int64_t h = 0; h < x->heads; h++) {
        const double scale = exact_head_scale(x, x->head0 + h);

        for (int c = 0; c < x->dq; c++) {
            double du = 0, dw = 0;
            for (int64_t qt = 0; qt < x->n_qt; qt++) {
                du += k->d_u[(h * x->max_qt + qt) * x->dq + c];
                dw += k->d_w[(h * x->max_qt + qt) * x->dq + c];
            }
            dparams[x->score->txl_u + h * x->dq + c] += (float)(scale * du);
            dparams[x->score->txl_w + h * x->dq + c] += (float)(scale * dw);
        }
        for (int64_t m = 0; m < n_tiles(x); m++)
            add_rows(x, k, h, m, dparams);
    }
}
