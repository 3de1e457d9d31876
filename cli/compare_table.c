/* compare_table.c -- the tables of a comparison: quality, costs, and what tuning found, as
 * text or Markdown. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "foci/text.h"

/* Rows of cells; the first row names the columns. */
struct sheet {
    char    columns[16]; /* as table_create() */
    json_t *cells;       /* texts, row by row */
};

struct printing {
    const json_t                *summary;
    const struct compare_metric *m;
    bool                         sentences; /* tests over test examples are there */
};

static struct sheet sheet_create(const char *columns)
{
    struct sheet s = { .cells = json_array() };

    snprintf(s.columns, sizeof s.columns, "%s", columns);
    return s;
}

/* A cell, whose text is taken over. */
static void cell(struct sheet *s, char *text)
{
    json_array_append_new(s->cells, json_string(text));
    free(text);
}

static void heads(struct sheet *s, const char *const *names)
{
    for (; *names; names++)
        cell(s, compare_text("%s", *names));
}

static void print_sheet(const json_t *sheet, bool markdown)
{
    const char          *columns = json_string_value(json_object_get(sheet, "columns"));
    const json_t        *cells = json_object_get(sheet, "cells");
    struct output_table *t = table_headed(columns);
    size_t               i;
    json_t              *text;

    json_array_foreach(cells, i, text) { table_cell(t, "%s", json_string_value(text)); }
    if (markdown)
        table_print_markdown(t, stdout);
    else
        table_print(t, stdout);
    table_free(t);
}

/* What is behind the sheet becomes part of the list. */
static void list_sheet(json_t *list, struct sheet *s)
{
    json_array_append_new(
        list, json_pack("{s:s, s:o}", "columns", s->columns, "cells", s->cells));
}

/*
 * Numbers
 */

/* "12.3 M", a dash where there is none. */
static char *large(double x)
{
    char text[16];
    return compare_text("%s", isfinite(x) && x > 0 ? thousands(x, text) : "-");
}

static char *small(double x, int digits)
{
    return isfinite(x) ? compare_text("%.*f", digits, x) : compare_text("-");
}

/* A number with its interval, where it has one: "41.20 [40.90, 41.50]". */
static char *interval(double x, double low, double high, double scale, int digits,
                      bool sign)
{
    const double all[] = { scale * x, scale * low, scale * high };

    if (!isfinite(x)) return compare_text("-");
    if (!isfinite(low) || !isfinite(high))
        return compare_text(sign ? "%+.*f" : "%.*f", digits, all[0]);
    return compare_text(sign ? "%+.*f [%+.*f, %+.*f]" : "%.*f [%.*f, %.*f]", digits,
                        all[0], digits, all[1], digits, all[2]);
}

static char *count_text(int64_t examples)
{
    return examples ? compare_text("%lld", (long long)examples) : compare_text("all");
}

/* "lr 0.001, dropout 0.1" */
static char *values_text(const json_t *values)
{
    char       *text = compare_text("%s", "");
    const char *name;
    json_t     *value;

    json_object_foreach((json_t *)values, name, value)
    {
        char *more = compare_text("%s%s%s %s", text, *text ? ", " : "", name,
                                  json_string_value(value));
        free(text);
        text = more;
    }
    if (*text) return text;
    free(text);
    return compare_text("-");
}

/* Of a run, or of a few. */
static char *value_text(const struct printing *p, double x)
{
    return isfinite(x) ? compare_text("%.*f", p->m->digits, p->m->scale * x)
                       : compare_text("failed");
}

/*
 * Quality
 */

/* "97.1 98.0 failed" */
static char *runs_text(const struct printing *p, const json_t *runs)
{
    char   *text = compare_text("%s", "");
    size_t  i;
    json_t *run;

    json_array_foreach(runs, i, run)
    {
        char *one = value_text(p, field_real(run, "value"));
        char *more = compare_text("%s%s%s", text, *text ? " " : "", one);
        free(one);
        free(text);
        text = more;
    }
    return text;
}

/* A p value: never a plain 0. */
static char *chance(double p)
{
    return p < 0.0005 ? compare_text("<0.001") : small(p, 3);
}

/* What resampled examples of the test set say. */
static void test_cells(struct sheet *s, const json_t *sentences, int digits)
{
    const double low = field_real(sentences, "low"),
                 high = field_real(sentences, "high");

    cell(s, isfinite(low) && isfinite(high)
                ? compare_text("[%+.*f, %+.*f]", digits, low, digits, high)
                : compare_text("-"));
    cell(s, chance(field_real(sentences, "p_randomisation")));
}

static void quality_row(const struct printing *p, struct sheet *s, const json_t *arm,
                        bool tuned)
{
    const json_t *d = json_object_get(arm, "difference");
    const bool    base = json_equal(json_object_get(arm, "arm"),
                                    json_object_get(p->summary, "baseline"));
    const int     digits = p->m->ratio ? 1 : p->m->digits;
    const char   *verdict = json_string_value(json_object_get(d, "verdict"));
    const int64_t failed = json_integer_value(json_object_get(arm, "failed")) +
                           json_integer_value(json_object_get(arm, "below_floor"));

    cell(s, compare_text("%s", json_string_value(json_object_get(arm, "arm"))));
    if (tuned) cell(s, values_text(json_object_get(arm, "values")));
    cell(s, interval(field_real(arm, "mean"), field_real(arm, "low"),
                     field_real(arm, "high"), p->m->scale, p->m->digits, false));
    cell(s, interval(field_real(d, "mean"), field_real(d, "low"), field_real(d, "high"),
                     1, digits, true));
    cell(s, compare_text("%s", base ? "baseline" : verdict ? verdict : "-"));
    cell(s, chance(field_real(d, "p_holm")));
    if (p->sentences) test_cells(s, json_object_get(d, "sentences"), digits);
    cell(s, compare_text("%lld/%lld", (long long)failed,
                         (long long)json_integer_value(json_object_get(arm, "done"))));
    cell(s, runs_text(p, json_object_get(arm, "runs")));
}

/* The names of the columns, some of which are not always there. */
static struct sheet quality_sheet(const struct printing *p, bool several, bool tuned)
{
    struct sheet s = sheet_create("");

    snprintf(s.columns, sizeof s.columns, "%sl%srrlr%srl", several ? "r" : "",
             tuned ? "l" : "", p->sentences ? "rr" : "");
    if (several) cell(&s, compare_text("examples"));
    cell(&s, compare_text("arm"));
    if (tuned) cell(&s, compare_text("chosen"));
    cell(&s, compare_text("%s", p->m->name));
    cell(&s, compare_text("difference, %s", p->m->unit));
    cell(&s, compare_text("verdict"));
    cell(&s, compare_text("p (Holm)"));
    if (p->sentences) {
        cell(&s, compare_text("over the test set"));
        cell(&s, compare_text("p (test set)"));
    }
    cell(&s, compare_text("failed"));
    cell(&s, compare_text("each seed"));
    return s;
}

static void list_quality(const struct printing *p, json_t *list)
{
    const json_t *levels = json_object_get(p->summary, "levels");
    const bool    tuned = json_object_get(p->summary, "tuning") != NULL;
    const bool    several = json_array_size(levels) > 1;
    struct sheet  s = quality_sheet(p, several, tuned);
    size_t        i, k;
    json_t       *level, *arm;

    json_array_foreach(levels, i, level)
    {
        json_array_foreach(json_object_get(level, "arms"), k, arm)
        {
            const json_t *count = json_object_get(level, "examples");
            if (several) cell(&s, count_text(json_integer_value(count)));
            quality_row(p, &s, arm, tuned);
        }
    }
    list_sheet(list, &s);
}

/*
 * Costs
 */

static void list_costs(const struct printing *p, json_t *list)
{
    static const char *const names[] = { "arm",
                                         "trained",
                                         "parameters",
                                         "flops/token",
                                         "training tokens/s",
                                         "decoding tokens/s",
                                         "peak memory, B",
                                         "state, B",
                                         "concentration",
                                         "error",
                                         NULL };
    const json_t            *levels = json_object_get(p->summary, "levels");
    /* Of the most examples: the last level. */
    const json_t *level = json_array_get(levels, json_array_size(levels) - 1);
    struct sheet  s = sheet_create("lrrrrrrrrr");
    size_t        i;
    json_t       *arm;

    heads(&s, names);
    json_array_foreach(json_object_get(level, "arms"), i, arm)
    {
        const json_t *costs = json_object_get(arm, "costs");
        cell(&s, compare_text("%s", json_string_value(json_object_get(arm, "arm"))));
        cell(&s, large(field_real(costs, "trained_parameters")));
        cell(&s, large(field_real(costs, "parameters")));
        cell(&s, large(field_real(costs, "forward_flops_per_token")));
        cell(&s, large(field_real(arm, "tokens_per_second")));
        cell(&s, large(field_real(costs, "decoding_tokens_per_second")));
        cell(&s, large(field_real(arm, "peak_bytes")));
        cell(&s, large(field_real(costs, "state_bytes")));
        cell(&s, small(field_real(costs, "concentration"), 3));
        cell(&s, small(field_real(costs, "softmax_error"), 3));
    }
    list_sheet(list, &s);
}

/*
 * Tuning
 */

/* "0.001: 41.20, 0.01: 43.10, 0.1: failed" */
static char *curve_text(const struct printing *p, const json_t *points)
{
    char   *text = compare_text("%s", "");
    size_t  i;
    json_t *point;

    json_array_foreach(points, i, point)
    {
        char *values = values_text(json_object_get(point, "values"));
        char *value = value_text(p, field_real(point, "mean"));
        char *more = compare_text("%s%s%s: %s", text, *text ? "; " : "", values, value);
        free(values);
        free(value);
        free(text);
        text = more;
    }
    return text;
}

static void list_tuning(const struct printing *p, json_t *list)
{
    static const char *const names[] = { "arm",   "examples",   "chosen",
                                         "works", "validation", NULL };
    struct sheet             s = sheet_create("lrlrl");
    size_t                   i;
    json_t                  *curve;

    heads(&s, names);
    json_array_foreach(json_object_get(p->summary, "tuning"), i, curve)
    {
        const json_t *points = json_object_get(curve, "points");
        const json_t *chosen = json_object_get(curve, "chosen");
        const bool    edge = json_is_true(json_object_get(curve, "at_edge"));
        char         *values = values_text(chosen);
        cell(&s, compare_text("%s", json_string_value(json_object_get(curve, "arm"))));
        cell(&s, count_text(json_integer_value(json_object_get(curve, "examples"))));
        cell(&s, compare_text("%s%s", values, edge ? " (an end of the grid)" : ""));
        cell(&s, compare_text(
                     "%lld of %zu",
                     (long long)json_integer_value(json_object_get(curve, "works")),
                     json_array_size(points)));
        cell(&s, curve_text(p, points));
        free(values);
    }
    list_sheet(list, &s);
}

/*
 * Lines
 */

static void line(json_t *lines, char *text)
{
    json_array_append_new(lines, json_string(text));
    free(text);
}

/* " --dim 64 --steps 2000", behind `head`, which is taken over. */
static char *options_text(char *head, const json_t *options)
{
    const char *name;
    json_t     *value;

    json_object_foreach((json_t *)options, name, value)
    {
        const char *text = json_string_value(value);
        char       *word = text ? shell_word(text) : NULL;
        char       *more =
            compare_text("%s --%s%s%s", head, name, word ? " " : "", word ? word : "");
        free(word);
        free(head);
        head = more;
    }
    return head;
}

/* How many runs are done, while some are not. */
static void add_missing(const struct printing *p, json_t *lines)
{
    const json_t   *runs = json_object_get(p->summary, "runs");
    const long long done = json_integer_value(json_object_get(runs, "done"));
    const long long all = json_integer_value(json_object_get(runs, "of"));
    const bool      tuned = json_is_true(json_object_get(runs, "tuned"));

    if (!tuned)
        line(lines, compare_text("tuning is not over, and %lld runs are done", done));
    else if (done < all)
        line(lines, compare_text("%lld of %lld runs are done", done, all));
}

/* The options of arms that are more than their names. */
static void add_arms(const struct printing *p, json_t *lines)
{
    const json_t *levels = json_object_get(p->summary, "levels");
    size_t        i;
    json_t       *arm;

    json_array_foreach(json_object_get(json_array_get(levels, 0), "arms"), i, arm)
    {
        const json_t *options = json_object_get(arm, "options");
        if (json_object_size(options) == 1 &&
            json_equal(json_object_get(options, "attention"),
                       json_object_get(arm, "arm")))
            continue;
        char *head =
            compare_text("%s:", json_string_value(json_object_get(arm, "arm")));
        line(lines, options_text(head, options));
    }
}

/* What rules reach that learn nothing: "chance 12.5 %, last value 25.0 %". */
static void add_floors(const struct printing *p, json_t *lines)
{
    const char *name;
    json_t     *floor;
    char       *text = NULL;

    json_object_foreach(json_object_get(p->summary, "floors"), name, floor)
    {
        char *more = compare_text("%s%s %.1f %%", text ? text : "floors: ", name,
                                  100 * json_number_value(floor));
        free(text);
        text = compare_text("%s, ", more);
        free(more);
    }
    if (!text) return;
    text[strlen(text) - 2] = '\0';
    line(lines, text);
}

static void add_signature(const struct printing *p, json_t *lines)
{
    if (!strcmp(p->m->key, "bleu"))
        line(lines, compare_text("BLEU %s", foci_bleu_signature()));
    if (!strcmp(p->m->key, "chrf2"))
        line(lines, compare_text("chrF2 %s", foci_chrf_signature()));
}

static json_t *head_lines(const struct printing *p)
{
    const json_t *s = p->summary;
    json_t       *lines = json_array();
    const bool  test = !strcmp(json_string_value(json_object_get(s, "split")), "test");
    const char *base = json_string_value(json_object_get(s, "baseline"));
    const long long n = json_integer_value(json_object_get(s, "comparisons"));
    const long long seeds = json_integer_value(json_object_get(s, "seeds"));

    line(lines,
         compare_text("%s on the %s set, %smean of %lld seed%s with 95 %% intervals",
                      p->m->name, test ? "test" : "validation",
                      p->m->ratio ? "geometric " : "", seeds, seeds == 1 ? "" : "s"));
    if (n)
        line(lines,
             compare_text("differences to %s, paired by seed; margin %.4g %s; %lld "
                          "comparison%s",
                          base, json_number_value(json_object_get(s, "margin")),
                          p->m->unit, n, n == 1 ? "" : "s"));
    line(lines,
         options_text(compare_text("foci %s: foci train %s",
                                   json_string_value(json_object_get(s, "version")),
                                   json_string_value(json_object_get(s, "task"))),
                      json_object_get(s, "options")));
    add_arms(p, lines);
    add_signature(p, lines);
    add_floors(p, lines);
    add_missing(p, lines);
    return lines;
}

static json_t *rest_lines(const struct printing *p)
{
    json_t *lines = json_array();
    int64_t below = 0, crashed = 0;
    size_t  i, k;
    json_t *level, *arm;

    json_array_foreach(json_object_get(p->summary, "levels"), i, level)
    {
        json_array_foreach(json_object_get(level, "arms"), k, arm)
        {
            below += json_integer_value(json_object_get(arm, "below_floor"));
            crashed += json_integer_value(json_object_get(arm, "failed"));
        }
    }
    if (below)
        line(lines, compare_text(
                        "%lld run%s ended below the floor, no better than a rule that "
                        "learns nothing: counted as failed, and in the mean",
                        (long long)below, below == 1 ? "" : "s"));
    if (crashed)
        line(lines, compare_text("%lld run%s failed without a result: counted, and not "
                                 "in the mean",
                                 (long long)crashed, crashed == 1 ? "" : "s"));
    json_array_foreach(json_object_get(p->summary, "refused"), i, arm)
    {
        line(lines, compare_text("%s was left out: %s",
                                 json_string_value(json_object_get(arm, "arm")),
                                 json_string_value(json_object_get(arm, "reason"))));
    }
    return lines;
}

/*
 * The whole
 */

static bool has_sentences(const json_t *summary)
{
    size_t  i, k;
    json_t *level, *arm;

    json_array_foreach(json_object_get(summary, "levels"), i, level)
    {
        json_array_foreach(json_object_get(level, "arms"), k, arm)
        {
            const json_t *d = json_object_get(arm, "difference");
            if (json_object_get(d, "sentences")) return true;
        }
    }
    return false;
}

json_t *tables_of_comparison(const json_t *summary)
{
    const char *metric = json_string_value(json_object_get(summary, "metric"));
    const struct printing p = { summary, compare_metric_find(metric),
                                has_sentences(summary) };
    json_t               *sheets = json_array();

    list_quality(&p, sheets);
    list_costs(&p, sheets);
    if (json_object_get(summary, "tuning")) list_tuning(&p, sheets);
    return json_pack("{s:o, s:o, s:o}", "head", head_lines(&p), "tables", sheets,
                     "rest", rest_lines(&p));
}

int table_of_comparison(const struct args *a, json_t *summary, bool markdown)
{
    json_t *all, *text;
    size_t  i;

    if (a->json) return print_json(a, summary);
    all = tables_of_comparison(summary);
    json_array_foreach(json_object_get(all, "head"), i, text)
    {
        printf(markdown ? "%s\n\n" : "%s\n", json_string_value(text));
    }
    json_array_foreach(json_object_get(all, "tables"), i, text)
    {
        if (i || !markdown) printf("\n");
        print_sheet(text, markdown);
    }
    json_array_foreach(json_object_get(all, "rest"), i, text)
    {
        printf("\n%s\n", json_string_value(text));
    }
    json_decref(all);
    json_decref(summary);
    return EXIT_OK;
}
