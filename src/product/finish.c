/* finish.c -- what follows a product, while the result is in the cache.
 *
 *     c = residual + drop(act(x + bias))      or, where gradients are summed, c += x
 */
#include <math.h>

#include "product/inside.h"

/* One step of SplitMix64 (docs/random.md), n places on. */
static uint64_t take_in(uint64_t key, uint64_t n)
{
    uint64_t z = key + UINT64_C(0x9E3779B97F4A7C15) * n;

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* What has taken in all but the column; outputs have head -1. */
static uint64_t row_key(const struct product *p, int64_t row)
{
    const int64_t  at = p->drop_row0 + row;
    const uint64_t entry = take_in(p->drop_seed, (uint64_t)(at / p->drop_len) + 1);

    return take_in(take_in(entry, 0), (uint64_t)(at % p->drop_len) + 1);
}

static void drop_row(const struct product *p, int64_t row, int64_t j0, int n, float *x)
{
    const uint64_t bound = (uint64_t)ceil(p->drop * 0x1p53) << 11;
    const uint64_t key = row_key(p, row);
    const float    factor = (float)(1 / (1 - p->drop));

    for (int j = 0; j < n; j++)
        x[j] = take_in(key, (uint64_t)(j0 + j) + 1) < bound ? 0 : x[j] * factor;
}

static void finish_row(const struct kernels *k, const struct product *p, int64_t row,
                       int64_t j0, int n, float *x)
{
    _Alignas(64) float more[TILE];

    for (int j = 0; p->bias && j < n; j++)
        x[j] += p->bias[j0 + j];
    for (int j = 0; p->act == PRODUCT_SILU && j < n; j++)
        x[j] = x[j] / (1 + expf(-x[j]));
    if (p->drop > 0) drop_row(p, row, j0, n, x);
    if (p->residual) {
        const int64_t at = row * p->c.parts->ld + j0;

        k->load_rows(more, TILE,
                     (const char *)p->residual +
                         at * (int64_t)foci_dtype_bytes(p->c.dtype),
                     TILE, (int)p->c.dtype, 1, n);
        for (int j = 0; j < n; j++)
            x[j] += more[j];
    }
}

static void add_row(float *out, const float *x, int n)
{
    for (int j = 0; j < n; j++)
        out[j] += x[j];
}

void finish(const struct kernels *k, const struct product *p, int64_t i0, int m,
            int64_t j0, int n, float *in)
{
    for (int i = 0; i < m && !p->add; i++)
        finish_row(k, p, i0 + i, j0, n, in + i * TILE);
    for (int done = 0; done < n;) {
        const struct piece c = piece_at(&p->c, j0 + done, n - done);

        if (p->add)
            for (int i = 0; i < m; i++)
                add_row((float *)(void *)piece_row(&p->c, c, i0 + i),
                        in + i * TILE + done, c.cols);
        else
            k->store_rows(piece_row(&p->c, c, i0), c.part->ld, (int)p->c.dtype,
                          in + done, TILE, 1.0f, m, c.cols);
        done += c.cols;
    }
}
