/* ledger.h -- an allocator that counts the bytes held, and refuses the call that brings
 * `left` below 0: a foci_alloc_fn. */
#ifndef FOCI_LEDGER_H
#define FOCI_LEDGER_H

#include "core/core.h"

struct ledger {
    int64_t held;
    int     left;
};

static inline void *counted(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    struct ledger *l = user;
    if (new_bytes && l->left-- <= 0) return NULL;
    l->held += (int64_t)new_bytes - (int64_t)old_bytes;
    return default_alloc(NULL, old, old_bytes, new_bytes);
}

#endif
