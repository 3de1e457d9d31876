/* cosformer.c -- linear attention that fades with the distance as a cosine.
 *
 *     w_ij = relu(q_i).relu(k_j) cos(pi/2 (i - j)/M),   o_i = sum_j w_ij v_j / sum_j w_ij
 *
 * Qin et al., "cosFormer: rethinking softmax in attention" (2022).  The cosine of a
 * difference is a product of cosines and sines of both, so features are relu(x) cos t and
 * relu(x) sin t, t = pi i/(2M).  Time O(n dim^2), memory O(dim^2).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { LENGTH };

static const foci_arg_def args[] = {
    [LENGTH] = { .name = "length",
                 .follows = FOCI_FOLLOWS_LEN,
                 .max = INT32_MAX,
                 .help = "M, at least the tokens there are; 0: as many, not causal" },
};

static void linear(const foci_mech *m, foci_linear *l)
{
    l->feature = FOCI_FEATURE_RELU;
    l->norm = FOCI_LINEAR_NORM_SUM;
    l->cosine = true;
    l->length = m->arg[LENGTH];
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const int64_t length = foci_arg_int(m, LENGTH);

    if (!length && m->causal)
        snprintf(why, cap,
                 "a causal problem needs length: it may not depend on how many tokens "
                 "follow");
    else if (length && length < m->dims.planned)
        snprintf(why, cap, "length=%lld is less than the %lld tokens of the problem",
                 (long long)length, (long long)m->dims.planned);
    else
        return false;
    return true;
}

const foci_mech_def mech_cosformer = {
    FOCI_SIZED(foci_mech_def),
    .name = "cosformer",
    .summary = "linear attention that fades with the distance",
    .formula = "A_ij ~ relu(q_i).relu(k_j) cos(pi/2 (i - j)/M)",
    .source = "Qin et al., cosFormer: rethinking softmax in attention, 2022",
    .cost = "time n dim^2, memory dim^2",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .no_cross = "queries and keys are counted from the same start",
    .refuse = refuse,
    .linear = linear,
};
