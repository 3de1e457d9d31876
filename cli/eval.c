/* eval.c -- foci eval DIR: scores of a model on data. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"
#include "cli/translations.h"

static const struct option options[] = {
    OPTIONS_DATA,
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
      .help = "images: side of a patch, as in training",
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

struct judged {
    const struct args  *a;
    foci_ctx           *ctx;
    foci_model         *model;
    foci_model_config   config;
    foci_tokenizer     *tokenizer;
    foci_data          *data;
    json_t             *notes;
    const char        **classes;
    struct train_source from;
    char                path[4096];
};

/* The test set of what a model was trained on: the shipped one, or the split of its
 * generator. */
static int find_source(struct judged *j)
{
    static const char *const tests[] = { "austen-persuasion.test.txt.gz",
                                         "austen-persuasion.test.txt.gz",
                                         "office-de-en.test.tsv.gz", NULL };

    if (source_given(j->a)) {
        j->from = source_of(j->a, FOCI_DATA_SPLIT_TEST);
        return EXIT_OK;
    }
    j->notes = train_notes_read(j->a, j->a->words[0]);
    if (!j->notes) return EXIT_FAILED;
    const char *task = json_string_value(json_object_get(j->notes, "task"));
    j->from = (struct train_source){ .task = task, .split = FOCI_DATA_SPLIT_TEST };
    if (task) return EXIT_OK;
    if (!json_is_true(json_object_get(j->notes, "shipped")))
        return usage_error(j->a, "by which data? Give --data FILE");
    j->from.text = shipped_path(j->a, tests[j->config.task], j->path);
    return j->from.text ? EXIT_OK : EXIT_FAILED;
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

static int open_data(struct judged *j)
{
    const struct data_shape shape = {
        .task = j->config.task,
        .tokenizer = j->tokenizer,
        .batch = opt_int(j->a, "batch", 16),
        .len = j->from.task ? 0 : j->config.context,
        .source_len = j->config.source_context,
        .patch = opt_int(j->a, "patch", 0),
        .reverse = opt_flag(j->a, "reverse"),
        .words = model_reads_words(j->model),
        .seed = 1,
        .examples = opt_int(j->a, "examples", 0),
        .order = FOCI_DATA_ORDER_ONCE,
        .classes = j->classes,
        .n_classes = j->config.classes,
    };
    return data_open(j->a, j->ctx, &j->from, &shape, &j->data);
}

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

static int judge(struct judged *j)
{
    foci_scores          s = { FOCI_SIZED(foci_scores) };
    json_t              *o = json_object();
    struct output_table *t = table_create("lr");
    int                  code = eval_scores(j->a, j->ctx, j->model, j->data, &s);

    const bool whole = j->config.task == FOCI_MODEL_TRANSLATE ||
                       (j->from.task && j->config.task != FOCI_MODEL_CLASSIFY);
    if (!code) list_scores(&s, whole, o, t);
    if (!code && j->config.task == FOCI_MODEL_TRANSLATE && j->tokenizer) {
        struct translation_scores b;
        code = translations_judge(j->a, j->ctx, j->model, j->tokenizer, &j->from, &b);
        if (!code) {
            json_object_set_new(o, "bleu", json_real(b.bleu));
            json_object_set_new(o, "chrf2", json_real(b.chrf));
            table_pair(t, "BLEU", "%.2f", b.bleu);
            table_pair(t, "chrF2", "%.2f", b.chrf);
        }
    }
    if (!code && !j->a->json) table_print(t, stdout);
    table_free(t);
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
    if (!code) code = judge(&j);
    foci_data_free(j.data);
    foci_model_free(j.model);
    foci_tokenizer_free(j.tokenizer);
    json_decref(j.notes);
    free(j.classes);
    foci_ctx_free(j.ctx);
    return code;
}

static const char *const examples[] = {
    "foci eval foci-lm",
    "foci eval foci-lm --data book.txt",
    "foci eval de-en --source test.de --target test.en --beam 4",
    "foci eval heads --task 'induction(test=65536)' --state --batch 1 --examples 20",
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
        "Without --data a model is judged by the test set of what it was trained on, "
        "where that was shipped or generated.",
};
