/* report_page.c -- the page of a report: one file of HTML, with all figures, tables, styles and
 * its script in it, that asks for nothing from anywhere.
 *
 * A figure is there twice, for wide and for narrow screens, with its table below and three
 * files to take along.  What people wrote goes through markup_text().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/report.h"
#include "foci/file.h"

enum { MOST_ROWS = 400 }; /* of the table of a figure; its CSV has all */

void report_line(struct report *r, const char *text)
{
    markup_put(&r->page, "<p>");
    markup_text(&r->page, text);
    markup_put(&r->page, "</p>\n");
}

/*
 * Tables
 */

static void put_cell(struct report *r, const char *tag, char side, const char *text)
{
    markup_put(&r->page, side == 'r' ? "<%s class=r><bdi>" : "<%s><bdi>", tag);
    markup_text(&r->page, text);
    markup_put(&r->page, "</bdi></%s>", tag);
}

void report_table(struct report *r, const char *columns, const json_t *cells,
                  const char *title)
{
    const size_t n = strlen(columns), rows = n ? json_array_size(cells) / n : 0;

    markup_put(&r->page, "<div class=scroll tabindex=0 role=region aria-label=\"");
    markup_text(&r->page, title);
    markup_put(&r->page, "\"><table>\n");
    for (size_t i = 0; i < rows && i < MOST_ROWS; i++) {
        markup_put(&r->page, !i ? "<thead><tr>" : "<tr>");
        for (size_t k = 0; k < n; k++) {
            const json_t *cell = json_array_get(cells, i * n + k);
            put_cell(r, i ? "td" : "th scope=col", columns[k], json_string_value(cell));
        }
        markup_put(&r->page, !i ? "</tr></thead>\n<tbody>\n" : "</tr>\n");
    }
    markup_put(&r->page, "</tbody></table></div>\n");
    if (rows > MOST_ROWS)
        markup_put(&r->page, "<p class=note>%zu more rows are in the CSV.</p>\n",
                   rows - MOST_ROWS);
}

/*
 * Figures
 */

static int make_folder(const struct args *a, const char *path)
{
    struct stat st;

    if (mkdir(path, 0777) == 0) return EXIT_OK;
    if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return EXIT_OK;
    if (errno == EEXIST)
        return failure(a, "--plots %s: is a file; figures go to a folder", path);
    return failure(a, "%s: cannot be made: %s", path, strerror(errno));
}

void report_file(struct report *r, const char *name, const char *end, const char *bytes,
                 size_t n)
{
    char *path = compare_text("%s/%s.%s", r->plots, name, end);

    const foci_status status = foci_file_write(r->ctx, path, bytes, n);
    if (status && !r->code) r->code = library_error(r->a, r->ctx, status, NULL);
    free(path);
}

static void put_link(struct report *r, const char *type, const char *name,
                     const char *end, const void *bytes, size_t n)
{
    markup_put(&r->page, "<a download='%s.%s' href='data:%s;base64,", name, end, type);
    markup_base64(&r->page, bytes, n);
    markup_put(&r->page, "'>%c%c%c</a> ", end[0] - 32, end[1] - 32, end[2] - 32);
}

/* As files of their own, in the page and where --plots says. */
static void put_files(struct report *r, const struct chart *c, const json_t *table,
                      const char *name)
{
    struct picture *p = chart_draw(c, CHART_FILE);
    struct markup   svg = { 0 }, csv = { 0 };
    size_t          n = 0;
    uint8_t        *png = picture_png_bytes(p, &n);

    picture_put_svg(&svg, p, false);
    chart_csv(&csv, table);
    markup_put(&r->page, "<span class=files>");
    put_link(r, "image/svg+xml", name, "svg", svg.bytes, svg.n);
    put_link(r, "image/png", name, "png", png, n);
    put_link(r, "text/csv;charset=utf-8", name, "csv", csv.bytes, csv.n);
    markup_put(&r->page, "</span>");
    if (r->plots) {
        report_file(r, name, "svg", svg.bytes, svg.n);
        report_file(r, name, "png", (const char *)png, n);
        report_file(r, name, "csv", csv.bytes, csv.n);
    }
    free(png);
    markup_free(&svg);
    markup_free(&csv);
    picture_free(p);
}

static void put_drawing(struct report *r, const struct chart *c, enum chart_form form)
{
    struct picture *p = chart_draw(c, form);

    markup_put(&r->page, "<div class=%s>", form == CHART_WIDE ? "wide" : "narrow");
    picture_put_svg(&r->page, p, true);
    markup_put(&r->page, "</div>\n");
    picture_free(p);
}

/* The rows of a figure as a table that is closed at first. */
static void put_data(struct report *r, const struct chart *c, const json_t *table)
{
    const size_t columns = json_array_size(json_array_get(table, 0));
    json_t      *cells = json_array(), *row;
    char         sides[16] = "l";
    size_t       i;

    for (i = 1; i < columns && i < sizeof sides - 1; i++)
        sides[i] = 'r';
    sides[i] = '\0';
    json_array_foreach(table, i, row) { json_array_extend(cells, row); }
    markup_put(&r->page, "<details><summary>Numbers</summary>\n");
    report_table(r, sides, cells, c->title);
    markup_put(&r->page, "</details>");
    json_decref(cells);
}

/* Names of figures are parts of paths, and may come from files. */
static void make_plain(char *name)
{
    for (; *name; name++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-_", *name)) *name = '_';
}

void report_figure(struct report *r, struct chart *c)
{
    if (chart_settle(c)) {
        char *name = compare_text("%02d-%s", ++r->figures, c->id);
        make_plain(name);
        json_t *table = chart_table(c);
        markup_put(&r->page, "<figure id='f-%s'%s><figcaption><h3>", name,
                   c->rows ? " class=full" : "");
        markup_text(&r->page, c->title);
        markup_put(&r->page, "</h3>");
        if (c->note) report_line(r, c->note);
        markup_put(&r->page, "</figcaption>\n<div class=drawing>\n");
        put_drawing(r, c, CHART_WIDE);
        put_drawing(r, c, CHART_NARROW);
        markup_put(&r->page, "</div><div class=tools>");
        put_data(r, c, table);
        put_files(r, c, table, name);
        markup_put(&r->page, "</div></figure>\n");
        json_decref(table);
        free(name);
    }
    chart_free(c);
}

/*
 * The page
 */

/* "softmax and 8 others on mqar", or what there is. */
static void put_title(struct report *r)
{
    const size_t lengths = json_array_size(r->lengths),
                 models = json_array_size(r->models);
    const json_t *first = json_array_get(lengths ? r->lengths : r->models, 0);

    if (r->n_comparisons == 1 && !lengths && !models) {
        const struct report_comparison *k = &r->comparisons[0];
        const json_t *options = json_object_get(k->summary, "options");
        const json_t *task = json_object_get(options, "task");
        const json_t *base = json_object_get(k->summary, "baseline");
        const size_t  others = json_array_size(k->c.arms) - 1;
        if (!task) task = json_object_get(k->summary, "task");
        markup_text(&r->page, base ? json_string_value(base) : "No arm");
        if (others)
            markup_put(&r->page, " and %zu other%s", others, others > 1 ? "s" : "");
        markup_put(&r->page, " on ");
        markup_text(&r->page, json_string_value(task));
    } else if (r->n_comparisons + lengths + models == 1) {
        markup_text(&r->page, json_string_value(json_object_get(first, "folder")));
    } else {
        markup_put(&r->page, "Results of foci");
    }
}

static void put_head(struct report *r)
{
    markup_put(
        &r->page,
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
        "<meta name=generator content='foci %s'>\n<link rel=icon href=data:,>\n"
        "<title>",
        foci_version());
    put_title(r);
    markup_put(&r->page, "</title>\n<style>\n");
    markup_bytes(&r->page, report_style, report_style_bytes);
    markup_put(&r->page, "</style>\n</head>\n<body>\n<main>\n");
}

/* Arms with their marks: what points at one brings it out in all figures. */
static void put_key(struct report *r)
{
    const char *name;
    json_t     *number;

    if (json_object_size(r->numbers) < 2) return;
    markup_put(&r->page, "<nav id=key aria-label='Arms: choose one to bring it out in "
                         "all figures'>\n");
    json_object_foreach(r->numbers, name, number)
    {
        const int       n = (int)json_integer_value(number);
        struct picture *p = picture_create(12, 12, name);
        picture_group(p, 0);
        chart_mark(p, n, 6, 6, 4);
        markup_put(&r->page, "<button type=button data-group=%d aria-pressed=false>",
                   n + 1);
        markup_put(&r->page, "<span aria-hidden=true>");
        picture_put_svg(&r->page, p, true);
        markup_put(&r->page, "</span><bdi>");
        markup_text(&r->page, name);
        markup_put(&r->page, "</bdi></button>\n");
        picture_free(p);
    }
    markup_put(&r->page, "</nav>\n");
}

static void put_end(struct report *r)
{
    char            when[32];
    const time_t    now = time(NULL);
    const struct tm t = *gmtime(&now);

    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &t);
    markup_put(
        &r->page,
        "<footer><p>Made by foci %s, %s. Colours and marks of an arm are the same "
        "in all figures. The page asks for nothing from the network.</p></footer>"
        "\n</main>\n",
        foci_version(), when);
    markup_put(&r->page, "<script>\n");
    markup_bytes(&r->page, report_script, report_script_bytes);
    markup_put(&r->page, "</script>\n</body>\n</html>\n");
}

/* Numbers before figures: those of baselines first, so that the first one's is 0. */
static void number_arms(struct report *r)
{
    size_t  i;
    json_t *arm;

    for (size_t k = 0; k < r->n_comparisons; k++) {
        const json_t *s = r->comparisons[k].summary;
        const char   *base = json_string_value(json_object_get(s, "baseline"));
        if (base) report_number(r, base);
        json_array_foreach(r->comparisons[k].c.arms, i, arm)
        {
            report_number(r, json_string_value(json_object_get(arm, "name")));
        }
    }
    for (size_t k = 0; k < json_array_size(r->lengths); k++) {
        const json_t *lines = json_object_get(json_array_get(r->lengths, k), "lines");
        json_array_foreach(lines, i, arm)
        {
            report_number(r, json_string_value(json_object_get(arm, "spec")));
        }
    }
}

int report_write(struct report *r, const char *path)
{
    size_t  i;
    json_t *one;

    if (r->plots && make_folder(r->a, r->plots)) return EXIT_FAILED;
    number_arms(r);
    put_head(r);
    markup_put(&r->page, "<header><h1><bdi>");
    put_title(r);
    markup_put(&r->page, "</bdi></h1></header>\n");
    put_key(r);
    for (i = 0; i < r->n_comparisons; i++)
        report_put_comparison(r, &r->comparisons[i]);
    json_array_foreach(r->models, i, one) { report_put_model(r, one); }
    report_put_theory(r);
    report_put_heads(r);
    json_array_foreach(r->lengths, i, one) { report_put_lengths(r, one); }
    put_end(r);
    if (path && !r->code) {
        const foci_status status =
            foci_file_write(r->ctx, path, r->page.bytes, r->page.n);
        if (status) r->code = library_error(r->a, r->ctx, status, NULL);
    }
    return r->code;
}
