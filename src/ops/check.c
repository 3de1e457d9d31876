/* check.c -- checks that the operations share. */
#include "ops/check.h"

#include <inttypes.h>

foci_status check_ctx(const foci_ctx *ctx, const char *call)
{
    return ctx ? FOCI_OK
               : ctx_fail(NULL, FOCI_ERR_ARG, "%s: the context is NULL", call);
}

foci_status check_extent(foci_ctx *ctx, const char *op, const char *name, int64_t n,
                         int64_t least, int64_t most)
{
    if (n >= least && n <= most) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s: %s is %" PRId64 " to %" PRId64 ", not %" PRId64, op, name,
                    least, most, n);
}

foci_status check_rows(foci_ctx *ctx, const char *op, foci_dtype dtype, int64_t rows,
                       int64_t width)
{
    if (dtype != FOCI_F32 && dtype != FOCI_BF16 && dtype != FOCI_F16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "%s: type %d is no foci_dtype", op,
                        (int)dtype);
    TRY(check_extent(ctx, op, "width", width, 1, MOST_WIDTH));
    return check_extent(ctx, op, "rows", rows, 0, INT64_MAX / 16 / width);
}

foci_status check_batch(foci_ctx *ctx, const char *op, foci_dtype dtype, int64_t batch,
                        int64_t len, int64_t width, int64_t *rows)
{
    TRY(check_extent(ctx, op, "batch", batch, 0, INT32_MAX));
    TRY(check_extent(ctx, op, "len", len, 0, INT32_MAX));
    *rows = batch * len;
    return check_rows(ctx, op, dtype, *rows, width);
}

foci_status check_lens(foci_ctx *ctx, const char *op, const int32_t *lens,
                       int64_t batch, int64_t len)
{
    for (int64_t b = 0; lens && b < batch; b++)
        if (lens[b] < 0 || lens[b] > len)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s: length %" PRId32 " of entry %" PRId64
                            " is not 0 to %" PRId64,
                            op, lens[b], b, len);
    return FOCI_OK;
}

foci_status check_share(foci_ctx *ctx, const char *op, const char *name, double share)
{
    if (share >= 0 && share < 1) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "%s: %s is 0 to below 1, not %g", op, name,
                    share);
}

foci_status check_there(foci_ctx *ctx, const char *op, bool there, const char *names)
{
    if (there) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "%s: %s is missing", op, names);
}

foci_status check_work(foci_ctx *ctx, const char *op, const void *work, size_t bytes)
{
    if (bytes == SIZE_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "%s: it does not fit into memory", op);
    if (!bytes || (work && (uintptr_t)work % 64 == 0)) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "%s: work is missing or not 64-byte aligned", op);
}

size_t bytes_of(const struct arena *a) { return arena_ok(a) ? a->used : SIZE_MAX; }
