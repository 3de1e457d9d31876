/* alone.c -- what a layer is made of, piece by piece: one head with given weights is the
 * plan on projected rows, and heads in another order are the same layer. */
#include <math.h>

#include "support/layers.h"

enum { N = 23, WIDTH = 12, DIM = 8 };

static float *tensor(const foci_layer *layer, const char *name, float *params)
{
    foci_param param;

    if (layers_find(layer, name, &param) < 0) fail_msg("there is no %s", name);
    return params + param.offset;
}

/* out [n][cols] = x [n][k] w [k][cols] + b */
static float *product(const float *x, const float *w, const float *b, int64_t n,
                      int64_t k, int64_t cols)
{
    float *out = test_alloc((size_t)(n * cols), sizeof *out);

    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = b ? (double)b[c] : 0;
            for (int64_t t = 0; t < k; t++)
                sum += (double)x[i * k + t] * (double)w[t * cols + c];
            out[i * cols + c] = (float)sum;
        }
    return out;
}

/* By a plan and products written out. */
static float *by_plan(foci_ctx *ctx, const char *spec, const foci_layer *layer,
                      const struct layer_case *c)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = N,
                             .len_k = N,
                             .dim_qk = DIM,
                             .flags = FOCI_FLAG_CAUSAL };
    foci_plan         *plan = test_plan(ctx, spec, &p);
    float             *w = c->params;
    float             *q =
        product(c->x, tensor(layer, "Wq", w), tensor(layer, "bq", w), N, WIDTH, DIM);
    float *k =
        product(c->x, tensor(layer, "Wk", w), tensor(layer, "bk", w), N, WIDTH, DIM);
    float *v =
        product(c->x, tensor(layer, "Wv", w), tensor(layer, "bv", w), N, WIDTH, DIM);
    float        *o = test_alloc((size_t)N * DIM, sizeof *o);
    char         *work = test_alloc(foci_plan_work_bytes(plan), 1);
    const int64_t own = foci_layer_param_floats(layer) - foci_plan_param_floats(plan);

    assert_int_equal(
        foci_forward(plan, &(foci_io){ FOCI_SIZED(foci_io), .q = q, .k = k, .v = v,
                                       .o = o, .params = w + own, .work = work }),
        FOCI_OK);
    float *y =
        product(o, tensor(layer, "Wo", w), tensor(layer, "bo", w), N, DIM, WIDTH);
    free(q);
    free(k);
    free(v);
    free(o);
    free(work);
    foci_plan_free(plan);
    return y;
}

static void one_head(void **state)
{
    static const char *const specs[] = { "softmax", "linear",
                                         "local(window=4) rope sink", "relu2 temper",
                                         "retention(decay=0.9)" };
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = 1,
                                   .len = N,
                                   .width = WIDTH,
                                   .heads = 1,
                                   .head_dim = DIM,
                                   .biases = 1,
                                   .flags = FOCI_FLAG_CAUSAL };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_layer         *layer = layers_make(ctx, specs[i], &p);
        struct layer_case   c = layers_draw(layer, specs[i], i, 0);
        struct layer_result got = layers_run(layer, &c);
        float              *want = by_plan(ctx, specs[i], layer, &c);
        for (int64_t t = 0; t < N * WIDTH; t++)
            if (!(fabs(got.x[LAYER_Y][t] - (double)want[t]) <= 2e-5))
                layers_fail(layer, &c, "y", t, got.x[LAYER_Y][t], (double)want[t]);
        free(want);
        layer_result_free(&got);
        layer_case_free(&c);
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

enum { HEADS = 4 };

/* Columns of head h of a tensor [rows][HEADS dim] to head (h + 1) mod HEADS of another. */
static void turn_columns(float *x, int64_t rows, int64_t dim)
{
    float *old = test_alloc((size_t)(rows * HEADS * dim), sizeof *old);

    memcpy(old, x, (size_t)(rows * HEADS * dim) * sizeof *x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < HEADS * dim; c++)
            x[i * HEADS * dim + (c + dim) % (HEADS * dim)] = old[i * HEADS * dim + c];
    free(old);
}

/* Heads go in a circle in all tensors, and y stays: but for the order of sums. */
static void permuted(void **state)
{
    static const char *const columns[] = { "Wq", "Wk", "Wv", "bq", "bk", "bv" };
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = 1,
                                   .len = N,
                                   .width = WIDTH,
                                   .heads = HEADS,
                                   .biases = 1,
                                   .flags = FOCI_FLAG_CAUSAL };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    foci_layer              *layer = layers_make(ctx, "softmax", &p);
    struct layer_case        c = layers_draw(layer, "softmax", 5, 0);
    const int64_t            dim = WIDTH / HEADS;

    (void)state;
    struct layer_result want = layers_run(layer, &c);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        turn_columns(tensor(layer, columns[i], c.params),
                     columns[i][0] == 'W' ? WIDTH : 1, dim);
    turn_columns(tensor(layer, "Wo", c.params), 1, dim * WIDTH); /* its rows */
    struct layer_result got = layers_run(layer, &c);
    for (int64_t t = 0; t < N * WIDTH; t++)
        if (!(fabs(got.x[LAYER_Y][t] - want.x[LAYER_Y][t]) <= 1e-5))
            layers_fail(layer, &c, "y", t, got.x[LAYER_Y][t], want.x[LAYER_Y][t]);
    layer_result_free(&got);
    layer_result_free(&want);
    layer_case_free(&c);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

/* The gradient of x asked for alone, and with all others, is the same; forward without
 * saved memory gives the same y. */
static void wanted(void **state)
{
    const foci_layer_problem p = { FOCI_SIZED(foci_layer_problem),
                                   .batch = 2,
                                   .len = N,
                                   .width = WIDTH,
                                   .heads = 2,
                                   .biases = 1,
                                   .flags = FOCI_FLAG_TRAIN };
    foci_ctx                *ctx = test_ctx(NULL, 2);
    foci_layer              *layer = layers_make(ctx, "softmax", &p);
    struct layer_case        c = layers_draw(layer, "softmax", 5, LAYER_LENS);
    struct layer_result      all = layers_run(layer, &c);
    foci_layer_io            io = layer_case_io(&c);
    float                   *y = test_alloc((size_t)all.n[LAYER_Y], sizeof *y);
    float                   *dx = test_alloc((size_t)all.n[LAYER_DX], sizeof *dx);

    (void)state;
    io.y = y;
    io.work = test_alloc(foci_layer_work_bytes(layer), 1);
    assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
    for (int64_t i = 0; i < all.n[LAYER_Y]; i++)
        if ((double)y[i] != all.x[LAYER_Y][i])
            layers_fail(layer, &c, "y, nothing saved", i, (double)y[i],
                        all.x[LAYER_Y][i]);
    io.saved = test_alloc(foci_layer_saved_bytes(layer), 1);
    assert_int_equal(foci_layer_forward(layer, &io), FOCI_OK);
    const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = c.dy, .dx = dx };
    assert_int_equal(foci_layer_backward(layer, &io, &g), FOCI_OK);
    for (int64_t i = 0; i < all.n[LAYER_DX]; i++)
        if ((double)dx[i] != all.x[LAYER_DX][i])
            layers_fail(layer, &c, "dx alone", i, (double)dx[i], all.x[LAYER_DX][i]);
    free(io.work);
    free(io.saved);
    free(y);
    free(dx);
    layer_result_free(&all);
    layer_case_free(&c);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_head),
        cmocka_unit_test(permuted),
        cmocka_unit_test(wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
