/* temper.c -- a learned factor of the logits.
 *
 *     x_ij = temper s q_i.k_j
 *
 * One number for each head, 1 at the start: an inverse temperature that training
 * may move without moving all of the query projection.  The learned tau of
 * qknorm.c without its norms.  No cost.
 */
#include "mech/mech.h"

static const foci_tensor_def tensors[] = {
    { .name = "temper",
      .help = "factor of the logits",
      .init = FOCI_INIT_CONST,
      .value = 1,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mod_def mod_temper = {
    FOCI_SIZED(foci_mod_def),
    .name = "temper",
    .summary = "a learned factor of the logits for each head",
    .formula = "x_ij = temper s q_i.k_j",
    .source = "Henry et al., Query-key normalization for transformers, 2020 (its "
              "factor alone)",
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_FACTOR,
};
