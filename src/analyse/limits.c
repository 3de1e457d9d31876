/* limits.c -- how the heads of frozen projections approach what they tend to.
 *
 * With logits z = s xW_Q . yW_K of hidden states of width d, W of k columns and s = 1/sqrt(k):
 *
 *     tied      E z = s (k/d) x.y,  Var z = s^2 |x|^2 |y|^2 f,  with the cosine c of x and y
 *               frames f = k (d - k) / (d (d - 1) (d + 2)) (1 + c^2 (d - 2)/d)
 *               normal f = k/d^2 (1 + c^2)
 *     not tied  E z = 0,            Var z = s^2 |x|^2 |y|^2 k/d^2
 *
 * The mean of the logits of H heads drawn apart has 1/H of the variance.  Wide heads, k = d,
 * that are tied frames have none: their weights are those of x.y itself.  Without a tie the
 * variance does not fall with k, as s^2 k is 1: only the mean of many heads becomes uniform.
 * Weights e^z of normal z with variance v differ from their mean by sqrt(e^v - 1) of it.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "foci/analyse.h"
#include "layer/frozen.h"

enum { STREAM_Q = 10, STREAM_K = 11, STREAM_X = 1 << 20 };

/* Sums of what is drawn again and again. */
struct limit_sample {
    double n, one, two;
};

struct limits {
    foci_ctx      *ctx;
    foci_limits_io io;
    int64_t        most;          /* columns of all heads of a draw */
    double        *x;             /* [rows][width] */
    double        *length;        /* [rows] */
    double        *mean, *limit;  /* [rows][rows] logits, and weights */
    double        *z, *a;         /* likewise, of a head */
    double        *sum_z, *sum_a; /* likewise, summed over heads */
    float         *wq, *wk;       /* [width][heads dim] */
    double        *q, *k;         /* [rows][dim] */
};

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add(struct limit_sample *s, double x)
{
    s->n += 1;
    s->one += x;
    s->two += x * x;
}

/* The root of the mean of squares, its standard error, and that of what is expected. */
static foci_figure root_of(const struct limit_sample *s, double expected)
{
    const double mean = s->one / s->n, root = sqrt(mean);
    const double variance = fmax(s->two / s->n - mean * mean, 0);
    const double error = root > 0 ? sqrt(variance / s->n) / (2 * root) : 0;

    return (foci_figure){ root, error, expected };
}

/*
 * Limits
 */

/* Var z over s^2 |x|^2 |y|^2. */
static double share_of_variance(const struct limits *l, const foci_limit *at, double c)
{
    const double d = (double)l->io.width, k = (double)at->dim;

    if (!at->tied) return k / (d * d);
    if (at->kind == FROZEN_GAUSSIAN) return k / (d * d) * (1 + c * c);
    return d > 1 ? k * (d - k) / (d * (d - 1) * (d + 2)) * (1 + c * c * (d - 2) / d)
                 : 0;
}

static void soften(const struct limits *l, const double *z, double *a)
{
    const int64_t n = l->io.rows;

    for (int64_t i = 0; i < n; i++) {
        const double *row = z + i * n;
        double        most = row[0], sum = 0;
        for (int64_t j = 0; j < n; j++)
            most = fmax(most, row[j]);
        for (int64_t j = 0; j < n; j++)
            sum += a[i * n + j] = exp(row[j] - most);
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] /= sum;
    }
}

/* Mean logits and their weights; the mean over pairs of the variance, and of that of the
 * kernel. */
static void find_limit(struct limits *l, const foci_limit *at, double *variance,
                       double *kernel)
{
    const int64_t n = l->io.rows, d = l->io.width;
    const double s = 1 / sqrt((double)at->dim), scale = s * (double)at->dim / (double)d;
    double       lengths = 0;

    *variance = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            const double xy = dot(l->x + i * d, l->x + j * d, d);
            const double both = l->length[i] * l->length[j];
            l->mean[i * n + j] = at->tied ? scale * xy : 0;
            *variance += s * s * both * both *
                         share_of_variance(l, at, both > 0 ? xy / both : 0);
            lengths += both * both;
        }
    *variance /= (double)(n * n);
    *kernel = lengths / (double)(n * n) * scale * scale;
    soften(l, l->mean, l->limit);
}

/*
 * Heads
 */

/* to[rows][dim] = x W of a head. */
static void project_all(const struct limits *l, const foci_limit *at, const float *w,
                        int64_t head, double *to)
{
    const int64_t cols = l->io.heads * at->dim, dim = at->dim;

    memset(to, 0, (size_t)(l->io.rows * dim) * sizeof *to);
    for (int64_t c = 0; c < l->io.width; c++) {
        const float *row = w + c * cols + head * dim;
        for (int64_t i = 0; i < l->io.rows; i++)
            for (int64_t t = 0; t < dim; t++)
                to[i * dim + t] += l->x[i * l->io.width + c] * (double)row[t];
    }
}

static void find_logits(struct limits *l, const foci_limit *at, int64_t head)
{
    const int64_t n = l->io.rows;
    const double  s = 1 / sqrt((double)at->dim);

    project_all(l, at, l->wq, head, l->q);
    if (!at->tied) project_all(l, at, l->wk, head, l->k);
    const double *k = at->tied ? l->q : l->k;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            l->z[i * n + j] = s * dot(l->q + i * at->dim, k + j * at->dim, at->dim);
    soften(l, l->z, l->a);
}

/* The mean square of `by` x - y. */
static double distance(const struct limits *l, double by, const double *x,
                       const double *y)
{
    const int64_t n = l->io.rows * l->io.rows;
    double        sum = 0;

    for (int64_t t = 0; t < n; t++)
        sum += (by * x[t] - y[t]) * (by * x[t] - y[t]);
    return sum / (double)n;
}

static foci_status draw_heads(struct limits *l, const foci_limit *at, int64_t index,
                              uint64_t stream, float *w)
{
    struct frozen f = { .kind = (enum frozen_kind)at->kind,
                        .width = l->io.width,
                        .heads = l->io.heads,
                        .dim = at->dim };

    TRY(frozen_make(l->ctx, &f, l->io.seed + (uint64_t)index, stream));
    const foci_status status = frozen_write(&f, w);
    frozen_free(l->ctx, &f);
    return status;
}

static foci_status add_draw(struct limits *l, const foci_limit *at, int64_t index,
                            struct limit_sample logits[2],
                            struct limit_sample weights[2])
{
    const int64_t n = l->io.rows * l->io.rows, heads = l->io.heads;
    const double  share = 1 / (double)heads;

    TRY(draw_heads(l, at, index, STREAM_Q, l->wq));
    if (!at->tied) TRY(draw_heads(l, at, index, STREAM_K, l->wk));
    memset(l->sum_z, 0, (size_t)n * sizeof *l->sum_z);
    memset(l->sum_a, 0, (size_t)n * sizeof *l->sum_a);
    for (int64_t h = 0; h < heads; h++) {
        find_logits(l, at, h);
        add(&logits[0], distance(l, 1, l->z, l->mean));
        add(&weights[0], distance(l, 1, l->a, l->limit));
        for (int64_t t = 0; t < n; t++) {
            l->sum_z[t] += l->z[t];
            l->sum_a[t] += l->a[t];
        }
    }
    add(&logits[1], distance(l, share, l->sum_z, l->mean));
    add(&weights[1], distance(l, share, l->sum_a, l->limit));
    return FOCI_OK;
}

static foci_figure scaled(foci_figure f, double by)
{
    return (foci_figure){ f.measured * by, f.error * by, f.expected * by };
}

static foci_status measure_limit(struct limits *l, foci_limit *at)
{
    struct limit_sample logits[2] = { { 0 } }, weights[2] = { { 0 } };
    const double        heads[2] = { 1, (double)l->io.heads };
    const foci_figure   none = { NAN, 0, NAN };
    double              variance, kernel;
    char                why[256];

    at->spread = none;
    for (int m = 0; m < 2; m++)
        at->logits[m] = at->weights[m] = none;
    if (!frozen_can((enum frozen_kind)at->kind, false, l->io.width, l->io.heads,
                    at->dim, why, sizeof why))
        return FOCI_OK;
    find_limit(l, at, &variance, &kernel);
    for (int64_t i = 0; i < l->io.draws; i++)
        TRY(add_draw(l, at, i, logits, weights));
    const double n = (double)(l->io.rows * l->io.rows);
    const double size = sqrt(dot(l->limit, l->limit, l->io.rows * l->io.rows) / n);
    for (int m = 0; m < 2; m++) {
        at->logits[m] = root_of(&logits[m], sqrt(variance / heads[m]));
        at->weights[m] = scaled(root_of(&weights[m], NAN), 1 / size);
        if (!at->tied) at->weights[m].expected = sqrt(expm1(variance) / heads[m]);
    }
    if (at->tied) at->spread = scaled(at->logits[0], 1 / sqrt(kernel));
    return FOCI_OK;
}

/*
 * Memory and checks
 */

static void limits_carve(struct limits *l, struct arena *a)
{
    const int64_t  n = l->io.rows, d = l->io.width;
    double **const pairs[] = { &l->mean, &l->limit, &l->z, &l->a, &l->sum_z, &l->sum_a };

    for (size_t t = 0; t < sizeof pairs / sizeof *pairs; t++)
        *pairs[t] = arena_alloc(a, n * n, sizeof(double));
    l->x = arena_alloc(a, n * d, sizeof *l->x);
    l->length = arena_alloc(a, n, sizeof *l->length);
    l->q = arena_alloc(a, n * l->most, sizeof *l->q);
    l->k = arena_alloc(a, n * l->most, sizeof *l->k);
    l->wq = arena_alloc(a, d * l->most, (size_t)l->io.heads * sizeof *l->wq);
    l->wk = arena_alloc(a, d * l->most, (size_t)l->io.heads * sizeof *l->wk);
}

static void limits_fill(struct limits *l)
{
    const int64_t d = l->io.width;
    struct rng    r;

    rng_seed(&r, l->io.seed, STREAM_X);
    for (int64_t t = 0; t < l->io.rows * d; t++)
        l->x[t] = l->io.x ? (double)l->io.x[t] : rng_normal(&r);
    for (int64_t i = 0; i < l->io.rows; i++)
        l->length[i] = sqrt(dot(l->x + i * d, l->x + i * d, d));
}

static foci_status limits_check(const struct limits *l)
{
    const foci_limits_io *io = &l->io;

    if (io->width < 1 || io->width > 16384 || io->heads < 1 || io->heads > 4096 ||
        io->draws < 2 || io->rows < 2 || io->rows > 4096)
        return ctx_fail(l->ctx, FOCI_ERR_ARG,
                        "io.width, heads, draws and rows are %" PRId64 ", %" PRId64
                        ", %" PRId64 " and %" PRId64
                        "; they take 1 to 16384, 1 to 4096, 2 or more, and 2 to 4096",
                        io->width, io->heads, io->draws, io->rows);
    if (io->n_limits < 0 || (io->n_limits && !io->limits))
        return ctx_fail(l->ctx, FOCI_ERR_ARG,
                        "io.n_limits is %" PRId64 "; io.limits has to have as many",
                        io->n_limits);
    for (int64_t i = 0; i < io->n_limits; i++) {
        const foci_limit *at = &io->limits[i];
        if (at->kind < FROZEN_ORTHOGONAL || at->kind > FROZEN_HADAMARD || at->dim < 1 ||
            at->dim > io->width)
            return ctx_fail(l->ctx, FOCI_ERR_ARG,
                            "io.limits[%" PRId64 "] has kind %d and dim %" PRId64
                            "; they take 0 to 2, and 1 to %" PRId64,
                            i, at->kind, at->dim, io->width);
    }
    return FOCI_OK;
}

foci_status foci_limits_run(foci_ctx *ctx, const foci_limits_io *io)
{
    struct limits l = { .ctx = ctx, .most = 1 };
    struct arena  a = { 0 };
    foci_status   status = FOCI_OK;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_limits_run: the context is NULL");
    TRY(sized_in(ctx, "foci_limits_io", &l.io, io, sizeof l.io));
    TRY(limits_check(&l));
    for (int64_t i = 0; i < l.io.n_limits; i++)
        l.most = max64(l.most, l.io.limits[i].dim);
    limits_carve(&l, &a);
    if (!arena_ok(&a))
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "width %" PRId64 " is too large",
                        l.io.width);
    const size_t bytes = a.used;
    a = (struct arena){ .base = ctx_alloc(ctx, bytes, 1) };
    if (!a.base) return FOCI_ERR_MEMORY;
    limits_carve(&l, &a);
    limits_fill(&l);
    for (int64_t i = 0; i < l.io.n_limits && !status; i++)
        status = measure_limit(&l, &l.io.limits[i]);
    ctx_free(ctx, a.base, bytes, 1);
    return status;
}
