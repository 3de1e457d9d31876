/* fixed.c -- seven patterns of positions, which learn nothing and read only values.
 *
 *     current j = i     previous j = i - 1     next j = i + 1
 *     left  (j + 1)^3, j <= i - 2     right (N - j)^3, j >= i + 2
 *     end   (j + 1)^3                 start (N - j)^3
 *
 * each row divided by its sum.  Raganato, Scherrer and Tiedemann, "Fixed encoder
 * self-attention patterns in transformer-based machine translation" (2020).  Causal rows
 * take the pattern of the tokens up to them.  With words=1 the pattern is one of words, and
 * the weight of a word is shared by its tokens.  Time O(n dim), memory O(dim).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { PATTERN, WORDS, EMPTY };
enum { ALL, ONE }; /* of the words of PATTERN: in turn, or one of those that follow */

static const foci_arg_def args[] = {
    [PATTERN] = { .name = "pattern",
                  .choices = "all|current|previous|next|left|right|end|start",
                  .help = "which; all: those that see anything, head by head" },
    [WORDS] = { .name = "words", .max = 1, .help = "1: patterns of words" },
    [EMPTY] = { .name = "empty",
                .choices = "zero|self",
                .help = "what a row without keys takes" },
};

static void positional(const foci_mech *m, int64_t head, foci_positional *p)
{
    static const foci_pattern every[] = {
        FOCI_PATTERN_CURRENT, FOCI_PATTERN_PREVIOUS, FOCI_PATTERN_NEXT,
        FOCI_PATTERN_LEFT,    FOCI_PATTERN_RIGHT,    FOCI_PATTERN_END,
        FOCI_PATTERN_START,
    };
    static const foci_pattern causal[] = { FOCI_PATTERN_CURRENT, FOCI_PATTERN_PREVIOUS,
                                           FOCI_PATTERN_LEFT, FOCI_PATTERN_END,
                                           FOCI_PATTERN_START };
    const int64_t             pattern = foci_arg_int(m, PATTERN);

    p->words = m->arg[WORDS] > 0;
    p->self = m->arg[EMPTY] > 0;
    if (pattern >= ONE)
        p->pattern = (foci_pattern)(pattern - ONE);
    else if (m->causal)
        p->pattern = causal[head % (int64_t)N_ELEMENTS(causal)];
    else
        p->pattern = every[head % (int64_t)N_ELEMENTS(every)];
}

static unsigned reads(const foci_mech *m)
{
    return m->arg[WORDS] > 0 ? FOCI_READ_V | FOCI_READ_WORDS : FOCI_READ_V;
}

const foci_mech_def mech_fixed = {
    FOCI_SIZED(foci_mech_def),
    .name = "fixed",
    .summary = "fixed patterns of positions",
    .formula = "A_ij = 1 at one neighbour, or a cube of the position over its sum",
    .source = "Raganato et al., Fixed encoder self-attention patterns, 2020",
    .cost = "time n dim, memory dim",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_POSITIONAL,
    .reads = FOCI_READ_V,
    .stochastic = true,
    .no_cross = "a row is its position",
    .reads_of = reads,
    .positional = positional,
};
