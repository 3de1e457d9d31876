/* alloc.c -- each allocation of a model, its training, its folder and its decoding fails once:
 * an error, a sentence, and nothing is lost. */
#include <stdio.h>

#include "foci/analyse.h"
#include "support/counter.h"
#include "support/training.h"

struct scene {
    foci_ctx         *ctx;
    foci_model       *model;
    foci_data        *data;
    foci_trainer     *trainer;
    const char       *task, *folder;
    foci_model_config config;
};

static int told(void *user, int32_t token)
{
    (void)user;
    return token < 0;
}

static int translated(void *user, int64_t sentence, const int32_t *ids, int64_t n,
                      double score)
{
    (void)user;
    (void)ids;
    return sentence < 0 || n < 0 || score > 0;
}

static int look(void *user, const foci_observation *o)
{
    double       figures[8];
    foci_status *status = user;

    *status = foci_layer_concentration(o->layer, o->io, figures);
    if (!*status) *status = foci_layer_softmax_errors(o->layer, o->io, figures);
    return *status != FOCI_OK;
}

static int weigh(void *user, const foci_attention_weights *a)
{
    (void)user;
    return !a->weights;
}

static int hear(void *user, const foci_batch *batch, const float *nats,
                const int32_t *best)
{
    (void)user;
    return !batch->n_labels || !nats || !best;
}

/* Judged, counted and looked at, a part of the batch alone. */
static foci_status judge(struct scene *s)
{
    foci_scores scores = { FOCI_SIZED(foci_scores) };
    foci_cost   cost = { FOCI_SIZED(foci_cost) };
    foci_batch  batch = { FOCI_SIZED(foci_batch) };
    foci_status seen = FOCI_OK;

    TRY(foci_evaluate_labels(s->model, s->data, 1, hear, NULL, &scores));
    TRY(foci_model_cost(s->model, 2, 2, 0, &cost));
    TRY(foci_data_next(s->data, &batch));
    TRY(foci_model_attentions(s->model, &batch, 1, weigh, NULL));
    TRY(foci_model_observe(s->model, &batch, 1, 1, look, &seen));
    return seen;
}

static foci_status use(struct scene *s)
{
    const int32_t ids[] = { 3, 4, 5 };
    const int64_t lens[] = { 2, 1 };

    if (s->config.task == FOCI_MODEL_TRANSLATE)
        return foci_translate(
            s->model, 2, ids, lens,
            &(foci_translate_options){ FOCI_SIZED(foci_translate_options), .beam = 2,
                                       .longest = 3 },
            translated, NULL);
    TRY(foci_evaluate_steps(s->model, s->data, 1, NULL, NULL,
                            &(foci_scores){ FOCI_SIZED(foci_scores) }));
    return foci_generate(s->model, ids, 3, 3, NULL, told, NULL);
}

static foci_status play(struct scene *s)
{
    const foci_data_options d = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = s->task, .batch = 2, .seed = 1 };
    const foci_train_options o = { FOCI_SIZED(foci_train_options), .steps = 2,
                                   .folder = s->folder };
    foci_model              *copy = NULL;

    TRY(foci_data_open(s->ctx, &d, &s->data));
    TRY(foci_model_create(s->ctx, &s->config, &s->model));
    TRY(foci_trainer_create(s->model, s->data, NULL, NULL, &o, &s->trainer));
    TRY(foci_trainer_run(s->trainer));
    TRY(use(s));
    TRY(judge(s));
    const foci_status status = foci_model_load(s->ctx, s->folder, &copy, NULL);
    foci_model_free(copy);
    return status;
}

static foci_status once(struct scene *s, struct counter *c)
{
    const foci_options o = { FOCI_SIZED(foci_options), .threads = 1,
                             .alloc = count_alloc, .user = c };
    struct scene       x = *s;
    const int64_t      left = c->left;

    c->left = -1;
    if (foci_ctx_create(&o, &x.ctx)) fail_msg("%s", foci_errmsg(NULL));
    c->left = left;
    const foci_status status = play(&x);
    if (status == FOCI_ERR_MEMORY) assert_true(strlen(foci_errmsg(x.ctx)) > 5);
    c->left = -1;
    foci_trainer_free(x.trainer);
    foci_model_free(x.model);
    foci_data_free(x.data);
    foci_ctx_free(x.ctx);
    return status;
}

static void fail_each(struct scene *s)
{
    char folder[64];

    training_folder(folder);
    s->folder = folder;
    const int64_t step = getenv("FOCI_TEST_SHORT") ? 17 : 1;
    for (int64_t n = 0;; n += step) {
        struct counter    c = { .left = n };
        const foci_status status = once(s, &c);
        if (c.held)
            fail_msg("allocation %lld: %lld bytes are lost", (long long)n,
                     (long long)c.held);
        if (status == FOCI_OK) break;
        if (status != FOCI_ERR_MEMORY)
            fail_msg("allocation %lld: status %d", (long long)n, (int)status);
    }
    training_remove(folder);
}

static void lm(void **state)
{
    struct scene s = { .task = "copy(symbols=6, least=1, longest=3, test=3, form=row)",
                       .config =
                           training_small("1*softmax frozen(orthogonal) + 3*softmax") };

    (void)state;
    s.config.layers = 1;
    s.config.task = FOCI_MODEL_LM;
    s.config.vocab = 11;
    s.config.context = 7;
    s.config.conv = 2;
    s.config.positions = FOCI_POSITIONS_ROPE;
    fail_each(&s);
}

static void translate(void **state)
{
    struct scene s = { .task = "copy(symbols=6, least=1, longest=3, test=3)",
                       .config = training_small("softmax") };

    (void)state;
    s.config.layers = 1;
    s.config.task = FOCI_MODEL_TRANSLATE;
    s.config.vocab = 11;
    s.config.context = s.config.source_context = 5;
    s.config.positions = FOCI_POSITIONS_SINUSOID;
    s.config.specials[FOCI_SPECIAL_BOS] = 1;
    s.config.specials[FOCI_SPECIAL_EOS] = 2;
    fail_each(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lm),
                                        cmocka_unit_test(translate) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
