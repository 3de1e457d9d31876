/* step.c -- a layer token by token, and in chunks of any size, is what the judge makes of
 * the whole sequence, for every mechanism that decodes. */
#include "support/layers.h"

enum { SEQS = 3 };

/* Sequences of one length that are decoded side by side, and what the judge says of them. */
struct decoding {
    const foci_layer        *layer;
    const struct layer_case *c;
    foci_pool               *pool;
    foci_state              *states[SEQS];
    int64_t                  done[SEQS];
    char                    *got;         /* laid out as y */
    void                    *precomputed; /* NULL: by each step */
    void                    *rounded;     /* parameters of bf16; NULL: not given */
    struct rng               rng;
};

/* Some tokens of every sequence, none of some. */
static int64_t draw_tokens(struct decoding *d, bool one, int32_t tokens[SEQS])
{
    int64_t all = 0;

    for (int s = 0; s < SEQS; s++) {
        const int64_t left = d->c->p.len - d->done[s];
        const int64_t most = rng_below(&d->rng, 3) ? 4 : left;
        tokens[s] =
            (int32_t)(one ? left > 0 : min64(left, rng_below(&d->rng, most + 1)));
        all += tokens[s];
    }
    return all;
}

/* Rows of new tokens, between sequences and steps. */
static void move_rows(const struct decoding *d, const int32_t tokens[SEQS], char *all,
                      char *rows, bool back)
{
    const foci_layer_problem *p = &d->c->p;
    const size_t              bytes = (size_t)p->width * foci_dtype_bytes(p->dtype);

    for (int s = 0; all && s < SEQS; s++) {
        char        *at = all + (size_t)(s * p->len + d->done[s]) * bytes;
        const size_t n = (size_t)tokens[s] * bytes;
        memcpy(back ? at : rows, back ? rows : at, n);
        rows += n;
    }
}

static void step(struct decoding *d, bool one)
{
    const foci_layer_problem *p = &d->c->p;
    const size_t              bytes = (size_t)p->width * foci_dtype_bytes(p->dtype);
    int32_t                   tokens[SEQS];
    const int64_t             n = draw_tokens(d, one, tokens);
    char        *x = test_alloc((size_t)n, bytes), *y = test_alloc((size_t)n, bytes);
    char        *residual = test_alloc((size_t)n, bytes);
    int32_t     *words = test_alloc((size_t)n, sizeof *words);
    const size_t room =
        foci_layer_step_work_bytes(d->layer, d->pool, SEQS, n, p->memory + p->len);
    char *work = test_alloc(room, 1);

    memset(work, 0xff, room);
    move_rows(d, tokens, d->c->x, x, false);
    move_rows(d, tokens, d->c->residual, residual, false);
    int32_t *word = words;
    for (int s = 0; d->c->words && s < SEQS; s++)
        for (int32_t t = 0; t < tokens[s]; t++)
            *word++ = d->c->words[s * p->len + d->done[s] + t];
    const foci_layer_step_io io = { FOCI_SIZED(foci_layer_step_io),
                                    .states = d->states,
                                    .n_states = SEQS,
                                    .tokens = tokens,
                                    .x = x,
                                    .residual = d->c->residual ? residual : NULL,
                                    .y = y,
                                    .words = d->c->words ? words : NULL,
                                    .params = d->c->params,
                                    .work = work,
                                    .precomputed = d->precomputed,
                                    .params_bf16 = d->rounded };
    if (foci_layer_step(d->layer, d->pool, &io))
        fail_msg("%s: %s", d->c->spec, foci_errmsg(foci_layer_plan(d->layer)->ctx));
    move_rows(d, tokens, d->got, y, true);
    for (int s = 0; s < SEQS; s++)
        d->done[s] += tokens[s];
    free(x);
    free(y);
    free(residual);
    free(words);
    free(work);
}

/* What was before x: rows that are seen and make no output. */
static void remember(struct decoding *d)
{
    const foci_layer_problem *p = &d->c->p;
    const int64_t             n = SEQS * p->memory;
    const size_t              room =
        foci_layer_step_work_bytes(d->layer, d->pool, SEQS, n, p->memory);
    char   *work = test_alloc(room, 1);
    int32_t tokens[SEQS];

    for (int s = 0; s < SEQS; s++)
        tokens[s] = (int32_t)p->memory;
    const foci_layer_step_io io = { FOCI_SIZED(foci_layer_step_io),
                                    .states = d->states,
                                    .n_states = SEQS,
                                    .tokens = tokens,
                                    .x = d->c->memory,
                                    .params = d->c->params,
                                    .work = work };
    if (foci_layer_step(d->layer, d->pool, &io))
        fail_msg("%s: %s", d->c->spec, foci_errmsg(foci_layer_plan(d->layer)->ctx));
    free(work);
}

static bool through(const struct decoding *d)
{
    for (int s = 0; s < SEQS; s++)
        if (d->done[s] < d->c->p.len) return false;
    return true;
}

/* What forward is held to, steps are. */
static void compare(const struct decoding *d, const struct layer_result *want,
                    const struct layer_result *words)
{
    const int64_t       n = want->n[LAYER_Y];
    struct layer_result got = { .n = { [LAYER_Y] = n } };

    got.x[LAYER_Y] = test_alloc((size_t)n, sizeof(double));
    for (int64_t i = 0; i < n; i++)
        got.x[LAYER_Y][i] = ref_load((int)d->c->p.dtype, d->got, i);
    layers_close(d->layer, d->c, &got, want, words);
    layer_result_free(&got);
}

static void decode(const foci_layer *layer, const struct layer_case *c,
                   const struct layer_result *want, const struct layer_result *words,
                   bool one)
{
    const foci_layer_problem *p = &c->p;
    struct decoding           d = { .layer = layer, .c = c };

    const foci_status status =
        foci_pool_create(foci_layer_plan(layer), 4 * SEQS, &d.pool);
    if (status == FOCI_ERR_UNSUP) return;
    assert_int_equal(status, FOCI_OK);
    rng_seed(&d.rng, c->seed, 3);
    for (int s = 0; s < SEQS; s++)
        assert_int_equal(foci_state_create(d.pool, &d.states[s]), FOCI_OK);
    d.got = test_alloc((size_t)want->n[LAYER_Y], foci_dtype_bytes(p->dtype));
    if (one) {
        d.precomputed = test_alloc(foci_layer_precompute_bytes(layer), 1);
        assert_int_equal(foci_layer_precompute(layer, c->params, d.precomputed),
                         FOCI_OK);
    }
    if (one && p->dtype == FOCI_BF16) {
        const int64_t n = foci_layer_param_floats(layer);
        d.rounded = test_alloc((size_t)n, sizeof(uint16_t));
        assert_int_equal(foci_convert(foci_layer_plan(layer)->ctx, FOCI_BF16, d.rounded,
                                      FOCI_F32, c->params, n),
                         FOCI_OK);
    }
    if (p->memory) remember(&d);
    while (!through(&d))
        step(&d, one);
    compare(&d, want, words);
    free(d.got);
    free(d.precomputed);
    free(d.rounded);
    for (int s = 0; s < SEQS; s++)
        foci_state_free(d.states[s]);
    foci_pool_free(d.pool);
}

static void run_case(foci_ctx *ctx, const char *spec, const foci_layer_problem *p,
                     uint64_t seed)
{
    foci_layer *layer = layers_make(ctx, spec, p);
    if (!layer) return;
    struct layer_case   c = layers_draw(layer, spec, seed, LAYER_RESIDUAL);
    struct layer_result want = layers_judge(layer, &c, false);
    struct layer_result words = layers_judge(layer, &c, true);

    decode(layer, &c, &want, &words, true);
    decode(layer, &c, &want, &words, false);
    layer_result_free(&want);
    layer_result_free(&words);
    layer_case_free(&c);
    foci_layer_free(layer);
}

static void run_types(foci_ctx *ctx, const char *spec, foci_layer_problem p,
                      uint64_t seed)
{
    p.flags |= FOCI_FLAG_CAUSAL;
    run_case(ctx, spec, &p, seed);
    p.dtype = FOCI_BF16;
    run_case(ctx, spec, &p, seed);
}

static const foci_layer_problem shape = { FOCI_SIZED(foci_layer_problem),
                                          .batch = SEQS,
                                          .len = 37,
                                          .width = 24,
                                          .heads = 4,
                                          .biases = 1 };

static void specs(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (int i = 0; specs_next(ctx, i, spec); i++)
        if (layers_fit(spec, &shape) &&
            (!layers_brief() || !strchr(spec, ' ') || i % 4 == 0))
            run_types(ctx, spec, shape, (uint64_t)i);
    foci_ctx_free(ctx);
}

static void mixes(void **state)
{
    static const char *const all[] = {
        "3*fixed + 1*softmax",
        "2*softmax frozen(orthogonal) + 2*softmax txl",
        "1*softmax + 2*fixed + 1*linear",
        "2*local(window=3) frozen(hadamard) + 2*relu2",
        "2*dynconv + 1*softmax + 1*retention",
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        run_types(ctx, all[i], shape, i);
    foci_ctx_free(ctx);
}

static void other_kinds(void **state)
{
    static const char *const gau[] = { "relu2", "softmax rope", "linear", "fixed",
                                       "local(window=5)" };
    static const char *const conv[] = { "lightconv", "dynconv(width=5)",
                                        "2*lightconv(width=3) + 2*dynconv(width=4)" };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    foci_layer_problem       p = shape;

    (void)state;
    p.kind = FOCI_LAYER_CONV;
    for (size_t i = 0; i < sizeof conv / sizeof *conv; i++)
        run_types(ctx, conv[i], p, i);
    p.kind = FOCI_LAYER_GAU;
    p.heads = 1;
    p.head_dim = 16;
    for (size_t i = 0; i < sizeof gau / sizeof *gau; i++)
        run_types(ctx, gau[i], p, i);
    foci_ctx_free(ctx);
}

/* y of one step after another, with what was precomputed of `others`, or NULL. */
static void one_by_one(const foci_layer *layer, const struct layer_case *c,
                       const float *params, const float *others, float *y)
{
    enum { ONE = 1 };
    foci_pool  *pool;
    foci_state *one;
    void       *precomputed = test_alloc(foci_layer_precompute_bytes(layer), 1);

    assert_int_equal(foci_pool_create(foci_layer_plan(layer), ONE, &pool), FOCI_OK);
    assert_int_equal(foci_state_create(pool, &one), FOCI_OK);
    if (others)
        assert_int_equal(foci_layer_precompute(layer, others, precomputed), FOCI_OK);
    void *work =
        test_alloc(foci_layer_step_work_bytes(layer, pool, ONE, ONE, c->p.len), 1);
    for (int64_t i = 0; i < c->p.len; i++) {
        const int64_t            at = i * c->p.width;
        const foci_layer_step_io io = { FOCI_SIZED(foci_layer_step_io),
                                        .states = &one,
                                        .n_states = ONE,
                                        .x = (const float *)c->x + at,
                                        .y = y + at,
                                        .params = params,
                                        .work = work,
                                        .precomputed = others ? precomputed : NULL };
        assert_int_equal(foci_layer_step(layer, pool, &io), FOCI_OK);
    }
    foci_state_free(one);
    foci_pool_free(pool);
    free(work);
    free(precomputed);
}

/* What is precomputed of parameters is all that a step takes from WR. */
static void precomputed(void **state)
{
    foci_ctx                *ctx = test_ctx(NULL, 1);
    const foci_layer_problem p = {
        FOCI_SIZED(foci_layer_problem), .batch = 1, .len = 9, .width = 8, .heads = 2,
        .flags = FOCI_FLAG_CAUSAL
    };
    foci_layer       *layer = layers_make(ctx, "softmax txl", &p);
    struct layer_case c = layers_draw(layer, "softmax txl", 1, 0);
    const size_t      floats = (size_t)foci_layer_param_floats(layer);
    float            *other = test_alloc(floats, sizeof *other), y[3][9 * 8] = { 0 };
    foci_param        w = { FOCI_SIZED(foci_param) };

    (void)state;
    for (int i = 0; !w.name || strcmp(w.name, "WR") != 0; i++)
        assert_int_equal(foci_layer_param(layer, i, &w), FOCI_OK);
    memcpy(other, c.params, floats * sizeof *other);
    for (int64_t t = 0; t < w.count; t++)
        other[w.offset + t] += 0.25F;
    one_by_one(layer, &c, other, NULL, y[0]);
    one_by_one(layer, &c, c.params, other, y[1]);
    one_by_one(layer, &c, c.params, c.params, y[2]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_not_equal(y[0], y[2], sizeof y[0]);

    assert_int_equal(foci_layer_precompute(NULL, other, y), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_precompute(layer, NULL, y), FOCI_ERR_ARG);
    assert_int_equal(foci_layer_precompute(layer, other, NULL), FOCI_ERR_ARG);
    assert_true(foci_layer_precompute_bytes(NULL) == SIZE_MAX);
    free(other);
    layer_case_free(&c);
    foci_layer_free(layer);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),
        cmocka_unit_test(mixes),
        cmocka_unit_test(other_kinds),
        cmocka_unit_test(precomputed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
