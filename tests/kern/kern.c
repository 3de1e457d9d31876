/* kern.c -- every kernel of every CPU level against the reference, and its speed.
 *
 * Levels are climbed upward; a slot whose pointer is new at a level is checked
 * against ref.c by the checker of its name.  The list of checkers is made from
 * kernels.def, so that a kernel without one does not compile.  `kern --bench [NAME]`
 * runs the same checkers with a clock in place of the comparison.
 *
 * A checker lays out inputs and outputs and calls the kernel in the body of
 * `while (next(r))`: once from the reference and once from the level, with equal
 * contents of the outputs before, and next() compares them after.  Around every
 * buffer lie guard bands: of outputs they must survive, of inputs they are NaN, so
 * that an element read too many shows in the result.
 *
 * Bounds.  E is half a unit in the last place of 1, 2^-24.  A sum of k products,
 * fused or not and in any order, lies within (k + 1) E sum |a b| of the true one, and
 * two of them twice that apart.  2^x of the vocabulary is within EXP of the true
 * value, and ref.c's within E.  bf16 weights may fall to either side of a rounding
 * boundary, and then differ by one unit in the last place, at most 2^-7 of them.
 * Numbers below FLT_MIN may count as zero.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "foci/foci.h"
#include "foci/mechanism.h"
#include "kernels/kernels.h"

#define E        0x1p-24
#define EXP      2e-7 /* vf_exp2 */
#define EXP_FAST 9e-5 /* vf_exp2_fast */
#define BF16     0x1p-7
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

#ifdef FOCI_AMX_EMULATED
void kernels_amx_emulated(struct kernels *k);
#endif

/*
 * A run: one kernel of one level
 */

enum { GUARD = 256, MAX_BUFS = 16 };
enum type { FLOATS, HALVES, BYTES }; /* halves: bf16, by value; bytes: exactly */

struct buf {
    char     *block; /* guard, data, guard */
    size_t    bytes;
    bool      out;
    enum type type;
    float    *bound; /* [elements] of what each may be off by, */
    double    share; /* plus this share of it */
    char     *start, *want;
};

struct run {
    const char           *level;
    int                   id;
    const struct kernels *ref, *now;
    const struct kernels *k; /* the one to call */

    struct buf bufs[MAX_BUFS];
    int        n_bufs, pass;
    uint64_t   seed;
    char       label[80]; /* of the case at hand */

    bool    bench;
    double  work; /* of one call: flops, or bytes */
    bool    is_flops;
    int64_t calls, batch;
    double  since, best;
    int     windows;
};

static uint64_t bits(struct run *r)
{
    uint64_t z = r->seed += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int below(struct run *r, int n) { return (int)(bits(r) % (unsigned)n); }

/* Kinds of numbers.  HUGE_30 meets numbers near 1 only. */
enum data { NORMAL, DENORMAL, HUGE_4, HUGE_30, N_DATA };

static float draw(struct run *r, enum data data)
{
    static const float scale[N_DATA] = { 1.0f, 1e-40f, 1e4f, 1e30f };
    double             x = -6.0; /* of 12 uniform numbers: nearly normal */

    for (int i = 0; i < 12; i++)
        x += (double)(bits(r) >> 11) * 0x1p-53;
    return (float)x * scale[data];
}

static void *take(struct run *r, size_t bytes, bool out, enum type type)
{
    assert_true(r->n_bufs < MAX_BUFS);
    struct buf *const b = &r->bufs[r->n_bufs++];
    const size_t      all = (bytes + 2 * GUARD + 63) / 64 * 64;

    *b = (struct buf){ .bytes = bytes, .out = out, .type = type };
    b->block = aligned_alloc(64, all);
    assert_non_null(b->block);
    memset(b->block, 0xff, all); /* NaN in every format */
    if (out) {
        b->start = malloc(bytes + 1);
        b->want = malloc(bytes + 1);
        b->bound = calloc(bytes / 2 + 1, sizeof *b->bound);
        assert_true(b->start && b->want && b->bound);
    }
    return b->block + GUARD;
}

static float *floats(struct run *r, int64_t n, enum data data)
{
    float *const x = take(r, (size_t)n * sizeof *x, false, FLOATS);

    for (int64_t i = 0; i < n; i++)
        x[i] = draw(r, data);
    return x;
}

static void *output(struct run *r, int64_t n, size_t size, enum type type)
{
    return take(r, (size_t)n * size, true, type);
}

/* An output that is an input too. */
static float *inout(struct run *r, int64_t n, enum data data)
{
    float *const x = output(r, n, sizeof *x, FLOATS);

    for (int64_t i = 0; i < n; i++)
        x[i] = draw(r, data);
    return x;
}

/* What element i of output `data` may be off by. */
static void allow(struct run *r, const void *data, int64_t i, double bound)
{
    for (int b = 0; b < r->n_bufs; b++)
        if (r->bufs[b].block + GUARD == (const char *)data)
            r->bufs[b].bound[i] = (float)(bound + (double)FLT_MIN);
}

/* The same for all elements, as a share of their value. */
static void allow_share(struct run *r, const void *data, double share)
{
    for (int b = 0; b < r->n_bufs; b++) {
        struct buf *const o = &r->bufs[b];

        if (o->block + GUARD != (const char *)data) continue;
        o->share = share;
        for (size_t i = 0; i < o->bytes / 2; i++)
            o->bound[i] = FLT_MIN;
    }
}

static void drop(struct run *r)
{
    for (int b = 0; b < r->n_bufs; b++) {
        free(r->bufs[b].block);
        free(r->bufs[b].start);
        free(r->bufs[b].want);
        free(r->bufs[b].bound);
    }
    r->n_bufs = 0;
}

static float of_bf16(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float          x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static double element(const char *p, enum type type, size_t i)
{
    uint16_t h;
    float    x;

    switch (type) {
    case FLOATS: memcpy(&x, p + 4 * i, 4); return (double)x;
    case HALVES: memcpy(&h, p + 2 * i, 2); return (double)of_bf16(h);
    default: return (double)(unsigned char)p[i];
    }
}

static void check_guards(const struct run *r, const struct buf *b)
{
    const unsigned char *const p = (const unsigned char *)b->block;

    for (size_t i = 0; i < GUARD; i++)
        if (p[i] != 0xff || p[GUARD + b->bytes + i] != 0xff)
            fail_msg("%s, %s: %s wrote outside of its output", r->level, r->label,
                     kernel_names[r->id]);
}

static void compare(const struct run *r, int b)
{
    static const size_t     sizes[] = { 4, 2, 1 };
    const struct buf *const o = &r->bufs[b];

    for (size_t i = 0; i < o->bytes / sizes[o->type]; i++) {
        const double want = element(o->want, o->type, i);
        const double got = element(o->block + GUARD, o->type, i);

        if (want == got || (isnan(want) && isnan(got))) continue;
        const double bound = (double)o->bound[i] + o->share * fabs(want);
        if (fabs(want - got) <= bound) continue;
        fail_msg("%s, %s: %s, buffer %d, element %zu: %.9g, want %.9g within %.3g",
                 r->level, r->label, kernel_names[r->id], b, i, got, want, bound);
    }
}

static double seconds(void)
{
    struct timespec t;

    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Windows of at least 50 us; the best of 400 counts. */
static bool next_timed(struct run *r)
{
    if (r->calls++ < r->batch) return true;

    const double now = seconds(), took = now - r->since;
    if (r->batch && took < 50e-6)
        r->batch *= 2;
    else if (r->batch) {
        r->best = fmin(r->best, took / (double)r->batch);
        r->windows++;
    } else {
        r->batch = 1;
        r->best = INFINITY;
        r->windows = 0;
    }
    if (r->windows == 400) {
        printf("%-10s %-16s %-32s %8.1f %s %9.3f us\n", r->level, kernel_names[r->id],
               r->label, r->work / r->best * 1e-9, r->is_flops ? "GFLOP/s" : "GB/s   ",
               r->best * 1e6);
        r->calls = r->batch = 0;
        drop(r);
        return false;
    }
    r->calls = 1;
    r->since = seconds();
    return true;
}

/* Of the two passes of a test: the reference, then the level. */
static bool next(struct run *r)
{
    if (r->bench) {
        r->k = r->now;
        return next_timed(r);
    }
    for (int b = 0; b < r->n_bufs; b++) {
        struct buf *const o = &r->bufs[b];
        char *const       data = o->block + GUARD;

        if (!o->out) continue;
        if (r->pass > 0) check_guards(r, o);
        if (r->pass == 0) memcpy(o->start, data, o->bytes);
        if (r->pass == 1) {
            memcpy(o->want, data, o->bytes);
            memcpy(data, o->start, o->bytes);
        }
        if (r->pass == 2) compare(r, b);
    }
    r->k = r->pass == 0 ? r->ref : r->now;
    if (r->pass++ < 2) return true;
    r->pass = 0;
    drop(r);
    return false;
}

/* Cases of a list to go through: those in front are for the clock. */
static int cases(const struct run *r, int n_bench, int n)
{
    return r->bench ? n_bench : n;
}

static int up(int n, int unit) { return (n + unit - 1) / unit * unit; }

/*
 * Products
 */

struct product {
    int m, n, k;
    int form; /* 0: rows of a are contiguous; 1: columns; 2: neither */
    int add;
};

static const struct product products[] = {
    { 64, 64, 64, 0, 0 }, { 64, 64, 64, 1, 1 },  { 128, 64, 64, 1, 1 },
    { 64, 80, 64, 0, 1 }, { 64, 128, 64, 0, 1 }, { 1, 16, 1, 0, 0 },
    { 1, 64, 0, 0, 0 },   { 1, 64, 0, 0, 1 },    { 5, 48, 3, 1, 1 },
    { 7, 32, 17, 0, 0 },  { 23, 16, 5, 1, 0 },   { 11, 112, 64, 2, 1 },
    { 6, 64, 33, 2, 0 },  { 3, 128, 7, 0, 1 },   { 8, 96, 2, 1, 0 },
    { 19, 16, 40, 0, 1 }, { 17, 32, 9, 2, 1 },
};

/* Sum of magnitudes of the products in element (i, j), times 2 (k + 2) E. */
static double product_bound(const struct product *x, const float *a, int64_t ra,
                            int64_t ca, const float *b, int64_t ldb, float c, int i,
                            int j)
{
    double sum = x->add ? fabs((double)c) : 0.0;

    for (int t = 0; t < x->k; t++)
        sum += fabs((double)a[i * ra + t * ca] * (double)b[t * ldb + j]);
    return 2.0 * (x->k + 2) * E * sum;
}

static void strides(const struct product *x, int64_t *ra, int64_t *ca, int64_t *n)
{
    *ra = x->form == 1 ? 1 : x->form == 2 ? 2 * x->k + 3 : x->k + 5;
    *ca = x->form == 1 ? x->m + 3 : x->form == 2 ? 2 : 1;
    *n = x->m && x->k ? (x->m - 1) * *ra + (x->k - 1) * *ca + 1 : 0;
}

static void name_product(struct run *r, const struct product *x, int data)
{
    static const char *const forms[] = { "rows", "columns", "strided" };

    snprintf(r->label, sizeof r->label, "%dx%dx%d %s%s data %d", x->m, x->n, x->k,
             forms[x->form], x->add ? " add" : "", data);
    r->work = 2.0 * x->m * x->n * x->k;
    r->is_flops = true;
}

static void try_gemm_f32(struct run *r, const struct product *x, enum data data)
{
    const int64_t ldb = x->n + 16, ldc = x->n + 32;
    int64_t       ra, ca, size;

    name_product(r, x, (int)data);
    strides(x, &ra, &ca, &size);
    const float *const a = floats(r, size, data);
    const float *const b = floats(r, x->k * ldb, NORMAL);
    float *const       c = inout(r, x->m * ldc, NORMAL);

    if (!r->bench)
        for (int i = 0; i < x->m; i++)
            for (int j = 0; j < x->n; j++)
                allow(r, c, i * ldc + j,
                      product_bound(x, a, ra, ca, b, ldb, c[i * ldc + j], i, j));
    while (next(r))
        r->k->gemm_f32(c, ldc, a, ra, ca, b, ldb, x->m, x->n, x->k, x->add);
}

static void check_gemm_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 5, COUNT(products)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_gemm_f32(r, &products[i], (enum data)data);
}

/* n random words, and their halves as floats. */
static uint32_t *words(struct run *r, int64_t n, enum data data)
{
    uint32_t *const w = take(r, (size_t)n * sizeof *w, false, HALVES);

    for (int64_t i = 0; i < n; i++) {
        const float x[2] = { draw(r, data), draw(r, data) };
        uint32_t    u[2];

        memcpy(u, x, sizeof u);
        w[i] = u[0] >> 16 | (u[1] & 0xffff0000);
    }
    return w;
}

static void try_gemm_bf16(struct run *r, struct product x, enum data data)
{
    if (r->now->sum_by_rows) { /* tiles */
        x.m = up(x.m, 16);
        x.k = up(x.k, 16);
        x.form = 0;
    }

    const int64_t ldb = x.n + 16, ldc = x.n + 32;
    int64_t       ra, ca, size;

    name_product(r, &x, (int)data);
    r->work *= 2.0;
    strides(&x, &ra, &ca, &size);
    const uint32_t *const a = words(r, size, data);
    const uint32_t *const b = words(r, x.k * ldb, NORMAL);
    float *const          c = inout(r, x.m * ldc, NORMAL);

    for (int i = 0; i < x.m && !r->bench; i++)
        for (int j = 0; j < x.n; j++) {
            double sum = x.add ? fabs((double)c[i * ldc + j]) : 0.0;
            for (int t = 0; t < x.k; t++) {
                const uint32_t p = a[i * ra + t * ca], q = b[t * ldb + j];
                sum +=
                    fabs((double)of_bf16((uint16_t)p) * (double)of_bf16((uint16_t)q));
                sum += fabs((double)of_bf16((uint16_t)(p >> 16)) *
                            (double)of_bf16((uint16_t)(q >> 16)));
            }
            /* Denormal operands count as 0: 2k of them, times 6 at most. */
            allow(r, c, i * ldc + j,
                  2.0 * (2 * x.k + 2) * E * sum + 12.0 * x.k * (double)FLT_MIN);
        }
    if (r->now->begin) r->now->begin();
    while (next(r))
        r->k->gemm_bf16(c, ldc, a, ra, ca, b, ldb, x.m, x.n, x.k, x.add);
    if (r->now->end) r->now->end();
}

static void check_gemm_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 5, COUNT(products)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_gemm_bf16(r, products[i], (enum data)data);
}

/*
 * Rows of tensors: no arithmetic but one product, hence exact
 */

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

    while (next(r))
        r->k->store_rows(out + (size_t)shift * size, ld_out, dtype, in, ld_in, scale,
                         x->n, x->d);
}

static void check_store_rows(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_F16; dtype++)
            for (int c = 0; c < cases(r, 1, 2 * N_DATA); c++)
                try_store_rows(r, &tiles[i], dtype, c % 2, (enum data)(c / 2));
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

/* The kernels that pack words differ in the size of their output alone. */
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

/*
 * Scores and weights
 */

static const int key_counts[] = { 64, 1, 2, 3, 7, 63, 128 };

/* Scores of n keys: some kind of numbers, nothing but -inf, or holes of -inf with
 * one lane all -inf and a NaN in another. */
enum { DARK = N_DATA, HOLES, N_SCORES };

static void fill_scores(struct run *r, float *s, int n, int scores)
{
    for (int x = 0; x < n * LANES; x++) {
        s[x] = draw(r, scores < N_DATA ? (enum data)scores : NORMAL) * 4.0f;
        if (scores == DARK || (scores == HOLES && below(r, 2))) s[x] = -INFINITY;
        if (scores == HOLES && x % LANES == 9) s[x] = -INFINITY;
    }
    if (scores == HOLES && !r->bench) s[(n - 1) * LANES + 5] = NAN;
}

static void name_scores(struct run *r, int n, int kind, int scores, const char *what)
{
    snprintf(r->label, sizeof r->label, "%d keys, kind %d, scores %d%s", n, kind,
             scores, what);
    r->is_flops = false;
}

static void try_modify(struct run *r, int n, int scores, int form)
{
    const float unit = 1.44269504f, c = form & 1 ? 30.0f : 0.0f;

    name_scores(r, n, form, scores, "");
    r->work = 8.0 * n * LANES;
    float *const       s = inout(r, (int64_t)n * LANES, NORMAL);
    float *const       f = floats(r, LANES, NORMAL);
    const float *const bias = form & 2 ? floats(r, (int64_t)n * LANES, NORMAL) : NULL;
    uint64_t *const    seen = take(r, (size_t)n * sizeof *seen, false, BYTES);

    fill_scores(r, s, n, scores);
    for (int j = 0; j < n; j++)
        seen[j] = bits(r);
    for (int i = 0; i < LANES && r->bench; i++)
        f[i] = 0.5f;

    /* f s + bias is rounded once or twice, x / c twice at most, tanh within EXP plus
     * what the exponential of 2x makes of that, and its slope is at most 1. */
    for (int x = 0; x < n * LANES; x++) {
        const double fs = (double)f[x % LANES] * (double)s[x];
        const double b = bias ? (double)bias[x] : 0.0;
        const double y = c != 0.0f ? 30.0 * tanh((fs + b) / 30.0) : fs + b;

        if (isfinite(fs) && !r->bench)
            allow(r, s, x,
                  (double)unit * (2 * E * (fabs(fs) + fabs(b)) + (4 * EXP) * fabs(y)));
    }
    while (next(r))
        r->k->modify(s, n, f, unit, c, bias, form & 4 ? seen : NULL);
}

static void check_modify(struct run *r)
{
    static const int forms[] = { 4, 7, 0, 1, 2, 3, 5, 6 };

    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
            for (int form = 0; form < cases(r, 2, COUNT(forms)); form++)
                try_modify(r, key_counts[i], scores, forms[form]);
}

/* How the running rows stand before: nothing seen, something seen that the scores
 * will exceed in some lanes, or much more than they will ever reach. */
enum { FRESH, CLOSE, ABOVE, N_STATES };

struct running {
    float *f, *m, *l, *shrink;
};

static struct running running(struct run *r, int state, int form)
{
    static const float levels[] = { -INFINITY, -6.0f, 1e5f };
    struct running     x = {
            .m = inout(r, LANES, NORMAL),
            .l = inout(r, LANES, NORMAL),
            .shrink = inout(r, LANES, NORMAL),
    };

    for (int i = 0; i < LANES; i++) {
        x.m[i] = i % 7 == 6 ? -INFINITY : levels[state] + (float)(i % 3) * 3.0f;
        x.l[i] = x.m[i] == -INFINITY ? 0.0f : 1.5f + (float)i;
    }
    if (form == 0) return x;
    x.f = floats(r, LANES, NORMAL);
    for (int i = 0; i < LANES && form == 1; i++)
        x.f[i] = 0.01f + fabsf(x.f[i]);
    return x;
}

static void name_running(struct run *r, int n, int kind, int scores, int state, int form)
{
    char what[32];

    snprintf(what, sizeof what, ", state %d%s", state, form ? ", factors" : "");
    name_scores(r, n, kind, scores, r->bench && form ? ", factors" : what);
}

/* The exponents t - m are made by the same two roundings in every level and m is
 * compared exactly, so that what is left is the error of 2^x, for squares twice, and
 * n + 2 roundings of a sum of positive numbers. */
static void try_weigh_f32(struct run *r, int n, int kind, int scores, int state,
                          int form)
{
    name_running(r, n, kind, scores, state, form);
    r->work = 8.0 * n * LANES;
    float *const         s = inout(r, (int64_t)n * LANES, NORMAL);
    const struct running x = running(r, state, form);
    int *const           moved = output(r, 1, sizeof *moved, BYTES);

    fill_scores(r, s, n, scores);
    allow_share(r, s, EXP + 2 * E);
    allow_share(r, x.l, 2 * (EXP + 2 * E) + 2 * (n + 2) * E);
    allow_share(r, x.shrink, EXP + 2 * E);
    while (next(r))
        *moved = r->k->weigh_f32(s, n, x.f, x.m, x.l, x.shrink, kind);
}

typedef void (*try_weigh)(struct run *r, int n, int kind, int scores, int state,
                          int form);

static void check_weigh(struct run *r, try_weigh try)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int kind = FOCI_SOFTMAX; kind <= FOCI_RELU2; kind++)
            for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
                for (int state = 0; state < cases(r, 1, N_STATES); state++)
                    for (int form = 0; form < cases(r, 2, 3); form++)
                        try(r, key_counts[i], kind, scores, state, form);
}

static void check_weigh_f32(struct run *r) { check_weigh(r, try_weigh_f32); }

/* l must be the sum of the very weights in p[k][64]. */
static void check_sums(const struct run *r, const uint16_t *p, int k,
                       const float *before, const struct running *x, int moved, int kind)
{
    for (int i = 0; i < LANES; i++) {
        double want = (double)before[i] * (moved ? (double)x->shrink[i] : 1.0);

        for (int j = 0; j < 2 * k && kind != FOCI_RELU2; j++) {
            const double w = (double)of_bf16(p[(j / 2 * LANES + i) * 2 + j % 2]);
            want += kind == FOCI_L2NORM ? w * w : w;
        }
        if (isnan(want) && isnan(x->l[i])) continue;
        if (fabs((double)x->l[i] - want) > (2 * k + 3) * E * want + (double)FLT_MIN)
            fail_msg("%s, %s: %s, lane %d: l is %.9g, the weights sum to %.9g",
                     r->level, r->label, kernel_names[r->id], i, (double)x->l[i], want);
    }
}

static void try_weigh_bf16(struct run *r, int n, int kind, int scores, int state,
                           int form)
{
    const int k = (n + 1) / 2 + (r->bench ? 0 : below(r, 3));
    float     before[LANES];

    name_running(r, n, kind, scores, state, form);
    r->work = 6.0 * n * LANES;
    float *const         s = floats(r, (int64_t)n * LANES, NORMAL);
    uint32_t *const      p = output(r, (int64_t)k * LANES, sizeof *p, HALVES);
    const struct running x = running(r, state, form);
    int *const           moved = output(r, 1, sizeof *moved, BYTES);

    fill_scores(r, s, n, scores);
    allow_share(r, p, BF16);
    allow_share(r, x.l, 2 * BF16);
    allow_share(r, x.shrink, EXP + 2 * E);
    while (next(r)) {
        if (!r->bench) memcpy(before, x.l, sizeof before);
        *moved = r->k->weigh_bf16(s, p, n, k, x.f, x.m, x.l, x.shrink, kind);
        if (!r->bench) check_sums(r, (const uint16_t *)p, k, before, &x, *moved, kind);
    }
}

static void check_weigh_bf16(struct run *r) { check_weigh(r, try_weigh_bf16); }

/* Rows of attention that suit the scores: the normaliser lies just above them. */
static struct grad_rows grad_rows(struct run *r, const float *s, int n, int kind,
                                  int form)
{
    float *const f = floats(r, LANES, NORMAL), *const norm = floats(r, LANES, NORMAL);

    for (int i = 0; i < LANES; i++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++)
            top = fmaxf(top, (form & 1 ? f[i] : 1.0f) * s[j * LANES + i]);
        norm[i] = top == -INFINITY ? INFINITY : top + 0.5f;
        if (kind == FOCI_RELU2) norm[i] = 1.0f / (float)(i + 1);
    }
    return (struct grad_rows){
        .f = form & 1 ? f : NULL,
        .norm = norm,
        .delta = floats(r, LANES, NORMAL),
        .mul = floats(r, LANES, NORMAL),
        .c = form & 2 ? 30.0f : 0.0f,
        .unit = 1.44269504f,
        .kind = kind,
    };
}

/* A bound of ds: each factor has at most three roundings, w its own error or counts
 * as zero, and the differences dp - delta and 1 - x^2 are taken at the size of their
 * terms. */
static double grad_bound(const struct grad_rows *g, int i, double s, double dp,
                         double error)
{
    const double t = (g->f ? (double)g->f[i] : 1.0) * s;
    const double x = g->c != 0.0f ? t / ((double)g->unit * (double)g->c) : 0.0;
    const double norm = (double)g->norm[i], delta = fabs((double)g->delta[i]);
    const double mul = fabs((double)g->mul[i]) * (1.0 + x * x);
    const double share = 2.0 * error + 16.0 * E;

    if (t == -INFINITY) return 0.0;
    if (g->kind == FOCI_RELU2)
        return 2.0 * fmax(t, 0.0) * norm * fabs(dp) * mul * share;
    return (exp2(fmin(t - norm, 8.0)) * share + (double)FLT_MIN) * (fabs(dp) + delta) *
           mul;
}

static void try_grad_f32(struct run *r, int n, int kind, int scores, int form)
{
    name_scores(r, n, kind, scores, form & 2 ? ", cap" : "");
    r->work = 16.0 * n * LANES;
    float *const s = inout(r, (int64_t)n * LANES, NORMAL);
    float *const dp = inout(r, (int64_t)n * LANES, NORMAL);

    fill_scores(r, s, n, scores);
    const struct grad_rows g = grad_rows(r, s, n, kind, form);

    allow_share(r, s, EXP + 4 * E);
    for (int x = 0; x < n * LANES; x++)
        allow(r, dp, x, grad_bound(&g, x % LANES, (double)s[x], (double)dp[x], EXP));
    while (next(r))
        r->k->grad_f32(s, dp, n, &g);
}

static void try_grad_bf16(struct run *r, int n, int kind, int scores, int form)
{
    const int     k = (n + 1) / 2 + (r->bench ? 0 : below(r, 3));
    const int64_t size = (int64_t)k * LANES;

    name_scores(r, n, kind, scores, form & 2 ? ", cap" : "");
    r->work = 16.0 * n * LANES;
    float *const s = floats(r, (int64_t)n * LANES, NORMAL);
    float *const dp = floats(r, (int64_t)n * LANES, NORMAL);

    fill_scores(r, s, n, scores);
    const struct grad_rows g = grad_rows(r, s, n, kind, form);
    uint16_t *const        w = output(r, 2 * size, sizeof *w, HALVES);
    uint16_t *const        ds = output(r, 2 * size, sizeof *ds, HALVES);
    uint32_t *const        p = output(r, size, sizeof *p, HALVES);

    allow_share(r, w, BF16);
    allow_share(r, ds, BF16);
    allow_share(r, p, BF16);
    for (int x = 0; x < n * LANES; x++) {
        const int    i = x % LANES, j = x / LANES;
        const double b = grad_bound(&g, i, (double)s[x], (double)dp[x], EXP_FAST);

        allow(r, ds, x, b);
        allow(r, p, (j / 2 * LANES + i) * 2 + j % 2, b);
    }
    while (next(r))
        r->k->grad_bf16(s, dp, n, k, &g, w, ds, p);
}

typedef void (*try_grad)(struct run *r, int n, int kind, int scores, int form);

static void check_grad(struct run *r, try_grad try)
{
    for (int i = 0; i < cases(r, 1, COUNT(key_counts)); i++)
        for (int kind = FOCI_SOFTMAX; kind <= FOCI_RELU2; kind++)
            for (int scores = 0; scores < cases(r, 1, N_SCORES); scores++)
                for (int form = 0; form < cases(r, 1, 4); form++)
                    try(r, key_counts[i], kind, scores, form);
}

static void check_grad_f32(struct run *r) { check_grad(r, try_grad_f32); }
static void check_grad_bf16(struct run *r) { check_grad(r, try_grad_bf16); }

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

static void (*const checkers[N_KERNELS])(struct run *) = {
#define KERNEL(name, result, args) [K_##name] = check_##name,
#include "kernels/kernels.def"
#undef KERNEL
};

/*
 * Against arithmetic in double, the reference too
 */

/* 2^t over all t that the lazy reference admits, into the denormals. */
static void test_exp2(void **state)
{
    const struct run *const r = *state;
    _Alignas(64) float      s[LANES], m[LANES], l[LANES], shrink[LANES];
    _Alignas(64) uint32_t   p[LANES];

    for (int step = 0; step < 20000; step++) {
        float t[LANES];
        for (int i = 0; i < LANES; i++) {
            s[i] = t[i] = (float)(8.0 - (step * LANES + i) * (158.0 / 20000 / LANES));
            m[i] = l[i] = 0.0f;
        }
        r->now->weigh_bf16(s, p, 1, 1, NULL, m, l, shrink, FOCI_SOFTMAX);
        r->now->weigh_f32(s, 1, NULL, m, l, shrink, FOCI_SOFTMAX);
        for (int i = 0; i < LANES; i++) {
            const double want = exp2((double)t[i]);
            const double fast = (double)of_bf16((uint16_t)p[i]);

            if (fabs((double)s[i] - want) > EXP * want + (double)FLT_MIN ||
                fabs(fast - want) > (0.5 * BF16 + EXP_FAST) * want + (double)FLT_MIN)
                fail_msg("%s: 2^%.9g = %.9g and %.9g, want %.9g", r->level,
                         (double)t[i], (double)s[i], fast, want);
        }
    }
}

/* tanh within 4e-7 of its value, from 2^-20 to 2^5. */
static void test_tanh(void **state)
{
    const struct run *const r = *state;
    _Alignas(64) float      s[LANES], f[LANES];

    for (int step = 0; step < 4000; step++) {
        float x[LANES];
        for (int i = 0; i < LANES; i++) {
            x[i] = (float)exp2(-20.0 + (step * LANES + i) * (25.0 / 4000 / LANES));
            s[i] = x[i] *= i % 2 ? 1.0f : -1.0f;
            f[i] = 1.0f;
        }
        r->now->modify(s, 1, f, 1.0f, 1.0f, NULL, NULL);
        for (int i = 0; i < LANES; i++) {
            const double want = tanh((double)x[i]);
            if (fabs((double)s[i] - want) > 4e-7 * fabs(want))
                fail_msg("%s: tanh %.9g = %.9g, want %.9g", r->level, (double)x[i],
                         (double)s[i], want);
        }
    }
}

/* Every number of 16 bits comes back from its float. */
static void test_round_trip(void **state)
{
    const struct run *const r = *state;

    for (int dtype = FOCI_BF16; dtype <= FOCI_F16; dtype++)
        for (int first = 0; first < 65536; first += LANES) {
            uint16_t           in[LANES], out[LANES];
            _Alignas(64) float x[LANES];

            for (int i = 0; i < LANES; i++)
                in[i] = (uint16_t)(first + i);
            r->now->load_rows(x, LANES, in, LANES, dtype, 1, LANES);
            r->now->store_rows(out, LANES, dtype, x, LANES, 1.0f, 1, LANES);
            for (int i = 0; i < LANES; i++) {
                const int top = dtype == FOCI_BF16 ? 0x7f80 : 0x7c00;
                if ((in[i] & 0x7fff) > top ? (out[i] & 0x7fff) <= top : in[i] != out[i])
                    fail_msg("%s: dtype %d, %04x became %04x", r->level, dtype, in[i],
                             out[i]);
            }
        }
}

/*
 * Levels
 */

enum { MAX_TABLES = N_LEVELS + 1, MAX_TESTS = MAX_TABLES * (N_KERNELS + 3) };

static struct kernels tables[MAX_TABLES];
static const char    *table_names[MAX_TABLES];

/* The tables of this machine, the reference first, and for tests that of the tiles in
 * software; the result is their number. */
static int climb(bool emulate)
{
    const char    *why[N_LEVELS];
    const unsigned levels = kernels_detect(why);
    int            n = 0;

    for (int i = 0; i < N_LEVELS; i++) {
        if (why[i]) {
            printf("# no %s: %s\n", level_names[i], why[i]);
            continue;
        }
        kernels_init(&tables[n], levels & ((2u << i) - 1));
        table_names[n++] = level_names[i];
    }
#ifdef FOCI_AMX_EMULATED
    if (emulate && levels >> LEVEL_BF16 & 1) {
        kernels_init(&tables[n], levels & ((2u << LEVEL_BF16) - 1));
        kernels_amx_emulated(&tables[n]);
        table_names[n++] = "amx emulated";
    }
#else
    (void)emulate;
#endif
    return n;
}

static void test_kernel(void **state)
{
    struct run *const r = *state;
    checkers[r->id](r);
}

static struct run        runs[MAX_TESTS];
static struct CMUnitTest tests[MAX_TESTS];
static char              test_names[MAX_TESTS][48];
static size_t            n_tests;

static void add(const char *name, void (*test)(void **), int table, int id)
{
    struct run *const r = &runs[n_tests];

    *r = (struct run){ .level = table_names[table],
                       .id = id,
                       .ref = &tables[0],
                       .now = &tables[table],
                       .seed = (uint64_t)id + 1 };
    snprintf(test_names[n_tests], sizeof test_names[0], "%s/%s", r->level, name);
    tests[n_tests] = (struct CMUnitTest){ test_names[n_tests], test, NULL, NULL, r };
    n_tests++;
}

/* What table t has that none below it had. */
static bool is_new(int t, int id)
{
    for (int i = 0; i < t; i++)
        if (kernels_slot(&tables[t], id) == kernels_slot(&tables[i], id)) return false;
    return true;
}

static void bench(int n_tables, const char *only)
{
    for (int id = 0; id < N_KERNELS; id++)
        for (int t = 0; t < n_tables; t++) {
            struct run r = { .level = table_names[t],
                             .id = id,
                             .ref = &tables[0],
                             .now = &tables[t],
                             .seed = 1,
                             .bench = true };
            if (is_new(t, id) && (!only || strcmp(only, kernel_names[id]) == 0))
                checkers[id](&r);
        }
}

int main(int argc, char **argv)
{
    const bool timed = argc > 1 && strcmp(argv[1], "--bench") == 0;
    const int  n_tables = climb(!timed);

    if (timed) {
        bench(n_tables, argc > 2 ? argv[2] : NULL);
        return 0;
    }
    for (int t = 0; t < n_tables; t++) {
        for (int id = 0; id < N_KERNELS && t > 0; id++)
            if (is_new(t, id)) add(kernel_names[id], test_kernel, t, id);
        add("exp2", test_exp2, t, K_weigh_f32);
        add("tanh", test_tanh, t, K_modify);
        add("round trip", test_round_trip, t, K_store_rows);
    }
    return _cmocka_run_group_tests("kernels", tests, n_tests, NULL, NULL);
}
