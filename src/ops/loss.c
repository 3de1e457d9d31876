/* loss.c -- cross-entropy of logits that are never stored whole.
 *
 *     s = h w^T + bias   p = softmax(s)   dh = ds w   dw += ds^T h   dbias += 1^T ds
 *
 * Rows that have a label are gathered, some at a time: as many as have a few million logits,
 * which stay in the last-level cache between the product that makes them, the softmax that turns
 * them into their gradients in place, and the two products that use these.  More rows at once
 * cost memory, fewer cost passes over dw, and packing of w.
 *
 * Cost: three products of rows vocab width; memory 4 bytes for each of the logits at hand.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/check.h"
#include "product/columns.h"
#include "product/product.h"

enum {
    MOST_LOGITS = 1 << 22, /* at once, */
    LEAST_ROWS = 64,       /* but no fewer rows, */
    MOST_ROWS = 4096,      /* and no more */
    ROWS = 16,             /* of a job of the softmax */
    LINE = 16              /* floats that rows of logits are a multiple of */
};

static const char op[] = "loss";

struct loss_run {
    const foci_ctx *ctx;
    foci_loss_io    io;
    bool            backward;
    int64_t         most, ld; /* rows at once; floats from one to the next */
    foci_dtype      type;     /* of gradients of logits, which lie where logits did */
    /* Of work. */
    int64_t *at; /* [rows] those that have a label */
    void    *h, *dh;
    float   *logits;
    double  *losses; /* [most] */
    int32_t *best;   /* [most] */
    float   *partial;
    void    *packed[2]; /* w, for logits and for dh, where there are rows for both */
    void    *scratch;
    /* Rows at hand. */
    int64_t begin, n;
    bool    direct; /* they are neighbours, and used where they are */
};

/*
 * Checks and memory
 */

static foci_status open_loss(foci_ctx *ctx, const foci_loss_io *given,
                             struct loss_run *x)
{
    foci_loss_io *const io = &x->io;

    TRY(sized_in(ctx, "foci_loss_io", io, given, sizeof *io));
    TRY(check_rows(ctx, op, io->dtype, io->rows, io->width));
    TRY(check_extent(ctx, op, "vocab", io->vocab, 1, MOST_WIDTH));
    if (io->flags & ~(uint32_t)FOCI_LOSS_FAST)
        return ctx_fail(ctx, FOCI_ERR_ARG, "loss: flags %#" PRIx32 " are not known",
                        io->flags & ~(uint32_t)FOCI_LOSS_FAST);
    TRY(check_share(ctx, op, "smoothing", io->smoothing));
    if (io->scale == 0) io->scale = 1;
    return FOCI_OK;
}

static foci_status check_labels(foci_ctx *ctx, const foci_loss_io *io)
{
    for (int64_t i = 0; i < io->rows; i++)
        if (io->labels[i] < -1 || io->labels[i] >= io->vocab)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "loss: label %" PRId32 " of row %" PRId64
                            " is neither -1 nor 0 to %" PRId64,
                            io->labels[i], i, io->vocab - 1);
    return FOCI_OK;
}

/* The three products, of m rows; operands that are NULL have no addresses yet. */
static void *weights(const foci_loss_io *io) { return (void *)io->w; }

struct loss_operands {
    struct product_part a, b, c;
    struct product      p;
};

static void to_logits(const struct loss_run *x, int64_t m, const void *h,
                      struct loss_operands *o)
{
    const foci_loss_io *io = &x->io;

    o->a = (struct product_part){ (void *)h, io->width, io->width };
    o->b = (struct product_part){ weights(io), io->width, io->width };
    o->c = (struct product_part){ x->logits, x->ld, io->vocab };
    o->p = (struct product){ .m = m,
                             .n = io->vocab,
                             .k = io->width,
                             .a = { &o->a, 1, io->dtype, false },
                             .b = { &o->b, 1, FOCI_F32, true },
                             .c = { &o->c, 1, FOCI_F32, false },
                             .packed = x->packed[0],
                             .fast = io->flags & FOCI_LOSS_FAST };
}

/* Gradients of logits, whose elements may be half as long as logits are. */
static struct product_part gradients(const struct loss_run *x)
{
    return (struct product_part){ x->logits, x->type == FOCI_F32 ? x->ld : 2 * x->ld,
                                  x->io.vocab };
}

static void to_h(const struct loss_run *x, int64_t m, void *dh, struct loss_operands *o)
{
    const foci_loss_io *io = &x->io;

    o->a = gradients(x);
    o->b = (struct product_part){ weights(io), io->width, io->width };
    o->c = (struct product_part){ dh, io->width, io->width };
    o->p = (struct product){ .m = m,
                             .n = io->width,
                             .k = io->vocab,
                             .a = { &o->a, 1, x->type, false },
                             .b = { &o->b, 1, FOCI_F32, false },
                             .c = { &o->c, 1, io->dtype, false },
                             .packed = x->packed[1],
                             .fast = io->flags & FOCI_LOSS_FAST };
}

static void to_w(const struct loss_run *x, int64_t m, const void *h,
                 struct loss_operands *o)
{
    const foci_loss_io *io = &x->io;

    o->a = gradients(x);
    o->b = (struct product_part){ (void *)h, io->width, io->width };
    o->c = (struct product_part){ io->dw, io->width, io->width };
    o->p = (struct product){ .m = io->vocab,
                             .n = io->width,
                             .k = m,
                             .a = { &o->a, 1, x->type, true },
                             .b = { &o->b, 1, io->dtype, false },
                             .c = { &o->c, 1, FOCI_F32, false },
                             .add = true,
                             .fast = io->flags & FOCI_LOSS_FAST };
}

/* Scratch of the products; those with w are packed once for all rows where there is more
 * than one piece of them. */
static size_t scratch_bytes(const struct loss_run *x, size_t packs[2])
{
    struct loss_operands o[3];
    size_t               most = 0;

    to_logits(x, x->most, NULL, &o[0]);
    to_h(x, x->most, NULL, &o[1]);
    to_w(x, x->most, NULL, &o[2]);
    for (int i = 0; i < (x->backward ? 3 : 1); i++) {
        const size_t bytes = product_bytes(x->ctx, &o[i].p);
        if (bytes > most) most = bytes;
        if (i < 2 && x->io.rows > x->most)
            packs[i] = product_pack_bytes(x->ctx, &o[i].p);
    }
    return most;
}

static void *alloc_bytes(struct arena *a, size_t bytes)
{
    if (bytes == SIZE_MAX) a->used = SIZE_MAX;
    return arena_alloc(a, (int64_t)(bytes / 64), 64);
}

static void loss_carve(struct loss_run *x, struct arena *a)
{
    const foci_loss_io *io = &x->io;
    const size_t        row = (size_t)io->width * foci_dtype_bytes(io->dtype);
    size_t              packs[2] = { 0, 0 };
    const size_t        scratch = scratch_bytes(x, packs);

    x->at = arena_alloc(a, io->rows, sizeof *x->at);
    x->h = arena_alloc(a, x->most, row);
    x->dh = arena_alloc(a, x->backward ? x->most : 0, row);
    x->logits = arena_alloc(a, x->most, (size_t)x->ld * sizeof *x->logits);
    x->losses = arena_alloc(a, x->most, sizeof *x->losses);
    x->best = arena_alloc(a, x->most, sizeof *x->best);
    x->partial = columns_alloc(a, x->backward ? x->most : 0, io->vocab);
    x->scratch = alloc_bytes(a, scratch);
    for (int i = 0; i < 2; i++) {
        void *const packed = alloc_bytes(a, packs[i]);
        if (packs[i]) x->packed[i] = packed;
    }
}

/* How rows are cut, and what their gradients are. */
static void settle(const foci_ctx *ctx, struct loss_run *x, bool backward)
{
    const foci_loss_io *io = &x->io;
    const bool          bf16 =
        ctx->kernels.has_bf16 && (io->dtype != FOCI_F32 || io->flags & FOCI_LOSS_FAST);

    x->ctx = ctx;
    x->backward = backward;
    x->ld = round_up(io->vocab, LINE);
    x->most = max64(LEAST_ROWS, min64(MOST_ROWS, MOST_LOGITS / x->ld));
    x->most = min64(x->most, max64(io->rows, 1));
    x->type = bf16 ? FOCI_BF16 : FOCI_F32;
}

size_t foci_loss_work_bytes(const foci_ctx *ctx, const foci_loss_io *given, int backward)
{
    struct arena    a = { .base = NULL };
    struct loss_run x = { .n = 0 };

    if (!ctx || open_loss(NULL, given, &x)) return SIZE_MAX;
    settle(ctx, &x, backward != 0);
    loss_carve(&x, &a);
    return bytes_of(&a);
}

/*
 * Rows at hand
 */

static void run_jobs(const struct loss_run *x, int64_t jobs, double work,
                     void (*job)(void *, int64_t, int))
{
    phases_run(&x->ctx->kernels, false, jobs_threads(x->ctx->threads, jobs, work),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = (void *)x },
               1);
}

static void *h_row(const struct loss_run *x, const void *rows, int64_t i)
{
    return row_at(rows, x->io.dtype, x->at[x->begin + i], x->io.width);
}

/* Rows between what is gathered and the tensors of the caller. */
static void copy_rows(const struct loss_run *x, bool back)
{
    const size_t bytes = (size_t)x->io.width * foci_dtype_bytes(x->io.dtype);

    for (int64_t i = 0; i < x->n; i++) {
        if (back)
            memcpy(h_row(x, x->io.dh, i), row_at(x->dh, x->io.dtype, i, x->io.width),
                   bytes);
        else
            memcpy(row_at(x->h, x->io.dtype, i, x->io.width), h_row(x, x->io.h, i),
                   bytes);
    }
}

/* Logits of some rows become losses, and gradients in their place. */
static void softmax_job(void *arg, int64_t job, int thread)
{
    const struct loss_run *x = arg;
    const foci_loss_io    *io = &x->io;
    const struct kernels  *k = &x->ctx->kernels;

    (void)thread;
    for (int64_t i = job * ROWS; i < min64(x->n, (job + 1) * ROWS); i++) {
        float *const    s = x->logits + i * x->ld;
        struct loss_row r = { .bias = io->bias,
                              .label = io->labels[x->at[x->begin + i]],
                              .smoothing = (float)io->smoothing,
                              .scale = (float)io->scale };

        k->loss_row(x->backward ? s : NULL, (int)x->type, s, (int)io->vocab, &r);
        x->losses[i] = r.loss;
        x->best[i] = r.best;
    }
}

static void backward_some(const struct loss_run *x, const void *h)
{
    const foci_loss_io  *io = &x->io;
    struct loss_operands o;

    if (io->dh) {
        void *const dh = x->direct ? h_row(x, io->dh, 0) : x->dh;

        to_h(x, x->n, dh, &o);
        product_run(x->ctx, &o.p, x->scratch);
        if (!x->direct) copy_rows(x, true);
    }
    if (io->dw) {
        to_w(x, x->n, h, &o);
        product_run(x->ctx, &o.p, x->scratch);
    }
    if (io->dbias) {
        const struct product_part g = gradients(x);
        columns_sum(x->ctx,
                    &(struct product_columns){ x->type, x->n, io->vocab, g.ld, g.data },
                    io->dbias, x->partial);
    }
}

/* In the order of rows. */
static void count(const struct loss_run *x, foci_loss_sums *sums)
{
    const foci_loss_io *io = &x->io;

    for (int64_t i = 0; i < x->n; i++) {
        const int64_t row = x->at[x->begin + i];

        sums->loss += x->losses[i];
        sums->count++;
        sums->correct += x->best[i] == io->labels[row];
        if (io->row_loss) io->row_loss[row] = (float)x->losses[i];
        if (io->best) io->best[row] = x->best[i];
    }
}

static void run_some(struct loss_run *x, foci_loss_sums *sums)
{
    const foci_loss_io  *io = &x->io;
    const double         work = 12 * (double)x->n * (double)io->vocab;
    const void          *h = x->h;
    struct loss_operands o;

    x->direct = x->at[x->begin + x->n - 1] - x->at[x->begin] == x->n - 1;
    if (x->direct)
        h = h_row(x, io->h, 0);
    else
        copy_rows(x, false);
    to_logits(x, x->n, h, &o);
    product_run(x->ctx, &o.p, x->scratch);
    run_jobs(x, div_up(x->n, ROWS), work, softmax_job);
    count(x, sums);
    if (x->backward) backward_some(x, h);
}

static void pack(struct loss_run *x)
{
    struct loss_operands o;

    if (x->packed[0]) {
        to_logits(x, x->most, NULL, &o);
        product_pack(x->ctx, &o.p, x->packed[0], x->scratch);
    }
    if (x->packed[1] && x->io.dh) {
        to_h(x, x->most, NULL, &o);
        product_pack(x->ctx, &o.p, x->packed[1], x->scratch);
    }
}

/* Rows that have a label; those that have none are done with. */
static int64_t gather(const struct loss_run *x)
{
    const foci_loss_io *io = &x->io;
    const size_t        bytes = (size_t)io->width * foci_dtype_bytes(io->dtype);
    int64_t             n = 0;

    for (int64_t i = 0; i < io->rows; i++) {
        if (io->labels[i] >= 0) {
            x->at[n++] = i;
            continue;
        }
        if (io->row_loss) io->row_loss[i] = 0;
        if (io->best) io->best[i] = -1;
        if (x->backward && io->dh)
            memset(row_at(io->dh, io->dtype, i, io->width), 0, bytes);
    }
    return n;
}

static foci_status run_loss(foci_ctx *ctx, const foci_loss_io *given, bool backward,
                            foci_loss_sums *out)
{
    struct loss_run x = { .n = 0 };
    foci_loss_sums  sums = { FOCI_SIZED(foci_loss_sums) };

    TRY(check_ctx(ctx, backward ? "foci_loss_backward" : "foci_loss_forward"));
    TRY(open_loss(ctx, given, &x));
    if (out) TRY(sized_out(ctx, "foci_loss_sums", out, &sums, sizeof sums));
    if (!x.io.rows) return FOCI_OK;
    TRY(check_there(ctx, op, x.io.h && x.io.w && x.io.labels, "h, w or labels"));
    TRY(check_labels(ctx, &x.io));
    TRY(check_work(ctx, op, x.io.work, foci_loss_work_bytes(ctx, given, backward)));

    struct arena a = { .base = x.io.work };
    settle(ctx, &x, backward);
    loss_carve(&x, &a);
    const int64_t n = gather(&x);
    if (n) pack(&x);
    for (; x.begin < n; x.begin += x.n) {
        x.n = min64(x.most, n - x.begin);
        run_some(&x, &sums);
    }
    return out ? sized_out(ctx, "foci_loss_sums", out, &sums, sizeof sums) : FOCI_OK;
}

foci_status foci_loss_forward(foci_ctx *ctx, const foci_loss_io *io,
                              foci_loss_sums *sums)
{
    return run_loss(ctx, io, false, sums);
}

foci_status foci_loss_backward(foci_ctx *ctx, const foci_loss_io *io,
                               foci_loss_sums *sums)
{
    return run_loss(ctx, io, true, sums);
}
