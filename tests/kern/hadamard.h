/* hadamard.h -- checkers of Hadamard transforms, and of rows that stand in lanes for them. */
#ifndef FOCI_TESTS_KERN_HADAMARD_H
#define FOCI_TESTS_KERN_HADAMARD_H

#include "kern/rows.h"

static const struct tile few_rows[] = {
    { 16, 64 }, { 16, 1024 }, { 16, 48 }, { 1, 1 },  { 3, 17 },
    { 9, 15 },  { 8, 8 },     { 15, 40 }, { 2, 31 }, { 7, 72 },
};

static void try_transpose_load(struct run *r, const struct tile *x, int dtype)
{
    const int64_t ld = x->d + 3;
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const char *const in = anything(r, (size_t)((x->n - 1) * ld + x->d + 1) * size);
    float *const      out = output(r, x->d * FEW_LANES, sizeof *out, FLOATS);

    while (next(r))
        r->k->transpose_load(out, in + size, ld, dtype, x->n, x->d);
}

static void check_transpose_load(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(few_rows)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            try_transpose_load(r, &few_rows[i], dtype);
}

static void try_transpose_store(struct run *r, const struct tile *x, int dtype,
                                enum data data)
{
    const int64_t ld = x->d + 5;
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const float *const in = floats(r, x->d * FEW_LANES, data);
    char *const        out = rows_out(r, (x->n - 1) * ld + x->d + 1, dtype);

    while (next(r))
        r->k->transpose_store(out + size, ld, dtype, in, x->n, x->d);
}

static void check_transpose_store(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(few_rows)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int data = 0; data < cases(r, 1, N_DATA); data++)
                try_transpose_store(r, &few_rows[i], dtype, (enum data)data);
}

static void check_add_rows(struct run *r)
{
    for (int c = 0; c < cases(r, 2, COUNT(few_rows)); c++) {
        const int d = few_rows[c].d;

        name_tile(r, &few_rows[c], FOCI_F32, 12);
        const float *const in = floats(r, d * FEW_LANES, NORMAL);
        const float *const factor = floats(r, d, NORMAL);
        float *const       out = inout(r, d * FEW_LANES, NORMAL);

        for (int i = 0; i < d * FEW_LANES; i++)
            allow(r, out, i,
                  4 * E *
                      (fabs((double)(factor[i / FEW_LANES] * in[i])) +
                       fabs((double)out[i])));
        while (next(r))
            r->k->add_rows(out, in, factor, d);
    }
}

static void try_transpose_add(struct run *r, const struct tile *x, bool factors)
{
    const int64_t ld = x->d + 5;

    name_tile(r, x, FOCI_F32, 12);
    const float *const in = floats(r, x->d * FEW_LANES, NORMAL);
    const float *const factor = floats(r, x->d, NORMAL);
    float *const       out = inout(r, (x->n - 1) * ld + x->d, NORMAL);

    for (int i = 0; i < x->n; i++)
        for (int t = 0; t < x->d; t++)
            allow(r, out, i * ld + t,
                  4 * E *
                      (fabs((double)((factors ? factor[t] : 1.0f) *
                                     in[t * FEW_LANES + i])) +
                       fabs((double)out[i * ld + t])));
    while (next(r))
        r->k->transpose_add(out, ld, in, factors ? factor : NULL, x->n, x->d);
}

static void check_transpose_add(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(few_rows)); i++)
        for (int factors = 0; factors < 2; factors++)
            try_transpose_add(r, &few_rows[i], factors);
}

struct transform {
    int  n, folds;
    bool from, factor;
};

/* What sums of n folds terms may be off by in each lane, the same for all of a lane. */
static void allow_hadamard(struct run *r, const struct transform *x, const float *in,
                           const float *factor, const int32_t *from, const float *out)
{
    for (int i = 0; i < FEW_LANES; i++) {
        double all = 0;

        for (int t = 0; t < x->n * x->folds; t++)
            all += fabs((double)(x->factor ? factor[t] : 1.0f) *
                        (double)in[(x->from ? from[t] : t) * FEW_LANES + i]);
        for (int t = 0; t < x->n; t++)
            allow(r, out, t * FEW_LANES + i, 2 * (16 + x->folds) * E * all);
    }
}

static void try_hadamard(struct run *r, const struct transform *x)
{
    const int all = x->n * x->folds;

    snprintf(r->label, sizeof r->label, "%d of %d%s%s", x->n, all,
             x->from ? ", places" : "", x->factor ? ", factors" : "");
    r->work = 0;
    r->is_flops = true;
    for (int size = 1; size < x->n; size *= 2)
        r->work += (double)x->n * FEW_LANES;
    const float *const in = floats(r, (int64_t)all * FEW_LANES, NORMAL);
    const float *const factor = floats(r, all, NORMAL);
    int32_t *const     from = take(r, (size_t)all * sizeof *from, false, BYTES);
    float *const       out = output(r, (int64_t)x->n * FEW_LANES, sizeof *out, FLOATS);

    for (int t = 0; t < all; t++)
        from[t] = below(r, all);
    allow_hadamard(r, x, in, factor, from, out);
    while (next(r))
        r->k->hadamard(out, in, x->from ? from : NULL, x->factor ? factor : NULL, x->n,
                       x->folds);
}

static void check_hadamard(struct run *r)
{
    static const struct transform tries[] = {
        { 1024, 1, true, true },
        { 64, 16, true, true },
        { 1024, 1, false, false },
    };

    for (int i = 0; i < COUNT(tries); i++)
        try_hadamard(r, &tries[i]);
    for (int n = 1; n <= cases(r, 0, 2048); n *= 2)
        for (int form = 0; form < 4; form++)
            try_hadamard(
                r, &(struct transform){ n, form == 3 ? 3 : 1, form >= 2, form >= 1 });
}

#endif
