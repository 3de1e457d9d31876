/* generate.c -- foci generate DIR: text that a language model goes on with. */
#include <stdlib.h>
#include <string.h>

#include "cli/train.h"

static const struct option options[] = {
    { .name = "prompt",
      .arg = "TEXT",
      .help = "what to go on with (default the beginning of a text)",
      .kind = KIND_TEXT },
    { .name = "tokens",
      .arg = "N",
      .help = "to write (default 200)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = MOST_WHOLE },
    { .name = "temperature",
      .arg = "X",
      .help = "0 takes the likeliest (default 0.8)",
      .kind = KIND_REAL,
      .max = 100 },
    { .name = "top-k",
      .arg = "N",
      .help = "draw among the N likeliest (default all)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 24 },
    { .name = "top-p",
      .arg = "X",
      .help = "draw among the likeliest that have this share (default all)",
      .kind = KIND_REAL,
      .max = 1 },
    { .name = "seed",
      .arg = "N",
      .help = "of drawing (default 1)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    OPTION_THREADS,
    { .name = NULL },
};

struct writing {
    const struct args    *a;
    const foci_tokenizer *tokenizer;
    foci_decoder          decoder;
    char                 *text; /* all of it, for JSON */
    size_t                bytes, cap;
    int64_t               tokens;
};

static void keep(struct writing *w, const char *piece, size_t n)
{
    if (w->bytes + n + 1 > w->cap) {
        char *more = need(2 * (w->cap + n + 1), 1);
        if (w->bytes) memcpy(more, w->text, w->bytes);
        free(w->text);
        w->text = more;
        w->cap = 2 * (w->cap + n + 1);
    }
    memcpy(w->text + w->bytes, piece, n);
    w->bytes += n;
}

/* Each piece is shown at once. */
static int show(void *user, int32_t token)
{
    struct writing *w = user;
    char            piece[4096];
    int64_t         n = 0;

    w->tokens++;
    if (foci_decode(w->tokenizer, &w->decoder, &token, 1, FOCI_DECODE_REPLACE, piece,
                    sizeof piece, &n) ||
        n > (int64_t)sizeof piece)
        return 0;
    if (w->a->json) {
        keep(w, piece, (size_t)n);
        return 0;
    }
    fwrite(piece, 1, (size_t)n, stdout);
    return fflush(stdout) != 0;
}

static int encode_prompt(const struct args *a, foci_ctx *ctx, foci_tokenizer *tokenizer,
                         int32_t **ids, int64_t *n)
{
    const char       *prompt = opt_text(a, "prompt");
    const int32_t     bos = foci_tokenizer_special(tokenizer, FOCI_TOKEN_BOS);
    const foci_string text = { prompt ? prompt : "\n",
                               prompt ? (int64_t)strlen(prompt) : 1 };
    foci_encoder *encoder = NULL;
    int64_t       offsets[2] = { 0, 0 };

    if (foci_encoder_create(tokenizer, &encoder))
        return failure(a, "%s", foci_errmsg(ctx));
    const int64_t cap = foci_encoder_most(encoder, &text, 1);
    *ids = need((size_t)cap + 1, sizeof **ids);
    const foci_status status = foci_encode(encoder, &text, 1, 0, *ids, cap, offsets);
    foci_encoder_free(encoder);
    *n = offsets[1];
    if (!status && !*n && bos >= 0) (*ids)[(*n)++] = bos;
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

static int write_text(const struct args *a, foci_ctx *ctx, foci_model *model,
                      foci_tokenizer *tokenizer)
{
    const foci_sample_options o = {
        FOCI_SIZED(foci_sample_options),
        .temperature = opt_real(a, "temperature", 0.8),
        .top_k = opt_int(a, "top-k", 0),
        .top_p = opt_real(a, "top-p", 0),
        .seed = (uint64_t)opt_int(a, "seed", 1),
    };
    struct writing w = { .a = a, .tokenizer = tokenizer };
    int32_t       *ids = NULL;
    int64_t        n = 0;

    int code = encode_prompt(a, ctx, tokenizer, &ids, &n);
    if (!code && !a->json && opt_text(a, "prompt"))
        fputs(opt_text(a, "prompt"), stdout);
    const double start = seconds();
    if (!code) {
        const foci_status status =
            foci_generate(model, ids, n, opt_int(a, "tokens", 200), &o, show, &w);
        if (status) code = library_error(a, ctx, status, NULL);
    }
    const double taken = seconds() - start;
    free(ids);
    if (!code && a->json)
        code = print_json(a, json_pack("{s:s%, s:I, s:f}", "text", w.text ? w.text : "",
                                       w.bytes, "tokens", (json_int_t)w.tokens,
                                       "seconds", taken));
    else if (!code)
        putchar('\n');
    free(w.text);
    return code;
}

static int run(const struct args *a)
{
    foci_model     *model = NULL;
    foci_tokenizer *tokenizer = NULL;
    foci_ctx       *ctx = open_ctx(a, (int)opt_int(a, "threads", 0));

    if (!ctx) return EXIT_FAILED;
    int code = model_open(a, ctx, &model, &tokenizer);
    if (!code && !tokenizer)
        code = failure(a, "%s has no tokenizer: it was trained on a generator",
                       a->words[0]);
    if (!code) code = write_text(a, ctx, model, tokenizer);
    foci_model_free(model);
    foci_tokenizer_free(tokenizer);
    foci_ctx_free(ctx);
    return code;
}

static const char *const examples[] = {
    "foci generate foci-lm --prompt \"It is a truth\"",
    "foci generate foci-lm --prompt \"She\" --tokens 500 --temperature 0.7 --top-p 0.9",
    NULL,
};

const struct verb verb_generate = {
    .name = "generate",
    .run = run,
    .summary = "text that a trained language model goes on with",
    .usage = "DIR",
    .min_words = 1,
    .max_words = 1,
    .options = options,
    .examples = examples,
};
