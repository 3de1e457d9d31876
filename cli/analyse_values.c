/* analyse_values.c -- lists of numbers that the forms of `foci analyse` take, and numbers as
 * they print them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/picture.h"

/* Value i of n, evenly or, where they grow, by the same factor, rounded. */
static double value_of(double from, double to, long i, long n, bool grows)
{
    const double share = n > 1 ? (double)i / (double)(n - 1) : 0;

    if (grows && from > 0) return round(from * pow(to / from, share));
    return from + (to - from) * share;
}

/* "2", or "1..2:5" for five values from 1 to 2; the end of it, or NULL. */
static const char *read_item(const char *text, bool grows, struct values *v)
{
    char        *end;
    const double from = strtod(text, &end);
    double       to = from;
    long         n = 1;

    if (end == text) return NULL;
    if (*end == '.' && end[-1] == '.') end--; /* "1..2" begins with "1." */
    if (!strncmp(end, "..", 2)) {
        const char *last = end + 2;
        to = strtod(last, &end);
        if (end == last || *end != ':') return NULL;
        n = strtol(end + 1, &end, 10);
    }
    if (n < 1 || n > MAX_VALUES - v->n) return NULL;
    for (long i = 0; i < n; i++)
        v->x[v->n++] = n > 1 ? value_of(from, to, i, n, grows) : from;
    return end;
}

static bool read_list(const char *text, bool grows, double min, double max,
                      struct values *v)
{
    v->n = 0;
    for (;; text++) {
        const int before = v->n;
        text = read_item(text, grows, v);
        if (!text || (*text && *text != ',')) return false;
        for (int i = before; i < v->n; i++)
            if (!(v->x[i] >= min) || !(v->x[i] <= max)) return false;
        if (!*text) return true;
    }
}

int read_values(const struct args *a, const char *name, const char *preset, double min,
                double max, struct values *v)
{
    const char *given = opt_text(a, name);

    if (read_list(given ? given : preset, false, min, max, v)) return EXIT_OK;
    return usage_error(
        a,
        "--%s is '%s'; it takes up to %d numbers from %.10g to %.10g with "
        "commas, or FROM..TO:COUNT",
        name, given, MAX_VALUES, min, max);
}

int read_named(const struct args *a, char name[AXIS_NAME], struct values *v)
{
    const char  *given = opt_text(a, "axis"), *equals = strchr(given, '=');
    const size_t n = equals ? (size_t)(equals - given) : 0;

    if (n < 1 || n >= AXIS_NAME || !read_list(equals + 1, true, 0, MOST_WHOLE, v))
        return usage_error(a,
                           "--axis is '%s'; it takes NAME=LIST, as features=16,64 or "
                           "features=16..256:5, whose numbers grow by the same factor",
                           given);
    snprintf(name, AXIS_NAME, "%.*s", (int)n, given);
    return EXIT_OK;
}

int read_whole(const struct args *a, const char *name, const char *preset, double min,
               double max, struct values *v)
{
    const int code = read_values(a, name, preset, min, max, v);

    for (int i = 0; !code && i < v->n; i++)
        if (v->x[i] != floor(v->x[i]))
            return usage_error(a, "--%s has %g; it takes whole numbers", name, v->x[i]);
    return code;
}

double least_of(const struct values *v)
{
    double least = v->x[0];
    for (int i = 1; i < v->n; i++)
        least = fmin(least, v->x[i]);
    return least;
}

double most_of(const struct values *v)
{
    double most = v->x[0];
    for (int i = 1; i < v->n; i++)
        most = fmax(most, v->x[i]);
    return most;
}

int check_out(const struct args *a)
{
    const char *out = opt_text(a, "out");

    if (!out || picture_name(out)) return EXIT_OK;
    return usage_error(a, "--out is '%s'; it takes a name that ends in .svg or .png",
                       out);
}

void number_cell(struct output_table *t, const char *format, double x, bool file)
{
    char text[336]; /* the longest number with all its digits before the point */

    snprintf(text, sizeof text, file ? "%.17g" : format, x);
    table_cell(t, "%s", !isnan(x) ? text : file ? "" : "-");
}

json_t *json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }
