/* report.c -- foci report DIR...: what folders of results have, as tables and as a page. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report.h"

static const struct option options[] = {
    { .name = "out",
      .arg = "FILE",
      .help = "write a page, one file of HTML with figures, tables and maps of heads",
      .kind = KIND_TEXT },
    { .name = "plots",
      .arg = "DIR",
      .help = "write each figure as .svg, .png and .csv",
      .kind = KIND_TEXT },
    { .name = "markdown", .help = "print tables in Markdown" },
    { .name = NULL },
};

/*
 * Reading
 */

/* Two definitions of one comparison: all but arms, seeds and the first arm are the same. */
static bool is_same(const json_t *a, const json_t *b)
{
    static const char *const own[] = { "arms", "seeds", "baseline", "version" };
    json_t                  *x = json_copy((json_t *)a), *y = json_copy((json_t *)b);

    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        json_object_del(x, own[i]);
        json_object_del(y, own[i]);
    }
    const bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static struct report_comparison *add_comparison(struct report *r, json_t *definition,
                                                const char *folder)
{
    r->comparisons = need_one_more(r->comparisons, r->n_comparisons,
                                   &r->cap_comparisons, sizeof *r->comparisons);
    struct report_comparison *k = &r->comparisons[r->n_comparisons++];
    *k = (struct report_comparison){ .c = { .a = r->a,
                                            .ctx = r->ctx,
                                            .out = folder,
                                            .parts = 1,
                                            .definition = definition,
                                            .results = results_create() },
                                     .folders = json_array() };
    return k;
}

/* The folder joins the comparison that it is a part of, or begins one. */
static int take_comparison(struct report *r, json_t *definition, const char *folder)
{
    struct report_comparison *k = NULL;
    bool                      changed = false;
    int                       code = EXIT_OK;

    for (size_t i = 0; i < r->n_comparisons && !k; i++)
        if (is_same(r->comparisons[i].c.definition, definition)) k = &r->comparisons[i];
    if (k) {
        json_object_del(definition, "baseline"); /* the first folder's counts */
        code = definition_merge(r->a, k->c.definition, definition, k->c.out, &changed);
        json_decref(definition);
    } else {
        k = add_comparison(r, definition, folder);
    }
    json_array_append_new(k->folders, compare_string(folder));
    const char *version = k->version;
    if (!code) code = results_load(r->a, k->c.results, folder, NULL, &version);
    k->version = (char *)version;
    return code;
}

static int take_folder(struct report *r, const char *folder)
{
    struct stat st;
    if (stat(folder, &st)) return failure(r->a, "%s: %s", folder, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return failure(r->a, "%s is a file; a report is made of folders", folder);
    const bool lengths = run_has_file(folder, "lengths.jsonl");
    const bool model = run_has_file(folder, "model.safetensors");
    int        code;
    json_t    *definition = definition_load(r->a, folder, &code);

    if (definition) code = take_comparison(r, definition, folder);
    if (!code && lengths) code = report_read_lengths(r, folder);
    if (!code && model) code = report_read_model(r, folder);
    if (!code && !definition && !lengths && !model)
        code = failure(r->a,
                       "%s has no results: neither a compare.json of foci compare, nor "
                       "lengths.jsonl of foci compare --length, nor a trained model",
                       folder);
    return code;
}

static int judge_all(struct report *r)
{
    for (size_t i = 0; i < r->n_comparisons; i++) {
        struct report_comparison *k = &r->comparisons[i];
        if (!k->version) return failure(r->a, "%s has no results yet", k->c.out);
        k->c.arms = arms_expand(r->a, r->ctx, k->c.definition);
        k->summary = k->c.arms ? judge(&k->c) : NULL;
        if (!k->summary) return EXIT_FAILED;
    }
    return EXIT_OK;
}

/*
 * Results
 */

int report_number(struct report *r, const char *name)
{
    const json_t *number = json_object_get(r->numbers, name);
    const size_t  n = json_object_size(r->numbers);

    if (number) return (int)json_integer_value(number);
    json_object_set_new(r->numbers, name, json_integer((json_int_t)n));
    return (int)n;
}

static int print_json_of(struct report *r)
{
    if (r->n_comparisons == 1 && !json_array_size(r->lengths) &&
        !json_array_size(r->models))
        return print_json(r->a, json_incref(r->comparisons[0].summary));
    json_t *comparisons = json_array();
    for (size_t i = 0; i < r->n_comparisons; i++)
        json_array_append(comparisons, r->comparisons[i].summary);
    json_t *all = json_pack("{s:o, s:O, s:O}", "comparisons", comparisons, "lengths",
                            r->lengths, "models", r->models);
    return print_json(r->a, all);
}

static void print_model(const json_t *model)
{
    const json_t *costs = json_object_get(model, "costs");
    const json_t *perplexity = json_object_get(costs, "perplexity");

    printf("%s: a model", json_string_value(json_object_get(model, "folder")));
    if (perplexity)
        printf(", perplexity %.3f on validation", json_number_value(perplexity));
    printf(", %zu steps in its log\n", json_array_size(json_object_get(model, "log")));
}

static int print_all(struct report *r)
{
    bool    any = false;
    int     code = EXIT_OK;
    size_t  i;
    json_t *one;

    if (r->a->json) return print_json_of(r);
    for (i = 0; !code && i < r->n_comparisons; i++, any = true) {
        if (any) printf("\n");
        code = table_of_comparison(r->a, json_incref(r->comparisons[i].summary),
                                   opt_flag(r->a, "markdown"));
    }
    json_array_foreach(r->lengths, i, one)
    {
        if (any) printf("\n");
        any = true;
        report_print_lengths(one);
    }
    json_array_foreach(r->models, i, one)
    {
        if (any) printf("\n");
        any = true;
        print_model(one);
    }
    return code;
}

/*
 * The report of one comparison that was just made: its JSON is the caller's.
 */

static void init(struct report *r, const struct args *a, foci_ctx *ctx)
{
    *r = (struct report){ .a = a,
                          .ctx = ctx,
                          .lengths = json_array(),
                          .models = json_array(),
                          .numbers = json_object(),
                          .heads = json_array() };
}

static void let_go(struct report *r)
{
    json_decref(r->lengths);
    json_decref(r->models);
    json_decref(r->numbers);
    json_decref(r->heads);
    markup_free(&r->page);
}

int report_of_comparison(const struct comparison *c, const json_t *summary)
{
    struct report            r;
    struct report_comparison k = { .c = *c,
                                   .folders = json_array(),
                                   .summary = (json_t *)summary,
                                   .version = (char *)foci_version() };
    char                    *path = compare_text("%s/report.html", c->out);

    init(&r, c->a, c->ctx);
    json_array_append_new(k.folders, compare_string(c->out));
    r.comparisons = &k;
    r.n_comparisons = 1;
    const int code = report_write(&r, path);
    fflush(stdout); /* the table comes first, and its place last */
    if (!code) note(c->a, "the report is %s", path);
    json_decref(k.folders);
    let_go(&r);
    free(path);
    return code;
}

int report_of_lengths(const struct args *a, foci_ctx *ctx, const char *folder)
{
    struct report r;
    char         *path = compare_text("%s/report.html", folder);

    init(&r, a, ctx);
    int code = report_read_lengths(&r, folder);
    if (!code) code = report_write(&r, path);
    fflush(stdout);
    if (!code) note(a, "the report is %s", path);
    let_go(&r);
    free(path);
    return code;
}

/*
 * The verb
 */

static void free_comparisons(struct report *r)
{
    for (size_t i = 0; i < r->n_comparisons; i++) {
        struct report_comparison *k = &r->comparisons[i];
        json_decref(k->c.definition);
        json_decref(k->c.arms);
        json_decref(k->c.results);
        json_decref(k->folders);
        json_decref(k->summary);
        free(k->version);
    }
    free(r->comparisons);
}

static int report_all(struct report *r)
{
    const char *out = opt_text(r->a, "out");
    int         code = out ? check_output(r->a, out) : EXIT_OK;

    for (int i = 0; !code && i < r->a->n_words; i++)
        code = take_folder(r, r->a->words[i]);
    if (!code) code = judge_all(r);
    if (!code && (out || r->plots)) code = report_write(r, out);
    if (!code) code = print_all(r);
    if (!code && out) note(r->a, "the page is %s", out);
    return code;
}

static int run(const struct args *a)
{
    struct report r;
    foci_ctx     *ctx = open_ctx(a, 1);

    if (!ctx) return EXIT_FAILED;
    init(&r, a, ctx);
    r.plots = opt_text(a, "plots");
    const int code = report_all(&r);
    free_comparisons(&r);
    let_go(&r);
    foci_ctx_free(ctx);
    return code;
}

static const char *const examples[] = {
    "foci report patterns",
    "foci report patterns --out patterns.html --plots figures",
    "foci report node1/patterns node2/patterns --markdown",
    "foci report recall lengths foci-lm --out all.html",
    NULL,
};

const struct verb verb_report = {
    .name = "report",
    .run = run,
    .summary = "tables, and a page with figures, of comparisons and models",
    .usage = "DIR...",
    .min_words = 1,
    .max_words = -1,
    .options = options,
    .examples = examples,
    .notes =
        "A folder is one of foci compare, of foci compare --length, or of a model.  "
        "Those "
        "of one foci compare whose runs were spread by --part, or of several with the "
        "same options and other arms, are joined; others have a section each.  The "
        "page "
        "is one file: figures, tables, maps of heads, every command; it asks for "
        "nothing "
        "from the network.  foci compare writes DIR/report.html by itself.",
};
