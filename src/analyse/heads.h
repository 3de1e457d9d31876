/* heads.h -- between the files that look at the weights of heads. */
#ifndef FOCI_HEADS_H
#define FOCI_HEADS_H

#include "core/core.h"
#include "foci/analyse.h"

/* What a row is like that figures do not apply to. */
enum {
    HEAD_NEGATIVE = 1 << 0, /* some weights are */
    HEAD_SUM = 1 << 1,      /* it does not sum to 1 */
    HEAD_INFINITE = 1 << 2, /* some weights are no finite numbers */
    HEAD_ODD = HEAD_NEGATIVE | HEAD_SUM | HEAD_INFINITE
};

/* A row of weights. */
struct head_row {
    const float *a; /* [keys] */
    int64_t keys;   /* that the problem shows it, all before others; 0: it sees none */
    int64_t seen;   /* of these by a mask */
    int64_t place, len; /* place of the query; keys of the sequence */
    bool    causal;
    bool    apart;    /* queries and keys are of different sequences */
    bool    patterns; /* there are as many queries as keys */
    int64_t top;
};

/* heads_row.c: the figures of a row, which are NaN where they do not apply; scratch has [keys].
 * The result says what the row is like. */
unsigned head_row_measure(const struct head_row *r, float *scratch,
                          double figures[FOCI_HEAD_ROW_FIGURES]);
/* The sum of min(a, b). */
double head_overlap(const float *a, const float *b, int64_t n);

#endif
