/* labels.c -- an evaluation label by label: sums are those of the whole, and each label has
 * what decoding token by token gives it. */
#include <math.h>

#include "support/training.h"
#include "train/pass.h"

/* What was told, added up. */
struct told {
    foci_model *model;
    double      nats;
    int64_t     labels, hits, batches, stop; /* 0: at the end of the data */
    double      off;    /* largest difference from what steps give */
    int64_t     others; /* labels whose likeliest token is another by steps */
};

static double cost_of(const float *logits, int64_t n, int32_t label, int32_t *best)
{
    double sum = 0;

    *best = 0;
    for (int64_t v = 0; v < n; v++) {
        sum += exp((double)logits[v]);
        if (logits[v] > logits[*best]) *best = (int32_t)v;
    }
    return log(sum) - (double)logits[label];
}

/* The labels of one row, from number `at` on, through the states of an lm. */
static int64_t by_steps(struct told *t, const foci_batch *b, int64_t row, int64_t at,
                        const float *nats, const int32_t *best)
{
    const int64_t   vocab = t->model->config.vocab;
    float          *logits = test_alloc((size_t)vocab, sizeof *logits);
    foci_sequences *s;

    assert_int_equal(foci_sequences_create(t->model, 1, &s), FOCI_OK);
    for (int64_t i = row * b->len; i < row * b->len + b->lens[row]; i++) {
        int32_t likeliest;
        assert_int_equal(foci_sequences_step(s, NULL, b->ids + i, NULL, logits),
                         FOCI_OK);
        if (b->labels[i] < 0) continue;
        assert_int_equal(b->label_at[at], i);
        const double cost = cost_of(logits, vocab, b->labels[i], &likeliest);
        t->off = fmax(t->off, fabs(cost - (double)nats[at]));
        t->others += best[at++] != likeliest;
    }
    foci_sequences_free(s);
    free(logits);
    return at;
}

static int hear(void *user, const foci_batch *b, const float *nats, const int32_t *best)
{
    struct told *t = user;
    int64_t      at = 0;

    for (int64_t i = 0; i < b->n_labels; i++) {
        const int32_t label = b->classes ? b->classes[i] : b->labels[b->label_at[i]];
        t->nats += (double)nats[i];
        t->hits += best[i] == label;
    }
    t->labels += b->n_labels;
    for (int64_t row = 0; row < b->batch && !b->classes; row++)
        at = by_steps(t, b, row, at, nats, best);
    return ++t->batches == t->stop;
}

static void check(const char *task, const char *spec, foci_dtype dtype, double bound)
{
    struct training t = {
        .task = task, .batch = 2, .validates = true, .config = training_small(spec)
    };
    foci_scores all = { FOCI_SIZED(foci_scores) }, same = all;

    t.config.dtype = dtype;
    t.options = (foci_train_options){ .steps = 20, .rate = 3e-3 };
    training_open(&t, 2);
    training_run(&t);
    struct told told = { .model = t.model };
    assert_int_equal(foci_evaluate(t.model, t.valid, 0, &all), FOCI_OK);
    assert_int_equal(foci_evaluate_labels(t.model, t.valid, 0, hear, &told, &same),
                     FOCI_OK);
    assert_true(all.nats == same.nats && all.tokens == same.tokens);
    assert_int_equal(told.labels, all.tokens);
    assert_true(fabs(told.nats - all.nats) < 1e-6 * all.nats);
    assert_true(fabs((double)told.hits / (double)told.labels - all.accuracy) < 1e-12);
    if (!(told.off <= bound)) fail_msg("%s: steps differ by %g", spec, told.off);
    if (dtype == FOCI_F32) assert_int_equal(told.others, 0);

    struct told first = { .model = t.model, .stop = 1 };
    assert_int_equal(foci_evaluate_labels(t.model, t.valid, 0, hear, &first, &same),
                     FOCI_OK);
    assert_int_equal(first.batches, 1);
    assert_int_equal(same.tokens, first.labels);
    training_close(&t);
}

static const char row_task[] = "copy(symbols=6, least=5, longest=7, test=7, form=row)";

static void rows(void **state)
{
    (void)state;
    check(row_task, "softmax", FOCI_F32, 1e-4);
    check(row_task, "linear", FOCI_F32, 1e-4);
}

/* Short batches are padded to the context, which moves labels. */
static void padded(void **state)
{
    (void)state;
    check("copy(symbols=6, least=1, longest=9, test=9, form=row)",
          "synthesizer(random)", FOCI_F32, 1e-4);
}

static void bf16(void **state)
{
    (void)state;
    check(row_task, "softmax", FOCI_BF16, 0.2);
}

static void classes(void **state)
{
    (void)state;
    check("listops(depth=2, arguments=3, least=3, most=12)", "softmax", FOCI_F32, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(padded),
        cmocka_unit_test(bf16),
        cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
