/* output.c -- tables, JSON and messages. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "foci/file.h"
#include "foci/mechanism.h"

enum { BRIEF = 96 }; /* bytes of a spec that a message begins with */

/* One line, whatever was typed. */
static void message(const struct args *a, const char *format, va_list list)
{
    char text[8192];

    vsnprintf(text, sizeof text, format, list);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    fprintf(stderr, a ? "foci %s: %s\n" : "foci%s: %s\n", a ? a->verb->name : "", text);
}

/* The beginning of a text that may be a page long; quoted if there is nothing to see. */
static const char *brief(const char *text, char out[BRIEF])
{
    size_t n = strlen(text);

    if (strspn(text, " \t\n") == n) {
        snprintf(out, BRIEF, "'%.8s'", text);
        return out;
    }
    if (n < BRIEF) return text;
    n = BRIEF - sizeof "...";
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--; /* no half of a character */
    snprintf(out, BRIEF, "%.*s...", (int)n, text);
    return out;
}

int usage_error(const struct args *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    message(a, format, list);
    va_end(list);
    return EXIT_USAGE;
}

int failure(const struct args *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    message(a, format, list);
    va_end(list);
    return EXIT_FAILED;
}

int library_error(const struct args *a, const foci_ctx *ctx, foci_status status,
                  const char *what)
{
    char text[BRIEF];
    failure(a, "%s%s%s", what ? brief(what, text) : "", what ? ": " : "",
            foci_errmsg(ctx));
    const bool asked =
        status == FOCI_ERR_SPEC || status == FOCI_ERR_ARG || status == FOCI_ERR_UNSUP;
    return asked ? EXIT_USAGE : EXIT_FAILED;
}

void note(const struct args *a, const char *format, ...)
{
    if (a->quiet) return;
    va_list list;
    va_start(list, format);
    message(a, format, list);
    va_end(list);
}

/*
 * What the user may have meant
 */

void guess_offer(struct guess *n, const char *name)
{
    const int d = foci_name_distance(n->word, name);

    if (d < 0 || (n->best && d >= n->distance)) return;
    n->best = name;
    n->distance = d;
}

const char *guess_hint(const struct guess *n, char *text, size_t cap)
{
    if (!n->best) return "";
    snprintf(text, cap, " (did you mean '%s%s'?)", n->prefix ? n->prefix : "", n->best);
    return text;
}

/*
 * Results
 */

int print_json(const struct args *a, json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (!text) return failure(a, "the JSON could not be made");
    puts(text);
    free(text);
    return EXIT_OK;
}

json_t *json_lines(const char *text)
{
    json_t *list = json_array();
    while (*text) {
        const size_t len = strcspn(text, "\n");
        if (len) json_array_append_new(list, json_stringn(text, len));
        text += len + (text[len] == '\n');
    }
    return list;
}

struct output_table {
    const char *columns;
    char      **cells;
    int         n, cap;
};

struct output_table *table_create(const char *columns)
{
    struct output_table *t = need(1, sizeof *t);
    t->columns = columns;
    return t;
}

static void add_cell(struct output_table *t, const char *format, va_list list)
{
    va_list again;

    if (t->n == t->cap) {
        char **cells = need(2 * (size_t)t->cap + 64, sizeof *cells);
        if (t->n) memcpy(cells, t->cells, (size_t)t->n * sizeof *cells);
        free(t->cells);
        t->cells = cells;
        t->cap = 2 * t->cap + 64;
    }
    va_copy(again, list);
    const int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *cell = need((size_t)(len < 0 ? 0 : len) + 1, 1);
    if (len > 0) vsnprintf(cell, (size_t)len + 1, format, list);
    t->cells[t->n++] = cell;
}

void table_cell(struct output_table *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_cell(t, format, list);
    va_end(list);
}

void table_pair(struct output_table *t, const char *name, const char *format, ...)
{
    va_list list;
    table_cell(t, "%s", name);
    va_start(list, format);
    add_cell(t, format, list);
    va_end(list);
}

/* Characters, not bytes, of UTF-8. */
static int width(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static int column_width(const struct output_table *t, int column)
{
    const int n_columns = (int)strlen(t->columns);
    int       most = 0;
    for (int i = column; i < t->n; i += n_columns)
        if (width(t->cells[i]) > most) most = width(t->cells[i]);
    return most;
}

void table_print(struct output_table *t, FILE *out)
{
    const int n_columns = (int)strlen(t->columns);
    assert(n_columns > 0);
    int *widths = need((size_t)n_columns, sizeof *widths);

    for (int c = 0; c < n_columns; c++)
        widths[c] = column_width(t, c);
    for (int i = 0; i < t->n; i++) {
        const int  c = i % n_columns;
        const bool last = c == n_columns - 1 || i == t->n - 1;
        const int  pad = widths[c] - width(t->cells[i]);
        const bool right = t->columns[c] == 'r';

        fprintf(out, "%*s%s%*s%s", right ? pad : 0, "", t->cells[i],
                right || last ? 0 : pad, "", last ? "\n" : "  ");
    }
    free(widths);
}

/* A cell, in quotes where it has commas, quotes or ends of lines; its end. */
static char *put_csv(char *out, const char *cell)
{
    const bool quoted = strpbrk(cell, ",\"\r\n") != NULL;

    if (quoted) *out++ = '"';
    for (; *cell; cell++) {
        if (*cell == '"') *out++ = '"';
        *out++ = *cell;
    }
    if (quoted) *out++ = '"';
    return out;
}

foci_status table_write_csv(foci_ctx *ctx, const struct output_table *t,
                            const char *path)
{
    const int n_columns = (int)strlen(t->columns);
    size_t    most = 1;

    for (int i = 0; i < t->n; i++)
        most += 2 * strlen(t->cells[i]) + 3;
    char *text = need(most, 1), *out = text;
    for (int i = 0; i < t->n; i++) {
        out = put_csv(out, t->cells[i]);
        *out++ = (i + 1) % n_columns ? ',' : '\n';
    }
    const foci_status status = foci_file_write(ctx, path, text, (size_t)(out - text));
    free(text);
    return status;
}

void table_free(struct output_table *t)
{
    for (int i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

const char *thousands(double x, char text[16])
{
    static const char prefixes[] = " kMGTPE";
    size_t            i = 0;
    double            y = x;

    while (isfinite(y) && fabs(y) >= 999.5 && i + 2 < sizeof prefixes) {
        y /= 1000;
        i++;
    }
    if (fabs(y) >= 1e6 || !isfinite(y))
        snprintf(text, 16, "%.3g", x);
    else if (i == 0)
        snprintf(text, 16, "%.3g", y);
    else
        snprintf(text, 16, "%.*f %c",
                 fabs(y) < 9.995   ? 2
                 : fabs(y) < 99.95 ? 1
                                   : 0,
                 y, prefixes[i]);
    return text;
}
