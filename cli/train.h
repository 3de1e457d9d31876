/* train.h -- what the verbs of models share: text from files, data sets, models. */
#ifndef FOCI_CLI_TRAIN_H
#define FOCI_CLI_TRAIN_H

#include "cli/gz.h"
#include "foci/file.h"
#include "foci/train.h"

/* Where examples are read from. */
struct train_source {
    const char     *text, *target; /* files; target may be NULL */
    const char     *task;          /* a generator in their place */
    foci_data_split split;
    double          begin, end; /* the part of the lines; 0, 0: all */
    bool            reverse;    /* translate: the second column into the first */
};

/* train_source.c: what a command `foci train` has its examples from, by foci_data_split.
 * Where `shipped` is not set and there is no generator, nothing is kept to test by. */
struct train_sources {
    struct train_source from[3];
    bool                shipped;
    char                paths[3][4096];
};
/* EXIT_OK, or a status with the message printed. */
int train_sources_find(const struct args *a, foci_model_kind task,
                       struct train_sources *s);
/* Whether the mechanisms of that command carry memory, so that batches continue one another. */
bool train_asks_memory(const struct args *a);

/* The options that all data sets of one model share. */
struct data_shape {
    foci_model_kind       task;
    const foci_tokenizer *tokenizer;
    int64_t               batch, batch_tokens, len, source_len, patch;
    int                   words;
    uint64_t              seed;
    int64_t               examples, stride;
    foci_data_order       order;
    foci_data_documents   documents;
    const char *const    *classes; /* NULL: those of the file */
    int64_t               n_classes;
};

/* As data_open(), of a part of the lines; *data is NULL and nothing is printed where there is
 * none, or its file cannot be used. */
int data_open_part(const struct args *a, foci_ctx *ctx, const struct train_source *from,
                   const struct data_shape *shape, foci_data **data);

/* EXIT_OK, or a status with the message printed. */
int data_open(const struct args *a, foci_ctx *ctx, const struct train_source *from,
              const struct data_shape *shape, foci_data **data);

/* Options of verbs that judge a model by data, and where these say it is: of a model that
 * was trained on a shipped set, its test set. */
#define OPTIONS_DATA                                                                   \
    { .name = "data",                                                                  \
      .arg = "FILE",                                                                   \
      .help = "text, SOURCE<TAB>TARGET, LABEL<TAB>TEXT, or images in .npy",            \
      .kind = KIND_TEXT },                                                             \
        { .name = "source",                                                            \
          .arg = "FILE",                                                               \
          .help = "sentences to translate from",                                       \
          .kind = KIND_TEXT },                                                         \
        { .name = "target",                                                            \
          .arg = "FILE",                                                               \
          .help = "their translations, line by line",                                  \
          .kind = KIND_TEXT },                                                         \
        { .name = "labels",                                                            \
          .arg = "FILE",                                                               \
          .help = "classes of images, in .npy",                                        \
          .kind = KIND_TEXT },                                                         \
        { .name = "task",                                                              \
          .arg = "TEXT",                                                               \
          .help = "generated examples: copy, reverse, numbers, listops, mqar",         \
          .kind = KIND_TEXT },                                                         \
    {                                                                                  \
        .name = "reverse", .help = "translate the second column into the first"        \
    }

/* Whether one of these options is given. */
bool source_given(const struct args *a);
/* The source that they name. */
struct train_source source_of(const struct args *a, foci_data_split split);

/* A model and its tokenizer (NULL: it has none) from the folder that is the first word.
 * EXIT_OK, or a status with the message printed. */
int model_open(const struct args *a, foci_ctx *ctx, foci_model **model,
               foci_tokenizer **tokenizer);

/* Whether a spec of the model reads word numbers. */
bool model_reads_words(const foci_model *model);

/* How a model was trained, as stored beside it in the folder: "train.json". */
json_t *train_notes_read(const struct args *a, const char *folder);

/* train_config.c: the model that the options describe, for data of this kind. */
int config_read(const struct args *a, foci_model_kind task, foci_model_config *c);

/* Options of the model, of `foci train`. */
extern const struct option train_options[];

#endif
