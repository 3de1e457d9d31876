/* map_panels.c -- which heads are shown, and the numbers of each. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"

enum { MOST_JSON = 1 << 22 }; /* weights */

struct map_attention *map_add(struct map *m, int64_t heads, int64_t len_q, int64_t len_k)
{
    m->attentions = need_one_more(m->attentions, m->n_attentions, &m->cap_attentions,
                                  sizeof *m->attentions);
    struct map_attention *a = &m->attentions[m->n_attentions++];
    *a = (struct map_attention){ .heads = heads, .len_q = len_q, .len_k = len_k };
    a->weights = need((size_t)(heads * len_q * len_k), sizeof *a->weights);
    return a;
}

void map_free(struct map *m)
{
    for (size_t i = 0; i < m->n_attentions; i++) {
        struct map_attention *a = &m->attentions[i];
        for (int64_t h = 0; a->labels && h < a->heads; h++)
            free(a->labels[h]);
        free(a->labels);
        free(a->numbers);
        free(a->beside);
        free(a->name);
        free(a->weights);
    }
    free(m->attentions);
    free(m->panels);
    free(m->title);
    free(m->about);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; m->symbols[side] && i < m->tokens[side].n; i++)
            free(m->symbols[side][i]);
        free(m->symbols[side]);
    }
    foci_data_free(m->data);
    foci_reading_free(m->reading);
    json_decref(m->facts);
}

/*
 * Lists of numbers
 */

/* The next of "0,2-5"; false: that is none. */
static bool next_range(const char **list, int64_t range[2])
{
    char *end;

    errno = 0;
    if (**list < '0' || **list > '9') return false;
    range[0] = range[1] = strtoll(*list, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9') return false;
        range[1] = strtoll(end + 1, &end, 10);
    }
    if (errno || (*end && *end != ',') || range[1] < range[0]) return false;
    *list = *end ? end + 1 : end;
    return !(*end == ',' && !end[1]);
}

bool map_takes(const char *list, int64_t number)
{
    int64_t range[2];

    if (!list) return true;
    while (*list && next_range(&list, range))
        if (number >= range[0] && number <= range[1]) return true;
    return false;
}

int map_check_list(const struct args *a, const char *option, int64_t n)
{
    const char *const text = opt_text(a, option);
    const char       *list = text;
    int64_t           range[2];

    while (list && *list) {
        if (!next_range(&list, range))
            return usage_error(a, "--%s is '%s'; it takes numbers, as 0,2-5", option,
                               text);
        if (n == 1 && range[1] >= n)
            return usage_error(a, "--%s is '%s'; there is one, 0", option, text);
        if (n && range[1] >= n)
            return usage_error(a, "--%s is '%s'; they are numbered from 0 to %lld",
                               option, text, (long long)(n - 1));
    }
    return EXIT_OK;
}

/*
 * Panels
 */

static void count(struct map_panel *p)
{
    const float *w = p->weights;

    p->few = p->of->len_k;
    for (int64_t i = 0; i < p->of->len_q; i++) {
        int64_t keys = 0;
        for (int64_t j = 0; j < p->of->len_k; j++, w++) {
            const double x = fabs((double)*w);
            if (!(x > 0)) continue;
            keys++;
            p->negative += *w < 0;
            if (p->low == 0 || x < p->low) p->low = x;
            if (x > p->high) p->high = x;
        }
        p->pairs += keys;
        if (keys < p->few) p->few = keys;
        if (keys > p->many) p->many = keys;
    }
}

static int64_t number_of(const struct map_attention *a, int64_t h)
{
    return a->numbers ? a->numbers[h] : h;
}

static void add_panel(struct map *m, const struct map_attention *a, int64_t h)
{
    const size_t      pairs = (size_t)(a->len_q * a->len_k);
    const float      *w = a->weights + (size_t)h * pairs;
    const int64_t     number = number_of(a, h);
    struct map_panel *last = &m->panels[m->n_panels > 0 ? m->n_panels - 1 : 0];

    if (m->n_panels > 0 && last->of == a && !a->beside &&
        last->first + last->heads == number && strcmp(last->label, a->labels[h]) == 0 &&
        memcmp(last->weights, w, pairs * sizeof *w) == 0) {
        last->heads++;
        return;
    }
    last = &m->panels[m->n_panels++];
    *last = (struct map_panel){ .of = a,
                                .first = number,
                                .heads = 1,
                                .label = a->labels[h],
                                .weights = w,
                                .beside = a->beside && a->beside[h] };
    count(last);
}

static int check_finite(const struct map *m, const struct map_attention *a)
{
    const size_t n = (size_t)(a->heads * a->len_q * a->len_k);

    for (size_t i = 0; i < n; i++)
        if (!isfinite(a->weights[i]))
            return failure(m->a, "%s%s%s: weights are not finite: head %lld has %g",
                           m->title, a->name ? ", " : "", a->name ? a->name : "",
                           (long long)number_of(a, (int64_t)i / (a->len_q * a->len_k)),
                           (double)a->weights[i]);
    return EXIT_OK;
}

int map_make_panels(struct map *m)
{
    const char *heads = opt_text(m->a, "head");
    int64_t     n = 0, most = 0;
    int         code = EXIT_OK;

    for (size_t i = 0; i < m->n_attentions && !code; i++) {
        const struct map_attention *a = &m->attentions[i];
        n += a->heads;
        for (int64_t h = 0; h < a->heads; h++)
            if (number_of(a, h) >= most) most = number_of(a, h) + 1;
        code = check_finite(m, a);
    }
    if (!code) code = map_check_list(m->a, "head", most);
    if (code) return code;
    m->panels = need((size_t)n, sizeof *m->panels);
    for (size_t i = 0; i < m->n_attentions; i++)
        for (int64_t h = 0; h < m->attentions[i].heads; h++)
            if (map_takes(heads, number_of(&m->attentions[i], h)))
                add_panel(m, &m->attentions[i], h);
    return EXIT_OK;
}

double map_density(const struct map_panel *p)
{
    return (double)p->pairs / (double)(p->of->len_q * p->of->len_k);
}

/*
 * Numbers
 */

static json_t *json_weights(const struct map_panel *p)
{
    json_t *rows = json_array();

    for (int64_t i = 0; i < p->of->len_q; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < p->of->len_k; j++)
            json_array_append_new(row,
                                  json_real((double)p->weights[i * p->of->len_k + j]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *json_panel(const struct map_panel *p, bool weights)
{
    const struct map_attention *a = p->of;
    json_t                     *o = json_object();

    if (a->name)
        json_object_update_new(
            o, json_pack("{s:s, s:I, s:s, s:s, s:I}", "attention", a->name, "layer",
                         (json_int_t)a->index, "queries",
                         a->query_source ? "source_tokens" : "tokens", "keys",
                         a->key_source ? "source_tokens" : "tokens", "memory",
                         (json_int_t)a->memory));
    json_object_update_new(
        o, json_pack("{s:I, s:I, s:s, s:I, s:I, s:f, s:I, s:I, s:f, s:f}", "first_head",
                     (json_int_t)p->first, "heads", (json_int_t)p->heads, "mechanism",
                     p->label, "pairs", (json_int_t)p->pairs, "below_zero",
                     (json_int_t)p->negative, "density", map_density(p), "fewest_keys",
                     (json_int_t)p->few, "most_keys", (json_int_t)p->many,
                     "least_weight", p->low, "largest_weight", p->high));
    if (p->beside) json_object_set_new(o, "beside", json_true());
    json_object_set_new(o, "weights", weights ? json_weights(p) : json_null());
    return o;
}

static json_t *json_tokens(const struct map_tokens *t)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < t->n; i++)
        json_array_append_new(list, json_string(t->shown[i]));
    return list;
}

json_t *map_json(const struct map *m)
{
    json_t *o = json_object(), *list = json_array();
    int64_t pairs = 0, all = 0, numbers = 0;

    for (int i = 0; i < m->n_panels; i++)
        numbers += m->panels[i].of->len_q * m->panels[i].of->len_k;
    if (numbers > MOST_JSON)
        note(m->a,
             "JSON has no weights: there are %lld, and it takes %d; choose heads "
             "by --head",
             (long long)numbers, MOST_JSON);
    for (int i = 0; i < m->n_panels; i++) {
        const struct map_panel *p = &m->panels[i];
        pairs += p->beside ? 0 : p->heads * p->pairs;
        all += p->beside ? 0 : p->heads * p->of->len_q * p->of->len_k;
        json_array_append_new(list, json_panel(p, numbers <= MOST_JSON));
    }
    json_object_update(o, m->facts);
    for (int side = 0; side < 2; side++)
        if (m->tokens[side].n)
            json_object_set_new(o, side ? "source_tokens" : "tokens",
                                json_tokens(&m->tokens[side]));
    json_object_update_new(o, json_pack("{s:I, s:f, s:o}", "pairs", (json_int_t)pairs,
                                        "density", (double)pairs / (double)all, "maps",
                                        list));
    return o;
}

void map_print(const struct map *m)
{
    static const char *const heads[] = {
        "heads", "pairs", "density", "keys a query", "weights of a pair", "mechanism"
    };
    const bool           names = m->n_panels && m->panels[0].of->name;
    struct output_table *t = table_headed(names ? "llrrlll" : "lrrlll");

    if (names) table_cell(t, "attention");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < m->n_panels; i++) {
        const struct map_panel *p = &m->panels[i];
        if (names) table_cell(t, "%lld: %s", (long long)p->of->index, p->of->name);
        if (p->heads > 1)
            table_cell(t, "%lld to %lld", (long long)p->first,
                       (long long)(p->first + p->heads - 1));
        else
            table_cell(t, "%lld", (long long)p->first);
        table_cell(t, "%lld", (long long)p->pairs);
        table_cell(t, "%.3g %%", 100 * map_density(p));
        table_cell(t, "%lld to %lld", (long long)p->few, (long long)p->many);
        if (p->negative)
            table_cell(t, "+-%.3g to +-%.3g", p->low, p->high);
        else
            table_cell(t, "%.3g to %.3g", p->low, p->high);
        table_cell(t, "%s", p->label);
    }
    table_print(t, stdout);
    table_free(t);
}
