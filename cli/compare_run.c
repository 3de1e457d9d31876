/* compare_run.c -- what is done for each run, and the line of results it leaves.
 *
 *     foci train TASK OPTIONS --json --quiet --threads T --out DIR/runs/ID
 *     foci eval DIR/runs/ID --split valid --json --quiet --threads T
 *
 * A run that was interrupted goes on from its last checkpoint, or begins anew where it has
 * none; with --time-limit always anew, as it would get more time than others.  What the
 * training said is kept in trained.json, so that a crash before the evaluation is over
 * repeats that alone.  The state of the optimiser, twice the size of the model, is removed
 * once a run is trained.
 *
 * When all runs are done, one model of each arm is measured, with nothing beside it, and the
 * test set is touched: once for each run that is compared.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/comparison.h"
#include "foci/file.h"

/* A run that is being done. */
struct run_job {
    const json_t *run;
    char         *folder;
    bool          on, trained; /* it goes on from a state; it is trained */
    json_t       *kept;        /* trained.json */
    double        start;
};

struct runner {
    struct comparison      *c;
    struct compare_children children;
    struct progress         progress;
    const json_t           *list;
    size_t                  next; /* of the list */
    int64_t                 total, done, done_now;
    double                  start;
    bool                    stop;
    int                     code;
};

/*
 * Files of a run
 */

static void remove_file(const char *folder, const char *name)
{
    char *path = compare_text("%s/%s", folder, name);

    (void)unlink(path);
    free(path);
}

static int make_folder(const struct args *a, const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return EXIT_OK;
    return failure(a, "%s: cannot be made: %s", path, strerror(errno));
}

/* Nothing of an earlier attempt stays. */
static void forget(const char *folder)
{
    remove_file(folder, "trained.json");
    remove_file(folder, "state.safetensors");
    remove_file(folder, "log.jsonl");
}

static json_t *read_kept(const char *folder)
{
    char   *path = compare_text("%s/trained.json", folder);
    json_t *kept = json_load_file(path, 0, NULL);

    free(path);
    return kept;
}

static int write_kept(const struct comparison *c, const struct run_job *j)
{
    char *path = compare_text("%s/trained.json", j->folder);
    char *text = json_dumps(j->kept, JSON_INDENT(2));

    const foci_status status = foci_file_write(c->ctx, path, text, strlen(text));
    free(text);
    free(path);
    return status ? library_error(c->a, c->ctx, status, NULL) : EXIT_OK;
}

/* The last line of the log so far, to be released; NULL: there is none. */
static json_t *last_of_log(const char *folder)
{
    char  *path = compare_text("%s/log.jsonl", folder);
    FILE  *f = fopen(path, "r");
    char   text[2048];
    size_t n = 0;

    free(path);
    if (!f) return NULL;
    if (fseek(f, -(long)(sizeof text - 1), SEEK_END)) rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *end = strrchr(text, '\n');
    if (!end) return NULL;
    *end = '\0';
    char *line = strrchr(text, '\n');
    return json_loads(line ? line + 1 : text, 0, NULL);
}

/* The steps of the log that were validated, [[step, loss, valid_loss, valid_accuracy]]; what a
 * run that was resumed did twice counts once. */
json_t *run_curve(const char *folder)
{
    char   *path = compare_text("%s/log.jsonl", folder), line[2048];
    FILE   *f = fopen(path, "r");
    json_t *curve = json_array();

    free(path);
    while (f && fgets(line, sizeof line, f)) {
        json_t       *o = json_loads(line, 0, NULL);
        const json_t *step = json_object_get(o, "step");
        while (step && json_array_size(curve) &&
               json_integer_value(json_array_get(
                   json_array_get(curve, json_array_size(curve) - 1), 0)) >=
                   json_integer_value(step))
            json_array_remove(curve, json_array_size(curve) - 1);
        if (json_object_get(o, "valid_loss"))
            json_array_append_new(
                curve, json_pack("[O, O, O, O]", step, json_object_get(o, "loss"),
                                 json_object_get(o, "valid_loss"),
                                 json_object_get(o, "valid_accuracy")));
        json_decref(o);
    }
    if (f) fclose(f);
    return curve;
}

/*
 * Records
 */

/* The best floor is more than it reached: a rule that learns nothing does as well. */
static bool is_below_floor(const json_t *valid)
{
    const double accuracy = json_number_value(json_object_get(valid, "accuracy"));
    const char  *name;
    json_t      *floor;
    double       best = -1;

    json_object_foreach(json_object_get(valid, "floors"), name, floor)
    {
        best = fmax(best, json_number_value(floor));
    }
    return best > accuracy;
}

/* A run whose training was at its end when it was resumed counted nothing. */
static void complete_train(json_t *train, const char *folder)
{
    static const char *const names[][2] = { { "steps", "step" },
                                            { "tokens", "tokens" },
                                            { "loss", "loss" },
                                            { "seconds", "seconds" },
                                            { "tokens_per_second",
                                              "tokens_per_second" } };
    if (json_integer_value(json_object_get(train, "steps"))) return;
    json_t *last = last_of_log(folder);
    for (size_t i = 0; last && i < sizeof names / sizeof *names; i++)
        json_object_set(train, names[i][0], json_object_get(last, names[i][1]));
    json_decref(last);
}

static json_t *run_record(const struct runner *r, const struct run_job *j,
                          const char *status)
{
    json_t *record =
        results_record("run", json_string_value(json_object_get(j->run, "id")), status);
    json_t *train = run_train_words(r->c, j->run, j->folder, false);
    json_t *eval = run_eval_words(r->c, j->folder);
    char   *commands[] = { children_command(train), children_command(eval) };

    json_object_update_missing(record, (json_t *)j->run);
    json_object_del(record, "owner");
    json_object_set_new(record, "commands",
                        json_pack("[s, s]", commands[0], commands[1]));
    json_object_set_new(record, "threads", json_integer(r->c->threads));
    json_object_set_new(record, "curve", run_curve(j->folder));
    json_object_update(record, j->kept);
    for (int i = 0; i < 2; i++)
        free(commands[i]);
    json_decref(train);
    json_decref(eval);
    return record;
}

/*
 * One run
 */

static void free_job(struct run_job *j)
{
    json_decref(j->kept);
    free(j->folder);
    free(j);
}

/* Count a run that ended, and say so. */
static void tell(struct runner *r, const json_t *record)
{
    const struct compare_metric *m = compare_metric_of(r->c->definition);
    const struct args           *a = r->c->a;
    const char                  *id = json_string_value(json_object_get(record, "id"));
    const json_t                *valid = json_object_get(record, "valid");

    r->done++;
    r->done_now++;
    const double left =
        (seconds() - r->start) / (double)r->done_now * (double)(r->total - r->done);
    if (a->quiet) return;
    if (a->json) {
        json_t *o = json_pack("{s:I, s:I, s:f, s:s, s:O}", "done", (json_int_t)r->done,
                              "of", (json_int_t)r->total, "seconds_left", left, "run",
                              id, "status", json_object_get(record, "status"));
        char   *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(4));
        fprintf(stderr, "%s\n", text);
        free(text);
        json_decref(o);
    } else if (valid && !r->progress.terminal) {
        note(a, "%lld of %lld runs: %s: %s %.*f, %.0f s left", (long long)r->done,
             (long long)r->total, id, m->name, m->digits,
             m->scale * json_number_value(json_object_get(valid, m->key)), left);
    }
    if (!valid)
        note(a, "run %s failed: %s", id,
             json_string_value(json_object_get(record, "reason")));
}

/* Write the record, which is taken over; the child's place and the job are given back. */
static void end_run(struct runner *r, struct run_job *j, json_t *record)
{
    const char *id = json_string_value(json_object_get(record, "id"));

    if (r->c->tried) json_object_set_new(r->c->tried, id, json_true());
    json_incref(record);
    if (results_append(r->c, record)) {
        r->code = EXIT_FAILED;
        r->stop = true;
    }
    tell(r, record);
    json_decref(record);
    free_job(j);
}

static void fail_run(struct runner *r, struct run_job *j, const struct compare_child *k)
{
    json_t *record = run_record(r, j, "failed");
    char   *reason = children_reason(k);

    json_object_set_new(record, "reason", compare_string(reason));
    free(reason);
    end_run(r, j, record);
}

/* Start the next child of a run. */
static void start_step(struct runner *r, struct run_job *j)
{
    json_t *words = j->trained ? run_eval_words(r->c, j->folder)
                               : run_train_words(r->c, j->run, j->folder, j->on);

    if (children_start(&r->children, words, j)) {
        r->code = EXIT_FAILED;
        r->stop = true;
        free_job(j);
    }
    json_decref(words);
}

static void start_run(struct runner *r, const json_t *run)
{
    const json_t   *options = json_object_get(run, "options");
    const char     *id = json_string_value(json_object_get(run, "id"));
    struct run_job *j = need(1, sizeof *j);

    *j = (struct run_job){ .run = run, .folder = run_folder(r->c, run) };
    if (make_folder(r->c->a, j->folder)) {
        r->code = EXIT_FAILED;
        r->stop = true;
        free_job(j);
        return;
    }
    if (results_get(r->c->results, "runs", id)) forget(j->folder); /* --retry */
    j->kept = read_kept(j->folder);
    j->trained = j->kept != NULL;
    j->on = !json_object_get(options, "time-limit") &&
            run_has_file(j->folder, "state.safetensors") &&
            run_has_file(j->folder, "train.json");
    if (!j->trained && !j->on) forget(j->folder);
    start_step(r, j);
}

static void end_training(struct runner *r, struct run_job *j, struct compare_child *k)
{
    json_t *train = children_result(k);

    if (!train && j->on && WIFEXITED(k->status) && WEXITSTATUS(k->status) == 1) {
        note(r->c->a, "run %s cannot go on and begins anew: %s",
             json_string_value(json_object_get(j->run, "id")), k->err);
        forget(j->folder);
        j->on = false;
    } else if (!train) {
        fail_run(r, j, k);
        return;
    } else {
        complete_train(train, j->folder);
        j->kept = json_pack("{s:o, s:I, s:f}", "train", train, "peak_bytes",
                            (json_int_t)k->peak_bytes, "seconds", k->seconds);
        j->trained = true;
        if (write_kept(r->c, j)) {
            r->code = EXIT_FAILED;
            r->stop = true;
            free_job(j);
            return;
        }
        remove_file(j->folder, "state.safetensors");
    }
    start_step(r, j);
}

static void end_evaluation(struct runner *r, struct run_job *j, struct compare_child *k)
{
    const struct compare_metric *m = compare_metric_of(r->c->definition);
    json_t                      *valid = children_result(k);

    if (!valid) {
        fail_run(r, j, k);
        return;
    }
    const json_t *quality = json_object_get(valid, m->key);
    json_t       *record = run_record(r, j, json_is_number(quality) ? "ok" : "failed");
    if (json_is_number(quality)) {
        json_object_set_new(record, "below_floor", json_boolean(is_below_floor(valid)));
    } else {
        char *reason = compare_text("foci eval gives no number for %s", m->key);
        json_object_set_new(record, "reason", json_string(reason));
        free(reason);
    }
    json_object_set_new(record, "valid", valid);
    end_run(r, j, record);
}

static void end_child(struct runner *r, struct compare_child *k)
{
    struct run_job      *j = k->user;
    struct compare_child ended = *k;

    k->out = k->err = NULL;
    children_release(&r->children, k);
    if (children_were_stopped(&ended)) {
        r->stop = true;
        free_job(j);
    } else if (j->trained) {
        end_evaluation(r, j, &ended);
    } else {
        end_training(r, j, &ended);
    }
    free(ended.out);
    free(ended.err);
}

/*
 * All runs
 */

static bool is_pending(const struct comparison *c, const json_t *run)
{
    const char   *id = json_string_value(json_object_get(run, "id"));
    const json_t *record = results_get(c->results, "runs", id);
    const char   *status = json_string_value(json_object_get(record, "status"));

    if (!record) return true;
    return c->tried && strcmp(status, "ok") != 0 && !json_object_get(c->tried, id);
}

bool run_is_own(const struct comparison *c, const json_t *run)
{
    return json_integer_value(json_object_get(run, "owner")) == c->part;
}

int64_t runs_missing(const struct comparison *c, const json_t *list)
{
    int64_t n = 0;
    size_t  i;
    json_t *run;

    json_array_foreach(list, i, run)
    {
        n += !results_get(c->results, "runs",
                          json_string_value(json_object_get(run, "id")));
    }
    return n;
}

/* Seconds of the longest run so far: of an arm, or of all where `arm` is NULL. */
static double longest(const struct comparison *c, const json_t *arm)
{
    const char *id;
    json_t     *record;
    double      most = 0;

    json_object_foreach(json_object_get(c->results, "runs"), id, record)
    {
        if (!arm || json_equal(json_object_get(record, "arm"), (json_t *)arm))
            most = fmax(most, json_number_value(json_object_get(record, "seconds")));
    }
    return most;
}

/* Whether a run that begins now would probably end behind --within. */
static bool is_late(const struct comparison *c, const json_t *run)
{
    if (c->until <= 0) return false;
    const double own = longest(c, json_object_get(run, "arm"));
    return seconds() + (own > 0 ? own : longest(c, NULL)) > c->until;
}

/* What is late is left for --resume, and so is what comes behind it, of all arms alike. */
static void start_more(struct runner *r)
{
    while (!r->stop && !signal_count() && r->children.busy < r->children.n &&
           r->next < json_array_size(r->list)) {
        const json_t *run = json_array_get(r->list, r->next);
        const bool    mine = run_is_own(r->c, run) && is_pending(r->c, run);
        if (mine && is_late(r->c, run)) break;
        r->next++;
        if (mine) start_run(r, run);
    }
}

/* The bar of a terminal, with the loss of a run that is under way. */
static void show(struct runner *r)
{
    char text[128] = "";

    if (!r->progress.terminal || r->c->a->json) return;
    for (int i = 0; i < r->children.n; i++) {
        const struct compare_child *k = &r->children.all[i];
        if (!k->busy) continue;
        const struct run_job *j = k->user;
        json_t               *last = last_of_log(j->folder);
        const char           *id = json_string_value(json_object_get(j->run, "id"));
        if (last)
            snprintf(text, sizeof text, "%.40s: step %lld, loss %.4f", id,
                     (long long)json_integer_value(json_object_get(last, "step")),
                     json_number_value(json_object_get(last, "loss")));
        else
            snprintf(text, sizeof text, "%.40s", id);
        json_decref(last);
        break;
    }
    progress_tick(&r->progress, r->done, text);
}

static void count(struct runner *r)
{
    size_t  i;
    json_t *run;

    json_array_foreach(r->list, i, run)
    {
        if (!run_is_own(r->c, run)) continue;
        r->total++;
        r->done += !is_pending(r->c, run);
    }
}

int runs_do(struct comparison *c, const json_t *list)
{
    struct runner r = { .c = c, .list = list, .start = seconds() };
    char         *folder = compare_text("%s/runs", c->out);

    int code = make_folder(c->a, folder);
    free(folder);
    if (code) return code;
    count(&r);
    children_create(&r.children, c->a, c->jobs);
    progress_begin(&r.progress, c->a, "runs", r.total);
    start_more(&r);
    while (r.children.busy) {
        struct compare_child *k = children_wait(&r.children);
        if (k) end_child(&r, k);
        start_more(&r);
        show(&r);
    }
    progress_end(&r.progress);
    children_free(&r.children);
    if (r.code) return r.code;
    if (!r.stop && !signal_count()) {
        if (r.done < r.total)
            note(c->a,
                 "%lld of %lld runs are done, and the next would end too late: "
                 "foci compare --resume --out %s goes on",
                 (long long)r.done, (long long)r.total, c->out);
        return EXIT_OK;
    }
    return failure(
        c->a,
        "interrupted, %lld of %lld runs are done: foci compare --resume --out "
        "%s goes on",
        (long long)r.done, (long long)r.total, c->out);
}
