/* compare_define.c -- what is compared: from the command line, from the folder of a
 * comparison, and both together.
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
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/comparison.h"
#include "cli/train.h"

static const char *const kinds[] = { "lm", "mlm", "translate", "classify", NULL };

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

int64_t compare_count(const char *text)
{
    char        *end;
    const double x = isdigit((unsigned char)*text) ? strtod(text, &end) : 0;

    if (x <= 0) return 0;
    const double times = *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : 1;
    if (times > 1) end++;
    const double n = x * times;
    return *end || n != floor(n) || n > 1e15 ? 0 : (int64_t)n;
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
 * The command line
 */

/* The options of foci train among those given. */
static int read_options(const struct args *a, json_t *options)
{
    for (int i = 0; i < a->n_given; i++) {
        const struct option *o = a->given[i].option;
        bool                 shared = false;
        for (const struct option *t = train_options; t->name; t++)
            shared |= t == o;
        if (!shared) continue;
        if (!strcmp(o->name, "log") || !strcmp(o->name, "tensorboard"))
            return usage_error(a,
                               "--%s names one place, and there are many runs: the log "
                               "of each is in DIR/runs",
                               o->name);
        if (!strcmp(o->name, "check"))
            return usage_error(a,
                               "--check is for foci train; --dry-run lists the runs");
        json_object_set_new(options, o->name,
                            o->arg ? json_string(a->given[i].text) : json_true());
    }
    return EXIT_OK;
}

/* The word is a task of models, or a generator. */
static int read_word(const struct args *a, json_t *d, json_t *options)
{
    foci_task_info info = { FOCI_SIZED(foci_task_info) };
    const char    *word = a->words[0];

    for (int i = 0; kinds[i]; i++)
        if (!strcmp(kinds[i], word)) {
            json_object_set_new(d, "task", json_string(word));
            return EXIT_OK;
        }
    for (int i = 0; i < foci_task_count(); i++) {
        (void)foci_task(i, &info);
        if (strncmp(info.name, word, strcspn(word, "("))) continue;
        if (strlen(info.name) != strcspn(word, "(")) continue;
        json_object_set_new(options, "task", json_string(word));
        return EXIT_OK;
    }
    return usage_error(a,
                       "no task '%s'; there are lm, mlm, translate and classify, and "
                       "those that foci task lists",
                       word);
}

/* "5k,10k,all" */
static int read_examples(const struct args *a, const char *text, json_t *list)
{
    for (const char *at = text; *at; at += strspn(at, ",")) {
        const size_t n = strcspn(at, ",");
        char         one[32];
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        const bool    all = !strcmp(one, "all");
        const int64_t count = all ? 0 : compare_count(one);
        if (n >= sizeof one || (!all && !count))
            return usage_error(a,
                               "--examples has '%.*s'; it takes numbers and 'all', as "
                               "in 5k,10k,all",
                               (int)n, at);
        json_array_append_new(list, json_integer(count));
        at += n;
    }
    return json_array_size(list) ? EXIT_OK
                                 : usage_error(a, "--examples lists no numbers");
}

/* "a..b:n": n numbers from a to b, each the same number of times the one before. */
static bool read_range(const char *text, json_t *list)
{
    double a, b;
    int    n, end = 0;

    if (sscanf(text, "%lf..%lf:%d%n", &a, &b, &n, &end) != 3 || text[end]) return false;
    if (!(a > 0 && b > a && n > 1 && n <= 1000)) return false;
    for (int i = 0; i < n; i++) {
        char number[32];
        snprintf(number, sizeof number, "%.4g", a * pow(b / a, i / (double)(n - 1)));
        json_array_append_new(list, json_string(number));
    }
    return true;
}

static int add_value(const struct args *a, json_t *grid, const char *name,
                     const char *text)
{
    json_t *list = json_object_get(grid, name);

    if (!name)
        return usage_error(a, "'%s' stands before any name; grids are NAME=A,B,C", text);
    if (strstr(text, "..")) {
        if (read_range(text, list)) return EXIT_OK;
        return usage_error(a,
                           "'%s' is no range; A..B:N is N numbers from A to B, as "
                           "1e-4..1e-1:7",
                           text);
    }
    if (!*text) return usage_error(a, "%s has an empty value", name);
    json_array_append_new(list, json_string(text));
    return EXIT_OK;
}

/* "lr=1e-4..1e-1:7,dropout=0.1,0.3" into {"lr": [...], "dropout": [...]}. */
static int read_grid(const struct args *a, const char *text, json_t *grid)
{
    char *copy = compare_text("%s", text), *rest = copy;
    char *name = NULL;
    int   code = EXIT_OK;

    while (!code && rest) {
        char *piece = rest, *comma = strchr(rest, ',');
        if (comma) *comma = '\0';
        rest = comma ? comma + 1 : NULL;
        char *equals = strchr(piece, '=');
        if (equals) {
            *equals = '\0';
            name = piece;
            piece = equals + 1;
            if (json_object_get(grid, name)) {
                code =
                    usage_error(a, "'%s' has two lists of values in '%s'", name, text);
                break;
            }
            json_object_set_new(grid, name, json_array());
        }
        code = add_value(a, grid, name, piece);
    }
    free(copy);
    return code;
}

static const struct option *find_train_option(const char *name)
{
    for (const struct option *o = train_options; o->name; o++)
        if (!strcmp(o->name, name)) return o;
    return NULL;
}

/* Tuned are numbers, each of which the option takes. */
static int check_tuned(const struct args *a, json_t *grid)
{
    const char *name;
    json_t     *list, *value;
    size_t      i;

    json_object_foreach(grid, name, list)
    {
        const struct option *o = find_train_option(name);
        if (!o || (o->kind != KIND_REAL && o->kind != KIND_WHOLE) ||
            !arms_may_have(name))
            return usage_error(a,
                               "--tune has '%s', which is no option of numbers that a "
                               "model or its optimiser has; lr, dropout, decay are",
                               name);
        json_array_foreach(list, i, value)
        {
            char        *end;
            const char  *text = json_string_value(value);
            const double x = strtod(text, &end);
            if (*end || !(x >= o->min) || !(o->below ? x < o->max : x <= o->max) ||
                (o->kind == KIND_WHOLE && x != floor(x)))
                return usage_error(
                    a, "--tune has %s=%s; --%s takes a %snumber from %.16g to %s%.16g",
                    name, text, name, o->kind == KIND_WHOLE ? "whole " : "", o->min,
                    o->below ? "less than " : "", o->max);
        }
    }
    return EXIT_OK;
}

static int read_tune(const struct args *a, json_t *d)
{
    const char *text = opt_text(a, "tune");
    json_t     *grid = json_object();

    json_object_set_new(d, "tune", grid);
    const int code = read_grid(a, strcmp(text, "lr") ? text : "lr=1e-4..1e-1:7", grid);
    return code ? code : check_tuned(a, grid);
}

static int read_axis(const struct args *a, json_t *d)
{
    json_t *grid = json_object();

    json_object_set_new(d, "axis", grid);
    const int code = read_grid(a, opt_text(a, "axis"), grid);
    if (code) return code;
    return json_object_size(grid) == 1
               ? EXIT_OK
               : usage_error(a, "--axis varies one argument, as in features=16,32,64");
}

static int read_test(const struct args *a, json_t *d)
{
    const char *test = opt_text(a, "test"), *target = opt_text(a, "test-target");
    json_t     *options = json_object();

    if (!test && !target) {
        json_decref(options);
        return EXIT_OK;
    }
    json_object_set_new(d, "test", options);
    if (!test) return usage_error(a, "--test-target is given, and --test is not");
    json_object_set_new(options, target && !opt_text(a, "labels") ? "source" : "data",
                        json_string(test));
    if (target)
        json_object_set_new(options, opt_text(a, "labels") ? "labels" : "target",
                            json_string(target));
    return EXIT_OK;
}

static int read_metric(const struct args *a, json_t *d)
{
    const char *key = opt_text(a, "metric");

    if (key && !compare_metric_find(key))
        return usage_error(a, "--metric is '%s'; it takes %s", key,
                           compare_metric_list());
    if (key) json_object_set_new(d, "metric", json_string(key));
    if (opt_text(a, "margin"))
        json_object_set_new(d, "margin", json_real(opt_real(a, "margin", 0)));
    return EXIT_OK;
}

static int read_all(const struct args *a, json_t *d)
{
    json_t *options = json_object();
    int     code = a->n_words ? read_word(a, d, options) : EXIT_OK;

    json_object_set_new(d, "options", options);
    if (!code) code = read_options(a, options);
    if (code) return code;
    json_t *arms = arms_read(a);
    if (!arms) return EXIT_USAGE;
    json_object_set_new(d, "arms", arms);
    if (opt_text(a, "baseline"))
        json_object_set_new(d, "baseline", json_string(opt_text(a, "baseline")));
    if (opt_text(a, "seed"))
        json_object_set_new(d, "seed", json_integer(opt_int(a, "seed", 1)));
    if (opt_text(a, "seeds"))
        json_object_set_new(d, "seeds", json_integer(opt_int(a, "seeds", 3)));
    if (opt_text(a, "tune-seeds"))
        json_object_set_new(d, "tune_seeds", json_integer(opt_int(a, "tune-seeds", 1)));
    if (opt_text(a, "examples")) {
        json_t *list = json_array();
        json_object_set_new(d, "examples", list);
        if ((code = read_examples(a, opt_text(a, "examples"), list))) return code;
    }
    if (opt_text(a, "tune") && (code = read_tune(a, d))) return code;
    if (opt_text(a, "axis") && (code = read_axis(a, d))) return code;
    if ((code = read_test(a, d))) return code;
    return read_metric(a, d);
}

json_t *definition_read(const struct args *a)
{
    json_t *d = json_object();

    if (read_all(a, d) == EXIT_OK) return d;
    json_decref(d);
    return NULL;
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
    const json_t *options = json_object_get(d, "options");
    const char   *made = json_string_value(json_object_get(options, "task"));
    int           code = EXIT_OK;

    if (!json_object_get(d, "task"))
        code = made
                   ? kind_of_generator(a, ctx, made, d)
                   : usage_error(a, "compare on what: lm, mlm, translate, classify, or "
                                    "a task that foci task lists?");
    if (!code) code = check_arms(a, d);
    if (code) return code;
    const char *task = json_string_value(json_object_get(d, "task"));
    preset(d, "version", json_string(foci_version()));
    preset(d, "seed", json_integer(1));
    preset(d, "seeds", json_integer(3));
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
        } else if (!json_is_array(json_object_get(d, "arms")) ||
                   !json_is_string(json_object_get(d, "task")) ||
                   !json_is_object(json_object_get(d, "options")) ||
                   !json_is_array(json_object_get(d, "examples"))) {
            *code = failure(a, "%s is no definition of a comparison", path);
            json_decref(d);
            d = NULL;
        }
    }
    free(path);
    return d;
}
