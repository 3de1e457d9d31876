/* sized.c -- structs of callers that were compiled with another version of a header.
 *
 * They start with their size.  Fields that the caller's version does not have are zero,
 * or are not written; what only the caller's version has cannot be honoured.
 */
#include <string.h>

#include "core/core.h"

/* 0: there is none, or one that is not understood. */
static size_t size_of(const void *given, size_t bytes)
{
    size_t size;

    if (!given) return 0;
    memcpy(&size, given, sizeof size);
    return size < sizeof size || size > bytes ? 0 : size;
}

foci_status sized_check(foci_ctx *ctx, const char *type, const void *given, size_t bytes)
{
    size_t size;

    if (size_of(given, bytes)) return FOCI_OK;
    if (!given) return ctx_fail(ctx, FOCI_ERR_ARG, "%s: the pointer is NULL", type);
    memcpy(&size, given, sizeof size);
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s.size is %zu: start the struct with FOCI_SIZED(%s), %zu here",
                    type, size, type, bytes);
}

foci_status sized_in(foci_ctx *ctx, const char *type, void *whole, const void *given,
                     size_t bytes)
{
    memset(whole, 0, bytes);
    TRY(sized_check(ctx, type, given, bytes));
    memcpy(whole, given, size_of(given, bytes));
    memcpy(whole, &bytes, sizeof bytes);
    return FOCI_OK;
}

foci_status sized_out(foci_ctx *ctx, const char *type, void *place, const void *whole,
                      size_t bytes)
{
    TRY(sized_check(ctx, type, place, bytes));
    const size_t size = size_of(place, bytes);
    memcpy(place, whole, size);
    memcpy(place, &size, sizeof size);
    return FOCI_OK;
}
