/* compare_given.c -- the definition of a comparison as far as the command line says it. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "cli/train.h"

static const char *const kinds[] = { "lm", "mlm", "translate", "classify", NULL };

/* "5k", "1M", "200": a whole number from 1 on; 0: it is none. */
static int64_t read_count(const char *text)
{
    char *end;

    if (!isdigit((unsigned char)*text)) return 0;
    const double x = strtod(text, &end);
    const double times = *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : 1;
    if (times > 1) end++;
    const double n = x * times;
    return *end || n < 1 || n != floor(n) || n > 1e15 ? 0 : (int64_t)n;
}

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
        (void)compare_set_option(a, options, &a->given[i]);
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
    if (task_find(word, &info)) {
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
        const int64_t count = all ? 0 : read_count(one);
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
    size_t      i, points = 1;

    json_object_foreach(grid, name, list)
    {
        const struct option *o = find_train_option(name);
        if (!o || (o->kind != KIND_REAL && o->kind != KIND_WHOLE) ||
            !arms_may_have(name))
            return usage_error(a,
                               "--tune has '%s', which is no option of numbers that a "
                               "model or its optimiser has; lr, dropout, decay are",
                               name);
        points *= json_array_size(list);
        if (points > COMPARE_POINTS)
            return usage_error(a, "--tune has more than %d combinations",
                               COMPARE_POINTS);
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

/* Everything goes into JSON, options of this verb too. */
static int check_texts(const struct args *a)
{
    json_t *scratch = json_object();
    int     code = EXIT_OK;

    for (int i = 0; !code && i < a->n_given; i++)
        code = compare_set_option(a, scratch, &a->given[i]);
    json_decref(scratch);
    return code;
}

static int read_all(const struct args *a, json_t *d)
{
    json_t *options = json_object();
    int     code = check_texts(a);

    if (!code && a->n_words) code = read_word(a, d, options);

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
    if ((code = read_test(a, d)) || (code = compare_take_folder(a, d))) return code;
    return read_metric(a, d);
}

json_t *definition_read(const struct args *a)
{
    json_t *d = json_object();

    if (read_all(a, d) == EXIT_OK) return d;
    json_decref(d);
    return NULL;
}
