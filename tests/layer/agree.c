/* agree.c -- layers agree with the judge: every mechanism, every modifier, mixes, in every
 * kind of layer, type and CPU level, forward and backward. */
#include "support/layers.h"

static const struct kind {
    foci_layer_problem p;
    unsigned           gives; /* LAYER_ bits */
} kinds[] = {
/* batch, rows, width, heads, key heads, and what else there is */
#define P(b, n, w, h, kv, ...)                                                         \
    {                                                                                  \
        FOCI_SIZED(foci_layer_problem), .batch = b, .len = n, .width = w, .heads = h,  \
                                        .kv_heads = kv, __VA_ARGS__                    \
    }
    { .p = P(1, 5, 8, 2, 2, .flags = 0) },
    { .p = P(2, 17, 24, 4, 2, .biases = 1, .flags = FOCI_FLAG_CAUSAL),
      .gives = LAYER_RESIDUAL },
    { .p = P(3, 40, 20, 2, 2, .head_dim = 16, .value_dim = 16), .gives = LAYER_LENS },
    { .p = P(1, 70, 32, 2, 1, .max_docs = 4, .biases = 1, .flags = FOCI_FLAG_CAUSAL),
      .gives = LAYER_DOCS | LAYER_RESIDUAL },
    { .p = P(2, 12, 16, 2, 2, .len_source = 33, .width_source = 24, .biases = 1) },
    { .p = P(3, 20, 16, 2, 1, .len_source = 20, .biases = 1),
      .gives = LAYER_LENS | LAYER_RESIDUAL },
    { .p = P(2, 20, 16, 2, 2, .memory = 9, .biases = 1, .flags = FOCI_FLAG_CAUSAL),
      .gives = LAYER_LENS },
    { .p = P(2, 12, 16, 2, 2, .memory = 12, .flags = 0) },
    { .p = P(2, 20, 16, 4, 4, .flags = FOCI_FLAG_MASK | FOCI_FLAG_BIAS,
             .mask_heads = 4) },
    { .p = P(2, 30, 16, 2, 2, .weight_dropout = 0.2, .output_dropout = 0.3, .biases = 1,
             .flags = FOCI_FLAG_CAUSAL),
      .gives = LAYER_LENS },
    { .p = P(1, 40, 24, 2, 2, .output_dropout = 0.3, .max_docs = 3),
      .gives = LAYER_DOCS },
    { .p = P(1, 66, 72, 3, 3, .value_dim = 40, .flags = 0) },
    { .p = P(1, 9, 7, 1, 1, .head_dim = 6, .biases = 1, .flags = FOCI_FLAG_CAUSAL) },
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Rows that the layer rounded choose otherwise than those of the judge may: it is handed
 * them.  That they are right is what specs that choose nothing tell. */
static void close_by_rows(const foci_layer *layer, const struct layer_case *c,
                          const struct layer_result *got)
{
    struct layer_result want = layers_judge_by(layer, c, false, got);
    struct layer_result words = layers_judge_by(layer, c, true, got);

    layers_close(layer, c, got, &want, &words);
    layer_result_free(&want);
    layer_result_free(&words);
}

/* At level `only`, or at all where that is -1. */
static void run_case(struct levels *l, int only, const char *spec,
                     const foci_layer_problem *p, unsigned gives, uint64_t seed)
{
    foci_layer *layer = layers_make(l->ctx[0], spec, p);
    if (!layer) return;
    struct layer_case   c = layers_draw(layer, spec, seed, gives);
    struct layer_result want = layers_judge(layer, &c, false);
    struct layer_result words = layers_judge(layer, &c, true);

    for (int i = 0; i < l->n; i++) {
        if (only >= 0 && i != only) continue;
        foci_layer         *at = layers_make(l->ctx[i], spec, p);
        struct layer_result got = layers_run(at, &c);
        if (layers_choose(at, &c))
            close_by_rows(at, &c, &got);
        else
            layers_close(at, &c, &got, &want, &words);
        layer_result_free(&got);
        foci_layer_free(at);
    }
    layer_result_free(&want);
    layer_result_free(&words);
    layer_case_free(&c);
    foci_layer_free(layer);
}

static const struct {
    foci_dtype dtype;
    uint32_t   flags;
} types[] = {
    { FOCI_F32, 0 }, { FOCI_BF16, 0 }, { FOCI_F32, FOCI_FLAG_FAST }, { FOCI_F16, 0 }
};

enum { N_TYPES = sizeof types / sizeof *types };

static void run_typed(struct levels *l, const char *spec, int i, const struct kind *k,
                      int type)
{
    foci_layer_problem p = k->p;

    p.flags |= FOCI_FLAG_TRAIN | types[type].flags;
    p.dtype = types[type].dtype;
    run_case(l, i % l->n, spec, &p, k->gives, (uint64_t)i);
}

/* Every spec takes two kinds and two types, by turns; mechanisms by themselves all kinds.
 * In short, each kind in one of the types. */
static void specs(void **state)
{
    struct levels l = levels_make(1);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
        const bool all = !strchr(spec, ' ') && !layers_brief();
        for (int k = 0; k < N_KINDS; k++) {
            const int turn = (i + k) % N_KINDS;
            if (!all && turn > 1) continue;
            if (!layers_fit(spec, &kinds[k].p)) continue;
            if (!layers_brief() || turn == 0) run_typed(&l, spec, i + k, &kinds[k], 0);
            if (!layers_brief() || turn == 1)
                run_typed(&l, spec, i + k, &kinds[k], 1 + (i + k) % (N_TYPES - 1));
        }
    }
    levels_free(&l);
}

static void mixes(void **state)
{
    struct levels l = levels_make(1);

    (void)state;
    for (int i = 0; i < N_LAYER_MIXES; i++)
        for (int type = 0; type < N_TYPES; type++)
            for (int biases = 0; biases < 2; biases++) {
                const struct kind k = {
                    .p = P(2, 37, 32, 8, layer_mixes[i].kv_heads, .biases = biases,
                           .output_dropout = biases ? 0.1 : 0,
                           .flags = FOCI_FLAG_CAUSAL),
                    .gives = biases ? LAYER_LENS | LAYER_RESIDUAL : 0
                };
                if (layers_brief() && (i + type + biases) % 3) continue;
                run_typed(&l, layer_mixes[i].spec, i + type + biases, &k, type);
            }
    levels_free(&l);
}

static void gau(void **state)
{
    static const char *const all[] = {
        "relu2",
        "softmax",
        "relu2 rope",
        "linear",
        "softmax temper sink",
        "fixed",
        "local(window=4) alibi",
        "lsh(buckets=4, shared=1)",
        "retention",
        "dynconv",
        "softmax txl",
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int type = 0; type < N_TYPES; type++) {
            const struct kind small = { .p = P(2, 33, 24, 1, 1, .kind = FOCI_LAYER_GAU,
                                               .head_dim = 16, .biases = 1,
                                               .flags = FOCI_FLAG_CAUSAL),
                                        .gives = LAYER_LENS | LAYER_RESIDUAL };
            const struct kind preset = { .p = P(1, 20, 12, 1, 1, .kind = FOCI_LAYER_GAU,
                                                .flags = FOCI_FLAG_CAUSAL) };
            if (layers_brief() && (i + (size_t)type) % 2) continue;
            run_typed(&l, all[i], (int)i + type, &small, type);
            run_typed(&l, all[i], (int)i + type, &preset, type);
        }
    levels_free(&l);
}

static void conv(void **state)
{
    static const char *const all[] = {
        "lightconv",
        "dynconv",
        "dynconv(width=5, heads=2)",
        "fixed",
        "2*lightconv(width=3) + 2*dynconv(width=4)",
    };
    struct levels l = levels_make(1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int type = 0; type < N_TYPES; type++)
            for (int causal = 0; causal < 2; causal++) {
                const struct kind k = {
                    .p = P(2, 33, 24, 4, 4, .kind = FOCI_LAYER_CONV, .biases = causal,
                           .flags = causal ? FOCI_FLAG_CAUSAL : 0),
                    .gives = causal ? LAYER_LENS | LAYER_RESIDUAL : 0
                };
                run_typed(&l, all[i], (int)i + type, &k, type);
            }
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),
        cmocka_unit_test(mixes),
        cmocka_unit_test(gau),
        cmocka_unit_test(conv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
