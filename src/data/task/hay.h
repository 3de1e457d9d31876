/* hay.h -- statements about symbols of two kinds, hidden among words that mean nothing.
 *
 * Ids are marks from 1 on, words, then `symbols` of the first kind and as many of the
 * second. */
#ifndef FOCI_HAY_H
#define FOCI_HAY_H

#include "data/task/task.h"

/* `length` tokens: statements of `width` tokens each, and words. */
struct hay {
    int64_t length, width;
    int64_t groups, each; /* groups of so many statements */
    int64_t first_word, words, symbols;
};

/* The first symbol of a kind, 0 or 1; of kind 2 the end of all ids. */
int32_t hay_symbol(const struct hay *h, int kind);

/* Text of an id: one of the marks, or a number behind `w` or the letter of its kind. */
int hay_text(const struct hay *h, const char *marks, const char *kinds, int32_t id,
             char *text, size_t cap);

/* Tokens of all statements together. */
int64_t hay_statements(const struct hay *h);

/* Bytes of scratch memory, which is zeroed before each example. */
size_t hay_bytes(const struct hay *h);

/* Draw where statements stand and write the words between them.  Element g * each + k of
 * the result, which lies in scratch, is where statement k of group g begins; the statements
 * of a group stand in this order. */
const int32_t *hay_lay(const struct hay *h, struct rng *r, void *scratch, int32_t *ids);

/* An integer below n that is not taken, which it then is. */
int64_t draw_free(struct rng *r, uint8_t *taken, int64_t n);

#endif
