/* hadamard.c -- projections that are a transform.
 *
 *     y = x D1 H P1 D2 H P2 D3 H, of which the first columns are kept
 *     dx = dy H D3 P2' H D2 P1' H D1
 *
 * 16 rows are lanes, so that a permutation is a choice of vectors to load and every step of
 * H adds and subtracts whole vectors.  Of the last H only the columns that are kept are
 * computed, and the backward pass starts from as many: the first n columns of H on a longer
 * run are H on n elements, of the sum of the run's parts; and the first n rows of it are H
 * on n elements, repeated.
 */
#include <string.h>

#include "layer/frozen.h"

/* The shape of a transform. */
struct hadamard_shape {
    int64_t width, run; /* a power of two that divides the width */
    int64_t kept;       /* columns */
    int64_t last;       /* elements of the last H: of a part, if a run keeps fewer */
    int64_t runs;       /* of the last H */
};

static struct hadamard_shape shape_of(const struct frozen *f)
{
    struct hadamard_shape s = { .width = f->width,
                                .run = f->width & -f->width,
                                .kept = f->block ? f->heads * f->dim : f->dim,
                                .last = 1 };

    while (s.last < s.run && s.last < s.kept)
        s.last *= 2;
    s.runs = div_up(s.kept, s.last);
    return s;
}

int64_t hadamard_last(const struct frozen *f) { return shape_of(f).last; }

struct hadamard_job {
    const struct kernels       *k;
    const struct hadamard_rows *at;
    struct hadamard_shape       s;
    const void                 *x, *g;
    void                       *out;
    float                      *dx;
};

enum { N_BUFFERS = 4 }; /* the last one on the way back */

static float *buffer(const struct hadamard_job *r, int thread, int which)
{
    float *const work = r->at->work;
    return work + (thread * N_BUFFERS + which) * r->s.width * FEW_LANES;
}

static const float *factors(const struct hadamard_job *r, int64_t which, int i)
{
    return r->at->f->factors + (which * N_FACTORS + i) * r->s.width;
}

static const int32_t *places(const struct hadamard_job *r, int64_t which, int i)
{
    return r->at->f->places + (which * N_PLACES + i) * r->s.width;
}

static const void *element(const void *p, foci_dtype dtype, int64_t i)
{
    return (const char *)p + i * (dtype == FOCI_F32 ? 4 : 2);
}

/* H on all runs of in[from[t]] factor[t]. */
static void all_runs(const struct hadamard_job *r, float *out, const float *in,
                     const int32_t *from, const float *factor)
{
    const int64_t n = r->s.run;

    for (int64_t t = 0; t < r->s.width; t += n)
        r->k->hadamard(out + t * FEW_LANES, from ? in : in + t * FEW_LANES,
                       from ? from + t : NULL, factor + t, (int)n, 1);
}

/*
 * Forward
 */

/* Lanes x to the columns that are kept, in a buffer of the thread. */
static const float *transform(const struct hadamard_job *r, int64_t which, int thread)
{
    const struct hadamard_shape s = r->s;
    float *const                x = buffer(r, thread, 0);
    float *const a = buffer(r, thread, 1), *const b = buffer(r, thread, 2);

    all_runs(r, a, x, NULL, factors(r, which, FACTOR_1));
    all_runs(r, b, a, places(r, which, PLACE_1), factors(r, which, FACTOR_2));
    for (int64_t t = 0; t < s.runs * s.last; t += s.last)
        r->k->hadamard(a + t * FEW_LANES, b, places(r, which, PLACE_2) + t,
                       factors(r, which, FACTOR_3) + t, (int)s.last,
                       (int)(s.run / s.last));
    return a;
}

static void forward_rows(void *arg, int64_t i, int thread)
{
    const struct hadamard_job *r = arg;
    const int64_t              first = i * FEW_LANES, dim = r->at->f->dim;
    const int                  n = (int)min64(FEW_LANES, r->at->m - first);
    const float               *y = NULL;

    r->k->transpose_load(buffer(r, thread, 0),
                         element(r->x, r->at->dtype, first * r->at->ldx), r->at->ldx,
                         (int)r->at->dtype, n, (int)r->s.width);
    for (int64_t h = 0; h < r->at->f->heads; h++) {
        if (!y || !r->at->f->block) y = transform(r, h, thread);
        const int64_t at = h * r->at->head + first * r->at->row;
        r->k->transpose_store((char *)r->out + at * (r->at->dtype == FOCI_F32 ? 4 : 2),
                              r->at->row, (int)r->at->dtype,
                              y + (r->at->f->block ? h * dim * FEW_LANES : 0), n,
                              (int)dim);
    }
}

/*
 * Backward
 */

/* The gradient of what is kept, in buffer 0, to that of x but for D1, in buffer 1. */
static void transform_back(const struct hadamard_job *r, int64_t which, int thread)
{
    const struct hadamard_shape s = r->s;
    float *const                x = buffer(r, thread, 0);
    float *const a = buffer(r, thread, 1), *const b = buffer(r, thread, 2);

    memset(x + s.kept * FEW_LANES, 0,
           (size_t)((s.runs * s.last - s.kept) * FEW_LANES) * sizeof *x);
    for (int64_t t = 0; t < s.runs * s.last; t += s.last)
        r->k->hadamard(a + t * FEW_LANES, x + t * FEW_LANES, NULL, NULL, (int)s.last, 1);
    for (int64_t t = max64(s.runs * s.last, s.run); t < s.width; t++)
        memset(a + t * FEW_LANES, 0, FEW_LANES * sizeof *a);
    all_runs(r, b, a, places(r, which, PLACE_BACK_2), factors(r, which, FACTOR_BACK_3));
    all_runs(r, a, b, places(r, which, PLACE_BACK_1), factors(r, which, FACTOR_BACK_2));
}

/* Of one transform, whose gradients stand in buffer 0, at once. */
static void block_back(const struct hadamard_job *r, int64_t first, int n, int thread)
{
    transform_back(r, 0, thread);
    r->k->transpose_add(r->dx + first * r->at->ldx, r->at->ldx, buffer(r, thread, 1),
                        factors(r, 0, FACTOR_1), n, (int)r->s.width);
}

static void load_head(const struct hadamard_job *r, int64_t head, int64_t first, int n,
                      float *to)
{
    r->k->transpose_load(
        to, element(r->g, r->at->dtype, head * r->at->head + first * r->at->row),
        r->at->row, (int)r->at->dtype, n, (int)r->at->f->dim);
}

/* Heads are added up as they stand: rows a power of two apart share few lines of a cache. */
static void backward_rows(void *arg, int64_t i, int thread)
{
    const struct hadamard_job *r = arg;
    const int64_t              first = i * FEW_LANES, heads = r->at->f->heads;
    const int    n = (int)min64(FEW_LANES, r->at->m - first), d = (int)r->s.width;
    float *const g = buffer(r, thread, 0), *const sum = buffer(r, thread, 3);

    if (r->at->f->block || heads == 1) {
        for (int64_t h = 0; h < heads; h++)
            load_head(r, h, first, n, g + h * r->at->f->dim * FEW_LANES);
        block_back(r, first, n, thread);
        return;
    }
    memset(sum, 0, (size_t)d * FEW_LANES * sizeof *sum);
    for (int64_t h = 0; h < heads; h++) {
        load_head(r, h, first, n, g);
        transform_back(r, h, thread);
        r->k->add_rows(sum, buffer(r, thread, 1), factors(r, h, FACTOR_1), d);
    }
    r->k->transpose_add(r->dx + first * r->at->ldx, r->at->ldx, sum, NULL, n, d);
}

/*
 * Rows shared out to threads
 */

size_t hadamard_bytes(const foci_ctx *ctx, const struct frozen *f)
{
    return (size_t)ctx->threads * N_BUFFERS * (size_t)f->width * FEW_LANES *
           sizeof(float);
}

static void hadamard_start(const foci_ctx *ctx, struct hadamard_job *r,
                           void (*job)(void *arg, int64_t i, int thread))
{
    enum { STEPS = 32 }; /* operations an element, about */
    const int64_t      jobs = div_up(r->at->m, FEW_LANES);
    const struct phase phase = { .n = jobs, .chunk = 1, .job = job, .arg = r };
    const double       flops = STEPS * (double)r->at->m * (double)r->s.width;

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, jobs, flops), &phase, 1);
}

void hadamard_run(const foci_ctx *ctx, const struct hadamard_rows *at, const void *x,
                  void *out)
{
    struct hadamard_job r = { &ctx->kernels, at, shape_of(at->f), .x = x, .out = out };
    hadamard_start(ctx, &r, forward_rows);
}

void hadamard_back(const foci_ctx *ctx, const struct hadamard_rows *at, const void *g,
                   float *dx)
{
    struct hadamard_job r = { &ctx->kernels, at, shape_of(at->f), .g = g, .dx = dx };
    hadamard_start(ctx, &r, backward_rows);
}

/*
 * Written out
 */

/* Unit vectors, 16 at a time. */
static void write_rows(const foci_ctx *ctx, const struct frozen *f, float *units,
                       void *work, float *out)
{
    const int64_t        n = f->width, ld = f->heads * f->dim;
    struct hadamard_rows at = { f, FOCI_F32, 0, n, ld, f->dim, work };

    for (int64_t first = 0; first < n; first += FEW_LANES) {
        at.m = min64(FEW_LANES, n - first);
        memset(units, 0, (size_t)(FEW_LANES * n) * sizeof *units);
        for (int64_t i = 0; i < at.m; i++)
            units[i * n + first + i] = 1;
        hadamard_run(ctx, &at, units, out + first * ld);
    }
}

foci_status frozen_write(const struct frozen *f, float *out)
{
    enum { ALIGNED = 64 };
    foci_ctx *const ctx = f->ctx;
    const size_t    n = (size_t)(FEW_LANES * f->width);
    const size_t    bytes = hadamard_bytes(ctx, f) + ALIGNED;

    if (f->dense) {
        memcpy(out, f->dense, (size_t)(f->width * f->heads * f->dim) * sizeof *f->dense);
        return FOCI_OK;
    }
    float *const units = ctx_alloc(ctx, n, sizeof *units);
    char *const  work = units ? ctx_alloc(ctx, bytes, 1) : NULL;
    if (work)
        write_rows(ctx, f, units, work + (ALIGNED - (uintptr_t)work % ALIGNED), out);
    ctx_free(ctx, work, bytes, 1);
    ctx_free(ctx, units, n, sizeof *units);
    return work ? FOCI_OK : FOCI_ERR_MEMORY;
}
