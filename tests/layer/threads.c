/* threads.c -- results of a layer are the same bits for any number of threads, dropout of
 * the output among them, and that drops its share. */
#include <math.h>

#include "support/layers.h"

static const foci_layer_problem shape = { FOCI_SIZED(foci_layer_problem),
                                          .batch = 3,
                                          .len = 150,
                                          .width = 96,
                                          .heads = 4,
                                          .biases = 1,
                                          .output_dropout = 0.2,
                                          .flags = FOCI_FLAG_TRAIN };

/* One thread, and others. */
enum { N_COUNTS = 4 };
static const int counts[N_COUNTS] = { 1, 2, 7, 16 };

struct contexts {
    foci_ctx *with[N_COUNTS];
};

static struct contexts contexts_make(void)
{
    struct contexts c;
    for (int i = 0; i < N_COUNTS; i++)
        c.with[i] = test_ctx(NULL, counts[i]);
    return c;
}

static void contexts_free(struct contexts *c)
{
    for (int i = 0; i < N_COUNTS; i++)
        foci_ctx_free(c->with[i]);
}

static void run_case(const struct contexts *of, const char *spec,
                     const foci_layer_problem *p, unsigned gives)
{
    foci_layer         *one = layers_make(of->with[0], spec, p);
    struct layer_case   c = layers_draw(one, spec, 3, gives | LAYER_RESIDUAL);
    struct layer_result want = layers_run(one, &c);

    for (int i = 1; i < N_COUNTS; i++) {
        foci_layer         *many = layers_make(of->with[i], spec, p);
        struct layer_result got = layers_run(many, &c);
        layers_equal(many, &c, "another number of threads", &got, &want);
        layer_result_free(&got);
        foci_layer_free(many);
    }
    layer_result_free(&want);
    layer_case_free(&c);
    foci_layer_free(one);
}

static void same_bits(void **state)
{
    static const char *const specs[] = {
        "softmax",
        "softmax txl",
        "4*softmax frozen(hadamard)",
        "2*softmax frozen(orthogonal) + 2*softmax",
        "1*fixed + 1*softmax + 2*linear",
        "routed(softmax, routes=2)",
    };
    struct contexts of = contexts_make();

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
            foci_layer_problem p = shape;
            p.dtype = (foci_dtype)dtype;
            p.flags |= i % 2 ? FOCI_FLAG_CAUSAL : 0;
            if (layers_brief() && (i + (size_t)dtype) % 2) continue;
            run_case(&of, specs[i], &p, i % 2 ? LAYER_LENS : 0);
        }
    contexts_free(&of);
}

static void same_bits_others(void **state)
{
    struct contexts of = contexts_make();

    (void)state;
    for (int dtype = FOCI_F32; dtype <= FOCI_BF16; dtype++) {
        foci_layer_problem p = shape;
        p.dtype = (foci_dtype)dtype;
        p.kind = FOCI_LAYER_CONV;
        run_case(&of, "dynconv", &p, LAYER_LENS);
        p.kind = FOCI_LAYER_GAU;
        p.heads = 1;
        run_case(&of, "relu2", &p, 0);
    }
    contexts_free(&of);
}

/* What is dropped is 0 where nothing is added to it; what stays is larger by as much. */
static void share(void **state)
{
    foci_ctx           *ctx = test_ctx(NULL, 2);
    foci_layer_problem  p = shape;
    foci_layer         *layer = layers_make(ctx, "softmax", &p);
    struct layer_case   c = layers_draw(layer, "softmax", 3, 0);
    struct layer_result dropped = layers_run(layer, &c);
    int64_t             zeros = 0;

    (void)state;
    p.output_dropout = 0;
    foci_layer         *whole = layers_make(ctx, "softmax", &p);
    struct layer_result all = layers_run(whole, &c);
    for (int64_t i = 0; i < all.n[LAYER_Y]; i++) {
        const double got = dropped.x[LAYER_Y][i], want = all.x[LAYER_Y][i] / 0.8;
        zeros += got == 0;
        if (got != 0 && !(fabs(got - want) <= 1e-5 * (1 + fabs(want))))
            layers_fail(layer, &c, "y that stays", i, got, want);
    }
    const double n = (double)all.n[LAYER_Y];
    assert_true(fabs((double)zeros / n - 0.2) < 4 * sqrt(0.2 * 0.8 / n));
    c.seed++; /* of the dropout: others are dropped */
    struct layer_result other = layers_run(layer, &c);
    int64_t             both = 0;
    for (int64_t i = 0; i < all.n[LAYER_Y]; i++)
        both += other.x[LAYER_Y][i] == 0 && dropped.x[LAYER_Y][i] == 0;
    assert_true(fabs((double)both / n - 0.04) < 4 * sqrt(0.04 * 0.96 / n));
    layer_result_free(&other);
    layer_result_free(&dropped);
    layer_result_free(&all);
    layer_case_free(&c);
    foci_layer_free(layer);
    foci_layer_free(whole);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(same_bits_others),
        cmocka_unit_test(share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
