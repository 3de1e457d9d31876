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

bool sized_take(void *whole, const void *given, size_t bytes)
{
    const size_t size = size_of(given, bytes);

    memset(whole, 0, bytes);
    if (!size) return false;
    memcpy(whole, given, size);
    memcpy(whole, &bytes, sizeof bytes);
    return true;
}

bool sized_give(void *place, const void *whole, size_t bytes)
{
    const size_t size = size_of(place, bytes);

    if (!size) return false;
    memcpy(place, whole, size);
    memcpy(place, &size, sizeof size);
    return true;
}
