/* exact_txl.c -- queries that meet a row for each distance, R, as they meet keys.
 *
 * Blocks of queries start at multiples of 64, so that the distances of a block to a
 * tile of keys are those of two tiles of R, m - 1 and m: m is how many tiles the block
 * is ahead.  The products of q + w with them are a band, by distance and lane, and the
 * kernel `skew` hands it out by key and lane.  Of a neighbouring tile of keys the
 * distances overlap by half, so that a block that meets one tile after the other takes
 * one product for each.  Of the tile of R at either end only the lanes on one side of
 * the distance are ever met, and no more than those are computed.
 *
 * Backward a few tiles of keys stay and a block meets them from the nearest on, so that
 * a tile of R is done with as soon as the next tile of keys has been met.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_txl.h"

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

int64_t exact_txl_tiles(const struct exact *x)
{
    return x->far.rows ? x->heads * n_tiles(x) : 0;
}

void exact_txl_make(const struct exact *x, int64_t at, float *tile)
{
    const struct distances *r = &x->far;
    const int64_t           h = at / n_tiles(x), t = at % n_tiles(x);
    const int               n = (int)min64(TILE, x->p->len_k - t * TILE);
    float                  *tops = r->top + at * TILE, top = 0;

    x->k->load_rows(tile, x->ldq,
                    x->io->params + x->score->txl_r +
                        (h * x->p->len_k + t * TILE) * x->dq,
                    x->dq, FOCI_F32, n, x->dq);
    memset(tile + (int64_t)n * x->ldq, 0,
           (size_t)(TILE - n) * (size_t)x->ldq * sizeof *tile);
    x->k->row_dot(tops, tile, tile, x->ldq, TILE, x->dq);
    for (int i = 0; i < TILE; i++)
        tops[i] = top = fmaxf(top, isfinite(tops[i]) ? sqrtf(tops[i]) : INFINITY);
    exact_pack(x, tile, x->ldq, x->dq_pad, TILE, r->rows, r->sum, x->key_size,
               (size_t)at);
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

/* to += more, in strips that a compiler makes vectors of. */
static void add_to(float *restrict to, const float *restrict more, int64_t n)
{
    enum { STRIP = 16 };
    int64_t i = 0;

    for (; i + STRIP <= n; i += STRIP)
        for (int e = 0; e < STRIP; e++)
            to[i + e] += more[i + e];
    for (; i < n; i++)
        to[i] += more[i];
}

/* q[LANES][ldq] += v */
static void add_vector(const struct exact *x, const float *v, float *q)
{
    for (int i = 0; i < LANES; i++)
        add_to(q + (int64_t)i * x->ldq, v, x->dq);
}

void exact_add_u(const struct exact *x, int64_t h, float *q)
{
    if (exact_has_txl(x)) add_vector(x, vector(x, x->score->txl_u, h), q);
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
    float              before = 0; /* of the tiles before that of lane 0 */

    memcpy(w->tile, q, LANES * (size_t)x->ldq * sizeof *q);
    add_vector(x, vector(x, x->score->txl_w, b->h), w->tile);
    pack_cols(x, w->tile, w->q);
    w->held = -1;
    x->k->row_dot(norm, w->tile, w->tile, x->ldq, LANES, x->dq);
    for (int64_t m = 0; m < n_tiles(x) && m * TILE < b->pos; m++)
        before = fmaxf(before, tops[m * TILE + TILE - 1]);
    for (int i = 0; i < LANES; i++) {
        const int64_t far = min64(b->pos + i, n_tiles(x) * TILE - 1);
        if (far >= 0) bound[i] += sqrtf(norm[i]) * fmaxf(before, tops[far]);
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
    k->dr = arena_take(a, parts * x->heads * x->max_kt, tile);
    k->dr_begun = arena_take(a, parts * x->heads * x->max_kt, 1);
    k->d_u = arena_take(a, blocks * x->dq, sizeof *k->d_u);
    k->d_w = arena_take(a, parts * blocks * x->dq, sizeof *k->d_w);
}

static size_t ds_size(const struct exact *x)
{
    return (size_t)TILE * LANES * (x->bf16 ? sizeof(uint16_t) : sizeof(float));
}

struct txl_room exact_txl_room_back(const struct exact *x, int64_t run, struct arena *a)
{
    const int64_t   pairs = (int64_t)TILE * LANES;
    struct txl_room r = { .held = -1, .given = -1 };

    if (!exact_has_txl(x)) return r;
    r.tile = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    for (int i = 0; i < 2; i++)
        r.band[i] = arena_take(a, pairs, sizeof(float));
    r.ds = arena_take(a, run + 2, ds_size(x));
    r.spare = arena_take(a, 1, ds_size(x));
    r.dqt = arena_take(a, LANES * (int64_t)x->ldq, sizeof(float));
    r.rows = arena_take(a, 1, ds_size(x));
    r.words = x->bf16 ? arena_take(a, STACK, ds_size(x)) : r.rows;
    return r;
}

void *exact_txl_place(const struct exact *x, const struct txl_room *r, int64_t i)
{
    return r->ds + (size_t)(i + 1) * ds_size(x);
}

void *exact_txl_copy(const struct exact *x, const struct txl_room *r, const void *ds)
{
    return memcpy(r->spare, ds, ds_size(x));
}

static double *d_w_of(const struct exact *x, const struct txl_back *k, int64_t part,
                      int64_t at)
{
    return k->d_w + (part * x->heads * x->max_qt + at) * x->dq;
}

/* Number of a tile of dr, and where it lies. */
static int64_t dr_at(const struct exact *x, int64_t part, int64_t head, int64_t kt)
{
    return (part * x->heads + head) * x->max_kt + kt;
}

static float *dr_of(const struct exact *x, const struct txl_back *k, int64_t at)
{
    return k->dr + at * x->ldq * LANES;
}

void exact_txl_prepare(const struct exact *x, const struct block *b,
                       const struct txl_back *k, uint64_t blind, const float *mul,
                       float *q, struct txl_room *r)
{
    if (!k->cols) return;
    char *rows = k->rows + (size_t)b->at * k->size;

    memcpy(r->tile, q, LANES * (size_t)x->ldq * sizeof *q);
    add_vector(x, vector(x, x->score->txl_w, b->h), r->tile);
    pack_cols(x, r->tile, k->cols + (size_t)b->at * k->size);
    for (int i = 0; i < LANES; i++) {
        float *const row = r->tile + (int64_t)i * x->ldq;

        if (blind >> i & 1) memset(row, 0, (size_t)x->dq * sizeof *row);
        for (int c = 0; x->score->n_rows && c < x->dq; c++)
            row[c] *= mul[i];
    }
    if (x->bf16)
        x->k->pack_pairs_bf16((uint32_t *)rows, r->tile, x->ldq, LANES, x->dq_pad);
    else
        memcpy(rows, r->tile, k->size);
    exact_add_u(x, b->h, q);
}

void exact_txl_begin_back(const struct exact *x, const struct txl_back *k, int64_t part,
                          int64_t at)
{
    if (k->cols) memset(d_w_of(x, k, part, at), 0, (size_t)x->dq * sizeof *k->d_w);
}

void exact_txl_clear(const struct exact *x, const struct txl_back *k)
{
    if (k->cols) memset(k->dr_begun, 0, (size_t)(k->parts * x->heads * x->max_kt));
}

/* What of a tile of R a block meets: lanes before the distance, which are of the farther
 * tile of keys, lanes from it on, which are of the nearer one, or all. */
enum side { FARTHER, NEARER, BOTH };

/* Rows that are multiplied together, and their lanes, from `row` on. */
static int rows_at_once(const struct exact *x, enum side side)
{
    return side == BOTH ? TILE : x->group;
}

static foci_range lanes_of(const struct exact *x, enum side side, int row)
{
    if (side == BOTH) return (foci_range){ 0, LANES };
    return side == NEARER ? (foci_range){ row, LANES }
                          : (foci_range){ 0, row + x->group };
}

static void meet_side(const struct exact *x, const struct block *b, int64_t m,
                      enum side side, const struct txl_back *k, float *band)
{
    const float *q = (const float *)(k->cols + (size_t)b->at * k->size);
    const int    step = rows_at_once(x, side);

    for (int row = 0; row < TILE; row += step) {
        const foci_range lanes = lanes_of(x, side, row);

        exact_product(x, band + (int64_t)row * LANES + lanes.begin, LANES,
                      operand_from(rows_of(x, b->h, m), row, 0), q + lanes.begin, LANES,
                      step, (int)(lanes.end - lanes.begin), x->dq_pad / x->per, 0);
    }
}

void exact_txl_scores_back(const struct exact *x, const struct block *b, int64_t t,
                           int n, bool more, const struct txl_back *k,
                           struct txl_room *r, float *s)
{
    if (!k->cols) return;
    const int64_t m = ahead(b, t);
    /* Where the first query sees all of its own tile no pair of it is hidden, and what
     * stands in the lanes before that query has to be a number. */
    const bool   all = m == 0 && n - 1 <= b->r0;
    float *const near = r->band[0], *const far = r->band[1];

    if (m > 0 && r->held != m - 1) meet_side(x, b, m - 1, FARTHER, k, near);
    meet_side(x, b, m, more || all ? BOTH : NEARER, k, far);
    x->k->skew(s, m > 0 ? near : far, far, n);
    r->band[0] = far;
    r->band[1] = near;
    r->held = more ? m : -1;
}

/* The words of tile m, after those that wait. */
static const float *words_of(const struct exact *x, const struct txl_room *r)
{
    return (const float *)(r->words + (size_t)r->waiting * ds_size(x));
}

/* r->dqt += R by band: those that wait, the last of which is of tile m, all lanes. */
static void give_waiting(const struct exact *x, const struct block *b, int64_t m,
                         struct txl_room *r)
{
    const int n = r->waiting;

    r->waiting = 0;
    if (!n) return;
    exact_product(x, r->dqt, LANES, sum_of(x, b->h, m - n + 1), words_of(x, r), LANES,
                  x->dq_pad, LANES, n * TILE / x->per, r->begun);
    r->begun = true;
}

/* The same for some lanes only. */
static void give_queries(const struct exact *x, const struct block *b, int64_t m,
                         enum side side, struct txl_room *r)
{
    const float *band = words_of(x, r);

    give_waiting(x, b, m - 1, r);
    if (!r->begun) memset(r->dqt, 0, (size_t)x->ldq * LANES * sizeof *r->dqt);
    r->begun = true;
    for (int row = 0; row < TILE; row += x->group) {
        const foci_range lanes = lanes_of(x, side, row);

        exact_product(x, r->dqt + lanes.begin, LANES,
                      operand_from(sum_of(x, b->h, m), 0, row / x->per),
                      band + (int64_t)row / x->per * LANES + lanes.begin, LANES,
                      x->dq_pad, (int)(lanes.end - lanes.begin), x->group / x->per, 1);
    }
}

/* dr += band by rows of queries. */
static void give_rows(const struct exact *x, const struct block *b, int64_t m,
                      enum side side, const struct txl_back *k, struct txl_room *r,
                      int64_t part)
{
    const struct operand rows = { r->rows, LANES / x->per, 1 };
    const float         *q = (const float *)(k->rows + (size_t)b->at * k->size);
    const int64_t        at = dr_at(x, part, b->h - x->head0, b->seq->kt0 + m);
    float               *dr = dr_of(x, k, at);
    const int            step = rows_at_once(x, side);
    const bool           add = side != BOTH || k->dr_begun[at];

    if (add && !k->dr_begun[at]) memset(dr, 0, LANES * (size_t)x->ldq * sizeof *dr);
    k->dr_begun[at] = 1;
    for (int row = 0; row < TILE; row += step) {
        const foci_range lanes = lanes_of(x, side, row);
        const int64_t    from = lanes.begin / x->per;

        exact_product(x, dr + (int64_t)row * x->ldq, x->ldq,
                      operand_from(rows, row, from), q + from * x->ldq, x->ldq, step,
                      x->ldq, (int)(lanes.end - lanes.begin) / x->per, add);
    }
}

/* What ds give to tile m: those of the farther tile of keys, which the nearer follows. */
static void give(const struct exact *x, const struct block *b, int64_t m,
                 enum side side, const void *ds, const struct txl_back *k,
                 struct txl_room *r, int64_t part)
{
    if (x->bf16)
        x->k->unskew_bf16((uint16_t *)r->rows, (uint32_t *)words_of(x, r), ds);
    else
        x->k->unskew_f32((float *)r->rows, ds);
    if (side == BOTH)
        r->waiting++;
    else
        give_queries(x, b, m, side, r);
    if (!x->bf16 || x->k->sum_by_rows || r->waiting == STACK) give_waiting(x, b, m, r);
    give_rows(x, b, m, side, k, r, part);
}

/* No tile of keys follows the one last met, whose ds are at `ds`. */
static void give_last(const struct exact *x, const struct block *b, char *ds,
                      const struct txl_back *k, struct txl_room *r, int64_t part)
{
    if (r->given < 0) return;
    memset(ds - ds_size(x), 0, ds_size(x));
    give(x, b, r->given, NEARER, ds - ds_size(x), k, r, part);
    r->given = -1;
}

void exact_txl_back(const struct exact *x, const struct block *b, int64_t t, int n,
                    const struct txl_back *k, struct txl_room *r, int64_t part, void *ds)
{
    if (!k->cols) return;
    const int64_t m = ahead(b, t);
    const size_t  size = ds_size(x), used = size / TILE * (size_t)n;
    char *const   far = ds;

    if (r->given != m - 1) give_last(x, b, r->last, k, r, part);
    memset(far + used, 0, size - used);
    if (r->given < 0) memset(far + size, 0, size);
    if (m > 0) give(x, b, m - 1, r->given < 0 ? FARTHER : BOTH, far, k, r, part);
    r->given = m;
    r->last = far;
}

/* sum[c] += what the rows of dqt have in column c, times their factors.  Lanes without a
 * query, in which anything may stand, become 0.  tile[LANES][LANES]. */
static void sum_rows(const struct exact *x, const struct block *b, const float *mul,
                     float *dqt, float *tile, double *sum)
{
    _Alignas(64) float out[LANES];

    for (int c = 0; c < x->dq && b->r1 - b->r0 < LANES; c++) {
        memset(dqt + (int64_t)c * LANES, 0, (size_t)b->r0 * sizeof *dqt);
        memset(dqt + (int64_t)c * LANES + b->r1, 0,
               (size_t)(LANES - b->r1) * sizeof *dqt);
    }
    for (int i = 0; i < LANES; i++)
        memcpy(tile + (int64_t)i * LANES, mul, LANES * sizeof *tile);
    for (int c = 0; c < x->dq; c += LANES) {
        const int n = (int)min64(LANES, x->dq - c);

        x->k->row_dot(out, dqt + (int64_t)c * LANES, tile, LANES, n, LANES);
        for (int e = 0; e < n; e++)
            sum[c + e] += (double)out[e];
    }
}

void exact_txl_end_back(const struct exact *x, const struct block *b,
                        const struct txl_back *k, const float *mul, struct txl_room *r,
                        int64_t part, float *dqt)
{
    if (!k->cols || r->given < 0) return;
    give_last(x, b, r->last, k, r, part);
    sum_rows(x, b, mul, r->dqt, r->band[1], d_w_of(x, k, part, b->at));
    add_to(dqt, r->dqt, (int64_t)x->dq * LANES);
    r->begun = false;
}

double exact_txl_finish(const struct exact *x, const struct block *b,
                        const struct txl_back *k, const uint8_t *met, const float *mul,
                        struct txl_room *r, float *dqt)
{
    if (!k->cols) return 0;
    double      *du = k->d_u + b->at * x->dq, *dw = d_w_of(x, k, 0, b->at), sum = 0;
    const float *u = vector(x, x->score->txl_u, b->h);
    const float *w = vector(x, x->score->txl_w, b->h);

    for (int64_t part = 1; part < k->parts; part++)
        for (int c = 0; met[part * x->heads * x->max_qt] && c < x->dq; c++)
            dw[c] += d_w_of(x, k, part, b->at)[c];
    memset(du, 0, (size_t)x->dq * sizeof *du);
    sum_rows(x, b, mul, dqt, r->band[0], du);
    for (int c = 0; c < x->dq; c++) {
        du[c] -= dw[c];
        sum += du[c] * (double)u[c] + dw[c] * (double)w[c];
    }
    return sum;
}

void exact_txl_params_rows(const struct exact *x, const struct txl_back *k, int64_t at,
                           float *dparams)
{
    const int64_t head = at / n_tiles(x), m = at % n_tiles(x);
    const float   scale = (float)exact_head_scale(x, x->head0 + head);
    const int64_t n = min64(TILE, x->p->len_k - m * TILE);
    float *out = dparams + x->score->txl_r + (head * x->p->len_k + m * TILE) * x->dq;
    float *sum = NULL;

    for (int64_t s = 0; s < x->n_seqs; s++)
        for (int64_t part = 0; part < k->parts && m < x->seqs[s].n_kt; part++) {
            const int64_t dr_tile = dr_at(x, part, head, x->seqs[s].kt0 + m);
            float        *dr = dr_of(x, k, dr_tile);

            if (!k->dr_begun[dr_tile]) continue;
            if (sum) add_to(sum, dr, n * x->ldq);
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
    }
}
