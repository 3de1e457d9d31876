/* epilogue.h -- checkers of what follows products, forward and backward.
 *
 * Bounds.  An activation is off by what its polynomials are, as a share of its argument: of
 * those for bf16 1.3e-4, of the others 4e-7; its slope is at most 1.13 and turns by no more
 * than 1 a unit.  What passes through 16 bits may fall to either side there.
 */
#ifndef FOCI_TESTS_KERN_EPILOGUE_H
#define FOCI_TESTS_KERN_EPILOGUE_H

#include "foci/product.h"
#include "kern/rows.h"

/* Bits of `with`, above which the activation is counted. */
enum {
    WITH_BIAS = 1,
    WITH_KEEP = 2,
    WITH_MORE = 4,
    WITH_UP = 8,
    WITH_PRE = 16,
    N_WITH = 32,
    N_ACTS = FOCI_ACT_SILU + 1
};

/* n rows of d numbers of a type, ld apart. */
struct drawn {
    const float *x;
    char        *rows;
};

static struct drawn draw_rows(struct run *r, int n, int d, int64_t ld, int dtype)
{
    const float *const x = floats(r, n * ld, NORMAL);
    char *const rows = take(r, (size_t)(n * ld) * dtype_bytes(dtype), false, BYTES);

    r->ref->store_rows(rows, ld, dtype, x, ld, 1.0f, n, d);
    return (struct drawn){ x, rows };
}

static double act_off(int act, int dtype)
{
    if (act == FOCI_ACT_NONE || act == FOCI_ACT_RELU) return 0;
    return dtype == FOCI_BF16 ? 4e-4 : 1e-6;
}

/* Of sizes a of what is activated and u of what it is multiplied by. */
static double epilogue_error(double a, double u, double more, int act, int dtype)
{
    static const double units[] = { 0, BF16, 0x1p-10 };

    return (2 * a * u + fabs(more)) * (8 * E + units[dtype]) +
           2 * a * u * act_off(act, dtype);
}

static void try_gemm_epilogue(struct run *r, const struct tile *x, int dtype, int act,
                              int with, int shift)
{
    const int64_t      ld_in = x->d + shift, ld_out = x->d + 5, ld = x->d + 2;
    const size_t       size = dtype_bytes(dtype);
    const bool         inside = shift && with & WITH_MORE; /* more is overwritten */
    const float *const in = floats(r, x->n * ld_in, NORMAL);
    const float *const up = floats(r, x->n * ld_in, NORMAL);
    const float *const bias = floats(r, x->d, NORMAL),
                       *bias_up = floats(r, x->d, NORMAL);
    const struct drawn more = draw_rows(r, x->n, x->d, ld, dtype);
    char *const        out = rows_out(r, x->n * ld_out + shift, dtype);
    char *const        pre = rows_out(r, x->n * ld, dtype);
    char *const        pre_up = rows_out(r, x->n * ld, dtype);
    uint64_t *const    dropout_mask =
        take(r, (size_t)x->n * sizeof *dropout_mask, false, BYTES);
    struct epilogue f = { .bias = with & WITH_BIAS ? bias : NULL,
                          .bias_up = with & WITH_BIAS ? bias_up : NULL,
                          .up = with & WITH_UP ? up : NULL,
                          .act = act,
                          .pre = with & WITH_PRE ? pre : NULL,
                          .pre_up = with & WITH_PRE ? pre_up : NULL,
                          .ld_pre = ld,
                          .dropout_mask = with & WITH_KEEP ? dropout_mask : NULL,
                          .first = shift,
                          .factor = 1.25f,
                          .more = with & WITH_MORE ? more.rows : NULL,
                          .ld_more = ld };
    char *const     first = out + (size_t)shift * size;

    snprintf(r->label, sizeof r->label, "%dx%d dtype %d act %d with %d", x->n, x->d,
             dtype, act, with);
    r->work = (double)(size + 4) * x->n * x->d;
    r->is_flops = false;
    if (inside) {
        r->ref->store_rows(first, ld_out, dtype, more.x, ld, 1.0f, x->n, x->d);
        f.more = first;
        f.ld_more = ld_out;
    }
    for (int i = 0; i < x->n; i++) {
        dropout_mask[i] = bits(r);
        for (int c = 0; c < x->d && dtype != FOCI_F16; c++) {
            const int64_t at = i * ld_in + c;
            const double  a = fabs((double)in[at]) + fabs((double)bias[c]);
            const double  u = fabs((double)up[at]) + fabs((double)bias_up[c]);
            const double  m = with & WITH_MORE ? (double)more.x[i * ld + c] : 0;

            allow(r, out, i * ld_out + shift + c,
                  epilogue_error(a, with & WITH_UP ? u : 1, m, act, dtype));
            allow(r, pre, i * ld + c, a * (4 * E + (dtype ? BF16 : 0)));
            allow(r, pre_up, i * ld + c, u * (4 * E + (dtype ? BF16 : 0)));
        }
    }
    while (next(r))
        r->k->gemm_epilogue(first, ld_out, dtype, in, ld_in, &f, x->n, x->d);
}

/* f16 is compared bit by bit, so that there nothing may round twice. */
static void check_gemm_epilogue(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int act = 0; act < N_ACTS; act++)
                for (int with = 0; with < cases(r, 1, N_WITH); with++) {
                    const int shift = with % 3 == 1;

                    if (tiles[i].d > LANES - shift) continue;
                    if (dtype == FOCI_F16 && (act || with & WITH_UP)) continue;
                    try_gemm_epilogue(r, &tiles[i], dtype, act, with, shift);
                }
}

/* Bits of `with`: keep, more, up. */
static void try_gemm_epilogue_back(struct run *r, const struct tile *x, int dtype,
                                   int act, int with, int shift)
{
    const int64_t      ld_in = x->d + shift, ld_out = x->d + 5, ld = x->d + 2;
    const float *const in = floats(r, x->n * ld_in, NORMAL);
    const struct drawn pre = draw_rows(r, x->n, x->d, ld, dtype);
    const struct drawn up = draw_rows(r, x->n, x->d, ld, dtype);
    const struct drawn more = draw_rows(r, x->n, x->d, ld, dtype);
    char *const        out = rows_out(r, x->n * ld_out, dtype);
    char *const        out_up = rows_out(r, x->n * ld_out, dtype);
    uint64_t *const    dropout_mask =
        take(r, (size_t)x->n * sizeof *dropout_mask, false, BYTES);
    struct epilogue_back f = { .act = act,
                               .pre = pre.rows,
                               .pre_up = up.rows,
                               .ld_pre = ld,
                               .out_up = with & WITH_UP ? out_up : NULL,
                               .dropout_mask = with & WITH_KEEP ? dropout_mask : NULL,
                               .first = shift,
                               .factor = 1.25f,
                               .more = with & WITH_MORE ? more.rows : NULL,
                               .ld_more = ld };

    snprintf(r->label, sizeof r->label, "%dx%d dtype %d act %d with %d", x->n, x->d,
             dtype, act, with);
    r->work = (double)(2 * dtype_bytes(dtype) + 4) * x->n * x->d;
    r->is_flops = false;
    for (int i = 0; i < x->n; i++) {
        dropout_mask[i] = bits(r);
        for (int c = 0; c < x->d && dtype != FOCI_F16; c++) {
            const double d = 1.25 * fabs((double)in[i * ld_in + c]);
            const double a = 1 + fabs((double)pre.x[i * ld + c]);
            const double u = with & WITH_UP ? fabs((double)up.x[i * ld + c]) : 1;
            const double m = with & WITH_MORE ? (double)more.x[i * ld + c] : 0;

            allow(r, out, i * ld_out + c, epilogue_error(d, a * u, m, act, dtype));
            allow(r, out_up, i * ld_out + c, epilogue_error(d, a, 0, act, dtype));
        }
    }
    while (next(r))
        r->k->gemm_epilogue_back(out, ld_out, dtype, in, ld_in, &f, x->n, x->d);
}

static void check_gemm_epilogue_back(struct run *r)
{
    static const int with[] = { 0,       WITH_KEEP,           WITH_MORE,
                                WITH_UP, WITH_UP | WITH_KEEP, WITH_MORE | WITH_KEEP };

    for (int i = 0; i < cases(r, 1, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int act = 0; act < N_ACTS; act++)
                for (int w = 0; w < cases(r, 1, COUNT(with)); w++)
                    if (tiles[i].d <= LANES - w % 2)
                        try_gemm_epilogue_back(r, &tiles[i], dtype, act, with[w], w % 2);
}

#endif
