/* vec.c -- arrays that grow. */
#include <assert.h>
#include <string.h>

#include "data/vec.h"

foci_status vec_reserve(foci_ctx *ctx, struct vec *v, int64_t more, size_t each)
{
    assert(!v->at || v->each == each);
    if (more <= v->cap - v->n) return FOCI_OK;
    if (more > INT64_MAX / 4 - v->n)
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for %lld elements more",
                        (long long)more);

    const int64_t cap = max64(v->n + more, v->n + v->n / 2 + 64);
    void         *bigger = ctx_alloc(ctx, (size_t)cap, each);
    if (!bigger) return FOCI_ERR_MEMORY;
    if (v->n) memcpy(bigger, v->at, (size_t)v->n * each);
    if (v->at) ctx_free(ctx, v->at, (size_t)v->cap, each);
    v->at = bigger;
    v->cap = cap;
    v->each = each;
    return FOCI_OK;
}

foci_status vec_append(foci_ctx *ctx, struct vec *v, const void *from, int64_t n,
                       size_t each)
{
    TRY(vec_reserve(ctx, v, n, each));
    if (n) memcpy((char *)v->at + (size_t)v->n * each, from, (size_t)n * each);
    v->n += n;
    return FOCI_OK;
}

void vec_free(foci_ctx *ctx, struct vec *v)
{
    if (v->at) ctx_free(ctx, v->at, (size_t)v->cap, v->each);
    *v = (struct vec){ 0 };
}
