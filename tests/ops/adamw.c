/* adamw.c -- the optimiser, sums of squares, averages. */
#include "ops/ops.h"

enum { N = 50000, N_SEGMENTS = 6 };

/* Short ones, empty ones, gaps, one longer than a job. */
static const foci_segment segments[N_SEGMENTS] = {
    { 0, 7, 1 },         { 7, 7, 0 },         { 10, 11, 0 },
    { 100, 30001, 0.5 }, { 30001, 30017, 0 }, { 30100, 49999, 1 }
};

static const foci_segment *segment_of(int64_t i)
{
    for (int s = 0; s < N_SEGMENTS; s++)
        if (i >= segments[s].begin && i < segments[s].end) return &segments[s];
    return NULL;
}

static int64_t floats(void)
{
    int64_t n = 0;

    for (int s = 0; s < N_SEGMENTS; s++)
        n += segments[s].end - segments[s].begin;
    return n;
}

struct scene {
    foci_adamw_io io;
    struct tensor p, g, m, v;
    int           steps;
};

static void step(foci_ctx *ctx, void *arg)
{
    struct scene *s = arg;

    for (int i = 1; i <= s->steps; i++) {
        s->io.step = i;
        must(ctx, foci_adamw(ctx, &s->io));
    }
}

static void judge(const foci_ctx *ctx, void *arg)
{
    const struct scene  *s = arg;
    const foci_adamw_io *io = &s->io;

    (void)ctx;
    for (int64_t i = 0; i < N; i++) {
        const foci_segment *seg = segment_of(i);
        double              p = s->p.x[i], m = s->m.x[i], v = s->v.x[i];
        double              g = io->scale * s->g.x[i];

        for (int t = 1; t <= s->steps && seg; t++) {
            m += (1 - io->beta1) * (g - m);
            v += (1 - io->beta2) * (g * g - v);
            p -= io->rate * (io->decay * seg->decay * p +
                             m / (1 - pow(io->beta1, t)) /
                                 (sqrt(v / (1 - pow(io->beta2, t))) + io->eps));
            if (io->clear) g = 0;
        }
        /* A few roundings in each step. */
        const double off = 4 * E * s->steps;
        near("p", &s->p, i, p, off * (1 + fabs(p)));
        near("m", &s->m, i, m, off * (1 + fabs(m)));
        near("v", &s->v, i, v, off * (1 + fabs(v)));
        near("g", &s->g, i, seg && io->clear ? 0 : s->g.x[i], 0);
    }
}

static void try(int steps, int clear)
{
    struct scene s = { .p = tensor_draw(FOCI_F32, N, 1),
                       .g = tensor_draw(FOCI_F32, N, 2),
                       .m = tensor_of(FOCI_F32, N),
                       .v = tensor_of(FOCI_F32, N),
                       .steps = steps };
    struct outs  o = { .n = 0 };

    tensor_write(&s.m);
    tensor_write(&s.v);
    s.io = (foci_adamw_io){ FOCI_SIZED(foci_adamw_io),
                            .segments = segments,
                            .n_segments = N_SEGMENTS,
                            .params = s.p.data,
                            .grads = s.g.data,
                            .m = s.m.data,
                            .v = s.v.data,
                            .rate = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .decay = 0.1,
                            .scale = 0.25,
                            .clear = clear };
    outs_add(&o, &s.p);
    outs_add(&o, &s.g);
    outs_add(&o, &s.m);
    outs_add(&o, &s.v);
    each_level(&o, &s, step, judge, "adamw");
    outs_free(&o);
    tensor_free(&s.p);
    tensor_free(&s.g);
    tensor_free(&s.m);
    tensor_free(&s.v);
}

static void steps(void **state)
{
    (void)state;
    try(1, 0);
    try(5, 0);
    try(3, 1);
}

/* The first step is as long as the rate, whatever the gradient; without one nothing moves,
 * and what is not finite reaches one number. */
static void alone(void **state)
{
    foci_ctx *const    ctx = best_ctx();
    float              p[4] = { 1, 1, 1, 1 }, g[4] = { 1e-4f, -1e4f, 0, NAN };
    float              m[4] = { 0 }, v[4] = { 0 };
    const foci_segment all = { 0, 4, 0 };

    (void)state;
    must(ctx, foci_adamw(ctx, &(foci_adamw_io){
                                  FOCI_SIZED(foci_adamw_io), .segments = &all,
                                  .n_segments = 1, .params = p, .grads = g, .m = m,
                                  .v = v, .rate = 0.125, .beta1 = 0.9, .beta2 = 0.999,
                                  .eps = 1e-12, .decay = 0.5, .scale = 1, .step = 1 }));
    assert_true(fabsf(p[0] - 0.875f) < 1e-5f);
    assert_true(fabsf(p[1] - 1.125f) < 1e-5f);
    assert_true(p[2] == 1);
    assert_true(isnan(p[3]));
}

static void squares(void **state)
{
    struct tensor x = tensor_draw(FOCI_F32, N, 1e3);
    double        want = 0, sum[N_TEAMS];

    (void)state;
    for (int64_t i = 0; i < N; i++)
        if (segment_of(i)) want += x.x[i] * x.x[i];
    for (int l = 0; l < levels[0].n; l++) {
        for (int t = 0; t < N_TEAMS; t++) {
            void *const work = scratch(foci_squares_work_bytes(floats()));

            must(levels[t].ctx[l], foci_squares(levels[t].ctx[l], segments, N_SEGMENTS,
                                                x.data, work, &sum[t]));
            assert_true(sum[t] == sum[0]);
            free(work);
        }
        assert_true(fabs(sum[0] - want) < 1e-12 * want);
    }
    must(best_ctx(), foci_squares(best_ctx(), NULL, 0, NULL, NULL, &sum[0]));
    assert_true(sum[0] == 0);
    tensor_free(&x);
}

/* The mean of arrays that come one by one. */
static void average(void **state)
{
    enum { ARRAYS = 5 };
    struct tensor x[ARRAYS];

    (void)state;
    for (int k = 0; k < ARRAYS; k++)
        x[k] = tensor_draw(FOCI_F32, N - 3, 1);
    for (int l = 0; l < levels[0].n; l++)
        for (int t = 0; t < N_TEAMS; t++) {
            struct tensor mean = tensor_of(FOCI_F32, N - 3);

            tensor_write(&mean);
            for (int k = 0; k < ARRAYS; k++)
                must(levels[t].ctx[l], foci_average(levels[t].ctx[l], N - 3, mean.data,
                                                    x[k].data, 1.0 / (k + 1)));
            for (int64_t i = 0; i < N - 3; i++) {
                double want = 0;
                for (int k = 0; k < ARRAYS; k++)
                    want += x[k].x[i] / ARRAYS;
                near("mean", &mean, i, want, 1e-6);
            }
            tensor_check_guard(&mean, "average");
            tensor_free(&mean);
        }
    for (int k = 0; k < ARRAYS; k++)
        tensor_free(&x[k]);
}

static void refused(void **state)
{
    foci_ctx *const    ctx = best_ctx();
    float              some[16] = { 0 };
    double             sum;
    const foci_segment twice[] = { { 0, 4, 1 }, { 3, 5, 1 } }, back = { 4, 3, 1 };
    foci_adamw_io      good = { FOCI_SIZED(foci_adamw_io),
                                .segments = twice,
                                .n_segments = 1,
                                .params = some,
                                .grads = some,
                                .m = some,
                                .v = some,
                                .rate = 0.1,
                                .eps = 1e-8,
                                .scale = 1,
                                .step = 1 },
                  io = good;

    (void)state;
    io.n_segments = 2;
    REFUSED(ctx, foci_adamw(ctx, &io), "segment 1 from 3 to 5 does not follow");
    io = good, io.segments = &back;
    REFUSED(ctx, foci_adamw(ctx, &io), "segment 0 from 4 to 3");
    io = good, io.step = 0;
    REFUSED(ctx, foci_adamw(ctx, &io), "step is 1");
    io = good, io.beta2 = 1;
    REFUSED(ctx, foci_adamw(ctx, &io), "beta2 1");
    io = good, io.eps = 0;
    REFUSED(ctx, foci_adamw(ctx, &io), "eps 0");
    io = good, io.scale = INFINITY;
    REFUSED(ctx, foci_adamw(ctx, &io), "scale inf");
    io = good, io.m = NULL;
    REFUSED(ctx, foci_adamw(ctx, &io), "params, grads, m or v");
    REFUSED(ctx, foci_squares(ctx, twice, 2, some, some, &sum), "squares: segment 1");
    REFUSED(ctx, foci_squares(ctx, twice, 1, NULL, some, &sum), "x or sum");
    REFUSED(ctx, foci_squares(ctx, twice, 1, some, (char *)some + 4, &sum), "work");
    REFUSED(ctx, foci_average(ctx, 3, some, some, 1.5), "weight is 0 to 1, not 1.5");
    REFUSED(ctx, foci_average(ctx, -1, some, some, 1), "n is 0");
    REFUSED(ctx, foci_average(ctx, 1, NULL, some, 1), "mean or x");
    assert_true(foci_squares_work_bytes(-1) == SIZE_MAX);
    assert_int_equal(foci_adamw(NULL, &good), FOCI_ERR_ARG);
    assert_int_equal(foci_squares(NULL, twice, 1, some, some, &sum), FOCI_ERR_ARG);
    assert_int_equal(foci_average(NULL, 0, some, some, 1), FOCI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),   cmocka_unit_test(alone),   cmocka_unit_test(squares),
        cmocka_unit_test(average), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
