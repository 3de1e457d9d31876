/* vec.h -- arrays that grow, in the memory of a context. */
#ifndef FOCI_VEC_H
#define FOCI_VEC_H

#include "core/core.h"

/* n elements of `each` bytes, of capacity `cap`.  All zeros: an empty one. */
struct vec {
    void   *at;
    int64_t n, cap;
    size_t  each;
};

/* Reserve memory for `more` elements after the n present ones. */
foci_status vec_reserve(foci_ctx *ctx, struct vec *v, int64_t more, size_t each);

/* Append n elements. */
foci_status vec_append(foci_ctx *ctx, struct vec *v, const void *from, int64_t n,
                       size_t each);
#define VEC_ADD(ctx, v, from, n) vec_append(ctx, v, from, n, sizeof *(from))

void vec_free(foci_ctx *ctx, struct vec *v);

/* Element number i of a vector of `type`. */
#define VEC(type, v, i) ((type *)(v)->at)[i]

#endif
