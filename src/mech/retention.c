/* retention.c -- weights that fade with the distance, each head at its own pace.
 *
 *     A_ij = s q_i.k_j lam^|i-j|,   or lam^|i-j| alone (content=0)
 *
 * Sun et al., "Retentive network: a successor to transformer for large language models"
 * (2023).  norm=sum divides a row by its sum, norm=retnet by t = sqrt(sum lam^|i-j|) and
 * then by max(|sum/t|, 1).  Time O(n dim^2), memory O(dim^2).
 */
#include <math.h>

#include "mech/mech.h"

enum { DECAY, CONTENT, NORM, LEARN };
enum { NONE, SUM, RETNET };

static const foci_arg_def args[] = {
    [DECAY] = { .name = "decay",
                .max = 1,
                .real = true,
                .help = "lam; 0: 1 - 2^(-5-h) in head h" },
    [CONTENT] = { .name = "content",
                  .preset = 1,
                  .max = 1,
                  .help = "0: weights know nothing of q and k" },
    [NORM] = { .name = "norm",
               .choices = "none|sum|retnet",
               .help = "what rows are divided by" },
    [LEARN] = { .name = "learn",
                .max = 1,
                .help = "1: lam = 1/(1 + e^-theta) is trained" },
};

static double decay(const foci_mech *m, int64_t head, int64_t heads)
{
    (void)heads;
    return m->arg[DECAY] > 0 ? m->arg[DECAY] : 1 - exp2(-5 - (double)head);
}

static void theta_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = (int64_t)arg[LEARN];
}

/* A decay of 1 would be infinite; what follows is 1 in single precision. */
static double theta(const foci_mech *m, int64_t head, int64_t heads)
{
    const double lam = decay(m, head, heads), most = 40;
    return lam < 1 ? fmin(log(lam / (1 - lam)), most) : most;
}

static const foci_tensor_def tensors[] = {
    { .name = "theta",
      .help = "lam = 1/(1 + e^-theta)",
      .n_dims = 1,
      .shape = theta_shape,
      .by_head = theta,
      .keep = FOCI_KEEP_TRAINED },
};

static void linear(const foci_mech *m, foci_linear *l)
{
    static const foci_linear_norm norms[] = {
        [NONE] = FOCI_LINEAR_NORM_NONE, [SUM] = FOCI_LINEAR_NORM_SUM, [RETNET] = FOCI_LINEAR_NORM_RETNET
    };

    l->feature = m->arg[CONTENT] > 0 ? FOCI_FEATURE_ROW : FOCI_FEATURE_ONE;
    l->norm = norms[foci_arg_int(m, NORM)];
    l->decays = true;
}

const foci_mech_def mech_retention = {
    FOCI_SIZED(foci_mech_def),
    .name = "retention",
    .summary = "weights that fade with the distance, as a recurrence",
    .formula = "A_ij = s q_i.k_j lam^|i-j|",
    .source = "Sun et al., Retentive network, 2023",
    .cost = "time n dim^2, memory dim^2",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_LINEAR,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .no_cross = "the distance of a query and a key counts",
    .linear = linear,
    .decay = decay,
};
