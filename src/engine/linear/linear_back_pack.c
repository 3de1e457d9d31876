/* linear_back_pack.c -- operands of the backward pass's products: f32, or bf16
 * pairs. */
#include "engine/linear/linear_back.h"

static int block_rows(int rows, int first) { return (int)min64(CHUNK, rows - first); }

struct linear_operand_view linear_back_rows(const struct linear *x, void *to,
                                            const float *in, int64_t ld, int rows, int d)
{
    uint32_t *pairs = to;

    if (!x->bf16) return (struct linear_operand_view){ in, ld, 1 };
    for (int r = 0; r < rows; r += CHUNK)
        x->k->pack_rows_bf16(pairs + (int64_t)r * (d / 2), in + r * ld, ld,
                             block_rows(rows, r), d);
    return (struct linear_operand_view){ to, d / 2, 1 };
}

const void *linear_back_pairs(const struct linear *x, void *to, const float *in,
                              int64_t ld, int rows)
{
    uint32_t *pairs = to;

    if (!x->bf16) return in;
    for (int r = 0; r < rows; r += CHUNK)
        x->k->pack_pairs_bf16(pairs + r / 2 * ld, in + r * ld, ld, block_rows(rows, r),
                              (int)ld);
    return to;
}

const void *linear_back_cols(const struct linear *x, void *to, const float *in,
                             int64_t ld, int d)
{
    if (x->bf16)
        x->k->pack_cols_bf16(to, in, ld, CHUNK, d);
    else
        x->k->pack_cols_f32(to, in, ld, CHUNK, d);
    return to;
}

void linear_back_product(const struct linear *x, float *c, int64_t ldc,
                         struct linear_operand_view a, const void *b, int64_t ldb,
                         int m, int n, int t0, int t1, int add)
{
    if (x->bf16)
        x->k->gemm_bf16(c, ldc, (const uint32_t *)a.at + t0 / 2 * a.col, a.row, a.col,
                        (const uint32_t *)b + t0 / 2 * ldb, ldb, m, n, (t1 - t0) / 2,
                        add);
    else
        x->k->gemm_f32(c, ldc, (const float *)a.at + t0 * a.col, a.row, a.col,
                       (const float *)b + t0 * ldb, ldb, m, n, t1 - t0, add);
}

void linear_back_product_features(const struct linear *x, float *c,
                                  const struct linear_operand_at *g, const void *sums)
{
    const int64_t row = x->k->sum_by_rows ? CHUNK / 2 : 1;
    const int64_t col = x->k->sum_by_rows ? 1 : CHUNK;

    if (!x->bf16) {
        x->k->gemm_f32(c, x->ldv, g->f, 1, CHUNK, sums, x->ldv, CHUNK, x->ldv, x->m, 0);
        return;
    }
    for (int r = 0; r < x->m_pad; r += CHUNK)
        x->k->gemm_bf16(c, x->ldv, g->pairs + (int64_t)r / 2 * CHUNK, row, col,
                        (const uint32_t *)sums + (int64_t)r / 2 * x->ldv, x->ldv, CHUNK,
                        x->ldv, block_rows(x->m_pad, r) / 2, r > 0);
}
