/* translations.h -- text to text through a model of task translate. */
#ifndef FOCI_CLI_TRANSLATIONS_H
#define FOCI_CLI_TRANSLATIONS_H

#include "cli/train.h"

#define OPTIONS_BEAM                                                                   \
    { .name = "beam",                                                                  \
      .arg = "N",                                                                      \
      .help = "hypotheses kept (default 1: greedy)",                                   \
      .kind = KIND_WHOLE,                                                              \
      .min = 1,                                                                        \
      .max = 64 },                                                                     \
    {                                                                                  \
        .name = "length-penalty", .arg = "X",                                          \
        .help = "scores are divided by ((5 + length) / 6)^X (default 0.6)",            \
        .kind = KIND_REAL, .max = 10                                                   \
    }

/* Lines of a text, in one block. */
struct text_lines {
    char        *text;
    foci_string *line; /* [n] without their ends */
    int64_t      n;
    size_t       bytes; /* of the text */
};
int  text_lines_read(const struct args *a, const char *path, struct text_lines *l);
void text_lines_free(struct text_lines *l);

/* Told of each line, in order. */
typedef void translation_told(void *user, int64_t line, const char *text, int64_t bytes,
                              double score);

int translations_run(const struct args *a, foci_ctx *ctx, foci_model *model,
                     const foci_tokenizer *tokenizer, const foci_string *lines,
                     int64_t n, translation_told *told, void *user);

/* A translation that was compared with its reference. */
struct translation {
    int64_t          line; /* of the source in its file, from 0 */
    const char      *text;
    int64_t          bytes;
    double           score;
    foci_bleu_counts bleu;
    foci_chrf_counts chrf;
};
typedef void translation_judged(void *user, const struct translation *t);

struct translation_scores {
    double bleu, brevity, chrf;
};
/* Translate the source and compare; `told` (NULL: nobody) hears of each translation. */
int translations_judge(const struct args *a, foci_ctx *ctx, foci_model *model,
                       const foci_tokenizer *tokenizer, const struct train_source *from,
                       translation_judged *told, void *user,
                       struct translation_scores *scores);

#endif
