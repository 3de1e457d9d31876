/* eval.c -- foci eval DIR: scores of a model on data. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"
#include "cli/floors.h"

static const struct option options[] = {
    OPTIONS_DATA,
    { .name = "split",
      .arg = "NAME",
      .help = "of a generator, or of what the model was trained on: test (default), "
              "valid, train",
      .kind = KIND_WORD,
      .words = "train|valid|test" },
    { .name = "slices",
      .help = "of a generator: scores by load, distance and the like" },
    { .name = "floors",
      .help = "of a generator: what rules reach that learned nothing" },
    { .name = "outputs",
      .arg = "FILE",
      .help = "write a line of JSON for each example, sentence or window",
      .kind = KIND_TEXT },
    { .name = "costs", .help = "parameters, flops, state, speed, what the heads do" },
    { .name = "batch",
      .arg = "N",
      .help = "sequences of a batch (default 16)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "stride",
      .arg = "N",
      .help = "lm: tokens predicted of a full context, the others are seen only",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 30 },
    { .name = "patch",
      .arg = "N",
      .help = "images: side of a patch (default as in training)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 65536 },
    { .name = "examples",
      .arg = "N",
      .help = "of a generator (default 1000)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "state",
      .help = "lm: by decoding, token by token, also beyond the context" },
    OPTIONS_BEAM,
    OPTION_THREADS,
    { .name = NULL },
};

static const char *const splits[] = { "train", "valid", "test" };

/*
 * The data
 */

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
                           splits[split], j->from.text);
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

/*
 * Scores
 */

static void add_real(json_t *o, struct output_table *t, const char *name,
                     const char *title, double value, int digits)
{
    if (value == 0) return;
    json_object_set_new(o, name, json_real(value));
    table_pair(t, title, "%.*f", digits, value);
}

static void add_count(json_t *o, struct output_table *t, const char *name, int64_t n)
{
    if (!n) return;
    json_object_set_new(o, name, json_integer(n));
    table_pair(t, name, "%lld", (long long)n);
}

/* With `whole`: a sequence is an example of a task, not a piece of a text. */
static void list_scores(const foci_scores *s, bool whole, json_t *o,
                        struct output_table *t)
{
    add_count(o, t, "tokens", s->tokens);
    add_count(o, t, "characters", s->characters);
    add_count(o, t, "words", s->words);
    add_real(o, t, "loss", "nats a token", s->loss, 4);
    add_real(o, t, "perplexity", "perplexity of a token", s->perplexity, 3);
    add_real(o, t, "word_perplexity", "perplexity of a word", s->word_perplexity, 2);
    add_real(o, t, "character_perplexity", "perplexity of a character",
             s->character_perplexity, 4);
    add_real(o, t, "bits_per_character", "bits per character", s->bits_per_character, 4);
    json_object_set_new(o, "accuracy", json_real(s->accuracy));
    table_pair(t, "accuracy", "%.4f", s->accuracy);
    if (whole) {
        json_object_set_new(o, "exact", json_real(s->exact));
        table_pair(t, "all of a sequence", "%.4f", s->exact);
    }
}

/* What is told of labels, and where it goes; NULL: it is not wanted. */
struct listening {
    struct seen     seen;
    struct slices  *slices;
    struct outputs *rows, *translations;
};

static int hear_labels(void *user, const foci_batch *b, const float *nats,
                       const int32_t *best)
{
    struct listening *l = user;

    seen_add(&l->seen, b);
    if (l->slices) slices_add(l->slices, b, nats, best);
    if (l->rows) outputs_add_rows(l->rows, b, nats, best);
    return 0;
}

static void hear_translation(void *user, const struct translation *t)
{
    const struct listening *l = user;

    if (l->translations) outputs_add_translation(l->translations, t);
}

static int judge_translations(struct judged *j, struct listening *l, json_t *o,
                              struct output_table *t)
{
    struct translation_scores b;
    const int code = translations_judge(j->a, j->ctx, j->model, j->tokenizer, &j->from,
                                        hear_translation, l, &b);

    if (code) return code;
    json_object_set_new(o, "bleu", json_real(b.bleu));
    json_object_set_new(o, "chrf2", json_real(b.chrf));
    table_pair(t, "BLEU", "%.2f", b.bleu);
    table_pair(t, "chrF2", "%.2f", b.chrf);
    return EXIT_OK;
}

static int judge_floors(struct judged *j, const struct listening *l, json_t *o,
                        struct output_table *t)
{
    struct floors floors;
    json_t       *all = json_object();
    char          name[96];
    const int     code = floors_read(j->a, j->ctx, j->data, l->seen.rows, &floors);

    for (int i = 0; i < floors.n; i++) {
        json_object_set_new(all, floors.floor[i].name,
                            json_real(floors.floor[i].accuracy));
        snprintf(name, sizeof name, "floor: %s", floors.floor[i].name);
        table_pair(t, name, "%.4f", floors.floor[i].accuracy);
    }
    if (!floors.n && !code)
        note(j->a, "there are no floors: these data are of no generator");
    json_object_set_new(o, "floors", all);
    floors_free(&floors);
    return code;
}

/* Scores into `o` and the table. */
static int judge(struct judged *j, struct listening *l, json_t *o,
                 struct output_table *t)
{
    const bool  translates = j->config.task == FOCI_MODEL_TRANSLATE;
    foci_scores s = { FOCI_SIZED(foci_scores) };

    const int judged = eval_scores(j, hear_labels, l, &s);
    if (judged) return judged;
    if (!source_given(j->a) || j->from.task)
        json_object_set_new(o, "split", json_string(splits[j->from.split]));
    list_scores(&s,
                translates || (j->from.task && j->config.task != FOCI_MODEL_CLASSIFY),
                o, t);
    if (opt_flag(j->a, "floors")) {
        const int code = judge_floors(j, l, o, t);
        if (code) return code;
    }
    return translates && j->tokenizer ? judge_translations(j, l, o, t) : EXIT_OK;
}

/* All that is wanted beside the scores, each behind a blank line. */
static int tell_rest(struct judged *j, struct listening *l, json_t *o)
{
    struct outputs *outputs = l->rows ? l->rows : l->translations;
    const char     *path = opt_text(j->a, "outputs");
    int             code = EXIT_OK;

    if (l->slices && !foci_data_slice_count(j->data))
        note(j->a, "there are no slices: these data are of no generator");
    if (l->slices && j->a->json)
        json_object_set_new(o, "slices", slices_json(l->slices));
    else if (l->slices)
        slices_print(l->slices, stdout);
    if (opt_flag(j->a, "costs")) code = costs_tell(j, &l->seen, o);
    if (!code && outputs) code = outputs_write(j->a, j->ctx, outputs, path);
    if (!code && outputs) json_object_set_new(o, "outputs", json_string(path));
    return code;
}

static int judge_all(struct judged *j)
{
    const bool translates = j->config.task == FOCI_MODEL_TRANSLATE && j->tokenizer;
    const bool outputs = opt_text(j->a, "outputs") != NULL;
    struct listening     l = { .slices = NULL };
    json_t              *o = json_object();
    struct output_table *t = table_create("lr");

    if (opt_flag(j->a, "slices")) l.slices = slices_open(j->data);
    if (outputs && translates) l.translations = outputs_open();
    if (outputs && !translates) l.rows = outputs_open();
    int code = judge(j, &l, o, t);
    if (!code && !j->a->json) table_print(t, stdout);
    table_free(t);
    if (!code) code = tell_rest(j, &l, o);
    slices_free(l.slices);
    outputs_free(l.rows);
    outputs_free(l.translations);
    if (!code && j->a->json) return print_json(j->a, o);
    json_decref(o);
    return code;
}

static int run(const struct args *a)
{
    struct judged j = { .a = a, .config = { FOCI_SIZED(foci_model_config) } };
    int           code;

    j.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!j.ctx) return EXIT_FAILED;
    code = model_open(a, j.ctx, &j.model, &j.tokenizer);
    if (!code) {
        foci_model_get_config(j.model, &j.config);
        code = find_source(&j);
    }
    if (!code) {
        find_classes(&j);
        code = open_data(&j);
    }
    if (!code) code = judge_all(&j);
    foci_data_free(j.data);
    foci_model_free(j.model);
    foci_tokenizer_free(j.tokenizer);
    if (j.trained.verb) args_free(&j.trained);
    json_decref(j.notes);
    free(j.classes);
    foci_ctx_free(j.ctx);
    return code;
}

static const char *const examples[] = {
    "foci eval foci-lm",
    "foci eval foci-lm --data book.txt",
    "foci eval recall --split valid --slices --floors --costs --json",
    "foci eval heads --task 'induction(test=65536)' --state --batch 1 --examples 20",
    "foci eval de-en --source test.de --target test.en --beam 4",
    NULL,
};

const struct verb verb_eval = {
    .name = "eval",
    .run = run,
    .summary = "perplexity, accuracy, BLEU of a trained model",
    .usage = "DIR",
    .min_words = 1,
    .max_words = 1,
    .options = options,
    .examples = examples,
    .notes =
        "Without --data a model is judged by what it was trained on: by the test set "
        "of a "
        "shipped set or a generator, with --split valid by what it was validated by.  "
        "Validation and training examples of a generator are those of the training; "
        "test "
        "examples are the same for all models.  docs/training.md says what --costs "
        "counts and measures.",
    .also = task_names,
};
