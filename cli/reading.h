/* reading.h -- the text that a trained model is looked at on. */
#ifndef FOCI_CLI_READING_H
#define FOCI_CLI_READING_H

#include "cli/cli.h"
#include "foci/analyse.h"

enum { READING_MOST = 1024 };

#define OPTIONS_READING                                                                \
    { .name = "text",                                                                  \
      .arg = "FILE",                                                                   \
      .help = "of a model: the text that it reads, - for standard input; to "          \
              "translate, a line SOURCE or SOURCE<TAB>TARGET",                         \
      .kind = KIND_TEXT },                                                             \
        { .name = "prompt",                                                            \
          .arg = "TEXT",                                                               \
          .help = "of a model: the text itself",                                       \
          .kind = KIND_TEXT },                                                         \
    {                                                                                  \
        .name = "tokens", .arg = "N",                                                  \
        .help = "of the text, from its start: so many are read (default 256)",         \
        .kind = KIND_WHOLE, .min = 1, .max = READING_MOST                              \
    }

/* What a model reads of that text.  A source without a target has the model's own translation
 * beside it.  What is cut off is noted.  EXIT_OK, or a status with the message printed;
 * *reading is freed by foci_reading_free(). */
int reading_open(const struct args *a, foci_ctx *ctx, foci_model *model,
                 const foci_tokenizer *tokenizer, foci_reading **reading);

#endif
