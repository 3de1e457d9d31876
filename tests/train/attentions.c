/* attentions.c -- the weights of a model's heads on a text, where they are known: uniform,
 * since all queries are zero, or those of a fixed pattern; and what a model reads of a text. */
#include <math.h>
#include <stdio.h>

#include "foci/analyse.h"
#include "support/counter.h"
#include "support/texts.h"

enum { CONTEXT = 16, HEADS = 2 };

struct seen {
    char  names[4][32];
    int   n, stop;
    int   sides[4][2];
    int   memory;
    char  why[200];
    float last[HEADS * CONTEXT * CONTEXT];
    int   rows, cols;
};

static int take(void *user, const foci_attention_weights *a)
{
    struct seen *s = user;

    assert_int_equal(a->index, s->n);
    assert_non_null(a->layer);
    snprintf(s->names[s->n], sizeof s->names[0], "%s", a->name);
    s->sides[s->n][0] = a->query_side;
    s->sides[s->n][1] = a->key_side;
    s->memory = (int)a->memory;
    s->rows = (int)a->queries;
    s->cols = (int)a->keys;
    assert_true((a->weights == NULL) == (a->why != NULL));
    if (a->why) snprintf(s->why, sizeof s->why, "%s", a->why);
    if (a->weights) {
        assert_int_equal(a->heads, HEADS);
        memcpy(s->last, a->weights,
               (size_t)(HEADS * a->queries * a->keys) * sizeof *s->last);
    }
    return ++s->n == s->stop;
}

/* A model that reads bytes; queries, and with them logits, are zero. */
static foci_model *make(foci_ctx *ctx, const foci_tokenizer *t, foci_model_kind task,
                        const char *spec)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config),
                            .task = task,
                            .vocab = foci_tokenizer_size(t),
                            .context = CONTEXT,
                            .layers = 1,
                            .width = 8,
                            .heads = HEADS,
                            .attention = spec,
                            .tokenizer = foci_tokenizer_fingerprint(t) };
    foci_model       *m = NULL;
    foci_param        p = { FOCI_SIZED(foci_param) };

    if (task == FOCI_MODEL_CLASSIFY) c.classes = 2;
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        c.specials[i] = foci_tokenizer_special(t, (foci_special)i);
    if (foci_model_create(ctx, &c, &m)) fail_msg("%s", foci_errmsg(ctx));
    for (int i = 0; i < foci_model_param_count(m); i++) {
        assert_int_equal(foci_model_param(m, i, &p), FOCI_OK);
        if (p.offset >= 0 && (strstr(p.name, "Wq") || strstr(p.name, "bq")))
            memset(foci_model_params(m) + p.offset, 0, (size_t)p.count * sizeof(float));
    }
    return m;
}

static foci_string string(const char *text)
{
    return (foci_string){ text, (int64_t)strlen(text) };
}

static foci_reading *reading_of(foci_ctx *ctx, foci_model *m, const foci_tokenizer *t,
                                const char *text, const char *source, int64_t most)
{
    foci_reading_options o = { FOCI_SIZED(foci_reading_options), .text = string(text),
                               .most = most };
    foci_reading        *r = NULL;

    if (source) o.source = string(source);
    if (foci_reading_create(m, t, &o, &r)) fail_msg("%s", foci_errmsg(ctx));
    return r;
}

static void expect(const struct seen *s, int h, int i, int j, double want)
{
    const double got = (double)s->last[(h * s->rows + i) * s->cols + j];
    if (fabs(got - want) > 1e-6)
        fail_msg("head %d, (%d, %d): %g, not %g", h, i, j, got, want);
}

/* A head of a pattern, and one that is uniform over what it may see; tensors of synthesizers
 * are as long as the context, so that the text is padded to it. */
static void known_weights(void **state)
{
    static const char *const specs[] = {
        "1*fixed(pattern=current) + 1*softmax",
        "1*softmax + 1*softmax",
        "1*synthesizer(kind=random) + 1*softmax",
    };
    static const char text[] = "abcde";
    enum { N = 5 };
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bytes", "");

    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (int causal = 0; causal < 2; causal++) {
            foci_model *m =
                make(ctx, t, causal ? FOCI_MODEL_LM : FOCI_MODEL_MLM, specs[k]);
            foci_reading *r = reading_of(ctx, m, t, text, NULL, 0);
            struct seen   s = { .n = 0 };
            assert_int_equal(foci_model_attentions(m, r->batch, 0, take, &s), FOCI_OK);
            assert_int_equal(s.n, 1);
            assert_string_equal(s.names[0], "block 0");
            assert_int_equal(s.rows, N);
            assert_int_equal(s.cols, N);
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N; j++) {
                    const bool sees = !causal || j <= i;
                    expect(&s, 1, i, j, sees ? 1.0 / (causal ? i + 1 : N) : 0);
                    if (k == 0) expect(&s, 0, i, j, i == j);
                }
            foci_reading_free(r);
            foci_model_free(m);
        }
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

static void translation(void **state)
{
    static const char *const names[] = { "encoder block 0", "decoder block 0",
                                         "decoder block 0 cross" };
    static const int         sides[][2] = { { 1, 1 }, { 0, 0 }, { 0, 1 } };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    foci_tokenizer          *t = train_text(ctx, "bytes", "");
    foci_model              *m = make(ctx, t, FOCI_MODEL_TRANSLATE, "softmax");
    foci_reading            *r = reading_of(ctx, m, t, "xy", "abc", 0);
    struct seen              s = { .n = 0 };

    (void)state;
    assert_int_equal(r->sides[0].n, 3);
    assert_string_equal(r->sides[0].tokens[0], "<bos>");
    assert_string_equal(r->sides[0].tokens[2], "y");
    assert_int_equal(r->sides[1].n, 4);
    assert_string_equal(r->sides[1].tokens[0], "a");
    assert_string_equal(r->sides[1].tokens[3], "<eos>");
    assert_int_equal(foci_model_attentions(m, r->batch, 0, take, &s), FOCI_OK);
    assert_int_equal(s.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(s.names[i], names[i]);
        assert_memory_equal(s.sides[i], sides[i], sizeof sides[i]);
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            expect(&s, 0, i, j, 0.25);
    foci_reading_free(r);

    r = reading_of(ctx, m, t, "", "abcdefghi", 4);
    assert_int_equal(r->sides[0].n, 1);
    assert_int_equal(r->sides[0].whole, 1);
    assert_int_equal(r->sides[1].n, 4);
    assert_int_equal(r->sides[1].whole, 10);
    assert_string_equal(r->sides[1].tokens[2], "c");
    assert_string_equal(r->sides[1].tokens[3], "<eos>");
    s = (struct seen){ .stop = 1 };
    assert_int_equal(foci_model_attentions(m, r->batch, 0, take, &s), FOCI_OK);
    assert_int_equal(s.n, 1);
    foci_reading_free(r);
    foci_model_free(m);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* Beside those of the sequence there are the keys of a memory, and heads of a convolution
 * read no queries. */
static void others(void **state)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bytes", "");
    foci_model     *m = make(ctx, t, FOCI_MODEL_LM, "xl(memory=3)");
    foci_reading   *r = reading_of(ctx, m, t, "abcd", NULL, 0);
    struct seen     s = { .n = 0 };

    (void)state;
    assert_int_equal(foci_model_attentions(m, r->batch, 0, take, &s), FOCI_OK);
    assert_int_equal(s.memory, 3);
    assert_int_equal(s.cols, 7);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 7; j++)
            expect(&s, 0, i, j, j <= i + 3 ? 1.0 / (i + 4) : 0);
    foci_reading_free(r);
    foci_model_free(m);

    m = make(ctx, t, FOCI_MODEL_LM, "routed(routes=2)");
    r = reading_of(ctx, m, t, "abcd", NULL, 0);
    s = (struct seen){ .n = 0 };
    assert_int_equal(foci_model_attentions(m, r->batch, 0, take, &s), FOCI_OK);
    assert_true(strlen(s.why) > 10);
    foci_reading_free(r);
    foci_model_free(m);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

static void texts(void **state)
{
    foci_ctx       *ctx = test_ctx(NULL, 1);
    foci_tokenizer *t = train_text(ctx, "bytes", "");
    foci_tokenizer *other = train_text(ctx, "chars", "abc");
    foci_model     *m = make(ctx, t, FOCI_MODEL_CLASSIFY, "softmax");
    foci_reading   *r = reading_of(ctx, m, t, "ab<mask>", NULL, 3);

    (void)state;
    assert_int_equal(r->sides[0].n, 3);
    assert_int_equal(r->sides[0].whole, 4);
    assert_int_equal(r->sides[1].n, 0);
    assert_string_equal(r->sides[0].tokens[0], "<bos>");
    foci_reading_free(r);
    r = reading_of(ctx, m, t, "a longer text than the context has", NULL, 0);
    assert_int_equal(r->sides[0].n, CONTEXT);
    assert_int_equal(r->batch->len, CONTEXT);
    foci_reading_free(r);
    foci_model_free(m);

    m = make(ctx, t, FOCI_MODEL_MLM, "1*fixed(words=1) + 1*softmax");
    r = reading_of(ctx, m, t, "ab<mask> c", NULL, 0);
    static const int32_t words[] = { 0, 0, 1, 2, 2 };
    assert_int_equal(r->sides[0].n, 5);
    assert_string_equal(r->sides[0].tokens[2], "<mask>");
    assert_memory_equal(r->batch->words, words, sizeof words);
    foci_reading_free(r);

    const struct {
        const foci_tokenizer *tokenizer;
        foci_reading_options  o;
        const char           *says;
    } wrong[] = {
        { NULL, { .text = string("a") }, "no tokenizer" },
        { other, { .text = string("a") }, "not that of the model" },
        { t, { .text = string("") }, "the text has no tokens" },
        { t, { .text = { NULL, 3 } }, "NULL" },
        { t, { .text = string("a"), .source = string("b") }, "only a translation" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        foci_reading_options o = wrong[i].o;
        o.size = sizeof o;
        assert_int_equal(foci_reading_create(m, wrong[i].tokenizer, &o, &r),
                         FOCI_ERR_ARG);
        assert_null(r);
        if (!strstr(foci_errmsg(ctx), wrong[i].says))
            fail_msg("%s, not %s", foci_errmsg(ctx), wrong[i].says);
    }
    foci_model_free(m);
    foci_tokenizer_free(other);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
}

/* Each allocation of a reading fails once: nothing is lost. */
static void allocations(void **state)
{
    struct counter             counter = { .left = -1 };
    const foci_options         o = { FOCI_SIZED(foci_options), .threads = 1,
                                     .alloc = count_alloc, .user = &counter };
    const foci_reading_options pair = { FOCI_SIZED(foci_reading_options),
                                        .text = string("a b"), .source = string("c") };
    foci_ctx                  *ctx = NULL;
    foci_status                status = FOCI_ERR_MEMORY;

    (void)state;
    assert_int_equal(foci_ctx_create(&o, &ctx), FOCI_OK);
    foci_tokenizer *t = train_text(ctx, "bytes", "");
    foci_model *m = make(ctx, t, FOCI_MODEL_TRANSLATE, "1*fixed(words=1) + 1*softmax");
    for (int64_t n = 0; status; n++) {
        foci_reading *r = NULL;
        const int64_t held = counter.held;
        counter.left = n;
        status = foci_reading_create(m, t, &pair, &r);
        counter.left = -1;
        assert_true(!status == (r != NULL));
        if (status) assert_int_equal(status, FOCI_ERR_MEMORY);
        foci_reading_free(r);
        assert_int_equal(counter.held, held);
        assert_true(n < 100);
    }
    foci_model_free(m);
    foci_tokenizer_free(t);
    foci_ctx_free(ctx);
    assert_int_equal(counter.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_weights), cmocka_unit_test(translation),
        cmocka_unit_test(others),        cmocka_unit_test(texts),
        cmocka_unit_test(allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
