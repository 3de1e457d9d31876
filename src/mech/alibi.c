/* alibi.c -- logits that fall off with the distance.
 *
 *     x_ij = s q_i.k_j - m_h |j - i|
 *
 * Press, Smith and Lewis, "Train short, test long: attention with linear biases
 * enables input length extrapolation" (2022).  Slopes are fixed: 2^(-8(h+1)/H) where
 * the number of heads H is a power of two; else those of the next lower power, then
 * every second one of the next higher.  Costs a sum for each pair.
 */
#include <math.h>

#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "slope",
      .max = 1e30,
      .real = true,
      .help = "fall of the logits for each position; 0: by head" },
};

/* Head h of n, n a power of two. */
static double geometric(int64_t h, int64_t n)
{
    return exp2(-8 * (double)(h + 1) / (double)n);
}

static double slope(const foci_mod *mod, int64_t head, int64_t heads)
{
    int64_t low = 1;

    if (mod->arg[0] > 0) return mod->arg[0];
    while (2 * low <= heads)
        low *= 2;
    return head < low ? geometric(head, low) : geometric(2 * (head - low), 2 * low);
}

const foci_mod_def mod_alibi = {
    FOCI_SIZED(foci_mod_def),
    .name = "alibi",
    .summary = "logits fall off with the distance, at a slope of each head's own",
    .formula = "x_ij = s q_i.k_j - m_h |j - i|",
    .source = "Press et al., Train short, test long: attention with linear biases "
              "enables input length extrapolation, 2022",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_SLOPE,
    .slope = slope,
};
