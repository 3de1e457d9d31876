/* identity.c -- logits as weights.
 *
 *     A_ij = s q_i.k_j,   with norm=n divided by the number of keys visible
 *
 * Linear attention without a map: weights have signs and do not sum to one.
 * Time O(n dim^2), memory O(dim^2).
 */
#include "mech/mech.h"

enum { NORM };

static const foci_arg_def args[] = {
    [NORM] = { .name = "norm",
               .choices = "none|n",
               .help = "what weights are divided by" },
};

static void linear(const foci_mech *m, foci_linear *l)
{
    l->norm = m->arg[NORM] > 0 ? FOCI_LINEAR_NORM_COUNT : FOCI_LINEAR_NORM_NONE;
}

const foci_mech_def mech_identity = {
    FOCI_SIZED(foci_mech_def),
    .name = "identity",
    .summary = "logits as weights, without a map",
    .formula = "A_ij = s q_i.k_j",
    .source = "Katharopoulos et al., Transformers are RNNs, 2020",
    .cost = "time n dim^2, memory dim^2",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .linear = linear,
};
