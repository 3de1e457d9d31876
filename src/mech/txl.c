/* txl.c -- queries meet the distance as they meet the keys.
 *
 *     x_ij = s ((q_i + u).k_j + (q_i + w).R[i - j])
 *
 * Dai et al., "Transformer-XL: Attentive language models beyond a fixed-length
 * context" (2019), section 3.3.  R has a row for each distance and starts as the
 * sinusoid.  Only keys before the query have one, so it is causal.  Costs a product
 * as dear as that with the keys, and n dim numbers.
 */
#include "mech/mech.h"

static void shape_row(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = m->dims.qk;
}

static void shape_r(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = m->dims.len;
    shape[1] = m->dims.qk;
}

static const foci_tensor_def tensors[] = {
    { .name = "u",
      .help = "added to the queries that meet keys",
      .n_dims = 1,
      .shape = shape_row,
      .init = FOCI_INIT_CONST,
      .keep = FOCI_KEEP_TRAINED },
    { .name = "w",
      .help = "added to the queries that meet distances",
      .n_dims = 1,
      .shape = shape_row,
      .init = FOCI_INIT_CONST,
      .keep = FOCI_KEEP_TRAINED },
    { .name = "R",
      .help = "a row for each distance",
      .n_dims = 2,
      .shape = shape_r,
      .init = FOCI_INIT_SINUSOID,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mod_def mod_txl = {
    FOCI_SIZED(foci_mod_def),
    .name = "txl",
    .summary = "queries meet a row for each distance as they meet the keys",
    .formula = "x_ij = s ((q_i + u).k_j + (q_i + w).R[i - j])",
    .source = "Dai et al., Transformer-XL: Attentive language models beyond a "
              "fixed-length context, 2019",
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_TXL,
};
