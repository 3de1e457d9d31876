/* features.h -- checkers of the features of the linear engine. */
#ifndef FOCI_TESTS_KERN_FEATURES_H
#define FOCI_TESTS_KERN_FEATURES_H

#include "kern/run.h"

static const int columns[] = { 64, 1, 2, 17, 128 };
static const int kinds[] = { FOCI_FEATURE_ELU, FOCI_FEATURE_COS, FOCI_FEATURE_RELU,
                             FOCI_FEATURE_ROW };

#define WAVES 2e-7 /* vf_cos_sin */

static void name_features(struct run *r, int n, int kind, double bytes)
{
    snprintf(r->label, sizeof r->label, "%d columns, kind %d", n, kind);
    r->work = bytes;
    r->is_flops = false;
}

/* Zeros of both signs, far beyond what is taken apart, and what is not finite. */
static void spoil(struct run *r, float *x, int64_t n)
{
    static const float odd[] = { 0.0f, -0.0f, 3e5f, -1e20f, INFINITY, -INFINITY, NAN };

    for (int i = 0; !r->bench && i < COUNT(odd); i++)
        x[below(r, (int)n)] = odd[i];
}

static void try_feature(struct run *r, int n, int kind, enum data data)
{
    name_features(r, n, kind, 8.0 * n * LANES);
    float *const       in = floats(r, (int64_t)n * LANES, data);
    const float *const factor = floats(r, LANES, NORMAL);
    float *const       out = output(r, (int64_t)n * LANES, sizeof *out, FLOATS);

    spoil(r, in, (int64_t)n * LANES);
    for (int x = 0; x < n * LANES; x++) {
        const double y = fabs((double)in[x]), by = fabs((double)factor[x % LANES]);

        if (kind == FOCI_FEATURE_COS) allow(r, out, x, by * (WAVES + 2 * E));
        if (kind == FOCI_FEATURE_ELU && in[x] <= 0.0f && y < 1e4) /* e^x moves by E x */
            allow(r, out, x, by * exp(-y) * (EXP + (4 + 2 * y) * E));
    }
    while (next(r))
        r->k->feature(out, in, n, kind, factor);
}

static void check_feature(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int kind = 0; kind < COUNT(kinds); kind++)
            for (int data = 0; data < cases(r, 1, N_DATA); data++)
                try_feature(r, columns[i], kinds[kind], (enum data)data);
}

static void check_feature_back(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int kind = 0; kind < 3; kind++) {
            const int n = columns[i];

            name_features(r, n, kinds[kind], 12.0 * n * LANES);
            float *const in = floats(r, (int64_t)n * LANES, NORMAL);
            float *const d = inout(r, (int64_t)n * LANES, NORMAL);

            spoil(r, in, (int64_t)n * LANES);
            for (int x = 0; x < n * LANES && kinds[kind] == FOCI_FEATURE_COS; x++)
                allow(r, d, x, 6 * (WAVES + 2 * E)); /* numbers are below 6 */
            while (next(r))
                r->k->feature_back(d, in, n, kinds[kind]);
        }
}

/* n products of `degree` of these many rows. */
enum { ELEMENTS = 9 };

static const int32_t *some_elements(struct run *r, int n, int degree)
{
    int32_t *const e = take(r, (size_t)(n * degree) * sizeof *e, false, BYTES);

    for (int i = 0; i < n * degree; i++)
        e[i] = below(r, ELEMENTS);
    return e;
}

/* Products of `degree` numbers up to 2, times two factors below 6. */
static double largest_product(int degree) { return 36 * pow(2, degree); }

static float *small_rows(struct run *r)
{
    float *const x = floats(r, ELEMENTS * LANES, NORMAL);

    for (int i = 0; i < ELEMENTS * LANES; i++)
        x[i] /= 3.0f;
    return x;
}

static void check_products(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int degree = cases(r, 2, 0); degree <= cases(r, 3, FOCI_MAX_ORDER);
             degree++) {
            const int n = columns[i];

            name_features(r, n, degree, 4.0 * n * LANES);
            const float *const   x = small_rows(r);
            const float *const   factors = floats(r, n, NORMAL);
            const int32_t *const elements = some_elements(r, n, degree);
            float *const         f = output(r, (int64_t)n * LANES, sizeof *f, FLOATS);

            while (next(r))
                r->k->products(f, x, elements, factors, 1.5f, n, degree);
        }
}

/* Sums of at most n products into one element, in an order that is not the same. */
static void check_products_back(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int degree = cases(r, 2, 1); degree <= cases(r, 3, FOCI_MAX_ORDER);
             degree++) {
            const int n = columns[i];

            name_features(r, n, degree, 4.0 * n * LANES);
            const float *const   x = small_rows(r);
            const float *const   factors = floats(r, n, NORMAL);
            const float *const   df = floats(r, (int64_t)n * LANES, NORMAL);
            const int32_t *const elements = some_elements(r, n, degree);
            float *const         dx = inout(r, ELEMENTS * LANES, NORMAL);

            for (int t = 0; t < ELEMENTS * LANES; t++)
                allow(r, dx, t, (2 * n + degree) * E * n * largest_product(degree));
            while (next(r))
                r->k->products_back(dx, x, df, elements, factors, 1.5f, n, degree);
        }
}

static void check_add_logs(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int form = 0; form < cases(r, 1, 2); form++) {
            const int n = columns[i];

            name_features(r, n, form, 8.0 * n * LANES);
            float *const       s = inout(r, (int64_t)n * LANES, NORMAL);
            const float *const bias = form ? NULL : floats(r, n, NORMAL);
            float *const       lane = floats(r, LANES, NORMAL);

            lane[below(r, LANES)] = -INFINITY;
            while (next(r))
                r->k->add_logs(s, n, bias, lane);
        }
}

static void check_waves(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int data = 0; data < cases(r, 1, HUGE_30); data++) {
            const int64_t n = (int64_t)columns[i] * LANES;

            name_features(r, columns[i], data, 12.0 * (double)n);
            float *const       in = floats(r, n, (enum data)data);
            const float *const factor = floats(r, LANES, NORMAL);
            float *const       re = output(r, n, sizeof *re, FLOATS);
            float *const       im = output(r, n, sizeof *im, FLOATS);

            spoil(r, in, n);
            for (int64_t x = 0; x < n; x++) {
                allow(r, re, x, fabs((double)factor[x % LANES]) * (WAVES + 2 * E));
                allow(r, im, x, fabs((double)factor[x % LANES]) * (WAVES + 2 * E));
            }
            while (next(r))
                r->k->waves(re, im, in, columns[i], factor);
        }
}

/* Differences of logs are rounded as numbers of their size; sums of n powers of e, of
 * which one is 1, are off by EXP and what rounding their exponents does. */
static void check_log_softmax(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int data = 0; data < cases(r, 1, HUGE_30); data++) {
            const int n = columns[i];

            name_features(r, n, data, 8.0 * n * LANES);
            float *const s = inout(r, (int64_t)n * LANES, (enum data)data);

            for (int x = 0; x < n * LANES; x++)
                allow(r, s, x,
                      n * (EXP + 24 * E) + 4 * E * (data == HUGE_4 ? 12e4 : 12));
            spoil(r, s, (int64_t)n * LANES);
            while (next(r))
                r->k->log_softmax(s, n);
        }
}

static void check_log_softmax_back(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++) {
        const int n = columns[i];

        name_features(r, n, 0, 12.0 * n * LANES);
        float *const d = inout(r, (int64_t)n * LANES, NORMAL);
        float *const l = floats(r, (int64_t)n * LANES, NORMAL);

        for (int x = 0; x < n * LANES; x++) {
            l[x] -= 4.0f; /* sums of n numbers below 6, times e^2 at most */
            allow(r, d, x, 8 * (EXP + (2 * n + 24) * E) * 6 * n);
        }
        l[below(r, n * LANES)] = -INFINITY;
        while (next(r))
            r->k->log_softmax_back(d, l, n);
    }
}

static void check_rotate_lanes(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(columns)); i++)
        for (int form = 0; form < cases(r, 2, 4); form++) {
            const int     n = columns[i];
            const int64_t step = form & 1 ? LANES : 2 * LANES;
            const int64_t second = form & 1 ? (int64_t)n * LANES : LANES;

            name_features(r, 2 * n, form, 24.0 * n * LANES);
            const float *const in = floats(r, 2 * (int64_t)n * LANES, NORMAL);
            const float *const offsets = floats(r, 2 * (int64_t)n * LANES, NORMAL);
            const float *const base = floats(r, 2 * (int64_t)n, NORMAL);
            float *const out = output(r, 2 * (int64_t)n * LANES, sizeof *out, FLOATS);

            for (int64_t t = 0; t < 2 * (int64_t)n * LANES; t++)
                allow(r, out, t, 4 * 216 * 4 * E); /* four products of numbers below 6 */
            while (next(r))
                r->k->rotate_lanes(out, in, step, second, offsets, base, n, form & 2);
        }
}

#endif
