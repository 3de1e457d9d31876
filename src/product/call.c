/* call.c -- the public product: one matrix a part. */
#include <inttypes.h>
#include <string.h>

#include "foci/product.h"
#include "product/product.h"

enum {
    KNOWN =
        FOCI_PRODUCT_TURN_A | FOCI_PRODUCT_TURN_B | FOCI_PRODUCT_ADD | FOCI_PRODUCT_FAST
};

struct call {
    foci_product_io io;
    struct part     a, b, c;
    struct product  p;
};

static bool flag(const struct call *x, uint32_t which) { return x->io.flags & which; }

/* The fields that the caller's struct has. */
static foci_status open_call(const foci_product_io *io, struct call *x)
{
    *x = (struct call){ .io = { .size = 0 } };
    if (!io || io->size < offsetof(foci_product_io, work)) return FOCI_ERR_ARG;
    memcpy(&x->io, io, io->size < sizeof x->io ? io->size : sizeof x->io);
    io = &x->io;

    const bool    turn_a = flag(x, FOCI_PRODUCT_TURN_A);
    const bool    turn_b = flag(x, FOCI_PRODUCT_TURN_B);
    const int64_t a = turn_a ? io->m : io->k, b = turn_b ? io->k : io->n;

    x->a = (struct part){ (void *)io->a, io->ld_a ? io->ld_a : a, a };
    x->b = (struct part){ (void *)io->b, io->ld_b ? io->ld_b : b, b };
    x->c = (struct part){ io->c, io->ld_c ? io->ld_c : io->n, io->n };
    x->p = (struct product){ .m = io->m,
                             .n = io->n,
                             .k = io->k,
                             .a = { &x->a, 1, io->type_a, turn_a },
                             .b = { &x->b, 1, io->type_b, turn_b },
                             .c = { &x->c, 1, io->type_c, false },
                             .add = flag(x, FOCI_PRODUCT_ADD),
                             .fast = flag(x, FOCI_PRODUCT_FAST) };
    return FOCI_OK;
}

static foci_status check_matrix(foci_ctx *ctx, const char *name, const struct matrix *m,
                                int64_t rows)
{
    const struct part *p = m->parts;
    int64_t            all = 0;

    if (m->dtype != FOCI_F32 && m->dtype != FOCI_BF16 && m->dtype != FOCI_F16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: type %d of %s is no foci_dtype",
                        (int)m->dtype, name);
    if (p->ld < p->cols)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: rows of %s are %" PRId64 " elements long, and "
                        "ld_%s %" PRId64 " apart",
                        name, p->cols, name, p->ld);
    if (__builtin_mul_overflow(rows, p->ld, &all) || all > INT64_MAX / 4)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: %" PRId64 " rows of %s, %" PRId64
                        " elements apart, are more than can be counted",
                        rows, name, p->ld);
    return FOCI_OK;
}

static foci_status check_extents(foci_ctx *ctx, const struct call *x)
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
    if (x->p.add && io->type_c != FOCI_F32)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: sums are added to f32 only");
    TRY(check_matrix(ctx, "a", &x->p.a, x->p.a.turned ? io->k : io->m));
    TRY(check_matrix(ctx, "b", &x->p.b, x->p.b.turned ? io->n : io->k));
    return check_matrix(ctx, "c", &x->p.c, io->m);
}

size_t foci_product_work(const foci_ctx *ctx, const foci_product_io *io)
{
    struct call x;

    if (!ctx || open_call(io, &x) || check_extents(NULL, &x)) return SIZE_MAX;
    return product_bytes(ctx, &x.p);
}

static foci_status check_memory(foci_ctx *ctx, const struct call *x)
{
    const foci_product_io *io = &x->io;
    const bool             some = io->m && io->n;

    if ((some && io->k && (!io->a || !io->b)) || (some && !io->c))
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: a, b or c is missing");
    if (some && (!io->work || (uintptr_t)io->work % 64))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "product: work is missing or not 64-byte aligned");
    return FOCI_OK;
}

foci_status foci_product(foci_ctx *ctx, const foci_product_io *io)
{
    struct call x;

    if (!ctx) return FOCI_ERR_ARG;
    if (open_call(io, &x))
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: no struct, or its size is %s",
                        io ? "too small" : "not set");
    TRY(check_extents(ctx, &x));
    TRY(check_memory(ctx, &x));
    if (product_bytes(ctx, &x.p) == SIZE_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "product: it does not fit into memory");
    product_run(ctx, &x.p, x.io.work);
    return FOCI_OK;
}
