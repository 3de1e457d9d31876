/* t5.c -- a learned bias for each range of distances.
 *
 *     x_ij = s q_i.k_j + table[bucket(j - i)]
 *
 * Raffel et al., "Exploring the limits of transfer learning with a unified
 * text-to-text transformer" (2020), whose own models have s = 1.  Half of the buckets
 * of a side hold one distance each, the others grow by the logarithm up to
 * max_distance, and the last holds all beyond.  Bidirectional, keys after the query
 * have the second half of the table; causal, all of it is for those before.  Costs a
 * sum for each pair.
 */
#include <math.h>

#include "mech/mech.h"

enum { BUCKETS, MAX_DISTANCE };

static const foci_arg_def args[] = {
    [BUCKETS] = { .name = "buckets",
                  .preset = 32,
                  .min = 4,
                  .max = 1 << 20,
                  .help = "entries of the table" },
    [MAX_DISTANCE] = { .name = "max_distance",
                       .preset = 128,
                       .min = 1,
                       .max = INT32_MAX,
                       .help = "from here on the last bucket serves" },
};

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = (int64_t)arg[BUCKETS];
}

static const foci_tensor_def tensors[] = {
    { .name = "table",
      .help = "bias of each bucket",
      .n_dims = 1,
      .shape = shape,
      .init = FOCI_INIT_CONST,
      .keep = FOCI_KEEP_TRAINED },
};

static int64_t entry(const foci_mod *mod, bool causal, int64_t rel)
{
    const int64_t all = (int64_t)mod->arg[BUCKETS];
    const int64_t side = causal ? all : all / 2, exact = side / 2;
    const int64_t start = !causal && rel > 0 ? side : 0;
    const int64_t n = rel <= 0 ? -rel : causal ? 0 : rel;
    const double  far = mod->arg[MAX_DISTANCE];

    if (n < exact) return start + n;
    if ((double)n >= far) return start + side - 1;
    const double part = log((double)n / (double)exact) / log(far / (double)exact) *
                        (double)(side - exact);
    const int64_t at = exact + (int64_t)part;
    return start + (at < side ? at : side - 1);
}

const foci_mod_def mod_t5 = {
    FOCI_SIZED(foci_mod_def),
    .name = "t5",
    .summary = "a learned bias for each range of distances",
    .formula = "x_ij = s q_i.k_j + table[bucket(j - i)]",
    .source = "Raffel et al., Exploring the limits of transfer learning with a unified "
              "text-to-text transformer, 2020",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .does = FOCI_MOD_TABLE,
    .entry = entry,
};
