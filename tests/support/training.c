/* training.c -- a model in training on a generated task. */
#define _XOPEN_SOURCE 700

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

#include "support/training.h"

foci_model_config training_small(const char *spec)
{
    return (foci_model_config){ FOCI_SIZED(foci_model_config),
                                .layers = 2,
                                .width = 16,
                                .heads = 4,
                                .ffn = 32,
                                .attention = spec,
                                .seed = 7 };
}

static foci_data *open_data(const struct training *t, foci_data_split split)
{
    const foci_data_options o = {
        FOCI_SIZED(foci_data_options),
        .kind = FOCI_DATA_TASK,
        .task = t->task,
        .split = split,
        .batch = t->batch ? t->batch : 8,
        .order = split == FOCI_DATA_SPLIT_TRAIN ? t->order : FOCI_DATA_ORDER_ONCE,
        .examples = split == FOCI_DATA_SPLIT_TRAIN ? 0 : 20,
        .seed = 3,
    };
    foci_data *data = NULL;
    if (foci_data_open(t->ctx, &o, &data))
        fail_msg("%s: %s", t->task, foci_errmsg(t->ctx));
    return data;
}

static void fit_config(struct training *t)
{
    foci_model_config *c = &t->config;
    foci_data_info     info = { FOCI_SIZED(foci_data_info) };

    assert_int_equal(foci_data_get_info(t->train, &info), FOCI_OK);
    const bool translates = info.kind == FOCI_DATA_TRANSLATE;
    c->task = info.kind == FOCI_DATA_LM         ? FOCI_MODEL_LM
              : info.kind == FOCI_DATA_MLM      ? FOCI_MODEL_MLM
              : info.kind == FOCI_DATA_CLASSIFY ? FOCI_MODEL_CLASSIFY
                                                : FOCI_MODEL_TRANSLATE;
    c->vocab = info.vocab;
    c->context = info.len;
    if (translates) c->source_context = info.source_len;
    if (translates) c->source_vocab = info.source_vocab;
    if (info.kind == FOCI_DATA_CLASSIFY) c->classes = info.n_classes;
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        c->specials[i] = i < 3 ? i : -1;
}

void training_open(struct training *t, int threads)
{
    t->ctx = test_ctx(NULL, threads);
    t->train = open_data(t, FOCI_DATA_SPLIT_TRAIN);
    if (t->validates) t->valid = open_data(t, FOCI_DATA_SPLIT_VALID);
    fit_config(t);
    t->options.size = sizeof t->options;
    if (foci_model_create(t->ctx, &t->config, &t->model) ||
        foci_trainer_create(t->model, t->train, t->valid, NULL, &t->options,
                            &t->trainer))
        fail_msg("%s, %s: %s", t->task, t->config.attention, foci_errmsg(t->ctx));
}

void training_close(struct training *t)
{
    foci_trainer_free(t->trainer);
    foci_model_free(t->model);
    foci_data_free(t->train);
    foci_data_free(t->valid);
    foci_ctx_free(t->ctx);
    t->trainer = NULL;
    t->model = NULL;
    t->train = t->valid = NULL;
    t->ctx = NULL;
}

void training_run(struct training *t)
{
    if (foci_trainer_run(t->trainer))
        fail_msg("%s, %s: %s", t->task, t->config.attention, foci_errmsg(t->ctx));
}

void training_folder(char path[64])
{
    strcpy(path, "/tmp/foci-train-XXXXXX");
    if (!mkdtemp(path)) fail_msg("no folder %s", path);
}

static int remove_entry(const char *path, const struct stat *st, int flag,
                        struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void training_remove(const char *path)
{
    enum { OPEN = 8 };
    nftw(path, remove_entry, OPEN, FTW_DEPTH | FTW_PHYS);
}
