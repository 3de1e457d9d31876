/* exact_txl.c -- txl forward: queries meet the rows R of distances as they meet keys.
 *
 * Blocks of queries start at multiples of 64, so the distances of a block to a tile of
 * keys are those of two tiles of R, m - 1 and m, where m is how many tiles the block is
 * ahead.  The products of q + w with a tile of R are a band, indexed by distance and
 * lane; the kernel `skew` adds two bands to scores, indexed by key and lane.  The
 * distances of neighbouring tiles of keys overlap by half, so a block that meets tiles
 * in order takes one product for each.  Of the tiles of R at either end only lanes on
 * one side of the distance occur, and only those are computed.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/terms/exact_txl.h"

bool exact_has_txl(const struct exact *x) { return x->score->txl_r >= 0; }

const float *exact_txl_vector(const struct exact *x, int64_t at, int64_t h)
{
    return x->io->params + at + (h - x->head0) * x->d.q;
}

void exact_txl_carve(struct exact *x, struct arena *a, bool back)
{
    const int64_t    tiles = x->heads * txl_n_tiles(x);
    struct txl_rows *r = &x->txl;

    if (!exact_has_txl(x)) return;
    r->rows = arena_alloc(a, tiles, x->packed.key_bytes);
    r->sum = x->bf16 && back ? arena_alloc(a, tiles, x->packed.key_bytes) : NULL;
    r->max_norm = arena_alloc(a, tiles * TILE, sizeof *r->max_norm);
}

int64_t exact_txl_tiles(const struct exact *x)
{
    return x->txl.rows ? x->heads * txl_n_tiles(x) : 0;
}

void exact_txl_pack(const struct exact *x, int64_t at, float *tile)
{
    const struct txl_rows *r = &x->txl;
    const int64_t          h = at / txl_n_tiles(x), t = at % txl_n_tiles(x);
    const int              n = (int)min64(TILE, x->p->len_k - t * TILE);
    float                 *norms = r->max_norm + at * TILE, max_norm = 0;

    x->k->load_rows(tile, x->d.ldq,
                    x->io->params + x->score->txl_r +
                        (h * x->p->len_k + t * TILE) * x->d.q,
                    x->d.q, FOCI_F32, n, x->d.q);
    memset(tile + (int64_t)n * x->d.ldq, 0,
           (size_t)(TILE - n) * (size_t)x->d.ldq * sizeof *tile);
    x->k->row_dot(norms, tile, tile, x->d.ldq, TILE, x->d.q);
    for (int i = 0; i < TILE; i++)
        norms[i] = max_norm =
            fmaxf(max_norm, isfinite(norms[i]) ? sqrtf(norms[i]) : INFINITY);
    exact_pack(x, tile, x->d.ldq, x->d.q_pad, TILE, r->rows, r->sum,
               x->packed.key_bytes, (size_t)at);
}

/* Tile m of a head: by rows, or to be summed over distances. */
struct operand exact_txl_rows(const struct exact *x, int64_t h, int64_t m)
{
    const size_t at =
        (size_t)((h - x->head0) * txl_n_tiles(x) + m) * x->packed.key_bytes;
    return (struct operand){ x->txl.rows + at, x->bf16 ? x->d.q_pad / 2 : x->d.ldq, 1 };
}

struct operand exact_txl_rows_sum(const struct exact *x, int64_t h, int64_t m)
{
    const size_t at =
        (size_t)((h - x->head0) * txl_n_tiles(x) + m) * x->packed.key_bytes;

    if (!x->bf16) return (struct operand){ x->txl.rows + at, 1, x->d.ldq };
    return x->k->sum_by_rows ? (struct operand){ x->txl.sum + at, TILE / 2, 1 }
                             : (struct operand){ x->txl.sum + at, 1, x->d.q_pad };
}

/* In strips that compilers vectorise. */
void exact_txl_add(float *restrict to, const float *restrict more, int64_t n)
{
    enum { STRIP = 16 };
    int64_t i = 0;

    for (; i + STRIP <= n; i += STRIP)
        for (int e = 0; e < STRIP; e++)
            to[i + e] += more[i + e];
    for (; i < n; i++)
        to[i] += more[i];
}

void exact_txl_add_vector(const struct exact *x, const float *v, float *q)
{
    for (int i = 0; i < LANES; i++)
        exact_txl_add(q + (int64_t)i * x->d.ldq, v, x->d.q);
}

void exact_txl_add_u(const struct exact *x, int64_t h, float *q)
{
    if (exact_has_txl(x))
        exact_txl_add_vector(x, exact_txl_vector(x, x->score->txl_u, h), q);
}

void exact_txl_pack_cols(const struct exact *x, const float *rows, void *cols)
{
    if (x->bf16)
        x->k->pack_cols_bf16(cols, rows, x->d.ldq, LANES, x->d.q_pad);
    else
        x->k->pack_cols_f32(cols, rows, x->d.ldq, LANES, x->d.q);
}

/*
 * Forward
 */

struct txl_scratch exact_txl_scratch(const struct exact *x, struct arena *a)
{
    struct txl_scratch w = { 0 };

    if (!exact_has_txl(x)) return w;
    w.tile = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    w.q = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    for (int i = 0; i < 2; i++)
        w.band[i] = arena_alloc(a, (int64_t)TILE * LANES, sizeof(float));
    return w;
}

void exact_txl_begin(const struct exact *x, const struct exact_block *b, float *q,
                     struct txl_scratch *w, float *bound)
{
    if (!w->q) return;
    const float *norms = x->txl.max_norm + (b->h - x->head0) * txl_n_tiles(x) * TILE;
    _Alignas(64) float norm[LANES];
    float              before = 0; /* largest norm of the tiles before that of lane 0 */

    memcpy(w->tile, q, LANES * (size_t)x->d.ldq * sizeof *q);
    exact_txl_add_vector(x, exact_txl_vector(x, x->score->txl_w, b->h), w->tile);
    exact_txl_pack_cols(x, w->tile, w->q);
    w->cached = -1;
    x->k->row_dot(norm, w->tile, w->tile, x->d.ldq, LANES, x->d.q);
    for (int64_t m = 0; m < txl_n_tiles(x) && m * TILE < b->pos; m++)
        before = fmaxf(before, norms[m * TILE + TILE - 1]);
    for (int i = 0; i < LANES; i++) {
        const int64_t farther = min64(b->pos + i, txl_n_tiles(x) * TILE - 1);
        if (farther >= 0) bound[i] += sqrtf(norm[i]) * fmaxf(before, norms[farther]);
    }
    exact_txl_add_u(x, b->h, q);
}

static void multiply_tile(const struct exact *x, int64_t h, int64_t m, const void *q,
                          float *band)
{
    exact_product(x, band, LANES, exact_txl_rows(x, h, m), q, LANES, TILE, LANES,
                  x->d.q_pad / x->kpack, 0);
}

void exact_txl_scores(const struct exact *x, const struct exact_block *b, int64_t t,
                      int n, struct txl_scratch *w, float *s)
{
    if (!w->q) return;
    const int64_t m = txl_tiles_ahead(b, t);

    if (w->cached != m) multiply_tile(x, b->h, m, w->q, w->band[0]);
    if (m > 0) multiply_tile(x, b->h, m - 1, w->q, w->band[1]);
    x->k->skew(s, w->band[m > 0], w->band[0], n);

    float *const next = w->band[1];
    w->band[1] = w->band[0];
    w->band[0] = next;
    w->cached = m - 1;
}
