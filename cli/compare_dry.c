/* compare_dry.c -- foci compare --dry-run: the list of runs with their commands, and about
 * how long they take.
 *
 * An arm that has results is taken to go on as it did.  Others train for a few steps, in a
 * folder that is removed again: of two short trainings the difference is steps alone, and
 * what the shorter one takes beyond its steps is the rest of a run.  Validations are not in
 * it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/comparison.h"

enum { FEW = 3, MORE = 13 };

/* What runs that take as long have in common: "softmax on 5000 examples"; to be freed. */
static char *sort_of(const json_t *run)
{
    const char   *arm = json_string_value(json_object_get(run, "arm"));
    const int64_t examples = json_integer_value(json_object_get(run, "examples"));

    return examples ? compare_text("%s on %lld examples", arm, (long long)examples)
                    : compare_text("%s", arm);
}

/* Seconds of the runs of a sort so far, the mean; NAN: none is done. */
static double known_seconds(const struct comparison *c, const char *sort)
{
    const char *id;
    json_t     *record;
    double      sum = 0;
    int         n = 0;

    json_object_foreach(json_object_get(c->results, "runs"), id, record)
    {
        const json_t *seconds = json_object_get(record, "seconds");
        char         *own = sort_of(record);
        if (!strcmp(own, sort) && json_is_number(seconds)) {
            sum += json_number_value(seconds);
            n++;
        }
        free(own);
    }
    return n ? sum / n : NAN;
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = { "config.json",       "model.safetensors",
                                         "state.safetensors", "tokenizer.json",
                                         "train.json",        "log.jsonl" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = compare_text("%s/%s", folder, names[i]);
        (void)unlink(path);
        free(path);
    }
    (void)rmdir(folder);
}

/* Train for some steps: seconds of the whole child, and what it says; to be released. */
static json_t *time_steps(struct comparison *c, const json_t *run, int steps,
                          double *whole)
{
    char                   *folder = temporary_name();
    json_t                 *copy = json_deep_copy(run), *result = NULL;
    json_t                 *options = json_object_get(copy, "options");
    struct compare_children one;
    struct compare_child   *k = NULL;

    json_object_del(options, "epochs");
    json_object_del(options, "tokens");
    json_object_del(options, "time-limit");
    json_object_del(options, "patience");
    json_object_set_new(options, "valid-batches", json_string("1"));
    json_object_set_new(options, "steps", json_string(steps == FEW ? "3" : "13"));
    children_create(&one, c->a, 1);
    if (mkdtemp(folder)) {
        json_t *words = run_train_words(c, copy, folder, false);
        if (!children_start(&one, words, NULL))
            while (!(k = children_wait(&one)))
                continue;
        json_decref(words);
        remove_folder(folder);
    }
    if (k) {
        if (WIFEXITED(k->status) && !WEXITSTATUS(k->status))
            result = json_loads(k->out, 0, NULL);
        *whole = k->seconds;
        children_release(&one, k);
    }
    children_free(&one);
    json_decref(copy);
    free(folder);
    return result;
}

static double option_of(const json_t *run, const char *name)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(run, "options"), name));
    return text ? strtod(text, NULL) : 0;
}

/* Steps that the budget of a run allows, of `tokens` each, in passes of `batches`; 0: they
 * cannot be told. */
static double steps_of(const json_t *run, double tokens, double batches)
{
    const double each[] = {
        option_of(run, "steps"),
        ceil(option_of(run, "epochs") * batches / fmax(option_of(run, "accumulate"), 1)),
        tokens > 0 ? option_of(run, "tokens") / tokens : 0,
    };
    double least = 0; /* what ends the run first */

    if (option_of(run, "epochs") > 0 && batches <= 0) return 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i] > 0 && (least <= 0 || each[i] < least)) least = each[i];
    if (least > 0) return least;
    return option_of(run, "patience") > 0 ? 0 : 1000;
}

/* Seconds that a run takes, by a few steps; NAN: it cannot be told. */
static double timed_seconds(struct comparison *c, const json_t *run)
{
    double       whole[2] = { NAN, NAN };
    json_t      *few = time_steps(c, run, FEW, &whole[0]);
    json_t      *more = few ? time_steps(c, run, MORE, &whole[1]) : NULL;
    const bool   timed = few && more;
    const double a = json_number_value(json_object_get(few, "seconds"));
    const double b = json_number_value(json_object_get(more, "seconds"));
    const double tokens = json_number_value(json_object_get(more, "tokens")) / MORE;
    const double step = fmax((b - a) / (MORE - FEW), 0);
    const double rest = fmax(whole[0] - FEW * step, 0);
    const double batches = json_number_value(json_object_get(more, "batches"));
    const double limit = option_of(run, "time-limit");
    const double steps = steps_of(run, tokens, batches);

    json_decref(few);
    json_decref(more);
    if (!timed || (steps <= 0 && limit <= 0)) return NAN;
    const bool by_steps = option_of(run, "steps") > 0 || option_of(run, "epochs") > 0 ||
                          option_of(run, "tokens") > 0;
    const double most = limit > 0 ? limit : INFINITY;
    return rest + (by_steps || limit <= 0 ? fmin(most, steps * step) : limit);
}

/* Seconds of a run of this sort, and how they are known. */
static json_t *estimate_one(struct comparison *c, const json_t *run, const char *sort)
{
    const double known = known_seconds(c, sort);
    const double each = isfinite(known) ? known : timed_seconds(c, run);

    return json_pack("{s:o, s:s}", "seconds",
                     isfinite(each) ? json_real(each) : json_null(), "from",
                     isfinite(known)  ? "its results so far"
                     : isfinite(each) ? "a few timed steps, without validations"
                                      : "nothing: it could not be timed");
}

/* By sort, what a run of it takes. */
static json_t *estimate(struct comparison *c, const json_t *list)
{
    json_t *seconds = json_object(), *run;
    size_t  i;

    json_array_foreach(list, i, run)
    {
        char *sort = sort_of(run);
        if (!json_object_get(seconds, sort) && !signal_count())
            json_object_set_new(seconds, sort, estimate_one(c, run, sort));
        free(sort);
    }
    return seconds;
}

/* The runs that are to be done, with their commands; *total: seconds of one after the other,
 * those that cannot be told left out. */
static json_t *list_runs(const struct comparison *c, const json_t *list,
                         const json_t *seconds, const char *phase, double *total)
{
    json_t *out = json_array(), *run;
    size_t  i;

    json_array_foreach(list, i, run)
    {
        const char *id = json_string_value(json_object_get(run, "id"));
        const bool  done = results_get(c->results, "runs", id) != NULL;
        char       *folder = run_folder(c, run);
        json_t     *words = run_train_words(c, run, folder, false);
        char       *command = children_command(words);
        if (json_integer_value(json_object_get(run, "owner")) == c->part) {
            json_array_append_new(out,
                                  json_pack("{s:s, s:O, s:s, s:b, s:s}", "id", id,
                                            "arm", json_object_get(run, "arm"), "phase",
                                            phase, "done", done, "command", command));
            char         *sort = sort_of(run);
            const json_t *each =
                json_object_get(json_object_get(seconds, sort), "seconds");
            if (!done) *total += json_number_value(each);
            free(sort);
        }
        free(command);
        json_decref(words);
        free(folder);
    }
    return out;
}

/* Seconds of the runs that are known when tuning is over, with the values chosen: those of
 * seeds that tuning does not do.  They are shared out among parts; *n counts those of all. */
static double later_seconds(const struct comparison *c, const json_t *seconds,
                            int64_t *n)
{
    const json_t *sizes = json_object_get(c->definition, "examples");
    const int64_t seeds = json_integer_value(json_object_get(c->definition, "seeds"));
    const int64_t more =
        seeds - json_integer_value(json_object_get(c->definition, "tune_seeds"));
    json_t *grid = plan_grid(c->definition), *arm, *size;
    double *mean = need(json_array_size(grid), sizeof *mean), total = 0;
    size_t  i, k;

    *n = 0;
    json_array_foreach(c->arms, i, arm)
    {
        json_array_foreach(sizes, k, size)
        {
            const int64_t count = json_integer_value(size);
            if (more < 1 || plan_choice(c, arm, count, grid, mean) >= 0) continue;
            json_t *run = plan_run(c, arm, 1, count, json_array_get(grid, 0));
            char   *sort = sort_of(run);
            total += (double)more * json_number_value(json_object_get(
                                        json_object_get(seconds, sort), "seconds"));
            *n += more;
            free(sort);
            json_decref(run);
        }
    }
    free(mean);
    json_decref(grid);
    return total / c->parts;
}

static void print_estimate(const struct comparison *c, const json_t *seconds,
                           double total)
{
    struct output_table *t = table_create("lrl");
    const char          *name;
    json_t              *one;

    json_object_foreach((json_t *)seconds, name, one)
    {
        const json_t *each = json_object_get(one, "seconds");
        table_cell(t, "%s", name);
        if (json_is_number(each))
            table_cell(t, "%.3g s a run", json_number_value(each));
        else
            table_cell(t, "-");
        table_cell(t, "by %s", json_string_value(json_object_get(one, "from")));
    }
    printf("\n");
    table_print(t, stdout);
    table_free(t);
    printf("in all about %.3g s: %d at once with %d thread%s each\n", total / c->jobs,
           c->jobs, c->threads, c->threads > 1 ? "s" : "");
}

int runs_print(struct comparison *c)
{
    bool       complete;
    json_t    *tuning = plan_tuning(c), *runs = plan_runs(c, &complete);
    const bool tunes = json_array_size(tuning) > 0;
    json_t    *seconds = estimate(c, tunes ? tuning : runs);
    double     total = 0;
    json_t    *all = list_runs(c, tuning, seconds, "tuning", &total), *run;
    json_t    *rest = list_runs(c, runs, seconds, "runs", &total);
    size_t     i;
    int64_t    later;

    total += later_seconds(c, seconds, &later);
    json_array_extend(all, rest);
    json_decref(rest);
    json_decref(tuning);
    json_decref(runs);
    if (c->a->json)
        return print_json(c->a,
                          json_pack("{s:o, s:I, s:o, s:f, s:i, s:i, s:b}", "runs", all,
                                    "later", (json_int_t)later, "arms", seconds,
                                    "seconds", total / c->jobs, "jobs", c->jobs,
                                    "threads", c->threads, "complete", complete));
    json_array_foreach(all, i, run)
    {
        printf("%s%s\n", json_is_true(json_object_get(run, "done")) ? "# done: " : "",
               json_string_value(json_object_get(run, "command")));
    }
    if (later)
        printf("# then %lld runs with the values that tuning chooses, of all seeds\n",
               (long long)later);
    print_estimate(c, seconds, total);
    json_decref(all);
    json_decref(seconds);
    return EXIT_OK;
}
