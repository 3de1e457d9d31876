/* report_lengths.c -- the section of foci compare --length: time, memory and error of mechanisms
 * over the length, from DIR/lengths.jsonl. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report.h"

/*
 * Reading
 */

static bool is_line(const json_t *o)
{
    return json_is_string(json_object_get(o, "spec")) &&
           json_is_integer(json_object_get(o, "length")) &&
           json_is_object(json_object_get(o, "setting"));
}

/* What is no result is named and left out; results of two settings are not drawn over one
 * another. */
static int take_line(const struct args *a, json_t *lines, const char *path,
                     const char *text, size_t n, int number)
{
    json_error_t  error;
    json_t       *o = json_loadb(text, n, 0, &error);
    const json_t *first = json_object_get(json_array_get(lines, 0), "setting");
    int           code = EXIT_OK;

    if (!is_line(o)) {
        note(a, "%s, line %d: %s: it is left out", path, number,
             o ? "is no result of foci compare --length" : error.text);
    } else if (first && !json_equal(first, json_object_get(o, "setting"))) {
        const char *name;
        json_t     *value;
        json_object_foreach((json_t *)first, name, value)
        {
            if (code ||
                json_equal(value, json_object_get(json_object_get(o, "setting"), name)))
                continue;
            code = failure(a,
                           "%s, line %d: its %s is another than on line 1: results of "
                           "two settings are not compared",
                           path, number, name);
        }
    } else {
        json_array_append(lines, o);
    }
    json_decref(o);
    return code;
}

int report_read_lengths(struct report *r, const char *folder)
{
    char   *path = compare_text("%s/lengths.jsonl", folder), *text = NULL;
    FILE   *in = fopen(path, "r");
    json_t *lines = json_array();
    size_t  cap = 0;
    int     code = in ? EXIT_OK : failure(r->a, "%s: %s", path, strerror(errno));

    for (int number = 1; !code; number++) {
        const ssize_t n = getline(&text, &cap, in);
        if (n < 0) break;
        if (n > 1) code = take_line(r->a, lines, path, text, (size_t)n, number);
    }
    if (!code && !json_array_size(lines))
        code = failure(r->a, "%s has no results yet", path);
    if (!code)
        json_array_append_new(
            r->lengths,
            json_pack("{s:o, s:O}", "folder", compare_string(folder), "lines", lines));
    json_decref(lines);
    if (in) fclose(in);
    free(text);
    free(path);
    return code;
}

/*
 * The table
 */

static void add(json_t *cells, char *text)
{
    json_array_append_new(cells, json_string(text));
    free(text);
}

static char *large(double x, const char *unit)
{
    char text[16];
    return isfinite(x) ? compare_text("%s%s", thousands(x, text), unit)
                       : compare_text("-");
}

static void add_row(json_t *cells, const json_t *o)
{
    const double seconds = field_real(o, "seconds"), error = field_real(o, "error");
    const bool   untrained = json_is_true(json_object_get(o, "untrained"));

    add(cells, compare_text("%lld", (long long)json_integer_value(
                                        json_object_get(o, "length"))));
    add(cells, compare_text("%s", field_text(o, "spec")));
    add(cells,
        isfinite(seconds) ? compare_text("%.3f", 1e3 * seconds) : compare_text("-"));
    add(cells, large(field_real(o, "tokens_per_second"), ""));
    add(cells, large(field_real(o, "memory_bytes"), "B"));
    add(cells, !isfinite(error) ? compare_text("-")
                                : compare_text(untrained ? "(%.3g)" : "%.3g", error));
    add(cells, compare_text("%s", field_text(o, "skipped")));
}

static const char columns[] = "rlrrrrl";

static json_t *cells_of(const json_t *lengths)
{
    static const char *const names[] = { "length", "mechanism", "median ms", "tokens/s",
                                         "memory", "error",     "left out" };
    json_t                  *cells = json_array(), *line;
    size_t                   i;

    for (i = 0; i < sizeof names / sizeof *names; i++)
        json_array_append_new(cells, json_string(names[i]));
    json_array_foreach(json_object_get(lengths, "lines"), i, line)
    {
        add_row(cells, line);
    }
    return cells;
}

void report_print_lengths(const json_t *lengths)
{
    json_t              *cells = cells_of(lengths), *cell;
    struct output_table *t = table_headed(columns);
    size_t               i;

    json_array_foreach(cells, i, cell) { table_cell(t, "%s", json_string_value(cell)); }
    table_print(t, stdout);
    table_free(t);
    json_decref(cells);
}

/*
 * Figures
 */

enum value { SECONDS, MEMORY, ERROR };

static void put_chart(struct report *r, const json_t *lengths, enum value value)
{
    static const char *const words[][4] = {
        { "time", "Time over length", "milliseconds", "seconds" },
        { "memory", "Memory over length", "bytes", "memory_bytes" },
        { "error", "Distance from exact attention over length", "|o - o'| / |o'|",
          "error" },
    };
    struct chart *c =
        chart_create(words[value][0], words[value][1], "tokens", words[value][2]);
    const double scale = value == SECONDS ? 1e3 : 1;
    size_t       i, k;
    json_t      *line;

    c->x = CHART_TWOS;
    c->y = value == ERROR ? CHART_EVEN : CHART_TENS;
    json_array_foreach(json_object_get(lengths, "lines"), i, line)
    {
        const char  *spec = field_text(line, "spec");
        const double y = scale * field_real(line, words[value][3]);
        if (!isfinite(y) || (c->y == CHART_TENS && !(y > 0))) continue;
        if (value == ERROR && json_is_true(json_object_get(line, "untrained")))
            continue;
        for (k = 0; k < c->n && strcmp(c->series[k].name, spec) != 0; k++)
            continue;
        struct chart_series *s =
            k < c->n ? &c->series[k] : chart_add(c, spec, report_number(r, spec));
        s->joined = s->marked = true;
        chart_put(s, field_real(line, "length"), y,
                  value == SECONDS ? scale * field_real(line, "quartile1") : NAN,
                  value == SECONDS ? scale * field_real(line, "quartile3") : NAN);
    }
    if (value == SECONDS) chart_note(c, "Medians of the rounds; bars are quartiles.");
    if (value == MEMORY)
        chart_note(c, "Tensors, scratch, what is saved for backward, and the plan.");
    if (value == ERROR)
        chart_note(c,
                   "On standard normal queries, keys and values; mechanisms that have "
                   "yet to be trained are left out.");
    report_figure(r, c);
}

void report_put_lengths(struct report *r, const json_t *lengths)
{
    const json_t *setting = json_object_get(
        json_array_get(json_object_get(lengths, "lines"), 0), "setting");
    json_t     *cells = cells_of(lengths), *value;
    const char *name;

    markup_put(&r->page, "<section>\n<h2>Against length: <bdi>");
    markup_text(&r->page, field_text(lengths, "folder"));
    markup_put(&r->page, "</bdi></h2>\n<div class=figures>\n");
    for (int i = SECONDS; i <= ERROR; i++)
        put_chart(r, lengths, (enum value)i);
    markup_put(&r->page, "</div>\n");
    report_table(r, columns, cells, "Results at each length");
    markup_put(&r->page, "<p class=quiet>");
    json_object_foreach((json_t *)setting, name, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        markup_text(&r->page, name);
        markup_put(&r->page, " ");
        markup_text(&r->page, json_is_string(value) ? json_string_value(value) : text);
        markup_put(&r->page, "; ");
        free(text);
    }
    markup_put(&r->page, "</p>\n</section>\n");
    json_decref(cells);
}
