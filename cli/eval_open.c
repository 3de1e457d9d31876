/* eval_open.c -- a trained model, and the data that it is looked at on. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"

const char *const eval_splits[] = { "train", "valid", "test" };

/* The command by which the model was trained, from the folder's train.json. */
static int read_trained(struct judged *j)
{
    const struct verb *train = NULL;

    if (!j->notes) j->notes = train_notes_read(j->a, j->a->words[0]);
    if (!j->notes) return EXIT_FAILED;
    const json_t *list = json_object_get(j->notes, "arguments");
    const size_t  n = json_array_size(list);
    char        **argv = need(n + 1, sizeof *argv);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        argv[i] = (char *)(text ? text : "");
    }
    for (int i = 0; verbs[i]; i++)
        if (!strcmp(verbs[i]->name, "train")) train = verbs[i];
    const int code = args_parse(train, (int)n, argv, &j->trained);
    free(argv);
    return code;
}

/* A split of what the model was trained on. */
static int find_split(struct judged *j, foci_data_split split)
{
    int code = read_trained(j);

    if (!code) code = train_sources_find(&j->trained, j->config.task, &j->sources);
    if (code) return code;
    j->from = j->sources.from[split];
    j->from.reverse |= opt_flag(j->a, "reverse");
    if (j->from.text || j->from.task) return EXIT_OK;
    return usage_error(
        j->a,
        "%s was trained on %s, of which no part is kept to test by: give "
        "--data FILE, or judge by --split valid",
        j->a->words[0], j->sources.from[0].text);
}

static int find_source(struct judged *j)
{
    const foci_data_split split =
        (foci_data_split)opt_word(j->a, "split", FOCI_DATA_SPLIT_TEST);

    if (!source_given(j->a)) return find_split(j, split);
    j->from = source_of(j->a, split);
    if (!j->from.task && split != FOCI_DATA_SPLIT_TEST)
        return usage_error(j->a,
                           "--split %s is of a generator, or of what the model was "
                           "trained on; %s is read whole",
                           eval_splits[split], j->from.text);
    return EXIT_OK;
}

/* Class names as in training. */
static void find_classes(struct judged *j)
{
    if (j->config.task != FOCI_MODEL_CLASSIFY || j->config.patch) return;
    if (!j->notes) j->notes = train_notes_read(j->a, j->a->words[0]);
    const json_t *list = json_object_get(j->notes, "classes");
    const size_t  n = json_array_size(list);
    if (!n) return;
    j->classes = need(n + 1, sizeof *j->classes);
    for (size_t i = 0; i < n; i++)
        j->classes[i] = json_string_value(json_array_get(list, i));
}

static struct data_shape shape_of(const struct judged *j)
{
    return (struct data_shape){
        .task = j->config.task,
        .tokenizer = j->tokenizer,
        .batch = opt_int(j->a, "batch", 16),
        .len = j->from.task ? 0 : j->config.context,
        .source_len = j->config.source_context,
        .patch = opt_int(j->a, "patch", 0),
        .words = foci_model_reads_words(j->model),
        .seed = 1,
        .stride = opt_int(j->a, "stride", 0),
        .examples = opt_int(j->a, "examples", 0),
        .order = FOCI_DATA_ORDER_ONCE,
        .classes = j->classes,
        .n_classes = j->config.classes,
    };
}

/* What was said in training.  Only what is drawn to test by is the same for all models. */
static void take_trained(const struct judged *j, struct data_shape *shape)
{
    const struct args *t = &j->trained;

    if (!shape->patch) shape->patch = opt_int(t, "patch", 0);
    shape->documents = (foci_data_documents)opt_word(t, "documents", 0);
    if (train_asks_memory(&j->config)) shape->order = FOCI_DATA_ORDER_ONCE_SEGMENTS;
    if (opt_word(j->a, "split", FOCI_DATA_SPLIT_TEST) != FOCI_DATA_SPLIT_TEST)
        shape->seed = (uint64_t)opt_int(t, "seed", 1);
}

/* Where a file has too few lines for a tenth of them, all of them train. */
static int open_part(struct judged *j, const struct data_shape *shape)
{
    const struct train_source *kept = &j->sources.from[FOCI_DATA_SPLIT_VALID];
    const bool                 trains = j->from.begin == 0;
    int code = data_open_part(j->a, j->ctx, kept, shape, &j->data);

    if (code || (j->data && !trains)) return code;
    if (!j->data && !trains)
        return failure(
            j->a,
            "%s has too few lines for a tenth of them to validate by: all of "
            "them trained",
            j->from.text);
    if (!j->data) j->from.end = 0;
    foci_data_free(j->data);
    j->data = NULL;
    return data_open(j->a, j->ctx, &j->from, shape, &j->data);
}

static int open_data(struct judged *j)
{
    struct data_shape shape = shape_of(j);
    int               code = EXIT_OK;

    /* The model knows how large patches are, not what they are cut from. */
    if (j->config.patch && !shape.patch && !j->trained.verb) code = read_trained(j);
    if (code) return code;
    if (j->trained.verb) take_trained(j, &shape);
    return j->from.end > 0 ? open_part(j, &shape)
                           : data_open(j->a, j->ctx, &j->from, &shape, &j->data);
}

int eval_open(const struct args *a, struct judged *j)
{
    *j = (struct judged){ .a = a, .config = { FOCI_SIZED(foci_model_config) } };
    j->ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!j->ctx) return EXIT_FAILED;
    int code = model_open(a, j->ctx, &j->model, &j->tokenizer);
    if (!code) {
        foci_model_get_config(j->model, &j->config);
        code = find_source(j);
    }
    if (code) return code;
    find_classes(j);
    return open_data(j);
}

void eval_close(struct judged *j)
{
    foci_data_free(j->data);
    foci_model_free(j->model);
    foci_tokenizer_free(j->tokenizer);
    if (j->trained.verb) args_free(&j->trained);
    json_decref(j->notes);
    free(j->classes);
    foci_ctx_free(j->ctx);
}
