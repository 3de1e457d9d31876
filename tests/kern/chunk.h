/* chunk.h -- checkers of weights inside a chunk of linear attention, of sums over it, and
 * of features that are powers of e. */
#ifndef FOCI_TESTS_KERN_CHUNK_H
#define FOCI_TESTS_KERN_CHUNK_H

#include "kern/run.h"

static const int chunk_keys[] = { 64, 1, 2, 15, 16, 33, 63 };
static const int feature_rows[] = { 64, 1, 3, 130 };

static void name_chunk(struct run *r, int n, int form, double bytes)
{
    snprintf(r->label, sizeof r->label, "%d rows, form %d", n, form);
    r->work = bytes;
    r->is_flops = false;
}

/* What a lane does not see may be anything. */
static void hide(struct run *r, float *a, int n, int form)
{
    for (int j = 0; j < n && !(form & 1) && !r->bench; j++)
        for (int i = 0; i < j; i++)
            a[j * LANES + i] = below(r, 2) ? NAN : INFINITY;
}

/* Sums of n numbers below 36, in another order. */
static void allow_sums(struct run *r, float *sum, int n)
{
    for (int i = 0; i < LANES; i++)
        allow(r, sum, i, 2 * (n + 1) * E * 36.0 * (n + 1));
}

static void check_near_f32(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(chunk_keys)); c++)
        for (int form = 0; form < 4; form++) {
            const int n = chunk_keys[c];

            name_chunk(r, n, form, 8.0 * n * LANES);
            float *const       a = inout(r, (int64_t)n * LANES, NORMAL);
            const float *const by = floats(r, LANES * LANES, NORMAL);
            float *const       sum = inout(r, LANES, NORMAL);

            hide(r, a, n, form);
            allow_sums(r, sum, n);
            while (next(r))
                r->k->near_f32(a, n, form & 2 ? by : NULL, form & 1, sum);
        }
}

static void check_near_bf16(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(chunk_keys)); c++)
        for (int form = 0; form < 4; form++) {
            const int n = chunk_keys[c];
            const int k = (n + 1) / 2 + (r->bench ? 0 : below(r, 3));

            name_chunk(r, n, form, 6.0 * n * LANES);
            float *const       a = floats(r, (int64_t)n * LANES, NORMAL);
            const float *const by = floats(r, LANES * LANES, NORMAL);
            float *const       sum = inout(r, LANES, NORMAL);
            uint32_t *const    p = output(r, (int64_t)k * LANES, sizeof *p, HALVES);

            hide(r, a, n, form);
            allow_sums(r, sum, n);
            while (next(r))
                r->k->near_bf16(a, p, n, k, form & 2 ? by : NULL, form & 1, sum);
        }
}

static void check_row_sums(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(feature_rows)); c++)
        for (int form = 0; form < 2; form++) {
            const int rows = feature_rows[c];

            name_chunk(r, rows, form, 4.0 * rows * LANES);
            const float *const x = floats(r, (int64_t)rows * LANES, NORMAL);
            const float *const by = floats(r, LANES, NORMAL);
            float *const       out = inout(r, rows, NORMAL);

            for (int i = 0; i < rows; i++)
                allow(r, out, i, 2 * (LANES + 2) * E * 36.0 * LANES);
            while (next(r))
                r->k->row_sums(out, x, rows, form ? by : NULL);
        }
}

/* Logs, some -inf, whole rows and whole lanes of them too. */
static void fill_logs(struct run *r, float *x, int rows)
{
    for (int i = 0; i < rows * LANES; i++)
        if (below(r, 9) == 0 || i / LANES == 2 || i % LANES == 7) x[i] = -INFINITY;
    if (!r->bench) x[5] = NAN;
}

static void check_row_tops(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(feature_rows)); c++) {
        const int rows = feature_rows[c];

        name_chunk(r, rows, 0, 4.0 * rows * LANES);
        float *const x = floats(r, (int64_t)rows * LANES, NORMAL);
        float *const top = output(r, rows, sizeof *top, FLOATS);

        fill_logs(r, x, rows);
        while (next(r))
            r->k->row_tops(top, x, rows);
    }
}

/* The error of 2^x, and of an exponent below 32 that is multiplied by log2(e). */
static const double exp_share = EXP + (4 + 4 * 32) * E;

static void check_exp_rows(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(feature_rows)); c++) {
        const int rows = feature_rows[c];

        name_chunk(r, rows, 0, 8.0 * rows * LANES);
        float *const x = inout(r, (int64_t)rows * LANES, NORMAL);
        float *const base = floats(r, rows, NORMAL);

        fill_logs(r, x, rows);
        base[rows - 1] = -INFINITY;
        allow_share(r, x, exp_share);
        while (next(r))
            r->k->exp_rows(x, rows, base);
    }
}

static void check_exp_cols(struct run *r)
{
    for (int c = 0; c < cases(r, 1, COUNT(feature_rows)); c++)
        for (int form = 0; form < 2; form++) {
            const int rows = feature_rows[c];

            name_chunk(r, rows, form, 8.0 * rows * LANES);
            float *const x = inout(r, (int64_t)rows * LANES, NORMAL);
            float *const add = floats(r, rows, NORMAL);
            float *const top = output(r, LANES, sizeof *top, FLOATS);

            fill_logs(r, x, rows);
            add[0] = -INFINITY;
            allow_share(r, x, exp_share);
            while (next(r))
                r->k->exp_cols(x, rows, form ? add : NULL, top);
        }
}

static void check_all_finite(struct run *r)
{
    static const float odd[] = { 1.0f, FLT_MAX, NAN, INFINITY, -INFINITY };

    for (int c = 0; c < cases(r, 1, 3); c++)
        for (int form = 0; form < cases(r, 1, COUNT(odd)); form++) {
            const int n = c == 0 ? 4096 : 16 * c;

            name_chunk(r, n, form, 4.0 * n);
            float *const x = floats(r, n, NORMAL);
            int *const   is = output(r, 1, sizeof *is, BYTES);

            x[below(r, n)] = odd[form];
            while (next(r))
                *is = r->k->all_finite(x, n);
        }
}

#endif
