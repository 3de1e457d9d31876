/* compare_define.c -- what is compared: what was given is completed, and meets what the
 * folder of a comparison has.
 *
 * A definition is the content of compare.json:
 *
 *     task        "lm", "mlm", "translate", "classify"
 *     options     {"steps": "2000"}: of foci train, the same for all arms
 *     arms        [{"name": "softmax", "options": {"attention": "softmax"}}]
 *     baseline    the name of the arm that others are compared with
 *     seed, seeds the first one, and how many
 *     examples    [5000, 0], 0 for all
 *     tune        {"lr": ["0.001", "0.01"]}, with tune_seeds
 *     axis        {"features": ["16", "32"]}
 *     metric, margin   what quality is, and which differences make no difference
 *     test        {"data": "test.tsv"}: options of foci eval; without it there may be a
 *                 test set all the same, of generated and of shipped data
 *
 * Arms and seeds may be added later, as runs that are done stay what they are.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/comparison.h"
#include "foci/data.h"

/*
 * Small things
 */

char *compare_text(const char *format, ...)
{
    va_list list, again;

    va_start(list, format);
    va_copy(again, list);
    const int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *text = need((size_t)(len < 0 ? 0 : len) + 1, 1);
    if (len > 0) vsnprintf(text, (size_t)len + 1, format, list);
    va_end(list);
    return text;
}

char *temporary_name(void)
{
    const char *base = getenv("TMPDIR");
    return compare_text("%s/foci-XXXXXX", base && *base ? base : "/tmp");
}

double field_real(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *field_text(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

json_t *compare_string(const char *text)
{
    json_t *string = json_string(text);

    if (string) return string;
    char *copy = compare_text("%s", text);
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p > 126) *p = '?';
    string = json_string(copy);
    free(copy);
    return string;
}

int compare_set_option(const struct args *a, json_t *options, const struct given *g)
{
    json_t *text = g->option->arg ? json_string(g->text) : json_true();

    if (!text)
        return usage_error(a, "--%s is '%s', which is not UTF-8", g->option->name,
                           g->text);
    json_object_set_new(options, g->option->name, text);
    return EXIT_OK;
}

static const struct compare_metric metrics[] = {
    { "accuracy", "accuracy", "points", 100, 2, false, false, 2 },
    { "exact", "exact", "points", 100, 2, false, false, 2 },
    { "bleu", "BLEU", "BLEU", 1, 1, false, false, 2 },
    { "chrf2", "chrF2", "chrF2", 1, 1, false, false, 2 },
    { "perplexity", "perplexity", "%", 1, 5, true, true, 3 },
    { "bits_per_character", "bits per character", "%", 1, 5, true, true, 4 },
    { "loss", "nats a token", "nats", 1, 0.05, true, false, 4 },
};

const struct compare_metric *compare_metric_find(const char *key)
{
    for (size_t i = 0; key && i < sizeof metrics / sizeof *metrics; i++)
        if (!strcmp(metrics[i].key, key)) return &metrics[i];
    return NULL;
}

const struct compare_metric *compare_metric_of(const json_t *definition)
{
    const char *key = json_string_value(json_object_get(definition, "metric"));
    const struct compare_metric *m = compare_metric_find(key);
    return m ? m : metrics;
}

const char *compare_metric_list(void)
{
    return "accuracy, exact, bleu, chrf2, perplexity, bits_per_character or loss";
}

/*
 * Completing
 */

static void preset(json_t *d, const char *key, json_t *value)
{
    if (json_object_get(d, key))
        json_decref(value);
    else
        json_object_set_new(d, key, value);
}

/* Which task of models a generator makes examples for. */
static int kind_of_generator(const struct args *a, foci_ctx *ctx, const char *task,
                             json_t *d)
{
    static const char *const names[] = { [FOCI_DATA_LM] = "lm",
                                         [FOCI_DATA_MLM] = "mlm",
                                         [FOCI_DATA_TRANSLATE] = "translate",
                                         [FOCI_DATA_CLASSIFY] = "classify" };
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = task, .batch = 1, .examples = 1 };
    foci_data_info          info = { FOCI_SIZED(foci_data_info) };
    foci_data              *data = NULL;

    foci_status status = foci_data_open(ctx, &o, &data);
    if (!status) status = foci_data_get_info(data, &info);
    foci_data_free(data);
    if (status) return library_error(a, ctx, status, NULL);
    json_object_set_new(d, "task", json_string(names[info.kind]));
    return EXIT_OK;
}

static const char *preset_metric(const json_t *d, const char *task)
{
    if (json_object_get(json_object_get(d, "options"), "task")) return "accuracy";
    if (!strcmp(task, "classify")) return "accuracy";
    return strcmp(task, "translate") ? "perplexity" : "bleu";
}

static int check_arms(const struct args *a, json_t *d)
{
    const json_t *arms = json_object_get(d, "arms");
    const json_t *first =
        json_object_get(json_array_get(arms, 0), "name"); /* also of no arms */

    if (!json_array_size(arms))
        return usage_error(a, "compare what? Give --attention SPEC, or --arm \"NAME: "
                              "OPTIONS\", for each arm");
    for (size_t i = 0; i < json_array_size(arms); i++)
        for (size_t k = 0; k < i; k++) {
            json_t *x = json_object_get(json_array_get(arms, i), "name");
            if (json_equal(x, json_object_get(json_array_get(arms, k), "name")))
                return usage_error(a,
                                   "two arms are called '%s'; give names by --arm "
                                   "\"NAME: OPTIONS\"",
                                   json_string_value(x));
        }
    preset(d, "baseline", json_copy((json_t *)first));
    return EXIT_OK;
}

int definition_complete(const struct args *a, foci_ctx *ctx, json_t *d)
{
    json_t     *options = json_object_get(d, "options");
    const char *made = json_string_value(json_object_get(options, "task"));
    int         code = EXIT_OK;

    if (!json_object_get(d, "task"))
        code = made
                   ? kind_of_generator(a, ctx, made, d)
                   : usage_error(a, "compare on what: lm, mlm, translate, classify, or "
                                    "a task that foci task lists?");
    if (!code && made) code = compare_take_preset(a, options);
    if (!code) code = check_arms(a, d);
    if (code) return code;
    const char *task = json_string_value(json_object_get(d, "task"));
    preset(d, "version", json_string(foci_version()));
    preset(d, "seed", json_integer(1));
    preset(d, "seeds", json_integer(made ? 5 : 3)); /* small tasks vary more */
    preset(d, "examples", json_pack("[i]", 0));
    if (json_object_get(d, "tune")) preset(d, "tune_seeds", json_integer(1));
    preset(d, "metric", json_string(preset_metric(d, task)));
    preset(d, "margin", json_real(compare_metric_of(d)->margin));
    return EXIT_OK;
}

/*
 * Definitions that meet
 */

static json_t *find_arm(const json_t *arms, const json_t *name)
{
    size_t  i;
    json_t *arm;

    json_array_foreach(arms, i, arm)
    {
        if (json_equal(json_object_get(arm, "name"), name)) return arm;
    }
    return NULL;
}

static int merge_arms(const struct args *a, json_t *to, const json_t *given,
                      const char *where, bool *changed)
{
    size_t  i;
    json_t *arm;

    json_array_foreach(given, i, arm)
    {
        const json_t *there = find_arm(to, json_object_get(arm, "name"));
        if (!there) {
            json_array_append(to, arm);
            *changed = true;
        } else if (!json_equal(there, arm)) {
            return usage_error(a, "%s has an arm '%s' with other options", where,
                               json_string_value(json_object_get(arm, "name")));
        }
    }
    return EXIT_OK;
}

/* One line of JSON, to be freed. */
static char *line_of(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    return text ? text : compare_text("none");
}

static int refuse(const struct args *a, const char *where, const char *key,
                  const json_t *there, const json_t *now)
{
    char *before = line_of(there), *after = line_of(now);

    const int code =
        usage_error(a,
                    "%s was begun with %s %s, and not %s: arms and seeds may "
                    "be added, all else takes another --out",
                    where, key, before, after);
    free(before);
    free(after);
    return code;
}

/* Of the options those that are given have to be the same. */
static int compare_options(const struct args *a, const json_t *there, json_t *now,
                           const char *where)
{
    const char *name;
    json_t     *value;

    json_object_foreach(now, name, value)
    {
        const json_t *before = json_object_get(there, name);
        if (json_equal((json_t *)before, value)) continue;
        char     *key = compare_text("--%s", name);
        const int code = refuse(a, where, key, before, value);
        free(key);
        return code;
    }
    return EXIT_OK;
}

int definition_merge(const struct args *a, json_t *definition, const json_t *given,
                     const char *where, bool *changed)
{
    const char *key;
    json_t     *value;
    int         code = EXIT_OK;

    json_object_foreach((json_t *)given, key, value)
    {
        json_t *there = json_object_get(definition, key);
        if (!strcmp(key, "arms")) {
            code = merge_arms(a, there, value, where, changed);
        } else if (!strcmp(key, "options")) {
            code = compare_options(a, there, value, where);
        } else if (!strcmp(key, "seeds")) {
            if (json_integer_value(value) <= json_integer_value(there)) continue;
            json_object_set(definition, key, value);
            *changed = true;
        } else if (strcmp(key, "version") && !json_equal(there, value)) {
            code = refuse(a, where, key, there, value);
        }
        if (code) return code;
    }
    return EXIT_OK;
}

/* {"lr": "0.1", "untied": true} */
static bool is_options(const json_t *value)
{
    const char *name;
    json_t     *text;

    if (!json_is_object(value)) return false;
    json_object_foreach((json_t *)value, name, text)
    {
        if (!json_is_string(text) && !json_is_true(text)) return false;
    }
    return true;
}

/* {"lr": ["0.1", "0.2"]}, or nothing. */
static bool is_grid(const json_t *value)
{
    const char *name;
    json_t     *list, *text;
    size_t      i, points = 1;

    if (value && !json_is_object(value)) return false;
    json_object_foreach((json_t *)value, name, list)
    {
        points *= json_array_size(list);
        if (!points || points > COMPARE_POINTS) return false;
        json_array_foreach(list, i, text)
        {
            if (!json_is_string(text)) return false;
        }
    }
    return !value || json_object_size(value) > 0;
}

static bool is_count(const json_t *value, int64_t least, int64_t most)
{
    const int64_t n = json_integer_value(value);
    return json_is_integer(value) && n >= least && n <= most;
}

/* Whether a file has what completing gives. */
static bool is_whole(const json_t *d)
{
    const json_t *arms = json_object_get(d, "arms"),
                 *sizes = json_object_get(d, "examples");
    const json_t *test = json_object_get(d, "test");
    size_t        i;
    json_t       *one;

    if (!json_array_size(arms) || !json_array_size(sizes)) return false;
    json_array_foreach(arms, i, one)
    {
        if (!json_is_string(json_object_get(one, "name"))) return false;
        if (!is_options(json_object_get(one, "options"))) return false;
    }
    json_array_foreach(sizes, i, one)
    {
        if (!is_count(one, 0, INT64_MAX)) return false;
    }
    return json_is_string(json_object_get(d, "task")) &&
           json_is_string(json_object_get(d, "version")) &&
           json_is_string(json_object_get(d, "baseline")) &&
           json_is_string(json_object_get(d, "metric")) &&
           json_is_number(json_object_get(d, "margin")) &&
           is_options(json_object_get(d, "options")) && (!test || is_options(test)) &&
           is_grid(json_object_get(d, "tune")) && is_grid(json_object_get(d, "axis")) &&
           is_count(json_object_get(d, "seed"), 0, INT64_MAX / 2) &&
           is_count(json_object_get(d, "seeds"), 1, 10000) &&
           (!json_object_get(d, "tune") ||
            is_count(json_object_get(d, "tune_seeds"), 1, 10000));
}

json_t *definition_load(const struct args *a, const char *folder, int *code)
{
    char        *path = compare_text("%s/compare.json", folder);
    json_error_t error;
    json_t      *d = NULL;

    *code = EXIT_OK;
    if (access(path, F_OK) == 0) {
        d = json_load_file(path, 0, &error);
        if (!d) {
            *code = failure(a, "%s, line %d: %s", path, error.line, error.text);
        } else if (!is_whole(d)) {
            *code = failure(a, "%s is no definition of a comparison", path);
            json_decref(d);
            d = NULL;
        }
    }
    free(path);
    return d;
}
