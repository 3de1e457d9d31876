/* product.h -- products of matrices, packed for the micro-kernels, with an epilogue while
 * the result is in the cache. */
#ifndef FOCI_PRODUCT_H
#define FOCI_PRODUCT_H

#include "core/core.h"
#include "foci/product.h"

/* Matrices are made of parts side by side, so that heads need not be: element (i, j) of
 * a part is at data[i ld + j], in elements.  All parts have the same rows. */
struct product_part {
    void   *data;
    int64_t ld, cols;
};

struct matrix {
    const struct product_part *parts;
    int                        n_parts;
    foci_dtype                 dtype;
    bool                       transposed; /* the transpose of what the parts make */
};

/* c = residual + drop(act(a b + bias)): c [m][n], a [m][k], b [k][n].
 *
 * gated: b has 2 n columns and the bias as many entries, c = residual + drop(act(g) u) with
 * [g, u] = a b + bias.
 *
 * back, the gradient of the input of an activation: c = residual + drop(a b) act'(pre).
 * With gated c and pre have 2 n columns, pre = [g, u] and
 * c = [drop(a b) u act'(g), drop(a b) act(g)]. */
struct product {
    int64_t       m, n, k;
    struct matrix a, b, c; /* c is not transposed */
    bool          add;     /* c += a b, c f32; no epilogue */
    bool          fast;    /* bf16 products, also of f32 */
    bool          gated, back;
    const void *packed; /* b as product_pack() has packed it; NULL: it is packed anew */
    const float *bias;  /* [n]; NULL: none */
    foci_act     act;
    void        *pre; /* [m][n] of c's type, written, or read with `back`; NULL: none.
                        * c has one part where there is one, or where it is gated */
    int64_t      ld_pre;
    const void  *residual;    /* of c's type; c has one part; NULL: none */
    int64_t      ld_residual; /* 0: as c */
    double       drop; /* share of the elements that are dropped (docs/random.md) */
    uint64_t     drop_seed;
    int64_t      drop_len;  /* rows of a batch entry, in c; 0: all are one entry */
    int64_t      drop_row0; /* row 0 of c counts as so many */
};

/* The dropout mask of 64 columns from j0 on of m rows from i0 on, for p->drop above 0. */
void product_dropout_mask(const struct kernels *k, const struct product *p, int64_t i0,
                          int m, int64_t j0, uint64_t *dropout_mask);

/* Work memory for a product of these extents, in multiples of 64; work is 64-byte
 * aligned.  It depends on extents, types, `transposed`, `fast`, `gated` and `back`, not on
 * parts, and smaller extents need no more.  SIZE_MAX where it does not fit.
 *
 * Products are of bf16 where the level has them and a is not f32, or with `fast`; sums are
 * f32, upward along k, and the same for every number of threads. */
size_t product_bytes(const foci_ctx *ctx, const struct product *p);
void   product_run(const foci_ctx *ctx, const struct product *p, void *work);

/* For several products with the same b: its packed form, for any m.  0 bytes: the level
 * packs b for each by itself, and there is nothing to do. */
size_t product_pack_bytes(const foci_ctx *ctx, const struct product *p);
void   product_pack(const foci_ctx *ctx, const struct product *p, void *packed,
                    void *work);

#endif
