/* back.c -- the gradients of a public product:
 *
 *     dz = drop(dc) act'(pre)   da = da_more + dz b^T   db += a^T dz   dbias += 1^T dz
 *
 * dz is computed on its own unless a product before has computed it (dc_is_dz).
 */
#include <inttypes.h>

#include "product/call.h"
#include "product/columns.h"
#include "product/elements.h"

struct product_back {
    struct product_call x;
    foci_product_grads  g;
    int64_t             wide; /* columns of dz */
    struct product_part dz, da, db;
    struct product      to_a, to_b;
    /* Of work. */
    void  *made; /* dz */
    float *partial;
    void  *scratch; /* of the products */
};

static bool makes_dz(const struct product_back *b)
{
    const foci_product_io *io = &b->x.io;

    return !b->g.dc_is_dz &&
           (io->act != FOCI_ACT_NONE || io->dropout > 0 || b->x.p.gated);
}

/* Whether da is more than dz b^T. */
static bool follows(const foci_product_grads *g)
{
    return g->act_a != FOCI_ACT_NONE || g->gated_a || g->dropout_a > 0;
}

/* The products, of which dz may move. */
static void say(struct product_back *b)
{
    const foci_product_io    *io = &b->x.io;
    const foci_product_grads *g = &b->g;
    const struct matrix       dz = { &b->dz, 1, io->type_c, false };

    b->to_a = (struct product){ .m = io->m,
                                .n = io->k,
                                .k = b->wide,
                                .a = dz,
                                .b = b->x.p.b,
                                .c = { &b->da, 1, io->type_a, false },
                                .fast = b->x.p.fast,
                                .gated = g->gated_a != 0,
                                .back = follows(g),
                                .act = g->act_a,
                                .pre = (void *)g->pre_a,
                                .ld_pre = g->ld_pre_a,
                                .residual = g->da_more,
                                .drop = g->dropout_a,
                                .drop_seed = g->dropout_a_seed };
    b->to_a.b.transposed = !b->to_a.b.transposed;
    b->to_b = (struct product){ .m = io->k,
                                .n = b->wide,
                                .k = io->m,
                                .a = b->x.p.a,
                                .b = dz,
                                .c = { &b->db, 1, FOCI_F32, false },
                                .add = true,
                                .fast = b->x.p.fast };
    b->to_b.a.transposed = true;
    if (!b->x.p.b.transposed) return;
    b->to_b.m = b->wide;
    b->to_b.n = io->k;
    b->to_b.a = dz;
    b->to_b.a.transposed = true;
    b->to_b.b = b->x.p.a;
}

static foci_status open_back(foci_ctx *ctx, const foci_product_io *io,
                             const foci_product_grads *grads, struct product_back *b)
{
    foci_product_grads *const g = &b->g;

    *b = (struct product_back){ .wide = 0 };
    TRY(call_open(ctx, io, &b->x));
    TRY(sized_in(ctx, "foci_product_grads", g, grads, sizeof *g));
    io = &b->x.io;
    b->wide = call_wide(&b->x);

    const bool    far = io->k < 0 || io->k > INT64_MAX / 2;
    const int64_t wide_a = far ? INT64_MAX : io->k * (g->gated_a ? 2 : 1);
    if (!g->ld_dc) g->ld_dc = g->dc_is_dz ? b->wide : io->n;
    if (!g->ld_da) g->ld_da = wide_a;
    if (!g->ld_pre_a) g->ld_pre_a = wide_a;
    if (!g->ld_db) g->ld_db = b->x.p.b.transposed ? io->k : b->wide;
    b->dz = (struct product_part){ (void *)g->dc, g->ld_dc, b->wide };
    b->da = (struct product_part){ g->da, g->ld_da, io->k };
    b->db =
        (struct product_part){ g->db, g->ld_db, b->x.p.b.transposed ? io->k : b->wide };
    return FOCI_OK;
}

/*
 * Checks
 */

static foci_status check_a(foci_ctx *ctx, const struct product_back *b)
{
    const foci_product_grads *g = &b->g;
    const int64_t             cols = (g->gated_a ? 2 : 1) * b->x.io.k;

    TRY(call_check_act(ctx, g->act_a, g->dropout_a));
    if (g->gated_a && g->da_more)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: nothing can be added to da where a is gated");
    TRY(call_check_rows(ctx, "pre_a", b->x.io.m, cols, g->ld_pre_a));
    return call_check_rows(ctx, "da", b->x.io.m, cols, g->ld_da);
}

static foci_status back_check(foci_ctx *ctx, const struct product_back *b)
{
    const foci_product_io *io = &b->x.io;

    TRY(call_check(ctx, &b->x));
    if (b->x.p.add || b->x.p.a.transposed)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "product: gradients are offered without FOCI_PRODUCT_ADD and "
                        "FOCI_PRODUCT_TRANSPOSE_A");
    if (io->k > INT64_MAX / 8 || b->wide > INT64_MAX / 8)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: n %" PRId64 " or k %" PRId64 " is too large", io->n,
                        io->k);
    TRY(check_a(ctx, b));
    TRY(call_check_rows(ctx, "dc", io->m, b->g.dc_is_dz ? b->wide : io->n, b->g.ld_dc));
    return call_check_rows(ctx, "db", b->x.p.b.transposed ? b->wide : io->k, b->db.cols,
                           b->g.ld_db);
}

static foci_status check_pointers(foci_ctx *ctx, const struct product_back *b)
{
    const foci_product_io    *io = &b->x.io;
    const foci_product_grads *g = &b->g;

    if (b->wide && !g->dc) return ctx_fail(ctx, FOCI_ERR_ARG, "product: dc is missing");
    if (b->wide && io->k && ((g->da && !io->b) || (g->db && !io->a)))
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: a or b is missing");
    if (g->da && (g->act_a != FOCI_ACT_NONE || g->gated_a) && !g->pre_a)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: a has an activation, and pre_a is missing");
    if (makes_dz(b) && (io->act != FOCI_ACT_NONE || b->x.p.gated) && !io->pre)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: pre is missing, which the activation needs");
    if (!g->work || (uintptr_t)g->work % 64) return call_no_work(ctx);
    return FOCI_OK;
}

/*
 * Memory and execution
 */

static void back_carve(const foci_ctx *ctx, struct product_back *b, struct arena *a)
{
    const foci_product_io *io = &b->x.io;
    const size_t           to_a = product_bytes(ctx, &b->to_a),
                 to_b = product_bytes(ctx, &b->to_b);
    const size_t most = to_a > to_b ? to_a : to_b;
    int64_t      all = 0;

    if (__builtin_mul_overflow(io->m, b->wide, &all)) a->used = SIZE_MAX;
    b->made = arena_alloc(a, makes_dz(b) ? all : 0, foci_dtype_bytes(io->type_c));
    b->partial = columns_alloc(a, io->m, b->wide);
    if (most == SIZE_MAX) a->used = SIZE_MAX;
    b->scratch = arena_alloc(a, (int64_t)(most / 64), 64);
}

static size_t bytes_of(const foci_ctx *ctx, struct product_back *b)
{
    struct arena a = { .base = NULL };

    say(b);
    back_carve(ctx, b, &a);
    return arena_ok(&a) ? a.used : SIZE_MAX;
}

size_t foci_product_grads_work_bytes(const foci_ctx *ctx, const foci_product_io *io,
                                     const foci_product_grads *grads)
{
    struct product_back b;

    if (!ctx || open_back(NULL, io, grads, &b) || back_check(NULL, &b)) return SIZE_MAX;
    return bytes_of(ctx, &b);
}

static void make_dz(const foci_ctx *ctx, struct product_back *b)
{
    const foci_product_io *io = &b->x.io;

    elements_backward(ctx, &(struct elements){ .dtype = io->type_c,
                                               .act = io->act,
                                               .gated = b->x.p.gated,
                                               .rows = io->m,
                                               .width = io->n,
                                               .x = io->pre,
                                               .d = b->g.dc,
                                               .y = b->made,
                                               .ld_x = b->x.p.ld_pre,
                                               .ld_d = b->g.ld_dc,
                                               .ld_y = b->wide,
                                               .dropout = io->dropout,
                                               .seed = io->dropout_seed });
    b->dz.data = b->made;
    b->dz.ld = b->wide;
}

foci_status foci_product_backward(foci_ctx *ctx, const foci_product_io *io,
                                  const foci_product_grads *grads)
{
    struct product_back b;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "foci_product_backward: the context is NULL");
    TRY(open_back(ctx, io, grads, &b));
    TRY(back_check(ctx, &b));
    if (!b.x.io.m) return FOCI_OK;
    TRY(check_pointers(ctx, &b));
    if (bytes_of(ctx, &b) == SIZE_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: it does not fit into memory");

    struct arena a = { .base = b.g.work };
    back_carve(ctx, &b, &a);
    if (makes_dz(&b)) make_dz(ctx, &b);
    if (b.g.da) product_run(ctx, &b.to_a, b.scratch);
    if (b.g.db) product_run(ctx, &b.to_b, b.scratch);
    if (b.g.dbias)
        columns_sum(ctx,
                    &(struct product_columns){ b.x.io.type_c, b.x.io.m, b.wide, b.dz.ld,
                                               b.dz.data },
                    b.g.dbias, b.partial);
    return FOCI_OK;
}
