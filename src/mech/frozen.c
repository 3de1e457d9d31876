/* frozen.c -- query and key projections that are random and never learn.
 *
 *     q = x W_Q,  k = x W_K,  W^T W = I, drawn once from the seed
 *
 * Orthogonal random attention: only values and the rest of the network learn.  The
 * modifier speaks of the layer around a plan, which draws the projections and gives them
 * no gradient; a plan, which takes q and k as they are, computes the same with it.
 * `gaussian` is the control that is not orthogonal, `hadamard` a product of random signs
 * and Hadamard transforms in width log(width) steps.
 */
#include "mech/mech.h"

static const foci_arg_def args[] = {
    { .name = "kind",
      .choices = "orthogonal|gaussian|hadamard",
      .help = "columns that are orthonormal, entries that are normal, or a transform" },
    { .name = "sample",
      .choices = "perhead|block",
      .help =
          "a matrix for each head, or one that heads share out: they are orthogonal "
          "then" },
    { .name = "tie", .max = 1, .help = "1: keys are projected as queries are" },
    { .name = "shared", .max = 1, .help = "1: all layers of a model have the same" },
};

const foci_mod_def mod_frozen = {
    FOCI_SIZED(foci_mod_def),
    .name = "frozen",
    .summary = "a layer's query and key projections are random and never learn",
    .formula = "q = x W_Q, k = x W_K, W^T W = I",
    .source = "orthogonal random attention, docs/orthogonal.md",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .does = FOCI_MOD_FROZEN,
};
