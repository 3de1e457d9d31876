/* call.h -- what the public calls share: the caller's struct, checked and converted. */
#ifndef FOCI_PRODUCT_CALL_H
#define FOCI_PRODUCT_CALL_H

#include "product/product.h"

struct product_call {
    foci_product_io     io;
    struct product_part a, b, c;
    struct product      p;
};

bool call_has(const struct product_call *x, uint32_t flag);

/* Columns of b, and entries of the bias. */
int64_t call_wide(const struct product_call *x);

/* The fields that the caller's struct has, and the product that they say. */
foci_status call_open(foci_ctx *ctx, const foci_product_io *io, struct product_call *x);

/* Check extents, types, flags and the epilogue; the message goes to ctx, which may be NULL. */
foci_status call_check(foci_ctx *ctx, const struct product_call *x);

/* Check that rows of `cols` elements, ld apart, do not overflow. */
foci_status call_check_rows(foci_ctx *ctx, const char *name, int64_t rows, int64_t cols,
                            int64_t ld);
foci_status call_check_act(foci_ctx *ctx, foci_act act, double dropout);
foci_status call_no_work(foci_ctx *ctx);

#endif
