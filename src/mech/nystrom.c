/* nystrom.c -- softmax attention through a few landmarks.
 *
 *     O = softmax(s Q K~^T) softmax(s Q~ K~^T)^+ softmax(s Q~ K^T) V
 *
 * Q~ and K~ are means of equal runs of queries and of keys.  Xiong et al.,
 * "Nystromformer: a Nystrom-based algorithm for approximating self-attention" (2021).
 * The pseudo-inverse comes from an iteration of the third order, or exactly (iters=0).
 * Landmarks have tokens of all positions, so this cannot be causal.
 * Time O(n landmarks dim + landmarks^3), memory O(landmarks n).
 */
#include "mech/mech.h"

enum { LANDMARKS, ITERS, CONV };

static const foci_arg_def args[] = {
    [LANDMARKS] = { .name = "landmarks",
                    .preset = 64,
                    .min = 1,
                    .max = 4096,
                    .help = "means of queries and of keys, at most as many as tokens" },
    [ITERS] = { .name = "iters",
                .preset = 6,
                .max = 64,
                .help = "steps of the inverse; 0: exactly" },
    [CONV] = { .name = "conv",
               .max = 4096,
               .help = "width of a convolution of the values that is added; 0: none" },
};

static void landmarks(const foci_mech *m, foci_nystrom *l)
{
    l->count = foci_arg_int(m, LANDMARKS);
    l->iters = foci_arg_int(m, ITERS);
    l->width = foci_arg_int(m, CONV);
}

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = (int64_t)arg[CONV];
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)m;
    return arg[CONV] > 0 ? 1 / arg[CONV] : 0;
}

static const foci_tensor_def tensors[] = {
    { .name = "W",
      .help = "taps of the convolution",
      .n_dims = 1,
      .shape = shape,
      .init = FOCI_INIT_NORMAL,
      .value_of = variance,
      .stream = 8,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mech_def mech_nystrom = {
    FOCI_SIZED(foci_mech_def),
    .name = "nystrom",
    .summary = "softmax attention through a few landmarks",
    .formula = "O = softmax(s Q K~^T) softmax(s Q~ K~^T)^+ softmax(s Q~ K^T) V",
    .source = "Xiong et al., Nystromformer, 2021",
    .cost = "time n landmarks dim + landmarks^3, memory landmarks n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_NYSTROM,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .no_causal = "landmarks are means of tokens of all positions",
    .nystrom = landmarks,
};
