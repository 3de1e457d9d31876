/* places.h -- checkers of what positions and dropped weights need. */
#ifndef FOCI_TESTS_KERN_PLACES_H
#define FOCI_TESTS_KERN_PLACES_H

#include "kern/run.h"

static void name_places(struct run *r, int n, int d, int form, double bytes)
{
    snprintf(r->label, sizeof r->label, "%d keys, %d, form %d", n, d, form);
    r->work = bytes;
    r->is_flops = false;
}

/* Two products and a sum, fused or not. */
static void try_rotate(struct run *r, int n, int d, int form)
{
    const int64_t ld = up(d, 16), ldt = form & 4 ? -d : d;

    name_places(r, n, d, form, 12.0 * n * d);
    float *const       x = inout(r, n * ld, NORMAL);
    const float *const cos_sin = floats(r, (int64_t)n * d, NORMAL);

    for (int64_t i = 0; i < n * ld; i++)
        allow(r, x, i, 4 * E * 32.0); /* numbers are below 6 */
    while (next(r))
        r->k->rotate(x, ld, form & 4 ? cos_sin + (int64_t)(n - 1) * d : cos_sin, ldt, n,
                     d, form & 1, form & 2);
}

static void check_rotate(struct run *r)
{
    static const int sizes[][2] = { { 64, 64 }, { 64, 128 }, { 1, 2 },
                                    { 3, 6 },   { 5, 30 },   { 2, 34 } };

    for (int i = 0; i < cases(r, 1, COUNT(sizes)); i++)
        for (int form = 0; form < cases(r, 2, 8); form++)
            try_rotate(r, sizes[i][0], sizes[i][1], form);
}

static const int band_keys[] = { 64, 1, 2, 15, 16, 17, 33, 63 };

static void check_skew(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(band_keys)); i++) {
        const int n = band_keys[i];

        name_places(r, n, LANES, 0, 12.0 * n * LANES);
        float *const       s = inout(r, (int64_t)n * LANES, NORMAL);
        const float *const low = floats(r, LANES * LANES, NORMAL);
        const float *const high = floats(r, LANES * LANES, NORMAL);

        while (next(r))
            r->k->skew(s, low, high, n);
    }
}

/* Numbers of a dtype: floats, or halves that are no NaN. */
static const void *some_numbers(struct run *r, int64_t n, int dtype)
{
    if (dtype == FOCI_F32) return floats(r, n, NORMAL);
    uint16_t *const x = take(r, (size_t)n * sizeof *x, false, HALVES);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)(bits(r) & 0xbfff); /* up to 2 in both formats */
    return x;
}

static void check_unskew_f32(struct run *r)
{
    name_places(r, LANES, LANES, 0, 8.0 * LANES * LANES);
    const float *const ds = floats(r, 2 * LANES * LANES, NORMAL);
    float *const       band = output(r, LANES * LANES, sizeof *band, FLOATS);

    while (next(r))
        r->k->unskew_f32(band, ds);
}

static void check_unskew_bf16(struct run *r)
{
    name_places(r, LANES, LANES, 0, 6.0 * LANES * LANES);
    const uint16_t *const ds = some_numbers(r, 2 * LANES * LANES, FOCI_BF16);
    uint16_t *const       rows = output(r, LANES * LANES, sizeof *rows, HALVES);
    uint32_t *const       pairs = output(r, LANES * LANES, sizeof *rows, HALVES);

    while (next(r))
        r->k->unskew_bf16(rows, pairs, ds);
}

/* Sums of 64 numbers below 6, in another order. */
static void check_diagonals(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(band_keys)); i++)
        for (int dtype = FOCI_F32; dtype <= cases(r, FOCI_BF16, FOCI_F16); dtype++) {
            const int      n = band_keys[i];
            const uint64_t lanes = i % 2 ? bits(r) : UINT64_MAX;

            name_places(r, n, LANES, dtype, 4.0 * n * LANES);
            const void *const ds = some_numbers(r, (int64_t)n * LANES, dtype);
            float *const      sums = inout(r, 2 * LANES, NORMAL);

            for (int t = 0; t < 2 * LANES; t++)
                allow(r, sums, t, 2 * 65 * E * 65 * 6);
            while (next(r))
                r->k->diagonals(sums, ds, dtype, n, lanes);
        }
}

/* Sums of products of two numbers below 6, some weights being 0 and their x NaN. */
static void check_grad_sums(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(band_keys)); i++)
        for (int dtype = FOCI_F32; dtype <= cases(r, FOCI_BF16, FOCI_F16); dtype++)
            for (int square = 0; square < 2; square++) {
                const int n = band_keys[i];

                name_places(r, n, square, dtype, 4.0 * n * LANES);
                void *const w = (void *)some_numbers(r, (int64_t)n * LANES, dtype);
                const void *const ds = some_numbers(r, (int64_t)n * LANES, dtype);
                float *const      x = floats(r, (int64_t)n * LANES, NORMAL);
                float *const      sums = inout(r, LANES, NORMAL);
                float *const      means = inout(r, LANES, NORMAL);
                const size_t      size = dtype == FOCI_F32 ? 4 : 2;

                for (int64_t at = 0; at < (int64_t)n * LANES; at += 5) {
                    memset((char *)w + (size_t)at * size, 0, size);
                    x[at] = NAN;
                }
                for (int t = 0; t < LANES; t++) {
                    allow(r, sums, t, 2 * 66 * E * 66 * 6);
                    allow(r, means, t, 2 * 66 * E * 66 * 216);
                }
                while (next(r))
                    r->k->grad_sums(sums, means, w, ds, dtype, x, n, square);
            }
}

static void check_dropout_keys(struct run *r)
{
    static const uint64_t bounds[] = { UINT64_C(0x4000000000000000), 0, UINT64_MAX,
                                       UINT64_C(0x8000000000000000), 1 };

    for (int i = 0; i < cases(r, 1, COUNT(band_keys)); i++)
        for (int b = 0; b < cases(r, 1, COUNT(bounds)); b++) {
            const int n = band_keys[i];

            name_places(r, n, LANES, b, 8.0 * n);
            uint64_t *const dropout_mask = output(r, n, sizeof *dropout_mask, BYTES);
            uint64_t *const keys = take(r, LANES * sizeof *keys, false, BYTES);
            const uint64_t  first = bits(r);

            for (int t = 0; t < LANES; t++)
                keys[t] = bits(r);
            while (next(r))
                r->k->dropout_keys(dropout_mask, n, keys, first, bounds[b]);
        }
}

/* What is dropped may be anything. */
static void check_drop(struct run *r, size_t row, int per,
                       void (*run)(const struct kernels *, void *, int,
                                   const uint64_t *))
{
    for (int i = 0; i < cases(r, 1, COUNT(band_keys)); i++) {
        const int    n = band_keys[i];
        const size_t bytes = (size_t)up(n, per) / (size_t)per * row;

        name_places(r, n, LANES, 0, 2.0 * (double)bytes);
        unsigned char *const w = output(r, (int64_t)bytes, 1, BYTES);
        uint64_t *const      dropout_mask =
            take(r, (size_t)n * sizeof *dropout_mask, false, BYTES);

        for (size_t t = 0; t < bytes; t++)
            w[t] = (unsigned char)bits(r);
        for (int t = 0; t < n; t++)
            dropout_mask[t] = bits(r);
        while (next(r))
            run(r->k, w, n, dropout_mask);
    }
}

static void run_drop_f32(const struct kernels *k, void *w, int n,
                         const uint64_t *dropout_mask)
{
    k->drop_f32(w, n, dropout_mask);
}

static void run_drop_rows(const struct kernels *k, void *w, int n,
                          const uint64_t *dropout_mask)
{
    k->drop_rows_bf16(w, n, dropout_mask);
}

static void run_drop_pairs(const struct kernels *k, void *w, int n,
                           const uint64_t *dropout_mask)
{
    k->drop_pairs_bf16(w, n, dropout_mask);
}

static void check_drop_f32(struct run *r) { check_drop(r, 4 * LANES, 1, run_drop_f32); }
static void check_drop_rows_bf16(struct run *r)
{
    check_drop(r, 2 * LANES, 1, run_drop_rows);
}
static void check_drop_pairs_bf16(struct run *r)
{
    check_drop(r, 4 * LANES, 2, run_drop_pairs);
}

#endif
