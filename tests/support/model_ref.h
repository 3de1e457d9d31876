/* model_ref.h -- a model written out in double, to judge src/train by. */
#ifndef FOCI_TEST_MODEL_REF_H
#define FOCI_TEST_MODEL_REF_H

#include "train/model.h"

/* The summed loss of a batch, forward only: attention by the interpreter, all else straight
 * from the definitions.  Nothing is dropped and nothing is carried. */
double model_ref_loss(const foci_model *m, const foci_batch *batch, const float *params,
                      double smoothing);

#endif
