/* lightconv.c -- a convolution along the sequence, with one normalised kernel.
 *
 *     o_ic = sum_t w_t v_(i+t-left)c,   w = softmax(W)
 *
 * left is k - 1 where causal, else ceil((k+1)/2) - 1; places beyond the ends count as 0.
 * Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic
 * convolutions" (2019).  Time O(n k dim), memory O(k).
 */
#include "mech/taps.h"

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = (int64_t)arg[TAPS_PARTS];
    shape[1] = (int64_t)arg[TAPS_WIDTH];
}

static void positional(const foci_mech *m, int64_t head, foci_positional *p)
{
    (void)head;
    *p = (foci_positional){ .pattern = FOCI_PATTERN_TAPS,
                            .width = foci_arg_int(m, TAPS_WIDTH),
                            .parts = foci_arg_int(m, TAPS_PARTS) };
}

static const foci_tensor_def tensors[] = {
    { .name = "W",
      .help = "logits of the taps",
      .n_dims = 2,
      .shape = shape,
      .stream = 8,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mech_def mech_lightconv = {
    FOCI_SIZED(foci_mech_def),
    .name = "lightconv",
    .summary = "a convolution with one normalised kernel",
    .formula = "o_i = sum_t softmax(W)_t v_(i+t-left)",
    .source = "Wu et al., Pay less attention, 2019",
    .cost = "time n width dim, memory width",
    .args = taps_args,
    .n_args = N_ELEMENTS(taps_args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_POSITIONAL,
    .reads = FOCI_READ_V,
    .no_cross = "a row is its position",
    .refuse = taps_refuse,
    .positional = positional,
};
