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

static foci_status refuse(foci_ctx *ctx, const char *type, const void *given,
                          size_t bytes)
{
    size_t size;

    if (!given) return ctx_fail(ctx, FOCI_ERR_ARG, "%s: the pointer is NULL", type);
    memcpy(&size, given, sizeof size);
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s.size is %zu: start the struct with FOCI_SIZED(%s), %zu here",
                    type, size, type, bytes);
}

bool sized_read(void *whole, const void *given, size_t bytes)
{
    const size_t size = size_of(given, bytes);

    memset(whole, 0, bytes);
    if (!size) return false;
    memcpy(whole, given, size);
    memcpy(whole, &bytes, sizeof bytes);
    return true;
}

foci_status sized_in(foci_ctx *ctx, const char *type, void *whole, const void *given,
                     size_t bytes)
{
    return sized_read(whole, given, bytes) ? FOCI_OK : refuse(ctx, type, given, bytes);
}

foci_status sized_out(foci_ctx *ctx, const char *type, void *place, const void *whole,
                      size_t bytes)
{
    return sized_write(place, whole, bytes) ? FOCI_OK : refuse(ctx, type, place, bytes);
}

bool sized_write(void *place, const void *whole, size_t bytes)
{
    const size_t size = size_of(place, bytes);

    if (!size) return false;
    memcpy(place, whole, size);
    memcpy(place, &size, sizeof size);
    return true;
}
