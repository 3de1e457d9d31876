/* bias.c -- a learned bias for each distance.
 *
 *     x_ij = s q_i.k_j + table[clip(j - i, -c, c) + c]
 *
 * The scalar form of Shaw et al., "Self-attention with relative position
 * representations" (2018).  Costs a sum for each pair.
 */
#include "mech/mech.h"

enum { CLIP };

static const foci_arg_def args[] = {
    [CLIP] = { .name = "clip",
               .preset = 16,
               .max = 1 << 24,
               .help = "distances beyond count as this one" },
};

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = 2 * (int64_t)arg[CLIP] + 1;
}

static const foci_tensor_def tensors[] = {
    { .name = "table",
      .help = "bias of each distance, from -clip to clip",
      .n_dims = 1,
      .shape = shape,
      .init = FOCI_INIT_CONST,
      .keep = FOCI_KEEP_TRAINED },
};

static int64_t entry(const foci_mod *mod, bool causal, int64_t rel)
{
    const int64_t c = (int64_t)mod->arg[CLIP];

    (void)causal;
    return (rel < -c ? -c : rel > c ? c : rel) + c;
}

const foci_mod_def mod_bias = {
    FOCI_SIZED(foci_mod_def),
    .name = "bias",
    .summary = "a learned bias for each distance",
    .formula = "x_ij = s q_i.k_j + table[clip(j - i)]",
    .source =
        "Shaw et al., Self-attention with relative position representations, 2018",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_TABLE,
    .entry = entry,
};
