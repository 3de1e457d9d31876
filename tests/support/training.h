/* training.h -- a model in training on a generated task, for tests. */
#ifndef FOCI_TEST_TRAINING_H
#define FOCI_TEST_TRAINING_H

#include "foci/train.h"
#include "test.h"

/* All that takes part.  Make one with zeros for what is not said. */
struct training {
    const char        *task;  /* "copy(form=row)" */
    int64_t            batch; /* 0: 8 */
    foci_data_order    order;
    foci_model_config  config; /* sizes of the data are filled in */
    foci_train_options options;
    bool               validates;
    /* Made: */
    foci_ctx     *ctx;
    foci_data    *train, *valid;
    foci_model   *model;
    foci_trainer *trainer;
};

void training_open(struct training *t, int threads);
void training_close(struct training *t);
/* Train to the end; fails the test where that fails. */
void training_run(struct training *t);

/* A model of 2 blocks, width 16, for a copy task. */
foci_model_config training_small(const char *spec);

/* A folder of its own for a test, and all of it gone. */
void training_folder(char path[64]);
void training_remove(const char *path);

#endif
