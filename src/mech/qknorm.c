/* qknorm.c -- cosine attention.
 *
 *     x_ij = tau (q_i/|q_i|).(k_j/|k_j|)
 *
 * Henry et al., "Query-key normalization for transformers" (2020).  tau, one for
 * each head, is learned and takes the place of the scale.  Norms are floored at
 * 1e-12, so that a row of zeros gives logits 0.  Costs a pass over q and k.
 */
#include "mech/mech.h"

enum { TAU };

static const foci_arg_def args[] = {
    [TAU] = { .name = "tau",
              .preset = 10,
              .max = 1e30,
              .real = true,
              .help = "factor of the cosines at the start" },
};

static const foci_tensor_def tensors[] = {
    { .name = "tau",
      .help = "factor of the cosines",
      .init = FOCI_INIT_CONST,
      .preset = 1 + TAU,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mod_def mod_qknorm = {
    FOCI_SIZED(foci_mod_def),
    .name = "qknorm",
    .summary = "logits from the cosines of queries and keys, with a learned factor",
    .formula = "x_ij = tau (q_i/|q_i|).(k_j/|k_j|)",
    .source = "Henry et al., Query-key normalization for transformers, 2020",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_UNIT | FOCI_MOD_FACTOR,
};
