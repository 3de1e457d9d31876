/* evaluate_steps.c -- scores by decoding against those of whole sequences: within the context,
 * and beyond it against a model of the same parameters with a longer one. */
#include <math.h>
#include <stdio.h>

#include "foci/train.h"
#include "test.h"

enum { CONTEXT = 24, LONGER = 60, VOCAB = 16 };

static foci_model_config config(const char *spec)
{
    return (foci_model_config){ FOCI_SIZED(foci_model_config),
                                .task = FOCI_MODEL_LM,
                                .vocab = VOCAB,
                                .context = CONTEXT,
                                .layers = 2,
                                .width = 16,
                                .heads = 2,
                                .ffn = 24,
                                .attention = spec,
                                .positions = FOCI_POSITIONS_NONE,
                                .seed = 5 };
}

/* Parameters that make a difference. */
static void disturb(foci_model *m)
{
    struct rng r;

    rng_seed(&r, 4, 0);
    for (int64_t i = 0; i < foci_model_param_floats(m); i++)
        foci_model_params(m)[i] += (float)(0.2 * rng_normal(&r));
}

static foci_model *make(foci_ctx *ctx, const foci_model_config *c)
{
    foci_model *m = NULL;

    if (foci_model_create(ctx, c, &m)) fail_msg("%s", foci_errmsg(ctx));
    disturb(m);
    return m;
}

static foci_data *open_data(foci_ctx *ctx, const char *task)
{
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_TASK,
                                  .task = task,
                                  .batch = 5, /* the last batch has fewer */
                                  .examples = 12,
                                  .seed = 1,
                                  .split = FOCI_DATA_SPLIT_TEST,
                                  .order = FOCI_DATA_ORDER_ONCE };
    foci_data              *d = NULL;

    if (foci_data_open(ctx, &o, &d)) fail_msg("%s: %s", task, foci_errmsg(ctx));
    return d;
}

static void compare(const char *what, const foci_scores *steps,
                    const foci_scores *whole, double bound)
{
    assert_int_equal(steps->tokens, whole->tokens);
    if (!(fabs(steps->nats - whole->nats) <= bound * whole->nats))
        fail_msg("%s: by steps %.9g nats, at once %.9g", what, steps->nats, whole->nats);
    /* A label that another token is as likely as may fall to either side. */
    if (!(fabs(steps->accuracy - whole->accuracy) * (double)whole->tokens <= 1))
        fail_msg("%s: by steps accuracy %g, at once %g", what, steps->accuracy,
                 whole->accuracy);
    assert_true(steps->perplexity > 1 && steps->loss > 0);
}

/*
 * Within the context
 */

/* What was told of each label. */
struct told {
    int64_t n;
    float   nats[12 * CONTEXT];
};

static int listen(void *user, const foci_batch *b, const float *nats,
                  const int32_t *best)
{
    struct told *t = user;

    for (int64_t i = 0; i < b->n_labels; i++) {
        assert_in_range(best[i], 0, VOCAB - 1);
        t->nats[t->n++] = nats[i];
    }
    return 0;
}

static void check_within(foci_ctx *ctx, const foci_model_config *c, const char *task)
{
    const double bound = c->dtype == FOCI_BF16 ? 2e-1 : 2e-4;
    foci_model  *m = make(ctx, c);
    foci_data   *d = open_data(ctx, task);
    foci_scores  steps = { FOCI_SIZED(foci_scores) }, whole = steps;
    struct told  one = { 0 }, other = { 0 };

    if (foci_evaluate_labels(m, d, 0, listen, &one, &whole) ||
        foci_evaluate_steps(m, d, 0, listen, &other, &steps))
        fail_msg("%s: %s", task, foci_errmsg(ctx));
    compare(task, &steps, &whole, c->dtype == FOCI_BF16 ? 2e-2 : 2e-5);
    assert_int_equal(one.n, whole.tokens);
    assert_int_equal(other.n, whole.tokens);
    for (int64_t i = 0; i < one.n; i++)
        if (!(fabs((double)(one.nats[i] - other.nats[i])) <=
              bound * (1 + (double)one.nats[i])))
            fail_msg("%s: label %d: by steps %g nats, at once %g", task, (int)i,
                     (double)other.nats[i], (double)one.nats[i]);
    assert_true(fabs(steps.exact - whole.exact) <= 1 / 12.0 + 1e-9);
    /* So many batches, from the beginning. */
    if (foci_evaluate(m, d, 1, &whole) ||
        foci_evaluate_steps(m, d, 1, NULL, NULL, &steps))
        fail_msg("%s: %s", task, foci_errmsg(ctx));
    compare(task, &steps, &whole, c->dtype == FOCI_BF16 ? 2e-2 : 2e-5);
    foci_data_free(d);
    foci_model_free(m);
}

/* Labels at few places, at most, at different ones in each row; rows of different lengths. */
static void within(void **state)
{
    static const char *const tasks[] = {
        "induction(vocab=15, length=24, test=24)",
        "ngram(symbols=9, n=2, length=24)",
        "mqar(vocab=16, length=20, pairs=4, power=0.5)",
        "copy(symbols=11, longest=11, test=11, form=row)",
    };
    foci_ctx         *ctx = test_ctx(NULL, 2);
    foci_model_config c = config("1*softmax rope + 1*linear");

    (void)state;
    for (int i = 0; i < 4; i++)
        check_within(ctx, &c, tasks[i]);
    c.conv = 3;
    c.positions = FOCI_POSITIONS_SINUSOID;
    check_within(ctx, &c, tasks[2]);
    c.dtype = FOCI_BF16;
    check_within(ctx, &c, tasks[3]);
    c = config("softmax");
    c.positions = FOCI_POSITIONS_LEARNED;
    check_within(ctx, &c, tasks[1]);
    foci_ctx_free(ctx);
}

/*
 * Beyond the context
 */

static const char longer_task[] = "induction(vocab=15, length=60, test=60)";
static const char longer_text[] = "ngram(symbols=9, n=2, length=60)";

/* A model of the same parameters whose context is longer; NULL: its tensors are others. */
static foci_model *lengthen(foci_ctx *ctx, const foci_model *m)
{
    foci_model_config c = { FOCI_SIZED(foci_model_config) };
    foci_model       *longer = NULL;
    const int64_t     n = foci_model_param_floats(m);

    assert_int_equal(foci_model_get_config(m, &c), FOCI_OK);
    c.context = LONGER;
    if (foci_model_create(ctx, &c, &longer)) return NULL;
    if (foci_model_param_floats(longer) == n) {
        memcpy(foci_model_params(longer), foci_model_params((foci_model *)m),
               (size_t)n * sizeof(float));
        return longer;
    }
    foci_model_free(longer);
    return NULL;
}

/* Whether states went on; what cannot is refused by name. */
static bool check_beyond(foci_ctx *ctx, const foci_model_config *c, const char *name,
                         const char *task)
{
    foci_model *m = make(ctx, c), *longer = lengthen(ctx, m);
    foci_data  *d = open_data(ctx, task);
    foci_scores steps = { FOCI_SIZED(foci_scores) }, whole = steps;

    const foci_status status = foci_evaluate_steps(m, d, 0, NULL, NULL, &steps);
    if (status) {
        assert_int_equal(status, FOCI_ERR_UNSUP);
        if (!strstr(foci_errmsg(ctx), name))
            fail_msg("%s: \"%s\"", name, foci_errmsg(ctx));
    } else if (!longer) {
        fail_msg("%s: went beyond its parameters", name);
    } else {
        if (foci_evaluate(longer, d, 0, &whole)) fail_msg("%s", foci_errmsg(ctx));
        compare(name, &steps, &whole, 5e-5);
    }
    foci_data_free(d);
    foci_model_free(longer);
    foci_model_free(m);
    return !status;
}

static void beyond(void **state)
{
    static const foci_positions kinds[] = { FOCI_POSITIONS_NONE, FOCI_POSITIONS_ROPE,
                                            FOCI_POSITIONS_SINUSOID };
    foci_ctx                   *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < 3; i++) {
        foci_model_config c = config("1*softmax + 1*retention");
        c.positions = kinds[i];
        c.conv = i;
        assert_true(check_beyond(ctx, &c, "softmax", longer_task));
        assert_true(check_beyond(ctx, &c, "softmax", longer_text));
    }
    foci_ctx_free(ctx);
}

/* What would follow from the length if it were not given, and be other in longer texts. */
static const char *given(const char *mechanism)
{
    if (!strcmp(mechanism, "strided")) return "strided(stride=5)";
    if (!strcmp(mechanism, "sparse_fixed")) return "sparse_fixed(stride=5)";
    if (!strcmp(mechanism, "routing")) return "routing(clusters=5)";
    return mechanism;
}

/* Every mechanism that a model of texts may have: it goes on as one that was planned for
 * longer texts, or it says that it cannot. */
static void all_mechanisms(void **state)
{
    foci_ctx            *ctx = test_ctx(NULL, 2);
    const foci_mech_def *def;
    int                  went_on = 0;

    (void)state;
    for (int i = 0; (def = foci_mechanism(ctx, i)); i++) {
        foci_model_config c = config(given(def->name));
        foci_model       *m = NULL;
        if (foci_model_create(ctx, &c, &m)) continue;
        foci_model_free(m);
        if (strcmp(def->name, "xl") != 0)
            check_within(ctx, &c, "ngram(symbols=9, n=2, length=24)");
        went_on += check_beyond(ctx, &c, def->name, longer_text);
    }
    assert_true(went_on >= 20);
    foci_ctx_free(ctx);
}

/*
 * Refusals and memory
 */

static void refused(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 1);
    foci_model_config c = config("softmax");
    foci_scores       s = { FOCI_SIZED(foci_scores) };
    foci_data        *d = open_data(ctx, longer_task);
    foci_sequences   *q = NULL;

    (void)state;
    c.positions = FOCI_POSITIONS_LEARNED;
    foci_model *m = make(ctx, &c);
    assert_int_equal(foci_evaluate_steps(m, d, 0, NULL, NULL, &s), FOCI_ERR_UNSUP);
    assert_string_equal(foci_errmsg(ctx),
                        "positions were learned for 24 tokens, and there are none for "
                        "the others up to 60; sinusoid, rope and none go on");
    assert_int_equal(foci_sequences_create(m, 1, &q), FOCI_OK);
    assert_int_equal(foci_sequences_extend(q, CONTEXT), FOCI_OK);
    assert_int_equal(foci_sequences_extend(q, CONTEXT - 1), FOCI_ERR_ARG);
    assert_string_equal(
        foci_errmsg(ctx),
        "sequences of up to 23 tokens: it may be 24, the context, to 2147483647");
    foci_sequences_free(q);
    foci_model_free(m);

    c.positions = FOCI_POSITIONS_NONE;
    m = make(ctx, &c);
    const int32_t ids[3] = { 1, 2, 3 }, many = 3, last = 1;
    assert_int_equal(foci_sequences_create(m, 1, &q), FOCI_OK);
    assert_int_equal(foci_sequences_extend(q, CONTEXT + 1), FOCI_OK);
    for (int i = 0; i < CONTEXT; i += 3)
        assert_int_equal(foci_sequences_step(q, &many, ids, NULL, NULL), FOCI_OK);
    assert_int_equal(foci_sequences_step(q, &last, ids, NULL, NULL), FOCI_OK);
    assert_int_equal(foci_sequences_step(q, &last, ids, NULL, NULL), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(ctx),
                        "sequence 0 has 25 tokens and gets 1 more: it "
                        "gets 1 at least, and the longest is 25");
    foci_sequences_free(q);
    foci_model_free(m);

    c.task = FOCI_MODEL_MLM;
    m = make(ctx, &c);
    assert_int_equal(foci_evaluate_steps(m, d, 0, NULL, NULL, &s), FOCI_ERR_UNSUP);
    assert_string_equal(foci_errmsg(ctx),
                        "only a model of task lm is evaluated token by token");
    foci_model_free(m);
    foci_data_free(d);

    /* Tokens that the model does not have. */
    c = config("softmax");
    c.vocab = 8;
    m = make(ctx, &c);
    d = open_data(ctx, longer_text);
    assert_int_equal(foci_evaluate_steps(m, d, 0, NULL, NULL, &s), FOCI_ERR_ARG);
    foci_model_free(m);
    foci_data_free(d);
    foci_ctx_free(ctx);
}

/* Bytes that are held, and the most that were. */
struct ledger {
    int64_t held, most;
};

static void *count_bytes(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    struct ledger *l = user;

    l->held += (int64_t)new_bytes - (int64_t)(old ? old_bytes : 0);
    l->most = max64(l->most, l->held);
    return default_alloc(NULL, old, old_bytes, new_bytes);
}

static int64_t most_bytes(const char *spec, foci_positions positions, const char *task)
{
    struct ledger      l = { 0 };
    const foci_options o = { FOCI_SIZED(foci_options), .threads = 1,
                             .alloc = count_bytes, .user = &l };
    foci_ctx          *ctx = NULL, *other = test_ctx(NULL, 1);
    foci_model_config  c = config(spec);
    foci_scores        s = { FOCI_SIZED(foci_scores) };

    c.positions = positions;
    if (foci_ctx_create(&o, &ctx)) fail_msg("%s", foci_errmsg(NULL));
    foci_model *m = make(ctx, &c);
    foci_data  *d = open_data(other, task);
    if (foci_evaluate_steps(m, d, 1, NULL, NULL, &s)) fail_msg("%s", foci_errmsg(ctx));
    foci_data_free(d);
    foci_model_free(m);
    foci_ctx_free(ctx);
    foci_ctx_free(other);
    assert_int_equal(l.held, 0);
    return l.most;
}

/* A state that does not grow needs no more memory for longer texts; keys do. */
static void memory_is_that_of_states(void **state)
{
    static const char first[] = "induction(vocab=15, test=2000)";
    static const char second[] = "induction(vocab=15, test=8000)";

    (void)state;
    for (int i = 0; i < 2; i++) {
        const foci_positions p = i ? FOCI_POSITIONS_SINUSOID : FOCI_POSITIONS_ROPE;
        assert_int_equal(most_bytes("1*linear + 1*local(window=5)", p, first),
                         most_bytes("1*linear + 1*local(window=5)", p, second));
    }
    assert_true(most_bytes("softmax", FOCI_POSITIONS_ROPE, first) <
                most_bytes("softmax", FOCI_POSITIONS_ROPE, second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within),
        cmocka_unit_test(beyond),
        cmocka_unit_test(all_mechanisms),
        cmocka_unit_test(refused),
        cmocka_unit_test(memory_is_that_of_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
