/* compare_words.c -- the command lines of a run's children. */
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/comparison.h"

json_t *words_create(const char *word, ...)
{
    json_t *list = json_array();
    va_list rest;

    va_start(rest, word);
    for (; word; word = va_arg(rest, const char *))
        json_array_append_new(list, json_string(word));
    va_end(rest);
    return list;
}

void words_add_options(json_t *words, const json_t *options)
{
    const char *name;
    json_t     *value;

    json_object_foreach((json_t *)options, name, value)
    {
        char *dashed = compare_text("--%s", name);
        json_array_append_new(words, json_string(dashed));
        if (json_is_string(value)) json_array_append(words, value);
        free(dashed);
    }
}

void words_add_common(const struct comparison *c, json_t *words)
{
    char   *threads = compare_text("%d", c->threads);
    json_t *more = words_create("--json", "--quiet", "--threads", threads, NULL);

    json_array_extend(words, more);
    json_decref(more);
    free(threads);
}

char *run_folder(const struct comparison *c, const json_t *run)
{
    return compare_text("%s/runs/%s", c->out,
                        json_string_value(json_object_get(run, "id")));
}

json_t *run_train_words(const struct comparison *c, const json_t *run,
                        const char *folder, bool on)
{
    json_t *words;

    if (on) {
        words = words_create("train", "--resume", "--out", folder, NULL);
    } else {
        const char *task = json_string_value(json_object_get(c->definition, "task"));
        char       *log = compare_text("%s/log.jsonl", folder);
        json_t     *out = words_create("--out", folder, "--log", log, NULL);
        words = words_create("train", task, NULL);
        words_add_options(words, json_object_get(run, "options"));
        json_array_extend(words, out);
        json_decref(out);
        free(log);
    }
    words_add_common(c, words);
    return words;
}

static bool is_generated(const struct comparison *c)
{
    return json_object_get(json_object_get(c->definition, "options"), "task") != NULL;
}

json_t *run_eval_words(const struct comparison *c, const char *folder)
{
    json_t *words = words_create("eval", folder, "--split", "valid", NULL);

    if (is_generated(c)) json_array_append_new(words, json_string("--slices"));
    if (is_generated(c)) json_array_append_new(words, json_string("--floors"));
    words_add_common(c, words);
    return words;
}

bool runs_have_test(const struct comparison *c)
{
    const json_t *options = json_object_get(c->definition, "options");

    return json_object_get(c->definition, "test") ||
           (!json_object_get(options, "data") && !json_object_get(options, "source"));
}

json_t *run_test_words(const struct comparison *c, const char *folder)
{
    const json_t *options = json_object_get(c->definition, "options");
    const json_t *test = json_object_get(c->definition, "test");
    char         *outputs = compare_text("%s/test.jsonl", folder);
    json_t       *words = words_create("eval", folder, NULL), *more;

    if (test) {
        json_t                  *some = json_object();
        static const char *const names[] = { "reverse", "patch" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (json_object_get(options, names[i]))
                json_object_set(some, names[i], json_object_get(options, names[i]));
        words_add_options(words, test);
        words_add_options(words, some);
        json_decref(some);
    } else {
        more = words_create("--split", "test", NULL);
        json_array_extend(words, more);
        json_decref(more);
        if (is_generated(c)) json_array_append_new(words, json_string("--slices"));
        if (is_generated(c)) json_array_append_new(words, json_string("--floors"));
    }
    more = words_create("--outputs", outputs, NULL);
    json_array_extend(words, more);
    json_decref(more);
    words_add_common(c, words);
    free(outputs);
    return words;
}

bool run_has_file(const char *folder, const char *name)
{
    char *path = compare_text("%s/%s", folder, name);

    const bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}
