/* scale.c -- another scale of the logits.
 *
 *     x_ij = s q_i.k_j
 *
 * in place of the s = 1/sqrt(dim) of Vaswani et al., "Attention is all you need"
 * (2017).  No cost.  The bounds leave the products room in single precision.
 */
#include <math.h>

#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "s",
      .preset = REQUIRED,
      .min = -1e30,
      .max = 1e30,
      .real = true,
      .help = "factor of q.k" },
};

const foci_mod_def mod_scale = {
    FOCI_SIZED(foci_mod_def),
    .name = "scale",
    .summary = "a scale of the logits in place of 1/sqrt(dim)",
    .formula = "x_ij = s q_i.k_j",
    .source = "Vaswani et al., Attention is all you need, 2017",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_SCALE,
};
