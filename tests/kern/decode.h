/* decode.h -- checkers of the kernels that meet keys and values as they are stored. */
#ifndef FOCI_TESTS_KERN_DECODE_H
#define FOCI_TESTS_KERN_DECODE_H

#include "kern/run.h"

static const struct few {
    int rows, n, d, apart; /* rows are d + apart elements from each other */
} fews[] = {
    { 1, 64, 128, 0 }, { 4, 64, 128, 0 }, { 8, 64, 128, 0 }, { 1, 1, 1, 5 },
    { 2, 64, 64, 0 },  { 3, 17, 80, 5 },  { 5, 33, 72, 5 },  { 7, 5, 33, 5 },
    { 8, 63, 31, 5 },  { 6, 64, 160, 5 }, { 2, 7, 16, 0 },   { 1, 40, 20, 5 },
    { 4, 9, 96, 0 },   { 8, 2, 5, 5 },    { 1, 64, 64, 0 },  { 8, 63, 64, 0 },
    { 1, 63, 128, 0 }, { 3, 33, 128, 0 }, { 5, 17, 128, 0 }, { 4, 64, 128, 5 },
    { 1, 50, 200, 0 }, { 1, 64, 160, 3 }, { 4, 31, 104, 0 }, { 2, 48, 65, 0 },
    { 3, 20, 300, 1 }, { 1, 33, 512, 0 }, { 8, 5, 257, 0 },
};

static void name_few(struct run *r, const struct few *x, int dtype)
{
    snprintf(r->label, sizeof r->label, "%d rows, %d keys of %d, dtype %d", x->rows,
             x->n, x->d, dtype);
    r->work = (dtype == FOCI_F32 ? 4.0 : 2.0) * x->n * x->d;
    r->is_flops = false;
}

/* Numbers as stored, and as floats in *values. */
static const void *stored(struct run *r, int64_t n, int dtype, float **values)
{
    float *const x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    *values = x;
    if (dtype == FOCI_F32) {
        float *const f = floats(r, n, NORMAL);
        memcpy(x, f, (size_t)n * sizeof *x);
        return f;
    }
    uint16_t *const h = take(r, (size_t)n * sizeof *h, false, HALVES);
    for (int64_t i = 0; i < n; i++) {
        const float one = draw(r, NORMAL);
        r->ref->store_rows(&h[i], 1, dtype, &one, 1, 1.0f, 1, 1);
        r->ref->load_rows(&x[i], 1, &h[i], 1, dtype, 1, 1);
    }
    return h;
}

static void try_dots(struct run *r, const struct few *x, int dtype, bool bf16)
{
    const int64_t ldk = x->d + x->apart, ldq = up(x->d, 32);
    float        *kf;

    name_few(r, x, dtype);
    float *const      q = floats(r, 8 * ldq, NORMAL);
    uint32_t *const   qw = take(r, (size_t)(8 * ldq) * 2, false, HALVES);
    const void *const k = stored(r, x->n * ldk, dtype, &kf);
    float *const      s = output(r, 8 * LANES, sizeof *s, FLOATS);

    memset(qw, 0, (size_t)(8 * ldq) * 2);
    for (int i = 0; i < 8; i++) {
        if (i >= x->rows) memset(q + i * ldq, 0, (size_t)ldq * sizeof *q);
        for (int64_t c = x->d; c < ldq; c++)
            q[i * ldq + c] = 0;
        if (!bf16) continue;
        r->ref->store_rows(qw + i * ldq / 2, ldq, FOCI_BF16, q + i * ldq, ldq, 1.0f, 1,
                           x->d);
        r->ref->load_rows(q + i * ldq, ldq, qw + i * ldq / 2, ldq, FOCI_BF16, 1, x->d);
    }
    for (int i = 0; i < 8 && !r->bench; i++)
        for (int j = 0; j < x->n; j++) {
            double sum = 0;
            for (int c = 0; c < x->d; c++)
                sum += fabs((double)q[i * ldq + c] * (double)kf[j * ldk + c]);
            /* Rows rounded up are written too: they are 0 or as they were. */
            allow(r, s, i * LANES + j,
                  i < x->rows ? 2 * (x->d + 1) * E * sum : INFINITY);
        }
    while (next(r)) {
        memset(s + x->rows * LANES, 0, (size_t)(8 - x->rows) * LANES * sizeof *s);
        if (bf16)
            r->k->dots_bf16(s, qw, ldq / 2, x->rows, k, ldk, x->n, x->d);
        else
            r->k->dots_f32(s, q, ldq, x->rows, k, ldk, dtype, x->n, x->d);
    }
    free(kf);
}

static void check_dots_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(fews)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            try_dots(r, &fews[i], dtype, false);
}

static void check_dots_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(fews)); i++)
        try_dots(r, &fews[i], FOCI_BF16, true);
}

static void try_sums(struct run *r, const struct few *x, int dtype, bool bf16)
{
    const int64_t ldv = x->d + x->apart, ldo = up(x->d, 32);
    float        *vf;

    name_few(r, x, dtype);
    float *const      w = floats(r, 8 * LANES, NORMAL);
    const void *const v = stored(r, x->n * ldv, dtype, &vf);
    float *const      o = inout(r, 8 * ldo, NORMAL);

    for (int i = 0; i < 8; i++)
        for (int j = 0; j < LANES; j++)
            if (i >= x->rows || j >= x->n) w[i * LANES + j] = 0;
    for (int i = 0; i < x->rows && !r->bench; i++)
        for (int c = 0; c < ldo; c++) {
            double sum = fabs((double)o[i * ldo + c]);
            for (int j = 0; j < x->n && c < x->d; j++)
                sum += fabs((double)w[i * LANES + j] * (double)vf[j * ldv + c]);
            allow(r, o, i * ldo + c, c < x->d ? 2 * (x->n + 2) * E * sum : INFINITY);
        }
    while (next(r))
        if (bf16)
            r->k->sums_bf16(o, ldo, w, x->rows, v, ldv, x->n, x->d);
        else
            r->k->sums_f32(o, ldo, w, x->rows, v, ldv, dtype, x->n, x->d);
    free(vf);
}

static void check_sums_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(fews)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            try_sums(r, &fews[i], dtype, false);
}

static void check_sums_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(fews)); i++)
        try_sums(r, &fews[i], FOCI_BF16, true);
}

/* The same bounds as weigh_f32, the sum over 64 keys. */
static void try_weigh_row(struct run *r, int kind, int scores, float before)
{
    static const float scale[] = { 1.0f, 30.0f, 1e4f };

    snprintf(r->label, sizeof r->label, "kind %d, scores %d, after %g", kind, scores,
             (double)before);
    r->work = 8.0 * LANES;
    r->is_flops = false;
    float *const s = inout(r, LANES, NORMAL);
    float *const m = inout(r, 1, NORMAL), *const l = inout(r, 1, NORMAL);
    float *const shrink = output(r, 1, sizeof *shrink, FLOATS);

    for (int j = 0; j < LANES; j++)
        s[j] = scores == 3 || j % 5 == 4 ? -INFINITY : s[j] * scale[scores];
    *m = before;
    *l = before == -INFINITY ? 0.0f : 2.5f;
    allow_share(r, s, EXP + 2 * E);
    allow_share(r, l, 2 * (EXP + 2 * E) + 2 * (LANES + 2) * E);
    allow_share(r, shrink, EXP + 2 * E);
    while (next(r))
        *shrink = r->k->weigh_row(s, 0.7f, m, l, kind);
}

static void check_weigh_row(struct run *r)
{
    static const float before[] = { -INFINITY, -20.0f, 1e5f };

    for (int kind = FOCI_WEIGH_SOFTMAX; kind <= FOCI_WEIGH_RELU2; kind++)
        for (int scores = 0; scores < cases(r, 1, 4); scores++)
            for (int b = 0; b < cases(r, 1, COUNT(before)); b++)
                try_weigh_row(r, kind, scores, before[b]);
}

#endif
