/* source.c -- what calls of a decoder are given: keys and values of a source, projected
 * once, have the same bits as projected in every call, for every mechanism; sequences that
 * are selected; rounded weights; what is refused. */
#include "support/layers.h"

enum { BATCH = 4, LEN = 5, SOURCE = 21, WIDTH = 16, HEADS = 2 };

static foci_layer *make(foci_ctx *ctx, const char *spec, int64_t batch, foci_dtype dtype)
{
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = batch,
                                   .len = LEN,
                                   .len_source = SOURCE,
                                   .width = WIDTH,
                                   .heads = HEADS,
                                   .kv_heads = HEADS,
                                   .biases = 1,
                                   .dtype = dtype };
    return layers_fit(spec, &p) ? layers_make(ctx, spec, &p) : NULL;
}

static void *work_of(const foci_layer *layer)
{
    return test_alloc(foci_layer_work_bytes(layer), 1);
}

static char *rows_of(int64_t batch, foci_dtype dtype)
{
    return test_alloc((size_t)(batch * LEN * WIDTH), foci_dtype_bytes(dtype));
}

static char *forward(const foci_layer *layer, foci_layer_io io, int64_t batch,
                     foci_dtype dtype)
{
    char *y = rows_of(batch, dtype);

    io.y = y;
    io.work = work_of(layer);
    assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
    free(io.work);
    return y;
}

static void *projected(const foci_layer *layer, foci_layer_io io)
{
    void *kv = test_alloc(foci_layer_source_bytes(layer), 1);

    io.work = work_of(layer);
    io.x = NULL;
    assert_int_equal(foci_layer_source_project(layer, &io, kv), FOCI_OK);
    free(io.work);
    return kv;
}

static double *doubles(const foci_ctx *ctx, foci_dtype dtype, const void *rows,
                       int64_t batch)
{
    const int64_t n = batch * LEN * WIDTH;
    float        *floats = test_alloc((size_t)n, sizeof *floats);
    double       *out = test_alloc((size_t)n, sizeof *out);

    assert_int_equal(foci_convert(ctx, FOCI_F32, floats, dtype, rows, n), FOCI_OK);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)floats[i];
    free(floats);
    return out;
}

static void near(const foci_ctx *ctx, const foci_layer *layer,
                 const struct layer_case *c, const char *what, const char *y,
                 const char *want, int64_t batch)
{
    double *a = doubles(ctx, c->p.dtype, y, batch);
    double *b = doubles(ctx, c->p.dtype, want, batch);

    layers_near(layer, c, what, a, b, batch * LEN * WIDTH);
    free(a);
    free(b);
}

/* Weights that are rounded already are the same where products read them rounded. */
static void rounded(foci_ctx *ctx, const foci_layer *layer, const struct layer_case *c,
                    foci_layer_io io)
{
    const int64_t    n = foci_layer_param_floats(layer);
    const foci_dtype dtype = c->p.dtype;
    uint16_t        *words = test_alloc((size_t)n, sizeof *words);

    assert_int_equal(foci_convert(ctx, FOCI_BF16, words, FOCI_F32, c->params, n),
                     FOCI_OK);
    assert_int_equal(foci_convert(ctx, FOCI_F32, c->params, FOCI_BF16, words, n),
                     FOCI_OK);
    char *want = forward(layer, io, BATCH, dtype);
    io.params_bf16 = words;
    char *y = forward(layer, io, BATCH, dtype);
    if (!layers_choose(layer, c)) near(ctx, layer, c, "rounded", y, want, BATCH);
    free(y);
    free(want);
    free(words);
}

/* Of the sequences 1 and 3 alone: what they gave among all. */
static void select_two(foci_ctx *ctx, const char *spec, const struct layer_case *c,
                       const foci_layer *all, const char *want, void *kv)
{
    const foci_dtype dtype = c->p.dtype;
    const size_t     el = foci_dtype_bytes(dtype), bytes = LEN * WIDTH * el;
    foci_layer      *two = make(ctx, spec, 2, dtype);
    const int64_t    from[] = { 1, 3 };
    const int32_t    lens[] = { c->lens[1], c->lens[3] };
    const int32_t    lens_source[] = { c->lens_source[1], c->lens_source[3] };
    char            *x = rows_of(2, dtype), *chosen = rows_of(2, dtype);

    for (size_t i = 0; i < 2; i++) {
        memcpy(x + i * bytes, (char *)c->x + (size_t)from[i] * bytes, bytes);
        memcpy(chosen + i * bytes, want + (size_t)from[i] * bytes, bytes);
    }
    assert_int_equal(foci_layer_source_select(all, from, 2, kv), FOCI_OK);
    const foci_layer_io io = { FOCI_SIZED(foci_layer_io),
                               .x = x,
                               .lens = lens,
                               .lens_source = lens_source,
                               .params = c->params,
                               .source_kv = kv };
    char               *y = forward(two, io, 2, dtype);
    near(ctx, all, c, "selected", y, chosen, 2);
    free(y);
    free(x);
    free(chosen);
    foci_layer_free(two);
}

static void once(foci_ctx *ctx, const char *spec, foci_dtype dtype, uint64_t seed)
{
    foci_layer *layer = make(ctx, spec, BATCH, dtype);
    if (!layer) return;
    struct layer_case   c = layers_draw(layer, spec, seed, LAYER_LENS);
    const foci_layer_io io = layer_case_io(&c);
    char               *want = forward(layer, io, BATCH, dtype);
    void               *kv = projected(layer, io);
    foci_layer_io       by_kv = io;

    by_kv.source = NULL;
    by_kv.source_kv = kv;
    for (int call = 0; call < 2; call++) {
        char *y = forward(layer, by_kv, BATCH, dtype);
        if (memcmp(y, want, BATCH * LEN * WIDTH * foci_dtype_bytes(dtype)))
            fail_msg("%s: other bits by keys and values that were projected before",
                     spec);
        free(y);
    }
    if (!c.words && !c.mask && !c.bias) select_two(ctx, spec, &c, layer, want, kv);
    rounded(ctx, layer, &c, io);
    free(kv);
    free(want);
    layer_case_free(&c);
    foci_layer_free(layer);
}

static void specs(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);
    char      spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(ctx, i, spec); i++) {
        if (layers_brief() && i % 3) continue;
        once(ctx, spec, i % 2 ? FOCI_BF16 : FOCI_F32, (uint64_t)i);
    }
    foci_ctx_free(ctx);
}

static void refused(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_layer       *layer = make(ctx, "softmax", BATCH, FOCI_F32);
    struct layer_case c = layers_draw(layer, "softmax", 1, LAYER_LENS);
    foci_layer_io     io = layer_case_io(&c);
    char             *kv = test_alloc(foci_layer_source_bytes(layer) + 64, 1);
    const int64_t     falling[] = { 2, 1 }, beyond[] = { BATCH }, from[] = { 0 };
    int32_t           lens[BATCH] = { SOURCE + 1, 1, 1, 1 };

    (void)state;
    io.work = work_of(layer);
    foci_layer_io bad = io;
    bad.source = NULL;
    assert_int_equal(foci_layer_source_project(layer, &bad, kv), FOCI_ERR_ARG);
    bad = io;
    bad.lens_source = lens;
    assert_int_equal(foci_layer_source_project(layer, &bad, kv), FOCI_ERR_ARG);
    assert_non_null(
        strstr(foci_errmsg(ctx), "lens_source[0] is 22: it may be 0 to 21"));
    bad = io;
    bad.params = NULL;
    assert_int_equal(foci_layer_source_project(layer, &bad, kv), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_project(layer, &io, NULL), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_project(layer, &io, kv + 4), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_project(NULL, &io, kv), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_select(layer, falling, 2, kv), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "from[1] is 1"));
    assert_int_equal(foci_layer_source_select(layer, beyond, 1, kv), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_select(layer, from, 0, kv), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_source_select(NULL, from, 1, kv), FOCI_ERR_ARG);
    assert_true(foci_layer_source_bytes(NULL) == SIZE_MAX);
    bad = io;
    bad.y = rows_of(BATCH, FOCI_F32);
    bad.source_kv = kv + 4;
    assert_int_equal(foci_layer_forward(layer, &bad), FOCI_ERR_ARG);
    bad.source_kv = NULL;
    bad.params_bf16 = (const uint16_t *)kv;
    bad.saved = kv;
    assert_int_equal(foci_layer_forward(layer, &bad), FOCI_ERR_ARG);
    free(bad.y);
    free(io.work);
    free(kv);
    layer_case_free(&c);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
