/* logn.c -- a scale that grows with the logarithm of the keys visible.
 *
 *     x_ij = s log(n_i) / log(n0) q_i.k_j
 *
 * n_i counts the keys visible to query i, so that in a causal problem a row does
 * not depend on what follows it.  Keeps the entropy of the weights about the same
 * at every length.  Su, note on the scale of attention (2021); Chiang and Cholak,
 * "Overcoming a theoretical limitation of self-attention" (2022).  A row with one
 * key gets factor 0, which changes nothing there.  No cost.
 */
#include <math.h>

#include "mech/mech.h"

enum { N0, CLAMP };

static const foci_arg_def args[] = {
    [N0] = { .name = "n0",
             .preset = 512,
             .min = 2,
             .max = INT32_MAX,
             .help = "keys at which the factor is 1" },
    [CLAMP] = { .name = "clamp", .max = 1, .help = "1: never a factor below 1" },
};

static double row_factor(const foci_mod *mod, int64_t visible)
{
    const double f = visible > 1 ? log((double)visible) / log(mod->arg[N0]) : 0;
    return mod->arg[CLAMP] != 0 && f < 1 ? 1 : f;
}

const foci_mod_def mod_logn = {
    FOCI_SIZED(foci_mod_def),
    .name = "logn",
    .summary = "scale that grows with the logarithm of the keys visible",
    .formula = "x_ij = s log(n_i) / log(n0) q_i.k_j",
    .source = "Chiang and Cholak, Overcoming a theoretical limitation of "
              "self-attention, 2022",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .row_factor = row_factor,
};
