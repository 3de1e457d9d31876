/* markup.h -- text that grows, and what people wrote in HTML, SVG, JSON and CSV: it is shown
 * there and means nothing. */
#ifndef FOCI_CLI_MARKUP_H
#define FOCI_CLI_MARKUP_H

#include "cli/cli.h"

struct markup {
    char  *bytes; /* with a zero behind them, once there are some */
    size_t n, cap;
};

void markup_free(struct markup *m);

/* Append, as printf() does, and n bytes as they are. */
void markup_put(struct markup *m, const char *format, ...) CLI_PRINTF(2, 3);
void markup_bytes(struct markup *m, const void *bytes, size_t n);

/* The character at *text, which moves behind it; what is not UTF-8 is one byte and U+FFFD. */
uint32_t markup_next(const char **text);

/* A copy, to be freed, in which everything can be seen and nothing turns the line around:
 * what is not UTF-8 is U+FFFD, controls are their pictures, controls of direction and
 * the like stand as <U+202E>.  NULL, what JSON has in place of a text, is empty. */
char *markup_visible(const char *text);

/* Append such a copy as text of HTML or SVG, or of an attribute in double quotes. */
void markup_text(struct markup *m, const char *text);

/* Append JSON that can stand within <script>. */
void markup_json(struct markup *m, const json_t *value);

void markup_base64(struct markup *m, const void *bytes, size_t n);

/* Append a cell of CSV, in quotes where it has to be; what a spreadsheet would compute has an
 * apostrophe in front. */
void markup_csv(struct markup *m, const char *cell);

#endif
