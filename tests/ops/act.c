/* act.c -- activations, gates, dropout and residuals on their own. */
#include "ops/ops.h"

struct scene {
    foci_act_io   io;
    struct tensor x, residual, y, dy, more, dx;
};

static int64_t wide(const foci_act_io *io) { return io->width * (io->gated ? 2 : 1); }

/* Element (r, c) from numbers of x, of which the gates stand first. */
static double y_of(const struct scene *s, int64_t r, int64_t c)
{
    const double *const x = s->x.x + r * wide(&s->io);
    double              y = act_of(s->io.act, x[c]);

    if (s->io.gated) y *= x[s->io.width + c];
    y *= kept(s->io.dropout, s->io.dropout_seed, r, c);
    return y + (s->io.residual ? s->residual.x[r * s->io.width + c] : 0);
}

static void forward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_act_forward(ctx, &s->io));
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width;

    (void)ctx;
    for (int64_t i = 0; i < s->y.n; i++) {
        const double x = s->x.x[i / w * wide(&s->io) + i % w];
        const double u = s->io.gated ? s->x.x[i / w * wide(&s->io) + w + i % w] : 1;

        near("y", &s->y, i, y_of(s, i / w, i % w),
             2 * fabs(u) *
                     (fabs(x) * act_off(s->io.act, s->io.dtype) + 4 * E * fabs(x)) +
                 4 * E);
    }
}

static void backward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_act_backward(ctx, &s->io));
}

static int64_t one_row, one_col;

static double of_one(const void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = s->io.width;

    return y_of(s, one_row, one_col % w) * s->dy.x[one_row * w + one_col % w];
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = wide(&s->io);

    (void)ctx;
    for (int64_t i = 0; i < s->dx.n; i++) {
        one_row = i / w;
        one_col = i % w;
        const double *const x = s->x.x + one_row * w;
        const double d = fabs(s->dy.x[one_row * s->io.width + one_col % s->io.width]);
        const double want = slope(of_one, s, &s->x.x[i]);
        double       off = 4 * d * act_off(s->io.act, s->io.dtype) + 1e-8 + 8 * E * d;

        if (s->io.gated)
            off *= 1 + fabs(x[one_col % s->io.width]) +
                   fabs(x[s->io.width + one_col % s->io.width]);
        near("dx", &s->dx, i, want + (s->io.more ? s->more.x[i] : 0), off);
    }
}

static struct scene scene_make(foci_act act, int gated, foci_dtype dtype, int64_t rows,
                               int64_t width, bool bare)
{
    const int64_t n = rows * width, all = n * (gated ? 2 : 1);
    struct scene  s = { .x = tensor_draw(dtype, all, 2),
                        .residual = tensor_draw(dtype, n, 1),
                        .y = tensor_of(dtype, n),
                        .dy = tensor_draw(dtype, n, 1),
                        .more = tensor_draw(dtype, all, 1),
                        .dx = tensor_of(dtype, all) };

    s.io = (foci_act_io){ FOCI_SIZED(foci_act_io),
                          .act = act,
                          .gated = gated,
                          .dtype = dtype,
                          .rows = rows,
                          .width = width,
                          .x = s.x.data,
                          .residual = bare ? NULL : s.residual.data,
                          .y = s.y.data,
                          .dropout = bare ? 0 : 0.3,
                          .dropout_seed = rng_u64(&dice),
                          .dy = s.dy.data,
                          .more = bare || gated ? NULL : s.more.data,
                          .dx = s.dx.data };
    return s;
}

static void scene_free(struct scene *s)
{
    tensor_free(&s->x);
    tensor_free(&s->residual);
    tensor_free(&s->y);
    tensor_free(&s->dy);
    tensor_free(&s->more);
    tensor_free(&s->dx);
}

static void try(foci_act act, int gated, foci_dtype dtype, int64_t rows, int64_t width,
                bool bare)
{
    struct scene s = scene_make(act, gated, dtype, rows, width, bare);
    struct outs  o = { .n = 0 };

    outs_add(&o, &s.y);
    each_level(&o, &s, forward, judge_forward, "act");
    outs_free(&o);
    outs_add(&o, &s.dx);
    each_level(&o, &s, backward, judge_backward, "act backward");
    outs_free(&o);
    scene_free(&s);
}

/* Every activation, plain and gated, bare and with all that there is. */
static void all_of_them(void **state)
{
    (void)state;
    for (int act = FOCI_ACT_NONE; act <= FOCI_ACT_SILU; act++)
        for (int t = 0; t < 3; t++)
            for (int with = 0; with < 4; with++) {
                try((foci_act)act, with & 1, types[t], 3, 21, (with & 2) == 0);
                if (t < 2) try((foci_act)act, with & 1, types[t], 70, 65, with & 2);
            }
}

/* Far from 0 slopes are 0 or 1 and nothing is made of infinities; NaN stays where it is. */
static void far_away(void **state)
{
    static const float far[] = { -INFINITY, -1e30f, -100, 100, 1e30f, INFINITY };
    enum { N = sizeof far / sizeof *far };

    (void)state;
    for (int l = 0; l < levels[0].n; l++)
        for (int act = FOCI_ACT_RELU; act <= FOCI_ACT_SILU; act++) {
            foci_ctx *const ctx = levels[0].ctx[l];
            float           x[N + 1], y[N + 1], dy[N + 1], dx[N + 1];
            foci_act_io     io = { FOCI_SIZED(foci_act_io),
                                   .act = (foci_act)act,
                                   .rows = 1,
                                   .width = N + 1,
                                   .x = x,
                                   .y = y,
                                   .dy = dy,
                                   .dx = dx };

            for (int i = 0; i < N; i++)
                x[i] = far[i], dy[i] = 2;
            x[N] = NAN, dy[N] = 2;
            must(ctx, foci_act_forward(ctx, &io));
            must(ctx, foci_act_backward(ctx, &io));
            for (int i = 0; i < N; i++) {
                const float want = x[i] < 0 ? 0 : x[i];
                if (!(y[i] == want || fabsf(y[i] - want) <= 1e-29f))
                    fail_msg("act %d of %g is %g", act, (double)x[i], (double)y[i]);
                if (!(fabsf(dx[i] - (x[i] < 0 ? 0 : 2)) <= 1e-29f))
                    fail_msg("act %d at %g has slope %g", act, (double)x[i],
                             (double)dx[i] / 2);
            }
            assert_true(isnan(y[N]));
        }
}

/* What is dropped is 0, whatever it was, both ways. */
static void dropped(void **state)
{
    enum { N = 200 };
    foci_ctx *const ctx = best_ctx();
    float           x[N], y[N], dx[N];
    foci_act_io     io = {
            FOCI_SIZED(foci_act_io), .rows = 2,         .width = N / 2, .x = x,  .y = y,
            .dropout = 0.5,          .dropout_seed = 3, .dy = x,        .dx = dx
    };
    int n = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? NAN : INFINITY;
    must(ctx, foci_act_forward(ctx, &io));
    must(ctx, foci_act_backward(ctx, &io));
    for (int i = 0; i < N; i++) {
        const bool stays = kept(0.5, 3, i / (N / 2), i % (N / 2)) > 0;

        n += stays;
        assert_int_equal(stays, isnan(y[i]) || isinf(y[i]));
        assert_int_equal(stays, isnan(dx[i]) || isinf(dx[i]));
        if (!stays) assert_true(y[i] == 0 && dx[i] == 0);
    }
    assert_in_range(n, N / 2 - 30, N / 2 + 30);
}

/* Results may lie where their operands were. */
static void in_place(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_ACT_GELU, 0, FOCI_BF16, 5, 77, false);

    (void)state;
    forward(ctx, &s);
    backward(ctx, &s);
    foci_act_io io = s.io;
    io.y = s.residual.data;
    must(ctx, foci_act_forward(ctx, &io));
    assert_memory_equal(s.y.data, s.residual.data, bytes_of_tensor(&s.y));
    io = s.io;
    io.dx = s.more.data;
    must(ctx, foci_act_backward(ctx, &io));
    assert_memory_equal(s.dx.data, s.more.data, bytes_of_tensor(&s.dx));
    io.more = NULL;
    io.dx = s.dx.data;
    must(ctx, foci_act_backward(ctx, &io));
    io.dx = s.dy.data;
    must(ctx, foci_act_backward(ctx, &io));
    assert_memory_equal(s.dx.data, s.dy.data, bytes_of_tensor(&s.dx));
    io.residual = NULL;
    io.y = s.y.data;
    must(ctx, foci_act_forward(ctx, &io));
    io.y = s.x.data;
    must(ctx, foci_act_forward(ctx, &io));
    assert_memory_equal(s.y.data, s.x.data, bytes_of_tensor(&s.y));
    scene_free(&s);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_ACT_GELU, 0, FOCI_F32, 2, 3, false);
    foci_act_io     io = s.io;

    (void)state;
    io.act = (foci_act)9;
    REFUSED(ctx, foci_act_forward(ctx, &io), "activation 9");
    io = s.io, io.dropout = 1;
    REFUSED(ctx, foci_act_forward(ctx, &io), "dropout is 0 to below 1, not 1");
    io = s.io, io.dropout = NAN;
    REFUSED(ctx, foci_act_backward(ctx, &io), "dropout");
    io = s.io, io.x = NULL;
    REFUSED(ctx, foci_act_forward(ctx, &io), "x or y");
    REFUSED(ctx, foci_act_backward(ctx, &io), "x is missing");
    io.act = FOCI_ACT_NONE;
    assert_int_equal(foci_act_backward(ctx, &io), FOCI_OK);
    io = s.io, io.gated = 1;
    REFUSED(ctx, foci_act_backward(ctx, &io), "gated");
    io = s.io, io.rows = -1;
    REFUSED(ctx, foci_act_forward(ctx, &io), "rows is 0");
    io = s.io, io.rows = 0, io.x = NULL, io.y = NULL;
    assert_int_equal(foci_act_forward(ctx, &io), FOCI_OK);
    assert_int_equal(foci_act_forward(NULL, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_act_backward(NULL, &io), FOCI_ERR_ARG);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_them), cmocka_unit_test(far_away),
        cmocka_unit_test(dropped),     cmocka_unit_test(in_place),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
