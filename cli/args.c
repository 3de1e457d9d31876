/* args.c -- command lines: parsing by a verb's table of options, and queries of the
 * values given. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool is_named(const char *name, size_t len, const char *what)
{
    return strlen(what) == len && memcmp(what, name, len) == 0;
}

static const struct option *find_in(const struct option *o, const char *name, size_t len)
{
    for (; o && o->name; o++)
        if (is_named(name, len, o->name)) return o;
    return NULL;
}

const struct option *verb_option(const struct verb *verb, int i)
{
    for (const struct option *o = verb->options; o && o->name; o++)
        if (i-- == 0) return o;
    for (const struct option *o = verb->shared; o && o->name; o++)
        if (!find_in(verb->options, o->name, strlen(o->name)) && i-- == 0) return o;
    return NULL;
}

static const struct option *find_option(const struct verb *verb, const char *name,
                                        size_t len)
{
    const struct option *own = find_in(verb->options, name, len);
    return own ? own : find_in(verb->shared, name, len);
}

/* Another verb that has the option; NULL: none. */
static const struct verb *other_verb(const char *name)
{
    for (int i = 0; verbs[i]; i++)
        if (find_option(verbs[i], name, strlen(name))) return verbs[i];
    return NULL;
}

static int unknown_option(const struct args *a, const char *text)
{
    char         word[64], hint[96];
    struct guess n = { .word = word, .prefix = "--" };

    snprintf(word, sizeof word, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    const struct verb *other = other_verb(word);
    if (other)
        return usage_error(a, "no option '--%s' (foci %s has one); see foci %s --help",
                           word, other->name, a->verb->name);
    const struct option *own;
    for (int i = 0; (own = verb_option(a->verb, i)); i++)
        guess_offer(&n, own->name);
    for (const struct option *o = common_options; o->name; o++)
        guess_offer(&n, o->name);
    return usage_error(a, "no option '--%s'%s; see foci %s --help", word,
                       guess_hint(&n, hint, sizeof hint), a->verb->name);
}

static bool read_number(const struct option *o, const char *text, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (end == text || *end || errno == ERANGE || !isfinite(*out)) return false;
    if (strpbrk(text, "xXpP \t\n")) return false;
    if (o->kind == KIND_WHOLE && *out != floor(*out)) return false;
    return *out >= o->min && (o->below ? *out < o->max : *out <= o->max);
}

/* The place of text among "a|b|c"; -1: not there. */
static int word_index(const char *words, const char *text)
{
    const size_t len = strlen(text);
    for (int i = 0;; i++) {
        const size_t n = strcspn(words, "|");
        if (n == len && memcmp(words, text, n) == 0) return i;
        if (!words[n]) return -1;
        words += n + 1;
    }
}

static int read_value(const struct args *a, struct given *g)
{
    const struct option *o = g->option;

    if (!*g->text) return usage_error(a, "--%s is empty; it takes %s", o->name, o->arg);
    switch (o->kind) {
    case KIND_FLAG:
    case KIND_TEXT: return EXIT_OK;
    case KIND_WHOLE:
    case KIND_REAL:
        if (read_number(o, g->text, &g->number)) return EXIT_OK;
        return usage_error(a, "--%s is '%s'; it takes a %snumber from %.16g to %s%.16g",
                           o->name, g->text, o->kind == KIND_WHOLE ? "whole " : "",
                           o->min, o->below ? "less than " : "", o->max);
    case KIND_WORD:
        g->number = word_index(o->words, g->text);
        if (g->number >= 0) return EXIT_OK;
        return usage_error(a, "--%s is '%s'; it takes %s", o->name, g->text, o->words);
    }
    return EXIT_OK;
}

/* Take argv[0], which starts with --, and its value; *used counts both. */
static int take_option(struct args *a, int argc, char **argv, int *used)
{
    const char          *name = argv[0] + 2;
    const size_t         len = strcspn(name, "=");
    bool                *common = is_named(name, len, "json")    ? &a->json
                                  : is_named(name, len, "quiet") ? &a->quiet
                                  : is_named(name, len, "help")  ? &a->help
                                                                 : NULL;
    const struct option *o = find_option(a->verb, name, len);

    *used = 1;
    if (!common && !o) return unknown_option(a, argv[0]);
    if ((common || o->kind == KIND_FLAG) && name[len])
        return usage_error(a, "--%.*s takes no value; seen '%s'", (int)len, name,
                           name + len + 1);
    if (common) {
        *common = true;
        return EXIT_OK;
    }
    struct given *g = &a->given[a->n_given++];
    *g = (struct given){ .option = o };
    if (o->kind == KIND_FLAG) return EXIT_OK;
    if (name[len]) {
        g->text = name + len + 1;
    } else {
        if (argc < 2 || strncmp(argv[1], "--", 2) == 0)
            return usage_error(a, "--%s needs %s%s%s", o->name, o->arg,
                               argc < 2 ? "" : "; seen ", argc < 2 ? "" : argv[1]);
        g->text = argv[1];
        *used = 2;
    }
    return read_value(a, g);
}

static int check_words(const struct args *a)
{
    const struct verb *v = a->verb;

    if (v->max_words >= 0 && a->n_words > v->max_words)
        return usage_error(a, "unexpected '%s'; usage: foci %s%s%s%s",
                           a->words[v->max_words], v->name, *v->usage ? " " : "",
                           v->usage,
                           *v->usage ? " (texts with blanks need quotes)" : "");
    if (a->n_words < v->min_words)
        return usage_error(a, "needs %s; usage: foci %s %s",
                           v->min_words == 1 ? "an argument" : "more arguments",
                           v->name, v->usage);
    return EXIT_OK;
}

int args_parse(const struct verb *verb, int argc, char **argv, struct args *a)
{
    bool options = true;

    *a = (struct args){ .verb = verb };
    a->words = need((size_t)argc + 1, sizeof *a->words);
    a->given = need((size_t)argc + 1, sizeof *a->given);

    /* Whoever asks for help gets it, whatever else is wrong. */
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            a->help = true;
            return EXIT_OK;
        }

    for (int i = 0, used; i < argc; i += used) {
        used = 1;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && strncmp(argv[i], "--", 2) == 0) {
            const int code = take_option(a, argc - i, argv + i, &used);
            if (code) return code;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            return usage_error(a, "no option '%s'; options begin with two dashes",
                               argv[i]);
        } else {
            a->words[a->n_words++] = argv[i];
        }
    }
    return check_words(a);
}

void args_free(struct args *a)
{
    free(a->words);
    free(a->given);
}

/* The last one given; NULL: none. */
static const struct given *last(const struct args *a, const char *name)
{
    assert(find_option(a->verb, name, strlen(name)));
    for (int i = a->n_given - 1; i >= 0; i--)
        if (strcmp(a->given[i].option->name, name) == 0) return &a->given[i];
    return NULL;
}

bool opt_flag(const struct args *a, const char *name) { return last(a, name) != NULL; }

const char *opt_text(const struct args *a, const char *name)
{
    const struct given *g = last(a, name);
    return g ? g->text : NULL;
}

int64_t opt_int(const struct args *a, const char *name, int64_t preset)
{
    const struct given *g = last(a, name);
    return g ? (int64_t)g->number : preset;
}

double opt_real(const struct args *a, const char *name, double preset)
{
    const struct given *g = last(a, name);
    return g ? g->number : preset;
}

int opt_word(const struct args *a, const char *name, int preset)
{
    const struct given *g = last(a, name);
    return g ? (int)g->number : preset;
}

const char *opt_nth(const struct args *a, const char *name, int i)
{
    assert(find_option(a->verb, name, strlen(name)));
    for (int g = 0; g < a->n_given; g++)
        if (strcmp(a->given[g].option->name, name) == 0 && i-- == 0)
            return a->given[g].text;
    return NULL;
}
