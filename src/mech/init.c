/* init.c -- how learned query and key projections of a layer start.
 *
 *     W^T W = I (orthogonal), or entries of variance 1/width (gaussian)
 *
 * The same draws as those of frozen.c, of which this is the learned counterpart: what
 * differs between the two is learning alone.  A plan computes the same with it.
 */
#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "kind",
      .choices = "orthogonal|gaussian",
      .help = "columns that are orthonormal, or entries that are normal" },
};

const foci_mod_def mod_init = {
    FOCI_SIZED(foci_mod_def),
    .name = "init",
    .summary = "how a layer's learned query and key projections start",
    .formula = "W^T W = I, or W_ct of variance 1/width",
    .source =
        "Saxe et al., Exact solutions to the nonlinear dynamics of learning in deep "
        "linear neural networks, 2014",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_INIT,
};
