/* columns.c -- sums of rows: partial sums of SUM_ROWS rows each, then the sum of these, the
 * same for any number of threads. */
#include "product/columns.h"

#include <string.h>

enum { COLS = 1024 }; /* of a job that sums rows, */
enum { FEWER = 64 };  /* and of one that adds parts up */

struct columns_run {
    const struct kernels         *k;
    const struct product_columns *r;
    float                        *partial; /* [n][ld] */
    int64_t                       n, width, ld;
    float                        *out;
};

float *columns_alloc(struct arena *a, int64_t rows, int64_t width)
{
    int64_t all = 0;

    if (__builtin_mul_overflow(div_up(rows, SUM_ROWS), width, &all)) a->used = SIZE_MAX;
    return arena_alloc(a, all, sizeof(float));
}

static void part_job(void *arg, int64_t job, int thread)
{
    const struct columns_run     *x = arg;
    const struct product_columns *r = x->r;
    const int64_t                 across = div_up(x->width, COLS);
    const int64_t                 part = job / across, c = job % across * COLS;
    const int64_t                 at = part * SUM_ROWS * r->ld + c;
    float *const                  out = x->partial + part * x->ld + c;
    const int                     d = (int)min64(COLS, x->width - c);

    (void)thread;
    memset(out, 0, (size_t)d * sizeof *out);
    x->k->col_sums(out, (const char *)r->in + at * (int64_t)foci_dtype_bytes(r->dtype),
                   r->ld, (int)r->dtype,
                   (int)min64(SUM_ROWS, r->rows - part * SUM_ROWS), d);
}

static void add_job(void *arg, int64_t job, int thread)
{
    const struct columns_run *x = arg;
    const int64_t             c = job * FEWER;
    const int                 d = (int)min64(FEWER, x->width - c);
    float                     sum[FEWER] = { 0 };

    (void)thread;
    for (int64_t i = 0; i < x->n; i += SUM_ROWS)
        x->k->col_sums(sum, x->partial + i * x->ld + c, x->ld, FOCI_F32,
                       (int)min64(SUM_ROWS, x->n - i), d);
    x->k->add_scaled(x->out + c, FOCI_F32, sum, FOCI_F32, 1, x->out + c, FOCI_F32, d);
}

static void columns_run(const foci_ctx *ctx, struct columns_run *x)
{
    const int64_t      jobs = x->n * div_up(x->width, COLS);
    const int64_t      last = div_up(x->width, FEWER);
    const double       rows = x->r ? (double)x->r->rows : (double)x->n;
    const struct phase phases[] = {
        { .n = x->r ? jobs : 0, .chunk = 1, .job = part_job, .arg = x },
        { .n = last, .chunk = 1, .job = add_job, .arg = x },
    };

    phases_run(&ctx->kernels, false,
               jobs_threads(ctx->threads, max64(jobs, last), rows * (double)x->width),
               phases, 2);
}

void columns_sum(const foci_ctx *ctx, const struct product_columns *r, float *out,
                 float *partial)
{
    const int64_t n = div_up(r->rows, SUM_ROWS);

    columns_run(ctx, &(struct columns_run){ &ctx->kernels, r, partial, n, r->width,
                                            r->width, out });
}

void columns_add(const foci_ctx *ctx, const float *partial, int64_t n, int64_t width,
                 int64_t ld, float *out)
{
    columns_run(ctx, &(struct columns_run){ &ctx->kernels, NULL, (float *)partial, n,
                                            width, ld, out });
}
