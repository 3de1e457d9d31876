/* evaluate.h -- an evaluation on its way, and what is told of it. */
#ifndef FOCI_EVALUATE_H
#define FOCI_EVALUATE_H

#include "train/model.h"

struct evaluation {
    foci_model    *m;
    foci_carry    *carry;
    foci_labels_fn labels; /* NULL: nobody asks for each */
    void          *user;
    foci_loss      loss;
    int64_t        characters, words;
    float         *nats; /* [cap] of a batch */
    int32_t       *best; /* [cap] */
    int64_t        cap;
};

/* Room for the labels of a batch, if they are asked for. */
foci_status evaluation_reserve(struct evaluation *e, int64_t labels);
void        evaluation_free(struct evaluation *e);

/* Into the fields that scores->size covers. */
foci_status evaluation_scores(const struct evaluation *e, foci_scores *scores);

#endif
