/* norm.c -- LayerNorm and RMSNorm against their formulas in double. */
#include "ops/ops.h"

struct scene {
    foci_norm_io  io;
    struct tensor x, y, gain, bias, stats, dy, more, dx, dgain, dbias;
    bool          has_more;
};

static double eps_of(const foci_norm_io *io) { return io->eps == 0 ? 1e-5 : io->eps; }

/* Mean and 1 / deviation of a row. */
static void moments(const foci_norm_io *io, const double *x, double *mean, double *by)
{
    double sum = 0, squares = 0;

    for (int64_t c = 0; c < io->width; c++)
        sum += x[c];
    *mean = io->kind == FOCI_NORM_RMS ? 0 : sum / (double)io->width;
    for (int64_t c = 0; c < io->width; c++)
        squares += (x[c] - *mean) * (x[c] - *mean);
    *by = 1 / sqrt(squares / (double)io->width + eps_of(io));
}

static double y_of(const struct scene *s, int64_t row, int64_t c)
{
    const double *const x = s->x.x + row * s->io.width;
    double              mean, by;

    moments(&s->io, x, &mean, &by);
    return (x[c] - mean) * by * (s->io.gain ? s->gain.x[c] : 1) +
           (s->io.bias ? s->bias.x[c] : 0);
}

/* What rounding in floats adds up to in a row: the share of its largest numbers. */
static double row_off(const struct scene *s, int64_t row)
{
    const double *const x = s->x.x + row * s->io.width;
    double              mean, by, most = 0, gain = 1;

    moments(&s->io, x, &mean, &by);
    for (int64_t c = 0; c < s->io.width; c++) {
        most = fmax(most, fabs(x[c]));
        if (s->io.gain) gain = fmax(gain, fabs(s->gain.x[c]));
    }
    return 16 * E * (1 + most * by) * (1 + most * by) * gain;
}

static void forward(foci_ctx *ctx, void *arg)
{
    struct scene *s = arg;
    must(ctx, foci_norm_forward(ctx, &s->io));
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;

    (void)ctx;
    for (int64_t r = 0; r < s->io.rows; r++) {
        double mean, by;

        moments(&s->io, s->x.x + r * s->io.width, &mean, &by);
        near("mean", &s->stats, 2 * r, mean, row_off(s, r) / by);
        near("deviation", &s->stats, 2 * r + 1, by, row_off(s, r) * by);
        for (int64_t c = 0; c < s->io.width; c++)
            near("y", &s->y, r * s->io.width + c, y_of(s, r, c), row_off(s, r));
    }
}

static void backward(foci_ctx *ctx, void *arg)
{
    struct scene *s = arg;
    foci_norm_io  io = s->io;

    io.work = scratch(foci_norm_work_bytes(ctx, &io));
    must(ctx, foci_norm_forward(ctx, &io));
    must(ctx, foci_norm_backward(ctx, &io));
    free(io.work);
}

/* Sums of y dy of all rows, whose gradient is asked for; of one row where x is changed. */
static int64_t one_row;

static double of_row(const void *arg)
{
    const struct scene *s = arg;
    double              sum = 0;

    for (int64_t c = 0; c < s->io.width; c++)
        sum += y_of(s, one_row, c) * s->dy.x[one_row * s->io.width + c];
    return sum;
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    struct scene *const s = arg;
    const int64_t       w = s->io.width;

    (void)ctx;
    for (int64_t r = 0; r < s->io.rows; r++) {
        double mean, by;

        one_row = r;
        moments(&s->io, s->x.x + r * w, &mean, &by);
        for (int64_t c = 0; c < w; c++) {
            const double want = slope(of_row, s, &s->x.x[r * w + c]);
            near("dx", &s->dx, r * w + c,
                 want + (s->has_more ? s->more.x[r * w + c] : 0),
                 6 * by * row_off(s, r) + 2e-8 * (1 + fabs(want)) * by + 4 * E);
        }
    }
    for (int64_t c = 0; c < w; c++) {
        double dgain = 0.5, dbias = -0.25, size = 1;

        for (int64_t r = 0; r < s->io.rows; r++) {
            const double d = s->dy.x[r * w + c];
            double       mean, by;

            moments(&s->io, s->x.x + r * w, &mean, &by);
            dgain += d * (s->x.x[r * w + c] - mean) * by;
            dbias += d;
            size += fabs(d) * (1 + row_off(s, r) / E);
        }
        near("dgain", &s->dgain, c, dgain, 4 * E * size);
        near("dbias", &s->dbias, c, dbias, 4 * E * size);
    }
}

static struct scene scene_make(foci_norm_kind kind, foci_dtype dtype, int64_t rows,
                               int64_t width, bool bare)
{
    const int64_t n = rows * width;
    struct scene  s = { .x = tensor_draw(dtype, n, 2),
                        .y = tensor_of(dtype, n),
                        .gain = tensor_draw(FOCI_F32, width, 1),
                        .bias = tensor_draw(FOCI_F32, width, 1),
                        .stats = tensor_of(FOCI_F32, 2 * rows),
                        .dy = tensor_draw(dtype, n, 1),
                        .more = tensor_draw(dtype, n, 1),
                        .dx = tensor_of(dtype, n),
                        .dgain = tensor_of(FOCI_F32, width),
                        .dbias = tensor_of(FOCI_F32, width),
                        .has_more = !bare };

    for (int64_t c = 0; c < width; c++)
        s.dgain.x[c] = 0.5, s.dbias.x[c] = -0.25;
    tensor_write(&s.dgain);
    tensor_write(&s.dbias);
    s.io = (foci_norm_io){ FOCI_SIZED(foci_norm_io),
                           .kind = kind,
                           .dtype = dtype,
                           .rows = rows,
                           .width = width,
                           .eps = bare ? 1e-3 : 0,
                           .x = s.x.data,
                           .gain = bare ? NULL : s.gain.data,
                           .bias = bare ? NULL : s.bias.data,
                           .y = s.y.data,
                           .stats = s.stats.data,
                           .dy = s.dy.data,
                           .more = bare ? NULL : s.more.data,
                           .dx = s.dx.data,
                           .dgain = s.dgain.data,
                           .dbias = s.dbias.data };
    return s;
}

static void scene_free(struct scene *s)
{
    struct tensor *const all[] = { &s->x,  &s->y,    &s->gain, &s->bias,  &s->stats,
                                   &s->dy, &s->more, &s->dx,   &s->dgain, &s->dbias };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void try(foci_norm_kind kind, foci_dtype dtype, int64_t rows, int64_t width,
                bool bare)
{
    struct scene s = scene_make(kind, dtype, rows, width, bare);
    struct outs  o = { .n = 0 };

    outs_add(&o, &s.y);
    outs_add(&o, &s.stats);
    each_level(&o, &s, forward, judge_forward, "norm");
    outs_free(&o);
    outs_add(&o, &s.dx);
    outs_add(&o, &s.dgain);
    outs_add(&o, &s.dbias);
    each_level(&o, &s, backward, judge_backward, "norm backward");
    outs_free(&o);
    scene_free(&s);
}

/* Ragged widths, more rows than a job has; one column, whose norm is its bias. */
static void shapes(void **state)
{
    static const int64_t shape[][2] = { { 1, 1 },  { 3, 7 },   { 5, 16 },
                                        { 2, 33 }, { 300, 5 }, { 2, 100 } };

    (void)state;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int t = 0; t < 3; t++)
            for (int kind = 0; kind < 2; kind++)
                try((foci_norm_kind)kind, types[t], shape[i][0], shape[i][1], i % 2);
}

/* Gradients may take the place of what they are made of. */
static void in_place(void **state)
{
    enum { ROWS = 9, WIDTH = 21 };
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_NORM_LAYER, FOCI_BF16, ROWS, WIDTH, false);
    struct scene    t = s;

    (void)state;
    s.io.dgain = s.io.dbias = NULL;
    backward(ctx, &s);
    t.io = s.io;
    t.io.dx = s.more.data;
    backward(ctx, &t);
    assert_memory_equal(s.dx.data, s.more.data, bytes_of_tensor(&s.dx));
    tensor_write(&s.more);
    t.io.dx = s.dy.data;
    backward(ctx, &t);
    assert_memory_equal(s.dx.data, s.dy.data, bytes_of_tensor(&s.dx));
    t.io.y = s.x.data;
    forward(ctx, &s);
    forward(ctx, &t);
    assert_memory_equal(s.y.data, s.x.data, bytes_of_tensor(&s.x));
    scene_free(&s);
}

/* NaN stays in its row; sums over rows have it in its column. */
static void not_finite(void **state)
{
    enum { ROWS = 4, WIDTH = 19 };
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_NORM_LAYER, FOCI_F32, ROWS, WIDTH, false);

    (void)state;
    s.x.x[WIDTH + 3] = NAN;
    tensor_write(&s.x);
    backward(ctx, &s);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        assert_int_equal(isnan(tensor_get(&s.y, i)), i / WIDTH == 1);
        assert_int_equal(isnan(tensor_get(&s.dx, i)), i / WIDTH == 1);
    }
    for (int64_t c = 0; c < WIDTH; c++) {
        assert_true(isnan(tensor_get(&s.dgain, c)));
        assert_true(!isnan(tensor_get(&s.dbias, c)));
    }
    scene_free(&s);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_NORM_LAYER, FOCI_F32, 2, 3, false);
    foci_norm_io    io = s.io;

    (void)state;
    io.size = 1;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "foci_norm_io.size is 1");
    assert_int_equal(foci_norm_forward(NULL, &s.io), FOCI_ERR_ARG);
    REFUSED(ctx, foci_norm_forward(ctx, NULL), "foci_norm_io: the pointer is NULL");
    io = s.io, io.kind = (foci_norm_kind)5;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "kind 5");
    io = s.io, io.dtype = (foci_dtype)7;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "type 7");
    io = s.io, io.width = 0;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "width is 1 to 16777216, not 0");
    io = s.io, io.rows = INT64_MAX / 8;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "rows is 0 to");
    assert_true(foci_norm_work_bytes(ctx, &io) == SIZE_MAX);
    io = s.io, io.eps = -1;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "eps");
    io = s.io, io.y = NULL;
    REFUSED(ctx, foci_norm_forward(ctx, &io), "x or y is missing");
    io = s.io, io.stats = NULL;
    REFUSED(ctx, foci_norm_backward(ctx, &io), "stats");
    io = s.io, io.work = (char *)s.x.block + 4;
    REFUSED(ctx, foci_norm_backward(ctx, &io), "64-byte aligned");
    io = s.io, io.rows = 0, io.x = NULL, io.y = NULL, io.stats = NULL;
    assert_int_equal(foci_norm_forward(ctx, &io), FOCI_OK);
    assert_int_equal(foci_norm_backward(ctx, &io), FOCI_OK);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(in_place),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
