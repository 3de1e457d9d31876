/* lowrank.c -- softmax over logits of low rank.
 *
 *     x_ij = s (q_i Uq).(k_j Uk),   s = 1/sqrt(rank)
 *
 * Learned projections of each head's queries and keys to fewer elements; the values keep
 * theirs.  Time O(n^2 (rank + dim)), memory O(n).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { RANK };

static const foci_arg_def args[] = {
    [RANK] = { .name = "rank",
               .max = 65536,
               .help = "elements that are left; 0: half of them" },
};

static int64_t width(const foci_mech *m)
{
    const int64_t rank = foci_arg_int(m, RANK);
    return rank ? rank : (m->dims.qk + 1) / 2;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (width(m) <= m->dims.qk) return false;
    snprintf(why, cap, "rank=%lld is more than the %lld elements of q and k",
             (long long)width(m), (long long)m->dims.qk);
    return true;
}

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = m->dims.qk;
    shape[1] = width(m);
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)arg;
    return 1 / (double)m->dims.qk;
}

#define PROJECTION(n, text)                                                            \
    {                                                                                  \
        .name = n, .help = text, .n_dims = 2, .shape = shape,                          \
        .init = FOCI_INIT_NORMAL, .value_of = variance, .stream = 3,                   \
        .keep = FOCI_KEEP_TRAINED                                                      \
    }

static const foci_tensor_def tensors[] = {
    PROJECTION("Uq", "projection of queries"),
    PROJECTION("Uk", "projection of keys"),
};

const foci_mech_def mech_lowrank = {
    FOCI_SIZED(foci_mech_def),
    .name = "lowrank",
    .summary = "softmax over logits of low rank",
    .formula = "A = softmax(s (Q Uq)(K Uk)^T)",
    .source = "Hu et al., LoRA: low-rank adaptation of large language models, 2022",
    .cost = "time n^2 (rank + dim), memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .map = FOCI_MAP_PROJECT,
    .stochastic = true,
    .refuse = refuse,
    .width = width,
};
