/* compare_plan.c -- the list of runs, in the order in which they are done, and what tuning
 * chose.
 *
 * Seeds are outermost, then numbers of examples, then values, and arms innermost: what
 * changes on the machine in the course of hours meets all arms alike, and a comparison that
 * is stopped early has as many runs of each.
 *
 * Parts K/N take turns among the arms of a row, and begin one later in each next row, so that
 * no arm is always run by the same machine.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"

/* FNV-1a of a text and the zero behind it. */
static uint64_t absorb(uint64_t sum, const char *text)
{
    do
        sum = (sum ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    while (*text++);
    return sum;
}

/* A checksum of what determines a run.  Arms that differ by their names alone are runs of
 * their own, as a control. */
static uint64_t sum_of(const char *task, const char *arm, const json_t *options)
{
    char          *text = json_dumps(options, JSON_SORT_KEYS | JSON_COMPACT);
    const uint64_t sum = absorb(absorb(UINT64_C(0xcbf29ce484222325), task), arm);
    const uint64_t all = absorb(sum, text ? text : "");

    free(text);
    return all;
}

/* "4*local(window=8)" as the name of a folder begins, "4-local-window-8". */
static void slug(const char *name, char text[25])
{
    size_t n = 0;

    for (; *name && n < 24; name++) {
        if (isalnum((unsigned char)*name) || *name == '.' || *name == '_')
            text[n++] = *name;
        else if (n && text[n - 1] != '-')
            text[n++] = '-';
    }
    while (n && text[n - 1] == '-')
        n--;
    text[n] = '\0';
}

static void set_number(json_t *options, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    json_object_set_new(options, name, json_string(text));
}

json_t *plan_run(const struct comparison *c, const json_t *arm, int64_t seed,
                 int64_t examples, const json_t *values)
{
    const char *task = json_string_value(json_object_get(c->definition, "task"));
    json_t     *options = json_deep_copy(json_object_get(c->definition, "options"));
    char        begin[25], count[32] = "";

    json_object_update(options, json_object_get(arm, "options"));
    json_object_update(options, (json_t *)values);
    set_number(options, "seed", seed);
    if (examples) {
        set_number(options, "examples", examples);
        snprintf(count, sizeof count, "-n%lld", (long long)examples);
    }
    const char    *name = json_string_value(json_object_get(arm, "name"));
    const uint64_t sum = sum_of(task, name, options);
    slug(name, begin);
    char   *id = compare_text("%s-s%lld%s-%012llx", *begin ? begin : "arm",
                              (long long)seed, count, (unsigned long long)(sum >> 16));
    json_t *run =
        json_pack("{s:s, s:O, s:I, s:I, s:O, s:o}", "id", id, "arm",
                  json_object_get(arm, "name"), "seed", (json_int_t)seed, "examples",
                  (json_int_t)examples, "values", values, "options", options);
    free(id);
    return run;
}

json_t *plan_check(const struct comparison *c, const json_t *arm)
{
    const int64_t seed = json_integer_value(json_object_get(c->definition, "seed"));
    json_t       *none = json_object(), *run = plan_run(c, arm, seed, 0, none);

    json_decref(none);
    return run;
}

bool plan_is_able(const struct comparison *c, const json_t *arm)
{
    json_t       *run = plan_check(c, arm);
    const char   *id = json_string_value(json_object_get(run, "id"));
    const json_t *check = results_get(c->results, "checks", id);
    const char   *status = json_string_value(json_object_get(check, "status"));

    json_decref(run);
    return !status || !strcmp(status, "ok");
}

/*
 * Grids
 */

json_t *plan_grid(const json_t *definition)
{
    json_t     *grid = json_pack("[{}]"), *tune = json_object_get(definition, "tune");
    const char *name;
    json_t     *list, *value, *point;
    size_t      i, k;

    json_object_foreach(tune, name, list)
    {
        json_t *next = json_array();
        json_array_foreach(grid, i, point)
        {
            json_array_foreach(list, k, value)
            {
                json_t *copy = json_copy(point);
                json_object_set(copy, name, value);
                json_array_append_new(next, copy);
            }
        }
        json_decref(grid);
        grid = next;
    }
    return grid;
}

/* The metric of a run on validation, NAN where it failed; false: it is not done. */
static bool reached(const struct comparison *c, const json_t *run, double *quality)
{
    const char   *id = json_string_value(json_object_get(run, "id"));
    const json_t *record = results_get(c->results, "runs", id);
    const char   *status = json_string_value(json_object_get(record, "status"));
    const json_t *value = json_object_get(json_object_get(record, "valid"),
                                          compare_metric_of(c->definition)->key);

    *quality = status && !strcmp(status, "ok") && json_is_number(value)
                   ? json_number_value(value)
                   : NAN;
    return record != NULL;
}

int plan_choice(const struct comparison *c, const json_t *arm, int64_t examples,
                const json_t *grid, double *mean)
{
    const int64_t first = json_integer_value(json_object_get(c->definition, "seed"));
    const int64_t seeds =
        json_integer_value(json_object_get(c->definition, "tune_seeds"));
    const bool lower = compare_metric_of(c->definition)->lower;
    int        best = 0;
    bool       all = true;
    size_t     i;
    json_t    *values;

    if (json_array_size(grid) == 1) return 0;
    json_array_foreach(grid, i, values)
    {
        mean[i] = 0;
        for (int64_t s = 0; s < seeds; s++) {
            json_t *run = plan_run(c, arm, first + s, examples, values);
            double  quality;
            all &= reached(c, run, &quality);
            mean[i] += quality / (double)seeds;
            json_decref(run);
        }
        if (isnan(mean[i])) continue;
        if (isnan(mean[best]) || (lower ? mean[i] < mean[best] : mean[i] > mean[best]))
            best = (int)i;
    }
    return all ? best : -1;
}

/*
 * Lists
 */

/* One arm of a row. */
static void add_run(const struct comparison *c, json_t *list, size_t row, size_t arm,
                    json_t *run)
{
    json_object_set_new(run, "owner",
                        json_integer((json_int_t)((row + arm) % (size_t)c->parts)));
    json_array_append_new(list, run);
}

/* The runs of all arms with one seed, one number of examples and a point of the grid; -1: the
 * one that was chosen for each. */
static bool add_row(const struct comparison *c, json_t *list, size_t row, int64_t seed,
                    int64_t examples, const json_t *grid, int point)
{
    double *mean = need(json_array_size(grid), sizeof *mean);
    bool    complete = true;
    size_t  i;
    json_t *arm;

    json_array_foreach(c->arms, i, arm)
    {
        if (!plan_is_able(c, arm)) continue;
        const int at = point < 0 ? plan_choice(c, arm, examples, grid, mean) : point;
        complete &= at >= 0;
        if (at < 0) continue;
        add_run(c, list, row, i,
                plan_run(c, arm, seed, examples, json_array_get(grid, (size_t)at)));
    }
    free(mean);
    return complete;
}

static bool add_rows(const struct comparison *c, json_t *list, int64_t seeds,
                     bool tuning)
{
    const json_t *sizes = json_object_get(c->definition, "examples");
    const int64_t first = json_integer_value(json_object_get(c->definition, "seed"));
    json_t       *grid = plan_grid(c->definition), *size;
    const int     points = tuning ? (int)json_array_size(grid) : 1;
    bool          complete = true;
    size_t        i, row = 0;

    for (int64_t s = 0; s < seeds; s++)
        json_array_foreach(sizes, i, size)
        {
            for (int p = 0; p < points; p++)
                complete &= add_row(c, list, row++, first + s, json_integer_value(size),
                                    grid, tuning ? p : -1);
        }
    json_decref(grid);
    return complete;
}

json_t *plan_tuning(const struct comparison *c)
{
    json_t *list = json_array();

    if (json_object_get(c->definition, "tune"))
        (void)add_rows(c, list,
                       json_integer_value(json_object_get(c->definition, "tune_seeds")),
                       true);
    return list;
}

json_t *plan_runs(const struct comparison *c, bool *complete)
{
    json_t *list = json_array();

    *complete = add_rows(
        c, list, json_integer_value(json_object_get(c->definition, "seeds")), false);
    return list;
}
