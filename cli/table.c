/* table.c -- tables: text whose columns line up, Markdown and CSV.
 *
 * On a terminal a table is no wider than it: cells of columns that stand left are broken into
 * lines, down to NARROWEST, and what is still too wide is continued below, each part with the
 * first column.  Elsewhere a row is a line, however long.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/markup.h"
#include "foci/file.h"

enum { NARROWEST = 16, GAP = 2 };

struct output_table {
    bool   headed; /* the first row names the columns */
    char **cells;
    int    n, cap;
    char   columns[]; /* a copy of the caller's letters */
};

struct output_table *table_create(const char *columns)
{
    const size_t         n = strlen(columns);
    struct output_table *t = need(1, sizeof *t + n + 1);
    memcpy(t->columns, columns, n);
    return t;
}

struct output_table *table_headed(const char *columns)
{
    struct output_table *t = table_create(columns);
    t->headed = true;
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

void table_free(struct output_table *t)
{
    for (int i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

/*
 * The terminal
 */

int terminal_width(FILE *out)
{
    const char    *columns = getenv("COLUMNS");
    struct winsize size = { 0 };

    if (isatty(fileno(out)) != 1) return 0;
    const long given = columns ? strtol(columns, NULL, 10) : 0;
    if (given > 0 && given < 10000) return (int)given;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool terminal_emphasis(FILE *out)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fileno(out)) == 1 && !(none && *none) && term && *term &&
           strcmp(term, "dumb") != 0;
}

/*
 * Text
 */

/* Bytes of the character at s. */
static size_t character(const char *s)
{
    size_t n = 1;
    while (((unsigned char)s[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* Characters, not bytes, of UTF-8. */
static int width(const char *text)
{
    int n = 0;
    for (; *text; text += character(text))
        n++;
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

/* The bytes at the beginning of a text that fit into so many characters: up to the last
 * blank or sign where it can be broken, if there is one; blanks behind them are in *skip,
 * unless the text is all there is. */
static size_t fitting(const char *text, int most, size_t *skip)
{
    const size_t indent = strspn(text, " ");
    size_t       at = 0, cut = 0;
    int          n = 0;

    for (; text[at] && n < most; n++) {
        at += character(text + at);
        if (at > indent && strchr(" /,+|", text[at - 1])) cut = at;
    }
    if (!text[at] || text[at] == ' ' || !cut) cut = at;
    *skip = 0;
    if (!text[cut]) return cut;
    const size_t end = cut + strspn(text + cut, " ");
    while (cut > indent && text[cut - 1] == ' ')
        cut--;
    *skip = end - cut;
    return cut;
}

/* A table on its way out: a part of its columns, row by row. */
struct printed {
    const struct output_table *t;
    FILE                      *out;
    int                        n, *widths;      /* of all columns */
    int                        n_shown, *shown; /* which ones the part has */
    const char               **rest;            /* of the cells of a row */
};

static int total(const struct printed *p)
{
    int sum = GAP * (p->n - 1);
    for (int c = 0; c < p->n; c++)
        sum += p->widths[c];
    return sum;
}

/* Take from the widest of the columns that can be broken. */
static void shrink(struct printed *p, int most)
{
    while (total(p) > most) {
        int widest = -1;
        for (int c = 0; c < p->n; c++)
            if (p->t->columns[c] == 'l' && p->widths[c] > NARROWEST &&
                (widest < 0 || p->widths[c] > p->widths[widest]))
                widest = c;
        if (widest < 0) break;
        p->widths[widest]--;
    }
}

/* The last column of the part that has something left to say; -1: none has. */
static int last_shown(const struct printed *p)
{
    int i = p->n_shown - 1;
    while (i >= 0 && !*p->rest[p->shown[i]])
        i--;
    return i;
}

static void print_piece(struct printed *p, int column, bool last)
{
    const char **rest = &p->rest[column];
    const bool   right = p->t->columns[column] == 'r';
    size_t       skip;
    const size_t bytes = fitting(*rest, p->widths[column], &skip);
    int          pad = p->widths[column];

    for (size_t at = 0; at < bytes; at += character(*rest + at))
        pad--;
    fprintf(p->out, "%*s%.*s%*s%s", right ? pad : 0, "", (int)bytes, *rest,
            right || last ? 0 : pad, "", last ? "" : "  ");
    *rest += bytes + skip;
}

/* A row of the part, in as many lines as its cells need. */
static void print_row(struct printed *p, int row, bool bold)
{
    for (int c = 0; c < p->n; c++)
        p->rest[c] = row + c < p->t->n ? p->t->cells[row + c] : "";
    int last = last_shown(p);
    if (last < 0) fputc('\n', p->out);
    for (; last >= 0; last = last_shown(p)) {
        if (bold) fputs("\033[1m", p->out);
        for (int i = 0; i <= last; i++)
            print_piece(p, p->shown[i], i == last);
        fputs(bold ? "\033[0m\n" : "\n", p->out);
    }
}

/* Columns first and behind, as many as fit beside column 0; the next one that did not. */
static int choose(struct printed *p, int first, int most)
{
    int next = first, wide = p->widths[0];

    p->shown[0] = 0;
    p->n_shown = 1;
    while (next < p->n &&
           (most <= 0 || next == first || wide + GAP + p->widths[next] <= most)) {
        wide += GAP + p->widths[next];
        p->shown[p->n_shown++] = next++;
    }
    return next;
}

void table_print(struct output_table *t, FILE *out)
{
    const int      n = (int)strlen(t->columns), most = terminal_width(out);
    const bool     bold = t->headed && terminal_emphasis(out);
    struct printed p = { .t = t, .out = out, .n = n };

    assert(n > 0);
    p.widths = need((size_t)n, sizeof *p.widths);
    p.shown = need((size_t)n, sizeof *p.shown);
    p.rest = need((size_t)n, sizeof *p.rest);
    for (int c = 0; c < n; c++)
        p.widths[c] = column_width(t, c);
    if (most > 0) shrink(&p, most);
    for (int next = 1, part = 0; part == 0 || next < n; part++) {
        if (part) fputc('\n', out);
        next = choose(&p, next, most);
        for (int row = 0; row < t->n; row += n)
            print_row(&p, row, bold && row == 0);
    }
    free(p.widths);
    free(p.shown);
    free(p.rest);
}

/*
 * Markdown and CSV
 */

/* A cell in which a bar is no border. */
static void put_markdown(const char *cell, FILE *out)
{
    for (; *cell; cell++)
        fprintf(out, *cell == '|' ? "\\|" : "%c", *cell);
}

void table_print_markdown(const struct output_table *t, FILE *out)
{
    const int n = (int)strlen(t->columns);

    for (int i = 0; i < t->n; i++) {
        fputs("| ", out);
        put_markdown(t->cells[i], out);
        fputs(i % n == n - 1 ? " |\n" : " ", out);
        for (int c = 0; i == n - 1 && c < n; c++)
            fprintf(out, "| %s %s", t->columns[c] == 'r' ? "--:" : "---",
                    c == n - 1 ? "|\n" : "");
    }
}

foci_status table_write_csv(foci_ctx *ctx, const struct output_table *t,
                            const char *path)
{
    const int     n_columns = (int)strlen(t->columns);
    struct markup text = { 0 };

    markup_bytes(&text, "", 0);
    for (int i = 0; i < t->n; i++) {
        markup_csv(&text, t->cells[i]);
        markup_put(&text, (i + 1) % n_columns ? "," : "\n");
    }
    const foci_status status = foci_file_write(ctx, path, text.bytes, text.n);
    markup_free(&text);
    return status;
}
