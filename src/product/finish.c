/* finish.c -- what follows a product, while the result is in the cache.
 *
 *     c = residual + drop(act(x + bias))      or, where gradients are summed, c += x
 */
#include <math.h>

#include "product/inside.h"

static const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

/* Outputs have head -1. */
static uint64_t row_key(const struct product *p, int64_t row)
{
    const int64_t at = p->drop_row0 + row;

    return rng_drop_key(p->drop_seed, at / p->drop_len, -1, at % p->drop_len);
}

/* Bits of 64 columns from j0 on for each row.  Columns are the lanes here, which the
 * kernel knows as rows: a lane's key is that of the row, moved on. */
static void chances(const struct kernels *k, const struct product *p, int64_t i0, int m,
                    int64_t j0, uint64_t *keep)
{
    const uint64_t bound = (uint64_t)ceil(p->drop * 0x1p53) << 11;
    uint64_t       keys[TILE];

    for (int i = 0; i < m; i++) {
        const uint64_t key = row_key(p, i0 + i);

        for (int j = 0; j < TILE; j++)
            keys[j] = key + step * (uint64_t)j;
        k->chances(&keep[i], 1, keys, (uint64_t)j0 + 1, bound);
    }
}

void finish(const struct kernels *k, const struct product *p, struct block b,
            const float *in, int64_t ld)
{
    const size_t  bytes = foci_dtype_bytes(p->c.dtype);
    uint64_t      keep[BLOCK_ROWS];
    struct finish f = { .silu = !p->add && p->act == PRODUCT_SILU };

    if (!p->add && p->drop > 0) {
        chances(k, p, b.i, b.m, b.j, keep);
        f.keep = keep;
        f.factor = (float)(1 / (1 - p->drop));
    }
    for (int done = 0; done < b.n;) {
        const struct piece c = piece_at(&p->c, b.j + done, b.n - done);
        char *const        out = piece_row(&p->c, c, b.i);

        f.first = done;
        f.ld_more = c.part->ld;
        if (p->add)
            f.more = out;
        else if (p->residual)
            f.more =
                (const char *)p->residual + (b.i * c.part->ld + c.col) * (int64_t)bytes;
        if (!p->add && p->bias) f.bias = p->bias + b.j + done;
        k->finish_rows(out, c.part->ld, (int)p->c.dtype, in + done, ld, &f, b.m, c.cols);
        done += c.cols;
    }
}
