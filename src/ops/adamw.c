/* adamw.c -- the optimiser, and norms and averages of flat arrays.
 *
 * Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.  Bound by memory: an
 * array is read and written once.  Jobs are PIECE floats of a segment, for any number of
 * threads.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/check.h"

enum { PIECE = 1 << 14 };

/* Floats [begin, end) of a segment; what a job does with them. */
typedef void (*visit)(void *arg, const foci_segment *s, int64_t begin, int64_t end);

/* Segments one behind the other, cut into pieces. */
struct pieces {
    const foci_segment *segments;
    int64_t             n_segments, floats;
};

static foci_status cut(foci_ctx *ctx, const char *op, const foci_segment *segments,
                       int64_t n_segments, struct pieces *p)
{
    int64_t at = 0;

    *p = (struct pieces){ segments, n_segments, 0 };
    TRY(check_extent(ctx, op, "n_segments", n_segments, 0, INT64_MAX));
    TRY(check_there(ctx, op, !n_segments || segments, "segments"));
    for (int64_t i = 0; i < n_segments; i++) {
        const foci_segment *s = &segments[i];

        if (s->begin < at || s->end < s->begin || s->end > INT64_MAX / 16)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s: segment %" PRId64 " from %" PRId64 " to %" PRId64
                            " does not follow the one before, which ends at %" PRId64,
                            op, i, s->begin, s->end, at);
        at = s->end;
        p->floats += s->end - s->begin;
    }
    return FOCI_OK;
}

/* Piece number i lies in one segment, or in several. */
static void visit_piece(const struct pieces *p, int64_t i, visit call, void *arg)
{
    int64_t from = i * PIECE, left = min64(PIECE, p->floats - from);

    for (const foci_segment *s = p->segments; left > 0; s++) {
        const int64_t n = s->end - s->begin, here = min64(left, n - from);

        if (here > 0) {
            call(arg, s, s->begin + from, s->begin + from + here);
            left -= here;
        }
        from = max64(0, from - n);
    }
}

static void adamw_run(const foci_ctx *ctx, void *x, int64_t floats,
                      void (*job)(void *, int64_t, int))
{
    const int64_t jobs = div_up(floats, PIECE);

    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, jobs, (double)floats * 8),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = x }, 1);
}

/*
 * The step
 */

struct adamw_run {
    const struct kernels *k;
    const foci_adamw_io  *io;
    struct pieces         pieces;
    struct adamw          how;
};

static void step_some(void *arg, const foci_segment *s, int64_t begin, int64_t end)
{
    const struct adamw_run *x = arg;
    const foci_adamw_io    *io = x->io;
    struct adamw            how = x->how;

    how.decay = (float)(1 - io->rate * io->decay * s->decay);
    x->k->adamw(io->params + begin, io->grads + begin, io->m + begin, io->v + begin,
                end - begin, &how);
}

static void step_job(void *arg, int64_t job, int thread)
{
    const struct adamw_run *x = arg;

    (void)thread;
    visit_piece(&x->pieces, job, step_some, arg);
}

static foci_status check_numbers(foci_ctx *ctx, const foci_adamw_io *io)
{
    const bool betas =
        io->beta1 >= 0 && io->beta1 < 1 && io->beta2 >= 0 && io->beta2 < 1;

    if (!betas || !(io->eps > 0))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "adamw: beta1 %g and beta2 %g are to be 0 to below 1, and eps "
                        "%g above 0",
                        io->beta1, io->beta2, io->eps);
    if (!isfinite(io->rate) || !isfinite(io->decay) || !isfinite(io->scale))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "adamw: rate %g, decay %g and scale %g are to be finite",
                        io->rate, io->decay, io->scale);
    return check_extent(ctx, "adamw", "step", io->step, 1, INT64_MAX);
}

foci_status foci_adamw(foci_ctx *ctx, const foci_adamw_io *given)
{
    foci_adamw_io    io;
    struct adamw_run x = { .io = &io };

    TRY(check_ctx(ctx, "foci_adamw"));
    TRY(sized_in(ctx, "foci_adamw_io", &io, given, sizeof io));
    TRY(check_numbers(ctx, &io));
    TRY(cut(ctx, "adamw", io.segments, io.n_segments, &x.pieces));
    TRY(check_there(ctx, "adamw",
                    !x.pieces.floats || (io.params && io.grads && io.m && io.v),
                    "params, grads, m or v"));

    const double t = (double)io.step;
    x.k = &ctx->kernels;
    x.how = (struct adamw){ .rest1 = (float)(1 - io.beta1),
                            .rest2 = (float)(1 - io.beta2),
                            .scale = (float)io.scale,
                            .step = (float)(io.rate / (1 - pow(io.beta1, t))),
                            .root = (float)(1 / sqrt(1 - pow(io.beta2, t))),
                            .eps = (float)io.eps,
                            .clear = io.clear != 0 };
    adamw_run(ctx, &x, x.pieces.floats, step_job);
    return FOCI_OK;
}

/*
 * Sums of squares, averages
 */

struct squares {
    const struct kernels *k;
    struct pieces         pieces;
    const float          *x;
    double               *sums; /* [pieces] */
};

/* A piece, and what it comes to. */
struct sum {
    const struct squares *x;
    double                sum;
};

static void squares_some(void *arg, const foci_segment *s, int64_t begin, int64_t end)
{
    struct sum *const sum = arg;

    (void)s;
    sum->sum += sum->x->k->squares_f32(sum->x->x + begin, end - begin);
}

static void squares_job(void *arg, int64_t job, int thread)
{
    const struct squares *x = arg;
    struct sum            sum = { x, 0 };

    (void)thread;
    visit_piece(&x->pieces, job, squares_some, &sum);
    x->sums[job] = sum.sum;
}

size_t foci_squares_work_bytes(int64_t n)
{
    struct arena a = { .base = NULL };

    if (n < 0) return SIZE_MAX;
    arena_alloc(&a, div_up(min64(n, INT64_MAX - PIECE), PIECE), sizeof(double));
    return bytes_of(&a);
}

foci_status foci_squares(foci_ctx *ctx, const foci_segment *segments,
                         int64_t n_segments, const float *in, void *work, double *sum)
{
    struct squares x = { .x = in, .sums = work };

    TRY(check_ctx(ctx, "foci_squares"));
    TRY(cut(ctx, "squares", segments, n_segments, &x.pieces));
    TRY(check_there(ctx, "squares", sum && (!x.pieces.floats || in), "x or sum"));
    TRY(check_work(ctx, "squares", work, foci_squares_work_bytes(x.pieces.floats)));
    x.k = &ctx->kernels;
    adamw_run(ctx, &x, x.pieces.floats, squares_job);
    *sum = 0;
    for (int64_t i = 0; i < div_up(x.pieces.floats, PIECE); i++)
        *sum += x.sums[i];
    return FOCI_OK;
}

struct average {
    const struct kernels *k;
    int64_t               n;
    float                *mean;
    const float          *x;
    float                 weight;
};

static void average_job(void *arg, int64_t job, int thread)
{
    const struct average *x = arg;
    const int64_t         i = job * PIECE;

    (void)thread;
    x->k->move_to(x->mean + i, x->x + i, x->weight, min64(PIECE, x->n - i));
}

foci_status foci_average(foci_ctx *ctx, int64_t n, float *mean, const float *in,
                         double weight)
{
    TRY(check_ctx(ctx, "foci_average"));
    TRY(check_extent(ctx, "average", "n", n, 0, INT64_MAX / 16));
    TRY(check_there(ctx, "average", !n || (mean && in), "mean or x"));
    if (!(weight >= 0 && weight <= 1))
        return ctx_fail(ctx, FOCI_ERR_ARG, "average: weight is 0 to 1, not %g", weight);

    struct average x = { &ctx->kernels, n, mean, in, (float)weight };
    adamw_run(ctx, &x, n, average_job);
    return FOCI_OK;
}
