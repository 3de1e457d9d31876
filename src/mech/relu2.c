/* relu2.c -- squared-relu attention.
 *
 *     o_i = sum_j w_ij v_j,   w_ij = max(x_ij, 0)^2 / n_i
 *
 * Hua, Dai, Liu and Le, "Transformer quality in linear time" (2022), section 3.1.
 * n_i counts the keys visible to query i, or is a constant.  Published programs
 * differ: relu^2(q.k/n + b) is scale(1/n) with n=1, relu^2(q.k/sqrt(dim)) is n=1.
 * Rows do not sum to one, and may be all zero.  Time O(n^2 dim), memory O(n).
 */
#include "mech/mech.h"

enum { COUNT };

static const foci_arg_def args[] = {
    [COUNT] = { .name = "n",
                .max = INT32_MAX,
                .help = "divisor of the weights; 0: the keys visible" },
};

static double divisor(const foci_mech *m) { return m->arg[COUNT]; }

const foci_mech_def mech_relu2 = {
    FOCI_SIZED(foci_mech_def),
    .name = "relu2",
    .summary = "squared positive logits, divided by the number of keys",
    .formula = "w_ij = max(x_ij, 0)^2 / n",
    .source = "Hua et al., Transformer quality in linear time, 2022",
    .cost = "time n^2 dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_RELU2,
    .divisor = divisor,
};
