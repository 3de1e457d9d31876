/* run.h -- one kernel of one level, called twice and compared, or timed.
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
#ifndef FOCI_TESTS_KERN_RUN_H
#define FOCI_TESTS_KERN_RUN_H

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

enum { GUARD = 256, MAX_BUFS = 20 };
enum type {
    FLOATS,
    HALVES,
    BYTES,
    DOUBLES
}; /* halves: bf16, by value; bytes: exactly */

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
    double   d;

    switch (type) {
    case FLOATS: memcpy(&x, p + 4 * i, 4); return (double)x;
    case HALVES: memcpy(&h, p + 2 * i, 2); return (double)of_bf16(h);
    case DOUBLES: memcpy(&d, p + 8 * i, 8); return d;
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
    static const size_t     sizes[] = { 4, 2, 1, 8 };
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

#endif
