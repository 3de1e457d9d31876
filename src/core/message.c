/* message.c -- why the last call failed.
 *
 * Each thread has the message of its own last failure, and the context that failed.
 * Threads that execute one plan do not share it, so there is nothing to lock.  Contexts are
 * identified by a number that is never reused: one created at the address of another has
 * none of its messages.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

static _Thread_local struct {
    uint64_t ctx; /* its number; 0: there was no context */
    char     text[512];
} last;

uint64_t ctx_number(void)
{
    static atomic_uint_least64_t used;
    return atomic_fetch_add(&used, 1) + 1;
}

foci_status ctx_fail(foci_ctx *ctx, foci_status status, const char *format, ...)
{
    char text[sizeof last.text]; /* arguments may quote the message itself */

    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++) /* one line, whatever a name or a text holds */
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    memcpy(last.text, text, sizeof text);
    last.ctx = ctx ? ctx->number : 0;
    return status;
}

enum { PATH_SHOWN = 200 }; /* which leaves room for the reason */

void ctx_fail_in(foci_ctx *ctx, foci_status status, const char *path,
                 const char *format, va_list args)
{
    char         text[sizeof last.text];
    const size_t len = strlen(path);
    const bool   cut = len > PATH_SHOWN;
    const int    at = snprintf(text, sizeof text, "%s%s: ", cut ? "..." : "",
                            cut ? path + len - PATH_SHOWN : path);

    vsnprintf(text + at, sizeof text - (size_t)at, format, args);
    ctx_fail(ctx, status, "%s", text);
}

const char *foci_errmsg(const foci_ctx *ctx)
{
    return ctx && ctx->number != last.ctx ? "" : last.text;
}
