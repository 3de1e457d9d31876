/* report.c -- foci report DIR...: the table of a comparison, of all its folders together. */
#include <stdlib.h>

#include "cli/comparison.h"

static const struct option options[] = {
    { .name = "markdown", .help = "print tables in Markdown" },
    { .name = NULL },
};

/* The definition of one folder joins that of those before it. */
static int join(struct comparison *c, const char *folder)
{
    bool    changed = false;
    int     code;
    json_t *d = definition_load(c->a, folder, &code);

    if (!d) return code ? code : failure(c->a, "%s has no compare.json", folder);
    if (!c->definition) {
        c->definition = d;
        return EXIT_OK;
    }
    json_object_del(d, "baseline"); /* the first folder's counts */
    code = definition_merge(c->a, c->definition, d, c->a->words[0], &changed);
    json_decref(d);
    return code;
}

static int print_all(struct comparison *c)
{
    const struct args *a = c->a;
    const char        *version = NULL;
    int                code = EXIT_OK;

    for (int i = 0; !code && i < a->n_words; i++) {
        code = join(c, a->words[i]);
        if (!code) code = results_load(a, c->results, a->words[i], NULL, &version);
    }
    if (!code && !version) code = failure(a, "%s has no results yet", a->words[0]);
    free((char *)version);
    if (code) return code;
    c->arms = arms_expand(a, c->ctx, c->definition);
    json_t *summary = c->arms ? judge(c) : NULL;
    return summary ? table_of_comparison(a, summary, opt_flag(a, "markdown"))
                   : EXIT_FAILED;
}

static int run(const struct args *a)
{
    struct comparison c = { .a = a, .parts = 1, .results = results_create() };

    c.ctx = open_ctx(a, 1);
    const int code = c.ctx ? print_all(&c) : EXIT_FAILED;
    json_decref(c.definition);
    json_decref(c.arms);
    json_decref(c.results);
    foci_ctx_free(c.ctx);
    return code;
}

static const char *const examples[] = {
    "foci report patterns",
    "foci report node1/patterns node2/patterns --markdown",
    NULL,
};

const struct verb verb_report = {
    .name = "report",
    .run = run,
    .summary = "the table of a comparison, joined from its folders",
    .usage = "DIR...",
    .min_words = 1,
    .max_words = -1,
    .options = options,
    .examples = examples,
    .notes =
        "The folders are those of one foci compare whose runs were spread by --part, "
        "or of several with the same options and other arms.",
};
