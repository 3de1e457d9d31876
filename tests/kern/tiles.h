/* tiles.h -- checkers of large products on tiles. */
#ifndef FOCI_TESTS_KERN_TILES_H
#define FOCI_TESTS_KERN_TILES_H

#include "kern/products.h"

/* n bf16, drawn. */
static uint16_t *halves(struct run *r, int64_t n, enum data data)
{
    uint16_t *const x = take(r, (size_t)n * sizeof *x, false, HALVES);

    for (int64_t i = 0; i < n; i++) {
        const float f = draw(r, data);
        uint32_t    u;

        memcpy(&u, &f, sizeof u);
        x[i] = (uint16_t)(u >> 16);
    }
    return x;
}

/* What a checker tries: rows of a panel, those that are there, steps, strips. */
static const struct panel_shape {
    int rows, valid, steps, strips;
} panel_shapes[] = { { 48, 48, 4, 2 }, { 48, 48, 1, 3 }, { 48, 41, 3, 1 },
                     { 32, 32, 2, 4 }, { 32, 17, 5, 2 }, { 16, 16, 3, 2 },
                     { 16, 1, 1, 1 },  { 48, 48, 0, 1 } };

static void name_panel(struct run *r, const struct panel_shape *s, int with, int data)
{
    snprintf(r->label, sizeof r->label,
             "%d of %d rows, %d steps, %d strips, %d, data %d", s->valid, s->rows,
             s->steps, s->strips, with, data);
}

/* A panel whose steps are read from arrays of their own. */
static struct tile_panel make_panel(struct run *r, const struct panel_shape *s,
                                    struct tile_source *from)
{
    const int64_t ld = 61, row = 3;

    for (int t = 0; t < s->steps; t++)
        from[t] =
            (struct tile_source){ halves(r, (row + s->valid - 1) * ld + TILE_DEPTH,
                                         t % 2 ? NORMAL : HUGE_4),
                                  ld };
    return (struct tile_panel){
        .out = output(r, (int64_t)s->rows * s->steps * TILE_DEPTH, 2, HALVES),
        .from = from,
        .row = row,
        .rows = s->rows,
        .valid = s->valid,
        .steps = s->steps
    };
}

static void check_tile_panel(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(panel_shapes)); i++) {
        const struct panel_shape *s = &panel_shapes[i];
        struct tile_source        from[8];

        name_panel(r, s, 0, 0);
        r->work = 4.0 * s->rows * s->steps * TILE_DEPTH;
        const struct tile_panel p = make_panel(r, s, from);
        while (next(r))
            r->k->tile_panel(&p);
    }
}

/* With a bias, something to add, or both. */
enum { ADD_BIAS = 1, ADD_MORE = 2, N_ADD = 4 };

static struct tile_result make_result(struct run *r, int rows, int dtype, int with)
{
    const int64_t      ld = 71, ld_more = 53;
    const size_t       size = dtype == FOCI_F32 ? 4 : 2;
    struct tile_result x = { .ld = ld, .ld_more = ld_more };
    const int64_t      n = (rows - 1) * ld + TILE_STRIP;
    const int64_t      more = (rows - 1) * ld_more + TILE_STRIP;

    x.out = output(r, n, size, dtype == FOCI_F32 ? FLOATS : HALVES);
    if (with & ADD_BIAS) x.bias = floats(r, TILE_STRIP, NORMAL);
    if (with & ADD_MORE && dtype == FOCI_F32)
        x.more = (const char *)floats(r, more, NORMAL);
    else if (with & ADD_MORE)
        x.more = (const char *)halves(r, more, NORMAL);
    return x;
}

static void try_tile_rest(struct run *r, int rows, int dtype, int with)
{
    const struct tile_rest x = { floats(r, (int64_t)rows * TILE_STRIP, NORMAL),
                                 make_result(r, rows, dtype, with), rows };

    snprintf(r->label, sizeof r->label, "%d rows, dtype %d, %d", rows, dtype, with);
    r->work = 6.0 * rows * TILE_STRIP;
    allow_share(r, x.to.out, dtype == FOCI_F32 ? 4 * E : BF16);
    while (next(r)) {
        struct tile_rest once = x;

        r->k->tile_rest(&once, dtype);
        assert_int_equal(once.rows, 0);
    }
}

static void check_tile_rest(struct run *r)
{
    for (int rows = 1; rows <= 48; rows += 47)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++)
            for (int with = 0; with < N_ADD; with++)
                try_tile_rest(r, rows, dtype, with);
}

/* Element (t, j) of a strip. */
static double strip_at(const uint32_t *b, int t, int j)
{
    const int      tile = t / TILE_DEPTH * 2 + j / 16;
    const uint32_t w = b[(tile * 16 + t % TILE_DEPTH / 2) * 16 + j % 16];

    return (double)of_bf16((uint16_t)(t % 2 ? w >> 16 : w));
}

/* What element (i, j) of strip number n may be off by. */
static double block_bound(const struct tile_multiply *x, const float *sums, int n,
                          int i, int j)
{
    const int             terms = x->steps * TILE_DEPTH;
    const uint32_t *const b = x->b + (int64_t)n * x->steps * 512;
    double                sum = 8; /* of biases and what is added */

    if (x->add) sum += fabs((double)sums[n * TILE_BLOCK + i * TILE_STRIP + j]);
    for (int t = 0; t < terms; t++) {
        const int at = (t / TILE_DEPTH * x->rows + i) * TILE_DEPTH + t % TILE_DEPTH;
        sum += fabs((double)of_bf16(x->a[at]) * strip_at(b, t, j));
    }
    return 2.0 * (terms + 4) * E * sum + 6.0 * terms * (double)FLT_MIN;
}

static void allow_strips(struct run *r, const struct tile_multiply *x, const float *sums)
{
    for (int n = 0; n < x->strips; n++)
        for (int i = 0; i < x->rows; i++)
            for (int j = 0; j < TILE_STRIP; j++) {
                const double bound = block_bound(x, sums, n, i, j);

                allow(r, sums, n * TILE_BLOCK + i * TILE_STRIP + j, bound);
                if (x->to && x->to[n].out && i < x->valid)
                    allow(r, x->to[n].out, i * x->to[n].ld + j, bound);
            }
    /* Roundings to bf16 on top of that. */
    for (int n = 0; n < x->strips && x->to && x->dtype != FOCI_F32; n++)
        for (int b = 0; b < r->n_bufs; b++)
            if (r->bufs[b].block + GUARD == x->to[n].out) r->bufs[b].share = BF16;
}

/* Strips whose sums are wanted, that are written, or both kinds; with sums that wait and
 * the next panel. */
static void try_tile_multiply(struct run *r, const struct panel_shape *s, int with,
                              enum data data)
{
    enum { WRITES = 1, ADDS = 2, FLOAT_OUT = 4 };
    const int64_t        n = (int64_t)s->rows * s->steps * TILE_DEPTH;
    const int            dtype = with & FLOAT_OUT ? FOCI_F32 : FOCI_BF16;
    struct tile_source   from[8];
    struct tile_result   to[4] = { { .out = NULL } };
    struct tile_multiply x = { .rows = s->rows,
                               .valid = s->valid,
                               .steps = s->steps,
                               .strips = s->strips,
                               .dtype = dtype,
                               .add = with & ADDS };

    name_panel(r, s, with, (int)data);
    r->work = 2.0 * (double)n * TILE_STRIP * s->strips;
    r->is_flops = true;
    x.a = halves(r, n, data);
    x.b = pairs(r, (int64_t)s->strips * s->steps * 512, NORMAL);
    float *const sums = inout(r, (int64_t)s->strips * TILE_BLOCK, NORMAL);
    for (int j = 0; j < s->strips && with & WRITES; j++)
        if (j != 1) to[j] = make_result(r, s->valid, dtype, j % N_ADD);
    if (with & WRITES) x.to = to;
    x.sums = sums;
    if (!r->bench) allow_strips(r, &x, sums);

    const struct tile_panel after = make_panel(r, s, from);
    _Alignas(64) float      c[2][TILE_BLOCK];
    if (with) x.next = &after;
    x.c[0] = c[0];
    x.c[1] = c[1];
    struct thread_state before;
    if (r->now->begin) r->now->begin(&before);
    while (next(r)) {
        struct tile_rest rest = { .rows = 0 };

        x.rest = &rest;
        r->k->tile_multiply(&x);
        r->k->tile_rest(&rest, dtype);
    }
    if (r->now->end) r->now->end(&before);
}

static void check_tile_multiply(struct run *r)
{
    for (int i = 0; i < cases(r, 1, COUNT(panel_shapes)); i++)
        for (int with = 0; with < 8; with++)
            for (int data = 0; data < cases(r, 1, HUGE_30); data++)
                try_tile_multiply(r, &panel_shapes[i], with, (enum data)data);
}

static void check_transpose_bf16(struct run *r)
{
    static const int shapes[][2] = { { 32, 128 }, { 32, 8 }, { 17, 24 }, { 1, 16 } };

    for (int i = 0; i < cases(r, 1, COUNT(shapes)); i++) {
        const int             n = shapes[i][0], d = shapes[i][1];
        const int64_t         ld = d + 3, ld_out = TILE_DEPTH + 5;
        const uint16_t *const in = halves(r, (n - 1) * ld + d, NORMAL);
        uint16_t *const       out = output(r, (d - 1) * ld_out + TILE_DEPTH, 2, HALVES);

        snprintf(r->label, sizeof r->label, "%d x %d", n, d);
        r->work = 4.0 * n * d;
        while (next(r))
            r->k->transpose_bf16(out, ld_out, in, ld, n, d);
    }
}

/* Rows and columns of a second operand. */
static const int strip_shapes[][2] = { { 32, 32 }, { 32, 96 }, { 31, 70 },
                                       { 1, 33 },  { 2, 1 },   { 17, 16 } };

static const void *stored_rows(struct run *r, int64_t n, int64_t ld, int64_t d,
                               int dtype)
{
    const int64_t size = (n - 1) * ld + d;
    return dtype == FOCI_F32 ? (const void *)floats(r, size, NORMAL)
                             : halves(r, size, NORMAL);
}

static void check_tile_pairs(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(strip_shapes)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            const int     n = strip_shapes[i][0], d = strip_shapes[i][1];
            const int64_t ld = d + 5, ld_out = 3 * 512;
            const int64_t strips = (d + TILE_STRIP - 1) / TILE_STRIP;

            snprintf(r->label, sizeof r->label, "%d x %d, dtype %d", n, d, dtype);
            r->work = 4.0 * n * d;
            const void *const in = stored_rows(r, n, ld, d, dtype);
            uint32_t *const   out = output(r, (strips - 1) * ld_out + 512, 4, HALVES);
            while (next(r))
                r->k->tile_pairs(out, ld_out, in, ld, dtype, n, d);
        }
}

static void check_tile_strip(struct run *r)
{
    for (int i = 0; i < cases(r, 2, COUNT(strip_shapes)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            const int     n = strip_shapes[i][0], d = strip_shapes[i][1];
            const int64_t ld = d + 5, steps = (d + TILE_DEPTH - 1) / TILE_DEPTH;

            snprintf(r->label, sizeof r->label, "%d x %d, dtype %d", n, d, dtype);
            r->work = 4.0 * n * d;
            const void *const in = stored_rows(r, n, ld, d, dtype);
            uint32_t *const   out = output(r, steps * 512, 4, HALVES);
            while (next(r))
                r->k->tile_strip(out, in, ld, dtype, n, d);
        }
}

#endif
