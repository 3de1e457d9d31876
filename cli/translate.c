/* translate.c -- foci translate DIR [FILE]: lines through a trained translator. */
#include <stdlib.h>

#include "cli/translations.h"

static const struct option options[] = {
    OPTIONS_BEAM,
    OPTION_THREADS,
    { .name = NULL },
};

struct printing {
    const struct args *a;
    json_t            *all;
};

static void print_line(void *user, int64_t line, const char *text, int64_t bytes,
                       double score)
{
    struct printing *p = user;

    (void)line;
    if (p->a->json)
        json_array_append_new(p->all, json_pack("{s:s%, s:f}", "text", text,
                                                (size_t)bytes, "score", score));
    else
        printf("%.*s\n", (int)bytes, text);
}

static int run_on(const struct args *a, foci_ctx *ctx)
{
    foci_model       *model = NULL;
    foci_tokenizer   *tokenizer = NULL;
    struct text_lines lines = { 0 };
    struct printing   p = { a, json_array() };

    int code = model_open(a, ctx, &model, &tokenizer);
    if (!code && !tokenizer)
        code = failure(a, "%s has no tokenizer: it was trained on a generator",
                       a->words[0]);
    if (!code) code = text_lines_read(a, a->n_words > 1 ? a->words[1] : "-", &lines);
    if (!code)
        code = translations_run(a, ctx, model, tokenizer, lines.line, lines.n,
                                print_line, &p);
    text_lines_free(&lines);
    foci_model_free(model);
    foci_tokenizer_free(tokenizer);
    if (!code && a->json) return print_json(a, p.all);
    json_decref(p.all);
    return code;
}

static int run(const struct args *a)
{
    foci_ctx *ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!ctx) return EXIT_FAILED;
    const int code = run_on(a, ctx);
    foci_ctx_free(ctx);
    return code;
}

static const char *const examples[] = {
    "foci translate de-en text.de --beam 4",
    "echo \"Guten Morgen\" | foci translate de-en",
    NULL,
};

const struct verb verb_translate = {
    .name = "translate",
    .run = run,
    .summary = "translate lines: greedy or by beam search",
    .usage = "DIR [FILE]",
    .min_words = 1,
    .max_words = 2,
    .options = options,
    .examples = examples,
};
