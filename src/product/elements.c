/* elements.c -- activations, gates, dropout and residuals on their own.
 *
 * Tiles of rows pass through floats in the first-level cache, so that the kernels of
 * epilogues serve here too.
 */
#include "product/elements.h"

#include "product/inside.h"

/* Columns of a job, and rows that are gone along at once: few, for which the hardware looks
 * ahead. */
enum { SPAN = 16 * TILE, FEW_ROWS = 8 };

struct elements_run {
    const struct kernels  *k;
    const struct elements *r;
    int64_t                across; /* jobs side by side */
};

/* A tile of a job: n rows from i on, d columns from c on. */
struct elements_tile {
    int64_t i, c;
    int     n, d;
};

static void *at(const struct elements_run *x, const void *rows, int64_t ld, int64_t i,
                int64_t c)
{
    return rows ? (char *)rows + (i * ld + c) * (int64_t)foci_dtype_bytes(x->r->dtype)
                : NULL;
}

static void load(const struct elements_run *x, float *out, const void *rows, int64_t ld,
                 struct elements_tile t, int64_t first)
{
    x->k->load_rows(out, TILE, at(x, rows, ld, t.i, first + t.c), ld, (int)x->r->dtype,
                    t.n, t.d);
}

/* Bits of what stays; NULL: all does. */
static const uint64_t *dropout_mask(const struct elements_run *x,
                                    struct elements_tile t, uint64_t *bits)
{
    const struct product p = { .drop = x->r->dropout, .drop_seed = x->r->seed };

    if (p.drop == 0) return NULL;
    product_dropout_mask(x->k, &p, t.i, t.n, t.c, bits);
    return bits;
}

static void forward_tile(const struct elements_run *x, struct elements_tile t)
{
    const struct elements *r = x->r;
    _Alignas(64) float     in[FEW_ROWS * TILE], up[FEW_ROWS * TILE];
    uint64_t               bits[FEW_ROWS];

    load(x, in, r->x, r->ld_x, t, 0);
    if (r->gated) load(x, up, r->x, r->ld_x, t, r->width);
    x->k->gemm_epilogue(
        at(x, r->y, r->ld_y, t.i, t.c), r->ld_y, (int)r->dtype, in, TILE,
        &(struct epilogue){ .up = r->gated ? up : NULL,
                            .act = (int)r->act,
                            .dropout_mask = dropout_mask(x, t, bits),
                            .factor = (float)(1 / (1 - r->dropout)),
                            .more = at(x, r->more, r->ld_more, t.i, t.c),
                            .ld_more = r->ld_more },
        t.n, t.d);
}

static void backward_tile(const struct elements_run *x, struct elements_tile t)
{
    const struct elements *r = x->r;
    _Alignas(64) float     in[FEW_ROWS * TILE];
    uint64_t               bits[FEW_ROWS];
    struct epilogue_back   f = { .act = (int)r->act,
                                 .pre = at(x, r->x, r->ld_x, t.i, t.c),
                                 .ld_pre = r->ld_x,
                                 .dropout_mask = dropout_mask(x, t, bits),
                                 .factor = (float)(1 / (1 - r->dropout)),
                                 .more = at(x, r->more, r->ld_more, t.i, t.c),
                                 .ld_more = r->ld_more };

    load(x, in, r->d, r->ld_d, t, 0);
    if (r->gated) {
        f.pre_up = at(x, r->x, r->ld_x, t.i, r->width + t.c);
        f.out_up = at(x, r->y, r->ld_y, t.i, r->width + t.c);
    }
    x->k->gemm_epilogue_back(at(x, r->y, r->ld_y, t.i, t.c), r->ld_y, (int)r->dtype, in,
                             TILE, &f, t.n, t.d);
}

static void each_tile(const struct elements_run *x, int64_t job,
                      void (*tile)(const struct elements_run *, struct elements_tile))
{
    const int64_t i0 = job / x->across * TILE, i1 = min64(i0 + TILE, x->r->rows);
    const int64_t c0 = job % x->across * SPAN, c1 = min64(c0 + SPAN, x->r->width);

    for (int64_t i = i0; i < i1; i += FEW_ROWS)
        for (int64_t c = c0; c < c1; c += TILE)
            tile(x, (struct elements_tile){ i, c, (int)min64(FEW_ROWS, i1 - i),
                                            (int)min64(TILE, c1 - c) });
}

static void forward_job(void *arg, int64_t job, int thread)
{
    (void)thread;
    each_tile(arg, job, forward_tile);
}

static void backward_job(void *arg, int64_t job, int thread)
{
    (void)thread;
    each_tile(arg, job, backward_tile);
}

static void elements_run(const foci_ctx *ctx, const struct elements *r,
                         void (*job)(void *, int64_t, int))
{
    struct elements_run x = { &ctx->kernels, r, div_up(r->width, SPAN) };
    const int64_t       jobs = div_up(r->rows, TILE) * x.across;
    const double        work = 8 * (double)r->rows * (double)r->width;

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, work),
               &(struct phase){ .n = jobs, .chunk = 1, .job = job, .arg = &x }, 1);
}

void elements_forward(const foci_ctx *ctx, const struct elements *r)
{
    elements_run(ctx, r, forward_job);
}

void elements_backward(const foci_ctx *ctx, const struct elements *r)
{
    elements_run(ctx, r, backward_job);
}
