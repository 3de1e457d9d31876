/* memory.c -- a sequence in segments, each with what the one before remembered, is the
 * whole sequence under a window as long as the memory. */
#include <math.h>

#include "support/layers.h"

enum { SEGMENTS = 4, LEN = 6, WIDTH = 8, BATCH = 2, ALL = SEGMENTS * LEN };

static const size_t row = WIDTH * sizeof(float);

/* Segment s of x, or where it goes; y alike. */
static void cut(float *all, float *part, int64_t s, bool back)
{
    for (int64_t b = 0; b < BATCH; b++) {
        float *from = all + (b * ALL + s * LEN) * WIDTH, *to = part + b * LEN * WIDTH;
        memcpy(back ? from : to, back ? to : from, LEN * row);
    }
}

/* Segment after segment; the memory is written in place. */
static float *in_segments(foci_ctx *ctx, const char *spec, int64_t memory, float *x,
                          const float *params)
{
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = BATCH,
                                   .len = LEN,
                                   .width = WIDTH,
                                   .heads = 2,
                                   .memory = memory,
                                   .flags = FOCI_FLAG_CAUSAL };
    foci_layer              *layer = layers_make(ctx, spec, &p);
    float                   *out = test_alloc((size_t)BATCH * ALL, row);
    float                   *in = test_alloc((size_t)BATCH * LEN, row),
          *y = test_alloc((size_t)BATCH * LEN, row);
    float *before = test_alloc((size_t)(BATCH * memory), row);
    float *judged = test_alloc((size_t)(BATCH * memory), row);

    foci_layer_io io = { FOCI_SIZED(foci_layer_io),
                         .x = in,
                         .y = y,
                         .memory = before,
                         .memory_next = before,
                         .params = params,
                         .work = test_alloc(foci_layer_work_bytes(layer), 1) };
    for (int64_t s = 0; s < SEGMENTS; s++) {
        cut(x, in, s, false);
        foci_layer_io by_judge = io;
        by_judge.memory_next = judged;
        assert_int_equal(foci_ref_layer_forward(layer, &by_judge), FOCI_OK);
        assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
        assert_memory_equal(before, judged, (size_t)(BATCH * memory) * row);
        cut(out, y, s, true);
    }
    free(io.work);
    free(in);
    free(y);
    free(before);
    free(judged);
    foci_layer_free(layer);
    return out;
}

/* All at once, after rows of zeros as the first segment has them. */
static float *at_once(foci_ctx *ctx, const char *spec, int64_t memory, const float *x,
                      const float *params)
{
    const int64_t            len = memory + ALL;
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = BATCH,
                                   .len = len,
                                   .width = WIDTH,
                                   .heads = 2,
                                   .flags = FOCI_FLAG_CAUSAL };
    foci_layer              *layer = layers_make(ctx, spec, &p);
    float                   *in = test_alloc((size_t)(BATCH * len), row),
          *y = test_alloc((size_t)(BATCH * len), row);
    float *out = test_alloc((size_t)BATCH * ALL, row);

    for (int64_t b = 0; b < BATCH; b++)
        memcpy(in + (b * len + memory) * WIDTH, x + b * ALL * WIDTH, ALL * row);
    const foci_layer_io io = { FOCI_SIZED(foci_layer_io), .x = in, .y = y,
                               .params = params,
                               .work = test_alloc(foci_layer_work_bytes(layer), 1) };
    assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(out + b * ALL * WIDTH, y + (b * len + memory) * WIDTH, ALL * row);
    free(io.work);
    free(in);
    free(y);
    foci_layer_free(layer);
    return out;
}

/* Where no row sees further back than the memory reaches, segments do not matter. */
static void segments(void **state)
{
    static const struct {
        const char *spec;
        int64_t     memory;
    } all[] = { { "test_window(window=4) rope sink", 4 },
                { "test_window(window=6)", 6 },
                { "test_window(window=15) alibi", 15 } };
    foci_ctx  *ctx = test_ctx(NULL, 2);
    float     *x = test_alloc((size_t)BATCH * ALL, row), params[4096] = { 0 };
    struct rng r;

    (void)state;
    specs_register(ctx);
    rng_seed(&r, 1, 1);
    for (int64_t i = 0; i < BATCH * ALL * WIDTH; i++)
        x[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        params[i] = (float)(0.4 * rng_normal(&r));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        float *got = in_segments(ctx, all[i].spec, all[i].memory, x, params);
        float *want = at_once(ctx, all[i].spec, all[i].memory, x, params);
        for (int64_t t = 0; t < BATCH * ALL * WIDTH; t++)
            if (!(fabsf(got[t] - want[t]) <= 1e-5F))
                fail_msg("%s: y[%lld] is %g, not %g", all[i].spec, (long long)t,
                         (double)got[t], (double)want[t]);
        free(got);
        free(want);
    }
    free(x);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(segments) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
