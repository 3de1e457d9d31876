/* elements.h -- activations, gates, dropout and residuals on their own, element by element. */
#ifndef FOCI_PRODUCT_ELEMENTS_H
#define FOCI_PRODUCT_ELEMENTS_H

#include "product/product.h"

/* Forward y = more + drop(act(x)), or gated y = more + drop(act(g) u) with [g, u] = x;
 * backward y = more + act'(x) drop(d), gated y = [act'(g) u drop(d), act(g) drop(d)], to
 * which nothing is added.  Rows may be anywhere; y may be x or more forward, d or more
 * backward, where it has their rows. */
struct elements {
    foci_dtype  dtype;
    foci_act    act;
    bool        gated;
    int64_t     rows, width; /* of y forward, of d backward */
    const void *x, *more, *d;
    void       *y;
    int64_t     ld_x, ld_more, ld_d, ld_y;
    double      dropout;
    uint64_t    seed;
};

void elements_forward(const foci_ctx *ctx, const struct elements *r);
void elements_backward(const foci_ctx *ctx, const struct elements *r);

#endif
