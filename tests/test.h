/* test.h -- what the tests share: cmocka, contexts, plans and memory that cannot
 * fail quietly. */
#ifndef FOCI_TEST_H
#define FOCI_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/core.h"

/* Whether sanitizers or valgrind watch.  They see where memory is read and written and
 * which numbers overflow: of cases that differ in the values of tensors alone, one is
 * enough for them. */
static inline bool test_sanitized(void)
{
#ifdef FOCI_SANITIZED
    return true;
#else
    return false;
#endif
}

/* n zeroed elements, 64-byte aligned; free() frees them. */
static inline void *test_alloc(size_t n, size_t size)
{
    const size_t bytes = (n * size + 63) / 64 * 64;
    void        *p = aligned_alloc(64, bytes ? bytes : 64);
    if (p)
        memset(p, 0, bytes ? bytes : 64);
    else
        fail_msg("no memory for %zu bytes", bytes);
    return p;
}

/* cpu NULL: the best level there is, or the device that FOCI_TEST_DEVICE names.
 * FOCI_TEST_THREADS gives all contexts as many threads, to see tests pass with other numbers
 * of them than those that they were written with. */
static inline foci_ctx *test_ctx(const char *cpu, int threads)
{
    const char        *all = getenv("FOCI_TEST_THREADS");
    const foci_options options = {
        FOCI_SIZED(foci_options), .threads = all ? (int)strtol(all, NULL, 10) : threads,
        .cpu = cpu, .device = cpu ? NULL : getenv("FOCI_TEST_DEVICE")
    };
    foci_ctx *ctx = NULL;
    if (foci_ctx_create(&options, &ctx) != FOCI_OK)
        fail_msg("no context of level %s: %s", cpu ? cpu : "(any)", foci_errmsg(NULL));
    return ctx;
}

static inline foci_plan *test_plan(foci_ctx *ctx, const char *spec,
                                   const foci_problem *p)
{
    foci_plan *plan = NULL;
    if (foci_plan_create(ctx, spec, p, &plan) != FOCI_OK) {
        char text[128];
        foci_problem_print(p, text, sizeof text);
        fail_msg("%s on %s: %s", spec, text, foci_errmsg(ctx));
    }
    return plan;
}

#endif
