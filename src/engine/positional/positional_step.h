/* positional_step.h -- decoding with patterns and taps: what its files share.
 *
 * A head keeps a few rows of doubles and, for patterns of words, the number of the last
 * word and how many tokens it has so far:
 *
 *     previous   the row (word) before
 *     left       the mean, and the two rows (the word) after it
 *     end        the mean
 *     start      four means
 *     words      and the mean of the word so far
 *     taps       the last width - 1 values, as floats
 */
#ifndef FOCI_POSITIONAL_STEP_H
#define FOCI_POSITIONAL_STEP_H

#include "engine/positional/positional.h"

/* Rows that a head may keep. */
enum { MEAN, BEFORE, BEFORE2, WORD = 4, MAX_KEPT };

/* Bytes of a struct last_word in a state, so that rows after it stay aligned. */
enum { LAST_WORD_BYTES = 64 };

struct last_word {
    int64_t number, tokens; /* tokens 0: there was none yet */
};

/* A new token of one head, and where the head keeps its rows. */
struct positional_token {
    const struct positional *x;
    foci_positional          kind;
    void                    *state;         /* a struct last_word, or values of taps */
    double                  *row[MAX_KEPT]; /* unspecified for rows that are not kept */
    int64_t                  n;             /* tokens before it */
    float                   *v, *o;
    struct positional_scratch *r;
};

/* positional_step_state.c: kept rows of a pattern, as bits; where head h starts in a
 * state. */
struct positional positional_step_geometry(const foci_plan *plan, int g);
unsigned          positional_kept_rows(const foci_positional *p);
size_t            positional_head_offset(const struct positional *x, int64_t h);
foci_status       positional_state_make(foci_state *state, int g);
foci_status       positional_state_copy(const foci_state *from, foci_state *to, int g);
void              positional_state_free(foci_state *state, int g);
size_t            positional_state_bytes(const foci_state *state, int g);
void positional_state_save(const foci_state *state, int g, struct state_writer *w);
foci_status positional_state_restore(foci_state *state, int g, struct state_reader *r);
foci_status positional_state_truncate(foci_state *state, int g, int64_t len,
                                      bool really);

/* positional_step_token.c: output and new state, by pattern, of tokens and of words. */
void positional_token(const struct positional_token *t);
void positional_word_token(const struct positional_token *t, int64_t word);
/* The same by taps of head h; without `attend` the value is only stored. */
void positional_taps_token(const struct positional_token *t, const float *params,
                           int64_t h, bool attend);

#endif
