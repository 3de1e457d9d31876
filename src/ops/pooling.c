/* pooling.c -- pooling of the rows of a batch entry: their mean, or the first. */
#include <string.h>

#include "ops/check.h"

static const char op[] = "pooling";

enum { SPAN = 1024 }; /* columns of floats on their way */

struct pooling_run {
    const struct kernels *k;
    foci_pooling_io       io;
    int64_t               rows;
};

static foci_status open_pooling(foci_ctx *ctx, const foci_pooling_io *given,
                                struct pooling_run *x)
{
    foci_pooling_io *const io = &x->io;

    TRY(sized_in(ctx, "foci_pooling_io", io, given, sizeof *io));
    TRY(check_batch(ctx, op, io->dtype, io->batch, io->len, io->width, &x->rows));
    if (io->kind != FOCI_POOLING_MEAN && io->kind != FOCI_POOLING_FIRST)
        return ctx_fail(ctx, FOCI_ERR_ARG, "pooling: kind %d is no foci_pooling_kind",
                        (int)io->kind);
    TRY(check_lens(ctx, op, io->lens, io->batch, io->len));
    if (ctx) x->k = &ctx->kernels;
    return FOCI_OK;
}

/* Rows of entry b that are pooled. */
static int64_t pooled(const struct pooling_run *x, int64_t b)
{
    const int64_t len = x->io.lens ? x->io.lens[b] : x->io.len;
    return x->io.kind == FOCI_POOLING_FIRST ? min64(len, 1) : len;
}

static void *at(const struct pooling_run *x, const void *rows, int64_t row, int64_t c)
{
    return (char *)row_at(rows, x->io.dtype, row, x->io.width) +
           c * (int64_t)foci_dtype_bytes(x->io.dtype);
}

static void forward_span(const struct pooling_run *x, int64_t b, int64_t c, int d)
{
    enum { MOST = 1 << 16 }; /* rows that a kernel takes */
    const foci_pooling_io *io = &x->io;
    const int64_t          n = pooled(x, b);
    float                  sum[SPAN] = { 0 };

    for (int64_t i = 0; i < n; i += MOST)
        x->k->col_sums(sum, at(x, io->x, b * io->len + i, c), io->width, (int)io->dtype,
                       (int)min64(MOST, n - i), d);
    x->k->add_scaled(at(x, io->y, b, c), (int)io->dtype, sum, FOCI_F32,
                     n ? 1 / (float)n : 0, NULL, FOCI_F32, d);
}

static void forward_job(void *arg, int64_t job, int thread)
{
    const struct pooling_run *x = arg;
    const int64_t across = div_up(x->io.width, SPAN), c = job % across * SPAN;

    (void)thread;
    forward_span(x, job / across, c, (int)min64(SPAN, x->io.width - c));
}

static void pooling_run(const foci_ctx *ctx, struct pooling_run *x, int64_t jobs,
                        void (*job)(void *, int64_t, int))
{
    const double work = (double)x->rows * (double)x->io.width;

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = x }, 1);
}

foci_status foci_pooling_forward(foci_ctx *ctx, const foci_pooling_io *given)
{
    struct pooling_run x = { .rows = 0 };

    TRY(check_ctx(ctx, "foci_pooling_forward"));
    TRY(open_pooling(ctx, given, &x));
    TRY(check_there(ctx, op, !x.io.batch || x.io.y, "y"));
    TRY(check_there(ctx, op, !x.rows || x.io.x, "x"));
    pooling_run(ctx, &x, x.io.batch * div_up(x.io.width, SPAN), forward_job);
    return FOCI_OK;
}

/* The rows of an entry. */
static void backward_job(void *arg, int64_t b, int thread)
{
    const struct pooling_run *x = arg;
    const foci_pooling_io    *io = &x->io;
    const int64_t             n = pooled(x, b), from = b * io->len;
    const size_t              bytes = (size_t)io->width * foci_dtype_bytes(io->dtype);

    (void)thread;
    for (int64_t i = 0; i < n; i++)
        x->k->add_scaled(at(x, io->dx, from + i, 0), (int)io->dtype, at(x, io->dy, b, 0),
                         (int)io->dtype, 1 / (float)n, NULL, FOCI_F32, io->width);
    if (n < io->len)
        memset(at(x, io->dx, from + n, 0), 0, bytes * (size_t)(io->len - n));
}

foci_status foci_pooling_backward(foci_ctx *ctx, const foci_pooling_io *given)
{
    struct pooling_run x = { .rows = 0 };

    TRY(check_ctx(ctx, "foci_pooling_backward"));
    TRY(open_pooling(ctx, given, &x));
    TRY(check_there(ctx, op, !x.rows || (x.io.dy && x.io.dx), "dy or dx"));
    if (x.rows) pooling_run(ctx, &x, x.io.batch, backward_job);
    return FOCI_OK;
}
