/* output.c -- JSON, numbers and messages. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
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
