/* conv.c -- short causal convolutions, each column by itself.
 *
 * Rows are read through a list of addresses, which has rows of `before` and zeros like all
 * others; backward is the same sum over the rows that follow.
 */
#include <string.h>

#include "ops/check.h"
#include "product/columns.h"

enum { MOST_TAPS = 64, CONV_ROWS = 128 };

static const char op[] = "conv";

struct conv_run {
    const struct kernels *k;
    foci_conv_io          io;
    int64_t               rows, across; /* jobs of an entry */
    float                *partial;      /* [jobs][taps + 1][width] */
};

static foci_status open_conv(foci_ctx *ctx, const foci_conv_io *given,
                             struct conv_run *x)
{
    foci_conv_io *const io = &x->io;

    TRY(sized_in(ctx, "foci_conv_io", io, given, sizeof *io));
    TRY(check_batch(ctx, op, io->dtype, io->batch, io->len, io->width, &x->rows));
    TRY(check_extent(ctx, op, "taps", io->taps, 1, MOST_TAPS));
    TRY(check_lens(ctx, op, io->lens, io->batch, io->len));
    x->across = div_up(io->len, CONV_ROWS);
    if (ctx) x->k = &ctx->kernels;
    return FOCI_OK;
}

static int64_t len_of(const struct conv_run *x, int64_t b)
{
    return x->io.lens ? x->io.lens[b] : x->io.len;
}

/* Rows of a job. */
struct conv_span {
    int64_t b, i;
    int     n, valid;
};

static struct conv_span span_of(const struct conv_run *x, int64_t job)
{
    const int64_t b = job / x->across, i = job % x->across * CONV_ROWS;
    const int     n = (int)min64(CONV_ROWS, x->io.len - i);

    return (struct conv_span){ b, i, n, (int)max64(0, min64(n, len_of(x, b) - i)) };
}

/* Row i of entry b, which may be before the first; NULL: zeros. */
static void *row_in(const struct conv_run *x, const void *rows, int64_t b, int64_t i)
{
    const foci_conv_io *io = &x->io;
    const int64_t       kept = io->taps - 1;

    if (i >= len_of(x, b)) return NULL;
    if (i >= 0) return row_at(rows, io->dtype, b * io->len + i, io->width);
    return row_at(io->before, io->dtype, b * kept + kept + i, io->width);
}

/* Rows that a job's sums begin at: those of x from taps - 1 before its first. */
static void rows_before(const struct conv_run *x, struct conv_span s, const void **list)
{
    const int64_t kept = x->io.taps - 1;

    for (int64_t j = 0; j < s.valid + kept; j++)
        list[j] = row_in(x, x->io.x, s.b, s.i - kept + j);
}

static void zero_rest(const struct conv_run *x, struct conv_span s, void *rows)
{
    const size_t  bytes = (size_t)x->io.width * foci_dtype_bytes(x->io.dtype);
    const int64_t from = s.b * x->io.len + s.i + s.valid;

    if (s.valid < s.n)
        memset(row_at(rows, x->io.dtype, from, x->io.width), 0,
               bytes * (size_t)(s.n - s.valid));
}

static void forward_job(void *arg, int64_t job, int thread)
{
    const struct conv_run *x = arg;
    const foci_conv_io    *io = &x->io;
    const struct conv_span s = span_of(x, job);
    const void            *list[CONV_ROWS + MOST_TAPS];

    (void)thread;
    rows_before(x, s, list);
    x->k->conv_rows(row_at(io->y, io->dtype, s.b * io->len + s.i, io->width), io->width,
                    (int)io->dtype, list, io->w + (io->taps - 1) * io->width,
                    -io->width, io->bias, (int)io->taps, s.valid, (int)io->width);
    zero_rest(x, s, io->y);
}

/* The last rows of before and x, from the first of them on: `after` may be `before`. */
static void keep_last(const struct conv_run *x, int64_t b)
{
    const foci_conv_io *io = &x->io;
    const int64_t       kept = io->taps - 1, from = len_of(x, b) - kept;
    const size_t        bytes = (size_t)io->width * foci_dtype_bytes(io->dtype);

    for (int64_t j = 0; j < kept; j++) {
        void *const       to = row_at(io->after, io->dtype, b * kept + j, io->width);
        const void *const row = row_in(x, io->x, b, from + j);

        if (!row)
            memset(to, 0, bytes);
        else if (row != to)
            memcpy(to, row, bytes);
    }
}

static double work_of(const struct conv_run *x)
{
    return 2 * (double)x->rows * (double)x->io.width * (double)x->io.taps;
}

static void conv_run(const foci_ctx *ctx, struct conv_run *x,
                     void (*job)(void *, int64_t, int))
{
    const int64_t jobs = x->io.batch * x->across;

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work_of(x)),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = x }, 1);
}

foci_status foci_conv_forward(foci_ctx *ctx, const foci_conv_io *given)
{
    struct conv_run x = { .rows = 0 };

    TRY(check_ctx(ctx, "foci_conv_forward"));
    TRY(open_conv(ctx, given, &x));
    TRY(check_there(ctx, op, !x.rows || (x.io.x && x.io.y && x.io.w), "x, y or w"));
    conv_run(ctx, &x, forward_job);
    for (int64_t b = 0; x.io.after && b < x.io.batch; b++)
        keep_last(&x, b);
    return FOCI_OK;
}

/*
 * Backward
 */

static void conv_carve(struct conv_run *x, struct arena *a)
{
    const int64_t wide = (x->io.taps + 1) * x->io.width;

    x->partial = arena_alloc(a, x->io.batch * x->across, (size_t)wide * sizeof(float));
}

size_t foci_conv_work_bytes(const foci_ctx *ctx, const foci_conv_io *given)
{
    struct arena    a = { .base = NULL };
    struct conv_run x = { .rows = 0 };

    if (!ctx || open_conv(NULL, given, &x)) return SIZE_MAX;
    conv_carve(&x, &a);
    return bytes_of(&a);
}

/* dx[i] = sum over t of w[t] dy[i + t] */
static void input_of(const struct conv_run *x, struct conv_span s)
{
    const foci_conv_io *io = &x->io;
    const void         *list[CONV_ROWS + MOST_TAPS];

    for (int64_t j = 0; j < s.valid + io->taps - 1; j++)
        list[j] = row_in(x, io->dy, s.b, s.i + j);
    x->k->conv_rows(row_at(io->dx, io->dtype, s.b * io->len + s.i, io->width),
                    io->width, (int)io->dtype, list, io->w, io->width, NULL,
                    (int)io->taps, s.valid, (int)io->width);
    zero_rest(x, s, io->dx);
}

static void backward_job(void *arg, int64_t job, int thread)
{
    const struct conv_run *x = arg;
    const foci_conv_io    *io = &x->io;
    const struct conv_span s = span_of(x, job);
    const void *const dy = row_at(io->dy, io->dtype, s.b * io->len + s.i, io->width);
    float *const      dw = x->partial + job * (io->taps + 1) * io->width;
    const void       *list[CONV_ROWS + MOST_TAPS];

    (void)thread;
    memset(dw, 0, (size_t)((io->taps + 1) * io->width) * sizeof *dw);
    if (io->dx) input_of(x, s);
    if (io->dw) {
        rows_before(x, s, list);
        x->k->conv_dots(dw + (io->taps - 1) * io->width, -io->width, dy, io->width,
                        list, (int)io->dtype, (int)io->taps, s.valid, (int)io->width);
    }
    if (io->dbias)
        x->k->col_sums(dw + io->taps * io->width, dy, io->width, (int)io->dtype,
                       s.valid, (int)io->width);
}

foci_status foci_conv_backward(foci_ctx *ctx, const foci_conv_io *given)
{
    struct arena    a = { .base = NULL };
    struct conv_run x = { .rows = 0 };

    TRY(check_ctx(ctx, "foci_conv_backward"));
    TRY(open_conv(ctx, given, &x));
    if (!x.rows) return FOCI_OK;
    TRY(check_there(ctx, op, x.io.dy && (!x.io.dx || x.io.w) && (!x.io.dw || x.io.x),
                    "dy, w or x"));
    TRY(check_work(ctx, op, x.io.work, foci_conv_work_bytes(ctx, given)));

    const int64_t jobs = x.io.batch * x.across, dw = x.io.taps * x.io.width;
    const int64_t ld = dw + x.io.width;
    a.base = x.io.work;
    conv_carve(&x, &a);
    conv_run(ctx, &x, backward_job);
    if (x.io.dw) columns_add(ctx, x.partial, jobs, dw, ld, x.io.dw);
    if (x.io.dbias) columns_add(ctx, x.partial + dw, jobs, x.io.width, ld, x.io.dbias);
    return FOCI_OK;
}
