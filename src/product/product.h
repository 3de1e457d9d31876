/* product.h -- products of matrices, packed for the micro-kernels, with what follows
 * them done while the result is in the cache. */
#ifndef FOCI_PRODUCT_H
#define FOCI_PRODUCT_H

#include "core/core.h"

/* Matrices are made of parts side by side, so that heads need not be: element (i, j) of
 * a part is at data[i ld + j], in elements.  All parts have the same rows. */
struct part {
    void   *data;
    int64_t ld, cols;
};

struct matrix {
    const struct part *parts;
    int                n_parts;
    foci_dtype         dtype;
    bool               turned; /* the transpose of what the parts make */
};

typedef enum product_act { PRODUCT_PLAIN, PRODUCT_SILU } product_act;

/* c = residual + drop(act(a b + bias)): c [m][n], a [m][k], b [k][n]. */
struct product {
    int64_t       m, n, k;
    struct matrix a, b, c; /* c is not turned */
    bool          add;     /* c += a b; of f32, without what follows here */
    bool          fast;    /* bf16 products, also of f32 */
    const float  *bias;    /* [n]; NULL: none */
    product_act   act;
    const void   *residual; /* as c, which has one part; NULL: none */
    double        drop; /* share of the elements that are dropped (docs/random.md) */
    uint64_t      drop_seed;
    int64_t       drop_len;  /* rows of a batch entry, in c */
    int64_t       drop_row0; /* row 0 of c counts as so many */
};

/* Work memory for a product of these extents, in multiples of 64; work is 64-byte
 * aligned.  It depends on extents, types, `turned` and `fast`, not on parts, and smaller
 * extents need no more.  SIZE_MAX where it does not fit.
 *
 * Products are of bf16 where the level has them and a is not f32, or with `fast`; sums are
 * f32, upward along k, and the same for every number of threads. */
size_t product_bytes(const foci_ctx *ctx, const struct product *p);
void   product_run(const foci_ctx *ctx, const struct product *p, void *work);

#endif
