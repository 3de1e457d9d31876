/* ngrams.h -- n-grams that two sequences share, for scores of translations. */
#ifndef FOCI_NGRAMS_H
#define FOCI_NGRAMS_H

#include "text/text.h"

enum { NGRAM_MOST = 6, NGRAM_END = -1 };

/* A sequence of symbols, none negative. */
struct sequence {
    foci_ctx *ctx;
    int32_t  *at; /* [n + NGRAM_MOST], the last ones NGRAM_END once it is closed */
    int64_t   n, cap;
};

foci_status sequence_add(struct sequence *s, int32_t symbol);
/* Close: no more symbols are added. */
foci_status sequence_close(struct sequence *s);
void        sequence_free(struct sequence *s);

/* Of two closed sequences, how many n-grams of 1 to `order` symbols they share, each as
 * often as both have it; added to match[order]. */
foci_status ngrams_match(const struct sequence *a, const struct sequence *b, int order,
                         int64_t *match);

/* How many n-grams of n symbols a sequence of `length` has. */
static inline int64_t ngrams_count(int64_t length, int n)
{
    return max64(0, length - n + 1);
}

/* Check the arguments of calls that compare two texts. */
foci_status check_texts(foci_ctx *ctx, const foci_string *a, const foci_string *b,
                        const void *counts);

/* White space as Python's str.split() has it: \s, and the separators of ASCII. */
bool is_separator(uint32_t c);

#endif
