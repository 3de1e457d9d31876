/* costs.c -- what a model costs, against formulas: parameters, flops, bytes of states; and
 * what is seen of its attentions in a pass. */
#include <math.h>
#include <stdio.h>

#include "test.h"
#include "train/pass.h"

enum { VOCAB = 11, LEN = 12, SOURCE = 7, LAYERS = 2, WIDTH = 16, HEADS = 2, FFN = 24 };
enum { BATCH = 3, DIM = WIDTH / HEADS, TAPS = 3 };

static foci_model_config config(foci_model_kind task, const char *spec)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .task = task,
                            .vocab = VOCAB,
                            .context = LEN,
                            .layers = LAYERS,
                            .width = WIDTH,
                            .heads = HEADS,
                            .ffn = FFN,
                            .attention = spec,
                            .seed = 5 };
    if (task == FOCI_MODEL_TRANSLATE) {
        c.source_context = SOURCE;
        c.cross_attention = "softmax";
        c.specials[FOCI_SPECIAL_BOS] = 1;
        c.specials[FOCI_SPECIAL_EOS] = 2;
    }
    return c;
}

static foci_model *make(foci_ctx *ctx, const foci_model_config *c)
{
    foci_model *m = NULL;

    if (foci_model_create(ctx, c, &m)) fail_msg("%s", foci_errmsg(ctx));
    return m;
}

/*
 * Parameters
 */

static int64_t all_parameters(const foci_model *m)
{
    foci_param p = { FOCI_SIZED(foci_param) };
    int64_t    n = 0;

    for (int i = 0; i < foci_model_param_count(m); i++) {
        assert_int_equal(foci_model_param(m, i, &p), FOCI_OK);
        n += p.count;
    }
    return n;
}

/* Embedding (tied) and positions, blocks, the last norm; frozen projections have no bias. */
static void parameters(void **state)
{
    const int64_t w = WIDTH, norm = 2 * w, ffn = w * FFN + FFN + FFN * w + w;
    const int64_t ends = VOCAB * w + LEN * w + norm;
    foci_ctx     *ctx = test_ctx(NULL, 1);

    (void)state;
    const foci_model_config plain = config(FOCI_MODEL_LM, "softmax");
    foci_model             *m = make(ctx, &plain);
    const int64_t           block = 4 * (w * w + w) + ffn + 2 * norm;
    assert_int_equal(foci_model_trained_floats(m), ends + LAYERS * block);
    assert_int_equal(all_parameters(m), ends + LAYERS * block);
    foci_model_free(m);

    const foci_model_config frozen =
        config(FOCI_MODEL_LM, "softmax frozen(orthogonal)");
    m = make(ctx, &frozen);
    const int64_t learned = 2 * (w * w + w) + ffn + 2 * norm;
    assert_int_equal(foci_model_trained_floats(m), ends + LAYERS * learned);
    assert_int_equal(all_parameters(m), ends + LAYERS * (learned + 2 * w * w));
    foci_model_free(m);
    foci_ctx_free(ctx);
}

/*
 * Flops
 */

/* Queries and keys that meet, each in a product of DIM forward for the scores and one for the
 * values; backward there are three of the first kind (dq, dk, and the scores anew) and two of
 * the other. */
static void check_flops(const foci_cost *cost, double products, double pairs)
{
    const double forward = 2 * products + pairs * HEADS * 4 * DIM;
    const double backward = 4 * products + pairs * HEADS * 10 * DIM;

    assert_true(cost->pairs == pairs * HEADS);
    assert_true(fabs(cost->forward_flops - forward) < 1e-6 * forward);
    assert_true(fabs(cost->backward_flops - backward) < 1e-6 * backward);
}

static double block_products(double rows)
{
    return rows * WIDTH * (4 * WIDTH + 2 * FFN);
}

static void flops(void **state)
{
    const double triangle = LEN * (LEN + 1) / 2.0;
    foci_ctx    *ctx = test_ctx(NULL, 1);
    foci_cost    cost = { FOCI_SIZED(foci_cost) };

    (void)state;
    foci_model_config c = config(FOCI_MODEL_LM, "softmax");
    foci_model       *m = make(ctx, &c);
    assert_int_equal(foci_model_cost(m, LEN, 0, 0, &cost), FOCI_OK);
    check_flops(&cost, LAYERS * block_products(LEN) + LEN * WIDTH * VOCAB,
                LAYERS * triangle);
    assert_int_equal(foci_model_cost(m, LEN, 0, 3, &cost), FOCI_OK); /* of 3 labels */
    check_flops(&cost, LAYERS * block_products(LEN) + 3 * WIDTH * VOCAB,
                LAYERS * triangle);
    foci_model_free(m);

    c = config(FOCI_MODEL_CLASSIFY, "softmax");
    c.classes = 5;
    c.gated = 1;
    c.conv = TAPS;
    m = make(ctx, &c);
    assert_int_equal(foci_model_cost(m, LEN, 0, 0, &cost), FOCI_OK);
    check_flops(&cost,
                LAYERS * (block_products(LEN) + LEN * WIDTH * (FFN + TAPS)) + WIDTH * 5,
                LAYERS * LEN * LEN);
    foci_model_free(m);

    c = config(FOCI_MODEL_TRANSLATE, "softmax");
    m = make(ctx, &c);
    assert_int_equal(foci_model_cost(m, LEN, SOURCE, 0, &cost), FOCI_OK);
    check_flops(&cost,
                LAYERS * (block_products(SOURCE) + block_products(LEN)) +
                    LAYERS * (LEN + SOURCE) * 2 * WIDTH * WIDTH + LEN * WIDTH * VOCAB,
                LAYERS * (SOURCE * SOURCE + triangle + LEN * SOURCE));
    assert_int_equal(foci_model_cost(m, LEN, SOURCE + 1, 0, &cost), FOCI_ERR_ARG);
    assert_int_equal(foci_model_cost(m, LEN + 1, SOURCE, 0, &cost), FOCI_ERR_ARG);
    assert_int_equal(foci_model_cost(m, LEN, SOURCE, LEN + 1, &cost), FOCI_ERR_ARG);
    foci_model_free(m);
    foci_ctx_free(ctx);
}

/*
 * States
 */

/* Of a state that has seen LEN tokens, by a plan of the same heads. */
static size_t state_bytes(foci_ctx *ctx, const char *spec)
{
    const foci_problem p = { FOCI_SIZED(foci_problem), .heads = HEADS, .len_q = LEN,
                             .dim_qk = DIM, .flags = FOCI_FLAG_CAUSAL };
    float              rows[LEN * WIDTH] = { 0 }, o[LEN * WIDTH];
    const int32_t      tokens = LEN;
    foci_plan         *plan = test_plan(ctx, spec, &p);
    foci_pool         *pool;
    foci_state        *state;

    assert_int_equal(foci_pool_create(plan, 8, &pool), FOCI_OK);
    assert_int_equal(foci_state_create(pool, &state), FOCI_OK);
    void              *work = test_alloc(foci_step_work_bytes(pool, 1, LEN, LEN), 1);
    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = &state,
                              .n_states = 1,
                              .tokens = &tokens,
                              .q = rows,
                              .k = rows,
                              .v = rows,
                              .o = o,
                              .work = work };
    assert_int_equal(foci_step(pool, &io), FOCI_OK);
    const size_t bytes = foci_state_bytes(state);
    free(work);
    foci_state_free(state);
    foci_pool_free(pool);
    foci_plan_free(plan);
    return bytes;
}

static void step(foci_sequences *s, int n)
{
    for (int i = 0; i < LEN; i++) {
        const int32_t ids[] = { (i + 3) % VOCAB, (i + 4) % VOCAB };
        assert_true(n <= 2);
        assert_int_equal(foci_sequences_step(s, NULL, ids, NULL, NULL), FOCI_OK);
    }
}

static void states(void **state)
{
    static const char *const specs[] = { "softmax", "linear", "local(window=4)",
                                         "retention" };
    foci_ctx                *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_model_config c = config(FOCI_MODEL_LM, specs[i]);
        c.conv = TAPS;
        foci_model     *m = make(ctx, &c);
        foci_sequences *s;
        const size_t    taps = (TAPS - 1) * WIDTH * sizeof(float);
        for (int n = 1; n <= 2; n++) {
            assert_int_equal(foci_sequences_create(m, n, &s), FOCI_OK);
            step(s, n);
            assert_int_equal(foci_sequences_bytes(s),
                             (size_t)n * LAYERS * (state_bytes(ctx, specs[i]) + taps));
            foci_sequences_free(s);
        }
        foci_model_free(m);
    }
    foci_ctx_free(ctx);
}

/* Keys and values of the source too, each in multiples of 64 bytes. */
static void sources(void **state)
{
    const int32_t    ids[SOURCE] = { 3, 4, 5, 6, 7, 8, 2 };
    const foci_batch b = { FOCI_SIZED(foci_batch), .batch = 1, .source_len = SOURCE,
                           .source_ids = ids };
    foci_ctx        *ctx = test_ctx(NULL, 1);
    foci_sequences  *s;

    (void)state;
    const foci_model_config c = config(FOCI_MODEL_TRANSLATE, "softmax");
    foci_model             *m = make(ctx, &c);
    assert_int_equal(foci_sequences_create(m, 1, &s), FOCI_OK);
    assert_int_equal(foci_sequences_start(s, &b), FOCI_OK);
    step(s, 1);
    const size_t kv = 2 * SOURCE * WIDTH * sizeof(float);
    assert_int_equal(kv % 64, 0);
    assert_int_equal(foci_sequences_bytes(s),
                     LAYERS * (state_bytes(ctx, "softmax") + kv));
    foci_sequences_free(s);
    foci_model_free(m);
    assert_int_equal(foci_sequences_bytes(NULL), 0);
    foci_ctx_free(ctx);
}

/*
 * Attentions in a pass
 */

enum { MOST = 16 };

struct sight {
    int     n, stop; /* 0: never */
    char    names[MOST][64];
    int64_t batch[MOST], len[MOST], source[MOST];
    float   x[MOST][BATCH * LEN * WIDTH]; /* of the first attentions */
};

static int look(void *user, const foci_observation *o)
{
    struct sight      *s = user;
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };

    assert_int_equal(foci_layer_get_problem(o->layer, &p), FOCI_OK);
    assert_int_equal(o->index, s->n);
    assert_non_null(strstr(o->spec, "softmax"));
    snprintf(s->names[s->n], sizeof s->names[0], "%s", o->name);
    s->batch[s->n] = p.batch;
    s->len[s->n] = p.len;
    s->source[s->n] = p.len_source;
    memcpy(s->x[s->n], o->io->x, (size_t)(p.batch * p.len * WIDTH) * sizeof(float));
    return ++s->n == s->stop;
}

struct arrays {
    int32_t ids[BATCH * LEN], lens[BATCH], source[BATCH * SOURCE], source_lens[BATCH];
};

static foci_batch fill(struct arrays *a)
{
    for (int i = 0; i < BATCH * LEN; i++)
        a->ids[i] = (7 * i + 3) % VOCAB;
    for (int i = 0; i < BATCH * SOURCE; i++)
        a->source[i] = (5 * i + 1) % VOCAB;
    for (int i = 0; i < BATCH; i++) {
        a->lens[i] = LEN - 4 * i;
        a->source_lens[i] = SOURCE - i;
    }
    return (foci_batch){
        FOCI_SIZED(foci_batch), .batch = BATCH,          .len = LEN,
        .ids = a->ids,          .labels = a->ids,        .lens = a->lens,
        .source_len = SOURCE,   .source_ids = a->source, .source_lens = a->source_lens
    };
}

static void observed(void **state)
{
    static const char *const names[] = {
        "encoder block 0",       "encoder block 1", "decoder block 0",
        "decoder block 0 cross", "decoder block 1", "decoder block 1 cross",
    };
    enum { N = sizeof names / sizeof *names };
    static struct sight all;
    struct arrays       a;
    const foci_batch    b = fill(&a);
    foci_ctx           *ctx = test_ctx(NULL, 1);

    (void)state;
    const foci_model_config c = config(FOCI_MODEL_TRANSLATE, "softmax");
    foci_model             *m = make(ctx, &c);
    assert_int_equal(foci_model_observe(m, &b, 0, 0, look, &all), FOCI_OK);
    assert_int_equal(all.n, N);
    for (int i = 0; i < N; i++) {
        assert_string_equal(all.names[i], names[i]);
        assert_int_equal(all.batch[i], BATCH);
        assert_int_equal(all.len[i], i < LAYERS ? SOURCE : LEN);
        assert_int_equal(all.source[i], i == 3 || i == 5 ? SOURCE : 0);
    }
    memset(&all, 0, sizeof all);
    all.stop = 2;
    assert_int_equal(foci_model_observe(m, &b, 2, 5, look, &all), FOCI_OK);
    assert_int_equal(all.n, 2);
    assert_int_equal(all.len[0], 5);
    foci_model_free(m);
    foci_ctx_free(ctx);
}

/* What a part of a causal batch reads is what that part of the whole batch does. */
static void parts(void **state)
{
    enum { ROWS = 2, SHORT = 9 };
    static struct sight whole, part;
    struct arrays       a;
    const foci_batch    b = fill(&a);
    foci_ctx           *ctx = test_ctx(NULL, 1);

    (void)state;
    const foci_model_config c = config(FOCI_MODEL_LM, "softmax");
    foci_model             *m = make(ctx, &c);
    assert_int_equal(foci_model_observe(m, &b, 0, 0, look, &whole), FOCI_OK);
    assert_int_equal(foci_model_observe(m, &b, ROWS, SHORT, look, &part), FOCI_OK);
    assert_int_equal(part.n, LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(part.batch[i], ROWS);
        assert_int_equal(part.len[i], SHORT);
        for (int r = 0; r < ROWS; r++)
            for (int t = 0; t < SHORT && t < a.lens[r]; t++)
                for (int k = 0; k < WIDTH; k++)
                    assert_true(fabsf(part.x[i][(r * SHORT + t) * WIDTH + k] -
                                      whole.x[i][(r * LEN + t) * WIDTH + k]) < 1e-5F);
    }
    assert_int_equal(foci_model_observe(m, &b, -1, 0, look, &part), FOCI_ERR_ARG);
    assert_int_equal(foci_model_observe(m, &b, 0, 0, NULL, NULL), FOCI_ERR_ARG);
    foci_model_free(m);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters), cmocka_unit_test(flops),
        cmocka_unit_test(states),     cmocka_unit_test(sources),
        cmocka_unit_test(observed),   cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
