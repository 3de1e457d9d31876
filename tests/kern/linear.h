/* linear.h -- checkers of whole chunks of linear attention. */
#ifndef FOCI_TESTS_KERN_LINEAR_H
#define FOCI_TESTS_KERN_LINEAR_H

#include "kern/run.h"

struct chunk_case {
    int  d, dv, kind;
    int  apart;      /* elements between rows */
    bool rows, keys; /* of the kernel's two parts */
    bool given;      /* what rows are divided by is */
    int  bad;        /* 1: a value is not finite, 2: a key, 3: a query */
};

static const struct chunk_case chunk_cases[] = {
    { 64, 64, FOCI_FEATURE_ELU, 0, true, true, false, 0 },
    { 128, 128, FOCI_FEATURE_ELU, 0, true, true, false, 0 },
    { 64, 64, FOCI_FEATURE_RELU, 192, true, true, false, 0 },
    { 64, 64, FOCI_FEATURE_ROW, 8, true, true, true, 0 },
    { 32, 96, FOCI_FEATURE_ELU, 1, true, true, true, 0 },
    { 96, 32, FOCI_FEATURE_RELU, 0, true, true, true, 0 },
    { 64, 128, FOCI_FEATURE_ELU, 64, true, false, false, 0 },
    { 64, 64, FOCI_FEATURE_ELU, 0, false, true, false, 0 },
    { 64, 64, FOCI_FEATURE_ELU, 0, true, true, false, 1 },
    { 64, 64, FOCI_FEATURE_RELU, 0, true, true, false, 2 },
    { 64, 64, FOCI_FEATURE_ELU, 0, true, true, false, 3 },
};

/* 64 rows of bf16, and the same as floats. */
static uint16_t *chunk_tensor(struct run *r, int64_t ld, float **f)
{
    float *const    x = floats(r, LANES * ld, NORMAL);
    uint16_t *const h = take(r, (size_t)(LANES * ld) * sizeof *h, false, HALVES);

    r->ref->store_rows(h, ld, FOCI_BF16, x, ld, 1.0f, LANES, (int)ld);
    r->ref->load_rows(x, ld, h, ld, FOCI_BF16, LANES, (int)ld);
    *f = x;
    return h;
}

static double chunk_phi(double x, int kind)
{
    if (kind == FOCI_FEATURE_ELU) return x > 0 ? x + 1 : exp(x);
    return kind == FOCI_FEATURE_RELU && x < 0 ? 0 : x;
}

/* Every feature, weight and sum may fall to either side of a rounding boundary. */
static void allow_chunk(struct run *r, const struct chunk_rows *c, const float *q,
                        const float *k, const float *v)
{
    const double near = 4 * BF16;

    for (int i = 0; i < LANES && c->q; i++) {
        double by = 0, top[CHUNK_WIDTH] = { 0 };

        for (int64_t t = 0; t < c->d; t++) {
            const double f = fabs(chunk_phi((double)q[i * c->ldq + t], c->kind));
            by += f * fabs((double)c->total[t]);
            for (int j = 0; j < c->dv; j++)
                top[j] += f * fabs((double)c->sums[t * c->ld_sums + j]);
        }
        for (int64_t key = 0; c->k && key <= i; key++) {
            double w = 0;
            for (int64_t t = 0; t < c->d; t++)
                w += fabs(chunk_phi((double)q[i * c->ldq + t], c->kind) *
                          chunk_phi((double)k[key * c->ldk + t], c->kind));
            by += w;
            for (int64_t j = 0; j < c->dv; j++)
                top[j] += w * fabs((double)v[key * c->ldv + j]);
        }
        allow(r, c->saved, i, near * by);
        if (c->by) by = (double)c->by[i];
        for (int64_t j = 0; j < c->dv; j++)
            allow(r, c->o, i * c->ldo + j, near * top[j] / by);
    }
    for (int64_t t = 0; t < c->d && c->k; t++) {
        double total = 0;
        for (int64_t key = 0; key < LANES; key++)
            total += fabs(chunk_phi((double)k[key * c->ldk + t], c->kind));
        allow(r, c->total, t, near * total);
        for (int64_t j = 0; j < c->dv; j++) {
            double sum = 0;
            for (int64_t key = 0; key < LANES; key++)
                sum += fabs(chunk_phi((double)k[key * c->ldk + t], c->kind) *
                            (double)v[key * c->ldv + j]);
            allow(r, c->sums, t * c->ld_sums + j, near * sum);
        }
    }
}

static void try_chunk(struct run *r, const struct chunk_case *x)
{
    const int64_t     ldq = x->d + x->apart, ldv = x->dv + x->apart;
    float            *qf, *kf, *vf;
    struct chunk_rows c = { .ldq = ldq,
                            .ldk = ldq,
                            .ldv = ldv,
                            .ldo = x->dv,
                            .d = x->d,
                            .dv = x->dv,
                            .kind = x->kind,
                            .scale = 0.5f,
                            .ld_sums = x->dv };

    snprintf(r->label, sizeof r->label, "d %d, dv %d, kind %d, parts %d %d", x->d,
             x->dv, x->kind, x->rows, x->keys);
    r->is_flops = true;
    r->work = 2.0 * LANES * (2 * x->d * x->dv + (LANES + 1) / 2.0 * (x->d + x->dv));
    if (x->kind != FOCI_FEATURE_ROW) c.scale = 1.0f;
    uint16_t *const q = chunk_tensor(r, ldq, &qf), *const k = chunk_tensor(r, ldq, &kf);
    uint16_t *const v = chunk_tensor(r, ldv, &vf);
    float *const    by = floats(r, LANES, NORMAL);

    if (x->bad == 1) v[17 * ldv + 5] = 0x7f80;
    if (x->bad == 2) k[63 * ldq + 1] = 0x7fc0;
    if (x->bad == 3) q[3 * ldq] = 0x7fc0;
    for (int i = 0; i < LANES; i++)
        by[i] = 1.0f + fabsf(by[i]);
    by[9] = 0.0f;
    c.sums = inout(r, (int64_t)x->d * x->dv, NORMAL);
    c.total = inout(r, x->d, NORMAL);
    c.o = output(r, (int64_t)LANES * x->dv, sizeof *c.o, HALVES);
    c.saved = inout(r, LANES, NORMAL);
    c.scratch = aligned_alloc(64, CHUNK_BYTES);
    assert_non_null(c.scratch);
    for (int i = 0; i < x->d; i++)
        c.total[i] = fabsf(c.total[i]);
    c.q = x->rows ? q : NULL;
    c.k = x->keys ? k : NULL;
    c.v = x->keys ? v : NULL;
    if (x->given) c.by = by;
    if (!r->bench) allow_chunk(r, &c, qf, kf, vf);
    while (next(r))
        assert_int_equal(r->k->chunk_rows(&c), x->bad == 0 || x->bad == 3);
    free(c.scratch);
}

static void check_chunk_rows(struct run *r)
{
    struct thread_state before;
    if (r->now->begin) r->now->begin(&before);
    for (int i = 0; i < cases(r, 2, COUNT(chunk_cases)); i++)
        try_chunk(r, &chunk_cases[i]);
    if (r->now->end) r->now->end(&before);
}

/*
 * Gradients
 */

/* Sums of the sizes of what is added up in each result. */
struct chunk_sizes {
    double f[LANES][CHUNK_WIDTH], g[LANES][CHUNK_WIDTH], n[LANES][CHUNK_WIDTH];
    double r[LANES], a[LANES][LANES], da[LANES][LANES]; /* [query][key] */
};

static void size_pairs(const struct chunk_back *c, const float *q, const float *k,
                       const float *v, const float *o, const float *d_o,
                       struct chunk_sizes *x)
{
    for (int64_t i = 0; i < LANES; i++) {
        const double by = c->by[i] == 0.0f ? INFINITY : fabs((double)c->by[i]);

        x->r[i] = 0;
        for (int64_t t = 0; t < c->d; t++) {
            x->f[i][t] = fabs(chunk_phi((double)q[i * c->ldq + t], c->kind));
            x->g[i][t] = fabs(chunk_phi((double)k[i * c->ldk + t], c->kind));
        }
        for (int64_t j = 0; j < c->dv; j++) {
            x->n[i][j] = fabs((double)d_o[i * c->ldo + j]) / by;
            x->r[i] += x->n[i][j] * fabs((double)o[i * c->ldo + j]);
        }
    }
    for (int i = 0; i < LANES; i++)
        for (int64_t key = 0; key < LANES; key++) {
            x->a[i][key] = 0;
            x->da[i][key] = key <= i ? x->r[i] : 0;
            for (int t = 0; t < c->d && key <= i; t++)
                x->a[i][key] += x->f[i][t] * x->g[key][t];
            for (int64_t j = 0; j < c->dv && key <= i; j++)
                x->da[i][key] += x->n[i][j] * fabs((double)v[key * c->ldv + j]);
        }
}

/* Everything rounded may fall to either side of a boundary. */
static void allow_back(struct run *r, const struct chunk_back *c, const float *v,
                       const struct chunk_sizes *x)
{
    const double near = 4 * BF16;

    for (int64_t i = 0; i < LANES; i++) {
        for (int64_t t = 0; t < c->d; t++) {
            double df = x->r[i] * fabs((double)c->total[t]);
            double dg = fabs((double)c->rho[t]);

            for (int64_t j = 0; j < c->dv; j++) {
                df += x->n[i][j] * fabs((double)c->sums[t * c->ld_sums + j]);
                dg += fabs((double)v[i * c->ldv + j] *
                           (double)c->after[t * c->ld_sums + j]);
            }
            for (int j = 0; j < LANES; j++) {
                df += x->da[i][j] * x->g[j][t];
                dg += x->da[j][i] * x->f[j][t];
            }
            allow(r, c->dq, i * c->ldq + t, near * df);
            allow(r, c->dk, i * c->ldk + t, near * dg);
        }
        for (int64_t j = 0; j < c->dv; j++) {
            double sum = 0;

            for (int t = 0; t < c->d; t++)
                sum += x->g[i][t] * fabs((double)c->after[t * c->ld_sums + j]);
            for (int query = 0; query < LANES; query++)
                sum += x->a[query][i] * x->n[query][j];
            allow(r, c->d_v, i * c->ldv + j, near * sum);
        }
    }
    for (int64_t t = 0; t < c->d; t++) {
        double rho = 0;

        for (int i = 0; i < LANES; i++)
            rho += x->f[i][t] * x->r[i];
        allow(r, c->rho, t, near * rho);
        for (int64_t j = 0; j < c->dv; j++) {
            double sum = 0;
            for (int i = 0; i < LANES; i++)
                sum += x->f[i][t] * x->n[i][j];
            allow(r, c->after, t * c->ld_sums + j, near * sum);
        }
    }
}

static void try_back(struct run *r, const struct chunk_case *x)
{
    const int64_t       ldq = x->d + x->apart, ldv = x->dv + x->apart;
    struct chunk_sizes *sizes = malloc(sizeof *sizes);
    float              *qf, *kf, *vf, *of, *gf;
    struct chunk_back   c = { .ldq = ldq,
                              .ldk = ldq,
                              .ldv = ldv,
                              .ldo = ldv,
                              .d = x->d,
                              .dv = x->dv,
                              .kind = x->kind,
                              .scale = x->kind == FOCI_FEATURE_ROW ? 0.5f : 1.0f,
                              .divides = !x->given,
                              .ld_sums = x->dv };

    assert_non_null(sizes);
    snprintf(r->label, sizeof r->label, "d %d, dv %d, kind %d", x->d, x->dv, x->kind);
    r->is_flops = true;
    r->work =
        2.0 * LANES * (4 * x->d * x->dv + (LANES + 1) / 2.0 * (3 * x->d + 2 * x->dv));
    uint16_t *const q = chunk_tensor(r, ldq, &qf), *const k = chunk_tensor(r, ldq, &kf);
    uint16_t *const v = chunk_tensor(r, ldv, &vf), *const o = chunk_tensor(r, ldv, &of);
    uint16_t *const d_o = chunk_tensor(r, ldv, &gf);

    if (x->bad == 1) v[17 * ldv + 5] = 0x7f80;
    if (x->bad == 2) k[63 * ldq + 1] = 0x7fc0;
    if (x->bad == 3) q[3 * ldq] = 0x7fc0;
    c.q = q;
    c.k = k;
    c.v = v;
    c.o = o;
    c.d_o = d_o;
    c.sums = floats(r, (int64_t)x->d * x->dv, NORMAL);
    c.total = floats(r, x->d, NORMAL);
    c.after = inout(r, (int64_t)x->d * x->dv, NORMAL);
    c.rho = inout(r, x->d, NORMAL);
    /* Of gradients the columns between rows stay as they are. */
    const size_t el = sizeof *c.dq;
    c.dq = memset(output(r, LANES * ldq, el, HALVES), 0, (size_t)(LANES * ldq) * el);
    c.dk = memset(output(r, LANES * ldq, el, HALVES), 0, (size_t)(LANES * ldq) * el);
    c.d_v = memset(output(r, LANES * ldv, el, HALVES), 0, (size_t)(LANES * ldv) * el);
    float by[LANES];
    for (int i = 0; i < LANES; i++)
        by[i] = i == 9 ? 0.0f : 1.0f + fabsf(draw(r, NORMAL));
    c.by = by;
    c.scratch = aligned_alloc(64, BACK_BYTES);
    assert_non_null(c.scratch);
    if (!r->bench) {
        size_pairs(&c, qf, kf, vf, of, gf, sizes);
        allow_back(r, &c, vf, sizes);
    }
    while (next(r))
        assert_int_equal(r->k->chunk_back(&c), x->bad == 0);
    free(c.scratch);
    free(sizes);
}

static void check_chunk_back(struct run *r)
{
    struct thread_state before;
    if (r->now->begin) r->now->begin(&before);
    for (int i = 0; i < cases(r, 2, COUNT(chunk_cases)); i++)
        try_back(r, &chunk_cases[i]);
    if (r->now->end) r->now->end(&before);
}

#endif
