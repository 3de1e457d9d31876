/* decode.c -- a model token by token against the same model on whole sequences, beams against
 * all targets there are, and what is drawn from a distribution. */
#include <math.h>
#include <stdio.h>

#include "test.h"
#include "train/pass.h"

enum { LEN = 12, SOURCE = 5, VOCAB = 9, BATCH = 3 };

struct arrays {
    int32_t ids[BATCH * LEN], labels[BATCH * LEN], lens[BATCH];
    int32_t source[BATCH * SOURCE], source_lens[BATCH];
};

static foci_model *make(foci_ctx *ctx, const foci_model_config *c)
{
    foci_model *m = NULL;
    struct rng  r;

    if (foci_model_create(ctx, c, &m)) fail_msg("%s", foci_errmsg(ctx));
    rng_seed(&r, 4, 0);
    for (int64_t i = 0; i < m->floats; i++)
        m->params[i] += (float)(0.2 * rng_normal(&r));
    return m;
}

static foci_model_config config(foci_model_kind task, const char *spec)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .task = task,
                            .vocab = VOCAB,
                            .context = LEN,
                            .layers = 2,
                            .width = 16,
                            .heads = 2,
                            .ffn = 24,
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

static void fill(struct arrays *a, foci_batch *b)
{
    struct rng r;

    rng_seed(&r, 3, 0);
    for (int i = 0; i < BATCH * LEN; i++) {
        a->ids[i] = (int32_t)rng_below(&r, VOCAB);
        a->labels[i] = (int32_t)rng_below(&r, VOCAB);
    }
    for (int i = 0; i < BATCH * SOURCE; i++)
        a->source[i] = (int32_t)rng_below(&r, VOCAB);
    for (int i = 0; i < BATCH; i++) {
        a->lens[i] = LEN;
        a->source_lens[i] = SOURCE - i;
    }
    *b = (foci_batch){
        FOCI_SIZED(foci_batch), .batch = BATCH,          .len = LEN,
        .ids = a->ids,          .labels = a->labels,     .lens = a->lens,
        .source_len = SOURCE,   .source_ids = a->source, .source_lens = a->source_lens
    };
}

static double cost(const float *logits, int32_t label)
{
    double sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v]);
    return log(sum) - (double)logits[label];
}

/* The loss by steps: some tokens at once, where that is possible, then one by one. */
static double by_steps(foci_model *m, const foci_batch *b, int64_t at_once)
{
    foci_sequences *s = NULL;
    float           logits[BATCH * VOCAB];
    int32_t         ids[BATCH * LEN];
    const int32_t   tokens[BATCH] = { (int32_t)at_once, (int32_t)at_once,
                                      (int32_t)at_once };
    double          sum = 0;

    if (foci_sequences_create(m, BATCH, &s) || foci_sequences_start(s, b))
        fail_msg("%s", foci_errmsg(m->ctx));
    for (int64_t i = 0; i < LEN;) {
        const int64_t n = i || !at_once ? 1 : at_once;
        for (int64_t r = 0; r < BATCH; r++)
            memcpy(ids + r * n, b->ids + r * LEN + i, (size_t)n * sizeof *ids);
        if (foci_sequences_step(s, n > 1 ? tokens : NULL, ids, NULL, logits))
            fail_msg("%s", foci_errmsg(m->ctx));
        i += n;
        for (int64_t r = 0; r < BATCH; r++)
            sum += cost(logits + r * VOCAB, b->labels[r * LEN + i - 1]);
    }
    foci_sequences_free(s);
    return sum;
}

static void compare(foci_ctx *ctx, const foci_model_config *c)
{
    const bool    translates = c->task == FOCI_MODEL_TRANSLATE;
    const int64_t first = translates ? 1 : 5;
    struct arrays a;
    foci_batch    b;
    foci_loss     loss = { FOCI_SIZED(foci_loss) };
    foci_model   *m = make(ctx, c);

    fill(&a, &b);
    for (int64_t i = 0; i < BATCH * LEN; i++) /* what is fed at once has one loss */
        if (i % LEN < first - 1) a.labels[i] = -1;
    if (foci_model_loss(m, &b, NULL, NULL, &loss)) fail_msg("%s", foci_errmsg(ctx));
    const double steps = by_steps(m, &b, translates ? 0 : first);
    const double bound = c->dtype == FOCI_BF16 ? 2e-2 : 2e-5;
    if (!(fabs(steps - loss.sum) <= bound * loss.sum))
        fail_msg("%s: by steps the loss is %.9g, at once %.9g", c->attention, steps,
                 loss.sum);
    foci_model_free(m);
}

static void steps(void **state)
{
    static const char *const specs[] = {
        "softmax", "linear", "1*local(window=3) + 1*retention",
        "1*fixed(previous) + 1*softmax frozen(orthogonal)"
    };
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c;

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        c = config(FOCI_MODEL_LM, specs[i]);
        compare(ctx, &c);
        c.conv = 3;
        c.positions = FOCI_POSITIONS_ROPE;
        c.norm = FOCI_NORM_RMS;
        c.activation = FOCI_ACT_SILU;
        c.gated = c.untied = 1;
        compare(ctx, &c);
        c.dtype = FOCI_BF16;
        compare(ctx, &c);
    }
    c = config(FOCI_MODEL_LM, NULL);
    c.kind = FOCI_LAYER_CONV;
    c.positions = FOCI_POSITIONS_SINUSOID;
    compare(ctx, &c);
    c.kind = FOCI_LAYER_GAU;
    compare(ctx, &c);
    c = config(FOCI_MODEL_TRANSLATE, "softmax");
    compare(ctx, &c);
    c.cross_attention = "linear";
    c.encoder_attention = "linformer(rank=2)";
    compare(ctx, &c);
    c.dtype = FOCI_BF16;
    compare(ctx, &c);
    foci_ctx_free(ctx);
}

/*
 * Beams
 */

struct best {
    double  score;
    int64_t n;
    int32_t ids[LEN];
};

static int keep_first(void *user, int64_t sentence, const int32_t *ids, int64_t n,
                      double score)
{
    struct best *all = user;

    all[sentence].score = score;
    all[sentence].n = n;
    memcpy(all[sentence].ids, ids, (size_t)n * sizeof *ids);
    return 0;
}

/* Every target of up to `most` tokens, by the loss of the whole. */
static void try_all(foci_model *m, const foci_batch *source, int64_t n, int64_t most,
                    struct best *now, struct best *found)
{
    int32_t    ids[LEN] = { 1 }, labels[LEN];
    foci_loss  loss = { FOCI_SIZED(foci_loss) };
    foci_batch b = *source;

    for (int64_t i = 0; i <= n; i++) {
        if (i) ids[i] = now->ids[i - 1];
        labels[i] = i < n ? now->ids[i] : 2;
    }
    b.len = n + 1;
    b.ids = ids;
    b.labels = labels;
    b.lens = NULL;
    if (foci_model_loss(m, &b, NULL, NULL, &loss)) fail_msg("%s", foci_errmsg(m->ctx));
    const double score = -loss.sum / pow((5 + (double)n + 1) / 6, 0.6);
    if (score > found->score) {
        *found = *now;
        found->score = score;
        found->n = n;
    }
    for (int32_t v = 0; n < most && v < VOCAB; v++) {
        if (v == 2) continue;
        now->ids[n] = v;
        try_all(m, source, n + 1, most, now, found);
    }
}

/* With a beam wider than all there is, the search finds the best of all. */
static void beams(void **state)
{
    enum { MOST = 2 };
    foci_ctx              *ctx = test_ctx(NULL, 2);
    foci_model_config      c = config(FOCI_MODEL_TRANSLATE, "softmax");
    foci_model            *m = make(ctx, &c);
    foci_translate_options o = { FOCI_SIZED(foci_translate_options), .beam = 64,
                                 .longest = MOST + 1, .batch = 2 };
    const int64_t          lens[BATCH] = { SOURCE, SOURCE - 1, SOURCE - 2 };
    struct arrays          a;
    struct best            got[BATCH], one[BATCH];
    foci_batch             b;
    int32_t                ids[BATCH * SOURCE];
    int64_t                at = 0;

    (void)state;
    fill(&a, &b);
    for (int64_t i = 0; i < BATCH; i++) {
        memcpy(ids + at, a.source + i * SOURCE, (size_t)lens[i] * sizeof *ids);
        at += lens[i];
    }
    if (foci_translate(m, BATCH, ids, lens, &o, keep_first, got))
        fail_msg("%s", foci_errmsg(ctx));
    for (int64_t i = 0; i < BATCH; i++) {
        struct best now = { 0 }, found = { .score = -INFINITY };
        b.batch = 1;
        b.source_ids = a.source + i * SOURCE;
        b.source_lens = a.source_lens + i;
        try_all(m, &b, 0, MOST, &now, &found);
        if (got[i].n > MOST) continue; /* longer than those that were tried */
        if (!(fabs(got[i].score - found.score) < 1e-4) || got[i].n != found.n)
            fail_msg("sentence %d: the beam found %g, the best is %g", (int)i,
                     got[i].score, found.score);
    }
    /* Sentence by sentence, and greedy as with a beam of one. */
    o.batch = 1;
    if (foci_translate(m, BATCH, ids, lens, &o, keep_first, one))
        fail_msg("%s", foci_errmsg(ctx));
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(one[i].n, got[i].n);
        assert_memory_equal(one[i].ids, got[i].ids, (size_t)one[i].n * sizeof(int32_t));
    }
    foci_model_free(m);
    foci_ctx_free(ctx);
}

/*
 * Drawing
 */

struct counts {
    int n, of[VOCAB], last;
};

static int count(void *user, int32_t token)
{
    struct counts *c = user;
    c->of[token]++;
    c->last = token;
    return ++c->n < 0;
}

static void generate(void **state)
{
    foci_ctx           *ctx = test_ctx(NULL, 1);
    foci_model_config   c = config(FOCI_MODEL_LM, "softmax");
    foci_model         *m = make(ctx, &c);
    foci_sample_options o = { FOCI_SIZED(foci_sample_options) };
    const int32_t       prompt[] = { 3, 4, 5 };
    float               logits[VOCAB];
    foci_sequences     *s = NULL;
    double              sum = 0;
    struct counts       greedy = { 0 }, drawn = { 0 }, few = { 0 }, much = { 0 };

    (void)state;
    if (foci_sequences_create(m, 1, &s) ||
        foci_sequences_step(s, &(int32_t){ 3 }, prompt, NULL, logits))
        fail_msg("%s", foci_errmsg(ctx));
    int best = 0, second = -1;
    for (int v = 0; v < VOCAB; v++) {
        sum += exp((double)logits[v]);
        if (logits[v] > logits[best]) best = v;
    }
    for (int v = 0; v < VOCAB; v++)
        if (v != best && (second < 0 || logits[v] > logits[second])) second = v;

    assert_int_equal(foci_generate(m, prompt, 3, 1, &o, count, &greedy), FOCI_OK);
    assert_int_equal(greedy.last, best);
    enum { DRAWS = 2000 };
    for (int i = 0; i < DRAWS; i++) {
        o = (foci_sample_options){ FOCI_SIZED(foci_sample_options), .temperature = 1,
                                   .seed = (uint64_t)i };
        assert_int_equal(foci_generate(m, prompt, 3, 1, &o, count, &drawn), FOCI_OK);
        o.top_k = 2;
        assert_int_equal(foci_generate(m, prompt, 3, 1, &o, count, &few), FOCI_OK);
    }
    /* Five standard deviations. */
    for (int v = 0; v < VOCAB; v++) {
        const double p = exp((double)logits[v]) / sum;
        assert_true(fabs(drawn.of[v] - p * DRAWS) <= 5 * sqrt(p * (1 - p) * DRAWS));
        assert_true(v == best || v == second || few.of[v] == 0);
    }
    assert_true(few.of[second] > 0);
    /* Beyond the context it goes on. */
    o.top_k = 0;
    o.top_p = 0.5;
    assert_int_equal(foci_generate(m, prompt, 3, 5 * LEN, &o, count, &much), FOCI_OK);
    assert_int_equal(much.n, 5 * LEN);
    foci_sequences_free(s);
    foci_model_free(m);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),
        cmocka_unit_test(beams),
        cmocka_unit_test(generate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
