/* compare_measure.c -- whether an arm can do the task and what its model costs, one child after
 * the other with nothing beside it; and what runs reach on the test set.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"

/* What failed the same way before is known: what fails is tried each time, as its reason may
 * have been a file that was not there. */
static int append_news(struct comparison *c, json_t *record)
{
    const json_t *before = results_get(
        c->results, "checks", json_string_value(json_object_get(record, "id")));
    const json_t *reason = json_object_get(before, "reason");

    if (!reason || !json_equal((json_t *)reason, json_object_get(record, "reason")))
        return results_append(c, record);
    json_decref(record);
    return EXIT_OK;
}

static int interrupted(const struct comparison *c)
{
    return failure(c->a, "interrupted: foci compare --resume --out %s goes on", c->out);
}

/* The record of a child that has ended goes into the journal. */
static int note_child(struct comparison *c, const char *kind, const char *id,
                      const json_t *words, const char *name,
                      const struct compare_child *k)
{
    json_t *result = children_result(k);
    json_t *record = results_record(kind, id, result ? "ok" : "failed");
    char   *command = children_command(words);
    char   *reason = children_reason(k);

    json_object_set_new(record, "command", json_string(command));
    if (result)
        json_object_set_new(record, name, result);
    else
        json_object_set_new(record, "reason",
                            compare_string(!strcmp(kind, "check") ? k->err : reason));
    free(command);
    free(reason);
    return append_news(c, record);
}

/* Run a child, with nothing beside it, for its record. */
static int note_one(struct comparison *c, const char *kind, const char *id,
                    const json_t *words, const char *name)
{
    struct compare_child k = { 0 };

    const int code = children_run(c->a, words, &k)
                         ? note_child(c, kind, id, words, name, &k)
                         : interrupted(c);
    free(k.out);
    free(k.err);
    return code;
}

static bool is_known(const struct comparison *c, const char *id)
{
    const json_t *check = results_get(c->results, "checks", id);
    return json_object_get(check, "model") != NULL;
}

int runs_check(struct comparison *c)
{
    int     code = EXIT_OK;
    size_t  i;
    json_t *arm;

    json_array_foreach(c->arms, i, arm)
    {
        const char *task = json_string_value(json_object_get(c->definition, "task"));
        json_t *run = plan_check(c, arm), *words = words_create("train", task, NULL);
        const char *id = json_string_value(json_object_get(run, "id"));

        words_add_options(words, json_object_get(run, "options"));
        json_array_append_new(words, json_string("--check"));
        words_add_common(c, words);
        if (!is_known(c, id)) code = note_one(c, "check", id, words, "model");
        json_decref(words);
        json_decref(run);
        if (code) return code;
    }
    return EXIT_OK;
}

static bool is_done_well(const struct comparison *c, const json_t *run)
{
    const json_t *record =
        results_get(c->results, "runs", json_string_value(json_object_get(run, "id")));
    const char *status = json_string_value(json_object_get(record, "status"));

    return status && !strcmp(status, "ok");
}

/* Without its folder a model was trained elsewhere. */
static int find_model(const struct comparison *c, const char *folder)
{
    if (run_has_file(folder, "model.safetensors")) return EXIT_OK;
    return failure(c->a,
                   "%s: has no model: where parts ran on several machines, bring their "
                   "folders runs/ together first",
                   folder);
}

/* Whether the costs of this arm are known, from any of its runs. */
static bool is_measured(const json_t *measured, const json_t *run)
{
    return json_object_get(measured, json_string_value(json_object_get(run, "arm")));
}

int runs_measure(struct comparison *c, const json_t *list)
{
    json_t *measured = json_object(), *run;
    int     code = EXIT_OK;
    size_t  i;

    for (int pass = 0; pass < 2; pass++)
        json_array_foreach(list, i, run)
        {
            const char *id = json_string_value(json_object_get(run, "id"));
            const char *arm = json_string_value(json_object_get(run, "arm"));
            if (code || is_measured(measured, run) || !is_done_well(c, run)) continue;
            if (pass && !run_is_own(c, run)) continue;
            if (pass == 0 && !results_get(c->results, "costs", id)) continue;
            if (pass) {
                char   *folder = run_folder(c, run);
                char   *heads = compare_text("%s/heads.json", folder);
                json_t *words = words_create("eval", folder, "--split", "valid",
                                             "--costs", "--heads", heads, NULL);
                words_add_common(c, words);
                code = find_model(c, folder);
                if (!code) code = note_one(c, "costs", id, words, "costs");
                json_decref(words);
                free(heads);
                free(folder);
            }
            json_object_set_new(measured, arm, json_true());
        }
    json_decref(measured);
    return code;
}

/*
 * The test set: some runs at a time, as results do not depend on what is beside them
 */

struct testing {
    struct comparison      *c;
    const json_t           *list;
    size_t                  next; /* of the list */
    struct compare_children children;
    const char             *last; /* the run that ended last */
    int                     code;
};

static void start_test(struct testing *t, json_t *run)
{
    char   *folder = run_folder(t->c, run);
    json_t *words = run_test_words(t->c, folder);

    t->code = find_model(t->c, folder);
    if (!t->code) t->code = children_start(&t->children, words, run);
    json_decref(words);
    free(folder);
}

static void start_tests(struct testing *t)
{
    while (!t->code && !signal_count() && t->children.busy < t->children.n &&
           t->next < json_array_size(t->list)) {
        json_t     *run = json_array_get(t->list, t->next++);
        const char *id = json_string_value(json_object_get(run, "id"));
        if (run_is_own(t->c, run) && is_done_well(t->c, run) &&
            !results_get(t->c->results, "tests", id))
            start_test(t, run);
    }
}

static void end_test(struct testing *t, struct compare_child *k)
{
    const json_t *run = k->user;
    char         *folder = run_folder(t->c, run);
    json_t       *words = run_test_words(t->c, folder);
    int           code;

    if (children_were_stopped(k))
        code = signal_count() ? EXIT_OK : interrupted(t->c);
    else
        code = note_child(t->c, "test", json_string_value(json_object_get(run, "id")),
                          words, "test", k);
    if (!t->code) t->code = code;
    t->last = json_string_value(json_object_get(run, "id"));
    json_decref(words);
    free(folder);
    children_release(&t->children, k);
}

int runs_test(struct comparison *c, const json_t *list)
{
    struct testing  t = { .c = c, .list = list, .last = "" };
    struct progress progress;

    progress_begin(&progress, c->a, "test sets", (int64_t)json_array_size(list));
    children_create(&t.children, c->a, c->jobs);
    start_tests(&t);
    while (t.children.busy) {
        struct compare_child *k = children_wait(&t.children);
        if (k) end_test(&t, k);
        start_tests(&t);
        if (*t.last)
            progress_tick(&progress, (int64_t)t.next - t.children.busy, t.last);
    }
    children_free(&t.children);
    progress_end(&progress);
    return t.code || !signal_count() ? t.code : interrupted(c);
}
