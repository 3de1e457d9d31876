/* product.c -- products of matrices against loops in double, on every CPU level.
 *
 * Most operands are small whole numbers: these are exact in every type and sums of them in
 * f32, so that results before they are rounded have one right value.
 */
#include <math.h>
#include <stdio.h>

#include "foci/product.h"
#include "product/product.h"
#include "support/levels.h"
#include "test.h"

enum { MOST_PARTS = 8, GUARD = 77 };

/* A matrix in its parts, and the same as doubles: rows as they are stored. */
struct made {
    struct matrix       m;
    struct product_part parts[MOST_PARTS];
    void               *owned[MOST_PARTS];
    int64_t             rows, cols;
    double             *x;
};

static struct kernels plain; /* conversions */
static struct rng     dice;

static double *at(const struct made *a, int64_t i, int64_t j)
{
    return a->m.transposed ? &a->x[j * a->cols + i] : &a->x[i * a->cols + j];
}

/* Element (i, j) of a part, each way. */
static char *element(const struct made *a, const struct product_part *p, int64_t i,
                     int64_t j)
{
    return (char *)p->data + (i * p->ld + j) * (int64_t)foci_dtype_bytes(a->m.dtype);
}

static void write_parts(struct made *a)
{
    for (int64_t i = 0; i < a->rows; i++) {
        int64_t c = 0;
        for (int t = 0; t < a->m.n_parts; t++)
            for (int64_t j = 0; j < a->parts[t].cols; j++, c++) {
                const float x = (float)a->x[i * a->cols + c];
                plain.store_rows(element(a, &a->parts[t], i, j), 1, (int)a->m.dtype, &x,
                                 1, 1, 1, 1);
            }
    }
}

static double *read_parts(const struct made *a)
{
    double *const x = test_alloc((size_t)(a->rows * a->cols), sizeof *x);

    for (int64_t i = 0; i < a->rows; i++) {
        int64_t c = 0;
        for (int t = 0; t < a->m.n_parts; t++)
            for (int64_t j = 0; j < a->parts[t].cols; j++, c++) {
                float y;
                plain.load_rows(&y, 1, element(a, &a->parts[t], i, j), 1,
                                (int)a->m.dtype, 1, 1);
                x[i * a->cols + c] = y;
            }
    }
    return x;
}

/* One part on the boundaries of vectors, each row too: what can be read in place. */
static void make_tidy(struct made *a)
{
    struct product_part *const p = &a->parts[0];

    p->cols = a->cols;
    p->ld = (a->cols + 15) / 16 * 16;
    p->data = a->owned[0] =
        test_alloc((size_t)(a->rows * p->ld), foci_dtype_bytes(a->m.dtype));
    memset(p->data, GUARD, (size_t)(a->rows * p->ld) * foci_dtype_bytes(a->m.dtype));
    a->m.parts = a->parts;
    a->m.n_parts = 1;
}

/* Unequal parts, some of them empty; rows further apart than they are wide; nothing
 * aligned to more than an element, and not a byte beyond the last row. */
static void make_parts(struct made *a, int n_parts)
{
    const size_t bytes = foci_dtype_bytes(a->m.dtype);
    int64_t      left = a->cols;

    for (int t = 0; t < n_parts; t++) {
        struct product_part *p = &a->parts[t];

        p->cols = t + 1 == n_parts ? left : rng_below(&dice, left + 1);
        p->ld = p->cols + rng_below(&dice, 4);
        left -= p->cols;
        const size_t n = a->rows ? (size_t)((a->rows - 1) * p->ld + p->cols) : 0;
        const size_t off = 1 + (size_t)rng_below(&dice, 16);

        a->owned[t] = malloc((n + off) * bytes);
        assert_non_null(a->owned[t]);
        memset(a->owned[t], GUARD, (n + off) * bytes);
        p->data = (char *)a->owned[t] + off * bytes;
    }
    a->m.parts = a->parts;
    a->m.n_parts = n_parts;
}

/* rows and cols are those of the product; n_parts 0: tidy. */
static void make(struct made *a, int64_t rows, int64_t cols, foci_dtype dtype,
                 bool transposed, int n_parts, bool whole)
{
    *a = (struct made){ .m = { .dtype = dtype, .transposed = transposed },
                        .rows = transposed ? cols : rows,
                        .cols = transposed ? rows : cols };
    a->x = test_alloc((size_t)(rows * cols), sizeof *a->x);
    for (int64_t i = 0; i < rows * cols; i++)
        a->x[i] = whole ? (double)(rng_below(&dice, 9) - 4) : rng_normal(&dice);
    if (n_parts)
        make_parts(a, n_parts);
    else
        make_tidy(a);
    write_parts(a);
    free(a->x);
    a->x = read_parts(a);
}

static void unmake(struct made *a)
{
    for (int t = 0; t < a->m.n_parts; t++)
        free(a->owned[t]);
    free(a->x);
}

/* Bytes between rows are as they were. */
static void check_gaps(const struct made *a)
{
    for (int t = 0; t < a->m.n_parts; t++) {
        const struct product_part *p = &a->parts[t];
        for (int64_t i = 0; i + 1 < a->rows; i++)
            for (const char *c = element(a, p, i, p->cols); c < element(a, p, i + 1, 0);
                 c++)
                assert_int_equal(*c, GUARD);
        if (!a->rows) continue;
        for (const char *c = a->owned[t]; c < (char *)p->data; c++)
            assert_int_equal(*c, GUARD);
    }
}

static uint64_t hash(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static bool dropped(const struct product *p, int64_t row, int64_t col)
{
    const uint64_t g = UINT64_C(0x9E3779B97F4A7C15);
    const int64_t  r = p->drop_row0 + row;
    uint64_t       key = hash(p->drop_seed + g * ((uint64_t)(r / p->drop_len) + 1));

    key = hash(key);
    key = hash(key + g * ((uint64_t)(r % p->drop_len) + 1));
    return (double)(hash(key + g * ((uint64_t)col + 1)) >> 11) * 0x1p-53 < p->drop;
}

/* A product, what it is made of, and the types and options it was drawn with. */
struct scene {
    struct product p;
    struct made    a, b, c, residual;
    float         *bias;
    double        *start; /* c before */
    double        *want, *off;
    bool           whole; /* numbers */
};

struct kind {
    int64_t    m, n, k;
    foci_dtype a, b, c;
    bool       a_transposed, b_transposed, add, whole, fast, more, tidy;
};

static int parts_of(const struct kind *d)
{
    return d->tidy ? 0 : 1 + (int)rng_below(&dice, MOST_PARTS);
}

static struct scene scene_make(const struct kind *d)
{
    struct scene s = { .whole = d->whole };
    const int    some = d->more && rng_below(&dice, 2);

    make(&s.a, d->m, d->k, d->a, d->a_transposed, parts_of(d), d->whole);
    make(&s.b, d->k, d->n, d->b, d->b_transposed, parts_of(d), d->whole);
    make(&s.c, d->m, d->n, d->c, false, d->more ? 1 : parts_of(d), d->whole);
    s.start = read_parts(&s.c);
    s.p = (struct product){ .m = d->m,
                            .n = d->n,
                            .k = d->k,
                            .a = s.a.m,
                            .b = s.b.m,
                            .c = s.c.m,
                            .add = d->add,
                            .fast = d->fast };
    if (!d->more) return s;

    make(&s.residual, d->m, d->n, d->c, false, 1, d->whole);
    unmake(&s.residual);
    s.residual = (struct made){ .m = s.c.m, .rows = d->m, .cols = d->n };
    s.residual.x = test_alloc((size_t)(d->m * d->n), sizeof(double));
    s.residual.parts[0] = s.c.parts[0];
    s.residual.owned[0] =
        malloc((size_t)(d->m * s.c.parts[0].ld + 1) * foci_dtype_bytes(d->c));
    s.residual.parts[0].data = (char *)s.residual.owned[0] + foci_dtype_bytes(d->c);
    s.residual.m.parts = s.residual.parts;
    for (int64_t i = 0; i < d->m * d->n; i++)
        s.residual.x[i] = (double)rng_below(&dice, 9) - 4;
    write_parts(&s.residual);
    s.bias = test_alloc((size_t)d->n, sizeof *s.bias);
    for (int64_t j = 0; j < d->n; j++)
        s.bias[j] = (float)rng_below(&dice, 9) - 4;
    s.p.bias = s.bias;
    s.p.act = some ? FOCI_ACT_SILU : FOCI_ACT_NONE;
    s.p.residual = s.residual.parts[0].data;
    s.p.drop = some ? 0.25 : 0;
    s.p.drop_seed = rng_u64(&dice);
    s.p.drop_len = 5;
    s.p.drop_row0 = 3;
    return s;
}

static void scene_point(struct scene *s)
{
    s->p.a.parts = s->a.parts;
    s->p.b.parts = s->b.parts;
    s->p.c.parts = s->c.parts;
    s->a.m.parts = s->a.parts;
    s->b.m.parts = s->b.parts;
    s->c.m.parts = s->c.parts;
    s->residual.m.parts = s->residual.parts;
}

static void scene_free(struct scene *s)
{
    unmake(&s->a);
    unmake(&s->b);
    unmake(&s->c);
    if (s->bias) unmake(&s->residual);
    free(s->bias);
    free(s->start);
    free(s->want);
    free(s->off);
}

/* Element (i, j), and what it may be off by. */
static double right(const struct scene *s, int64_t i, int64_t j, double *off)
{
    const struct product *p = &s->p;
    const bool            words = !s->whole && (p->fast || p->a.dtype != FOCI_F32);
    double                sum = 0, size = 0;

    for (int64_t t = 0; t < p->k; t++) {
        sum += *at(&s->a, i, t) * *at(&s->b, t, j);
        size += fabs(*at(&s->a, i, t) * *at(&s->b, t, j));
    }
    *off = s->whole ? 0 : size * ((words ? 0x1p-7 : 0) + (double)(p->k + 4) * 0x1p-24);
    if (p->add) return s->start[i * p->n + j] + sum;
    if (p->bias) sum += (double)p->bias[j];
    if (p->act == FOCI_ACT_SILU) {
        /* The slope is below 1.1; e^x of floats is off by x times their rounding. */
        const double x = sum;
        sum = x / (1 + exp(-x));
        *off = 1.1 * *off + fabs(sum) * (4 + fabs(x)) * 2e-7 + 1e-30;
    }
    if (p->drop > 0) {
        const double factor = dropped(p, i, j) ? 0 : 1 / (1 - p->drop);
        sum *= factor;
        *off = *off * factor + fabs(sum) * 1e-7;
    }
    if (p->residual) {
        sum += s->residual.x[i * p->n + j];
        if (*off > 0) *off += fabs(sum) * 0x1p-23;
    }
    return sum;
}

static void judge(struct scene *s)
{
    const int64_t n = s->p.m * s->p.n;

    s->want = test_alloc((size_t)n, sizeof *s->want);
    s->off = test_alloc((size_t)n, sizeof *s->off);
    for (int64_t i = 0; i < n; i++)
        s->want[i] = right(s, i / s->p.n, i % s->p.n, &s->off[i]);
}

static void check(const foci_ctx *ctx, const struct scene *s, const char *what)
{
    const struct product *p = &s->p;
    double *const         got = read_parts(&s->c);

    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const double want = s->want[i * p->n + j], have = got[i * p->n + j];
            double       off = s->off[i * p->n + j];

            if (p->c.dtype == FOCI_BF16) off += fabs(want) * 0x1p-8;
            if (p->c.dtype == FOCI_F16) off += fabs(want) * 0x1p-11 + 0x1p-24;
            if (isfinite(want) ? !(fabs(have - want) <= off) : isfinite(have))
                fail_msg("%s, level %d: m %d n %d k %d, %d%s %d%s %d, (%d, %d) is %g, "
                         "not %g",
                         what, (int)ctx->levels, (int)p->m, (int)p->n, (int)p->k,
                         (int)p->a.dtype, p->a.transposed ? "t" : "", (int)p->b.dtype,
                         p->b.transposed ? "t" : "", (int)p->c.dtype, (int)i, (int)j,
                         have, want);
        }
    free(got);
    check_gaps(&s->c);
}

/* Scratch memory of all runs, which fills it up to the end, where sanitizers watch: a
 * block for each of them would be mostly page faults. */
static struct {
    char  *at;
    size_t bytes;
} room;

static void run(const foci_ctx *ctx, const struct scene *s)
{
    const size_t bytes = product_bytes(ctx, &s->p);

    assert_int_equal(bytes % 64, 0);
    if (bytes > room.bytes) {
        free(room.at);
        room.at = test_alloc(bytes, 1);
        room.bytes = bytes;
    }
    char *const work = room.at + room.bytes - bytes;
    memset(work, 0xff, bytes); /* NaN */
    product_run(ctx, &s->p, work);
}

static void restore(struct scene *s)
{
    memcpy(s->c.x, s->start, (size_t)(s->p.m * s->p.n) * sizeof *s->start);
    write_parts(&s->c);
}

/* On all levels; with 7 threads the same bits as with one. */
static void run_levels(struct levels *one, struct levels *seven, const struct kind *d,
                       const char *what)
{
    struct scene s = scene_make(d);

    scene_point(&s);
    judge(&s);
    for (int l = 0; l < one->n; l++) {
        restore(&s);
        run(one->ctx[l], &s);
        check(one->ctx[l], &s, what);
        double *const first = read_parts(&s.c);

        restore(&s);
        run(seven->ctx[l], &s);
        double *const second = read_parts(&s.c);
        const size_t  bytes = (size_t)(d->m * d->n) * sizeof *first;
        assert_memory_equal(first, second, bytes);
        free(first);
        free(second);
    }
    scene_free(&s);
}

struct both {
    struct levels one, seven;
};

static int open_levels(void **state)
{
    struct both *b = test_alloc(1, sizeof *b);

    b->one = levels_make(1);
    b->seven = levels_make(7);
    kernels_ref(&plain);
    rng_seed(&dice, 1, 2);
    *state = b;
    return 0;
}

static int close_levels(void **state)
{
    struct both *b = *state;

    levels_free(&b->one);
    levels_free(&b->seven);
    free(b);
    free(room.at);
    return 0;
}

static const foci_dtype types[] = { FOCI_F32, FOCI_BF16, FOCI_F16 };
static const int64_t    extents[] = { 1, 2, 3, 5, 16, 17, 31, 64, 65, 70, 97, 130 };
enum { N_EXTENTS = sizeof extents / sizeof *extents };

static int64_t extent(void) { return extents[rng_below(&dice, N_EXTENTS)]; }

static struct kind kind_of(int form, foci_dtype a, foci_dtype b, foci_dtype c)
{
    return (struct kind){ .m = extent(),
                          .n = extent(),
                          .k = extent(),
                          .a = a,
                          .b = b,
                          .c = c,
                          .a_transposed = form & 1,
                          .b_transposed = (form & 2) != 0,
                          .whole = true };
}

/* Every form of operands and every triple of types. */
static void combinations(void **state)
{
    struct both *b = *state;

    for (int form = 0; form < 4; form++)
        for (int t = 0; t < 27; t++) {
            struct kind d = kind_of(form, types[t % 3], types[t / 3 % 3], types[t / 9]);

            run_levels(&b->one, &b->seven, &d, "plain");
            d.more = true;
            run_levels(&b->one, &b->seven, &d, "with what follows");
        }
}

static void sums(void **state)
{
    struct both *b = *state;

    for (int form = 0; form < 4; form++)
        for (int t = 0; t < 9; t++) {
            struct kind d = kind_of(form, types[t % 3], types[t / 3], FOCI_F32);

            d.add = true;
            run_levels(&b->one, &b->seven, &d, "added");
        }
}

/* More than one block each way, and more terms than are packed at once. */
static void long_one(struct both *b, int form, int t)
{
    struct kind d = kind_of(form, types[(form + t) % 2], types[t], types[t]);

    d.m = 203;
    d.n = 150;
    d.k = 1100 + t;
    run_levels(&b->one, &b->seven, &d, "long");
    d.m = 17;
    d.n = 1100;
    run_levels(&b->one, &b->seven, &d, "wide");
    d.m = 3;
    run_levels(&b->one, &b->seven, &d, "few rows");
}

/* The least that crosses the same borders: 96 rows and 64 columns in all forms of
 * operands, 1024 columns of 1024 terms, which do not depend on the form, in one. */
static void short_one(struct both *b, int form)
{
    struct kind d = kind_of(form, types[form % 2], FOCI_F32, FOCI_F32);

    d.m = 99;
    d.n = 70;
    d.k = 1030;
    run_levels(&b->one, &b->seven, &d, "long");
    d.m = 17;
    d.n = 1030;
    d.k = form ? 70 : 1030;
    run_levels(&b->one, &b->seven, &d, "wide");
    d.m = 3;
    run_levels(&b->one, &b->seven, &d, "few rows");
}

static void long_ones(void **state)
{
    for (int form = 0; form < 4; form++) {
        if (getenv("FOCI_TEST_SHORT")) {
            short_one(*state, form);
            continue;
        }
        long_one(*state, form, 0);
        long_one(*state, form, 1);
    }
}

/* Gradients of weights: sums over rows of both operands, of which there are more than are
 * packed at once. */
static void long_sums(void **state)
{
    struct both *b = *state;

    for (int t = 0; t < 4; t++) {
        struct kind d = kind_of(1, types[t % 2], types[t % 2], FOCI_F32);

        d.m = 20 + 79 * (t / 2);
        d.n = 70;
        d.k = t ? 1024 + t : 2100;
        d.add = true;
        run_levels(&b->one, &b->seven, &d, "long sums");
    }
}

/* Operands that are read where they lie. */
static void tidy(void **state)
{
    struct both *b = *state;

    for (int form = 0; form < 4; form++)
        for (int t = 0; t < 4; t++) {
            struct kind d = kind_of(form, types[t & 1], types[t >> 1], types[t & 1]);

            d.tidy = true;
            d.m = 112;
            d.n = 192;
            d.k = 160;
            run_levels(&b->one, &b->seven, &d, "tidy");
            d.m = 7;
            run_levels(&b->one, &b->seven, &d, "few tidy");
        }
}

/* Numbers that round. */
static void rounding(void **state)
{
    struct both *b = *state;

    for (int form = 0; form < 4; form++)
        for (int t = 0; t < 6; t++) {
            struct kind d = kind_of(form, types[t % 3], FOCI_F32, types[t % 3]);

            d.whole = false;
            d.fast = t >= 3;
            d.k = t & 1 ? 500 : 129;
            run_levels(&b->one, &b->seven, &d, "normal");
        }
}

static void nothing(void **state)
{
    struct both *b = *state;

    for (int empty = 1; empty < 8; empty++)
        for (int more = 0; more < 3; more++) {
            struct kind d = kind_of(0, FOCI_F32, FOCI_F32, FOCI_F32);

            if (empty & 1) d.m = 0;
            if (empty & 2) d.n = 0;
            if (empty & 4) d.k = 0;
            d.more = more == 1;
            d.add = more == 2;
            run_levels(&b->one, &b->seven, &d, "of nothing");
        }
}

/* What is not finite reaches its row, or its column, and nothing else. */
static void not_finite(void **state)
{
    struct both *b = *state;

    for (int form = 0; form < 4; form++)
        for (int t = 0; t < 4; t++) {
            struct kind d = kind_of(form, types[t & 1], types[t & 1], types[t & 1]);

            if (t & 2) d.m = 1 + rng_below(&dice, 20);
            struct scene s = scene_make(&d);
            scene_point(&s);
            *at(&s.a, rng_below(&dice, d.m), rng_below(&dice, d.k)) = NAN;
            *at(&s.b, rng_below(&dice, d.k), rng_below(&dice, d.n)) = INFINITY;
            write_parts(&s.a);
            write_parts(&s.b);
            judge(&s);
            for (int l = 0; l < b->one.n; l++) {
                restore(&s);
                run(b->one.ctx[l], &s);
                check(b->one.ctx[l], &s, "not finite");
            }
            scene_free(&s);
        }
}

/* Memory for some extents does for all that are smaller. */
static void memory(void **state)
{
    struct both *b = *state;

    for (int l = 0; l < b->seven.n; l++)
        for (int i = 0; i < 200; i++) {
            struct product p = { .m = rng_below(&dice, 300),
                                 .n = rng_below(&dice, 300),
                                 .k = rng_below(&dice, 300) };
            p.a.transposed = rng_below(&dice, 2) > 0;
            p.b.transposed = rng_below(&dice, 2) > 0;
            p.a.dtype = types[rng_below(&dice, 3)];
            const size_t   bytes = product_bytes(b->seven.ctx[l], &p);
            struct product less = p;

            less.m = rng_below(&dice, p.m + 1);
            less.n = rng_below(&dice, p.n + 1);
            less.k = rng_below(&dice, p.k + 1);
            assert_true(product_bytes(b->seven.ctx[l], &less) <= bytes);
        }
    const struct product huge = { .m = 1, .n = INT64_MAX / 4, .k = INT64_MAX / 4 };
    assert_true(product_bytes(b->one.ctx[0], &huge) == SIZE_MAX);
}

/* The public call: the same numbers, and what it refuses. */
static void public_call(void **state)
{
    (void)state;
    enum { M = 3, N = 2, K = 4, LD = 5 };
    const float     a[M * LD] = { 1, 2, 3, 4, 99, 5, 6, 7, 8, 99, 9, 8, 7, 6, 99 };
    const float     b[N * K] = { 1, 0, 0, 1, 0, 1, 1, 0 }; /* transposed */
    float           c[M * N] = { 1, 1, 1, 1, 1, 1 };
    const float     want[M * N] = { 6, 6, 14, 14, 16, 16 };
    foci_ctx       *ctx = test_ctx(NULL, 2);
    foci_product_io io = { FOCI_SIZED(foci_product_io),
                           .m = M,
                           .n = N,
                           .k = K,
                           .a = a,
                           .b = b,
                           .c = c,
                           .ld_a = LD,
                           .flags = FOCI_PRODUCT_TRANSPOSE_B | FOCI_PRODUCT_ADD };
    void *const     work = test_alloc(foci_product_work_bytes(ctx, &io), 1);

    io.work = work;
    assert_int_equal(foci_product(ctx, &io), FOCI_OK);
    assert_memory_equal(c, want, sizeof want);
    free(work);
    foci_ctx_free(ctx);
}

/* c of m rows, with b packed before or by the product. */
static uint16_t *by_packed(foci_ctx *ctx, foci_product_io io, const void *packed)
{
    const size_t n = (size_t)(io.m * io.n);
    uint16_t    *c = test_alloc(n, sizeof *c);

    io.packed = packed;
    io.c = c;
    io.work = test_alloc(foci_product_work_bytes(ctx, &io), 1);
    assert_int_equal(foci_product(ctx, &io), FOCI_OK);
    free(io.work);
    return c;
}

static void packed_case(foci_ctx *ctx, foci_product_io io)
{
    static const int64_t rows[] = { 1, 7, 9, 40, 130 };

    io.m = 1;
    const size_t bytes = foci_product_pack_bytes(ctx, &io);
    void *const  packed = bytes ? test_alloc(bytes, 1) : NULL;
    io.work = test_alloc(foci_product_work_bytes(ctx, &io), 1);
    assert_int_equal(foci_product_pack(ctx, &io, packed), FOCI_OK);
    if (bytes)
        assert_int_equal(foci_product_pack(ctx, &io, (char *)packed + 4), FOCI_ERR_ARG);
    free(io.work);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        io.m = rows[i];
        uint16_t *got = by_packed(ctx, io, packed), *want = by_packed(ctx, io, NULL);
        assert_memory_equal(got, want, (size_t)(io.m * io.n) * sizeof *got);
        free(got);
        free(want);
    }
    free(packed);
}

/* b that is packed once gives the same bits as b that every product packs. */
static void packed(void **state)
{
    enum { M = 130, N = 150, K = 70 };
    struct levels l = levels_make(2);
    float        *a = test_alloc(M * K, sizeof *a);
    float        *b = test_alloc(2 * N * K, sizeof *b);

    (void)state;
    for (int i = 0; i < M * K; i++)
        a[i] = (float)rng_normal(&dice);
    for (int i = 0; i < 2 * N * K; i++)
        b[i] = (float)rng_normal(&dice);
    for (int i = 0; i < 8 * l.n; i++) {
        const foci_product_io io = { FOCI_SIZED(foci_product_io),
                                     .n = N,
                                     .k = K,
                                     .a = a,
                                     .b = b,
                                     .type_a = i & 1 ? FOCI_BF16 : FOCI_F32,
                                     .type_b = i & 1 ? FOCI_BF16 : FOCI_F32,
                                     .type_c = FOCI_BF16,
                                     .flags = (i & 2 ? FOCI_PRODUCT_TRANSPOSE_B : 0) |
                                              (i & 4 ? FOCI_PRODUCT_GATED : 0),
                                     .act = FOCI_ACT_SILU };
        packed_case(l.ctx[i / 8], io);
    }
    free(a);
    free(b);
    levels_free(&l);
}

static void refuse(foci_ctx *ctx, foci_product_io io, const char *words)
{
    assert_int_equal(foci_product(ctx, &io), FOCI_ERR_ARG);
    if (!strstr(foci_errmsg(ctx), words))
        fail_msg("\"%s\" does not say \"%s\"", foci_errmsg(ctx), words);
}

static void refused(void **state)
{
    (void)state;
    _Alignas(64) float    some[16] = { 0 };
    foci_ctx             *ctx = test_ctx(NULL, 1);
    const foci_product_io good = { FOCI_SIZED(foci_product_io),
                                   .m = 1,
                                   .n = 1,
                                   .k = 1,
                                   .a = some,
                                   .b = some,
                                   .c = some,
                                   .work = some };
    foci_product_io       io = good;

    io.size = 1;
    refuse(ctx, io, "foci_product_io.size is 1");
    assert_true(foci_product_work_bytes(ctx, &io) == SIZE_MAX);
    assert_true(foci_product_work_bytes(ctx, NULL) == SIZE_MAX);
    assert_int_equal(foci_product(ctx, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_product(NULL, &good), FOCI_ERR_ARG);
    io = good, io.n = -1;
    refuse(ctx, io, "at least 0, not 1, -1 and 1");
    assert_true(foci_product_work_bytes(ctx, &io) == SIZE_MAX);
    io = good, io.flags = 64;
    refuse(ctx, io, "0x40");
    io = good, io.type_b = (foci_dtype)7;
    refuse(ctx, io, "type 7 of b");
    io = good, io.type_c = FOCI_BF16, io.flags = FOCI_PRODUCT_ADD;
    refuse(ctx, io, "f32 only");
    io = good, io.k = 4, io.ld_a = 3;
    refuse(ctx, io, "rows of a are 4 elements long, and ld_a 3 apart");
    io = good, io.m = INT64_MAX / 2;
    refuse(ctx, io, "more than can be counted");
    io = good, io.a = NULL;
    refuse(ctx, io, "missing");
    io = good, io.work = (char *)some + 4;
    refuse(ctx, io, "64-byte aligned");
    io = good, io.m = 0, io.a = NULL, io.work = NULL;
    assert_int_equal(foci_product(ctx, &io), FOCI_OK);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combinations), cmocka_unit_test(sums),
        cmocka_unit_test(long_ones),    cmocka_unit_test(long_sums),
        cmocka_unit_test(tidy),         cmocka_unit_test(rounding),
        cmocka_unit_test(nothing),      cmocka_unit_test(not_finite),
        cmocka_unit_test(memory),       cmocka_unit_test(public_call),
        cmocka_unit_test(packed),       cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
