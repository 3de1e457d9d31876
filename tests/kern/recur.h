/* recur.h -- checkers of the kernels that decode by sums. */
#ifndef FOCI_TESTS_KERN_RECUR_H
#define FOCI_TESTS_KERN_RECUR_H

#include "kern/run.h"

static const struct sums {
    int m, d;
} sums[] = { { 64, 64 }, { 256, 64 }, { 128, 128 }, { 1, 8 },  { 3, 16 },
             { 7, 24 },  { 65, 72 },  { 33, 40 },   { 2, 136 } };

static double *doubles(struct run *r, int64_t n, bool out)
{
    double *const x = take(r, (size_t)n * sizeof *x, out, DOUBLES);

    for (int64_t i = 0; i < n; i++)
        x[i] = (double)draw(r, NORMAL);
    return x;
}

/* Fused or not, two roundings of a double more or less. */
static void try_recur(struct run *r, const struct sums *x, bool adds, bool reads)
{
    const double e = 0x1p-53;

    snprintf(r->label, sizeof r->label, "%d rows of %d, adds %d, reads %d", x->m, x->d,
             adds, reads);
    r->work = (adds ? 16.0 : 8.0) * x->m * x->d;
    r->is_flops = false;
    double *const s = doubles(r, (int64_t)x->m * x->d, true);
    double *const decay = doubles(r, x->m, false);
    double *const o = doubles(r, x->d, true);
    float *const g = floats(r, x->m, NORMAL), *const v = floats(r, x->d, NORMAL);
    float *const f = floats(r, x->m, NORMAL);

    for (int i = 0; i < x->m; i++)
        decay[i] = r->bench || i % 3 ? 1.0 : fabs(decay[i]) / 8;
    for (int c = 0; c < x->d && !r->bench; c++) {
        double sum = fabs(o[c]);
        for (int i = 0; i < x->m; i++) {
            const double now =
                fabs(decay[i] * s[i * x->d + c]) + fabs((double)g[i] * (double)v[c]);
            allow(r, s, i * x->d + c, 4 * e * now);
            sum += fabs((double)f[i]) * (now + fabs(s[i * x->d + c]));
        }
        allow(r, o, c, 2 * (x->m + 4) * e * sum);
    }
    while (next(r))
        r->k->recur(s, x->d, decay, adds ? g : NULL, v, o, reads ? f : NULL, x->m);
}

static void check_recur(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(sums)); i++) {
        try_recur(r, &sums[i], true, true);
        try_recur(r, &sums[i], true, false);
        try_recur(r, &sums[i], false, true);
    }
}

static void try_carry(struct run *r, const struct sums *x)
{
    const int64_t ldx = up(x->d, 16);

    snprintf(r->label, sizeof r->label, "%d rows of %d", x->m, x->d);
    r->work = 24.0 * x->m * x->d;
    r->is_flops = false;
    double *const s = doubles(r, (int64_t)x->m * x->d, true);
    double *const decay = doubles(r, x->m, false);
    float *const  more = inout(r, x->m * ldx, NORMAL);

    for (int i = 0; i < x->m; i++) {
        decay[i] = r->bench || i % 3 ? 1.0 : fabs(decay[i]) / 8;
        for (int c = 0; c < x->d && !r->bench; c++) {
            const double now =
                fabs(decay[i] * s[i * x->d + c]) + fabs((double)more[i * ldx + c]);
            allow(r, s, i * x->d + c, 4 * 0x1p-53 * now);
            allow(r, more, i * ldx + c, 2 * E * now);
        }
    }
    while (next(r))
        r->k->carry(s, x->d, decay, more, ldx, x->m);
}

static void check_carry(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(sums)); i++)
        try_carry(r, &sums[i]);
}

/* Logs of this size; some are -inf, and one may be NaN. */
static void spread(struct run *r, float *l, int m, int kind)
{
    static const float scale[] = { 1.0f, 30.0f, 1e4f };

    for (int i = 0; i < m; i++)
        l[i] = kind == 3 || i % 7 == 6 ? -INFINITY : l[i] * scale[kind];
    if (kind == 1 && !r->bench) l[m / 2] = NAN;
}

/* Exponents are rounded to their share of 2^-24 before e is raised to them. */
static double exp_bound(double x)
{
    return fabs(x) < 1e3 ? (EXP + 4 * E * (1 + fabs(x))) * exp(fmin(x, 8)) : 0;
}

static void try_log_key(struct run *r, int m, int kind, float before)
{
    snprintf(r->label, sizeof r->label, "%d logs, kind %d, after %g", m, kind,
             (double)before);
    r->work = 20.0 * m;
    r->is_flops = false;
    float *const l = inout(r, m, NORMAL), *const c = inout(r, m, NORMAL);
    float *const factor = output(r, m, sizeof *factor, FLOATS);
    float *const top = floats(r, m, NORMAL);

    spread(r, l, m, kind);
    for (int i = 0; i < m; i++) {
        c[i] += before;
        top[i] = i % 2 ? l[i] : fmaxf(l[i], l[(i + 1) % m]);
        const double now = top[i] > c[i] + 8 ? (double)top[i] : (double)c[i];
        allow(r, l, i, l[i] > -INFINITY ? exp_bound((double)l[i] - now) : 0);
        allow(r, factor, i, c[i] > -INFINITY ? exp_bound((double)c[i] - now) : 0);
    }
    while (next(r))
        (void)r->k->log_key(l, c, factor, top, m);
}

static void check_log_key(struct run *r)
{
    static const int   ms[] = { 64, 256, 16, 48 };
    static const float before[] = { 0.0f, -20.0f, 1e4f, -INFINITY };

    for (int i = 0; i < cases(r, 2, COUNT(ms)); i++)
        for (int kind = 0; kind < cases(r, 1, 4); kind++)
            for (int b = 0; b < cases(r, 1, COUNT(before)); b++)
                try_log_key(r, ms[i], kind, before[b]);
}

static void try_log_query(struct run *r, int m, int kind)
{
    double h = -INFINITY;

    snprintf(r->label, sizeof r->label, "%d logs, kind %d", m, kind);
    r->work = 12.0 * m;
    r->is_flops = false;
    float *const l = inout(r, m, NORMAL), *const c = floats(r, m, NORMAL);
    float *const most = output(r, 1, sizeof *most, FLOATS);

    spread(r, l, m, kind);
    for (int i = 0; i < m; i++)
        if ((double)(l[i] + c[i]) > h) h = (double)(l[i] + c[i]);
    for (int i = 0; i < m; i++)
        allow(r, l, i, l[i] > -INFINITY ? exp_bound((double)(l[i] + c[i]) - h) : 0);
    while (next(r))
        *most = r->k->log_query(l, c, m);
}

static void check_log_query(struct run *r)
{
    static const int ms[] = { 64, 256, 16, 48 };

    for (int i = 0; i < cases(r, 2, COUNT(ms)); i++)
        for (int kind = 0; kind < cases(r, 1, 4); kind++)
            try_log_query(r, ms[i], kind);
}

#endif
