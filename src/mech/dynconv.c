/* dynconv.c -- a convolution along the sequence whose kernel each token makes itself.
 *
 *     o_ic = sum_t w_it v_(i+t-left)c,   w_i = softmax(W x_i)
 *
 * as lightconv otherwise.  Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with
 * lightweight and dynamic convolutions" (2019).  Time O(n k (dim + dim_x)), memory O(k).
 */
#include "mech/taps.h"

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = (int64_t)(arg[TAPS_PARTS] * arg[TAPS_WIDTH]);
    shape[1] = m->dims.x;
}

static void positional(const foci_mech *m, int64_t head, foci_positional *p)
{
    (void)head;
    *p = (foci_positional){ .pattern = FOCI_PATTERN_TAPS_OF_X,
                            .width = foci_arg_int(m, TAPS_WIDTH),
                            .parts = foci_arg_int(m, TAPS_PARTS) };
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)arg;
    return m->dims.x > 0 ? 1 / (double)m->dims.x : 0;
}

static const foci_tensor_def tensors[] = {
    { .name = "W",
      .help = "from hidden states to logits of the taps",
      .n_dims = 2,
      .shape = shape,
      .init = FOCI_INIT_NORMAL,
      .value_of = variance,
      .stream = 8,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mech_def mech_dynconv = {
    FOCI_SIZED(foci_mech_def),
    .name = "dynconv",
    .summary = "a convolution whose kernel each token makes",
    .formula = "o_i = sum_t softmax(W x_i)_t v_(i+t-left)",
    .source = "Wu et al., Pay less attention, 2019",
    .cost = "time n width (dim + dim_x), memory width",
    .args = taps_args,
    .n_args = N_ELEMENTS(taps_args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_POSITIONAL,
    .reads = FOCI_READ_V | FOCI_READ_X,
    .no_cross = "a row is its position",
    .refuse = taps_refuse,
    .positional = positional,
};
