/* eval.c -- foci eval DIR: scores of a model on data. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"
#include "cli/floors.h"
#include "foci/text.h"

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
    { .name = "heads",
      .arg = "FILE",
      .help = "write the weights of all heads on the first sequence, as JSON",
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
    json_object_set_new(o, "bleu_signature", json_string(foci_bleu_signature()));
    json_object_set_new(o, "brevity", json_real(b.brevity));
    json_object_set_new(o, "chrf2", json_real(b.chrf));
    json_object_set_new(o, "chrf2_signature", json_string(foci_chrf_signature()));
    table_pair(t, "BLEU", "%.2f", b.bleu);
    table_pair(t, "brevity penalty", "%.3f", b.brevity);
    table_pair(t, "chrF2", "%.2f", b.chrf);
    table_pair(t, "signature of BLEU", "%s", foci_bleu_signature());
    table_pair(t, "signature of chrF2", "%s", foci_chrf_signature());
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
        json_object_set_new(o, "split", json_string(eval_splits[j->from.split]));
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
    if (!code && opt_text(j->a, "heads"))
        code = weights_write(j, opt_text(j->a, "heads"));
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
    struct judged j;
    int           code = eval_open(a, &j);

    if (!code) code = judge_all(&j);
    eval_close(&j);
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
