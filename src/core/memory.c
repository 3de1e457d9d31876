/* memory.c -- the context's allocator, and arenas of scratch memory. */
#define _DEFAULT_SOURCE /* madvise() */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/core.h"

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

bool mul_size(size_t a, size_t b, size_t *out)
{
    if (b && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

/* Rounded up to whole cache lines; false when that overflows. */
static bool round_bytes(size_t bytes, size_t *out)
{
    if (bytes > SIZE_MAX - (ALIGN - 1)) return false;
    *out = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return true;
}

/* Pools of keys are read end to end, a page of 4 KiB at a time: on pages of 2 MiB that
 * is a tenth faster.  A system that ignores the advice loses nothing. */
static void prefer_huge_pages(void *p, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    if (bytes >= HUGE_PAGE) (void)madvise(p, bytes, MADV_HUGEPAGE);
#else
    (void)p;
    (void)bytes;
#endif
}

/* realloc() does not keep the alignment, hence the copy. */
void *default_alloc(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    (void)user;
    if (!new_bytes) {
        free(old);
        return NULL;
    }
    size_t bytes;
    if (!round_bytes(new_bytes, &bytes)) return NULL;

    void *new = NULL;
    if (posix_memalign(&new, bytes < HUGE_PAGE ? ALIGN : HUGE_PAGE, bytes)) return NULL;
    prefer_huge_pages(new, bytes);
    if (old) {
        memcpy(new, old, old_bytes < new_bytes ? old_bytes : new_bytes);
        free(old);
    }
    return new;
}

/* Nothing asked for is one byte, so that NULL always means failure. */
static bool block_bytes(size_t n, size_t size, size_t *out)
{
    if (!mul_size(n, size, out)) return false;
    if (!*out) *out = 1;
    return true;
}

void *ctx_alloc(foci_ctx *ctx, size_t n, size_t size)
{
    size_t bytes;
    if (!block_bytes(n, size, &bytes)) {
        ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory: %zu times %zu bytes overflows", n,
                 size);
        return NULL;
    }
    void *p = ctx->alloc(ctx->user, NULL, 0, bytes);
    if (p)
        memset(p, 0, bytes);
    else
        ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory: %zu bytes were refused", bytes);
    return p;
}

void ctx_free(foci_ctx *ctx, void *p, size_t n, size_t size)
{
    size_t bytes;
    if (p && block_bytes(n, size, &bytes)) ctx->alloc(ctx->user, p, bytes, 0);
}

void *arena_alloc(struct arena *a, int64_t n, size_t size)
{
    size_t bytes;
    if (!arena_ok(a)) return NULL;
    if (n < 0 || (uint64_t)n > SIZE_MAX || !mul_size((size_t)n, size, &bytes) ||
        !round_bytes(bytes, &bytes) || bytes >= SIZE_MAX - a->used) {
        a->used = SIZE_MAX;
        return NULL;
    }
    void *p = a->base ? a->base + a->used : NULL;
    a->used += bytes;
    return p;
}
