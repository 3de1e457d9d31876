/* packed.c -- sequences of unequal length in a batch, and documents of a pack, are what
 * they are by themselves; rows of no sequence are zero, and what they hold is harmless. */
#include <math.h>

#include "support/layers.h"

enum { WIDTH = 16, LEN = 40, BATCH = 3, DOCS = 4 };

/* One sequence: rows of x of the whole, from `first` on, and of the source. */
struct piece {
    int64_t first, len;
    int64_t first_source, len_source;
};

static void *rows(const struct layer_case *c, const void *from, int64_t first, int64_t n)
{
    const size_t bytes = (size_t)c->p.width * foci_dtype_bytes(c->p.dtype);
    char        *x = test_alloc((size_t)n + 1, bytes);

    memcpy(x, (const char *)from + (size_t)first * bytes, (size_t)n * bytes);
    return x;
}

/* By itself; its results go to where they are in the whole, but gradients of parameters
 * are added up. */
static void run_piece(foci_ctx *ctx, const struct layer_case *c, const struct piece *at,
                      struct layer_result *sum)
{
    foci_layer_problem p = c->p;

    p.batch = 1;
    p.len = at->len;
    p.len_source = at->len_source;
    p.max_docs = 0;
    foci_layer       *layer = layers_make(ctx, c->spec, &p);
    struct layer_case one = { .p = p,
                              .seed = c->seed,
                              .x = rows(c, c->x, at->first, at->len),
                              .source =
                                  rows(c, c->source, at->first_source, at->len_source),
                              .dy = rows(c, c->dy, at->first, at->len),
                              .params = c->params };
    if (c->residual) one.residual = rows(c, c->residual, at->first, at->len);
    struct layer_result got = layers_run(layer, &one);

    memcpy(sum->x[LAYER_Y] + at->first * WIDTH, got.x[LAYER_Y],
           (size_t)got.n[LAYER_Y] * sizeof(double));
    memcpy(sum->x[LAYER_DX] + at->first * WIDTH, got.x[LAYER_DX],
           (size_t)got.n[LAYER_DX] * sizeof(double));
    memcpy(sum->x[LAYER_DSOURCE] + at->first_source * WIDTH, got.x[LAYER_DSOURCE],
           (size_t)got.n[LAYER_DSOURCE] * sizeof(double));
    for (int64_t i = 0; i < sum->n[LAYER_DPARAMS]; i++)
        sum->x[LAYER_DPARAMS][i] += got.x[LAYER_DPARAMS][i];
    layer_result_free(&got);
    one.params = NULL;
    layer_case_free(&one);
    foci_layer_free(layer);
}

/* Rows of no sequence become NaN. */
static void spoil(struct layer_case *c, void *x, int64_t len, const int32_t *lens)
{
    for (int64_t b = 0; b < c->p.batch; b++)
        for (int64_t i = 0; i < len; i++) {
            const bool out =
                c->docs ? i < c->docs[0] || i >= c->docs[DOCS] : i >= lens[b];
            for (int64_t t = 0; out && t < WIDTH; t++)
                ref_store((int)c->p.dtype, x, (b * len + i) * WIDTH + t, NAN);
        }
}

static void compare(const foci_layer *layer, const struct layer_case *c,
                    const struct layer_result *got, const struct layer_result *want)
{
    for (int part = 0; part < LAYER_PARTS; part++) {
        const double *x = got->x[part], *y = want->x[part];
        layers_near(layer, c, layer_part_names[part], x, y, want->n[part]);
        for (int64_t i = 0; part < LAYER_DBIAS && i < want->n[part]; i++)
            if (y[i] == 0 && x[i] != 0) /* of no sequence */
                layers_fail(layer, c, layer_part_names[part], i, x[i], 0);
    }
}

static void run_case(foci_ctx *ctx, const char *spec, const foci_layer_problem *p,
                     unsigned gives, uint64_t seed)
{
    foci_layer         *layer = layers_make(ctx, spec, p);
    struct layer_case   c = layers_draw(layer, spec, seed, gives);
    struct layer_result clean = layers_run(layer, &c), want = { .x = { 0 } };

    for (int part = 0; part < LAYER_PARTS; part++) {
        want.n[part] = clean.n[part];
        want.x[part] = test_alloc((size_t)clean.n[part] + 1, sizeof(double));
    }
    for (int64_t s = 0; s < (c.docs ? DOCS : p->batch); s++) {
        const int64_t len_source = c.lens_source ? c.lens_source[s] : p->len_source;
        const struct piece at =
            c.docs ? (struct piece){ c.docs[s], c.docs[s + 1] - c.docs[s], 0, 0 }
                   : (struct piece){ s * p->len, c.lens[s], s * p->len_source,
                                     len_source };
        if (at.len && (at.len_source || !p->len_source)) run_piece(ctx, &c, &at, &want);
    }
    spoil(&c, c.x, c.p.len, c.lens);
    spoil(&c, c.dy, c.p.len, c.lens);
    if (c.residual) spoil(&c, c.residual, c.p.len, c.lens);
    if (p->len_source) spoil(&c, c.source, c.p.len_source, c.lens_source);
    struct layer_result got = layers_run(layer, &c);
    layers_equal(layer, &c, "rows of no sequence", &got, &clean);
    compare(layer, &c, &got, &want);
    layer_result_free(&got);
    layer_result_free(&clean);
    layer_result_free(&want);
    layer_case_free(&c);
    foci_layer_free(layer);
}

static const char *const specs[] = {
    "softmax",
    "softmax rope sink",
    "softmax frozen(hadamard)",
    "softmax frozen(orthogonal, sample=block)",
    "linear",
    "local(window=5)",
    "2*fixed + 2*softmax",
    "dynconv(width=3)",
};

enum { N_SPECS = sizeof specs / sizeof *specs };

#define P(b, ...)                                                                      \
    {                                                                                  \
        FOCI_SIZED(foci_layer_problem), .batch = b, .len = LEN, .width = WIDTH,        \
                                        .heads = 4, __VA_ARGS__                        \
    }

/* Biases would reach rows of no sequence, if anything did. */
static void run_types(foci_ctx *ctx, const char *spec, foci_layer_problem p,
                      unsigned gives, uint64_t seed)
{
    p.flags |= FOCI_FLAG_TRAIN;
    p.biases = 1;
    run_case(ctx, spec, &p, gives, seed);
    p.dtype = FOCI_BF16;
    p.biases = 0;
    run_case(ctx, spec, &p, gives, seed);
}

static void lengths(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_SPECS; i++) {
        run_types(ctx, specs[i], (foci_layer_problem)P(BATCH, .flags = FOCI_FLAG_CAUSAL),
                  LAYER_LENS | LAYER_RESIDUAL, (uint64_t)i);
        run_types(ctx, specs[i], (foci_layer_problem)P(BATCH, .flags = 0), LAYER_LENS,
                  (uint64_t)i);
    }
    foci_ctx_free(ctx);
}

static void documents(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_SPECS; i++) {
        run_types(ctx, specs[i],
                  (foci_layer_problem)P(1, .max_docs = DOCS, .flags = FOCI_FLAG_CAUSAL),
                  LAYER_DOCS | LAYER_RESIDUAL, (uint64_t)i);
        run_types(ctx, specs[i], (foci_layer_problem)P(1, .max_docs = DOCS), LAYER_DOCS,
                  (uint64_t)i);
    }
    foci_ctx_free(ctx);
}

static void cross(void **state)
{
    static const char *const some[] = { "softmax", "softmax frozen(hadamard)",
                                        "linear" };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        run_types(ctx, some[i], (foci_layer_problem)P(BATCH, .len_source = 27),
                  LAYER_LENS, i);
    foci_ctx_free(ctx);
}

static void other_kinds(void **state)
{
    foci_ctx          *ctx = test_ctx(NULL, 1);
    foci_layer_problem p = P(BATCH, .kind = FOCI_LAYER_CONV);

    (void)state;
    run_types(ctx, "dynconv(width=5)", p, LAYER_LENS | LAYER_RESIDUAL, 1);
    p.kind = FOCI_LAYER_GAU;
    p.heads = 1;
    p.head_dim = 8;
    run_types(ctx, "relu2", p, LAYER_LENS | LAYER_RESIDUAL, 1);
    p.batch = 1;
    p.max_docs = DOCS;
    run_types(ctx, "softmax", p, LAYER_DOCS, 1);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(documents),
        cmocka_unit_test(cross),
        cmocka_unit_test(other_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
