/* rows.h -- checkers of what moves rows and tiles about.
 *
 * But for row_dot there is no arithmetic beyond one product: the rest is exact.
 */
#ifndef FOCI_TESTS_KERN_ROWS_H
#define FOCI_TESTS_KERN_ROWS_H

#include "kern/run.h"

static const struct tile {
    int n, d;
} tiles[] = {
    { 64, 64 }, { 64, 128 }, { 64, 80 }, { 1, 1 },   { 1, 2 },  { 3, 17 },
    { 17, 15 }, { 33, 40 },  { 63, 31 }, { 64, 72 }, { 64, 8 }, { 2, 96 },
};

static size_t dtype_bytes(int dtype) { return dtype == FOCI_F32 ? 4 : 2; }

static void name_tile(struct run *r, const struct tile *x, int dtype, size_t bytes)
{
    snprintf(r->label, sizeof r->label, "%dx%d dtype %d", x->n, x->d, dtype);
    r->work = (double)bytes * x->n * x->d;
    r->is_flops = false;
}

/* Any bits: denormals, infinities and NaN among them. */
static char *anything(struct run *r, size_t bytes)
{
    char *const p = take(r, bytes, false, BYTES);

    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)bits(r);
    return p;
}

static void try_load_rows(struct run *r, const struct tile *x, int dtype, int shift)
{
    const int64_t ld_in = x->d + 3;
    const int64_t ld_out = shift ? x->d + shift : up(x->d, 16);
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const char *const in = anything(r, (size_t)(x->n * ld_in + shift) * size);
    float *const      out = output(r, x->n * ld_out, sizeof *out, FLOATS);

    while (next(r))
        r->k->load_rows(out, ld_out, in + (size_t)shift * size, ld_in, dtype, x->n,
                        x->d);
}

static void check_load_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int shift = 0; shift < cases(r, 1, 4); shift++)
                try_load_rows(r, &tiles[i], dtype, shift);
}

static void try_load_rows_prefetch(struct run *r, const struct tile *x, int dtype,
                                   int ahead)
{
    const int64_t ld_in = x->d + 3, ld_out = up(x->d, 16);
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const char *const in = anything(r, (size_t)(x->n * ld_in) * size);
    float *const      out = output(r, x->n * ld_out, sizeof *out, FLOATS);

    while (next(r))
        r->k->load_rows_prefetch(out, ld_out, in, ld_in, dtype, x->n, x->d, ahead);
}

/* Rows asked for are not ours on either side. */
static void check_load_rows_prefetch(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int ahead = 64; ahead >= cases(r, 64, -64); ahead -= 64)
                try_load_rows_prefetch(r, &tiles[i], dtype, ahead);
}

/* Bytes, on boundaries of vectors and elsewhere. */
static void try_copy_rows(struct run *r, const struct tile *x, int shift)
{
    const int64_t from = x->d * 2 + 3, to = up(x->d * 2, 64);

    snprintf(r->label, sizeof r->label, "%dx%d, %d off", x->n, x->d * 2, shift);
    r->work = 4.0 * x->n * x->d;
    r->is_flops = false;
    const char *const in = anything(r, (size_t)(x->n * from));
    char *const       out = output(r, x->n * to + shift, 1, BYTES);

    while (next(r))
        r->k->copy_rows(out + shift, to, in, from, x->n, x->d * 2);
}

static void check_copy_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int shift = 0; shift < cases(r, 1, 3); shift++)
            try_copy_rows(r, &tiles[i], shift);
}

/* Output of `n` elements of a dtype, compared by value where that allows for the
 * many spellings of NaN. */
static void *rows_out(struct run *r, int64_t n, int dtype)
{
    static const enum type types[] = { FLOATS, HALVES, BYTES };
    return output(r, n, dtype_bytes(dtype), types[dtype]);
}

static void try_store_rows(struct run *r, const struct tile *x, int dtype, int shift,
                           enum data data)
{
    const int64_t ld_in = x->d + shift, ld_out = x->d + 5;
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const float *const in = floats(r, x->n * ld_in, data);
    char *const        out = rows_out(r, x->n * ld_out + shift, dtype);
    const float        scale = shift ? -0.75f : 1.0f;
    const float *const factor = floats(r, x->n, NORMAL);

    while (next(r))
        if (r->id == K_store_rows)
            r->k->store_rows(out + (size_t)shift * size, ld_out, dtype, in, ld_in,
                             scale, x->n, x->d);
        else
            r->k->store_rows_by(out + (size_t)shift * size, ld_out, dtype, in, ld_in,
                                factor, x->n, x->d);
}

static void check_store_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int c = 0; c < cases(r, 1, 2 * N_DATA); c++)
                try_store_rows(r, &tiles[i], dtype, c % 2, (enum data)(c / 2));
}

static void check_store_rows_by(struct run *r) { check_store_rows(r); }

/* Rows on boundaries of vectors, and others. */
static void try_stream_rows(struct run *r, const struct tile *x, int dtype, int shift)
{
    const int64_t ld_in = x->d + shift, ld_out = (x->d + 15) / 16 * 16 + 16 * shift;
    const size_t  size = dtype_bytes(dtype);

    name_tile(r, x, dtype, size + 4);
    const float *const in = floats(r, x->n * ld_in, NORMAL);
    char *const        out = rows_out(r, x->n * ld_out + shift, dtype);

    while (next(r))
        r->k->stream_rows(out + (size_t)shift * size, ld_out, dtype, in, ld_in, x->n,
                          x->d);
}

static void check_stream_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int shift = 0; shift < cases(r, 1, 2); shift++)
                try_stream_rows(r, &tiles[i], dtype, shift);
}

static void try_store_cols(struct run *r, const struct tile *x, int dtype,
                           enum data data)
{
    const int64_t ld_out = x->d + 3;

    name_tile(r, x, dtype, dtype_bytes(dtype) + 4);
    const float *const in = floats(r, (int64_t)x->d * LANES, data);
    const float *const factor = floats(r, LANES, NORMAL);
    void *const        out = rows_out(r, x->n * ld_out, dtype);

    while (next(r))
        r->k->store_cols(out, ld_out, dtype, in, factor, x->n, x->d);
}

static void check_store_cols(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int data = 0; data < cases(r, 1, N_DATA); data++)
                try_store_cols(r, &tiles[i], dtype, (enum data)data);
}

/*
 * Packing
 */

/* A tile [64][ld] whose rows from n on are NaN and whose columns from d on are 0. */
static const float *tile_in(struct run *r, int n, int d, int64_t ld, enum data data)
{
    float *const in = floats(r, LANES * ld, data);

    for (int64_t i = 0; i < LANES * ld; i++)
        if (i / ld >= n)
            in[i] = NAN;
        else if (i % ld >= d)
            in[i] = 0.0f;
    return in;
}

static void check_pack_cols_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++) {
        const struct tile x = tiles[i];
        const int64_t     ld = up(x.d, 16) + 16 * (i % 2);

        name_tile(r, &x, FOCI_F32, 8);
        const float *const in = tile_in(r, x.n, x.d, ld, NORMAL);
        float *const       out = output(r, (int64_t)x.d * LANES, sizeof *out, FLOATS);

        while (next(r))
            r->k->pack_cols_f32(out, in, ld, x.n, x.d);
    }
}

/* pack_sum_bf16 of "amx" goes by columns; in the order of the others. */
static void reorder(uint32_t *out, int d)
{
    uint32_t *const copy = malloc((size_t)d * 32 * sizeof *copy);

    assert_non_null(copy);
    for (int c = 0; c < d; c++)
        for (int t = 0; t < 32; t++)
            copy[t * d + c] = out[c * 32 + t];
    memcpy(out, copy, (size_t)d * 32 * sizeof *copy);
    free(copy);
}

/* The kernels that pack pairs differ in the size of their output alone. */
typedef void (*pack_fn)(uint32_t *out, const float *in, int64_t ld, int n, int d);

static void try_pack(struct run *r, struct tile x, enum data data)
{
    x.d = up(x.d, r->now->depth);
    const int64_t ld = up(x.d, 16);
    const int64_t size = r->id == K_pack_pairs_bf16 ? 32 * ld : 32 * (int64_t)x.d;

    name_tile(r, &x, FOCI_BF16, 6);
    const float *const in = tile_in(r, x.n, x.d, ld, data);
    uint32_t *const    out = output(r, size, sizeof *out, HALVES);

    for (int64_t i = 0; i < 2 * size; i++)
        allow(r, out, i, 0.0);
    while (next(r)) {
        ((pack_fn)kernels_slot(r->k, r->id))(out, in, ld, x.n, x.d);
        if (r->id == K_pack_sum_bf16 && r->k->sum_by_rows && !r->bench)
            reorder(out, x.d);
    }
}

static void check_pack(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_pack(r, tiles[i], (enum data)data);
}

static void check_pack_cols_bf16(struct run *r) { check_pack(r); }
static void check_pack_rows_bf16(struct run *r) { check_pack(r); }
static void check_pack_pairs_bf16(struct run *r) { check_pack(r); }
static void check_pack_sum_bf16(struct run *r) { check_pack(r); }

/* From rows as they are stored, every bit of them. */
typedef void (*take_fn)(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                        int wide);

static void try_take(struct run *r, const struct tile *x)
{
    const int     wide = up(x->d, r->now->depth) + (r->bench ? 0 : r->now->depth);
    const int64_t ld = x->d + 3;

    name_tile(r, x, FOCI_BF16, 4);
    const uint16_t *const in = (void *)anything(r, (size_t)(x->n * ld) * sizeof *in);
    uint32_t *const       out = output(r, 32 * (int64_t)wide, sizeof *out, BYTES);

    while (next(r)) {
        ((take_fn)kernels_slot(r->k, r->id))(out, in, ld, x->n, x->d, wide);
        if (r->id == K_pack_sum_from_bf16 && r->k->sum_by_rows && !r->bench)
            reorder(out, wide);
    }
}

static void check_take(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        try_take(r, &tiles[i]);
}

static void check_pack_cols_from_bf16(struct run *r) { check_take(r); }
static void check_pack_rows_from_bf16(struct run *r) { check_take(r); }
static void check_pack_sum_from_bf16(struct run *r) { check_take(r); }

static void try_squares(struct run *r, const struct tile *x, enum data data)
{
    const int64_t ld = x->d + 3, size = x->n * ld;

    name_tile(r, x, FOCI_BF16, 2);
    const float *const values = floats(r, size, data);
    uint16_t *const    in = take(r, (size_t)size * sizeof *in, false, HALVES);
    float *const       out = output(r, x->n, sizeof *out, FLOATS);

    r->ref->store_rows(in, size, FOCI_BF16, values, size, 1.0f, 1, (int)size);
    allow_share(r, out, 2.0 * (x->d + 1) * E);
    while (next(r))
        r->k->squares_bf16(out, in, ld, x->n, x->d);
}

static void check_squares_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_squares(r, &tiles[i], (enum data)data);
}

static void check_shrink(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(tiles)); i++) {
        const struct tile x = { tiles[i].d, LANES };

        name_tile(r, &x, FOCI_F32, 8);
        float *const o = inout(r, (int64_t)x.n * LANES, NORMAL);
        float *const factor = floats(r, LANES, NORMAL);

        for (int l = 0; l < LANES && r->bench; l++)
            factor[l] = 1.0f;
        while (next(r))
            r->k->shrink(o, x.n, factor);
    }
}

static void try_row_dot(struct run *r, const struct tile *x, enum data data)
{
    const int64_t ld = up(x->d, 16);

    name_tile(r, x, FOCI_F32, 8);
    const float *const a = floats(r, x->n * ld, data);
    const float *const b = floats(r, x->n * ld, NORMAL);
    float *const       out = output(r, x->n, sizeof *out, FLOATS);

    for (int i = 0; i < x->n; i++) {
        double sum = 0.0;
        for (int c = 0; c < x->d; c++)
            sum += fabs((double)a[i * ld + c] * (double)b[i * ld + c]);
        allow(r, out, i, 2.0 * (x->d + 1) * E * sum);
    }
    while (next(r))
        r->k->row_dot(out, a, b, ld, x->n, x->d);
}

static void check_row_dot(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_row_dot(r, &tiles[i], (enum data)data);
}

#endif
