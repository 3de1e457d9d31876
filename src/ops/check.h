/* check.h -- checks that the operations share; `op` begins their messages. */
#ifndef FOCI_OPS_CHECK_H
#define FOCI_OPS_CHECK_H

#include "core/core.h"
#include "foci/ops.h"

enum { MOST_WIDTH = 1 << 24 }; /* columns of a row */

/* That `call`, the name of a public function, was given a context. */
foci_status check_ctx(const foci_ctx *ctx, const char *call);

/* Check an extent, named `name`: `least` to `most`. */
foci_status check_extent(foci_ctx *ctx, const char *op, const char *name, int64_t n,
                         int64_t least, int64_t most);
/* Check that rows of 1 to MOST_WIDTH columns of a type do not overflow. */
foci_status check_rows(foci_ctx *ctx, const char *op, foci_dtype dtype, int64_t rows,
                       int64_t width);
/* The same of a batch; *rows is batch len. */
foci_status check_batch(foci_ctx *ctx, const char *op, foci_dtype dtype, int64_t batch,
                        int64_t len, int64_t width, int64_t *rows);
/* Lengths of `batch` entries, each 0 to len; lens may be NULL. */
foci_status check_lens(foci_ctx *ctx, const char *op, const int32_t *lens,
                       int64_t batch, int64_t len);
foci_status check_share(foci_ctx *ctx, const char *op, const char *name, double share);
/* Check that the required pointers, listed in `names`, are given. */
foci_status check_there(foci_ctx *ctx, const char *op, bool there, const char *names);
foci_status check_work(foci_ctx *ctx, const char *op, const void *work, size_t bytes);

/* The size that a dry run has counted. */
size_t bytes_of(const struct arena *a);

/* Where row r of packed rows begins; NULL stays NULL. */
static inline void *row_at(const void *rows, foci_dtype dtype, int64_t r, int64_t width)
{
    return rows ? (char *)rows + r * width * (int64_t)foci_dtype_bytes(dtype) : NULL;
}

#endif
