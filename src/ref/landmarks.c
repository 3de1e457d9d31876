/* landmarks.c -- softmax attention through means of queries and keys, written out.
 *
 *     O = F Z (B V) + convolution of V,   Z = C^+
 *     F = softmax(s Q K~^T),  C = softmax(s Q~ K~^T),  B = softmax(s Q~ K^T)
 *
 * Landmark t of m is the mean of rows floor(t n/m) to floor((t+1) n/m).  With
 * rounding, operands of products are rounded; the inverse and all sums stay floats.
 */
#include <stdlib.h>

#include "ref/inverse.h"

struct landmarks {
    const struct ref_part *p;
    foci_nystrom           l;
    int                    operand, sum; /* types of operands and of sums */
    int64_t                nq, nk, d, dv, m, memory;
    double                 scale;

    double            *q, *k, *v;      /* as products read them */
    double            *mq, *mk;        /* [m][d] */
    double            *f, *c, *b;      /* [nq][m], [m][m], [m][nk] */
    double            *bv, *y;         /* [m][dv]: B V, Z B V */
    double            *dmq, *dmk, *df; /* of one row */
    double            *dc, *db, *dy, *dbv, *dz;
    struct ref_inverse inverse;
    const double      *z;
};

static double rounded(const struct landmarks *x, double value)
{
    return ref_round(x->operand, value);
}

static foci_range run_of(const struct landmarks *x, int64_t t, int64_t n)
{
    return (foci_range){ t * n / x->m, (t + 1) * n / x->m };
}

static void means(const struct landmarks *x, const double *rows, int64_t n, double *to)
{
    for (int64_t t = 0; t < x->m; t++) {
        const foci_range r = run_of(x, t, n);
        for (int64_t e = 0; e < x->d; e++) {
            double sum = 0;
            for (int64_t i = r.begin; i < r.end; i++)
                sum += rows[i * x->d + e];
            to[t * x->d + e] = rounded(x, sum / (double)(r.end - r.begin));
        }
    }
}

/* Weights of one row among n keys. */
static void weigh(const struct landmarks *x, const double *q, const double *keys,
                  int64_t n, int type, double *a)
{
    for (int64_t j = 0; j < n; j++)
        a[j] = x->scale * ref_dot(x->sum, q, keys + j * x->d, x->d);
    ref_softmax(a, n);
    for (int64_t j = 0; j < n; j++)
        a[j] = ref_round(type, a[j]);
}

/* Gradients da of them become those of logits, and go on to q and the keys from `first`
 * on. */
static void weigh_back(const struct landmarks *x, const double *a, double *da,
                       const double *q, const double *keys, int64_t n, int64_t first,
                       double *dq, double *dkeys)
{
    ref_softmax_back(a, da, n);
    for (int64_t j = 0; j < n; j++) {
        const double d = x->scale * rounded(x, da[j]);
        ref_add_row(x->sum, dq, d, keys + j * x->d, x->d);
        if (j >= first) ref_add_row(x->sum, dkeys + j * x->d, d, q, x->d);
    }
}

static void round_all(const struct landmarks *x, const double *from, int64_t n,
                      double *to)
{
    for (int64_t t = 0; t < n; t++)
        to[t] = rounded(x, from[t]);
}

static void landmarks_fill(struct landmarks *x)
{
    round_all(x, x->p->q, x->nq * x->d, x->q);
    round_all(x, x->p->k, x->nk * x->d, x->k);
    round_all(x, x->p->v, x->nk * x->dv, x->v);
    means(x, x->p->q, x->nq, x->mq);
    means(x, x->p->k, x->nk, x->mk);
    for (int64_t i = x->p->rows.begin; i < x->p->rows.end; i += x->p->step)
        weigh(x, x->q + i * x->d, x->mk, x->m, x->operand, x->f + i * x->m);
    for (int64_t t = 0; t < x->m; t++) {
        weigh(x, x->mq + t * x->d, x->mk, x->m, x->sum, x->c + t * x->m);
        weigh(x, x->mq + t * x->d, x->k, x->nk, x->operand, x->b + t * x->nk);
        for (int64_t j = 0; j < x->nk; j++)
            ref_add_row(x->sum, x->bv + t * x->dv, x->b[t * x->nk + j],
                        x->v + j * x->dv, x->dv);
    }
    x->z = ref_inverse(&x->inverse);
    for (int64_t t = 0; t < x->m; t++)
        for (int64_t u = 0; u < x->m; u++)
            ref_add_row(x->sum, x->y + t * x->dv, x->z[t * x->m + u], x->bv + u * x->dv,
                        x->dv);
    for (int64_t e = 0; e < x->m * x->dv; e++)
        x->y[e] = rounded(x, x->y[e]);
}

/* The row of values that tap t takes to row i; -1: there is none. */
static int64_t tapped(const struct landmarks *x, int64_t i, int64_t t)
{
    const int64_t j = i + t - x->l.width / 2;
    return j >= 0 && j < x->nk ? j : -1;
}

static void forward_row(const struct landmarks *x, int64_t i)
{
    double *o = x->p->o + i * x->dv;

    for (int64_t e = 0; e < x->dv; e++)
        o[e] = 0;
    for (int64_t t = 0; t < x->m; t++)
        ref_add_row(x->sum, o, x->f[i * x->m + t], x->y + t * x->dv, x->dv);
    for (int64_t t = 0; t < x->l.width; t++) {
        const int64_t j = tapped(x, i, t);
        const double  w = x->p->call->params[ref_tensor(x->p, -1, 0) + t];
        if (j >= 0) ref_add_row(x->sum, o, w, x->p->v + j * x->dv, x->dv);
    }
}

/* O = A V: A = F Z B and the taps. */
static void report(const struct landmarks *x, int64_t i)
{
    float *const to = ref_weights_at(x->p, i);

    for (int64_t t = 0; t < x->m; t++) {
        double fz = 0;
        for (int64_t u = 0; u < x->m; u++)
            fz += x->f[i * x->m + u] * x->z[u * x->m + t];
        for (int64_t j = 0; j < x->nk; j++)
            to[j] += (float)(fz * x->b[t * x->nk + j]);
    }
    for (int64_t t = 0; t < x->l.width; t++) {
        const int64_t j = tapped(x, i, t);
        if (j >= 0) to[j] += (float)x->p->call->params[ref_tensor(x->p, -1, 0) + t];
    }
}

/* To dq, the means of keys, dy, and the convolution. */
static void backward_row(const struct landmarks *x, int64_t i)
{
    const struct ref_part *p = x->p;
    const double          *g = p->g + i * x->dv, *f = x->f + i * x->m;

    for (int64_t t = 0; t < x->m; t++) {
        x->df[t] = ref_dot(x->sum, g, x->y + t * x->dv, x->dv);
        ref_add_row(x->sum, x->dy + t * x->dv, f[t], g, x->dv);
    }
    weigh_back(x, f, x->df, x->q + i * x->d, x->mk, x->m, 0, p->dq + i * x->d, x->dmk);
    for (int64_t t = 0; t < x->l.width; t++) {
        const int64_t j = tapped(x, i, t), at = ref_tensor(p, -1, 0) + t;
        if (j < 0) continue;
        p->dparams[at] += ref_dot(x->sum, g, p->v + j * x->dv, x->dv);
        if (j >= x->memory)
            ref_add_row(x->sum, p->dv + j * x->dv, p->call->params[at], g, x->dv);
    }
}

/* From dy to all that is made of landmarks. */
static void backward_landmarks(const struct landmarks *x)
{
    const struct ref_part *p = x->p;

    for (int64_t t = 0; t < x->m; t++)
        for (int64_t u = 0; u < x->m; u++) {
            x->dz[t * x->m + u] =
                ref_dot(x->sum, x->dy + t * x->dv, x->bv + u * x->dv, x->dv);
            ref_add_row(x->sum, x->dbv + u * x->dv, x->z[t * x->m + u],
                        x->dy + t * x->dv, x->dv);
        }
    ref_inverse_back(&x->inverse, x->dz, x->dc);
    for (int64_t t = 0; t < x->m; t++) {
        const double *q = x->mq + t * x->d, *b = x->b + t * x->nk;
        double       *dbv = x->dbv + t * x->dv;
        weigh_back(x, x->c + t * x->m, x->dc + t * x->m, q, x->mk, x->m, 0,
                   x->dmq + t * x->d, x->dmk);
        for (int64_t e = 0; e < x->dv; e++)
            dbv[e] = rounded(x, dbv[e]);
        for (int64_t j = 0; j < x->nk; j++) {
            x->db[j] = ref_dot(x->sum, dbv, x->v + j * x->dv, x->dv);
            if (j >= x->memory)
                ref_add_row(x->sum, p->dv + j * x->dv, b[j], dbv, x->dv);
        }
        weigh_back(x, b, x->db, q, x->k, x->nk, x->memory, x->dmq + t * x->d, p->dk);
    }
}

static void means_back(const struct landmarks *x, const double *dmeans, int64_t n,
                       int64_t first, double *drows)
{
    for (int64_t t = 0; t < x->m; t++) {
        const foci_range r = run_of(x, t, n);
        for (int64_t i = max64(r.begin, first); i < r.end; i++)
            ref_add_row(x->sum, drows + i * x->d, 1 / (double)(r.end - r.begin),
                        dmeans + t * x->d, x->d);
    }
}

static void landmarks_run(struct landmarks *x)
{
    landmarks_fill(x);
    for (int64_t i = x->p->rows.begin; i < x->p->rows.end; i += x->p->step) {
        forward_row(x, i);
        if (x->p->g)
            backward_row(x, i);
        else if (x->p->weights)
            report(x, i);
    }
    if (!x->p->g) return;
    backward_landmarks(x);
    means_back(x, x->dmq, x->nq, 0, x->p->dq);
    means_back(x, x->dmk, x->nk, x->memory, x->p->dk);
}

/*
 * Opening
 */

static void carve_all(struct landmarks *x, struct arena *a)
{
    const int64_t m = x->m;

    x->q = ref_doubles(a, x->nq, x->d);
    x->k = ref_doubles(a, x->nk, x->d);
    x->v = ref_doubles(a, x->nk, x->dv);
    x->mq = ref_doubles(a, m, x->d);
    x->mk = ref_doubles(a, m, x->d);
    x->dmq = ref_doubles(a, m, x->d);
    x->dmk = ref_doubles(a, m, x->d);
    x->f = ref_doubles(a, x->nq, m);
    x->df = ref_doubles(a, m, 1);
    x->c = ref_doubles(a, m, m);
    x->dc = ref_doubles(a, m, m);
    x->dz = ref_doubles(a, m, m);
    x->b = ref_doubles(a, m, x->nk);
    x->db = ref_doubles(a, x->nk, 1);
    x->bv = ref_doubles(a, m, x->dv);
    x->dbv = ref_doubles(a, m, x->dv);
    x->y = ref_doubles(a, m, x->dv);
    x->dy = ref_doubles(a, m, x->dv);
    x->inverse =
        (struct ref_inverse){ .type = x->sum,
                              .m = m,
                              .iters = x->l.iters,
                              .c = x->c,
                              .z = ref_doubles(a, (x->l.iters + 1) * m, m),
                              .scratch = ref_doubles(a, REF_INVERSE_ROOM * m, m) };
}

foci_status ref_landmarks_run(const struct ref_part *p)
{
    const foci_problem *pr = &p->call->plan->p;
    struct landmarks    x = { .p = p,
                              .operand = ref_operand_type(p->call),
                              .nq = p->seq->nq,
                              .nk = p->seq->nk,
                              .d = pr->dim_qk,
                              .dv = ref_dim_v(p->call),
                              .memory = ref_memory(p),
                              .scale = ref_scale(p) };
    struct arena        a = { 0 };

    p->mech->def->nystrom(p->mech, &x.l);
    x.m = min64(x.l.count, min64(x.nq, x.nk));
    x.sum = x.operand == REF_F64 ? REF_F64 : FOCI_F32;
    carve_all(&x, &a);
    if (!arena_ok(&a)) return FOCI_ERR_MEMORY;
    char *memory = calloc(a.used + 1, 1);
    if (!memory) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = memory };
    carve_all(&x, &a);
    landmarks_run(&x);
    free(memory);
    return FOCI_OK;
}
