/* words.c -- models that read which word a token belongs to write as they judge: by the words
 * of the whole text, found at once. */
#include <math.h>

#include "support/texts.h"
#include "train/model.h"

enum { CONTEXT = 24, MOST = 40, LONGEST = 6 };

static const char text[] = "ab cab a bc\nb abc ca\nc b\n";
static const char spec[] = "1*fixed(left, words=1) + 1*softmax";

struct world {
    foci_ctx       *ctx;
    foci_tokenizer *tokenizer;
    foci_model     *m;
};

static struct world open_world(foci_model_kind task, uint64_t seed)
{
    struct world w = { .ctx = test_ctx(NULL, 1) };
    struct rng   r;

    w.tokenizer = train_text(w.ctx, "chars", text);
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .task = task,
                            .vocab = foci_tokenizer_size(w.tokenizer),
                            .context = CONTEXT,
                            .layers = 1,
                            .width = 16,
                            .heads = 2,
                            .attention = spec,
                            .tokenizer = foci_tokenizer_fingerprint(w.tokenizer) };
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        c.specials[i] = foci_tokenizer_special(w.tokenizer, (foci_special)i);
    if (foci_model_create(w.ctx, &c, &w.m)) fail_msg("%s", foci_errmsg(w.ctx));
    assert_true(foci_model_reads_words(w.m));
    rng_seed(&r, seed, 0);
    for (int64_t i = 0; i < w.m->floats; i++)
        w.m->params[i] += (float)(0.5 * rng_normal(&r));
    return w;
}

static void close_world(struct world *w)
{
    foci_model_free(w->m);
    foci_tokenizer_free(w->tokenizer);
    foci_ctx_free(w->ctx);
}

static void words_of(const struct world *w, const int32_t *ids, int64_t n,
                     int32_t *words)
{
    foci_word_state at = { FOCI_SIZED(foci_word_state) };
    assert_int_equal(foci_token_words(w->tokenizer, ids, n, &at, words), FOCI_OK);
}

/* -log p of the labels that are not negative, of ids as one sequence. */
static double loss_of(const struct world *w, const int32_t *ids, const int32_t *labels,
                      int64_t n, const foci_batch *source)
{
    int32_t    words[MOST];
    foci_loss  loss = { FOCI_SIZED(foci_loss) };
    foci_batch b =
        source ? *source : (foci_batch){ FOCI_SIZED(foci_batch), .batch = 1 };

    words_of(w, ids, n, words);
    b.len = n;
    b.ids = ids;
    b.labels = labels;
    b.words = words;
    if (foci_model_loss(w->m, &b, NULL, NULL, &loss))
        fail_msg("%s", foci_errmsg(w->ctx));
    return loss.sum;
}

/*
 * One token after another
 */

struct said {
    int32_t ids[MOST];
    int64_t n;
};

static int add(void *user, int32_t token)
{
    struct said *s = user;
    s->ids[s->n++] = token;
    return 0;
}

static void expect_likeliest(const struct world *w, const int32_t *ids, int64_t n,
                             int32_t token)
{
    int32_t labels[MOST];
    double  least = INFINITY, own = INFINITY;

    for (int64_t i = 0; i < n; i++)
        labels[i] = -1;
    for (int32_t v = 0; v < w->m->config.vocab; v++) {
        labels[n - 1] = v;
        const double loss = loss_of(w, ids, labels, n, NULL);
        if (v == token) own = loss;
        least = fmin(least, loss);
    }
    if (!(own <= least + 1e-5))
        fail_msg("after %d tokens %d is said, at %g; another one has %g", (int)n, token,
                 own, least);
}

/* Up to the end of the context, behind which it begins anew. */
static void generate(void **state)
{
    struct world        w = open_world(FOCI_MODEL_LM, 4);
    foci_sample_options o = { FOCI_SIZED(foci_sample_options) };
    struct said         s = { .n = 0 };
    int64_t             prompt = 0;
    int32_t            *ids = ids_of(w.tokenizer, "cab a", 5, 0, &prompt);

    (void)state;
    assert_int_equal(foci_generate(w.m, ids, prompt, 1, &o, add, &s), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(w.ctx), "options.tokenizer is NULL"));
    memcpy(s.ids, ids, (size_t)prompt * sizeof *ids);
    s.n = prompt;
    o.tokenizer = w.tokenizer;
    if (foci_generate(w.m, ids, prompt, MOST - prompt, &o, add, &s))
        fail_msg("%s", foci_errmsg(w.ctx));
    assert_int_equal(s.n, MOST);
    for (int64_t n = prompt; n <= CONTEXT; n++)
        expect_likeliest(&w, s.ids, n, s.ids[n]);
    /* Anew: of the context that was full, half less one. */
    const int64_t kept = CONTEXT / 2 - 1;
    expect_likeliest(&w, s.ids + CONTEXT - kept, kept + 1, s.ids[CONTEXT + 1]);
    free(ids);
    close_world(&w);
}

/*
 * Translations
 */

struct heard {
    const struct world *w;
    foci_batch          source;
};

/* The score is that of the whole; what has LONGEST tokens has no end. */
static int check(void *user, int64_t sentence, const int32_t *ids, int64_t n,
                 double score)
{
    const struct heard      *h = user;
    const foci_model_config *c = &h->w->m->config;
    int32_t                  in[MOST] = { c->specials[FOCI_SPECIAL_BOS] }, out[MOST];
    const bool               closed = n < LONGEST;

    (void)sentence;
    for (int64_t i = 0; i < n; i++)
        in[i + 1] = out[i] = ids[i];
    out[n] = closed ? c->specials[FOCI_SPECIAL_EOS] : -1;
    const double loss = loss_of(h->w, in, out, n + 1, &h->source);
    const double want = -loss / pow((5 + (double)(n + closed)) / 6, 0.6);
    if (!(fabs(score - want) < 1e-4))
        fail_msg("a translation scores %.7g; by its words it is %.7g", score, want);
    return 0;
}

static void translate_by(uint64_t seed)
{
    struct world  w = open_world(FOCI_MODEL_TRANSLATE, seed);
    int64_t       n = 0;
    int32_t      *ids = ids_of(w.tokenizer, "bc ab c", 7, 0, &n), words[MOST];
    const int32_t lens[] = { (int32_t)n };
    struct heard  h = { .w = &w };

    words_of(&w, ids, n, words);
    h.source = (foci_batch){ FOCI_SIZED(foci_batch), .batch = 1,
                             .source_len = n,        .source_ids = ids,
                             .source_words = words,  .source_lens = lens };
    for (int64_t beam = 1; beam <= 4; beam++) {
        foci_translate_options o = { FOCI_SIZED(foci_translate_options), .beam = beam,
                                     .longest = LONGEST };
        assert_int_equal(foci_translate(w.m, 1, ids, &n, &o, check, &h), FOCI_ERR_ARG);
        o.tokenizer = w.tokenizer;
        if (foci_translate(w.m, 1, ids, &n, &o, check, &h))
            fail_msg("%s", foci_errmsg(w.ctx));
    }
    free(ids);
    close_world(&w);
}

static void translate(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        translate_by(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate),
        cmocka_unit_test(translate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
