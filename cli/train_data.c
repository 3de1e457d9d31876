/* train_data.c -- sets of examples, and models with their folders. */
#include <string.h>

#include "cli/train.h"

static foci_data_kind kind_of(const struct train_source *from, foci_model_kind task)
{
    if (from->task) return FOCI_DATA_TASK;
    switch (task) {
    case FOCI_MODEL_LM: return FOCI_DATA_LM;
    case FOCI_MODEL_MLM: return FOCI_DATA_MLM;
    case FOCI_MODEL_TRANSLATE: return FOCI_DATA_TRANSLATE;
    case FOCI_MODEL_CLASSIFY: break;
    }
    return path_is_array(from->text) ? FOCI_DATA_IMAGES : FOCI_DATA_CLASSIFY;
}

static bool is_archive(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && strcmp(path + n - 4, ".npz") == 0;
}

/* Of an archive without the name of an array, the one that is usual. */
static int open_text(const struct args *a, const char *path, bool labels,
                     foci_reader *reader)
{
    return is_archive(path) ? npz_open_part(a, path, labels, reader)
                            : text_open(a, path, reader);
}

static int open_set(const struct args *a, foci_ctx *ctx,
                    const struct train_source *from, const struct data_shape *shape,
                    foci_data **data, foci_status *status)
{
    enum { MULTIPLE = 8 };
    /* Images and labels may be in one archive. */
    const char *other =
        from->target || !is_archive(from->text) ? from->target : from->text;
    foci_reader       text = { 0 }, target = { 0 };
    foci_data_options o = {
        FOCI_SIZED(foci_data_options),
        .kind = kind_of(from, shape->task),
        .task = from->task,
        .split = from->split,
        .reverse = from->reverse,
        .tokenizer = shape->tokenizer,
        .part_begin = from->begin,
        .part_end = from->end,
        .batch = shape->batch,
        .len = shape->len,
        .source_len = shape->source_len,
        .tokens = shape->batch_tokens,
        .multiple = MULTIPLE,
        .order = shape->order,
        .documents = shape->documents,
        .stride = shape->stride,
        .words = shape->words,
        .patch = shape->patch,
        .classes = shape->classes,
        .n_classes = shape->n_classes,
        .seed = shape->seed,
        /* Files are judged as a whole. */
        .examples =
            from->task || from->split == FOCI_DATA_SPLIT_TRAIN ? shape->examples : 0,
    };

    if (from->text && open_text(a, from->text, false, &text)) return EXIT_FAILED;
    if (other && open_text(a, other, true, &target)) {
        foci_reader_close(&text);
        return EXIT_FAILED;
    }
    if (from->text) o.source = &text;
    if (other) o.target = &target;
    *status = foci_data_open(ctx, &o, data);
    return EXIT_OK;
}

int data_open(const struct args *a, foci_ctx *ctx, const struct train_source *from,
              const struct data_shape *shape, foci_data **data)
{
    foci_status status = FOCI_OK;

    const int code = open_set(a, ctx, from, shape, data, &status);
    return !code && status ? library_error(a, ctx, status, NULL) : code;
}

int data_open_part(const struct args *a, foci_ctx *ctx, const struct train_source *from,
                   const struct data_shape *shape, foci_data **data)
{
    foci_status status = FOCI_OK;

    const int code = open_set(a, ctx, from, shape, data, &status);
    return !code && status && status != FOCI_ERR_FILE
               ? library_error(a, ctx, status, NULL)
               : code;
}

bool source_given(const struct args *a)
{
    return opt_text(a, "data") || opt_text(a, "source") || opt_text(a, "task");
}

struct train_source source_of(const struct args *a, foci_data_split split)
{
    const char *one = opt_text(a, "data");

    return (struct train_source){
        .text = one ? one : opt_text(a, "source"),
        .target = opt_text(a, "labels") ? opt_text(a, "labels") : opt_text(a, "target"),
        .task = opt_text(a, "task"),
        .split = split,
        .reverse = opt_flag(a, "reverse"),
    };
}

int model_open(const struct args *a, foci_ctx *ctx, foci_model **model,
               foci_tokenizer **tokenizer)
{
    const foci_status status = foci_model_load(ctx, a->words[0], model, tokenizer);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

json_t *json_object_read(const struct args *a, const char *path)
{
    json_error_t error;
    json_t      *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

    if (json_is_object(root)) return root;
    if (root)
        failure(a, "%s: is no object of JSON", path);
    else if (error.line < 0)
        failure(a, "%s", error.text); /* which names the file */
    else
        failure(a, "%s: line %d: %s", path, error.line, error.text);
    json_decref(root);
    return NULL;
}

json_t *train_notes_read(const struct args *a, const char *folder)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/train.json", folder);
    return json_object_read(a, path);
}
