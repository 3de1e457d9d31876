/* positional_words.h -- what the files of the patterns of words share.
 *
 * A word stands for the mean u of its tokens, and all of its tokens take the same row.
 * Causal rows know only the tokens of their own word up to themselves, and take the
 * running mean of these for u.  Words are numbered along the scan, as rows are in
 * positional_scan.c.
 */
#ifndef FOCI_POSITIONAL_WORDS_H
#define FOCI_POSITIONAL_WORDS_H

#include "engine/positional/positional.h"

/* Rows i to i + n - 1 of the sequence. */
struct positional_word {
    int64_t i, n;
};

/* One head of a sequence being scanned.  In the scratch, mean[0 .. 3][ldv] are means of
 * words and word[ldv] is the mean inside a word. */
struct word_scan {
    const struct positional      *x;
    const struct positional_head *at;
    struct positional_scratch    *r;
    const int32_t                *words; /* word numbers of the sequence's tokens */
    bool                          reverse;
};

struct word_scan word_scan_of(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r);
int64_t          word_scan_count(const struct word_scan *w);
/* The next word along the scan, or `backward`, from the last to the first.  Start with
 * a word of no rows; false: there is no further one. */
bool word_scan_next(const struct word_scan *w, bool backward,
                    struct positional_word *word);
/* factor[i] = 1/(t + i + 1), of plain running means. */
void word_scan_factors(double *factor, int64_t t, int n);
/* v = 0, n rows of ldv. */
void word_scan_zero(const struct word_scan *w, double *v, int n);

#endif
