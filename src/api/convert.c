/* convert.c -- arrays from one type of tensors to another. */
#include <string.h>

#include "core/core.h"

/* Elements that are floats in between, at once. */
enum { CHUNK = 1024 };

static foci_status convert_check(const foci_ctx *ctx, foci_dtype to_type, const void *to,
                                 foci_dtype from_type, const void *from, int64_t n)
{
    const bool known = (unsigned)to_type <= FOCI_F16 && (unsigned)from_type <= FOCI_F16;

    if (!ctx) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_convert: the context is NULL");
    if (!known)
        return ctx_fail(
            (foci_ctx *)ctx, FOCI_ERR_ARG,
            "foci_convert: types %d and %d: they may be FOCI_F32, FOCI_BF16 or "
            "FOCI_F16",
            (int)to_type, (int)from_type);
    if (n < 0 || n > INT64_MAX / 8)
        return ctx_fail((foci_ctx *)ctx, FOCI_ERR_ARG,
                        "foci_convert: n is %lld: it may be 0 or more", (long long)n);
    if (n && (!to || !from))
        return ctx_fail((foci_ctx *)ctx, FOCI_ERR_ARG, "foci_convert: %s is NULL",
                        to ? "from" : "to");
    return FOCI_OK;
}

foci_status foci_convert(const foci_ctx *ctx, foci_dtype to_type, void *to,
                         foci_dtype from_type, const void *from, int64_t n)
{
    _Alignas(64) float some[CHUNK];
    const size_t       el_to = foci_dtype_bytes(to_type);
    const size_t       el_from = foci_dtype_bytes(from_type);

    TRY(convert_check(ctx, to_type, to, from_type, from, n));
    const struct kernels *k = &ctx->kernels;
    if (to_type == from_type) {
        if (n) memcpy(to, from, (size_t)n * el_to);
        return FOCI_OK;
    }
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int m = (int)min64(CHUNK, n - i);
        k->load_rows(some, CHUNK, (const char *)from + (size_t)i * el_from, CHUNK,
                     (int)from_type, 1, m);
        k->store_rows((char *)to + (size_t)i * el_to, CHUNK, (int)to_type, some, CHUNK,
                      1.0f, 1, m);
    }
    return FOCI_OK;
}
