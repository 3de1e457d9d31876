/* logits.c -- logits of some rows: a product with the table of the embedding. */
#include <inttypes.h>
#include <string.h>

#include "ops/check.h"
#include "product/product.h"

static const char op[] = "logits";

struct logits_run {
    foci_logits_io      io;
    struct product_part a, b, c;
    struct product      p;
    void               *h, *scratch;
};

static foci_status open_logits(foci_ctx *ctx, const foci_logits_io *given,
                               struct logits_run *x)
{
    foci_logits_io *const io = &x->io;

    TRY(sized_in(ctx, "foci_logits_io", io, given, sizeof *io));
    TRY(check_rows(ctx, op, io->dtype, io->rows, io->width));
    TRY(check_extent(ctx, op, "vocab", io->vocab, 1, MOST_WIDTH));
    if (io->flags & ~(uint32_t)FOCI_LOSS_FAST)
        return ctx_fail(ctx, FOCI_ERR_ARG, "logits: flags %#" PRIx32 " are not known",
                        io->flags & ~(uint32_t)FOCI_LOSS_FAST);
    if (io->type_w != FOCI_F32 && io->type_w != FOCI_BF16)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "logits: type_w is %d: it may be f32 or bf16", (int)io->type_w);
    TRY(check_extent(ctx, op, "n", io->n, 0,
                     INT64_MAX / 16 / max64(io->vocab, io->width)));

    x->a = (struct product_part){ (void *)io->h, io->width, io->width };
    x->b = (struct product_part){ (void *)io->w, io->width, io->width };
    x->c = (struct product_part){ io->logits, io->vocab, io->vocab };
    x->p = (struct product){ .m = io->n,
                             .n = io->vocab,
                             .k = io->width,
                             .a = { &x->a, 1, io->dtype, false },
                             .b = { &x->b, 1, io->type_w, true },
                             .c = { &x->c, 1, FOCI_F32, false },
                             .packed = io->packed,
                             .bias = io->bias,
                             .fast = io->flags & FOCI_LOSS_FAST };
    return FOCI_OK;
}

static void logits_carve(const foci_ctx *ctx, struct logits_run *x, struct arena *a)
{
    const size_t bytes = product_bytes(ctx, &x->p);

    x->h = arena_alloc(a, x->io.n, (size_t)x->io.width * foci_dtype_bytes(x->io.dtype));
    if (bytes == SIZE_MAX) a->used = SIZE_MAX;
    x->scratch = arena_alloc(a, (int64_t)(bytes / 64), 64);
}

size_t foci_logits_work_bytes(const foci_ctx *ctx, const foci_logits_io *given)
{
    struct arena      a = { .base = NULL };
    struct logits_run x;

    if (!ctx || open_logits(NULL, given, &x)) return SIZE_MAX;
    logits_carve(ctx, &x, &a);
    return bytes_of(&a);
}

static foci_status pick_rows(foci_ctx *ctx, struct logits_run *x)
{
    const foci_logits_io *io = &x->io;
    const size_t          bytes = (size_t)io->width * foci_dtype_bytes(io->dtype);

    for (int64_t i = 0; i < io->n; i++) {
        if (io->pick[i] < 0 || io->pick[i] >= io->rows)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "logits: pick %" PRId32 " is not 0 to %" PRId64,
                            io->pick[i], io->rows - 1);
        memcpy(row_at(x->h, io->dtype, i, io->width),
               row_at(io->h, io->dtype, io->pick[i], io->width), bytes);
    }
    x->a.data = x->h;
    return FOCI_OK;
}

foci_status foci_logits(foci_ctx *ctx, const foci_logits_io *given)
{
    struct arena      a = { .base = NULL };
    struct logits_run x;

    TRY(check_ctx(ctx, "foci_logits"));
    TRY(open_logits(ctx, given, &x));
    if (!x.io.pick && x.io.n != x.io.rows)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "logits: n is %" PRId64 " and rows %" PRId64
                        ", which are equal where pick is not given",
                        x.io.n, x.io.rows);
    if (!x.io.n) return FOCI_OK;
    TRY(check_there(ctx, op, x.io.h && x.io.w && x.io.logits, "h, w or logits"));
    TRY(check_work(ctx, op, x.io.work, foci_logits_work_bytes(ctx, given)));

    a.base = x.io.work;
    logits_carve(ctx, &x, &a);
    if (x.io.pick) TRY(pick_rows(ctx, &x));
    product_run(ctx, &x.p, x.scratch);
    return FOCI_OK;
}
