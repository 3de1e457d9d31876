/* epilogue.c -- the epilogue of a product, while the result is in the cache.
 *
 *     c = residual + drop(act(x + bias))      or, where gradients are summed, c += x
 *
 * and backward, c = residual + drop(x) act'(pre).
 */
#include <assert.h>
#include <math.h>

#include "product/inside.h"

int64_t cols_count(const struct product *p, int width)
{
    return div_up(p->n, width) * (gates(p) ? 2 : 1);
}

struct cols cols_at(const struct product *p, int64_t i, int width)
{
    const int64_t at = (gates(p) ? i / 2 : i) * width;
    const int     n = (int)min64(width, p->n - at);

    return (struct cols){ gates(p) && i % 2 ? p->n + at : at, n };
}

bool is_bare(const struct product *p)
{
    if (p->add) return true;
    return !p->gated && !p->back && !p->pre && p->act == FOCI_ACT_NONE && p->drop == 0;
}

/* Outputs have head -1. */
static uint64_t row_key(const struct product *p, int64_t row)
{
    const int64_t at = p->drop_row0 + row;

    if (!p->drop_len) return rng_drop_key(p->drop_seed, 0, -1, at);
    return rng_drop_key(p->drop_seed, at / p->drop_len, -1, at % p->drop_len);
}

void product_dropout_mask(const struct kernels *k, const struct product *p, int64_t i0,
                          int m, int64_t j0, uint64_t *dropout_mask)
{
    const uint64_t bound = (uint64_t)ceil(p->drop * 0x1p53) << 11;
    uint64_t       keys[BLOCK_ROWS];

    for (int i = 0; i < m; i++)
        keys[i] = row_key(p, i0 + i);
    k->dropout_rows(dropout_mask, m, keys, (uint64_t)j0 + 1, bound);
}

/* Element (i, j) of rows of c's type; NULL stays NULL. */
static void *at(const struct product *p, const void *rows, int64_t ld, int64_t i,
                int64_t j)
{
    return rows ? (char *)rows + (i * ld + j) * (int64_t)foci_dtype_bytes(p->c.dtype)
                : NULL;
}

/* The residual, or with `add` c itself, at a block. */
static const void *more_at(const struct product *p, struct product_block b,
                           const struct product_piece *c, int64_t *ld)
{
    *ld = p->ld_residual && !p->add ? p->ld_residual : c->part->ld;
    if (p->add) return piece_row(&p->c, *c, b.i);
    return at(p, p->residual, *ld, b.i, c->col);
}

static void epilogue_backward(const struct kernels *k, const struct product *p,
                              struct product_block b, const float *in, int64_t ld,
                              const uint64_t *dropout_mask)
{
    const struct product_piece c = piece_at(&p->c, b.j, b.n);
    struct epilogue_back       f = { .act = (int)p->act,
                                     .pre = at(p, p->pre, p->ld_pre, b.i, b.j),
                                     .ld_pre = p->ld_pre,
                                     .dropout_mask = dropout_mask,
                                     .factor = (float)(1 / (1 - p->drop)) };

    assert(p->c.n_parts == 1);
    if (p->gated) {
        f.pre_up = at(p, p->pre, p->ld_pre, b.i, p->n + b.j);
        f.out_up = at(p, p->c.parts->data, p->c.parts->ld, b.i, p->n + b.j);
    }
    f.more = more_at(p, b, &c, &f.ld_more);
    k->gemm_epilogue_back(piece_row(&p->c, c, b.i), c.part->ld, (int)p->c.dtype, in, ld,
                          &f, b.m, b.n);
}

/* Columns of c that lie in one part, `done` of the block behind them. */
static void epilogue_forward(const struct kernels *k, const struct product *p,
                             struct product_block b, const struct product_piece *c,
                             int done, const float *in, const float *up, int64_t ld,
                             const uint64_t *dropout_mask)
{
    const int64_t   j = b.j + done;
    struct epilogue f = { .dropout_mask = dropout_mask,
                          .first = done,
                          .factor = (float)(1 / (1 - p->drop)),
                          .ld_pre = p->ld_pre };

    f.more = more_at(p, b, c, &f.ld_more);
    if (!p->add) {
        f.act = (int)p->act;
        f.bias = p->bias ? p->bias + j : NULL;
        f.pre = at(p, p->pre, p->ld_pre, b.i, j);
    }
    if (gates(p)) {
        f.up = up + done;
        f.bias_up = p->bias ? p->bias + p->n + j : NULL;
        f.pre_up = at(p, p->pre, p->ld_pre, b.i, p->n + j);
    }
    k->gemm_epilogue(piece_row(&p->c, *c, b.i), c->part->ld, (int)p->c.dtype, in + done,
                     ld, &f, b.m, c->cols);
}

void product_epilogue(const struct kernels *k, const struct product *p,
                      struct product_block b, const float *in, const float *up,
                      int64_t ld)
{
    uint64_t        bits[BLOCK_ROWS];
    const uint64_t *dropout_mask = NULL;

    if (!p->add && p->drop > 0) {
        product_dropout_mask(k, p, b.i, b.m, b.j, bits);
        dropout_mask = bits;
    }
    if (p->back) {
        epilogue_backward(k, p, b, in, ld, dropout_mask);
        return;
    }
    for (int done = 0; done < b.n;) {
        const struct product_piece c = piece_at(&p->c, b.j + done, b.n - done);

        epilogue_forward(k, p, b, &c, done, in, up, ld, dropout_mask);
        done += c.cols;
    }
}
