/* frozen.c -- projections that are drawn and never learn: they are not among the floats,
 * follow from the seed, and compute as learned ones of the same numbers would. */
#include <math.h>
#include <stdio.h>

#include "support/layers.h"

enum { WIDTH = 48, HEADS = 4, DIM = 12, COLS = HEADS * DIM, N = 19 };

static const foci_layer_problem shape = { FOCI_SIZED(foci_layer_problem),
                                          .batch = 2,
                                          .len = N,
                                          .width = WIDTH,
                                          .heads = HEADS,
                                          .biases = 1,
                                          .seed = 7,
                                          .flags = FOCI_FLAG_TRAIN };

static const char *const kinds[] = {
    "softmax frozen(orthogonal)",
    "softmax frozen(orthogonal, sample=block)",
    "softmax frozen(gaussian)",
    "softmax frozen(hadamard)",
    "softmax frozen(hadamard, sample=block)",
    "softmax frozen(orthogonal, tie=1)",
    "softmax frozen(hadamard, tie=1)",
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* A frozen tensor written out; freed by the caller. */
static float *matrix(const foci_layer *layer, const char *name)
{
    foci_param param;
    const int  i = layers_find(layer, name, &param);

    assert_true(i >= 0);
    assert_int_equal(param.offset, -1);
    assert_int_equal(param.keep, FOCI_KEEP_FROZEN);
    float *w = test_alloc((size_t)param.count, sizeof *w);
    assert_int_equal(foci_layer_frozen_get(layer, i, w), FOCI_OK);
    return w;
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, (size_t)WIDTH * COLS * sizeof *a) == 0;
}

static void not_stored(void **state)
{
    foci_ctx   *ctx = test_ctx(NULL, 1);
    foci_layer *learned = layers_make(ctx, "softmax", &shape);

    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        foci_layer *layer = layers_make(ctx, kinds[i], &shape);
        foci_param  param;

        /* Neither Wq nor Wk nor biases of theirs. */
        assert_int_equal(foci_layer_param_floats(learned) -
                             foci_layer_param_floats(layer),
                         2 * WIDTH * COLS + 2 * COLS);
        assert_true(layers_find(layer, "bq", &param) < 0);
        assert_true(layers_find(layer, "Wq", &param) >= 0);
        assert_int_equal(param.shape[0], WIDTH);
        assert_int_equal(param.shape[1], COLS);
        const int out = layers_find(layer, "Wo", &param);
        float     room[1];
        assert_int_equal(foci_layer_frozen_get(layer, out, room), FOCI_ERR_ARG);
        assert_int_equal(foci_layer_frozen_get(layer, -1, room), FOCI_ERR_ARG);
        assert_int_equal(foci_layer_frozen_set(layer, out, room), FOCI_ERR_ARG);
        foci_layer_free(layer);
    }
    foci_layer_free(learned);
    foci_ctx_free(ctx);
}

static float *drawn(foci_ctx *ctx, const char *spec, uint64_t seed, uint64_t index,
                    const char *name)
{
    foci_layer_problem p = shape;

    p.seed = seed;
    p.index = index;
    foci_layer *layer = layers_make(ctx, spec, &p);
    float      *w = matrix(layer, name);
    foci_layer_free(layer);
    return w;
}

static void seeds(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1), *other = test_ctx("portable", 3);

    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        float *w = drawn(ctx, kinds[i], 7, 0, "Wq");
        float *again = drawn(other, kinds[i], 7, 0, "Wq");
        float *keys = drawn(ctx, kinds[i], 7, 0, "Wk");
        float *next = drawn(ctx, kinds[i], 7, 1, "Wq");
        float *later = drawn(ctx, kinds[i], 8, 0, "Wq");
        assert_true(same(w, again));
        assert_int_equal(same(w, keys), strstr(kinds[i], "tie=1") != NULL);
        assert_false(same(w, next));
        assert_true(same(next, later)); /* seed + index */
        free(w);
        free(again);
        free(keys);
        free(next);
        free(later);
    }
    float *one = drawn(ctx, "softmax frozen(shared=1)", 7, 0, "Wq");
    float *two = drawn(ctx, "softmax frozen(shared=1)", 7, 5, "Wq");
    assert_true(same(one, two));
    free(one);
    free(two);
    foci_ctx_free(ctx);
    foci_ctx_free(other);
}

/* Groups have draws of their own. */
static void groups(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);
    float    *a = drawn(ctx, "2*softmax frozen + 2*relu2 frozen", 7, 0, "0.Wq");
    float    *b = drawn(ctx, "2*softmax frozen + 2*relu2 frozen", 7, 0, "1.Wq");

    (void)state;
    assert_memory_not_equal(a, b, (size_t)WIDTH * COLS / 2 * sizeof *a);
    free(a);
    free(b);
    foci_ctx_free(ctx);
}

static double dot(const float *w, int64_t a, int64_t b)
{
    double sum = 0;
    for (int64_t i = 0; i < WIDTH; i++)
        sum += (double)w[i * COLS + a] * (double)w[i * COLS + b];
    return sum;
}

/* Columns of a head are orthonormal; of a block, those of all heads. */
static void orthonormal(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        if (strstr(kinds[i], "gaussian")) continue;
        const bool block = strstr(kinds[i], "block");
        float     *w = drawn(ctx, kinds[i], 3, 0, "Wk");
        double     across = 0;
        for (int64_t a = 0; a < COLS; a++)
            for (int64_t b = 0; b < COLS; b++) {
                if (!block && a / DIM != b / DIM)
                    across += fabs(dot(w, a, b));
                else
                    assert_true(fabs(dot(w, a, b) - (a == b)) < 1e-6);
            }
        if (!block) assert_true(across > 1); /* heads by themselves are not */
        free(w);
    }
    foci_ctx_free(ctx);
}

/* Weights of `from`, which has projections drawn, in a layer that learns them; those that
 * are frozen there have no biases. */
static void copy_params(const foci_layer *from, const float *given,
                        const foci_layer *to, float *params)
{
    for (int i = 0; i < foci_layer_param_count(to); i++) {
        foci_param t = { FOCI_SIZED(foci_param) }, f;
        assert_int_equal(foci_layer_param(to, i, &t), FOCI_OK);
        const int at = layers_find(from, t.name, &f);
        if (at < 0) {
            memset(params + t.offset, 0, (size_t)t.count * sizeof *params);
        } else if (f.offset < 0) {
            assert_int_equal(foci_layer_frozen_get(from, at, params + t.offset),
                             FOCI_OK);
        } else {
            memcpy(params + t.offset, given + f.offset,
                   (size_t)t.count * sizeof *params);
        }
    }
}

static void compare_learned(const foci_layer *layer, const struct layer_case *c,
                            const foci_layer *learned)
{
    struct layer_case   twin = *c;
    struct layer_result got = layers_run(layer, c);

    twin.params = test_alloc((size_t)foci_layer_param_floats(learned), sizeof(float));
    copy_params(layer, c->params, learned, twin.params);
    struct layer_result want = layers_run(learned, &twin);
    layers_near(layer, c, "y", got.x[LAYER_Y], want.x[LAYER_Y], got.n[LAYER_Y]);
    layers_near(layer, c, "dx", got.x[LAYER_DX], want.x[LAYER_DX], got.n[LAYER_DX]);
    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        foci_param a = { FOCI_SIZED(foci_param) }, b;
        assert_int_equal(foci_layer_param(layer, i, &a), FOCI_OK);
        if (a.offset < 0) continue;
        assert_true(layers_find(learned, a.name, &b) >= 0);
        layers_near(layer, c, a.name, got.x[LAYER_DPARAMS] + a.offset,
                    want.x[LAYER_DPARAMS] + b.offset, a.count);
    }
    free(twin.params);
    layer_result_free(&got);
    layer_result_free(&want);
}

/* With the numbers that were drawn, and with others that are given. */
static void as_learned(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < N_KINDS; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            foci_layer_problem p = shape;
            p.dtype = (foci_dtype)dtype;
            foci_layer       *layer = layers_make(ctx, kinds[i], &p);
            foci_layer       *learned = layers_make(ctx, "softmax", &p);
            struct layer_case c = layers_draw(layer, kinds[i], (uint64_t)i, 0);

            compare_learned(layer, &c, learned);
            foci_param param;
            float     *w = test_alloc((size_t)WIDTH * COLS, sizeof *w);
            struct rng r;
            rng_seed(&r, 3, 3);
            for (int64_t t = 0; t < WIDTH * COLS; t++)
                w[t] = (float)(rng_normal(&r) / sqrt(WIDTH));
            const int at = layers_find(layer, "Wq", &param);
            assert_int_equal(foci_layer_frozen_set(layer, at, w), FOCI_OK);
            float *back = matrix(layer, "Wq");
            assert_true(same(w, back));
            compare_learned(layer, &c, learned);
            free(w);
            free(back);
            layer_case_free(&c);
            foci_layer_free(layer);
            foci_layer_free(learned);
        }
    foci_ctx_free(ctx);
}

/* A layer made anew from its seed, and the floats that were stored. */
static void restored(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        foci_layer         *layer = layers_make(ctx, kinds[i], &shape);
        struct layer_case   c = layers_draw(layer, kinds[i], (uint64_t)i, 0);
        struct layer_result want = layers_run(layer, &c);
        foci_layer_free(layer);
        layer = layers_make(ctx, kinds[i], &shape);
        struct layer_result got = layers_run(layer, &c);
        layers_equal(layer, &c, "restored", &got, &want);
        layer_result_free(&got);
        layer_result_free(&want);
        layer_case_free(&c);
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

/* Learned projections start as frozen ones of the seed are drawn. */
static void starts(void **state)
{
    static const char *const words[] = { "orthogonal", "gaussian" };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < 2; i++) {
        char frozen[64], init[64];
        snprintf(frozen, sizeof frozen, "softmax frozen(%s)", words[i]);
        snprintf(init, sizeof init, "softmax init(%s)", words[i]);
        foci_layer *layer = layers_make(ctx, init, &shape);
        float      *params =
            test_alloc((size_t)foci_layer_param_floats(layer), sizeof *params);
        assert_int_equal(foci_layer_params_init(layer, 7, params), FOCI_OK);
        for (int k = 0; k < 2; k++) {
            foci_param param;
            float     *want = drawn(ctx, frozen, 7, 0, k ? "Wk" : "Wq");
            assert_true(layers_find(layer, k ? "Wk" : "Wq", &param) >= 0);
            assert_int_equal(param.keep, FOCI_KEEP_TRAINED);
            assert_true(same(params + param.offset, want));
            free(want);
        }
        free(params);
        foci_layer_free(layer);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_stored), cmocka_unit_test(seeds),
        cmocka_unit_test(groups),     cmocka_unit_test(orthonormal),
        cmocka_unit_test(as_learned), cmocka_unit_test(restored),
        cmocka_unit_test(starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
