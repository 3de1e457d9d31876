/* ops.h -- what the tests of operations share.
 *
 * A test draws tensors, which are kept as doubles too, states the operation in double
 * precision, and has each_level() run it: on every CPU level the results are held against the
 * statement, and with 2 and 7 threads they are the bits of one.
 */
#ifndef FOCI_TESTS_OPS_H
#define FOCI_TESTS_OPS_H

#include <math.h>
#include <stdio.h>

#include "foci/ops.h"
#include "support/levels.h"
#include "test.h"

/* Half a unit in the last place of 1, in floats and in a type. */
#define E 0x1p-24
static inline double half_unit(foci_dtype dtype)
{
    return dtype == FOCI_F32 ? E : dtype == FOCI_BF16 ? 0x1p-8 : 0x1p-11;
}

static struct kernels plain; /* conversions */
static struct rng     dice;

/* Numbers of a type, where no vector is on its boundary, and what they are. */
struct tensor {
    foci_dtype dtype;
    int64_t    n;
    char      *block;
    void      *data;
    double    *x;
};

enum { GUARD = 0x5d, GUARD_BYTES = 128 };

static inline struct tensor tensor_of(foci_dtype dtype, int64_t n)
{
    const size_t  bytes = (size_t)n * foci_dtype_bytes(dtype);
    struct tensor t = { .dtype = dtype, .n = n };

    t.block = test_alloc(bytes + 2 * GUARD_BYTES, 1);
    memset(t.block, GUARD, bytes + 2 * GUARD_BYTES);
    t.data = t.block + 64 + foci_dtype_bytes(dtype);
    t.x = test_alloc((size_t)n, sizeof *t.x);
    return t;
}

static inline void tensor_write(const struct tensor *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        const float x = (float)t->x[i];
        plain.store_rows((char *)t->data + i * (int64_t)foci_dtype_bytes(t->dtype), 1,
                         (int)t->dtype, &x, 1, 1, 1, 1);
    }
}

static inline double tensor_get(const struct tensor *t, int64_t i)
{
    float x;

    plain.load_rows(&x, 1, (char *)t->data + i * (int64_t)foci_dtype_bytes(t->dtype), 1,
                    (int)t->dtype, 1, 1);
    return (double)x;
}

static inline void tensor_read(struct tensor *t)
{
    for (int64_t i = 0; i < t->n; i++)
        t->x[i] = tensor_get(t, i);
}

/* Normals times `scale`, rounded to the type. */
static inline struct tensor tensor_draw(foci_dtype dtype, int64_t n, double scale)
{
    struct tensor t = tensor_of(dtype, n);

    for (int64_t i = 0; i < n; i++)
        t.x[i] = scale * rng_normal(&dice);
    tensor_write(&t);
    tensor_read(&t);
    return t;
}

static inline void tensor_free(struct tensor *t)
{
    free(t->block);
    free(t->x);
    *t = (struct tensor){ .n = 0 };
}

/* Bytes around it are as they were. */
static inline void tensor_check_guard(const struct tensor *t, const char *what)
{
    const char *const end =
        (char *)t->data + t->n * (int64_t)foci_dtype_bytes(t->dtype);

    for (const char *p = t->block; p < (char *)t->data; p++)
        if (*p != GUARD) fail_msg("%s: written before it begins", what);
    for (const char *p = end; p < end + 32; p++)
        if (*p != GUARD) fail_msg("%s: written beyond its end", what);
}

/* Scratch memory that ends where it has to, all NaN. */
static inline void *scratch(size_t bytes)
{
    assert_true(bytes != SIZE_MAX && bytes % 64 == 0);
    void *const p = test_alloc(bytes, 1);
    memset(p, 0xff, bytes);
    return p;
}

/*
 * Levels and threads
 */

static const int team[] = { 1, 2, 7 };
enum { N_TEAMS = 3, MOST_OUTS = 8 };
static struct levels levels[N_TEAMS];

static inline int open_levels(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEAMS; i++)
        levels[i] = levels_make(team[i]);
    kernels_ref(&plain);
    rng_seed(&dice, 1, 2);
    return 0;
}

static inline int close_levels(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEAMS; i++)
        levels_free(&levels[i]);
    return 0;
}

static inline foci_ctx *best_ctx(void) { return levels[0].ctx[levels[0].n - 1]; }

/* What an operation writes, or adds to. */
struct outs {
    struct tensor *t[MOST_OUTS];
    void          *start[MOST_OUTS], *one[MOST_OUTS];
    int            n;
};

static inline size_t bytes_of_tensor(const struct tensor *t)
{
    return (size_t)t->n * foci_dtype_bytes(t->dtype);
}

static inline void outs_add(struct outs *o, struct tensor *t)
{
    assert_true(o->n < MOST_OUTS);
    o->start[o->n] = test_alloc(bytes_of_tensor(t), 1);
    o->one[o->n] = test_alloc(bytes_of_tensor(t), 1);
    memcpy(o->start[o->n], t->data, bytes_of_tensor(t));
    o->t[o->n++] = t;
}

static inline void outs_free(struct outs *o)
{
    for (int i = 0; i < o->n; i++) {
        free(o->start[i]);
        free(o->one[i]);
    }
    o->n = 0;
}

/* Run on every level, with each number of threads; judge the results of one thread. */
static inline void each_level(struct outs *o, void *scene,
                              void (*run)(foci_ctx *, void *),
                              void (*judge)(const foci_ctx *, void *), const char *what)
{
    for (int l = 0; l < levels[0].n; l++)
        for (int t = 0; t < N_TEAMS; t++) {
            for (int i = 0; i < o->n; i++)
                memcpy(o->t[i]->data, o->start[i], bytes_of_tensor(o->t[i]));
            run(levels[t].ctx[l], scene);
            for (int i = 0; i < o->n; i++) {
                tensor_check_guard(o->t[i], what);
                if (t == 0)
                    memcpy(o->one[i], o->t[i]->data, bytes_of_tensor(o->t[i]));
                else if (memcmp(o->one[i], o->t[i]->data, bytes_of_tensor(o->t[i])) != 0)
                    fail_msg("%s, level %d: %d threads, other bits in output %d", what,
                             l, team[t], i);
            }
            if (t == 0) judge(levels[t].ctx[l], scene);
        }
}

static inline void must(foci_ctx *ctx, foci_status status)
{
    if (status != FOCI_OK) fail_msg("%s", foci_errmsg(ctx));
}

/* A result within `off` of what it should be, beside the rounding of its type. */
static inline void near(const char *what, const struct tensor *t, int64_t i,
                        double want, double off)
{
    const double got = tensor_get(t, i);
    const double tiny = t->dtype == FOCI_F16 ? 0x1p-25 : 1e-37;

    off += tiny + half_unit(t->dtype) * (fabs(want) + off);
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= off))
        fail_msg("%s: element %d is %.9g, not %.9g within %.3g", what, (int)i, got,
                 want, off);
}

static const foci_dtype types[] = { FOCI_F32, FOCI_BF16, FOCI_F16 };

/*
 * Finite differences: of a sum in double, by each number of x.
 */

static inline double slope(double (*f)(const void *), const void *scene, double *x)
{
    const double h = 1e-5 * fmax(1, fabs(*x)), at = *x;

    *x = at + h;
    const double above = f(scene);
    *x = at - h;
    const double below = f(scene);
    *x = at;
    return (above - below) / (2 * h);
}

/* An argument that is refused, with words that are to be in the sentence. */
#define REFUSED(ctx, call, words)                                                      \
    do {                                                                               \
        assert_int_equal((call), FOCI_ERR_ARG);                                        \
        if (!strstr(foci_errmsg(ctx), (words)))                                        \
            fail_msg("\"%s\" does not say \"%s\"", foci_errmsg(ctx), (words));         \
    } while (0)

/* Whether element (row, column) is dropped (docs/random.md). */
static inline uint64_t mixed(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static inline double kept(double share, uint64_t seed, int64_t row, int64_t col)
{
    const uint64_t g = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t       key = mixed(mixed(seed + g));

    key = mixed(key + g * ((uint64_t)row + 1));
    key = mixed(key + g * ((uint64_t)col + 1));
    return (double)(key >> 11) * 0x1p-53 < share ? 0 : 1 / (1 - share);
}

/* Activations and their slopes. */
static inline double act_of(foci_act act, double x)
{
    switch (act) {
    case FOCI_ACT_RELU: return x > 0 ? x : x <= 0 ? 0 : x;
    case FOCI_ACT_GELU: return x * 0.5 * erfc(-x / sqrt(2.0));
    case FOCI_ACT_GELU_TANH:
        return x / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) *
                            (x + 0.044715 * x * x * x)));
    case FOCI_ACT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}

/* What polynomials are off by, as a share of x. */
static inline double act_off(foci_act act, foci_dtype dtype)
{
    if (act == FOCI_ACT_NONE || act == FOCI_ACT_RELU) return 0;
    return dtype == FOCI_BF16 ? 2e-4 : 1e-6;
}

#endif
