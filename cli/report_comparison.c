/* report_comparison.c -- the section of a comparison: what was compared, differences with their
 * verdicts, tables, figures, and every run with its commands. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"

enum { MOST_RUNS = 500 }; /* whose commands are listed */

/* The name of a table, by its place in tables_of_comparison(). */
static const char *const titles[] = { "Quality", "Costs", "Tuning, on validation" };

json_t *report_runs(const struct report_comparison *k)
{
    bool complete;
    return plan_runs(&k->c, &complete);
}

char *report_find(const struct report_comparison *k, const json_t *run, const char *name)
{
    size_t  i;
    json_t *folder;

    json_array_foreach(k->folders, i, folder)
    {
        char *path = compare_text("%s/runs/%s", json_string_value(folder),
                                  field_text(run, "id"));
        if (run_has_file(path, name)) return path;
        free(path);
    }
    return NULL;
}

/*
 * Differences
 */

static const json_t *last_level(const struct report_comparison *k)
{
    const json_t *levels = json_object_get(k->summary, "levels");
    return json_array_get(levels, json_array_size(levels) - 1);
}

static void put_differences(struct report *r, const struct report_comparison *k)
{
    const struct compare_metric *m = compare_metric_of(k->c.definition);
    const json_t                *base = json_object_get(k->summary, "baseline");
    const json_t                *level = last_level(k);
    char         *name = compare_text("difference of %s to %s, %s", m->name,
                                      json_string_value(base), m->unit);
    struct chart *c =
        chart_create("differences", "Differences, and what they say", name, "");
    size_t  i;
    json_t *arm;

    c->rows = true;
    c->margin = json_number_value(json_object_get(k->summary, "margin"));
    json_array_foreach(json_object_get(level, "arms"), i, arm)
    {
        const json_t *d = json_object_get(arm, "difference");
        const char   *name_of = field_text(arm, "arm");
        if (json_equal(json_object_get(arm, "arm"), base)) continue;
        struct chart_series *s = chart_add(c, name_of, report_number(r, name_of));
        s->word = compare_text("%s", d ? field_text(d, "verdict") : "no pairs of runs");
        chart_put(s, field_real(d, "mean"), 0, field_real(d, "low"),
                  field_real(d, "high"));
    }
    chart_note(
        c,
        "%s is better. Bars are 95 %% t intervals of the difference between runs "
        "with the same seed; the grey band is the margin of %.3g %s, up to which "
        "differences make none.%s",
        m->lower ? "Left" : "Right", c->margin, m->unit,
        json_integer_value(json_object_get(k->summary, "seeds")) < 3
            ? " Intervals of two seeds are 12.7 times their standard error: "
              "more seeds decide more."
            : "");
    report_figure(r, c);
    free(name);
}

/*
 * Runs
 */

static void put_commands(struct report *r, const json_t *record)
{
    size_t  i;
    json_t *command;

    json_array_foreach(json_object_get(record, "commands"), i, command)
    {
        markup_put(&r->page, "<code>");
        markup_text(&r->page, json_string_value(command));
        markup_put(&r->page, "</code>\n");
    }
}

static void put_run(struct report *r, const struct report_comparison *k,
                    const json_t *run)
{
    const struct compare_metric *m = compare_metric_of(k->c.definition);
    const char                  *id = field_text(run, "id");
    const json_t                *record = results_get(k->c.results, "runs", id);
    const json_t                *valid = json_object_get(record, "valid");
    const json_t                *test =
        json_object_get(results_get(k->c.results, "tests", id), "test");
    char value[2][32] = { "", "" };

    for (int i = 0; i < 2; i++) {
        const double x = m->scale * field_real(i ? test : valid, m->key);
        if (isfinite(x)) snprintf(value[i], sizeof value[i], "%.*f", m->digits, x);
    }
    markup_put(&r->page, "<li><p><b><bdi>");
    markup_text(&r->page, field_text(run, "arm"));
    markup_put(&r->page, "</bdi></b>, seed %lld: ",
               (long long)json_integer_value(json_object_get(run, "seed")));
    markup_text(&r->page, record ? field_text(record, "status") : "not done yet");
    if (*field_text(record, "reason")) markup_put(&r->page, ": ");
    markup_text(&r->page, field_text(record, "reason"));
    if (*value[0]) markup_put(&r->page, ", validation %s", value[0]);
    if (*value[1]) markup_put(&r->page, ", test %s", value[1]);
    if (record) {
        markup_put(&r->page, " <span class=quiet>%.1f s, %lld threads, ",
                   json_number_value(json_object_get(record, "seconds")),
                   (long long)json_integer_value(json_object_get(record, "threads")));
        markup_text(&r->page, field_text(record, "time"));
        markup_put(&r->page, ", ");
        markup_text(&r->page, field_text(record, "machine"));
        if (*field_text(record, "cpu")) markup_put(&r->page, ", ");
        markup_text(&r->page, field_text(record, "cpu"));
        markup_put(&r->page, "</span>");
    }
    markup_put(&r->page, "</p>\n");
    put_commands(r, record);
    markup_put(&r->page, "</li>\n");
}

static void put_runs(struct report *r, const struct report_comparison *k)
{
    json_t *list = report_runs(k), *run;
    size_t  i;

    markup_put(&r->page,
               "<details class=runs><summary>Every run: command, seed, version, "
               "machine</summary>\n<p>foci ");
    markup_text(&r->page, k->version ? k->version : "");
    markup_put(&r->page, ". The same commands give the same models again.</p>\n<ul>\n");
    json_array_foreach(list, i, run)
    {
        if (i < MOST_RUNS) put_run(r, k, run);
    }
    markup_put(&r->page, "</ul>\n");
    if (json_array_size(list) > MOST_RUNS)
        markup_put(&r->page, "<p class=note>%zu more runs are in results.jsonl.</p>\n",
                   json_array_size(list) - MOST_RUNS);
    markup_put(&r->page, "</details>\n");
    json_decref(list);
}

/*
 * The section
 */

static void take_heads(struct report *r, const struct report_comparison *k)
{
    json_t *list = report_runs(k), *taken = json_object(), *run;
    size_t  i;

    json_array_foreach(list, i, run)
    {
        const char *arm = field_text(run, "arm");
        if (json_object_get(taken, arm)) continue;
        char *folder = report_find(k, run, "heads.json");
        if (!folder) continue;
        char *path = compare_text("%s/heads.json", folder);
        report_take_heads(r, path, arm,
                          json_integer_value(json_object_get(run, "seed")));
        json_object_set_new(taken, arm, json_true());
        free(path);
        free(folder);
    }
    json_decref(taken);
    json_decref(list);
}

static void put_tables(struct report *r, const json_t *tables)
{
    size_t  i;
    json_t *sheet, *line;

    json_array_foreach(json_object_get(tables, "tables"), i, sheet)
    {
        const size_t last = sizeof titles / sizeof *titles - 1;
        const char  *title = titles[i < last ? i : last];
        markup_put(&r->page, "<h3>%s</h3>\n", title);
        report_table(r, field_text(sheet, "columns"), json_object_get(sheet, "cells"),
                     title);
    }
    json_array_foreach(json_object_get(tables, "rest"), i, line)
    {
        markup_put(&r->page, "<p class=note>");
        markup_text(&r->page, json_string_value(line));
        markup_put(&r->page, "</p>\n");
    }
}

void report_put_comparison(struct report *r, struct report_comparison *k)
{
    json_t *tables = tables_of_comparison(k->summary), *line;
    size_t  i;

    markup_put(&r->page, "<section>\n");
    if (r->n_comparisons > 1 || json_array_size(r->lengths) ||
        json_array_size(r->models)) {
        markup_put(&r->page, "<h2>A comparison: <bdi>");
        json_array_foreach(k->folders, i, line)
        {
            markup_text(&r->page, i ? ", " : "");
            markup_text(&r->page, json_string_value(line));
        }
        markup_put(&r->page, "</bdi></h2>\n");
    }
    markup_put(&r->page, "<div class=lead>");
    json_array_foreach(json_object_get(tables, "head"), i, line)
    {
        const char *text = json_string_value(line);
        const bool  command = !strncmp(text, "foci ", 5);
        if (command) markup_put(&r->page, "<p><code>");
        if (command) markup_text(&r->page, text);
        if (command) markup_put(&r->page, "</code></p>\n");
        if (!command) report_line(r, text);
    }
    markup_put(&r->page, "</div>\n");
    put_differences(r, k);
    put_tables(r, tables);
    markup_put(&r->page, "<div class=figures>\n");
    report_put_curves(r, k);
    markup_put(&r->page, "</div>\n");
    put_runs(r, k);
    markup_put(&r->page, "</section>\n");
    take_heads(r, k);
    json_decref(tables);
}
