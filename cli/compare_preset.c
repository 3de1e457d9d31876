/* compare_preset.c -- the preset of a generator, written out as options of the comparison: so
 * that tables show all that runs have in common, and a definition means the same later on.
 *
 * The words of `foci train` are made from the options, completed as that verb does it
 * (train_preset.c), and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "cli/train.h"

static const struct verb *train_verb(void)
{
    int i = 0;
    while (strcmp(verbs[i]->name, "train") != 0)
        i++;
    return verbs[i];
}

/* Options that are not given yet.  The task stays as it is: a bare name brings the arguments
 * of its preset along in every run. */
static int take_new(const struct args *a, const struct args *line, json_t *options)
{
    int code = EXIT_OK;

    for (int i = 0; i < line->n_given && !code; i++)
        if (!json_object_get(options, line->given[i].option->name))
            code = compare_set_option(a, options, &line->given[i]);
    return code;
}

static int complete(const struct args *a, const struct args *given, json_t *options)
{
    struct train_line line;
    struct args       whole;
    int               code = train_line_make(given, &line);

    if (!code) {
        code = args_parse(given->verb, line.n, line.argv, &whole);
        if (!code) code = take_new(a, &whole, options);
        args_free(&whole);
    }
    train_line_free(&line);
    return code;
}

int compare_take_preset(const struct args *a, json_t *options)
{
    json_t      *words = json_array(), *value;
    const char  *name;
    struct args  given;
    const size_t n = 2 * json_object_size(options);
    char       **argv = need(n + 1, sizeof *argv);
    int          argc = 0;

    json_object_foreach(options, name, value)
    {
        const char *text = json_string_value(value);
        char       *word =
            text ? compare_text("--%s=%s", name, text) : compare_text("--%s", name);
        json_array_append_new(words, json_string(word));
        free(word);
    }
    for (; argc < (int)json_array_size(words); argc++)
        argv[argc] = (char *)json_string_value(json_array_get(words, (size_t)argc));
    int code = args_parse(train_verb(), argc, argv, &given);
    given.quiet = true; /* the table says what the preset has set */
    if (!code) code = complete(a, &given, options);
    args_free(&given);
    free(argv);
    json_decref(words);
    return code;
}
