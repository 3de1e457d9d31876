/* compare_length_advice.c -- what the measurements of foci compare --length come to: from
 * which length on a mechanism is faster than softmax, which is the fastest where, and what
 * to use.
 *
 * Advice is about time, memory and error alone, as measured; how well a model learns is not.
 */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare_length.h"
#include "cli/growth.h"

/* Softmax is advised unless another one is so many times as fast. */
static const double worth_it = 1.1;
/* An error below it is called small. */
static const double small_error = 0.05;
/* Half the distance of the quartiles, as a share of the median, that a quiet machine keeps to. */
static const double quiet = 0.1;

/*
 * Curves
 */

/* Times of all specs, [n_specs][n_lengths], and the lengths; both to be freed. */
struct curves {
    double *lengths, *times;
};

static struct curves curves_of(const struct lengths *w)
{
    const size_t  n = (size_t)w->n_lengths, all = n * (size_t)w->n_specs;
    struct curves c = { need(n, sizeof(double)), need(all, sizeof(double)) };

    for (size_t i = 0; i < n; i++)
        c.lengths[i] = (double)w->length[i];
    for (size_t i = 0; i < all; i++)
        c.times[i] = w->cells[i].measured ? w->cells[i].seconds : NAN;
    return c;
}

static void free_curves(struct curves *c)
{
    free(c->lengths);
    free(c->times);
}

static double crossing(const struct lengths *w, const struct curves *c, int spec)
{
    return growth_crossing(c->lengths, c->times + (ptrdiff_t)spec * w->n_lengths,
                           c->times, w->n_lengths);
}

static int lowest(const struct lengths *w, const struct curves *c,
                  struct growth_range **ranges)
{
    *ranges = need((size_t)w->n_lengths * ((size_t)w->n_specs + 1), sizeof **ranges);
    return growth_lowest(c->lengths, w->n_lengths, c->times, w->n_specs, *ranges);
}

/* Two digits, without an exponent. */
static const char *two_digits(double x, char text[24])
{
    const double unit = x < 10 ? 0.1 : pow(10, floor(log10(x)) - 1);
    snprintf(text, 24, x < 10 ? "%.1f" : "%.0f", round(x / unit) * unit);
    return text;
}

/* A length between two measured ones is known to about two digits. */
static const char *about(const struct lengths *w, double length, char text[32])
{
    for (int i = 0; i < w->n_lengths; i++)
        if (fabs(length - (double)w->length[i]) < 0.5) {
            snprintf(text, 32, "%lld", (long long)w->length[i]);
            return text;
        }
    snprintf(text, 32, "about ");
    two_digits(length, text + strlen(text));
    return text;
}

static void crossing_cell(const struct lengths *w, const struct curves *c, int spec,
                          struct output_table *t)
{
    const double from = crossing(w, c, spec);
    char         text[32];

    if (spec == 0)
        table_cell(t, "-");
    else if (isnan(from))
        table_cell(t, "not known");
    else if (isinf(from))
        table_cell(t, "no length");
    else if (from > 0)
        table_cell(t, "%s", about(w, from, text));
    else
        table_cell(t, "every length");
}

/* "64 to about 700, 4096 to 65536" */
static void ranges_cell(const struct lengths *w, const struct growth_range *r, int n,
                        int spec, struct output_table *t)
{
    char all[512] = "", from[32], to[32];

    for (int i = 0; i < n; i++) {
        if (r[i].curve != spec) continue;
        const size_t used = strlen(all);
        about(w, r[i].from, from);
        about(w, r[i].to, to);
        const bool point = strcmp(from, to) == 0;
        snprintf(all + used, sizeof all - used, "%s%s%s%s", used ? ", " : "", from,
                 point ? "" : " to ", point ? "" : to);
    }
    table_cell(t, "%s", *all ? all : "-");
}

static void print_crossings(const struct lengths *w)
{
    struct curves        c = curves_of(w);
    struct growth_range *ranges;
    const int            n = lowest(w, &c, &ranges);
    struct output_table *t = table_headed("lll");

    table_cell(t, "mechanism");
    table_cell(t, "faster than softmax from");
    table_cell(t, "fastest of all at");
    for (int s = 0; s < w->n_specs; s++) {
        table_cell(t, "%s", w->specs[s]);
        crossing_cell(w, &c, s, t);
        ranges_cell(w, ranges, n, s, t);
    }
    table_print(t, stdout);
    table_free(t);
    free(ranges);
    free_curves(&c);
}

json_t *length_crossings_json(const struct lengths *w)
{
    struct curves c = curves_of(w);
    json_t       *list = json_array();

    for (int s = 1; s < w->n_specs; s++) {
        const double from = crossing(w, &c, s);
        json_array_append_new(
            list, json_pack("{s:s, s:b, s:o}", "spec", w->specs[s], "always", from == 0,
                            "faster_from",
                            isfinite(from) && from > 0 ? json_real(from) : json_null()));
    }
    free_curves(&c);
    return list;
}

json_t *length_fastest_json(const struct lengths *w)
{
    struct curves        c = curves_of(w);
    struct growth_range *r;
    const int            n = lowest(w, &c, &r);
    json_t              *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f}", "spec", w->specs[r[i].curve],
                                        "from", r[i].from, "to", r[i].to));
    free(r);
    free_curves(&c);
    return list;
}

/*
 * Advice
 */

/* What to use at lengths first to last. */
struct advice {
    int first, last, spec;
};

static double seconds_of(const struct lengths *w, int spec, int i)
{
    const struct length_cell *c = length_cell(w, spec, i);
    return c->measured ? c->seconds : INFINITY;
}

/* The fastest at length i, or softmax if it is about as fast; -1: nothing was measured. */
static int choose(const struct lengths *w, int i)
{
    int best = -1;

    for (int s = 0; s < w->n_specs; s++)
        if (seconds_of(w, s, i) < (best < 0 ? INFINITY : seconds_of(w, best, i)))
            best = s;
    return best > 0 && seconds_of(w, 0, i) <= worth_it * seconds_of(w, best, i) ? 0
                                                                                : best;
}

static int least_memory(const struct lengths *w, int i)
{
    int best = -1;

    for (int s = 0; s < w->n_specs; s++) {
        const struct length_cell *c = length_cell(w, s, i);
        if (c->measured &&
            (best < 0 || length_memory(c) < length_memory(length_cell(w, best, i))))
            best = s;
    }
    return best;
}

/* Of those that are worth it at length i the one with the smallest error; -1: none. */
static int nearest(const struct lengths *w, int i)
{
    int best = -1;

    for (int s = 1; s < w->n_specs; s++) {
        const struct length_cell *c = length_cell(w, s, i);
        if (!c->measured || c->untrained || isnan(c->error) ||
            seconds_of(w, 0, i) <= worth_it * c->seconds)
            continue;
        if (best < 0 || c->error < length_cell(w, best, i)->error) best = s;
    }
    return best;
}

static void say(char *text, size_t cap, const char *format, ...) CLI_PRINTF(3, 4);

/* Append. */
static void say(char *text, size_t cap, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list      list;

    va_start(list, format);
    vsnprintf(text + used, cap - used, format, list);
    va_end(list);
}

static void say_lengths(const struct lengths *w, const struct advice *v, char *text,
                        size_t cap)
{
    const long long first = w->length[v->first], last = w->length[v->last];

    if (first == last)
        say(text, cap, "At %lld token%s", last, last == 1 ? "" : "s");
    else
        say(text, cap, "From %lld to %lld tokens", first, last);
}

/* ", 2.1 to 14 times as fast as softmax" */
static void say_ratio(const struct lengths *w, const struct advice *v, char *text,
                      size_t cap)
{
    double low = INFINITY, high = 0;
    char   a[24], b[24];

    for (int i = v->first; i <= v->last; i++) {
        const double ratio = seconds_of(w, 0, i) / seconds_of(w, v->spec, i);
        if (isinf(ratio)) continue;
        low = fmin(low, ratio);
        high = fmax(high, ratio);
    }
    if (high > 0 && high > 1.05 * low)
        say(text, cap, ", %s to %s times as fast as softmax", two_digits(low, a),
            two_digits(high, b));
    else if (high > 0)
        say(text, cap, ", %s times as fast as softmax", two_digits(high, a));
    if (isinf(seconds_of(w, 0, v->last)))
        say(text, cap, "%s",
            high > 0 ? " where that was measured" : "; softmax was not");
}

static void say_memory(const struct lengths *w, const struct advice *v, char *text,
                       size_t cap)
{
    const int    best = least_memory(w, v->last);
    const double least = length_memory(length_cell(w, best, v->last));
    const double mine = length_memory(length_cell(w, v->spec, v->last));
    char         a[16], b[16];

    if (mine <= least)
        say(text, cap, ", and it needs the least memory, %sB", thousands(mine, a));
    else if (mine > worth_it * least)
        say(text, cap, "; the least memory, %sB instead of %sB, is that of %s",
            thousands(least, a), thousands(mine, b), w->specs[best]);
}

static void say_error(const struct lengths *w, const struct advice *v, char *text,
                      size_t cap)
{
    const struct length_cell *c = length_cell(w, v->spec, v->last);
    const int                 near = nearest(w, v->last);

    if (c->untrained) {
        say(text, cap,
            "  It has weights that are untrained or not made of queries and keys.");
    } else if (isnan(c->error)) {
        say(text, cap, "  Its error was not measured.");
    } else if (c->error < small_error) {
        say(text, cap, "  Its outputs are within %.1g of those of exact attention.",
            c->error);
    } else {
        say(text, cap,
            "  Its outputs are not those of softmax (error %.2g on random data): it is "
            "for models that are trained with it",
            c->error);
        if (near >= 0 && near != v->spec)
            say(text, cap, "; nearest to softmax among the faster ones is %s (%.2g)",
                w->specs[near], length_cell(w, near, v->last)->error);
        say(text, cap, ".");
    }
}

static void advise(const struct lengths *w, const struct advice *v, char *text,
                   size_t cap)
{
    *text = '\0';
    say_lengths(w, v, text, cap);
    say(text, cap, " use %s: ", w->specs[v->spec]);
    if (v->spec == 0) {
        say(text, cap, "it is exact, no other is more than %.0f %% faster",
            100 * (worth_it - 1));
        say_memory(w, v, text, cap);
        say(text, cap, ".");
        return;
    }
    say(text, cap, "it is the fastest");
    say_ratio(w, v, text, cap);
    say_memory(w, v, text, cap);
    say(text, cap, ".");
    say_error(w, v, text, cap);
}

/* The next lengths with one choice, from *i on. */
static bool next_advice(const struct lengths *w, int *i, struct advice *v)
{
    while (*i < w->n_lengths && choose(w, *i) < 0)
        ++*i;
    if (*i == w->n_lengths) return false;
    *v = (struct advice){ *i, *i, choose(w, *i) };
    while (++*i < w->n_lengths && choose(w, *i) == v->spec)
        v->last = *i;
    return true;
}

/* Advice from times that vary is worth less. */
static void print_noise(const struct lengths *w)
{
    int n = 0, all = 0;

    for (int i = 0; i < w->n_specs * w->n_lengths; i++) {
        const struct length_cell *c = &w->cells[i];
        if (!c->measured || c->rounds < 2) continue;
        all++;
        n += c->high - c->low > 2 * quiet * c->seconds;
    }
    if (4 * n > all)
        printf("%d of %d times vary by more than %.0f %%: other work may slow the "
               "machine, and\nmeasuring again may give other advice.\n",
               n, all, 100 * quiet);
}

void length_advice_print(const struct lengths *w)
{
    struct advice v;
    char          text[2048];
    int           i = 0;

    if (!next_advice(w, &i, &v)) {
        printf(
            "Nothing was measured: give shorter lengths, or a longer --time-limit.\n");
        return;
    }
    print_crossings(w);
    printf("\n");
    do {
        advise(w, &v, text, sizeof text);
        printf("%s\n", text);
    } while (next_advice(w, &i, &v));
    print_noise(w);
}

json_t *length_advice_json(const struct lengths *w)
{
    json_t       *list = json_array();
    struct advice v;
    char          text[2048];

    for (int i = 0; next_advice(w, &i, &v);) {
        advise(w, &v, text, sizeof text);
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:s}", "spec", w->specs[v.spec], "from",
                            (json_int_t)w->length[v.first], "to",
                            (json_int_t)w->length[v.last], "text", text));
    }
    return list;
}
