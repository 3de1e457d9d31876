/* failing.c -- malloc() and its kin, counted, failing when told to (--wrap). */
#include "support/failing.h"

#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_realpath(const char *path, char *room);
void  __real_free(void *p);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_realpath(const char *path, char *room);
void  __wrap_free(void *p);

static atomic_int_fast64_t count, live;
static int64_t             fail_from, fail_to;

void failing_at(int64_t n, bool ever)
{
    count = 0;
    fail_from = n;
    fail_to = ever && n ? INT64_MAX : n;
}

int64_t failing_count(void) { return count; }

int64_t failing_live(void) { return live; }

void failing_json(void) { json_set_alloc_funcs(__wrap_malloc, __wrap_free); }

static bool fails(void)
{
    const int64_t n = atomic_fetch_add(&count, 1) + 1;
    if (n < fail_from || n > fail_to) return false;
    errno = ENOMEM;
    return true;
}

static void *made(void *p)
{
    live += p != NULL;
    return p;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : made(__real_malloc(n)); }

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : made(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails()) return NULL;
    void *new = __real_realloc(p, n);
    return p ? new : made(new);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : made(__real_aligned_alloc(align, n));
}

char *__wrap_realpath(const char *path, char *room)
{
    if (room) return __real_realpath(path, room);
    return fails() ? NULL : made(__real_realpath(path, NULL));
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}
