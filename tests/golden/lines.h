/* lines.h -- files of golden vectors: cases of lines, each a key and its values (README.md
 * has the format). */
#ifndef FOCI_LINES_H
#define FOCI_LINES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_LINES = 96 };

/* A case: its lines, each a key and the text of its values. */
struct lines {
    char *key[MAX_LINES], *values[MAX_LINES];
    int   n;
};

/* The values of a key, or of "KEY NAME"; NULL: there is none. */
static inline const char *text_of(const struct lines *c, const char *key)
{
    for (int t = 0; t < c->n; t++)
        if (strcmp(c->key[t], key) == 0) return c->values[t];
    return NULL;
}

static inline const char *need(const struct lines *c, const char *key)
{
    const char *text = text_of(c, key);
    if (!text) fail_msg("case %s: no line %s", text_of(c, "case"), key);
    return text;
}

/* The numbers of a text; *n of them. */
static inline double *numbers(const char *text, int64_t *n)
{
    double *x = test_alloc(strlen(text) + 1, sizeof *x);

    *n = 0;
    for (char *end;; text = end) {
        const double value = strtod(text, &end);
        if (end == text) return x;
        x[(*n)++] = value;
    }
}

static inline double *exactly(const struct lines *c, const char *key, int64_t want)
{
    int64_t n = 0;
    double *x = numbers(need(c, key), &n);
    if (n != want)
        fail_msg("case %s: %s has %lld numbers, not %lld", text_of(c, "case"), key,
                 (long long)n, (long long)want);
    return x;
}

/* For messages. */
static inline const char *shape_of(const struct lines *c)
{
    const char *text = text_of(c, "problem");
    return text ? text : text_of(c, "shape") ? text_of(c, "shape") : "";
}

static inline void compare(const char *file, const struct lines *c, const char *key,
                           const double *got, double tolerance)
{
    int64_t n;
    double *want = numbers(need(c, key), &n);

    for (int64_t t = 0; t < n; t++) {
        const double size = fmax(1, fabs(want[t]));
        if (got[t] == want[t]) continue; /* infinities too */
        if (!(fabs(got[t] - want[t]) <= tolerance * size))
            fail_msg("%s.txt, %s: %s/%s: %s[%lld] = %.17g, not %.17g", file,
                     text_of(c, "case"), text_of(c, "spec"), shape_of(c), key,
                     (long long)t, got[t], want[t]);
    }
    free(want);
}

/* What the interpreter gives as floats. */
static inline void compare_floats(const char *file, const struct lines *c,
                                  const char *key, const float *got, int64_t n,
                                  double tolerance)
{
    double *x = test_alloc((size_t)n + 1, sizeof *x);

    for (int64_t t = 0; t < n; t++)
        x[t] = (double)got[t];
    compare(file, c, key, x, tolerance);
    free(x);
}

static inline int32_t *whole(const char *text)
{
    int64_t  n;
    double  *x = text ? numbers(text, &n) : NULL;
    int32_t *i = x ? test_alloc((size_t)n + 1, sizeof *i) : NULL;

    for (int64_t t = 0; x && t < n; t++)
        i[t] = (int32_t)x[t];
    free(x);
    return i;
}

/* All of a file, as a string; NULL: not there. */
static inline char *slurp(const char *directory, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.txt", directory, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;

    size_t used = 0, room = 1 << 16;
    char  *text = test_alloc(room, 1);
    for (size_t got; (got = fread(text + used, 1, room - 1 - used, f)) > 0;) {
        used += got;
        if (used == room - 1) {
            text = realloc(text, room *= 2);
            assert_non_null(text);
        }
    }
    text[used] = 0;
    fclose(f);
    return text;
}

/* Cut a line into its key, which is two words where things have names, and its
 * values. */
static inline void add_line(struct lines *c, char *line)
{
    const bool two = strncmp(line, "param ", 6) == 0 ||
                     strncmp(line, "dparam ", 7) == 0 ||
                     strncmp(line, "calibrated ", 11) == 0 ||
                     strncmp(line, "list ", 5) == 0 || strncmp(line, "frozen ", 7) == 0;
    char *cut = strchr(line, ' ');

    if (cut && two) cut = strchr(cut + 1, ' ');
    assert_true(c->n < MAX_LINES);
    c->key[c->n] = line;
    c->values[c->n++] = cut ? cut + 1 : line + strlen(line);
    if (cut) *cut = 0;
}

/* Every case of a file, in its order. */
static inline void each_case(const char *directory, const char *name,
                             void (*run)(void *user, const char *file,
                                         const struct lines *c),
                             void *user)
{
    char        *text = slurp(directory, name);
    struct lines c = { .n = 0 };
    int          cases = 0;

    if (!text) fail_msg("%s has no golden vectors: %s/%s.txt", name, directory, name);
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        if (*line == 0 || *line == '#') continue;
        if (strcmp(line, "end") != 0) {
            add_line(&c, line);
            continue;
        }
        run(user, name, &c);
        c.n = 0;
        cases++;
    }
    if (cases == 0 || c.n != 0) fail_msg("%s.txt is cut short or empty", name);
    free(text);
}

#endif
