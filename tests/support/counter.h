/* counter.h -- an allocator of a context that fails on demand and counts what it gave. */
#ifndef FOCI_COUNTER_H
#define FOCI_COUNTER_H

#include "core/core.h"

struct counter {
    int64_t left; /* calls until one fails; negative: none does */
    int64_t held; /* bytes */
};

static inline void *count_alloc(void *user, void *old, size_t old_bytes,
                                size_t new_bytes)
{
    struct counter *c = user;

    if (new_bytes && c->left == 0) return NULL;
    if (new_bytes && c->left > 0) c->left--;
    void *new = default_alloc(NULL, old, old_bytes, new_bytes);
    if (new || !new_bytes)
        c->held += (int64_t)new_bytes - (int64_t)(old ? old_bytes : 0);
    return new;
}

#endif
