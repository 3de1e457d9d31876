/* norm.c -- LayerNorm and RMSNorm.
 *
 * Ba, Kiros and Hinton, "Layer Normalization", 2016; Zhang and Sennrich, "Root Mean Square
 * Layer Normalization", 2019.  Bound by memory: a row is read and written once.  Gradients
 * of gain and bias are summed over NORM_ROWS rows at a time, for any number of threads, and
 * these sums then in order.
 */
#include <string.h>

#include "ops/check.h"
#include "product/columns.h"

enum { NORM_ROWS = 128 };

static const char op[] = "norm";

struct norm_run {
    const struct kernels *k;
    foci_norm_io          io;
    struct norm           how;
    float                *partial; /* [parts][2][width] */
};

static foci_status open_norm(foci_ctx *ctx, const foci_norm_io *given, foci_norm_io *io)
{
    TRY(sized_in(ctx, "foci_norm_io", io, given, sizeof *io));
    TRY(check_rows(ctx, op, io->dtype, io->rows, io->width));
    if (io->kind != FOCI_NORM_LAYER && io->kind != FOCI_NORM_RMS)
        return ctx_fail(ctx, FOCI_ERR_ARG, "norm: kind %d is no foci_norm_kind",
                        (int)io->kind);
    if (io->eps == 0) io->eps = 1e-5;
    if (!(io->eps > 0 && io->eps <= 1))
        return ctx_fail(ctx, FOCI_ERR_ARG, "norm: eps is above 0 and at most 1, not %g",
                        io->eps);
    return FOCI_OK;
}

static struct norm_run run_of(const foci_ctx *ctx, const foci_norm_io *io)
{
    return (struct norm_run){ .k = &ctx->kernels,
                              .io = *io,
                              .how = { .gain = io->gain,
                                       .bias = io->bias,
                                       .eps = (float)io->eps,
                                       .rms = io->kind == FOCI_NORM_RMS } };
}

static void norm_run(const foci_ctx *ctx, struct norm_run *x,
                     void (*job)(void *, int64_t, int))
{
    const int64_t jobs = div_up(x->io.rows, NORM_ROWS);
    const double  work = 8 * (double)x->io.rows * (double)x->io.width;

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = x }, 1);
}

/* Rows of job i. */
static int rows_of(const struct norm_run *x, int64_t i)
{
    return (int)min64(NORM_ROWS, x->io.rows - i * NORM_ROWS);
}

static void *at(const struct norm_run *x, const void *rows, int64_t i)
{
    return row_at(rows, x->io.dtype, i * NORM_ROWS, x->io.width);
}

static void forward_job(void *arg, int64_t i, int thread)
{
    const struct norm_run *x = arg;
    const foci_norm_io    *io = &x->io;

    (void)thread;
    x->k->norm_rows(at(x, io->y, i), io->stats ? io->stats + 2 * i * NORM_ROWS : NULL,
                    at(x, io->x, i), (int)io->dtype, rows_of(x, i), (int)io->width,
                    &x->how);
}

foci_status foci_norm_forward(foci_ctx *ctx, const foci_norm_io *given)
{
    foci_norm_io io;

    TRY(check_ctx(ctx, "foci_norm_forward"));
    TRY(open_norm(ctx, given, &io));
    TRY(check_there(ctx, op, !io.rows || (io.x && io.y), "x or y"));

    struct norm_run x = run_of(ctx, &io);
    norm_run(ctx, &x, forward_job);
    return FOCI_OK;
}

static void norm_carve(struct norm_run *x, struct arena *a)
{
    x->partial = arena_alloc(a, div_up(x->io.rows, NORM_ROWS),
                             (size_t)x->io.width * 2 * sizeof(float));
}

size_t foci_norm_work_bytes(const foci_ctx *ctx, const foci_norm_io *given)
{
    struct arena    a = { .base = NULL };
    struct norm_run x = { .k = NULL };

    if (!ctx || open_norm(NULL, given, &x.io)) return SIZE_MAX;
    norm_carve(&x, &a);
    return bytes_of(&a);
}

static void backward_job(void *arg, int64_t i, int thread)
{
    const struct norm_run *x = arg;
    const foci_norm_io    *io = &x->io;
    float *const           dgain = x->partial + 2 * i * io->width;
    float *const           dbias = dgain + io->width;

    (void)thread;
    memset(dgain, 0, 2 * (size_t)io->width * sizeof *dgain);
    x->k->norm_back(at(x, io->dx, i), at(x, io->dy, i), at(x, io->x, i),
                    at(x, io->more, i), io->stats + 2 * i * NORM_ROWS, (int)io->dtype,
                    rows_of(x, i), (int)io->width, &x->how, io->dgain ? dgain : NULL,
                    io->dbias ? dbias : NULL);
}

foci_status foci_norm_backward(foci_ctx *ctx, const foci_norm_io *given)
{
    struct arena a = { .base = NULL };
    foci_norm_io io;

    TRY(check_ctx(ctx, "foci_norm_backward"));
    TRY(open_norm(ctx, given, &io));
    if (!io.rows) return FOCI_OK;
    TRY(check_there(ctx, op, io.x && io.dy && io.stats, "x, dy or stats"));
    TRY(check_work(ctx, op, io.work, foci_norm_work_bytes(ctx, given)));

    struct norm_run x = run_of(ctx, &io);
    const int64_t   parts = div_up(io.rows, NORM_ROWS);
    a.base = io.work;
    norm_carve(&x, &a);
    norm_run(ctx, &x, backward_job);
    if (io.dgain) columns_add(ctx, x.partial, parts, io.width, 2 * io.width, io.dgain);
    if (io.dbias)
        columns_add(ctx, x.partial + io.width, parts, io.width, 2 * io.width, io.dbias);
    return FOCI_OK;
}
