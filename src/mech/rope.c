/* rope.c -- queries and keys rotated by their positions.
 *
 *     (a, b) <- (a cos p - b sin p, a sin p + b cos p),   p = position base^(-2t/dim)
 *
 * for pair t of a row: elements 2t and 2t + 1, or t and t + dim/2.  Turned rows meet
 * at an angle that depends on the distance alone.  Su et al., "RoFormer: Enhanced
 * transformer with rotary position embedding" (2021).  Values are not rotated.  Costs
 * a pass over q and k.
 */
#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "base",
      .preset = 10000,
      .min = 1,
      .max = 1e30,
      .real = true,
      .help = "the slowest pair rotates by about 1/base a position" },
    { .name = "layout",
      .choices = "interleaved|half",
      .help = "pairs of neighbours, or of the halves of a row" },
};

const foci_mod_def mod_rope = {
    FOCI_SIZED(foci_mod_def),
    .name = "rope",
    .summary = "queries and keys rotated by their positions",
    .formula = "x_ij = s rotate(q_i, i).rotate(k_j, j)",
    .source = "Su et al., RoFormer: Enhanced transformer with rotary position "
              "embedding, 2021",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_ROPE,
};
