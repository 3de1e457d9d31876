/* sink.c -- a learned logit that only absorbs weight.
 *
 *     w_ij = e^x_ij / (e^sink + sum_t e^x_it)
 *
 * One number for each head, 0 at the start, so that a head may look at nothing.
 * As in OpenAI's gpt-oss (2025); Xiao et al., "Efficient streaming language models
 * with attention sinks" (2023) tell why it is wanted.  Neither capped nor scaled.
 * Rows of weights sum to less than one.  No cost.
 */
#include "mech/mech.h"

static const foci_tensor_def tensors[] = {
    { .name = "sink",
      .help = "logit that absorbs weight",
      .init = FOCI_INIT_CONST,
      .keep = FOCI_KEEP_TRAINED },
};

static const char *refuse(const foci_mech *mech)
{
    return mech->def->weigh == FOCI_WEIGH_SOFTMAX
               ? NULL
               : "its weights are not divided by their sum, so "
                 "there is nothing to absorb";
}

const foci_mod_def mod_sink = {
    FOCI_SIZED(foci_mod_def),
    .name = "sink",
    .summary = "a learned logit for each head that only absorbs weight",
    .formula = "w_ij = e^x_ij / (e^sink + sum_t e^x_it)",
    .source =
        "Xiao et al., Efficient streaming language models with attention sinks, 2023",
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_SINK,
    .refuse = refuse,
};
