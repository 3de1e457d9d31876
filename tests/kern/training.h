/* training.h -- checkers of norms, losses, the optimiser, sums of rows and short
 * convolutions. */
#ifndef FOCI_TESTS_KERN_TRAINING_H
#define FOCI_TESTS_KERN_TRAINING_H

#include "kern/epilogue.h"

static const struct tile spans[] = {
    { 16, 512 }, { 4, 1 }, { 3, 5 },  { 2, 16 },  { 5, 33 },
    { 7, 64 },   { 1, 8 }, { 2, 70 }, { 3, 130 }, { 1, 1001 },
};

static void name_span(struct run *r, const struct tile *x, int dtype, double bytes)
{
    snprintf(r->label, sizeof r->label, "%dx%d dtype %d", x->n, x->d, dtype);
    r->work = bytes * x->n * x->d;
    r->is_flops = false;
}

static double unit_of(int dtype) { return dtype == FOCI_BF16 ? BF16 : 0; }

static void check_dropout_rows(struct run *r)
{
    static const uint64_t bounds[] = { UINT64_C(0x4000000000000000), 0, UINT64_MAX, 1 };

    for (int n = 64; n > 0; n -= 21)
        for (int b = 0; b < cases(r, 1, COUNT(bounds)); b++) {
            uint64_t *const dropout_mask = output(r, n, sizeof *dropout_mask, BYTES);
            uint64_t *const keys = take(r, (size_t)n * sizeof *keys, false, BYTES);
            const uint64_t  first = bits(r);

            snprintf(r->label, sizeof r->label, "%d rows, bound %d", n, b);
            r->work = 8.0 * n;
            r->is_flops = false;
            for (int i = 0; i < n; i++)
                keys[i] = bits(r);
            while (next(r))
                r->k->dropout_rows(dropout_mask, n, keys, first, bounds[b]);
        }
}

/*
 * Norms
 */

/* The largest number of a row, and 1 / deviation, as they are by `how`. */
static void measure(const float *row, int d, const struct norm *how, double *most,
                    double *by)
{
    double mean = 0, squares = 0;

    *most = 0;
    for (int c = 0; c < d; c++) {
        mean += how->rms ? 0 : (double)row[c] / d;
        *most = fmax(*most, fabs((double)row[c]));
    }
    for (int c = 0; c < d; c++)
        squares += ((double)row[c] - mean) * ((double)row[c] - mean) / d;
    *by = 1 / sqrt(squares + (double)how->eps);
}

/* Sums of d numbers in another order, that differences and a quotient follow. */
static double norm_off(double most, double by, int d, int dtype)
{
    const double size = 1 + most * by;
    return (2 * (d + 8) * E + unit_of(dtype)) * size * size;
}

static struct norm norm_kind(const float *gain, const float *bias, int kind)
{
    return (struct norm){ .gain = kind & 1 ? gain : NULL,
                          .bias = kind & 1 ? bias : NULL,
                          .eps = 1e-3f,
                          .rms = kind & 2 };
}

static void try_norm_rows(struct run *r, const struct tile *x, int dtype, int kind)
{
    const struct drawn in = draw_rows(r, 1, x->n * x->d, x->n * x->d, dtype);
    const float *const gain = floats(r, x->d, NORMAL), *bias = floats(r, x->d, NORMAL);
    const struct norm  how = norm_kind(gain, bias, kind);
    char *const        out = rows_out(r, (int64_t)x->n * x->d, dtype);
    float *const       stats = output(r, 2 * x->n, sizeof *stats, FLOATS);

    name_span(r, x, dtype, 2.0 * (double)dtype_bytes(dtype));
    for (int i = 0; i < x->n; i++) {
        double most, by;

        measure(in.x + (int64_t)i * x->d, x->d, &how, &most, &by);
        const double off = norm_off(most, by, x->d, dtype);
        allow(r, stats, 2 * i, 2 * (x->d + 8) * E * most);
        allow(r, stats, 2 * i + 1, 2 * off * by);
        for (int c = 0; c < x->d; c++)
            allow(r, out, (int64_t)i * x->d + c,
                  off * (1 + fabs((double)gain[c]) + fabs((double)bias[c])));
    }
    while (next(r))
        r->k->norm_rows(out, stats, in.rows, dtype, x->n, x->d, &how);
}

static void check_norm_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(spans)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int kind = 0; kind < 4; kind++)
                try_norm_rows(r, &spans[i], dtype, kind);
}

/* Statistics are given; bit 2 of `kind`: something is added. */
static void try_norm_back(struct run *r, const struct tile *x, int dtype, int kind)
{
    const int          all = x->n * x->d;
    const struct drawn in = draw_rows(r, 1, all, all, dtype);
    const struct drawn dy = draw_rows(r, 1, all, all, dtype);
    const struct drawn more = draw_rows(r, 1, all, all, dtype);
    const float *const gain = floats(r, x->d, NORMAL), *bias = floats(r, x->d, NORMAL);
    const struct norm  how = norm_kind(gain, bias, kind);
    char *const        dx = rows_out(r, all, dtype);
    float *const       dgain = inout(r, x->d, NORMAL), *dbias = inout(r, x->d, NORMAL);
    float *const       stats = floats(r, 2 * x->n, NORMAL);

    name_span(r, x, dtype, 3.0 * (double)dtype_bytes(dtype));
    for (int i = 0; i < x->n; i++) {
        stats[2 * i] = how.rms ? 0 : stats[2 * i] * 0.1f;
        stats[2 * i + 1] = 1 + fabsf(stats[2 * i + 1]);
        for (int c = 0; c < x->d; c++) /* z and dy are below 30 and 6 */
            allow(r, dx, (int64_t)i * x->d + c,
                  7 * (fabs((double)gain[c]) + 6) * 30 * 30 *
                          ((x->d + 8) * E + unit_of(dtype) / 16) +
                      6 * unit_of(dtype));
    }
    for (int c = 0; c < x->d; c++) {
        allow(r, dgain, c, 2 * (x->n + 4) * E * x->n * 6 * 30);
        allow(r, dbias, c, 2 * (x->n + 4) * E * x->n * 6);
    }
    while (next(r))
        r->k->norm_back(dx, dy.rows, in.rows, kind & 4 ? more.rows : NULL, stats, dtype,
                        x->n, x->d, &how, dgain, dbias);
}

static void check_norm_back(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(spans)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int kind = 0; kind < cases(r, 2, 8); kind++)
                try_norm_back(r, &spans[i], dtype, kind);
}

/*
 * Losses
 */

/* What a call comes to is kept beside the gradient, in doubles. */
static void try_loss_row(struct run *r, int d, int dtype, int kind)
{
    float *const       s = inout(r, d, NORMAL);
    const float *const bias = floats(r, d, NORMAL);
    char *const        out = rows_out(r, d, dtype);
    double *const      sums = output(r, 2, sizeof *sums, DOUBLES);
    const int          label = below(r, d);

    snprintf(r->label, sizeof r->label, "%d dtype %d kind %d", d, dtype, kind);
    r->work = 4.0 * d;
    r->is_flops = false;
    if (kind & 8) s[below(r, d)] = NAN;
    for (int c = 0; c < d; c++) {
        allow(r, s, c, (kind & 4 ? 4 * E : (d + 40) * E));
        allow(r, out, c, 0.25 * (d + 40) * E + unit_of(dtype));
    }
    allow(r, sums, 0, (d + 40) * 8 * E);
    while (next(r)) {
        struct loss_row row = { .bias = kind & 1 ? bias : NULL,
                                .label = label,
                                .smoothing = kind & 2 ? 0.2f : 0,
                                .scale = 0.25f };

        r->k->loss_row(kind & 4 ? NULL : out, dtype, s, d, &row);
        sums[0] = row.loss;
        sums[1] = row.best;
    }
}

static void check_loss_row(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(spans)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int kind = 0; kind < cases(r, 1, 16); kind++)
                try_loss_row(r, r->bench ? 8192 : spans[i].d, dtype, kind);
}

/*
 * Long arrays
 */

static const int64_t lengths[] = { 16384, 1, 7, 16, 31, 64, 100, 1001 };

static void name_length(struct run *r, int64_t n, double bytes)
{
    snprintf(r->label, sizeof r->label, "%d", (int)n);
    r->work = bytes * (double)n;
    r->is_flops = false;
}

static void check_adamw(struct run *r)
{
    for (int i = 0; i < cases(r, 1, 2 * COUNT(lengths)); i++) {
        const int64_t      n = lengths[i / 2];
        const struct adamw how = { .rest1 = 0.1f,
                                   .rest2 = 0.05f,
                                   .scale = 0.5f,
                                   .decay = 0.99f,
                                   .step = 0.01f,
                                   .root = 1.5f,
                                   .eps = 1e-3f,
                                   .clear = i % 2 };
        float *const       p = inout(r, n, NORMAL), *g = inout(r, n, NORMAL);
        float *const       m = inout(r, n, NORMAL), *v = inout(r, n, NORMAL);

        name_length(r, n, 32);
        for (int64_t c = 0; c < n; c++)
            v[c] = fabsf(v[c]) + 0.01f;
        allow_share(r, v, 16 * E);
        for (int64_t c = 0; c < n; c++) {
            allow(r, p, c, 64 * E);
            allow(r, m, c, 64 * E);
        }
        while (next(r))
            r->k->adamw(p, g, m, v, n, &how);
    }
}

static void check_squares_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(lengths)); i++) {
        const float *const x = floats(r, lengths[i], NORMAL);
        double *const      sum = output(r, 1, sizeof *sum, DOUBLES);

        name_length(r, lengths[i], 4);
        allow_share(r, sum, 1e-12);
        while (next(r))
            *sum = r->k->squares_f32(x, lengths[i]);
    }
}

static void check_move_to(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(lengths)); i++) {
        const float *const x = floats(r, lengths[i], NORMAL);
        float *const       mean = inout(r, lengths[i], NORMAL);

        name_length(r, lengths[i], 12);
        for (int64_t c = 0; c < lengths[i]; c++)
            allow(r, mean, c, 64 * E);
        while (next(r))
            r->k->move_to(mean, x, 0.3f, lengths[i]);
    }
}

static void check_add_scaled(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(lengths)); i++)
        for (int t = 0; t < cases(r, 2, 18); t++) {
            const int a = t % 3, b = t / 3 % 3, to = t / 9, n = (int)lengths[i];
            const struct drawn x = draw_rows(r, 1, n, n, a),
                               y = draw_rows(r, 1, n, n, b);
            char *const out = rows_out(r, n, to);

            name_length(r, n, 12);
            for (int c = 0; c < n; c++)
                allow(r, out, c, 12 * (4 * E + unit_of(to)));
            while (next(r))
                r->k->add_scaled(out, to, x.rows, a, -0.7f, b == 2 ? NULL : y.rows, b,
                                 n);
        }
}

static void check_col_sums(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(spans)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++) {
            const struct tile *x = &spans[i];
            const struct drawn in = draw_rows(r, x->n, x->d, x->d + 3, dtype);
            float *const       out = inout(r, x->d, NORMAL);

            name_span(r, x, dtype, (double)dtype_bytes(dtype));
            for (int c = 0; c < x->d; c++)
                allow(r, out, c, 2 * (x->n + 2) * E * 6 * (x->n + 1));
            while (next(r))
                r->k->col_sums(out, in.rows, x->d + 3, dtype, x->n, x->d);
        }
}

/*
 * Short convolutions
 */

enum { CONV_TAPS = 5 };

/* Rows of a list, of which some are not there. */
static const void **row_list(struct run *r, const char *rows, int n, int d, int dtype)
{
    const void **const list = take(r, (size_t)n * sizeof *list, false, BYTES);

    for (int i = 0; i < n; i++)
        list[i] = i % 7 == 2 ? NULL : rows + (size_t)(i * d) * dtype_bytes(dtype);
    return list;
}

static void try_conv_rows(struct run *r, const struct tile *x, int dtype, int taps,
                          int back)
{
    const int          n = x->n + taps - 1;
    const struct drawn in = draw_rows(r, n, x->d, x->d, dtype);
    const void **const list = row_list(r, in.rows, n, x->d, dtype);
    const float *const w = floats(r, (int64_t)taps * x->d, NORMAL);
    const float *const bias = floats(r, x->d, NORMAL);
    char *const        out = rows_out(r, x->n * (x->d + 2), dtype);

    name_span(r, x, dtype, 2.0 * (double)dtype_bytes(dtype));
    for (int64_t c = 0; c < x->n * (x->d + 2); c++)
        allow(r, out, c, 36 * (taps + 1) * ((taps + 2) * E + unit_of(dtype)));
    while (next(r))
        r->k->conv_rows(out, x->d + 2, dtype, list, back ? w + (taps - 1) * x->d : w,
                        back ? -x->d : x->d, back ? bias : NULL, taps, x->n, x->d);
}

static void try_conv_dots(struct run *r, const struct tile *x, int dtype, int taps,
                          int back)
{
    const int          n = x->n + taps - 1;
    const struct drawn in = draw_rows(r, n, x->d, x->d, dtype);
    const struct drawn g = draw_rows(r, x->n, x->d, x->d + 1, dtype);
    const void **const list = row_list(r, in.rows, n, x->d, dtype);
    float *const       dw = inout(r, (int64_t)taps * x->d, NORMAL);

    name_span(r, x, dtype, 2.0 * (double)dtype_bytes(dtype));
    for (int64_t c = 0; c < (int64_t)taps * x->d; c++)
        allow(r, dw, c, 36 * (x->n + 1) * (x->n + 2) * E);
    while (next(r))
        r->k->conv_dots(back ? dw + (taps - 1) * x->d : dw, back ? -x->d : x->d, g.rows,
                        x->d + 1, list, dtype, taps, x->n, x->d);
}

static void check_conv(struct run *r,
                       void (*try)(struct run *, const struct tile *, int, int, int))
{
    for (int i = 0; i < cases(r, 1, COUNT(spans)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int taps = 4; taps <= cases(r, 4, CONV_TAPS); taps++)
                for (int back = 0; back < 2; back++)
                    try(r, &spans[i], dtype, taps % CONV_TAPS ? taps : 1, back);
}

static void check_conv_rows(struct run *r) { check_conv(r, try_conv_rows); }
static void check_conv_dots(struct run *r) { check_conv(r, try_conv_dots); }

#endif
