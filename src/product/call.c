/* call.c -- the public product: each matrix is one part. */
#include <inttypes.h>
#include <string.h>

#include "product/call.h"

enum {
    KNOWN = FOCI_PRODUCT_TRANSPOSE_A | FOCI_PRODUCT_TRANSPOSE_B | FOCI_PRODUCT_ADD |
            FOCI_PRODUCT_FAST | FOCI_PRODUCT_GATED
};

bool call_has(const struct product_call *x, uint32_t flag)
{
    return x->io.flags & flag;
}

int64_t call_wide(const struct product_call *x)
{
    int64_t n = 0;

    if (!call_has(x, FOCI_PRODUCT_GATED)) return x->io.n;
    return __builtin_mul_overflow(x->io.n, 2, &n) ? INT64_MAX : n;
}

foci_status call_open(foci_ctx *ctx, const foci_product_io *io, struct product_call *x)
{
    *x = (struct product_call){ .io = { .size = 0 } };
    TRY(sized_in(ctx, "foci_product_io", &x->io, io, sizeof x->io));
    io = &x->io;

    const bool    transpose_a = call_has(x, FOCI_PRODUCT_TRANSPOSE_A);
    const bool    transpose_b = call_has(x, FOCI_PRODUCT_TRANSPOSE_B);
    const int64_t n = call_wide(x);
    const int64_t a = transpose_a ? io->m : io->k, b = transpose_b ? io->k : n;

    x->a = (struct product_part){ (void *)io->a, io->ld_a ? io->ld_a : a, a };
    x->b = (struct product_part){ (void *)io->b, io->ld_b ? io->ld_b : b, b };
    x->c = (struct product_part){ io->c, io->ld_c ? io->ld_c : io->n, io->n };
    x->p = (struct product){ .m = io->m,
                             .n = io->n,
                             .k = io->k,
                             .a = { &x->a, 1, io->type_a, transpose_a },
                             .b = { &x->b, 1, io->type_b, transpose_b },
                             .c = { &x->c, 1, io->type_c, false },
                             .add = call_has(x, FOCI_PRODUCT_ADD),
                             .fast = call_has(x, FOCI_PRODUCT_FAST),
                             .gated = call_has(x, FOCI_PRODUCT_GATED),
                             .packed = io->packed,
                             .bias = io->bias,
                             .act = io->act,
                             .pre = io->pre,
                             .ld_pre = io->ld_pre ? io->ld_pre : n,
                             .residual = io->residual,
                             .ld_residual = io->ld_residual ? io->ld_residual : io->n,
                             .drop = io->dropout,
                             .drop_seed = io->dropout_seed };
    return FOCI_OK;
}

foci_status call_check_rows(foci_ctx *ctx, const char *name, int64_t rows, int64_t cols,
                            int64_t ld)
{
    int64_t all = 0;

    if (ld < cols)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: rows of %s are %" PRId64 " elements long, and "
                        "ld_%s %" PRId64 " apart",
                        name, cols, name, ld);
    if (__builtin_mul_overflow(rows, ld, &all) || all > INT64_MAX / 4)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: %" PRId64 " rows of %s, %" PRId64
                        " elements apart, are more than can be counted",
                        rows, name, ld);
    return FOCI_OK;
}

static foci_status check_matrix(foci_ctx *ctx, const char *name, const struct matrix *m,
                                int64_t rows)
{
    if (m->dtype != FOCI_F32 && m->dtype != FOCI_BF16 && m->dtype != FOCI_F16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: type %d of %s is no foci_dtype",
                        (int)m->dtype, name);
    return call_check_rows(ctx, name, rows, m->parts->cols, m->parts->ld);
}

foci_status call_check_act(foci_ctx *ctx, foci_act act, double dropout)
{
    if ((int)act < FOCI_ACT_NONE || act > FOCI_ACT_SILU)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: activation %d is no foci_act, 0 to %d", (int)act,
                        FOCI_ACT_SILU);
    if (!(dropout >= 0 && dropout < 1))
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: dropout is 0 to below 1, not %g",
                        dropout);
    return FOCI_OK;
}

static foci_status check_following(foci_ctx *ctx, const struct product_call *x)
{
    const foci_product_io *io = &x->io;
    const bool some = io->bias || io->act != FOCI_ACT_NONE || io->pre || io->residual ||
                      io->dropout > 0 || x->p.gated;

    TRY(call_check_act(ctx, io->act, io->dropout));
    if (x->p.add && io->type_c != FOCI_F32)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: sums are added to f32 only");
    if (x->p.add && some)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: nothing follows sums that are added to c");
    TRY(call_check_rows(ctx, "pre", io->m, call_wide(x), x->p.ld_pre));
    return call_check_rows(ctx, "residual", io->m, io->n, x->p.ld_residual);
}

foci_status call_check(foci_ctx *ctx, const struct product_call *x)
{
    const foci_product_io *io = &x->io;

    if (io->m < 0 || io->n < 0 || io->k < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: m, n and k are at least 0, not %" PRId64 ", %" PRId64
                        " and %" PRId64,
                        io->m, io->n, io->k);
    if (io->flags & ~(uint32_t)KNOWN)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: flags %#" PRIx32 " are not known",
                        io->flags & ~(uint32_t)KNOWN);
    TRY(check_following(ctx, x));
    TRY(check_matrix(ctx, "a", &x->p.a, x->p.a.transposed ? io->k : io->m));
    TRY(check_matrix(ctx, "b", &x->p.b, x->p.b.transposed ? call_wide(x) : io->k));
    return check_matrix(ctx, "c", &x->p.c, io->m);
}

foci_status call_no_work(foci_ctx *ctx)
{
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "product: work is missing or not 64-byte aligned");
}

size_t foci_product_work_bytes(const foci_ctx *ctx, const foci_product_io *io)
{
    struct product_call x;

    if (!ctx || call_open(NULL, io, &x) || call_check(NULL, &x)) return SIZE_MAX;
    return product_bytes(ctx, &x.p);
}

static foci_status check_memory(foci_ctx *ctx, const struct product_call *x)
{
    const foci_product_io *io = &x->io;
    const bool             some = io->m && io->n;

    if ((some && io->k && (!io->a || !io->b)) || (some && !io->c))
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: a, b or c is missing");
    if (some && (!io->work || (uintptr_t)io->work % 64)) return call_no_work(ctx);
    return FOCI_OK;
}

size_t foci_product_pack_bytes(const foci_ctx *ctx, const foci_product_io *io)
{
    struct product_call x;

    if (!ctx || call_open(NULL, io, &x) || call_check(NULL, &x)) return SIZE_MAX;
    return product_pack_bytes(ctx, &x.p);
}

foci_status foci_product_pack(foci_ctx *ctx, const foci_product_io *io, void *packed)
{
    struct product_call x;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_product_pack: the context is NULL");
    TRY(call_open(ctx, io, &x));
    TRY(call_check(ctx, &x));
    const size_t bytes = product_pack_bytes(ctx, &x.p);
    if (bytes == SIZE_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: it does not fit into memory");
    if (!bytes) return FOCI_OK;
    if (!x.io.b) return ctx_fail(ctx, FOCI_ERR_ARG, "product: b is missing");
    if (!x.io.work || (uintptr_t)x.io.work % 64) return call_no_work(ctx);
    if (!packed || (uintptr_t)packed % 64)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: packed is missing or not 64-byte aligned");
    product_pack(ctx, &x.p, packed, x.io.work);
    return FOCI_OK;
}

foci_status foci_product(foci_ctx *ctx, const foci_product_io *io)
{
    struct product_call x;

    if (!ctx) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_product: the context is NULL");
    TRY(call_open(ctx, io, &x));
    TRY(call_check(ctx, &x));
    TRY(check_memory(ctx, &x));
    if (product_bytes(ctx, &x.p) == SIZE_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: it does not fit into memory");
    product_run(ctx, &x.p, x.io.work);
    return FOCI_OK;
}
