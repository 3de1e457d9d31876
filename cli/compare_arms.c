/* compare_arms.c -- the arms of a comparison.
 *
 * --attention SPEC is an arm of that name with that attention; --arm "NAME: OPTIONS" is one
 * with any options of foci train that describe a model or its optimiser.  --axis
 * features=16,32 makes an arm of each value, of every arm one of whose specs has a
 * mechanism or modifier with that argument.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "cli/train.h"
#include "foci/mechanism.h"

extern const struct verb verb_train;

bool arms_may_have(const char *option)
{
    /* Data, the budget, and what a run is told by the runner. */
    static const char *const common[] = {
        "data",    "source",      "target",       "labels",      "task",
        "reverse", "valid",       "valid-target", "examples",    "documents",
        "out",     "resume",      "check",        "config",      "steps",
        "epochs",  "tokens",      "time-limit",   "patience",    "seed",
        "log",     "tensorboard", "threads",      "valid-every", "valid-batches",
        "preset",
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (!strcmp(common[i], option)) return false;
    return true;
}

/*
 * "NAME: OPTIONS"
 */

/* Cut a text into words as a shell does, quotes included; the result is n, or -1: a quote is
 * not closed.  `words` has room for as many as the text has bytes. */
static int split_words(char *text, char **words)
{
    int n = 0;

    while (*(text += strspn(text, " \t"))) {
        char *to = words[n++] = text;
        while (*text && !strchr(" \t", *text)) {
            const char quote = *text == '"' || *text == '\'' ? *text++ : '\0';
            while (*text && (quote ? *text != quote : !strchr(" \t\"'", *text)))
                *to++ = *text++;
            if (quote && !*text) return -1;
            if (quote) text++;
        }
        const bool last = !*text;
        *to = '\0';
        text += !last;
    }
    return n;
}

static int take_options(const struct args *a, const char *arm, const struct args *given,
                        json_t *options)
{
    if (given->n_words)
        return usage_error(a, "arm '%s' has '%s', which is no option", arm,
                           given->words[0]);
    if (given->json || given->quiet || given->help)
        return usage_error(a, "arm '%s' has an option that says nothing of a model",
                           arm);
    for (int i = 0; i < given->n_given; i++) {
        const struct option *o = given->given[i].option;
        if (!arms_may_have(o->name))
            return usage_error(
                a,
                "arm '%s' has --%s, which is the same for all arms: give "
                "it outside of --arm",
                arm, o->name);
        const int code = compare_set_option(a, options, &given->given[i]);
        if (code) return code;
    }
    return EXIT_OK;
}

static int read_arm(const struct args *a, const char *text, json_t *arm)
{
    const char *colon = strchr(text, ':');
    const char *begin = text + strspn(text, " ");
    size_t      n = colon && colon > begin ? (size_t)(colon - begin) : 0;
    json_t     *options = json_object();
    struct args given;

    while (n && begin[n - 1] == ' ')
        n--;
    json_object_set_new(arm, "name", json_stringn(begin, n));
    json_object_set_new(arm, "options", options);
    if (!n)
        return usage_error(a,
                           "--arm is '%s'; it takes a name, a colon and options, as in "
                           "\"local: --attention local --conv 3\"",
                           text);
    const char *name = json_string_value(json_object_get(arm, "name"));
    char       *copy = compare_text("%s", colon + 1);
    char      **words = need(strlen(copy) + 1, sizeof *words);
    const int   n_words = split_words(copy, words);
    int         code =
        n_words < 0 ? usage_error(a, "arm '%s': a quote is not closed", name) : EXIT_OK;
    if (!code) {
        code = args_parse(&verb_train, n_words, words, &given);
        if (!code) code = take_options(a, name, &given, options);
        args_free(&given);
    }
    free(words);
    free(copy);
    return code;
}

json_t *arms_read(const struct args *a)
{
    json_t *arms = json_array();

    for (int i = 0; i < a->n_given; i++) {
        const struct given *g = &a->given[i];
        json_t             *arm;
        if (!strcmp(g->option->name, "attention")) {
            arm = json_pack("{s:s, s:{s:s}}", "name", g->text, "options", "attention",
                            g->text);
        } else if (!strcmp(g->option->name, "arm")) {
            arm = json_object();
            if (read_arm(a, g->text, arm)) {
                json_decref(arm);
                json_decref(arms);
                return NULL;
            }
        } else {
            continue;
        }
        json_array_append_new(arms, arm);
    }
    return arms;
}

/*
 * An axis
 */

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Whether a mechanism or a modifier of this name has the argument; *first: as its first,
 * whose name may be left out. */
static bool has_argument(foci_ctx *ctx, const char *name, size_t n,
                         const char *argument, bool *first)
{
    const foci_arg_def *args = NULL;
    size_t              n_args = 0;

    for (int i = 0; i < foci_mechanism_count(ctx); i++) {
        const foci_mech_def *d = foci_mechanism(ctx, i);
        if (strlen(d->name) != n || memcmp(d->name, name, n)) continue;
        args = d->args;
        n_args = d->n_args;
    }
    for (int i = 0; i < foci_modifier_count(ctx); i++) {
        const foci_mod_def *d = foci_modifier(ctx, i);
        if (strlen(d->name) != n || memcmp(d->name, name, n)) continue;
        args = d->args;
        n_args = d->n_args;
    }
    for (size_t i = 0; i < n_args; i++)
        if (!strcmp(args[i].name, argument)) {
            *first = i == 0;
            return true;
        }
    return false;
}

/* The place of the argument in a list "(a=1, b(c=2), 3)", whose value is then at text[*begin]
 * to text[*end]; false: it is not there.  *close: its last parenthesis. */
static bool find_argument(const char *text, const char *argument, bool first,
                          size_t *begin, size_t *end, size_t *close)
{
    const size_t n = strlen(argument);
    int          depth = 0;
    bool         found = false, here = false;
    int          number = 0;

    for (size_t i = 0;; i++) {
        const char c = text[i];
        if (here && depth == 1 && (c == ',' || c == ')')) {
            *end = i;
            here = false;
        }
        depth += (c == '(') - (c == ')');
        if (!c || !depth) {
            *close = i;
            return found;
        }
        if (depth != 1 || (c != '(' && c != ',')) continue;
        const char *piece = text + i + 1 + strspn(text + i + 1, " ");
        const bool  named = !strncmp(piece, argument, n) && piece[n] == '=';
        const bool  bare =
            first && number == 0 && !memchr(piece, '=', strcspn(piece, ",)"));
        number++;
        if (found || !(named || bare)) continue;
        *begin = (size_t)(piece - text) + (named ? n + 1 : 0);
        here = found = true;
    }
}

/* The spec with argument=value wherever it can stand; NULL: nowhere.  To be freed. */
static char *set_argument(foci_ctx *ctx, const char *spec, const char *argument,
                          const char *value)
{
    char *out = compare_text("%s", "");
    bool  any = false;

    for (const char *at = spec; *at;) {
        size_t n = 0, begin = 0, end = 0, close = 0;
        bool   first = false;
        while (is_word(at[n]))
            n++;
        char *more;
        if (!n || (at > spec && is_word(at[-1])) || at[n] == '=' ||
            !has_argument(ctx, at, n, argument, &first)) {
            n = n ? n : 1;
            more = compare_text("%s%.*s", out, (int)n, at);
        } else if (any = true, at[n] != '(') {
            more = compare_text("%s%.*s(%s=%s)", out, (int)n, at, argument, value);
        } else if (find_argument(at + n, argument, first, &begin, &end, &close)) {
            more = compare_text("%s%.*s%s%.*s", out, (int)(n + begin), at, value,
                                (int)(close - end + (at[n + close] != '\0')),
                                at + n + end);
            n += close + (at[n + close] != '\0');
        } else {
            more = compare_text("%s%.*s, %s=%s", out, (int)(n + close), at, argument,
                                value);
            n += close;
        }
        free(out);
        out = more;
        at += n;
    }
    if (any) return out;
    free(out);
    return NULL;
}

/* The arm with one value; NULL: none of its specs has the argument. */
static json_t *arm_with(foci_ctx *ctx, const json_t *arm, const char *argument,
                        const char *value)
{
    static const char *const specs[] = { "attention", "encoder-attention",
                                         "decoder-attention", "cross-attention" };
    json_t                  *options = json_deep_copy(json_object_get(arm, "options"));
    bool                     any = false;

    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const char *spec = json_string_value(json_object_get(options, specs[i]));
        char       *set = spec ? set_argument(ctx, spec, argument, value) : NULL;
        if (set) json_object_set_new(options, specs[i], json_string(set));
        any |= set != NULL;
        free(set);
    }
    if (!any) {
        json_decref(options);
        return NULL;
    }
    const char *base = json_string_value(json_object_get(arm, "name"));
    char       *name = compare_text("%s %s=%s", base, argument, value);
    json_t *result = json_pack("{s:s, s:o, s:s, s:s}", "name", name, "options", options,
                               "base", base, "value", value);
    free(name);
    return result;
}

json_t *arms_expand(const struct args *a, foci_ctx *ctx, const json_t *definition)
{
    const json_t *given = json_object_get(definition, "arms");
    json_t       *axis = json_object_get(definition, "axis"), *arms = json_array();
    const char   *argument = json_object_iter_key(json_object_iter(axis));
    const json_t *values = axis ? json_object_get(axis, argument) : NULL;
    bool          any = false;
    size_t        i, k;
    json_t       *arm, *value;

    json_array_foreach(given, i, arm)
    {
        const size_t before = json_array_size(arms);
        json_array_foreach(values, k, value)
        {
            json_t *one = arm_with(ctx, arm, argument, json_string_value(value));
            if (one) json_array_append_new(arms, one);
        }
        any |= json_array_size(arms) > before;
        if (json_array_size(arms) == before) json_array_append(arms, arm);
    }
    if (!axis || any) return arms;
    usage_error(a, "--axis has '%s', which is an argument of no spec here", argument);
    json_decref(arms);
    return NULL;
}
