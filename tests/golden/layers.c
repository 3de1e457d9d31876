/* layers.c -- the judge of layers against vectors that owe it nothing (README.md), in
 * double to 1e-10; frozen projections, which are floats, to 1e-6. */
#include "foci/layer.h"
#include "golden/lines.h"
#include "ref/layer.h"

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "tests/golden"
#endif

static const double exact = 1e-10, single = 1e-6;

static foci_layer_kind kind_of(const struct lines *c)
{
    const char *text = need(c, "kind");

    if (strcmp(text, "gau") == 0) return FOCI_LAYER_GAU;
    if (strcmp(text, "conv") == 0) return FOCI_LAYER_CONV;
    assert_string_equal(text, "attention");
    return FOCI_LAYER_ATTENTION;
}

/* Number i of a line; 0 where there is none. */
static double number(const struct lines *c, const char *key, int i)
{
    int64_t      n = 0;
    const char  *text = text_of(c, key);
    double      *x = text ? numbers(text, &n) : NULL;
    const double found = i < n ? x[i] : 0;

    free(x);
    return found;
}

static foci_layer_problem problem_of(const struct lines *c)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem), .kind = kind_of(c),
                             .flags = FOCI_FLAG_TRAIN };
    double            *shape = exactly(c, "shape", 7);
    const char        *text;

    p.batch = (int64_t)shape[0];
    p.len = (int64_t)shape[1];
    p.width = (int64_t)shape[2];
    p.heads = (int64_t)shape[3];
    p.kv_heads = (int64_t)shape[4];
    p.head_dim = (int64_t)shape[5];
    p.value_dim = (int64_t)shape[6];
    free(shape);
    if (text_of(c, "causal")) p.flags |= FOCI_FLAG_CAUSAL;
    p.biases = text_of(c, "biases") != NULL;
    p.len_source = (int64_t)number(c, "source_shape", 0);
    p.width_source = (int64_t)number(c, "source_shape", 1);
    p.memory = (int64_t)number(c, "before", 0);
    p.output_dropout = number(c, "output_dropout", 0);
    p.seed = (uint64_t)number(c, "seed", 0);
    p.index = (uint64_t)number(c, "index", 0);
    if ((text = text_of(c, "docs"))) {
        free(numbers(text, &p.max_docs));
        p.max_docs--;
    }
    return p;
}

/* What was drawn is what the case has, which then takes its place to the last bit. */
static void give(const char *file, const struct lines *c, foci_layer *layer, int i,
                 const foci_param *param)
{
    float *w = test_alloc((size_t)param->count, sizeof *w);
    char   key[96];

    snprintf(key, sizeof key, "frozen %s", param->name);
    double *want = exactly(c, key, param->count);
    assert_int_equal(foci_layer_frozen_get(layer, i, w), FOCI_OK);
    compare_floats(file, c, key, w, param->count, single);
    for (int64_t t = 0; t < param->count; t++)
        w[t] = (float)want[t];
    assert_int_equal(foci_layer_frozen_set(layer, i, w), FOCI_OK);
    free(w);
    free(want);
}

/* Parameters of the layer in one array; the case has no others. */
static double *params_of(const char *file, const struct lines *c, foci_layer *layer)
{
    double *params =
        test_alloc((size_t)foci_layer_param_floats(layer) + 1, sizeof *params);
    int given = 0;

    for (int t = 0; t < c->n; t++)
        given += strncmp(c->key[t], "param ", 6) == 0 ||
                 strncmp(c->key[t], "frozen ", 7) == 0;
    assert_int_equal(given, foci_layer_param_count(layer));
    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       key[96];
        assert_int_equal(foci_layer_param(layer, i, &param), FOCI_OK);
        if (param.offset < 0) {
            give(file, c, layer, i, &param);
            continue;
        }
        snprintf(key, sizeof key, "param %s", param.name);
        double *values = exactly(c, key, param.count);
        memcpy(params + param.offset, values, (size_t)param.count * sizeof *values);
        free(values);
    }
    return params;
}

static double *maybe(const struct lines *c, const char *key)
{
    int64_t n;
    return text_of(c, key) ? numbers(text_of(c, key), &n) : NULL;
}

static void compare_sinusoid(const char *file, const struct lines *c)
{
    double       *shape = exactly(c, "sinusoid", 4);
    const int64_t n = (int64_t)(shape[1] * shape[2]);
    float        *got = test_alloc((size_t)n, sizeof *got);

    assert_int_equal(foci_sinusoid((int64_t)shape[0], (int64_t)shape[1],
                                   (int64_t)shape[2], shape[3], got),
                     FOCI_OK);
    compare_floats(file, c, "values", got, n, single);
    free(shape);
    free(got);
}

/* All of one execution. */
struct execution {
    foci_layer *layer;
    double     *x, *source, *past, *residual, *dy, *y, *dx, *dsource, *params, *dparams;
    int32_t    *lens, *lens_source, *docs;
};

static void judge(const struct lines *c, const struct execution *e,
                  const foci_layer_problem *p)
{
    const foci_layer_io    io = { FOCI_SIZED(foci_layer_io),
                                  .x = e->x,
                                  .source = e->source,
                                  .memory = e->past,
                                  .residual = e->residual,
                                  .y = e->y,
                                  .lens = e->lens,
                                  .lens_source = e->lens_source,
                                  .docs = e->docs,
                                  .n_docs = p->max_docs,
                                  .dropout_seed =
                                      (uint64_t)number(c, "output_dropout", 1) };
    const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = e->dy, .dx = e->dx,
                                 .dsource = e->dsource };
    struct ref_layer_call  call = {
         .layer = e->layer, .io = &io, .type = REF_F64, .params = e->params
    };

    assert_int_equal(ref_layer_run(&call), FOCI_OK);
    call.grads = &g;
    call.dparams = e->dparams;
    assert_int_equal(ref_layer_run(&call), FOCI_OK);
}

static void compare_all(const char *file, const struct lines *c,
                        const struct execution *e)
{
    compare(file, c, "y", e->y, exact);
    compare(file, c, "dx", e->dx, exact);
    if (e->source) compare(file, c, "dsource", e->dsource, exact);
    for (int i = 0; i < foci_layer_param_count(e->layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       key[96];
        assert_int_equal(foci_layer_param(e->layer, i, &param), FOCI_OK);
        if (param.offset < 0) continue;
        snprintf(key, sizeof key, "dparam %s", param.name);
        compare(file, c, key, e->dparams + param.offset, exact);
    }
}

static void execution_free(struct execution *e)
{
    void *const all[] = { e->x,    e->source,      e->past,    e->residual, e->dy,
                          e->y,    e->dx,          e->dsource, e->params,   e->dparams,
                          e->lens, e->lens_source, e->docs };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    foci_layer_free(e->layer);
}

static void run_case(void *ctx, const char *file, const struct lines *c)
{
    if (text_of(c, "sinusoid")) {
        compare_sinusoid(file, c);
        return;
    }
    const foci_layer_problem p = problem_of(c);
    foci_layer              *layer = NULL;

    if (foci_layer_create(ctx, need(c, "spec"), &p, &layer))
        fail_msg("%s.txt, %s: %s", file, text_of(c, "case"), foci_errmsg(ctx));
    const size_t     n = (size_t)(p.batch * p.len * p.width);
    const size_t     floats = (size_t)foci_layer_param_floats(layer);
    struct execution e = {
        .layer = layer,
        .x = maybe(c, "x"),
        .source = maybe(c, "source"),
        .past = maybe(c, "past"),
        .residual = maybe(c, "residual"),
        .dy = maybe(c, "dy"),
        .params = params_of(file, c, layer),
        .lens = whole(text_of(c, "lens")),
        .lens_source = whole(text_of(c, "lens_source")),
        .docs = whole(text_of(c, "docs")),
        .y = test_alloc(n, sizeof(double)),
        .dx = test_alloc(n, sizeof(double)),
        .dparams = test_alloc(floats + 1, sizeof(double)),
    };
    if (e.source)
        e.dsource = test_alloc((size_t)(p.batch * p.len_source * p.width_source),
                               sizeof(double));
    judge(c, &e, &p);
    compare_all(file, c, &e);
    execution_free(&e);
}

static void layers(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    each_case(GOLDEN_DIR, "layers", run_case, ctx);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
