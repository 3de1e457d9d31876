/* act.c -- activations, gates, dropout and residuals on their own (product/elements.h). */
#include "product/elements.h"

#include "ops/check.h"

static const char op[] = "act";

static foci_status open_act(foci_ctx *ctx, const foci_act_io *given, foci_act_io *io)
{
    TRY(sized_in(ctx, "foci_act_io", io, given, sizeof *io));
    TRY(check_rows(ctx, op, io->dtype, io->rows, io->width));
    if ((int)io->act < FOCI_ACT_NONE || io->act > FOCI_ACT_SILU)
        return ctx_fail(ctx, FOCI_ERR_ARG, "act: activation %d is no foci_act, 0 to %d",
                        (int)io->act, FOCI_ACT_SILU);
    return check_share(ctx, op, "dropout", io->dropout);
}

static struct elements rows_of(const foci_act_io *io)
{
    const int64_t wide = io->gated ? 2 * io->width : io->width;

    return (struct elements){ .dtype = io->dtype,
                              .act = io->act,
                              .gated = io->gated != 0,
                              .rows = io->rows,
                              .width = io->width,
                              .x = io->x,
                              .ld_x = wide,
                              .ld_more = io->width,
                              .ld_d = io->width,
                              .dropout = io->dropout,
                              .seed = io->dropout_seed };
}

foci_status foci_act_forward(foci_ctx *ctx, const foci_act_io *given)
{
    foci_act_io io;

    TRY(check_ctx(ctx, "foci_act_forward"));
    TRY(open_act(ctx, given, &io));
    TRY(check_there(ctx, op, !io.rows || (io.x && io.y), "x or y"));

    struct elements r = rows_of(&io);
    r.more = io.residual;
    r.y = io.y;
    r.ld_y = io.width;
    elements_forward(ctx, &r);
    return FOCI_OK;
}

foci_status foci_act_backward(foci_ctx *ctx, const foci_act_io *given)
{
    foci_act_io io;

    TRY(check_ctx(ctx, "foci_act_backward"));
    TRY(open_act(ctx, given, &io));
    TRY(check_there(ctx, op, !io.rows || (io.dy && io.dx), "dy or dx"));
    TRY(check_there(ctx, op, !io.rows || io.x || (io.act == FOCI_ACT_NONE && !io.gated),
                    "x"));
    if (io.gated && io.more)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "act: nothing can be added to dx where x is gated");

    struct elements r = rows_of(&io);
    r.d = io.dy;
    r.more = io.more;
    r.y = io.dx;
    r.ld_y = r.ld_x;
    elements_backward(ctx, &r);
    return FOCI_OK;
}
