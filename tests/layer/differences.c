/* differences.c -- the judge's gradients of layers against central differences of its
 * forward pass, all in double, with steps and tolerances as in mech/differences.c. */
#include <math.h>

#include "support/layers.h"

enum { X, SOURCE, PARAMS, N_INPUTS };

static const char *const names[N_INPUTS] = { "dx", "dsource", "dparams" };

/* An execution in doubles. */
struct point {
    const foci_layer        *layer;
    const struct layer_case *c;
    double                  *x[N_INPUTS], *grad[N_INPUTS];
    int64_t                  n[N_INPUTS];
    double                  *memory, *residual, *dy, *y;
    int64_t                  n_y;
};

static foci_layer_io io_of(const struct point *p)
{
    foci_layer_io io = layer_case_io(p->c);

    io.x = p->x[X];
    io.source = p->c->p.len_source ? p->x[SOURCE] : NULL;
    io.memory = p->memory;
    io.residual = p->residual;
    io.y = p->y;
    return io;
}

/* The sum of dy y; padding of dy is NaN. */
static double loss(const struct point *p)
{
    const foci_layer_io         io = io_of(p);
    const struct ref_layer_call call = {
        .layer = p->layer, .io = &io, .type = REF_F64, .params = p->x[PARAMS]
    };
    double sum = 0;

    assert_int_equal(ref_layer_run(&call), FOCI_OK);
    for (int64_t i = 0; i < p->n_y; i++)
        if (!isnan(p->dy[i])) sum += p->dy[i] * p->y[i];
    return sum;
}

static double difference(const struct point *p, double *x, double step)
{
    const double at = *x;

    *x = at + step;
    const double up = loss(p);
    *x = at - step;
    const double down = loss(p);
    *x = at;
    return (up - down) / (2 * step);
}

static bool near(double got, double want, double loss, double step)
{
    return fabs(got - want) <= 1e-6 * fmax(1, fabs(want)) + 0x1p-50 * fabs(loss) / step;
}

/* Floats of tensors that are not trained. */
static bool is_constant(const struct point *p, int64_t at)
{
    for (int i = 0; i < foci_layer_param_count(p->layer); i++) {
        foci_param t = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(p->layer, i, &t), FOCI_OK);
        if (t.offset >= 0 && at >= t.offset && at < t.offset + t.count)
            return t.keep != FOCI_KEEP_TRAINED;
    }
    return true;
}

static void check(const struct point *p)
{
    static const double step = 1e-5;
    const double        at = loss(p);

    for (int w = 0; w < N_INPUTS; w++)
        for (int64_t i = 0; i < p->n[w]; i++) {
            if (w == PARAMS && is_constant(p, i)) continue;
            const double got = p->grad[w][i];
            if (near(got, difference(p, &p->x[w][i], step), at, step)) continue;
            /* Where the function bends much, or a label changes nearby. */
            const double want = difference(p, &p->x[w][i], step / 100);
            if (!near(got, want, at, step / 100))
                layers_fail(p->layer, p->c, names[w], i, got, want);
        }
}

static double *widen(const void *from, int64_t n)
{
    double *x = from ? test_alloc((size_t)n + 1, sizeof *x) : NULL;
    for (int64_t i = 0; from && i < n; i++)
        x[i] = (double)((const float *)from)[i];
    return x;
}

static struct point point_make(const foci_layer *layer, const struct layer_case *c)
{
    const foci_layer_problem *p = &c->p;
    struct point              at = {
                     .layer = layer,
                     .c = c,
                     .n_y = p->batch * p->len * p->width,
                     .n = { p->batch * p->len * p->width, p->batch * p->len_source * p->width_source,
                            foci_layer_param_floats(layer) },
    };
    const void *from[N_INPUTS] = { c->x, c->source, c->params };

    for (int w = 0; w < N_INPUTS; w++) {
        at.x[w] = widen(from[w], at.n[w]);
        at.grad[w] = test_alloc((size_t)at.n[w] + 1, sizeof(double));
    }
    at.memory = widen(c->memory, p->batch * p->memory * p->width);
    at.residual = widen(c->residual, at.n_y);
    at.dy = widen(c->dy, at.n_y);
    at.y = test_alloc((size_t)at.n_y + 1, sizeof *at.y);
    return at;
}

static void point_free(struct point *p)
{
    void *const all[] = { p->x[X],    p->x[SOURCE],    p->x[PARAMS],
                          p->grad[X], p->grad[SOURCE], p->grad[PARAMS],
                          p->memory,  p->residual,     p->dy,
                          p->y };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Of tables for long sequences small ones say enough. */
enum { MOST_PARAMS = 1000 };

/* Whether there is such a layer. */
static bool run_case(foci_ctx *ctx, const char *spec, const foci_layer_problem *problem,
                     unsigned gives, uint64_t seed)
{
    foci_layer_problem p = *problem;

    p.flags |= FOCI_FLAG_TRAIN;
    foci_layer *layer = layers_make(ctx, spec, &p);
    if (!layer || foci_layer_param_floats(layer) > MOST_PARAMS) {
        foci_layer_free(layer);
        return false;
    }
    struct layer_case           c = layers_draw(layer, spec, 2 * seed + 1, gives);
    struct point                at = point_make(layer, &c);
    const foci_layer_io         io = io_of(&at);
    const foci_layer_grads      g = { FOCI_SIZED(foci_layer_grads), .dy = at.dy,
                                      .dx = at.grad[X],
                                      .dsource = p.len_source ? at.grad[SOURCE] : NULL };
    const struct ref_layer_call call = { .layer = layer,
                                         .io = &io,
                                         .grads = &g,
                                         .type = REF_F64,
                                         .params = at.x[PARAMS],
                                         .dparams = at.grad[PARAMS] };
    assert_int_equal(ref_layer_run(&call), FOCI_OK);
    check(&at);
    point_free(&at);
    layer_case_free(&c);
    foci_layer_free(layer);
    return true;
}

#define P(b, n, w, h, ...)                                                             \
    {                                                                                  \
        FOCI_SIZED(foci_layer_problem), .batch = b, .len = n, .width = w, .heads = h,  \
                                        __VA_ARGS__                                    \
    }

static void attention(void **state)
{
    static const char *const specs[] = {
        "softmax",
        "softmax temper sink",
        "softmax txl",
        "softmax frozen(orthogonal)",
        "softmax frozen(hadamard)",
        "softmax frozen(gaussian, tie=1)",
        "linear",
        "relu2 shaw(clip=1)",
        "xl txl cap(3)",
        "lsh(buckets=2, shared=1)",
        "routed(softmax temper, routes=2)",
        "routed(softmax txl, routes=2)",
        "synthesizer(dense, max=8, hidden=3)",
        "dynconv(width=3)",
        "memformer(slots=2, segment=2)",
        "nystrom(landmarks=2)",
        "1*fixed + 1*softmax",
        "1*softmax frozen(orthogonal) + 1*softmax txl",
        "fixed",
        "segmented(length=2, integrate=second)",
    };
    static const struct {
        foci_layer_problem p;
        unsigned           gives;
    } kinds[] = {
        { P(1, 4, 4, 2, .biases = 1), LAYER_RESIDUAL },
        { P(2, 4, 4, 2, .output_dropout = 0.3, .flags = FOCI_FLAG_CAUSAL), LAYER_LENS },
        { P(1, 3, 4, 2, .len_source = 4, .width_source = 6, .biases = 1), 0 },
        { P(1, 3, 4, 2, .memory = 2, .biases = 1, .flags = FOCI_FLAG_CAUSAL), 0 },
        { P(2, 3, 4, 2, .memory = 4, .biases = 1), LAYER_LENS },
        { P(1, 7, 4, 2, .max_docs = 3, .biases = 1, .flags = FOCI_FLAG_CAUSAL),
          LAYER_DOCS },
        { P(1, 3, 6, 4, .kv_heads = 2, .head_dim = 2, .value_dim = 2), 0 },
    };
    foci_ctx *ctx = test_ctx("portable", 1);

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
            const bool two = strchr(specs[i], '+') && kinds[k].p.heads != 2;
            const bool tied = strstr(specs[i], "tie=1") &&
                              (kinds[k].p.width_source || kinds[k].p.kv_heads);
            const bool own_keys = strstr(specs[i], "routed") && kinds[k].p.kv_heads;
            if (two || tied || own_keys) continue;
            if (layers_brief() && (i + k) % 3) continue;
            run_case(ctx, specs[i], &kinds[k].p, kinds[k].gives, i + 20 * k);
        }
    foci_ctx_free(ctx);
}

/* Every mechanism, every word of its arguments, every modifier: each in two of the kinds,
 * by turns. */
static void specs(void **state)
{
    static const struct {
        foci_layer_problem p;
        unsigned           gives;
    } kinds[] = {
        { P(1, 5, 4, 2, .biases = 1), LAYER_RESIDUAL },
        { P(1, 5, 4, 2, .biases = 1, .flags = FOCI_FLAG_CAUSAL), 0 },
        { P(1, 6, 4, 2, .max_docs = 2, .flags = FOCI_FLAG_CAUSAL), LAYER_DOCS },
        { P(2, 4, 6, 2, .head_dim = 4, .value_dim = 4), LAYER_LENS },
    };
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    foci_ctx *ctx = test_ctx("portable", 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++)
        for (int k = 0; k < N_KINDS; k++) {
            /* Gradients that are held back are no derivatives. */
            if (strstr(spec, "stop_grad=1") || !layers_fit(spec, &kinds[k].p)) continue;
            if ((i + k) % N_KINDS < 2)
                run_case(ctx, spec, &kinds[k].p, kinds[k].gives, (uint64_t)i);
        }
    foci_ctx_free(ctx);
}

static void mixes(void **state)
{
    const foci_layer_problem p = P(2, 5, 8, 8, .head_dim = 2, .biases = 1,
                                   .output_dropout = 0.1, .flags = FOCI_FLAG_CAUSAL);
    foci_ctx                *ctx = test_ctx("portable", 1);

    (void)state;
    for (int i = 0; i < N_LAYER_MIXES; i++) {
        foci_layer_problem shared = p;
        shared.kv_heads = layer_mixes[i].kv_heads;
        assert_true(
            run_case(ctx, layer_mixes[i].spec, &shared, LAYER_LENS, (uint64_t)i));
    }
    foci_ctx_free(ctx);
}

static void other_kinds(void **state)
{
    static const struct {
        const char        *spec;
        foci_layer_problem p;
        unsigned           gives;
    } all[] = {
        { "relu2", P(1, 4, 3, 1, .kind = FOCI_LAYER_GAU, .head_dim = 2, .biases = 1),
          LAYER_RESIDUAL },
        { "softmax temper rope",
          P(2, 4, 3, 1, .kind = FOCI_LAYER_GAU, .head_dim = 4,
            .flags = FOCI_FLAG_CAUSAL),
          LAYER_LENS },
        { "fixed", P(1, 4, 3, 1, .kind = FOCI_LAYER_GAU, .head_dim = 2), 0 },
        { "lsh(buckets=2, shared=1)",
          P(1, 4, 3, 1, .kind = FOCI_LAYER_GAU, .head_dim = 2), 0 },
        { "lightconv(width=3)", P(1, 4, 4, 2, .kind = FOCI_LAYER_CONV, .biases = 1), 0 },
        { "dynconv(width=3)",
          P(2, 4, 4, 2, .kind = FOCI_LAYER_CONV, .output_dropout = 0.2,
            .flags = FOCI_FLAG_CAUSAL),
          LAYER_LENS | LAYER_RESIDUAL },
    };
    foci_ctx *ctx = test_ctx("portable", 1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        run_case(ctx, all[i].spec, &all[i].p, all[i].gives, i);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(specs),
        cmocka_unit_test(mixes),
        cmocka_unit_test(other_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
