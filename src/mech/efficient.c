/* efficient.c -- softmax over the elements of queries and over the positions of keys.
 *
 *     o_i = sum_c p_ic sum_j w_jc v_j,   p_i = softmax_c(q_i),   w_.c = softmax_j(k_.c)
 *
 * Shen, Zhang, Zhao, Yi and Li, "Efficient attention: attention with linear
 * complexities" (2021).  Causal rows take the softmax over the keys they see.
 * Time O(n dim^2), memory O(dim^2).
 */
#include "mech/mech.h"

static void linear(const foci_mech *m, foci_linear *l)
{
    (void)m;
    l->feature = FOCI_FEATURE_SOFTMAX;
    l->norm = FOCI_LINEAR_NORM_FEATURE;
}

const foci_mech_def mech_efficient = {
    FOCI_SIZED(foci_mech_def),
    .name = "efficient",
    .summary = "softmax over features of queries and over positions of keys",
    .formula = "A_ij = sum_c softmax_c(q_i) softmax_j(k_c)",
    .source = "Shen et al., Efficient attention, 2021",
    .cost = "time n dim^2, memory dim^2",
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .linear = linear,
};
