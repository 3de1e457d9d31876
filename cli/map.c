/* map.c -- foci map: which keys each query sees and how strongly, as a picture.
 *
 * Weights are those of a spec on a problem, of a spec on queries and keys from files, of a
 * file, or those of the heads of a trained model on a text.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"
#include "cli/picture.h"
#include "cli/reading.h"

/*
 * What is to be drawn
 */

enum form { FORM_PATTERN, FORM_TENSORS, FORM_FILE, FORM_MODEL, FORMS };

/* Options that only some forms have a use for. */
static const struct {
    const char *name;
    unsigned    forms;
} of_forms[] = {
    { "pattern", 1U << FORM_PATTERN },
    { "q", 1U << FORM_TENSORS },
    { "k", 1U << FORM_TENSORS },
    { "weights", 1U << FORM_FILE },
    { "text", 1U << FORM_MODEL },
    { "prompt", 1U << FORM_MODEL },
    { "task", 1U << FORM_MODEL },
    { "example", 1U << FORM_MODEL },
    { "x", 1U << FORM_TENSORS },
    { "causal", 1U << FORM_TENSORS },
    { "tokens", 1U << FORM_MODEL },
    { "layer", 1U << FORM_MODEL },
    { "data", 1U << FORM_PATTERN },
    { "seed", 1U << FORM_PATTERN | 1U << FORM_TENSORS },
    { "param", 1U << FORM_PATTERN | 1U << FORM_TENSORS },
    { "minus", 1U << FORM_PATTERN | 1U << FORM_TENSORS | 1U << FORM_FILE },
};
enum { N_OF_FORMS = sizeof of_forms / sizeof *of_forms };

static const char *const usages[FORMS] = {
    [FORM_PATTERN] = "--pattern SPEC PROBLEM",
    [FORM_TENSORS] = "SPEC --q FILE --k FILE",
    [FORM_FILE] = "--weights FILE",
    [FORM_MODEL] = "DIR --text FILE",
};

static bool is_given(const struct args *a, const char *name)
{
    for (int i = 0; i < a->n_given; i++)
        if (!strcmp(a->given[i].option->name, name)) return true;
    return false;
}

/* The form of which the first of the options above is given; FORMS: none is. */
static enum form form_of(const struct args *a, const char **option)
{
    for (int i = 0; i < N_OF_FORMS; i++)
        for (int f = 0; f < FORMS && is_given(a, of_forms[i].name); f++)
            if (of_forms[i].forms == 1U << f) {
                *option = of_forms[i].name;
                return (enum form)f;
            }
    return FORMS;
}

static int check_form(const struct args *a, enum form form, const char *option)
{
    const char *const usage = form < FORMS ? usages[form] : "";

    if (form == FORMS)
        return usage_error(a,
                           "what to draw is missing; usage: foci map %s, foci map %s, "
                           "foci map %s, or foci map %s",
                           usages[0], usages[1], usages[2], usages[3]);
    for (int i = 0; i < N_OF_FORMS; i++)
        if (is_given(a, of_forms[i].name) && !(of_forms[i].forms & 1U << form))
            return usage_error(a, "--%s and --%s do not go together; usage: foci map %s",
                               of_forms[i].name, option, usage);
    if ((a->n_words > 0) != (form != FORM_FILE))
        return usage_error(a, "%s; usage: foci map %s",
                           a->n_words ? "it takes no argument" : "needs an argument",
                           usage);
    if (form == FORM_TENSORS && (!opt_text(a, "q") || !opt_text(a, "k")))
        return usage_error(a, "--%s is missing; usage: foci map %s",
                           opt_text(a, "q") ? "k" : "q", usage);
    return EXIT_OK;
}

static int check_options(const struct args *a, enum form *form)
{
    const char *out = opt_text(a, "out"), *option = "";

    if (out && !picture_name(out))
        return usage_error(
            a, "--out is '%s'; it takes a name that ends in .svg or .png", out);
    *form = form_of(a, &option);
    const int code = check_form(a, *form, option);
    return code ? code : map_check_list(a, "head", 0);
}

/*
 * The verb
 */

static int draw(const struct map *m)
{
    const char *out = opt_text(m->a, "out");

    if (!out) return EXIT_OK;
    if (m->n_panels > MAP_MOST_HEADS)
        return usage_error(
            m->a,
            "%s has %d heads that differ, and a picture takes %d: choose "
            "some by --head%s",
            m->title, m->n_panels, MAP_MOST_HEADS, m->reading ? " and --layer" : "");
    hold_signals();
    const foci_status status = map_draw(m, out);
    release_signals();
    return status ? library_error(m->a, m->ctx, status, NULL) : EXIT_OK;
}

static int run(const struct args *a)
{
    static int (*const makers[FORMS])(struct map *) = {
        [FORM_PATTERN] = map_spec,
        [FORM_TENSORS] = map_spec,
        [FORM_FILE] = map_file,
        [FORM_MODEL] = map_model,
    };
    struct map m = { .a = a };
    enum form  form = FORMS;

    int code = check_options(a, &form);
    if (code || form == FORMS) return code;
    m.ctx = open_ctx(a, 0);
    if (!m.ctx) return EXIT_FAILED;
    code = makers[form](&m);
    if (!code) code = map_make_panels(&m);
    if (!code) code = draw(&m);
    if (!code && a->json)
        code = print_json(a, map_json(&m));
    else if (!code)
        map_print(&m);
    map_free(&m);
    foci_ctx_free(m.ctx);
    return code;
}

static const struct option options[] = {
    { .name = "pattern",
      .arg = "SPEC",
      .help = "a spec whose weights are drawn on a problem",
      .kind = KIND_TEXT },
    { .name = "q",
      .arg = "FILE",
      .help = "queries, N x d or H x N x d, that a spec is drawn on",
      .kind = KIND_TEXT },
    { .name = "k", .arg = "FILE", .help = "keys, likewise", .kind = KIND_TEXT },
    { .name = "x",
      .arg = "FILE",
      .help = "hidden states, N x d, where the spec reads them (default random)",
      .kind = KIND_TEXT },
    { .name = "causal", .help = "with --q: queries see no keys behind them" },
    { .name = "weights",
      .arg = "FILE",
      .help = "weights to draw, N x N or H x N x N",
      .kind = KIND_TEXT },
    OPTIONS_READING,
    { .name = "example",
      .arg = "N",
      .help = "of a model of a generator: the test example that it reads (default 0)",
      .kind = KIND_WHOLE,
      .max = 1 << 20 },
    { .name = "task",
      .arg = "TEXT",
      .help = "the generator of that example (default that of the training)",
      .kind = KIND_TEXT },
    { .name = "minus",
      .arg = "SPEC",
      .help = "draw what differs from this spec, or with --weights from this file",
      .kind = KIND_TEXT },
    { .name = "layer",
      .arg = "LIST",
      .help = "of a model: numbers, as 0,2-3, or a part of the name, as cross (default "
              "all)",
      .kind = KIND_TEXT },
    { .name = "head",
      .arg = "LIST",
      .help = "numbers, as 0,2-5 (default all)",
      .kind = KIND_TEXT },
    { .name = "out",
      .arg = "FILE",
      .help = "where the picture goes: a name that ends in .svg or .png",
      .kind = KIND_TEXT },
    { .name = "scale",
      .arg = "KIND",
      .help = "of shades: sqrt (default), linear, log, or row, relative to the row's "
              "largest",
      .kind = KIND_WORD,
      .words = "linear|sqrt|log|row" },
    { .name = "support", .help = "draw which pairs have a weight, not how large it is" },
    { .name = "data",
      .arg = "KIND",
      .help =
          "q and k: alike, or random (default random if that changes who sees whom)",
      .kind = KIND_WORD,
      .words = "alike|random" },
    { .name = "seed",
      .arg = "N",
      .help = "draw random q and k, and all that specs draw, from this (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a parameter, for each head or for all; a list that planning asks for; "
              "words",
      .kind = KIND_TEXT,
      .many = true },
    { 0 },
};

static const char *const examples[] = {
    "foci map --pattern softmax n64d16c --out softmax.svg",
    "foci map --pattern '2*softmax logn + 2*relu2' h4n64d16 --out heads.png",
    "foci map --pattern relu2 --minus softmax n32m48d16 --seed 7 --out apart.svg",
    "foci map \"softmax cap(30)\" --q q.npy --k k.npy --causal --out mine.svg",
    "foci map foci-lm --prompt \"It is a truth\" --out heads.svg",
    "foci map recall --example 3 --layer 1 --out recall.svg",
    "foci map de-en --text line.tsv --layer cross --scale row --out cross.png",
    NULL,
};

const struct verb verb_map = {
    .name = "map",
    .run = run,
    .summary = "a picture of which keys each query sees, and how strongly",
    .usage = "[SPEC|DIR|PROBLEM]",
    .max_words = 1,
    .options = options,
    .examples = examples,
    .notes =
        "PROBLEM is h8n64m64d16c: heads, queries, keys, width, causal; see foci plan "
        "--help.\n"
        "Weights are computed by the written-out formulas, for up to 1024 queries "
        "and keys.  Neighbouring heads with the same weights are drawn once; larger "
        "pictures have cells that are means of several pairs, and say so.  What "
        "estimates softmax is drawn on random data, beside softmax.\n"
        "A model, a folder of foci train, is shown on a text: it reads the first "
        "tokens, "
        "at most its context, and of an attention the number and the name are those of "
        "foci eval --costs.  A model of a generator is shown on an example of it.  A "
        "translator without a target reads its own translation.\n"
        "Without --out the numbers are printed only; --json has tokens and weights "
        "too.",
};
