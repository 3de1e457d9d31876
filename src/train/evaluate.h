/* evaluate.h -- sums over a data set, and what is told of them. */
#ifndef FOCI_EVALUATE_H
#define FOCI_EVALUATE_H

#include "train/model.h"

struct evaluate_totals {
    foci_loss loss;
    int64_t   characters, words;
};

/* Into the fields that scores->size covers. */
foci_status evaluate_scores(const foci_model *m, const struct evaluate_totals *t,
                            foci_scores *scores);

#endif
