/* l2norm.c -- weights of unit Euclidean norm.
 *
 *     o_i = sum_j w_ij v_j,   w_ij = e^x_ij / sqrt(sum_t e^2x_it)
 *
 * Su, note on the normalisation of attention (2022).  The same as the square root
 * of softmax(2x), which is why it never overflows.  Rows sum to between 1 and
 * sqrt(n): a row that looks everywhere gives a longer output than one that looks
 * at one key.  Time O(n^2 dim), memory O(n).
 */
#include "mech/mech.h"

const foci_mech_def mech_l2norm = {
    FOCI_SIZED(foci_mech_def),
    .name = "l2norm",
    .summary = "exponential weights of unit Euclidean norm",
    .formula = "w_ij = e^x_ij / sqrt(sum_t e^2x_it)",
    .source = "Su, 2022",
    .cost = "time n^2 dim, memory n",
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_L2NORM,
};
