/* conv.c -- short convolutions: all rows at once, and the same in steps. */
#include "ops/ops.h"

struct scene {
    foci_conv_io  io;
    struct tensor x, w, bias, before, after, y, dy, dx, dw, dbias;
    int32_t      *lens;
};

static int64_t len_of(const struct scene *s, int64_t b)
{
    return s->io.lens ? s->lens[b] : s->io.len;
}

/* Row i of entry b, that may be before the first. */
static double x_of(const struct scene *s, int64_t b, int64_t i, int64_t c)
{
    const int64_t kept = s->io.taps - 1;

    if (i >= 0) return s->x.x[(b * s->io.len + i) * s->io.width + c];
    return s->io.before ? s->before.x[(b * kept + kept + i) * s->io.width + c] : 0;
}

static double y_of(const struct scene *s, int64_t b, int64_t i, int64_t c)
{
    double y = s->io.bias ? s->bias.x[c] : 0;

    if (i >= len_of(s, b)) return 0;
    for (int64_t t = 0; t < s->io.taps; t++)
        y += s->w.x[t * s->io.width + c] * x_of(s, b, i - t, c);
    return y;
}

static void forward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_conv_forward(ctx, &s->io));
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width, len = s->io.len, kept = s->io.taps - 1;

    (void)ctx;
    for (int64_t i = 0; i < s->y.n; i++)
        near("y", &s->y, i, y_of(s, i / w / len, i / w % len, i % w),
             64 * E * (double)s->io.taps);
    for (int64_t i = 0; i < s->after.n; i++) {
        const int64_t b = i / w / kept, from = len_of(s, b) - kept;
        assert_true(tensor_get(&s->after, i) == x_of(s, b, from + i / w % kept, i % w));
    }
}

static void backward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    foci_conv_io        io = s->io;

    io.work = scratch(foci_conv_work_bytes(ctx, &io));
    must(ctx, foci_conv_backward(ctx, &io));
    free(io.work);
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width, len = s->io.len, taps = s->io.taps;
    double *const       dw = test_alloc((size_t)s->dw.n, sizeof *dw);
    double *const       dbias = test_alloc((size_t)w, sizeof *dbias);
    double *const       dx = test_alloc((size_t)s->dx.n, sizeof *dx);

    (void)ctx;
    for (int64_t i = 0; i < s->dy.n; i++) {
        const int64_t b = i / w / len, r = i / w % len, c = i % w;

        if (r >= len_of(s, b)) continue;
        dbias[c] += s->dy.x[i];
        for (int64_t t = 0; t < taps; t++) {
            dw[t * w + c] += s->dy.x[i] * x_of(s, b, r - t, c);
            if (r >= t) dx[i - t * w] += s->dy.x[i] * s->w.x[t * w + c];
        }
    }
    for (int64_t i = 0; i < s->dx.n; i++)
        near("dx", &s->dx, i, dx[i], 64 * E * (double)taps);
    for (int64_t i = 0; i < s->dw.n; i++)
        near("dw", &s->dw, i, 0.5 + dw[i], 2e-5);
    for (int64_t i = 0; i < w; i++)
        near("dbias", &s->dbias, i, 0.5 + dbias[i], 2e-5);
    free(dw);
    free(dbias);
    free(dx);
}

static struct tensor halves(int64_t n)
{
    struct tensor t = tensor_of(FOCI_F32, n);

    for (int64_t i = 0; i < n; i++)
        t.x[i] = 0.5;
    tensor_write(&t);
    return t;
}

static struct scene scene_make(foci_dtype dtype, int64_t batch, int64_t len,
                               int64_t width, int64_t taps, int with)
{
    const int64_t n = batch * len * width, kept = batch * (taps - 1) * width;
    struct scene  s = { .x = tensor_draw(dtype, n, 1),
                        .w = tensor_draw(FOCI_F32, taps * width, 1),
                        .bias = tensor_draw(FOCI_F32, width, 1),
                        .before = tensor_draw(dtype, kept, 1),
                        .after = tensor_of(dtype, kept),
                        .y = tensor_of(dtype, n),
                        .dy = tensor_draw(dtype, n, 1),
                        .dx = tensor_of(dtype, n),
                        .dw = halves(taps * width),
                        .dbias = halves(width),
                        .lens = test_alloc((size_t)batch, sizeof(int32_t)) };

    for (int64_t b = 0; b < batch; b++)
        s.lens[b] = (int32_t)(b ? rng_below(&dice, len + 1) : 0);
    /* Neither rows beyond a length nor their gradients count. */
    for (int64_t i = 0; i < n && with & 4; i++)
        if (i / width % len >= s.lens[i / width / len]) s.x.x[i] = s.dy.x[i] = NAN;
    tensor_write(&s.x);
    tensor_write(&s.dy);
    s.io = (foci_conv_io){ FOCI_SIZED(foci_conv_io),
                           .dtype = dtype,
                           .batch = batch,
                           .len = len,
                           .width = width,
                           .taps = taps,
                           .lens = with & 4 ? s.lens : NULL,
                           .w = s.w.data,
                           .bias = with & 1 ? s.bias.data : NULL,
                           .x = s.x.data,
                           .y = s.y.data,
                           .before = with & 2 ? s.before.data : NULL,
                           .after = s.after.data,
                           .dy = s.dy.data,
                           .dx = s.dx.data,
                           .dw = s.dw.data,
                           .dbias = s.dbias.data };
    return s;
}

static void scene_free(struct scene *s)
{
    struct tensor *const all[] = { &s->x, &s->w,  &s->bias, &s->before, &s->after,
                                   &s->y, &s->dy, &s->dx,   &s->dw,     &s->dbias };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    free(s->lens);
}

static void try(foci_dtype dtype, int64_t batch, int64_t len, int64_t width,
                int64_t taps, int with)
{
    struct scene s = scene_make(dtype, batch, len, width, taps, with);
    struct outs  o = { .n = 0 };

    outs_add(&o, &s.y);
    outs_add(&o, &s.after);
    each_level(&o, &s, forward, judge_forward, "conv");
    outs_free(&o);
    outs_add(&o, &s.dx);
    outs_add(&o, &s.dw);
    outs_add(&o, &s.dbias);
    each_level(&o, &s, backward, judge_backward, "conv backward");
    outs_free(&o);
    scene_free(&s);
}

static void shapes(void **state)
{
    (void)state;
    for (int with = 0; with < 8; with++)
        for (int t = 0; t < 3; t++) {
            try(types[t], 2, 9, 21, 4, with);
            try(types[t], 3, 2, 5, 6, with); /* fewer rows than taps */
        }
    try(FOCI_BF16, 2, 300, 37, 3, 7);
    try(FOCI_F32, 1, 1, 1, 1, 0);
    try(FOCI_F32, 1, 70, 3, 64, 2);
    try(FOCI_F32, 2, 0, 3, 3, 2);
}

/* One token at a time, with what is kept in one place, is the same as all at once. */
static void steps(void **state)
{
    enum { LEN = 9, WIDTH = 5, TAPS = 4 };
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_BF16, 1, LEN, WIDTH, TAPS, 3);
    struct tensor   y = tensor_of(FOCI_BF16, WIDTH);
    foci_conv_io    io = s.io;

    (void)state;
    forward(ctx, &s);
    io.len = 1;
    io.before = io.after = s.before.data;
    io.y = y.data;
    for (int i = 0; i < LEN; i++) {
        io.x = (const uint16_t *)s.x.data + i * WIDTH;
        must(ctx, foci_conv_forward(ctx, &io));
        assert_memory_equal(y.data, (const uint16_t *)s.y.data + i * WIDTH, 2 * WIDTH);
    }
    assert_memory_equal(s.before.data, s.after.data, bytes_of_tensor(&s.after));
    io.len = 0;
    must(ctx, foci_conv_forward(ctx, &io));
    assert_memory_equal(s.before.data, s.after.data, bytes_of_tensor(&s.after));
    tensor_free(&y);
    scene_free(&s);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_F32, 2, 3, 4, 2, 7);
    foci_conv_io    io = s.io;

    (void)state;
    io.taps = 65;
    REFUSED(ctx, foci_conv_forward(ctx, &io), "taps is 1 to 64, not 65");
    assert_true(foci_conv_work_bytes(ctx, &io) == SIZE_MAX);
    io = s.io, io.x = NULL;
    REFUSED(ctx, foci_conv_forward(ctx, &io), "x, y or w");
    REFUSED(ctx, foci_conv_backward(ctx, &io), "dy, w or x");
    io = s.io;
    REFUSED(ctx, foci_conv_backward(ctx, &io), "work is missing");
    io.dtype = (foci_dtype)-1;
    REFUSED(ctx, foci_conv_backward(ctx, &io), "type -1");
    io = s.io, s.lens[1] = -1;
    REFUSED(ctx, foci_conv_forward(ctx, &io), "length -1 of entry 1");
    s.lens[1] = 0;
    io.len = INT64_MAX;
    REFUSED(ctx, foci_conv_forward(ctx, &io), "len is 0");
    assert_int_equal(foci_conv_forward(NULL, &s.io), FOCI_ERR_ARG);
    assert_int_equal(foci_conv_backward(NULL, &s.io), FOCI_ERR_ARG);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(shapes),
                                        cmocka_unit_test(steps),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
