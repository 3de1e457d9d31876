/* generate.c -- a trained language model inside another program.
 *
 *     foci train lm --out foci-lm
 *     cc generate.c -o generate $(pkg-config --cflags --libs foci)
 *     ./generate foci-lm "It is a truth"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foci/text.h>
#include <foci/train.h>

enum { TOKENS = 300 };

struct writing {
    foci_tokenizer *tokenizer;
    foci_decoder    decoder; /* bytes of a character that is not complete yet */
};

/* Each token as soon as it is there; not 0 would stop. */
static int show(void *user, int32_t token)
{
    struct writing *w = user;
    char            text[256];
    int64_t         n = 0;

    if (!foci_decode(w->tokenizer, &w->decoder, &token, 1, FOCI_DECODE_REPLACE, text,
                     sizeof text, &n) &&
        n <= (int64_t)sizeof text)
        fwrite(text, 1, (size_t)n, stdout);
    return fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    const char         *folder = argc > 1 ? argv[1] : "foci-lm";
    const char         *prompt = argc > 2 ? argv[2] : "It is a truth";
    const foci_string   text = { prompt, (int64_t)strlen(prompt) };
    foci_sample_options options = { FOCI_SIZED(foci_sample_options), .temperature = 0.8,
                                    .seed = 1 };
    struct writing      w = { .decoder = { FOCI_SIZED(foci_decoder) } };
    foci_ctx           *ctx = NULL;
    foci_model         *model = NULL;
    foci_encoder       *encoder = NULL;
    int64_t             offsets[2] = { 0, 0 };

    if (foci_ctx_create(NULL, &ctx) ||
        foci_model_load(ctx, folder, &model, &w.tokenizer) ||
        foci_encoder_create(w.tokenizer, &encoder))
        return fprintf(stderr, "%s\n", foci_errmsg(NULL));

    const int64_t most = foci_encoder_most(encoder, &text, 1);
    int32_t      *ids = malloc((size_t)most * sizeof *ids);
    if (!ids || foci_encode(encoder, &text, 1, 0, ids, most, offsets))
        return fprintf(stderr, "%s\n", foci_errmsg(NULL));

    printf("%s", prompt);
    if (foci_generate(model, ids, offsets[1], TOKENS, &options, show, &w))
        return fprintf(stderr, "%s\n", foci_errmsg(NULL));
    printf("\n");

    free(ids);
    foci_encoder_free(encoder);
    foci_model_free(model);
    foci_tokenizer_free(w.tokenizer);
    foci_ctx_free(ctx);
    return 0;
}
