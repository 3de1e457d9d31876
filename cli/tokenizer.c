/* tokenizer.c -- foci tokenizer: train, show and try tokenizers. */
#include <stdlib.h>
#include <string.h>

#include "cli/tokenizer.h"

/* To be freed. */
static char *text_of(const foci_tokenizer *t, int32_t id, int64_t *bytes)
{
    const unsigned flags = FOCI_DECODE_SPECIALS | FOCI_DECODE_END | FOCI_DECODE_REPLACE;
    foci_decoder   d = { FOCI_SIZED(foci_decoder) }, again = d;

    foci_decode(t, &d, &id, 1, flags, NULL, 0, bytes);
    char *text = need((size_t)*bytes, 1);
    foci_decode(t, &again, &id, 1, flags, text, *bytes, bytes);
    return text;
}

json_t *token_json(const foci_tokenizer *t, int32_t id)
{
    int64_t bytes = 0;
    char   *text = text_of(t, id, &bytes);
    json_t *value = json_stringn(text, (size_t)bytes);

    free(text);
    return value;
}

/* Control characters would do to the terminal what they mean. */
void token_print(const foci_tokenizer *t, int32_t id)
{
    int64_t bytes = 0;
    char   *text = text_of(t, id, &bytes);

    for (int64_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    free(text);
}

/*
 * show
 */

static const char *const special_names[FOCI_SPECIAL_COUNT] = { "pad", "bos", "eos",
                                                               "unk", "mask" };

static json_t *json_tokens(const foci_tokenizer *t)
{
    json_t *list = json_array();
    int64_t bytes;

    for (int32_t id = 0; id < foci_tokenizer_size(t); id++)
        json_array_append_new(list, foci_tokenizer_token(t, id, &bytes)
                                        ? token_json(t, id)
                                        : json_null());
    return list;
}

static int show_json(const struct args *a, const foci_tokenizer *t,
                     const foci_tokenizer_info *info, const char *fingerprint)
{
    json_t *special = json_object();

    for (int s = 0; s < FOCI_SPECIAL_COUNT; s++) {
        const int32_t id = foci_tokenizer_special(t, (foci_special)s);
        if (id >= 0) json_object_set_new(special, special_names[s], json_integer(id));
    }
    json_t *o =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:s}", "kind", info->kind, "tokens",
                  (json_int_t)info->tokens, "merges", (json_int_t)info->merges, "added",
                  (json_int_t)info->added, "longest", (json_int_t)info->longest,
                  "special", special, "fingerprint", fingerprint);
    if (opt_flag(a, "tokens")) json_object_set_new(o, "list", json_tokens(t));
    return print_json(a, o);
}

static void print_tokens(const foci_tokenizer *t)
{
    int64_t bytes;

    putchar('\n');
    for (int32_t id = 0; id < foci_tokenizer_size(t); id++) {
        if (!foci_tokenizer_token(t, id, &bytes)) continue;
        printf("%7d  ", (int)id);
        token_print(t, id);
        putchar('\n');
    }
}

int tokenizer_show(const struct args *a, const foci_tokenizer *t)
{
    foci_tokenizer_info info = { FOCI_SIZED(foci_tokenizer_info) };
    char                fingerprint[24];

    (void)foci_tokenizer_get_info(t, &info); /* of a struct of this version */
    snprintf(fingerprint, sizeof fingerprint, "%016llx",
             (unsigned long long)info.fingerprint);
    if (a->json) return show_json(a, t, &info, fingerprint);

    struct output_table *table = table_create("ll");
    table_pair(table, "kind", "%s", info.kind);
    table_pair(table, "tokens", "%lld", (long long)info.tokens);
    if (info.merges) table_pair(table, "merges", "%lld", (long long)info.merges);
    for (int s = 0; s < FOCI_SPECIAL_COUNT; s++) {
        const int32_t id = foci_tokenizer_special(t, (foci_special)s);
        if (id < 0) continue;
        int64_t     bytes;
        const char *text = foci_tokenizer_token(t, id, &bytes);
        table_pair(table, special_names[s], "%d  %.*s", (int)id, (int)bytes, text);
    }
    table_pair(table, "added", "%lld", (long long)info.added);
    table_pair(table, "longest", "%lld bytes", (long long)info.longest);
    table_pair(table, "fingerprint", "%s", fingerprint);
    table_print(table, stdout);
    table_free(table);
    if (opt_flag(a, "tokens")) print_tokens(t);
    return EXIT_OK;
}

/*
 * The verb
 */

typedef int with_fn(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t);

static int show(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t)
{
    (void)ctx;
    return tokenizer_show(a, t);
}

static int with_tokenizer(const struct args *a, foci_ctx *ctx, with_fn *with)
{
    foci_tokenizer   *t;
    const foci_status status = foci_tokenizer_load(ctx, a->words[1], &t);

    if (status) return failure(a, "%s", foci_errmsg(ctx));
    const int code = with(a, ctx, t);
    foci_tokenizer_free(t);
    return code;
}

/* What each action takes; options of another one would be ignored. */
static const struct {
    const char *name, *options; /* "|data|out|" */
    with_fn    *with;           /* NULL: train */
} actions[] = {
    { "train", "|data|out|min-count|threads|", NULL },
    { "show", "|tokens|", show },
    { "encode", "|text|data|plain|tokens|words|threads|", tokenizer_encode },
    { "decode", "|ids|data|special|", tokenizer_decode },
};
enum { N_ACTIONS = sizeof actions / sizeof *actions };

static int check_options(const struct args *a, const char *action, const char *options)
{
    char name[32];

    for (int i = 0; i < a->n_given; i++) {
        snprintf(name, sizeof name, "|%s|", a->given[i].option->name);
        if (!strstr(options, name))
            return usage_error(a, "--%s is not for %s", a->given[i].option->name,
                               action);
    }
    return EXIT_OK;
}

static int find_action(const struct args *a, int *action)
{
    char         hint[64];
    struct guess n = { .word = a->words[0] };

    for (int i = 0; i < N_ACTIONS; i++) {
        *action = i;
        if (strcmp(a->words[0], actions[i].name) == 0)
            return check_options(a, actions[i].name, actions[i].options);
        guess_offer(&n, actions[i].name);
    }
    return usage_error(a, "no action '%s'%s; accepted are train, show, encode, decode",
                       a->words[0], guess_hint(&n, hint, sizeof hint));
}

static int run(const struct args *a)
{
    int action = 0, code = find_action(a, &action);

    if (code) return code;
    foci_ctx *ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!ctx) return EXIT_FAILED;
    code = actions[action].with ? with_tokenizer(a, ctx, actions[action].with)
                                : tokenizer_train(a, ctx, a->words[1]);
    foci_ctx_free(ctx);
    return code;
}

static const struct option options[] = {
    { .name = "data",
      .arg = "FILE",
      .kind = KIND_TEXT,
      .many = true,
      .help = "text to train on, or lines to encode or decode, plain or gz; - for "
              "standard input" },
    { .name = "out",
      .arg = "FILE",
      .kind = KIND_TEXT,
      .help = "train: write this .json file, or tokenizer.json in this directory" },
    { .name = "min-count",
      .arg = "N",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE,
      .help = "train: leave out what occurs less often (default 1; pairs of bpe: 2)" },
    { .name = "text",
      .arg = "TEXT",
      .kind = KIND_TEXT,
      .many = true,
      .help = "encode: this text, instead of the lines of files" },
    { .name = "ids",
      .arg = "IDS",
      .kind = KIND_TEXT,
      .many = true,
      .help = "decode: these ids, separated by blanks" },
    { .name = "plain", .help = "encode: names of special tokens are ordinary text" },
    { .name = "special", .help = "decode: print special tokens too" },
    { .name = "tokens", .help = "show, encode: print the texts of tokens" },
    { .name = "words", .help = "encode: print the index of each token's word" },
    OPTION_THREADS,
    { 0 },
};

static const char *const examples[] = {
    "foci tokenizer train bpe:8000 --data train.txt.gz --out model",
    "foci tokenizer show model",
    "foci tokenizer encode model --text 'It is a truth' --tokens",
    "foci tokenizer decode model --ids '262 271 266'",
    NULL,
};

const struct verb verb_tokenizer = {
    .name = "tokenizer",
    .run = run,
    .summary = "train and inspect tokenizers: bytes, characters, words, BPE",
    .usage = "train|show|encode|decode KIND|FILE",
    .min_words = 2,
    .max_words = 2,
    .options = options,
    .examples = examples,
    .notes = "train takes a KIND: bytes, chars, words, or bpe:N with N tokens in all; "
             "chars:N\n"
             "and words:N keep the most frequent ones.  The others take a FILE, a\n"
             "tokenizer.json or the directory it is in, as the tokenizers library of "
             "Hugging\n"
             "Face reads and writes it.\n"
             "\n"
             "Encoding prints a line of ids for each line of text, without its end; "
             "decoding\n"
             "prints a line of text for each line of ids.  Both read standard input if "
             "they\n"
             "are given nothing else.",
};
