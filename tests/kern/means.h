/* means.h -- checkers of the kernels of running means. */
#ifndef FOCI_TESTS_KERN_MEANS_H
#define FOCI_TESTS_KERN_MEANS_H

#include "kern/recur.h"
#include "kern/rows.h"

static const struct means {
    int  n, d;
    bool back; /* rows lie the other way round */
} means[] = { { 64, 64, false }, { 64, 128, false }, { 1, 16, false },
              { 7, 48, true },   { 64, 80, true },   { 33, 96, false } };

/* Every row may be off by a rounding of its own to floats, and by what roundings of
 * doubles add up to. */
static void allow_rows(struct run *r, float *x, int64_t n)
{
    for (int64_t i = 0; i < n && !r->bench; i++)
        allow(r, x, i, 4 * E * 8);
}

static void allow_state(struct run *r, double *x, int64_t n)
{
    for (int64_t i = 0; i < n && !r->bench; i++)
        allow(r, x, i, 0x1p-44);
}

static float *first_row(float *tile, const struct means *x, int64_t *ld)
{
    *ld = x->back ? -x->d : x->d;
    return x->back ? tile + (int64_t)(x->n - 1) * x->d : tile;
}

static void label(struct run *r, const struct means *x)
{
    snprintf(r->label, sizeof r->label, "%d rows of %d%s", x->n, x->d,
             x->back ? ", backwards" : "");
    r->work = 8.0 * x->n * x->d;
    r->is_flops = false;
}

/* Factors of means, between 0 and 1. */
static double *factors(struct run *r, int n)
{
    double *const a = doubles(r, n, false);

    for (int i = 0; i < n; i++)
        a[i] = 1 / (1 + fabs(a[i]) * i);
    return a;
}

static void try_mean(struct run *r, const struct means *x, bool back, bool none)
{
    int64_t ld;

    label(r, x);
    float *const  v = floats(r, (int64_t)x->n * x->d, NORMAL);
    float *const  o = take(r, (size_t)x->n * (size_t)x->d * sizeof *o, true, FLOATS);
    double *const a = factors(r, x->n), *const state = doubles(r, x->d, true);
    float *const from = first_row(v, x, &ld), *const to = first_row(o, x, &ld);

    allow_rows(r, o, (int64_t)x->n * x->d);
    allow_state(r, state, x->d);
    while (next(r)) {
        if (back)
            r->k->mean_back(to, ld, none ? NULL : from, ld, x->n, x->d, a, state);
        else
            r->k->mean_rows(to, ld, from, ld, x->n, x->d, a, state);
    }
}

static void check_mean_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++)
        try_mean(r, &means[i], false, false);
}

static void check_mean_back(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++) {
        try_mean(r, &means[i], true, false);
        try_mean(r, &means[i], true, true);
    }
}

/* Above 0, to 1. */
static double part(struct run *r) { return (below(r, 1000) + 1) / 1000.0; }

/* Small enough that the states stay of the size of the values; sums by powers of the
 * distance are divided by what they come to. */
static struct cubes *cube_factors(struct run *r, int n)
{
    const int           groups = (n + CUBE_ROWS - 1) / CUBE_ROWS;
    struct cubes *const f = take(r, (size_t)groups * sizeof *f, false, BYTES);

    for (int g = 0; g < groups; g++) {
        double size = CUBE_ROWS;

        for (int i = 0; i < 10; i++)
            f[g].from[i] = 0.2 * part(r);
        for (int p = 0; p < 4; p++, size *= CUBE_ROWS)
            f[g].in[p] = 0.2 * part(r) / size;
        for (int i = 0; i < CUBE_ROWS * 5; i++)
            f[g].row[i / 5][i % 5] =
                (float)(i % 5 < 4 ? 0.2 * part(r) : part(r) / size);
    }
    return f;
}

/* Sums over some rows are rounded to floats as they grow. */
static void allow_groups(struct run *r, double *x, int64_t n)
{
    for (int64_t i = 0; i < n && !r->bench; i++)
        allow(r, x, i, CUBE_ROWS * E * 8);
}

static void try_cube(struct run *r, const struct means *x, bool back, bool in_place)
{
    int64_t ld;

    label(r, x);
    float *const v = in_place ? inout(r, (int64_t)x->n * x->d, NORMAL)
                              : floats(r, (int64_t)x->n * x->d, NORMAL);
    float *const o =
        in_place ? v : take(r, (size_t)x->n * (size_t)x->d * sizeof *o, true, FLOATS);
    const struct cubes *const f = cube_factors(r, x->n);
    double *const             state = doubles(r, 4 * (int64_t)x->d, true);
    float *const from = first_row(v, x, &ld), *const to = first_row(o, x, &ld);

    allow_rows(r, o, (int64_t)x->n * x->d);
    allow_groups(r, state, 4 * (int64_t)x->d);
    while (next(r)) {
        if (back)
            r->k->cube_back(to, ld, from, ld, x->n, x->d, f, state);
        else
            r->k->cube_rows(to, ld, from, ld, x->n, x->d, f, state);
    }
}

static void check_cube_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++)
        for (int in_place = 0; in_place < cases(r, 1, 2); in_place++)
            try_cube(r, &means[i], false, in_place);
}

static void check_cube_back(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++)
        for (int in_place = 0; in_place < cases(r, 1, 2); in_place++)
            try_cube(r, &means[i], true, in_place);
}

static const struct taps {
    int  n, d, width;
    bool each; /* rows have weights of their own */
} taps[] = { { 64, 64, 7, false }, { 64, 64, 7, true },  { 1, 16, 1, true },
             { 33, 48, 4, false }, { 17, 16, 31, true }, { 29, 96, 32, false },
             { 64, 64, 3, false }, { 5, 80, 5, false },  { 1, 32, 7, false } };

static void label_taps(struct run *r, const struct taps *x, int dtype)
{
    snprintf(r->label, sizeof r->label, "%d rows of %d, %d taps%s, dtype %d", x->n,
             x->d, x->width, x->each ? " each" : "", dtype);
    r->work = 2.0 * x->n * x->d * x->width;
    r->is_flops = true;
}

/* Products of normals stay below 32. */
static void allow_taps(struct run *r, float *x, int64_t n, int terms)
{
    for (int64_t i = 0; i < n && !r->bench; i++)
        allow(r, x, i, 2 * E * 32 * terms);
}

/* Rows of `dtype`: normals, or where those would be rounded small numbers whose sums are
 * exact in any order. */
static void *tap_rows(struct run *r, int64_t n, int dtype)
{
    float *const x = floats(r, n, NORMAL);

    if (dtype == FOCI_F32) return x;
    uint16_t *const rows = take(r, (size_t)n * sizeof *rows, false, HALVES);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(below(r, 17) - 8);
    r->ref->store_rows(rows, n, dtype, x, n, 1.0f, 1, (int)n);
    return rows;
}

static float *tap_weights(struct run *r, int64_t n, int dtype)
{
    float *const w = floats(r, n, NORMAL);

    for (int64_t i = 0; i < n && dtype != FOCI_F32; i++)
        w[i] = (float)(below(r, 17) - 8) / 8;
    return w;
}

/* Rows of the result lie on boundaries, unless there is a shift. */
static void try_taps(struct run *r, const struct taps *x, int dtype, int far, int shift)
{
    const int64_t rows = x->n + x->width - 1, ldw = x->each ? x->width : 0;
    const int64_t ld = x->d + 3, ldo = up(x->d, 32) + shift;

    label_taps(r, x, dtype);
    const void *const  v = tap_rows(r, rows * ld, dtype);
    const float *const w = tap_weights(r, (int64_t)x->n * x->width, dtype);
    char *const        o = rows_out(r, x->n * ldo, dtype);

    if (dtype == FOCI_F32) allow_taps(r, (float *)(void *)o, x->n * ldo, x->width + 1);
    while (next(r))
        r->k->taps(o, ldo, v, ld, dtype, x->n, x->d, w, ldw, x->width, far);
}

/* Columns that have no such form are left to the reference. */
static void try_roll(struct run *r, const struct taps *x, int dtype, int far, int shift)
{
    const int64_t rows = x->n + x->width - 1, ld = x->d + 3;
    const int64_t ldo = up(x->d, 32) + shift, size = dtype == FOCI_F32 ? 4 : 2;

    label_taps(r, x, dtype);
    const char *const  v = tap_rows(r, rows * ld, dtype);
    const float *const w = tap_weights(r, x->width, dtype);
    char *const        o = rows_out(r, x->n * ldo, dtype);

    if (dtype == FOCI_F32) allow_taps(r, (float *)(void *)o, x->n * ldo, x->width + 1);
    while (next(r)) {
        const int done = r->k->roll(o, ldo, v, ld, dtype, x->n, x->d, w, x->width, far);
        if (done < x->d)
            r->ref->taps(o + done * size, ldo, v + done * size, ld, dtype, x->n,
                         x->d - done, w, 0, x->width, far);
    }
}

static void try_taps_grad(struct run *r, const struct taps *x, bool dots)
{
    const int64_t rows = x->n + x->width - 1, ldw = x->each ? x->width : 0;
    const int64_t n = dots ? (int64_t)x->n * x->width : rows * x->d;

    label_taps(r, x, FOCI_F32);
    const float *const v = floats(r, rows * x->d, NORMAL);
    const float *const g = floats(r, (int64_t)x->n * x->d, NORMAL);
    const float *const w = floats(r, (int64_t)x->n * x->width, NORMAL);
    float *const       o = inout(r, n, NORMAL);

    allow_taps(r, o, n, dots ? x->d : x->width + 1);
    while (next(r)) {
        if (dots)
            r->k->taps_dots(o, x->width, g, v, x->d, x->n, x->d, x->width);
        else
            r->k->taps_back(o, g, x->d, x->n, x->d, w, ldw, x->width);
    }
}

static void try_taps_sums(struct run *r, const struct taps *x, int dtype)
{
    const int64_t rows = x->n + x->width - 1, ldg = x->d + 1, ldv = x->d + 3;
    const int64_t n = (int64_t)x->width * TAPS_LANES;

    label_taps(r, x, dtype);
    const void *const v = tap_rows(r, rows * ldv, dtype);
    const void *const g = tap_rows(r, x->n * ldg, dtype);
    float *const      lanes = inout(r, n, NORMAL);

    allow_taps(r, lanes, n, x->n * x->d / TAPS_LANES + 1);
    while (next(r))
        r->k->taps_sums(lanes, g, ldg, v, ldv, dtype, x->n, x->d, x->width);
}

static void check_taps(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int c = 0; c < cases(r, 1, 3); c++)
                try_taps(r, &taps[i], dtype, c > 0, c > 1);
}

static void check_roll(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int c = 0; c < cases(r, 1, 3); c++)
                if (!taps[i].each) try_roll(r, &taps[i], dtype, c > 0, c > 1);
}

static void check_taps_back(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        try_taps_grad(r, &taps[i], false);
}

static void check_taps_dots(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        try_taps_grad(r, &taps[i], true);
}

static void check_taps_sums(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            try_taps_sums(r, &taps[i], dtype);
}

#endif
