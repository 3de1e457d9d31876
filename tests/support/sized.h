/* sized.h -- blocks that know their size, so that what a context says of a block it frees
 * is seen to be true: a foci_alloc_fn. */
#ifndef FOCI_SIZED_H
#define FOCI_SIZED_H

#include "test.h"

enum { SIZED_FRONT = 64 };

static inline void *sized_alloc(void *user, void *old, size_t old_bytes,
                                size_t new_bytes)
{
    (void)user;
    char *front = old ? (char *)old - SIZED_FRONT : NULL;
    if (front) assert_memory_equal(front, &old_bytes, sizeof old_bytes);
    if (!new_bytes) {
        free(front);
        return NULL;
    }
    char *new = aligned_alloc(SIZED_FRONT, SIZED_FRONT + (new_bytes + SIZED_FRONT - 1) /
                                                             SIZED_FRONT * SIZED_FRONT);
    if (!new) return NULL;
    memcpy(new, &new_bytes, sizeof new_bytes);
    if (front) {
        memcpy(new + SIZED_FRONT, old, old_bytes < new_bytes ? old_bytes : new_bytes);
        free(front);
    }
    return new + SIZED_FRONT;
}

#endif
