/* pooling.c -- means of valid rows, and first rows. */
#include "ops/ops.h"

struct scene {
    foci_pooling_io io;
    struct tensor   x, y, dy, dx;
    int32_t        *lens;
};

static int64_t rows_of(const struct scene *s, int64_t b)
{
    const int64_t n = s->io.lens ? s->lens[b] : s->io.len;
    return s->io.kind == FOCI_POOLING_FIRST && n > 1 ? 1 : n;
}

static void forward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_pooling_forward(ctx, &s->io));
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width;

    (void)ctx;
    for (int64_t i = 0; i < s->y.n; i++) {
        const int64_t b = i / w, n = rows_of(s, b);
        double        sum = 0, size = 1;

        for (int64_t r = 0; r < n; r++) {
            sum += s->x.x[(b * s->io.len + r) * w + i % w];
            size += fabs(s->x.x[(b * s->io.len + r) * w + i % w]);
        }
        near("y", &s->y, i, n ? sum / (double)n : 0, 4 * E * size);
    }
}

static void backward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_pooling_backward(ctx, &s->io));
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width;

    (void)ctx;
    for (int64_t i = 0; i < s->dx.n; i++) {
        const int64_t b = i / w / s->io.len, n = rows_of(s, b);
        const double  d = s->dy.x[b * w + i % w];

        near("dx", &s->dx, i, i / w % s->io.len < n ? d / (double)n : 0,
             4 * E * fabs(d));
    }
}

static void try(foci_pooling_kind kind, foci_dtype dtype, int64_t batch, int64_t len,
                int64_t width, bool lens)
{
    const int64_t n = batch * len * width;
    struct scene  s = { .x = tensor_draw(dtype, n, 1),
                        .y = tensor_of(dtype, batch * width),
                        .dy = tensor_draw(dtype, batch * width, 1),
                        .dx = tensor_of(dtype, n),
                        .lens = test_alloc((size_t)batch, sizeof(int32_t)) };
    struct outs   o = { .n = 0 };

    for (int64_t b = 0; b < batch; b++)
        s.lens[b] = (int32_t)(b ? rng_below(&dice, len + 1) : 0);
    /* What lies beyond a length does not count. */
    for (int64_t i = 0; i < n && lens; i++)
        if (i / width % len >= s.lens[i / width / len]) s.x.x[i] = NAN;
    tensor_write(&s.x);
    s.io = (foci_pooling_io){ FOCI_SIZED(foci_pooling_io),
                              .kind = kind,
                              .dtype = dtype,
                              .batch = batch,
                              .len = len,
                              .width = width,
                              .lens = lens ? s.lens : NULL,
                              .x = s.x.data,
                              .y = s.y.data,
                              .dy = s.dy.data,
                              .dx = s.dx.data };
    outs_add(&o, &s.y);
    outs_add(&o, &s.dx);
    each_level(&o, &s, forward, judge_forward, "pooling");
    each_level(&o, &s, backward, judge_backward, "pooling backward");
    outs_free(&o);
    tensor_free(&s.x);
    tensor_free(&s.y);
    tensor_free(&s.dy);
    tensor_free(&s.dx);
    free(s.lens);
}

static void shapes(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int t = 0; t < 3; t++)
            for (int lens = 0; lens < 2; lens++) {
                try((foci_pooling_kind)kind, types[t], 3, 5, 37, lens);
                try((foci_pooling_kind)kind, types[t], 1, 1, 1, lens);
                try((foci_pooling_kind)kind, types[t], 9, 40, 70, lens);
                try((foci_pooling_kind)kind, types[t], 2, 0, 3, lens);
            }
    try(FOCI_POOLING_MEAN, FOCI_F32, 2, 3, 1030, false);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    float           x[6] = { 0 }, y[6];
    const int32_t   lens[] = { 2, 3 };
    foci_pooling_io good = { FOCI_SIZED(foci_pooling_io),
                             .batch = 2,
                             .len = 2,
                             .width = 1,
                             .x = x,
                             .y = y,
                             .dy = y,
                             .dx = x },
                    io = good;

    (void)state;
    io.lens = lens;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "length 3 of entry 1 is not 0 to 2");
    REFUSED(ctx, foci_pooling_backward(ctx, &io), "length 3");
    io = good, io.kind = (foci_pooling_kind)2;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "kind 2");
    io = good, io.x = NULL;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "x is missing");
    io = good, io.y = NULL;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "y is missing");
    io = good, io.dx = NULL;
    REFUSED(ctx, foci_pooling_backward(ctx, &io), "dy or dx");
    io = good, io.batch = -1;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "batch is 0");
    io = good, io.width = 1 << 25;
    REFUSED(ctx, foci_pooling_forward(ctx, &io), "width is 1 to 16777216");
    assert_int_equal(foci_pooling_forward(NULL, &good), FOCI_ERR_ARG);
    assert_int_equal(foci_pooling_backward(NULL, &good), FOCI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(shapes),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
