/* means.h -- checkers of the kernels of running means. */
#ifndef FOCI_TESTS_KERN_MEANS_H
#define FOCI_TESTS_KERN_MEANS_H

#include "kern/recur.h"

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
            r->k->mean_back(to, none ? NULL : from, ld, x->n, x->d, a, state);
        else
            r->k->mean_rows(to, from, ld, x->n, x->d, a, state);
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

enum { FACTORS = 14 };

static void try_cube(struct run *r, const struct means *x, bool back)
{
    int64_t ld;

    label(r, x);
    float *const  v = floats(r, (int64_t)x->n * x->d, NORMAL);
    float *const  o = take(r, (size_t)x->n * (size_t)x->d * sizeof *o, true, FLOATS);
    double *const f = doubles(r, (int64_t)x->n * FACTORS, false);
    double *const state = doubles(r, 4 * (int64_t)x->d, true);
    float *const from = first_row(v, x, &ld), *const to = first_row(o, x, &ld);

    /* Small enough that the states stay of the size of the values. */
    for (int64_t i = 0; i < (int64_t)x->n * FACTORS; i++)
        f[i] = fmin(fabs(f[i]) / 8, 0.2);
    allow_rows(r, o, (int64_t)x->n * x->d);
    allow_state(r, state, 4 * (int64_t)x->d);
    while (next(r)) {
        if (back)
            r->k->cube_back(to, from, ld, x->n, x->d, f, state);
        else
            r->k->cube_rows(to, from, ld, x->n, x->d, f, state);
    }
}

static void check_cube_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++)
        try_cube(r, &means[i], false);
}

static void check_cube_back(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(means)); i++)
        try_cube(r, &means[i], true);
}

static const struct taps {
    int  n, d, width;
    bool each; /* rows have weights of their own */
} taps[] = { { 64, 64, 7, false },
             { 64, 64, 7, true },
             { 1, 16, 1, true },
             { 33, 48, 4, false },
             { 17, 16, 31, true } };

enum { TAPS_FORWARD, TAPS_BACK, TAPS_DOTS };

static void try_taps(struct run *r, const struct taps *x, int which)
{
    const int64_t rows = x->n + x->width - 1, ldw = x->each ? x->width : 0;
    const int64_t n_dots = (int64_t)x->n * x->width;

    snprintf(r->label, sizeof r->label, "%d rows of %d, %d taps%s", x->n, x->d,
             x->width, x->each ? " each" : "");
    r->work = 2.0 * x->n * x->d * x->width;
    r->is_flops = true;
    float *const v = floats(r, rows * x->d, NORMAL);
    float *const g = floats(r, (int64_t)x->n * x->d, NORMAL);
    float *const w = floats(r, (int64_t)x->n * x->width, NORMAL);
    float *const o = output(r,
                            which == TAPS_DOTS   ? n_dots
                            : which == TAPS_BACK ? rows * x->d
                                                 : (int64_t)x->n * x->d,
                            sizeof *o, FLOATS);

    if (which == TAPS_BACK) memset(o, 0, (size_t)(rows * x->d) * sizeof *o);
    /* Products of normals stay below 32. */
    for (int64_t i = 0; i < (which == TAPS_DOTS   ? n_dots
                             : which == TAPS_BACK ? rows * x->d
                                                  : (int64_t)x->n * x->d) &&
                        !r->bench;
         i++)
        allow(r, o, i, 2 * E * 32 * (which == TAPS_DOTS ? x->d : x->width + 1));
    while (next(r)) {
        if (which == TAPS_FORWARD)
            r->k->taps(o, v, x->d, x->n, x->d, w, ldw, x->width);
        else if (which == TAPS_BACK)
            r->k->taps_back(o, g, x->d, x->n, x->d, w, ldw, x->width);
        else
            r->k->taps_dots(o, x->width, g, v, x->d, x->n, x->d, x->width);
    }
}

static void check_taps(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        try_taps(r, &taps[i], TAPS_FORWARD);
}

static void check_taps_back(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        try_taps(r, &taps[i], TAPS_BACK);
}

static void check_taps_dots(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(taps)); i++)
        try_taps(r, &taps[i], TAPS_DOTS);
}

#endif
