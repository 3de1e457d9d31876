/* tokenizer.h -- what the files of the verb tokenizer share. */
#ifndef CLI_TOKENIZER_H
#define CLI_TOKENIZER_H

#include "cli/cli.h"
#include "foci/text.h"

/* The text of a token for people, what is not UTF-8 as U+FFFD: a JSON string, and on
 * standard output, where control characters are \xNN. */
json_t *token_json(const foci_tokenizer *t, int32_t id);
void    token_print(const foci_tokenizer *t, int32_t id);

/* foci tokenizer train, encode, decode. */
int tokenizer_train(const struct args *a, foci_ctx *ctx, const char *kind);
int tokenizer_encode(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t);
int tokenizer_decode(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t);

/* Print what a tokenizer is. */
int tokenizer_show(const struct args *a, const foci_tokenizer *t);

#endif
