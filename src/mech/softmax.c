/* softmax.c -- scaled dot-product attention.
 *
 *     o_i = sum_j w_ij v_j,   w_ij = e^x_ij / sum_t e^x_it,   x_ij = s q_i.k_j
 *
 * Vaswani et al., "Attention is all you need" (2017), section 3.2.1.  s is
 * 1/sqrt(dim) unless a modifier says otherwise.  Rows of weights sum to one.
 * Time O(n^2 dim), memory O(n): the weights are never stored.
 */
#include "mech/mech.h"

const foci_mech_def mech_softmax = {
    FOCI_SIZED(foci_mech_def),
    .name = "softmax",
    .summary = "scaled dot-product attention",
    .formula = "w_ij = e^x_ij / sum_t e^x_it",
    .source = "Vaswani et al., Attention is all you need, 2017",
    .cost = "time n^2 dim, memory n",
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
};
