/* eval.h -- parts of foci eval. */
#ifndef FOCI_CLI_EVAL_H
#define FOCI_CLI_EVAL_H

#include "cli/train.h"

/* eval_state.c: scores over all data, with --state by decoding.  EXIT_OK, or a status with
 * the message printed. */
int eval_scores(const struct args *a, foci_ctx *ctx, foci_model *model, foci_data *data,
                foci_scores *scores);

#endif
