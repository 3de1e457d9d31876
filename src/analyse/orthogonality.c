/* orthogonality.c -- what frozen projections keep of hidden states, measured beside what
 * is known of them (docs/orthogonal.md).
 *
 * With W of d x k drawn uniformly among those whose columns are orthonormal, and x, y of
 * length 1 with cosine c:
 *
 *     |xW|^2        mean k/d, variance 2 k (d - k) / (d^2 (d + 2))     (a beta law)
 *     xW . yW       mean c k/d, variance k (d - k) / (d (d - 1) (d + 2)) (1 + c^2 (d - 2)/d)
 *     xW_Q . yW_K   mean 0, variance k/d^2
 *     |W1'W2|^2     mean k^2/d
 *
 * and pairs of n points, scaled by sqrt(d/k), keep all their squared distances within
 * 1 - e and 1 + e with probability 1/n at least if k >= 4 ln n / (e^2/2 - e^3/3) (Dasgupta
 * and Gupta, "An elementary proof of a theorem of Johnson and Lindenstrauss", 2003).
 * Normal entries of variance 1/d have the same means, other variances, and singular values
 * that come near 1 - sqrt(k/d) and 1 + sqrt(k/d) (Marchenko and Pastur, 1967).
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analyse/spectrum.h"
#include "foci/analyse.h"
#include "layer/frozen.h"
#include "plan/plan.h"

enum {
    STREAM_Q = 10,
    STREAM_K = 11,
    STREAM_X = 1 << 20, /* of what is looked at the projections with */
    PAIRS = 8,          /* x and y for each head of a draw */
    ROWS = 64,          /* of gradients */
    BYTES = 4,          /* of a parameter */
    TRAINING = 4        /* the parameter, its gradient and two moments */
};

static const double cosine = 0.5;

/* Of a number that is drawn again and again: powers of what it differs from what is
 * expected by. */
struct sample {
    double n, centre, one, two, three, four;
};

struct look {
    foci_ctx             *ctx;
    foci_orthogonality_io io;
    struct frozen         q, k; /* shapes; drawn for each layer */
    uint64_t              group;
    double                width, dim;
    int64_t               cols; /* at most, of what is written out */
    float                *wq, *wk;
    double               *gram, *ends; /* [cols][cols], [3][cols] */
    double               *x, *y;       /* [width] */
    double               *u, *v;       /* [cols] */
    struct rng            r;
    struct sample         length, tied, untied, overlap;
    double                off, least, most, condition;
};

/*
 * Samples
 */

static void add(struct sample *s, double x)
{
    const double e = x - s->centre;

    s->n += 1;
    s->one += e;
    s->two += e * e;
    s->three += e * e * e;
    s->four += e * e * e * e;
}

static foci_figure mean_of(const struct sample *s, double expected)
{
    const double mean = s->one / s->n, variance = s->two / s->n - mean * mean;

    return (foci_figure){ s->n > 0 ? s->centre + mean : NAN,
                          sqrt(fmax(variance, 0) / s->n), expected };
}

static foci_figure variance_of(const struct sample *s, double expected)
{
    const double m1 = s->one / s->n, m2 = s->two / s->n, m3 = s->three / s->n;
    const double variance = m2 - m1 * m1;
    const double fourth =
        s->four / s->n - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * pow(m1, 4);

    return (foci_figure){ variance * s->n / (s->n - 1),
                          sqrt(fmax(fourth - variance * variance, 0) / s->n), expected };
}

/*
 * What is projected
 */

/* to[dim] = x W, head `head` of w[width][heads dim]. */
static void project(const struct frozen *f, const float *w, int64_t head,
                    const double *x, double *to)
{
    const int64_t cols = f->heads * f->dim;

    memset(to, 0, (size_t)f->dim * sizeof *to);
    for (int64_t i = 0; i < f->width; i++)
        for (int64_t t = 0; t < f->dim; t++)
            to[t] += x[i] * (double)w[i * cols + head * f->dim + t];
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void draw_normals(struct rng *r, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_normal(r);
}

/* x and y of length 1 with the cosine, in random directions. */
static void draw_pair(struct look *l)
{
    const int64_t d = l->io.width;

    draw_normals(&l->r, l->x, d);
    draw_normals(&l->r, l->y, d);
    const double norm = sqrt(dot(l->x, l->x, d));
    for (int64_t i = 0; i < d; i++)
        l->x[i] /= norm;
    const double along = dot(l->x, l->y, d);
    for (int64_t i = 0; i < d; i++)
        l->y[i] -= along * l->x[i];
    const double rest = sqrt(dot(l->y, l->y, d) / (1 - cosine * cosine));
    for (int64_t i = 0; i < d; i++)
        l->y[i] = l->y[i] / rest + cosine * l->x[i];
}

static void add_logits(struct look *l, int64_t head)
{
    const int64_t k = l->q.dim;

    for (int pair = 0; pair < PAIRS; pair++) {
        draw_pair(l);
        project(&l->q, l->wq, head, l->x, l->u);
        add(&l->length, dot(l->u, l->u, k));
        project(&l->q, l->wq, head, l->y, l->v);
        add(&l->tied, dot(l->u, l->v, k));
        project(&l->k, l->wk, head % l->k.heads, l->y, l->v);
        add(&l->untied, dot(l->u, l->v, k));
    }
}

/*
 * Columns
 */

/* gram[n][n] = W1'W2, of n columns of w from `first` and from `second` on. */
static void multiply(const struct frozen *f, const float *w, int64_t first,
                     int64_t second, int64_t n, double *gram)
{
    const int64_t cols = f->heads * f->dim;

    memset(gram, 0, (size_t)(n * n) * sizeof *gram);
    for (int64_t i = 0; i < f->width; i++) {
        const float *a = w + i * cols + first, *b = w + i * cols + second;
        for (int64_t s = 0; s < n; s++)
            for (int64_t t = 0; t < n; t++)
                gram[s * n + t] += (double)a[s] * (double)b[t];
    }
}

/* The mean over neighbours among the heads of one draw. */
static void add_overlap(struct look *l)
{
    const int64_t k = l->q.dim, heads = l->q.heads;
    double        sum = 0;

    for (int64_t h = 1; h < heads; h++) {
        multiply(&l->q, l->wq, (h - 1) * k, h * k, k, l->gram);
        sum += dot(l->gram, l->gram, k * k);
    }
    if (heads > 1) add(&l->overlap, sum / (double)(heads - 1));
}

/* Singular values are roots of eigenvalues of W'W. */
static void look_at_columns(struct look *l, const struct frozen *f, const float *w)
{
    const int64_t n = f->block ? f->heads * f->dim : f->dim;

    for (int64_t first = 0; first < f->heads * f->dim; first += n) {
        multiply(f, w, first, first, n, l->gram);
        for (int64_t i = 0; i < n * n; i++)
            l->off = fmax(l->off, fabs(l->gram[i] - (i / n == i % n)));
    }
    for (int64_t first = 0; first < f->heads * f->dim; first += f->dim) {
        double least, most;

        multiply(f, w, first, first, f->dim, l->gram);
        spectrum_ends(l->gram, f->dim, l->ends, &least, &most);
        least = sqrt(fmax(least, 0));
        most = sqrt(fmax(most, 0));
        l->least = fmin(l->least, least);
        l->most = fmax(l->most, most);
        l->condition = fmax(l->condition, most / least);
    }
}

/*
 * Draws
 */

static foci_status draw(struct look *l, struct frozen *f, uint64_t index,
                        uint64_t stream, float *w)
{
    TRY(frozen_make(l->ctx, f, l->io.seed + index, stream + l->group));
    const foci_status status = frozen_write(f, w);
    frozen_free(l->ctx, f);
    return status;
}

static void forget_columns(struct look *l)
{
    l->off = l->most = l->condition = 0;
    l->least = INFINITY;
}

static foci_figure exact(double measured, double expected)
{
    return (foci_figure){ measured, 0, expected };
}

/* Smallest, largest and condition, from `at` on. */
static void put_ends(const struct look *l, bool normal, foci_figure *at)
{
    const double edge = normal ? sqrt(l->dim / l->width) : 0;

    at[0] = exact(l->least, fmax(1 - edge, 0));
    at[1] = exact(l->most, 1 + edge);
    at[2] = exact(l->condition, edge < 1 ? (1 + edge) / (1 - edge) : INFINITY);
}

static foci_status look_at_control(struct look *l, foci_figure *out)
{
    struct frozen f = l->q;

    f.kind = FROZEN_GAUSSIAN;
    forget_columns(l);
    TRY(draw(l, &f, 0, STREAM_Q, l->wq));
    look_at_columns(l, &f, l->wq);
    put_ends(l, true, out + FOCI_FIGURE_GAUSSIAN_SMALLEST);
    return FOCI_OK;
}

/* |g W'| over |g|, all rows together and row by row. */
static void look_at_gradient(struct look *l, foci_figure *out)
{
    const int64_t cols = l->q.heads * l->q.dim;
    double        before = 0, after = 0;
    struct sample ratio = { .centre = 1 };

    for (int row = 0; row < ROWS; row++) {
        const int64_t head = row % l->q.heads;
        double        sum = 0;

        draw_normals(&l->r, l->u, l->q.dim);
        for (int64_t i = 0; i < l->q.width; i++) {
            double at = 0;
            for (int64_t t = 0; t < l->q.dim; t++)
                at += l->u[t] * (double)l->wq[i * cols + head * l->q.dim + t];
            sum += at * at;
        }
        const double own = dot(l->u, l->u, l->q.dim);
        before += own;
        after += sum;
        add(&ratio, sqrt(sum / own));
    }
    const bool normal = l->q.kind == FROZEN_GAUSSIAN;
    out[FOCI_FIGURE_GRADIENT] = exact(sqrt(after / before), 1);
    out[FOCI_FIGURE_GRADIENT_SPREAD] =
        exact(sqrt(fmax(variance_of(&ratio, 0).measured, 0)),
              normal ? 1 / sqrt(2 * l->width) : 0);
}

static void look_at_first(struct look *l, foci_figure *out)
{
    const bool normal = l->q.kind == FROZEN_GAUSSIAN;

    forget_columns(l);
    look_at_columns(l, &l->q, l->wq);
    look_at_columns(l, &l->k, l->wk);
    out[FOCI_FIGURE_GRAM] = exact(l->off, normal ? NAN : 0);
    put_ends(l, normal, out + FOCI_FIGURE_SMALLEST);
    look_at_gradient(l, out);
}

static void put_laws(const struct look *l, foci_figure *out)
{
    const bool   normal = l->q.kind == FROZEN_GAUSSIAN;
    const double d = l->width, k = l->dim, c = cosine;
    const double apart = l->q.block && !normal ? 0 : k * k / d;
    const double length =
        normal ? 2 * k / (d * d) : 2 * k * (d - k) / (d * d * (d + 2));
    const double tied =
        normal  ? k / (d * d) * (1 + c * c)
        : d > 1 ? k * (d - k) / (d * (d - 1) * (d + 2)) * (1 + c * c * (d - 2) / d)
                : 0;

    out[FOCI_FIGURE_OVERLAP] = mean_of(&l->overlap, apart);
    out[FOCI_FIGURE_LENGTH_MEAN] = mean_of(&l->length, k / d);
    out[FOCI_FIGURE_LENGTH_VARIANCE] = variance_of(&l->length, length);
    out[FOCI_FIGURE_TIED_MEAN] = mean_of(&l->tied, c * k / d);
    out[FOCI_FIGURE_TIED_VARIANCE] = variance_of(&l->tied, tied);
    out[FOCI_FIGURE_UNTIED_MEAN] = mean_of(&l->untied, 0);
    out[FOCI_FIGURE_UNTIED_VARIANCE] = variance_of(&l->untied, k / (d * d));
}

static void put_saved(const struct look *l, foci_figure *out)
{
    const double saved = l->width * l->dim * (double)(l->q.heads + l->k.heads);

    out[FOCI_FIGURE_PARAMETERS] = exact(saved, NAN);
    out[FOCI_FIGURE_FILE_BYTES] = exact(BYTES * saved, NAN);
    out[FOCI_FIGURE_TRAINING_BYTES] = exact(TRAINING * BYTES * saved, NAN);
}

static foci_status look_at_figures(struct look *l)
{
    foci_figure *const out = l->io.figures;

    l->length.centre = l->dim / l->width;
    l->tied.centre = cosine * l->dim / l->width;
    for (int64_t i = 0; i < l->io.draws; i++) {
        TRY(draw(l, &l->q, (uint64_t)i, STREAM_Q, l->wq));
        TRY(draw(l, &l->k, (uint64_t)i, STREAM_K, l->wk));
        if (i == 0) look_at_first(l, out);
        add_overlap(l);
        for (int64_t h = 0; h < l->q.heads; h++)
            add_logits(l, h);
    }
    put_laws(l, out);
    put_saved(l, out);
    return look_at_control(l, out);
}

/*
 * Distances
 */

/* The e with e^2/2 - e^3/3 = 4 ln n / k; NaN where it is above 1. */
static double bound(double n, double k)
{
    const double want = 4 * log(n) / k;
    double       low = 0, high = 1;

    if (want > 1.0 / 6) return NAN;
    for (int step = 0; step < 60; step++) {
        const double e = (low + high) / 2;
        if (e * e / 2 - e * e * e / 3 < want)
            low = e;
        else
            high = e;
    }
    return high;
}

/* One pair: a and b before, p and q after. */
static double add_pair(const struct look *l, const float *a, const float *b,
                       const double *p, const double *q)
{
    double  before = 0, after = 0;
    int64_t t = 0;

    for (int64_t i = 0; i < l->io.width; i++)
        before += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    if (!(before > 0)) return 0;
    for (int64_t i = 0; i < l->io.n_distortions; i++) {
        foci_distortion *at = &l->io.distortions[i];

        for (; t < at->dim; t++)
            after += (p[t] - q[t]) * (p[t] - q[t]);
        const double off = after * l->width / (double)at->dim / before - 1;
        at->rms += off * off;
        at->worst = fmax(at->worst, fabs(off));
    }
    return 1;
}

static void measure_pairs(const struct look *l, const float *x, const double *y,
                          int64_t ld)
{
    const int64_t d = l->io.width, rows = l->io.rows;
    double        pairs = 0;

    for (int64_t i = 0; i < l->io.n_distortions; i++)
        l->io.distortions[i].rms = l->io.distortions[i].worst = 0;
    for (int64_t a = 1; a < rows; a++)
        for (int64_t b = 0; b < a; b++)
            pairs += add_pair(l, x + a * d, x + b * d, y + a * ld, y + b * ld);
    for (int64_t i = 0; i < l->io.n_distortions; i++) {
        foci_distortion *at = &l->io.distortions[i];
        const double     k = (double)at->dim;
        const bool       normal = l->q.kind == FROZEN_GAUSSIAN;

        at->rms = sqrt(at->rms / pairs);
        at->rms_expected =
            normal ? sqrt(2 / k) : sqrt(2 * (l->width - k) / (k * (l->width + 2)));
        at->worst_expected = bound((double)rows, k);
    }
}

/* All dims are the first columns of one matrix. */
static foci_status look_at_distances(struct look *l, float *x, float *w, double *y)
{
    const int64_t d = l->io.width, rows = l->io.rows;
    struct frozen f = { .kind = l->q.kind, .block = true, .width = d, .heads = 1 };

    f.dim = l->io.distortions[l->io.n_distortions - 1].dim;
    TRY(draw(l, &f, 0, STREAM_Q, w));
    for (int64_t i = 0; i < rows * d; i++)
        x[i] = l->io.x ? l->io.x[i] : (float)rng_normal(&l->r);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < d; c++)
            l->x[c] = (double)x[i * d + c];
        project(&f, w, 0, l->x, y + i * f.dim);
    }
    measure_pairs(l, x, y, f.dim);
    return FOCI_OK;
}

/*
 * Memory and checks
 */

struct memory {
    float  *x, *w; /* of distances */
    double *y;
};

static void orthogonality_carve(struct look *l, struct arena *a, struct memory *m)
{
    const int64_t d = l->io.width, n = l->cols;
    const int64_t most =
        l->io.distortions ? l->io.distortions[l->io.n_distortions - 1].dim : 0;
    const int64_t side = l->q.block ? n : l->q.dim;

    l->wq = arena_alloc(a, d * n, sizeof *l->wq);
    l->wk = arena_alloc(a, d * n, sizeof *l->wk);
    l->gram = arena_alloc(a, side * side, sizeof *l->gram);
    l->ends = arena_alloc(a, 3 * side, sizeof *l->ends);
    l->x = arena_alloc(a, d, sizeof *l->x);
    l->y = arena_alloc(a, d, sizeof *l->y);
    l->u = arena_alloc(a, n, sizeof *l->u);
    l->v = arena_alloc(a, n, sizeof *l->v);
    m->x = arena_alloc(a, most ? l->io.rows * d : 0, sizeof *m->x);
    m->w = arena_alloc(a, most * d, sizeof *m->w);
    m->y = arena_alloc(a, most * l->io.rows, sizeof *m->y);
}

static foci_status check_io(const foci_plan *plan, const foci_orthogonality_io *given,
                            foci_orthogonality_io *io)
{
    foci_ctx *const ctx = plan->ctx;

    TRY(sized_in(ctx, "foci_orthogonality_io", io, given, sizeof *io));
    if (io->width < 1 || io->width > INT32_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "io.width is %" PRId64 "; it takes 1 to %d",
                        io->width, INT32_MAX);
    if (io->figures && io->draws < 2)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.draws is %" PRId64 "; it takes 2 or more", io->draws);
    if (!io->distortions) return FOCI_OK;
    if (io->rows < 2 || io->rows > INT32_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "io.rows is %" PRId64 "; it takes 2 to %d",
                        io->rows, INT32_MAX);
    if (io->n_distortions < 1)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.n_distortions is %" PRId64 "; it takes 1 or more",
                        io->n_distortions);
    for (int64_t i = 0, least = 1; i < io->n_distortions; i++) {
        const int64_t dim = io->distortions[i].dim;
        if (dim < least || dim > io->width)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "io.distortions[%" PRId64 "].dim is %" PRId64
                            "; it takes %" PRId64 " to %" PRId64,
                            i, dim, least, io->width);
        least = dim;
    }
    return FOCI_OK;
}

/* The modifier, if the group has it. */
static const foci_mod *frozen_mod(const foci_mech *m)
{
    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & FOCI_MOD_FROZEN) return &m->mods[i];
    return NULL;
}

static foci_status find_shapes(const foci_plan *plan, struct look *l)
{
    enum { KIND, SAMPLE };
    foci_group g = { FOCI_SIZED(foci_group) };
    char       why[256];

    if (l->io.group < 0 || foci_plan_group(plan, l->io.group, &g))
        return ctx_fail(l->ctx, FOCI_ERR_ARG, "there is no group %d", l->io.group);
    const foci_mod *mod = frozen_mod(g.mech);
    if (!mod && !(g.reads & (FOCI_READ_Q | FOCI_READ_K)))
        return ctx_fail(l->ctx, FOCI_ERR_UNSUP,
                        "%s reads neither queries nor keys and has no projections of "
                        "them to freeze; softmax frozen(orthogonal) has",
                        g.mech->def->name);
    if (!mod)
        return ctx_fail(l->ctx, FOCI_ERR_UNSUP,
                        "%s has no frozen projections; %s frozen(orthogonal) would",
                        g.mech->def->name, g.mech->def->name);
    l->q = (struct frozen){ .kind = (enum frozen_kind)mod->arg[KIND],
                            .block = mod->arg[SAMPLE] != 0,
                            .width = l->io.width,
                            .heads = g.heads,
                            .dim = plan->p.dim_qk };
    l->k = l->q;
    l->k.heads = g.kv_heads;
    l->group = g.mech->stream;
    l->cols = max64(g.heads, g.kv_heads) * l->q.dim;
    l->width = (double)l->io.width;
    l->dim = (double)l->q.dim;
    if (!frozen_can(l->q.kind, l->q.block, l->q.width, max64(g.heads, g.kv_heads),
                    l->q.dim, why, sizeof why))
        return ctx_fail(l->ctx, FOCI_ERR_UNSUP, "%s", why);
    return FOCI_OK;
}

foci_status foci_orthogonality_run(const foci_plan             *plan,
                                   const foci_orthogonality_io *given)
{
    struct look   l = { .ctx = plan ? plan->ctx : NULL };
    struct arena  a = { 0 };
    struct memory m;

    if (!plan)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_orthogonality_run: the plan is NULL");
    TRY(check_io(plan, given, &l.io));
    TRY(find_shapes(plan, &l));
    orthogonality_carve(&l, &a, &m);
    if (!arena_ok(&a))
        return ctx_fail(l.ctx, FOCI_ERR_MEMORY, "width %" PRId64 " is too large",
                        l.io.width);
    const size_t bytes = a.used;
    a = (struct arena){ .base = ctx_alloc(l.ctx, bytes, 1) };
    if (!a.base) return FOCI_ERR_MEMORY;
    orthogonality_carve(&l, &a, &m);
    rng_seed(&l.r, l.io.seed, STREAM_X);
    foci_status status = l.io.figures ? look_at_figures(&l) : FOCI_OK;
    if (!status && l.io.distortions) status = look_at_distances(&l, m.x, m.w, m.y);
    ctx_free(l.ctx, a.base, bytes, 1);
    return status;
}
