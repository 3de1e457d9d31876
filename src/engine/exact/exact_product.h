/* exact_product.h -- products of the exact engine: where their first operands lie, and
 * the calls of the kernels. */
#ifndef FOCI_EXACT_PRODUCT_H
#define FOCI_EXACT_PRODUCT_H

#include "engine/exact/exact.h"

/* The first operand of a product: element (i, t) is at[i row + t col].  Elements are
 * four bytes wide: floats, or bf16 pairs, two consecutive values of the summed
 * index. */
struct operand {
    const char *at;
    int64_t     row, col;
};

/* Whether keys, or values, are read in place and not packed. */
bool exact_keys_in_place(const struct exact *x);
bool exact_values_in_place(const struct exact *x);

/* Tile t of the keys or values of a sequence: by rows, or to be summed over keys. */
struct operand exact_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t);
struct operand exact_values(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t);
struct operand exact_keys_sum(const struct exact *x, const struct exact_seq *s,
                              int64_t kv, int64_t t);
struct operand exact_values_sum(const struct exact *x, const struct exact_seq *s,
                                int64_t kv, int64_t t);

/* bf16 pairs that were packed to be summed over rows. */
struct operand exact_sum_operand(const struct exact *x, const char *at, int d_pad);

/* The operand from row i and summed element t on. */
static inline struct operand operand_at(struct operand a, int64_t i, int64_t t)
{
    a.at += (i * a.row + t * a.col) * 4;
    return a;
}

/* c[m][n] = a b[k][n], added to c where `add`.  Both operands are floats or both bf16
 * pairs, as the execution has them; k counts elements. */
static inline void exact_product(const struct exact *x, float *c, int64_t ldc,
                                 struct operand a, const void *b, int64_t ldb, int m,
                                 int n, int k, int add)
{
    const void *at = a.at;

    if (x->bf16)
        x->k->gemm_bf16(c, ldc, at, a.row, a.col, b, ldb, m, n, k, add);
    else
        x->k->gemm_f32(c, ldc, at, a.row, a.col, b, ldb, m, n, k, add);
}

/* Like exact_product with 64 columns.  Of floats, it prefetches the next tile of the
 * first operand, at `next`: long sequences stream it from the last-level cache. */
static inline void exact_product_prefetch(const struct exact *x, float *c,
                                          struct operand a, const void *b, int m, int k,
                                          int add, const char *next)
{
    if (x->bf16) {
        x->k->gemm_bf16(c, LANES, (const void *)a.at, a.row, a.col, b, LANES, m, LANES,
                        k, add);
        return;
    }
    x->k->panel_f32(&(struct panel_f32){ .out = c,
                                         .sums = add ? c : NULL,
                                         .a = (const float *)(const void *)a.at,
                                         .b = b,
                                         .ldo = LANES,
                                         .lds = LANES,
                                         .ra = a.row,
                                         .ca = a.col,
                                         .m = m,
                                         .k = k,
                                         .ahead = next,
                                         .twice = true });
}

#endif
