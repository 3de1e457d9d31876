/* train.c -- foci train TASK: a model from text, pairs, labels, images or a generator. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/train.h"

static const char *const tasks[] = { "lm", "mlm", "translate", "classify", NULL };

/* What a run works with. */
struct train_job {
    const struct args   *a;
    foci_ctx            *ctx;
    foci_model_kind      task;
    const char          *out;
    char                 own_out[32];
    struct train_sources s;
    foci_model_config    config;
    bool                 config_owned;
    foci_tokenizer      *tokenizer;
    foci_data           *data[2];
    const char    **classes; /* [n_classes], up to NULL: those of the training data */
    foci_model     *model;
    foci_trainer   *trainer;
    struct progress progress;
    foci_progress   last;
    double          ridge; /* --readout ridge: the one that was chosen */
};

/*
 * Tokenizers
 */

static int train_tokenizer(struct train_job *j, const char *kind)
{
    const struct train_source *from = &j->s.from[0];
    const int64_t              lines = opt_int(j->a, "examples", 0);
    foci_reader                readers[2] = { { 0 } };
    int                        n = 0;

    if (foci_tokenizer_check(j->ctx, kind))
        return usage_error(j->a, "--tokenizer: %s", foci_errmsg(j->ctx));
    if (text_open_first(j->a, from->text, lines, &readers[n++])) return EXIT_FAILED;
    if (from->target && text_open_first(j->a, from->target, lines, &readers[n++])) {
        foci_reader_close(&readers[0]);
        return EXIT_FAILED;
    }
    note(j->a, "training tokenizer %s", kind);
    const foci_status status =
        foci_tokenizer_train(j->ctx, kind, NULL, readers, n, &j->tokenizer);
    for (int i = 0; i < n; i++)
        foci_reader_close(&readers[i]);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

static int find_tokenizer(struct train_job *j)
{
    static const char *const presets[] = { "chars", "bpe:4000", "bpe:4000", "words" };
    const char              *given = opt_text(j->a, "tokenizer");
    const char              *kind = given ? given : presets[j->task];

    if (j->s.from[0].task || path_is_array(j->s.from[0].text)) return EXIT_OK;
    if (!given || access(given, R_OK) != 0) return train_tokenizer(j, kind);
    const foci_status status = foci_tokenizer_load(j->ctx, given, &j->tokenizer);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

/*
 * Data
 */

static struct data_shape data_shape(struct train_job *j)
{
    const struct args *a = j->a;
    const bool         pairs = j->task == FOCI_MODEL_TRANSLATE;

    return (struct data_shape){
        .task = j->task,
        .tokenizer = j->tokenizer,
        .batch = opt_int(a, "batch", pairs && !j->s.from[0].task ? 0 : 16),
        .batch_tokens =
            opt_int(a, "batch-tokens", pairs && !j->s.from[0].task ? 4096 : 0),
        .len = j->s.from[0].task ? 0 : j->config.context,
        .patch = opt_int(a, "patch", 0),
        .words = 1, /* which mechanisms read them is known when there is a model */
        .seed = (uint64_t)opt_int(a, "seed", 1),
        .examples = opt_int(a, "examples", 0),
        .order = train_asks_memory(&j->config) ? FOCI_DATA_ORDER_SEGMENTS
                                               : FOCI_DATA_ORDER_SHUFFLED,
        .documents = (foci_data_documents)opt_word(a, "documents", 0),
    };
}

/* Names of classes, in their order, for the data that follow. */
static void list_classes(struct train_job *j, const foci_data_info *info)
{
    if (info->kind != FOCI_DATA_CLASSIFY) return;
    j->classes = need((size_t)info->n_classes + 1, sizeof *j->classes);
    for (int64_t i = 0; i < info->n_classes; i++)
        j->classes[i] = foci_data_class(j->data[0], i);
}

/* Nine tenths of the lines, if there is a tenth that is left for validation; else all. */
static int open_most(struct train_job *j, const struct data_shape *shape)
{
    int code = data_open_part(j->a, j->ctx, &j->s.from[0], shape, &j->data[0]);

    if (!code && j->data[0])
        code = data_open_part(j->a, j->ctx, &j->s.from[1], shape, &j->data[1]);
    if (code || j->data[1]) {
        foci_data_free(j->data[1]);
        j->data[1] = NULL;
        return code;
    }
    foci_data_free(j->data[0]);
    j->data[0] = NULL;
    j->s.from[0].begin = j->s.from[0].end = 0;
    code = data_open(j->a, j->ctx, &j->s.from[0], shape, &j->data[0]);
    if (!code)
        note(j->a,
             "%s has too few lines for a tenth of them to validate by: all of them "
             "train (give others by --valid)",
             j->s.from[0].text);
    return code;
}

static int open_data(struct train_job *j, foci_data_info *info)
{
    struct data_shape shape = data_shape(j);
    const bool        cut = j->s.from[1].begin > 0;

    int code = cut ? open_most(j, &shape)
                   : data_open(j->a, j->ctx, &j->s.from[0], &shape, &j->data[0]);
    if (code) return code;
    info->size = sizeof *info;
    foci_data_get_info(j->data[0], info);
    if (!j->s.from[0].task) list_classes(j, info);
    shape.classes = j->classes;
    shape.n_classes = j->classes || info->n_classes ? info->n_classes : 0;
    shape.order = train_asks_memory(&j->config) ? FOCI_DATA_ORDER_ONCE_SEGMENTS
                                                : FOCI_DATA_ORDER_ONCE;
    shape.examples = 0;
    if (cut && j->s.from[0].end <= 0) return EXIT_OK;
    return data_open(j->a, j->ctx, &j->s.from[1], &shape, &j->data[1]);
}

/*
 * The model
 */

static int read_config(struct train_job *j)
{
    j->config = (foci_model_config){ FOCI_SIZED(foci_model_config) };
    if (!opt_text(j->a, "config")) return config_read(j->a, j->task, &j->config);
    const int code = config_read_file(j->a, j->ctx, j->task, &j->config);
    j->config_owned = code == EXIT_OK;
    return code;
}

/* What the model has of its data. */
static int fit_config(struct train_job *j, const foci_data_info *info)
{
    foci_model_config *c = &j->config;
    const bool         classifies =
        info->kind == FOCI_DATA_CLASSIFY || info->kind == FOCI_DATA_IMAGES;
    static const foci_data_kind kinds[] = { FOCI_DATA_LM, FOCI_DATA_MLM,
                                            FOCI_DATA_TRANSLATE, FOCI_DATA_CLASSIFY };

    if (classifies ? j->task != FOCI_MODEL_CLASSIFY : info->kind != kinds[j->task])
        return usage_error(j->a, "%s gives examples of another task than %s",
                           j->s.from[0].task, tasks[j->task]);
    c->vocab = info->vocab;
    c->source_vocab = j->tokenizer ? 0 : info->source_vocab;
    if (j->task != FOCI_MODEL_TRANSLATE) c->source_vocab = 0;
    c->classes = classifies ? info->n_classes : 0;
    c->patch = info->kind == FOCI_DATA_IMAGES ? info->patch_width : 0;
    c->grid_rows = c->patch ? info->grid_rows : 0;
    c->grid_cols = c->patch ? info->grid_cols : 0;
    if (j->s.from[0].task || c->patch) c->context = info->len;
    c->from_last = info->from_last;
    if (j->task == FOCI_MODEL_TRANSLATE)
        c->source_context = j->s.from[0].task ? info->source_len : c->context;
    for (int i = 0; i < FOCI_SPECIAL_COUNT; i++)
        c->specials[i] = j->tokenizer
                             ? foci_tokenizer_special(j->tokenizer, (foci_special)i)
                             : (i < 3 ? i : -1);
    c->tokenizer = j->tokenizer ? foci_tokenizer_fingerprint(j->tokenizer) : 0;
    return EXIT_OK;
}

static int make_model(struct train_job *j, const foci_data_info *info)
{
    const int code = fit_config(j, info);
    if (code) return code;
    const foci_status status = foci_model_create(j->ctx, &j->config, &j->model);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

/*
 * Notes: what other verbs, and --resume, need to know of a run.
 */

static json_t *arguments(const struct args *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->n_words; i++)
        json_array_append_new(list, json_string(a->words[i]));
    for (int i = 0; i < a->n_given; i++) {
        const struct given *g = &a->given[i];
        char                name[64];
        if (strcmp(g->option->name, "resume") == 0 ||
            strcmp(g->option->name, "preset") == 0)
            continue;
        snprintf(name, sizeof name, "--%s", g->option->name);
        json_array_append_new(list, json_string(name));
        if (g->option->arg) json_array_append_new(list, json_string(g->text));
    }
    /* What a preset set is in the list: said again, the line means the same. */
    if (opt_text(a, "task")) {
        json_array_append_new(list, json_string("--preset"));
        json_array_append_new(list, json_string("none"));
    }
    return list;
}

static int write_notes(struct train_job *j, const foci_data_info *info)
{
    json_t *notes = json_object();
    char    path[4096];

    json_object_set_new(notes, "arguments", arguments(j->a));
    json_object_set_new(notes, "shipped", json_boolean(j->s.shipped));
    if (j->s.from[0].task)
        json_object_set_new(notes, "task", json_string(j->s.from[0].task));
    if (info->kind == FOCI_DATA_IMAGES) {
        json_object_set_new(notes, "shift", json_real(info->shift));
        json_object_set_new(notes, "scale", json_real(info->scale));
    }
    json_t *classes = json_array();
    for (int64_t i = 0; j->classes && j->classes[i]; i++)
        json_array_append_new(classes, json_string(j->classes[i]));
    json_object_set_new(notes, "classes", classes);
    char *text = json_dumps(notes, JSON_INDENT(2));
    json_decref(notes);
    snprintf(path, sizeof path, "%s/train.json", j->out);
    const foci_status status = foci_file_write(j->ctx, path, text, strlen(text));
    free(text);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

/*
 * Training
 */

/* 0 is said where it means none, which the library says by a negative number. */
static double real_or_none(const struct args *a, const char *name)
{
    if (!opt_text(a, name)) return 0;
    const double x = opt_real(a, name, 0);
    return x > 0 ? x : -1;
}

/* How far the run is, in what it ends by: steps, tokens or seconds; with patience alone
 * nobody knows how many steps there are. */
static int64_t pieces_done(struct train_job *j, const foci_progress *p)
{
    const struct args *a = j->a;
    const double       limit = opt_real(a, "time-limit", 0);
    const int64_t      tokens = opt_int(a, "tokens", 0);
    const bool timed = !p->steps && !tokens && limit > 0, counted = !p->steps && tokens;
    const int64_t done = timed ? (int64_t)p->seconds : counted ? p->tokens : p->step;

    if (j->progress.a) return done;
    progress_begin(&j->progress, a,
                   timed     ? "seconds"
                   : counted ? "tokens"
                             : "steps",
                   timed     ? (int64_t)limit
                   : counted ? tokens
                             : p->steps);
    j->progress.before = done; /* of the run that this one goes on with */
    return done;
}

static int on_progress(void *user, const foci_progress *p)
{
    struct train_job *j = user;
    const int64_t     done = pieces_done(j, p);
    char              what[64];

    j->last = *p;
    snprintf(what, sizeof what, "loss %.4f, %.*f tokens/s", p->loss,
             p->tokens_per_second < 100, p->tokens_per_second);
    progress_tick(&j->progress, done, what);
    if (p->validated) {
        progress_end(&j->progress);
        note(j->a, "step %lld: loss %.4f, valid %.4f%s, accuracy %.4f, %.0f tokens/s",
             (long long)p->step, p->loss, p->valid_loss, p->best ? " (best)" : "",
             p->valid_accuracy, p->tokens_per_second);
    }
    return signal_waits();
}

/* --epochs: as many passes of the data in steps; 0: not given. */
static int epochs_steps(const struct train_job *j, int64_t *steps)
{
    const int64_t  accumulate = opt_int(j->a, "accumulate", 1);
    const double   epochs = opt_real(j->a, "epochs", 0);
    foci_data_info info = { FOCI_SIZED(foci_data_info) };

    *steps = 0;
    if (epochs <= 0) return EXIT_OK;
    foci_data_get_info(j->data[0], &info);
    if (info.n_batches < 0)
        return usage_error(j->a, j->s.from[0].task
                                     ? "--epochs needs --examples: this generator has "
                                       "no end"
                                     : "--epochs is for data that fit into memory: "
                                       "give --steps");
    const double all = ceil(epochs * (double)info.n_batches / (double)accumulate);
    if (all > MOST_WHOLE) return usage_error(j->a, "--epochs is too large: %g", epochs);
    *steps = (int64_t)all;
    return EXIT_OK;
}

static foci_train_options train_options_of(struct train_job *j, int64_t epochs_end)
{
    const struct args *a = j->a;
    const bool         ends = epochs_end || opt_text(a, "tokens") ||
                      opt_text(a, "time-limit") || opt_text(a, "patience");
    const int64_t given_end = opt_int(a, "steps", ends ? 0 : 1000);
    const bool    pairs = j->task == FOCI_MODEL_TRANSLATE;
    const int64_t warmup = opt_int(a, "warmup", 0);

    return (foci_train_options){
        FOCI_SIZED(foci_train_options),
        .steps = given_end && epochs_end
                     ? (given_end < epochs_end ? given_end : epochs_end)
                     : given_end + epochs_end,
        .tokens = opt_int(a, "tokens", 0),
        .time_limit = opt_real(a, "time-limit", 0),
        .rate = opt_real(a, "lr", 0),
        .final_rate = real_or_none(a, "final-rate"),
        .warmup = opt_text(a, "warmup") && !warmup ? -1 : warmup,
        .schedule = (foci_schedule)opt_word(a, "schedule", 0),
        .decay = real_or_none(a, "decay"),
        .clip = real_or_none(a, "clip"),
        .accumulate = opt_int(a, "accumulate", 0),
        .smoothing = opt_real(a, "smoothing", pairs && !j->s.from[0].task ? 0.1 : 0),
        .seed = (uint64_t)opt_int(a, "seed", 1),
        .valid_every = opt_int(a, "valid-every", 0),
        .valid_batches = opt_int(a, "valid-batches", 0),
        .patience = opt_int(a, "patience", 0),
        .average = opt_int(a, "average", 0),
        .folder = j->out,
        .log = opt_text(a, "log"),
        .events = opt_text(a, "tensorboard"),
        .progress = on_progress,
        .user = j,
    };
}

/* Whether --out has a file of a training, or one that cannot be looked at. */
static bool is_in_out(const struct train_job *j, const char *name)
{
    char        path[4096];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", j->out, name);
    return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* What was killed before it wrote anything begins again, as it would have gone on. */
static int go_on(struct train_job *j)
{
    if (!is_in_out(j, "state.safetensors")) {
        if (is_in_out(j, "model.safetensors"))
            return failure(
                j->a,
                "%s has a model, but no state.safetensors to go on from: without "
                "--resume the training begins anew",
                j->out);
        note(j->a, "%s has no state yet: the training begins", j->out);
        return EXIT_OK;
    }
    const foci_status status = foci_trainer_resume(j->trainer);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

/* The notes are those of a training that goes on: options that cannot be are not noted. */
static int train(struct train_job *j, const foci_data_info *info)
{
    int64_t epochs_end;
    int     code = epochs_steps(j, &epochs_end);

    if (code) return code;
    const foci_train_options o = train_options_of(j, epochs_end);
    foci_status status = foci_trainer_create(j->model, j->data[0], j->data[1],
                                             j->tokenizer, &o, &j->trainer);

    if (status) return library_error(j->a, j->ctx, status, NULL);
    if (opt_flag(j->a, "resume")) code = go_on(j);
    if (!code) code = write_notes(j, info);
    if (code) return code;
    hold_signals();
    status = foci_trainer_run(j->trainer);
    progress_end(&j->progress);
    return status ? library_error(j->a, j->ctx, status, NULL) : EXIT_OK;
}

static int solve(struct train_job *j, const foci_data_info *info)
{
    const foci_ridge_options o = { FOCI_SIZED(foci_ridge_options) };
    const double             begin = seconds();

    foci_status status =
        foci_model_ridge(j->model, j->data[0], j->data[1], &o, &j->ridge);
    j->last.seconds = seconds() - begin;
    if (!status) status = foci_model_save(j->model, j->tokenizer, j->out);
    return status ? library_error(j->a, j->ctx, status, NULL) : write_notes(j, info);
}

/*
 * Results
 */

static void say_how_to_go_on(const struct train_job *j)
{
    switch (j->task) {
    case FOCI_MODEL_LM:
        if (j->tokenizer)
            note(j->a, "write with it: foci generate %s --prompt \"It is a truth\"",
                 j->out);
        break;
    case FOCI_MODEL_TRANSLATE:
        if (j->tokenizer)
            note(j->a, "translate with it: echo \"Save the file\" | foci translate %s",
                 j->out);
        break;
    case FOCI_MODEL_MLM:
    case FOCI_MODEL_CLASSIFY: break;
    }
    note(j->a, "judge it: foci eval %s%s", j->out,
         j->s.shipped || j->s.from[0].task ? "" : " --data FILE");
}

static int report_json(struct train_job *j, int64_t floats, const foci_scores *s)
{
    json_t *result =
        json_pack("{s:s, s:I}", "folder", j->out, "parameters", (json_int_t)floats);
    foci_data_info info = { FOCI_SIZED(foci_data_info) };

    if (!foci_data_get_info(j->data[0], &info) && info.n_batches > 0)
        json_object_set_new(result, "batches", json_integer(info.n_batches));
    if (j->last.step) {
        json_object_set_new(result, "steps", json_integer(j->last.step));
        json_object_set_new(result, "tokens", json_integer(j->last.tokens));
        json_object_set_new(result, "loss", json_real(j->last.loss));
        json_object_set_new(result, "tokens_per_second",
                            json_real(j->last.tokens_per_second));
    }
    json_object_set_new(result, "seconds", json_real(j->last.seconds));
    if (!j->trainer) json_object_set_new(result, "ridge", json_real(j->ridge));
    if (j->data[1]) {
        json_object_set_new(result, "valid_loss", json_real(s->loss));
        json_object_set_new(result, "valid_accuracy", json_real(s->accuracy));
    }
    if (j->trainer) {
        char sum[17];
        snprintf(sum, sizeof sum, "%016llx",
                 (unsigned long long)foci_trainer_checksum(j->trainer));
        json_object_set_new(result, "checksum", json_string(sum));
    }
    return print_json(j->a, result);
}

static int report_table(struct train_job *j, int64_t floats, const foci_scores *s)
{
    struct output_table *t = table_create("lr");

    table_pair(t, "folder", "%s", j->out);
    table_pair(t, j->trainer ? "trained parameters" : "parameters", "%lld",
               (long long)floats);
    if (j->last.step) {
        table_pair(t, "steps", "%lld", (long long)j->last.step);
        table_pair(t, "tokens", "%lld", (long long)j->last.tokens);
    }
    if (!j->trainer) table_pair(t, "ridge", "%g", j->ridge);
    table_pair(t, "seconds", "%.1f", j->last.seconds);
    if (j->data[1]) {
        table_pair(t, "validation: nats a token", "%.4f", s->loss);
        table_pair(t, "validation: accuracy", "%.4f", s->accuracy);
    } else if (j->last.step) {
        table_pair(t, "last step: nats a token", "%.4f", j->last.loss);
    }
    table_print(t, stdout);
    table_free(t);
    if (j->trainer && !j->last.step)
        note(j->a, "%s was at its end already: a larger --steps goes on", j->out);
    say_how_to_go_on(j);
    return EXIT_OK;
}

static int report(struct train_job *j)
{
    const int64_t floats = foci_model_trained_floats(j->model);
    foci_scores   s = { FOCI_SIZED(foci_scores) };
    foci_status   status = FOCI_OK;

    if (j->data[1])
        status =
            foci_evaluate(j->model, j->data[1], opt_int(j->a, "valid-batches", 0), &s);
    if (status) return library_error(j->a, j->ctx, status, NULL);
    return j->a->json ? report_json(j, floats, &s) : report_table(j, floats, &s);
}

/*
 * The verb
 */

static int check_out(struct train_job *j)
{
    if (is_in_out(j, "state.safetensors") && !opt_flag(j->a, "resume"))
        return failure(j->a,
                       "%s has a training already: --resume goes on with it, another "
                       "--out begins anew",
                       j->out);
    if (mkdir(j->out, 0777) && errno != EEXIST)
        return failure(j->a, "%s: cannot be made: %s", j->out, strerror(errno));
    return EXIT_OK;
}

/* --check: what would be trained. */
static int report_check(struct train_job *j)
{
    const int64_t floats = foci_model_trained_floats(j->model);

    if (j->a->json)
        return print_json(j->a, json_pack("{s:I}", "parameters", (json_int_t)floats));
    printf("trained parameters  %lld\n", (long long)floats);
    return EXIT_OK;
}

static int run_job(struct train_job *j)
{
    foci_data_info info = { FOCI_SIZED(foci_data_info) };
    int            code;

    if ((code = read_config(j)) || (code = train_sources_find(j->a, j->task, &j->s)) ||
        (code = find_tokenizer(j)) || (code = open_data(j, &info)) ||
        (code = make_model(j, &info)))
        return code;
    if (opt_flag(j->a, "check")) return report_check(j);
    if ((code = check_out(j))) return code;
    code = opt_word(j->a, "readout", 0) ? solve(j, &info) : train(j, &info);
    if (!code) code = report(j);
    release_signals();
    return code;
}

static void close_job(struct train_job *j)
{
    foci_trainer_free(j->trainer);
    foci_model_free(j->model);
    foci_data_free(j->data[0]);
    foci_data_free(j->data[1]);
    foci_tokenizer_free(j->tokenizer);
    if (j->config_owned) foci_config_free(j->ctx, &j->config);
    free(j->classes);
    foci_ctx_free(j->ctx);
}

static int run_with(const struct args *a)
{
    struct train_job j = { .a = a };
    int              task = 0;

    if (!a->n_words)
        return usage_error(
            a, "train what: lm, mlm, translate or classify? Or give a generator by "
               "--task, which says it");
    while (tasks[task] && strcmp(a->words[0], tasks[task]) != 0)
        task++;
    if (!tasks[task])
        return usage_error(a, "no task '%s'; there are lm, mlm, translate and classify",
                           a->words[0]);
    j.task = (foci_model_kind)task;
    int code = train_options_check(a, j.task);
    if (code) return code;
    j.out = opt_text(a, "out");
    snprintf(j.own_out, sizeof j.own_out, "foci-%s", tasks[task]);
    if (!j.out) j.out = j.own_out;
    j.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!j.ctx) return EXIT_FAILED;
    code = run_job(&j);
    close_job(&j);
    return code;
}

/* The arguments of the run that is gone on with, which are texts, the task first; NULL where
 * the notes have none. */
static json_t *arguments_noted(const json_t *notes)
{
    json_t *list = json_copy(json_object_get(notes, "arguments")), *text;
    bool    texts = json_array_size(list) > 0;
    size_t  i;

    json_array_foreach(list, i, text) texts &= json_is_string(text);
    if (texts) return list;
    json_decref(list);
    return NULL;
}

/* Those arguments, then those that are given now. */
static int resume(const struct args *a)
{
    const char *out = opt_text(a, "out");
    char        preset[32];

    snprintf(preset, sizeof preset, "foci-%s", a->n_words ? a->words[0] : "lm");
    json_t *notes = train_notes_read(a, out ? out : preset);
    if (!notes) return EXIT_FAILED;
    json_t *now = arguments(a), *all = arguments_noted(notes);
    json_decref(notes);
    if (!all) {
        json_decref(now);
        return failure(a, "%s/train.json: has no arguments of a training",
                       out ? out : preset);
    }
    for (size_t i = (size_t)a->n_words; i < json_array_size(now); i++)
        json_array_append(all, json_array_get(now, i));
    json_array_append_new(all, json_string("--resume"));
    if (a->json) json_array_append_new(all, json_string("--json"));
    if (a->quiet) json_array_append_new(all, json_string("--quiet"));
    const size_t n = json_array_size(all);
    char       **argv = need(n + 1, sizeof *argv);
    for (size_t i = 0; i < n; i++)
        argv[i] = (char *)json_string_value(json_array_get(all, i));
    struct args whole;
    int         code = args_parse(a->verb, (int)n, argv, &whole);
    if (code == EXIT_OK) code = run_with(&whole);
    args_free(&whole);
    free(argv);
    json_decref(all);
    json_decref(now);
    return code;
}

/* With a generator: its preset and the kind of model that it implies are filled in. */
static int run_task(const struct args *a)
{
    struct train_line line;
    struct args       whole;
    int               code = train_line_make(a, &line);

    if (!code) {
        code = args_parse(a->verb, line.n, line.argv, &whole);
        if (!code) code = run_with(&whole);
        args_free(&whole);
    }
    train_line_free(&line);
    return code;
}

static int run(const struct args *a)
{
    if (opt_flag(a, "resume")) return resume(a);
    if (opt_text(a, "task")) return run_task(a);
    return run_with(a);
}

static const char *const examples[] = {
    "foci train lm",
    "foci train lm --data book.txt --attention \"7*fixed + 1*softmax\" --heads 8",
    "foci train translate --data pairs.tsv --out de-en --steps 3000",
    "foci train --task mqar --attention linear",
    "foci train --task \"mqar(length=128, pairs=8)\" --steps 5000 --lr 0.002",
    "foci train lm --resume --out foci-lm --steps 2000",
    NULL,
};

const struct verb verb_train = {
    .name = "train",
    .run = run,
    .summary = "train a model: lm, mlm, translate, classify",
    .usage = "[TASK]",
    .min_words = 0,
    .max_words = 1,
    .options = train_options,
    .examples = examples,
    .notes =
        "Without --data a task takes the set that is shipped with it.  The folder has "
        "the best model (config.json, model.safetensors, tokenizer.json) and all that "
        "--resume needs to go on as if nothing had happened (state.safetensors).\n\n"
        "With --task the TASK may be left out, and options that are not given are "
        "those\n"
        "of the generator's preset, if it has one: foci task NAME prints it.",
    .also = task_names,
};
