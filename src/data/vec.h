/* vec.h -- arrays that grow, in the memory of a context. */
#ifndef FOCI_VEC_H
#define FOCI_VEC_H

#include "core/core.h"

/* n elements of `each` bytes, with room for more.  Zeros are an empty one. */
struct vec {
    void   *at;
    int64_t n, cap;
    size_t  each;
};

/* Room for `more` elements of so many bytes behind the n that there are. */
foci_status vec_reserve(foci_ctx *ctx, struct vec *v, int64_t more, size_t each);

/* Append n elements of so many bytes. */
foci_status vec_append(foci_ctx *ctx, struct vec *v, const void *from, int64_t n,
                       size_t each);
#define VEC_ADD(ctx, v, from, n) vec_append(ctx, v, from, n, sizeof *(from))

void vec_free(foci_ctx *ctx, struct vec *v);

/* Element number i of a vector of `type`. */
#define VEC(type, v, i) ((type *)(v)->at)[i]

#endif
