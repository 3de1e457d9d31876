/* shaw.c -- learned vectors for each distance, beside keys and values.
 *
 *     x_ij = s q_i.(k_j + aK[c]),   o_i = sum_j w_ij (v_j + aV[c])
 *
 * where c = clip(j - i) is the distance, no further than `clip` either way.  Shaw,
 * Uszkoreit and Vaswani, "Self-attention with relative position representations"
 * (2018).  Costs n clip dim for the products with the tables, and the sums of the
 * weights of each distance.
 */
#include "mech/mech.h"

enum { CLIP, VALUES };

static const foci_arg_def args[] = {
    [CLIP] = { .name = "clip",
               .preset = 16,
               .max = 1 << 16,
               .help = "distances beyond count as this one" },
    [VALUES] = { .name = "values",
                 .preset = 1,
                 .max = 1,
                 .help = "0: vectors beside the keys only" },
};

static void shape_k(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = 2 * (int64_t)arg[CLIP] + 1;
    shape[1] = m->dims.qk;
}

static void shape_v(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = arg[VALUES] != 0 ? 2 * (int64_t)arg[CLIP] + 1 : 0;
    shape[1] = m->dims.v;
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)arg;
    return 1 / (double)m->dims.qk;
}

enum { STREAM = 9 };

static const foci_tensor_def tensors[] = {
    { .name = "aK",
      .help = "added to the keys at each distance, from -clip to clip",
      .n_dims = 2,
      .shape = shape_k,
      .init = FOCI_INIT_NORMAL,
      .value_of = variance,
      .stream = STREAM,
      .keep = FOCI_KEEP_TRAINED },
    { .name = "aV",
      .help = "added to the values at each distance",
      .n_dims = 2,
      .shape = shape_v,
      .init = FOCI_INIT_NORMAL,
      .value_of = variance,
      .stream = STREAM,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mod_def mod_shaw = {
    FOCI_SIZED(foci_mod_def),
    .name = "shaw",
    .summary = "learned vectors for each distance, beside keys and values",
    .formula = "x_ij = s q_i.(k_j + aK[clip(j - i)]), o_i = sum_j w_ij (v_j + aV[...])",
    .source =
        "Shaw et al., Self-attention with relative position representations, 2018",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_SHAW,
};
