/* fuzz.h -- what the fuzz targets share: their entry, and a way to stop. */
#ifndef FOCI_FUZZ_H
#define FOCI_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

/* What libFuzzer and replay.c call. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stop here, so that the input is kept. */
#define MUST(condition)                                                                \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
            abort();                                                                   \
        }                                                                              \
    } while (0)

/* One context for all inputs of a target. */
static inline foci_ctx *fuzz_ctx(void)
{
    static foci_ctx *ctx;
    if (!ctx) MUST(foci_ctx_create(NULL, &ctx) == FOCI_OK);
    return ctx;
}

/* A refusal says why, in one line that a terminal can show.  The line is wiped, so that
 * the next one is seen to be new. */
static inline void fuzz_message(foci_ctx *ctx)
{
    const char *s = foci_errmsg(ctx);
    MUST(*s);
    for (; *s; s++)
        MUST((unsigned char)*s >= 0x20 && *s != 0x7f);
    ctx_fail(ctx, FOCI_OK, "%s", "");
}

#endif
