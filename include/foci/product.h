/* product.h -- products of matrices, as layers compute their projections. */
#ifndef FOCI_PUBLIC_PRODUCT_H
#define FOCI_PUBLIC_PRODUCT_H

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a product is taken. */
enum {
    FOCI_PRODUCT_TURN_A = 1 << 0, /* a is stored as [k][m] */
    FOCI_PRODUCT_TURN_B = 1 << 1, /* b is stored as [n][k] */
    FOCI_PRODUCT_ADD = 1 << 2,    /* c += a b, c being f32 */
    FOCI_PRODUCT_FAST = 1 << 3    /* bf16 products, also where a is f32 */
};

/* c [m][n] = a [m][k] b [k][n].  Rows may be further apart than they are long; tensors may
 * lie anywhere, and c overlaps neither a nor b.  Where a is bf16 or f16, and with
 * FOCI_PRODUCT_FAST, both factors are rounded to bf16 if the CPU multiplies these faster;
 * sums are f32 and do not depend on the number of threads. */
typedef struct foci_product_io {
    size_t      size;
    int64_t     m, n, k;
    const void *a, *b;
    void       *c;
    foci_dtype  type_a, type_b, type_c;
    int64_t     ld_a, ld_b, ld_c; /* elements from row to row as stored; 0: packed */
    uint32_t    flags;
    void       *work; /* 64-byte aligned scratch, foci_product_work() bytes */
} foci_product_io;

/* Bytes of `work`, from extents, types and flags; SIZE_MAX: the product is refused. */
FOCI_API size_t foci_product_work(const foci_ctx *ctx, const foci_product_io *io);

/* Multiply, with the threads of ctx.  Allocates nothing. */
FOCI_API foci_status foci_product(foci_ctx *ctx, const foci_product_io *io);

#ifdef __cplusplus
}
#endif
#endif
