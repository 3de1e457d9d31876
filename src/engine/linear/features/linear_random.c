/* linear_random.c -- features along random directions w, rows of the tensor omega.
 *
 *     EXP    l_r = w_r.A w_r + w_r.B x + x.Cx            log of the feature
 *     TRIG   [cos(w_r.x), sin(w_r.x)], and x.x/2 the log of their factor
 *
 * x is sqrt(s) q or sqrt(s) k; the Gaussian kernel e^(-|x - y|^2/2) takes -x.x/2 more.
 * So logs are rows x + bias + x.quad x with rows sqrt(s) B^T w, computed in double once
 * for each head and rounded once.  What all features of a query share cancels when the
 * row is divided by its sum, and is left out then.
 */
#include <math.h>
#include <string.h>

#include "engine/linear/features/linear_features.h"

enum { OMEGA, A, BX, BY, CX, CY }; /* tensors of the mechanism */

static bool is_trig(const struct linear *x)
{
    return x->l->feature == FOCI_FEATURE_TRIG;
}

/* Whether B and C are matrices, not multiples of the identity. */
static bool dense(const struct linear *x)
{
    return !is_trig(x) && x->l->moments > FOCI_MOMENTS_NORM;
}

static int directions(const struct linear *x)
{
    return is_trig(x) || x->l->both ? x->m / 2 : x->m;
}

/* Tensor t of head h, of n numbers a head. */
static const float *tensor(const struct linear *x, int t, int64_t h, int64_t n)
{
    return x->io->params + x->stage->group->param0[t] + h * n;
}

/* Statistics that are not known yet are NaN. */
static bool are_known(const struct linear *x)
{
    return !x->l->moments || !isnan(tensor(x, A, 0, 0)[0]);
}

/*
 * Projections
 */

static void copy(const float *from, int64_t n, double *to)
{
    for (int64_t t = 0; t < n; t++)
        to[t] = (double)from[t];
}

/* A, and where they are matrices B and C, from the parameters. */
static void read_exponents(const struct linear *x, int64_t h, struct exponents *e)
{
    const int64_t d = x->dq, n = d * d;

    for (int64_t t = 0; t < d; t++)
        e->a[t] = x->l->a;
    if (x->l->moments) copy(tensor(x, A, h, d), d, e->a);
    if (!dense(x)) return;
    copy(tensor(x, BX, h, n), n, e->bx);
    copy(tensor(x, BY, h, n), n, e->by);
    copy(tensor(x, CX, h, n), n, e->cx);
    copy(tensor(x, CY, h, n), n, e->cy);
}

/* One row: sqrt(s) B^T w to `row`; the result is w.Aw. */
static double project(const struct linear *x, const float *w, const struct exponents *e,
                      bool keys, double *row)
{
    const int64_t       d = x->dq;
    const double *const b = keys ? e->by : e->bx, root = sqrt(x->scale);
    double              own = 0;

    memset(row, 0, (size_t)d * sizeof *row);
    for (int64_t t = 0; t < d; t++) {
        const double along = root * (double)w[t];

        if (!is_trig(x)) own += e->a[t] * (double)w[t] * (double)w[t];
        if (!dense(x)) row[t] = is_trig(x) ? along : along * sqrt(1 - 4 * e->a[t]);
        if (!dense(x)) continue;
        for (int64_t c = 0; c < d; c++)
            row[c] += along * b[t * d + c];
    }
    return own;
}

static void set_row(const struct linear *x, const struct linear_projection *p, int r,
                    const double *row, double by, double bias)
{
    for (int c = 0; c < x->ldq; c++)
        p->rows[(int64_t)r * x->ldq + c] = c < x->dq ? (float)(by * row[c]) : 0;
    p->bias[r] = (float)bias;
}

static void set_quad(const struct linear *x, const double *c,
                     const struct linear_projection *p)
{
    const int64_t d = x->dq;

    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < x->ldq; j++) {
            const double more = x->l->gaussian && i == j ? -0.5 : 0;
            const double sum = j < d ? (c[i * d + j] + c[j * d + i]) / 2 : 0;
            p->quad[i * x->ldq + j] = (float)(x->scale * (sum + more));
        }
}

static void fill_side(const struct linear *x, int64_t h, const struct exponents *e,
                      bool keys, double *row, struct linear_projection *p)
{
    const int          n = directions(x);
    const float *const omega = tensor(x, OMEGA, h, (int64_t)n * x->dq);

    for (int r = 0; r < n; r++) {
        const double bias = project(x, omega + (int64_t)r * x->dq, e, keys, row);
        set_row(x, p, r, row, 1, bias);
        if (x->l->both) set_row(x, p, n + r, row, -1, bias);
    }
    const double half = is_trig(x) ? 0.5 : -0.5;
    p->half = (float)(x->scale * (x->l->gaussian ? half - 0.5 : half));
    if (dense(x)) set_quad(x, keys ? e->cy : e->cx, p);
}

static void fill_one(struct linear *x, int64_t h, int64_t s, bool known,
                     struct linear_stats *r)
{
    struct linear_projection *p = x->proj + (h * x->proj_seqs + s) * 2;

    if (known) {
        read_exponents(x, h, &r->e);
    } else {
        linear_stats_clear(x, r);
        linear_stats_add(x, x->io, &x->seqs[s].s, h, r);
        linear_stats_solve(x, r);
    }
    fill_side(x, h, &r->e, false, r->rows, p);
    fill_side(x, h, &r->e, true, r->rows, p + 1);
}

/* Split the arrays of all projections among them. */
static void place_projections(struct linear *x, float *rows, float *bias, float *quad)
{
    const int64_t n = is_trig(x) ? directions(x) : x->m;

    for (int64_t i = 0; i < x->heads * x->proj_seqs * 2; i++)
        x->proj[i] = (struct linear_projection){
            .rows = rows + i * n * x->ldq,
            .bias = bias + i * n,
            .quad = quad ? quad + i * x->dq * x->ldq : NULL,
        };
}

/* The projections of all heads, being filled. */
struct projection_fill {
    struct linear *x;
    char          *scratch; /* [threads] of scratch_bytes */
    size_t         scratch_bytes;
    bool           known; /* the parameters have the statistics */
};

static void fill_job(void *arg, int64_t i, int thread)
{
    const struct projection_fill *f = arg;
    struct arena mine = { .base = f->scratch + (size_t)thread * f->scratch_bytes };
    struct linear_stats stats;

    linear_stats_carve(f->x, &mine, &stats);
    fill_one(f->x, i % f->x->heads, i / f->x->heads, f->known, &stats);
}

/* Whether each sequence has projections of its own depends on the parameters.  Causal
 * ones never have: statistics of a sequence would let rows depend on later keys. */
void linear_random_carve(struct linear *x, struct arena *a)
{
    const int64_t most = x->l->moments && !x->causal ? x->max_seqs : 1;
    const int64_t sets = x->heads * most * 2;
    const int64_t n = is_trig(x) ? directions(x) : x->m;
    const bool    known = x->causal || !a->base || are_known(x);

    x->proj = arena_alloc(a, sets, sizeof *x->proj);
    float *rows = arena_alloc(a, sets * n * x->ldq, sizeof *rows);
    float *bias = arena_alloc(a, sets * n, sizeof *bias);
    float *quad = dense(x) ? arena_alloc(a, sets * x->dq * x->ldq, sizeof *quad) : NULL;

    struct linear_stats one;
    struct arena        size = { 0 };
    linear_stats_carve(x, &size, &one);
    char *scratch = arena_alloc(a, x->threads, size.used);
    if (!a->base) return;

    x->proj_seqs = known ? 1 : most;
    place_projections(x, rows, bias, quad);
    const int64_t jobs = x->heads * (known ? 1 : x->n_seqs);
    const int     threads = linear_threads(x, jobs, x->plan->cost.forward_flops);

    struct projection_fill f = { x, scratch, size.used, known };
    phases_run(x->k, x->exec.shared, threads, &(struct phase){ jobs, 1, fill_job, &f },
               1);
}

static const struct linear_projection *projection(const struct linear        *x,
                                                  const struct feature_chunk *c,
                                                  bool                        keys)
{
    const int64_t s = x->proj_seqs > 1 ? c->s : 0;
    return &x->proj[(c->h * x->proj_seqs + s) * 2 + keys];
}

/*
 * Features
 */

/* Whether the part of the log that all features of a row share matters.  Of queries it
 * cancels where rows are divided by their sum. */
static bool squared(const struct linear *x, const struct linear_projection *p, bool keys)
{
    const bool cancels = x->l->norm == FOCI_LINEAR_NORM_SUM && !(x->l->eps > 0);
    return (keys || !cancels) && (p->quad || p->half != 0);
}

/* lane[64] += x.quad x */
static void add_squares(const struct linear *x, const struct linear_projection *p,
                        const struct features *t, float *lane)
{
    _Alignas(64) float squares[CHUNK];

    if (p->quad)
        x->k->gemm_f32(t->cols, x->ldq, t->x, x->ldq, 1, p->quad, x->ldq, CHUNK, x->ldq,
                       x->dq, 0);
    x->k->row_dot(squares, t->x, p->quad ? t->cols : t->x, x->ldq, CHUNK, x->dq);
    for (int i = 0; i < CHUNK; i++)
        lane[i] += p->quad ? squares[i] : p->half * squares[i];
}

void linear_random_map(const struct linear *x, const struct feature_chunk *c, bool keys,
                       struct features *t)
{
    const struct linear_projection *p = projection(x, c, keys);
    const int                       n = is_trig(x) ? directions(x) : x->m;
    _Alignas(64) float              lane[CHUNK], factor[CHUNK];

    linear_set_logs(c, keys, lane);
    for (int i = 0; i < CHUNK; i++)
        factor[i] = lane[i] == 0 ? 1 : 0;
    if (squared(x, p, keys)) add_squares(x, p, t, lane);
    x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
    x->k->gemm_f32(t->f, CHUNK, p->rows, x->ldq, 1, t->cols, CHUNK, n, CHUNK, x->dq, 0);
    if (!is_trig(x)) {
        x->k->add_logs(t->f, n, p->bias, lane);
        return;
    }
    x->k->waves(t->f, t->f + (int64_t)n * CHUNK, t->f, n, factor);
    memcpy(t->lane, lane, sizeof lane);
}

/* df: from gradients of features to those of angles, in the first half.  sum[64] += the
 * sum of df f over features. */
static void trig_back(const struct linear *x, const float *f, float *df, float *sum)
{
    const int64_t n = (int64_t)directions(x) * CHUNK;

    for (int64_t r = 0; r < n; r += CHUNK)
        for (int64_t i = 0; i < CHUNK; i++) {
            const float c = f[r + i], s = f[n + r + i];
            const float dc = df[r + i], ds = df[n + r + i];

            sum[i] += dc * c + ds * s;
            df[r + i] = ds * c - dc * s;
        }
}

/* dx += 2 sum quad x */
static void squares_back(const struct linear *x, const struct linear_projection *p,
                         const struct features *t, const float *sum, float *dx)
{
    float *to = p->quad ? t->cols : dx;

    for (int i = 0; i < CHUNK; i++) {
        const float by = 2 * sum[i] * (p->quad ? 1 : p->half);
        for (int c = 0; c < x->ldq; c++) {
            const int64_t at = (int64_t)i * x->ldq + c;
            to[at] = (p->quad ? 0 : to[at]) + by * t->x[at];
        }
    }
    if (p->quad)
        x->k->gemm_f32(dx, x->ldq, t->cols, x->ldq, 1, p->quad, x->ldq, CHUNK, x->ldq,
                       x->dq, 1);
}

void linear_random_back(const struct linear *x, const struct feature_chunk *c,
                        bool keys, const struct features *t, float *df, float *dx)
{
    const struct linear_projection *p = projection(x, c, keys);
    const int                       n = is_trig(x) ? directions(x) : x->m;
    const float                     one = 1;
    _Alignas(64) float              sum[CHUNK] = { 0 };

    if (is_trig(x))
        trig_back(x, t->f, df, sum);
    else if (squared(x, p, keys))
        x->k->gemm_f32(sum, CHUNK, &one, 0, 0, df, CHUNK, 1, CHUNK, n, 0);
    x->k->gemm_f32(dx, x->ldq, df, 1, CHUNK, p->rows, x->ldq, CHUNK, x->ldq, n, 0);
    if (squared(x, p, keys)) squares_back(x, p, t, sum, dx);
}
