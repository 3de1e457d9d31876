/* xl.c -- softmax with a memory before the keys.
 *
 *     o_i = sum_j w_ij v_j,   w_ij = e^x_ij / sum_t e^x_it,   k = [memory; current]
 *
 * Dai et al., "Transformer-XL: attentive language models beyond a fixed-length context"
 * (2019), section 3.2.  Queries come from the current segment alone; the memory, the
 * first keys, takes no gradient.  Its relative positions are the modifier txl.  Time
 * O(n (n + M) dim), memory O(n).
 */
#include <inttypes.h>
#include <stdio.h>

#include "mech/mech.h"

enum { MEMORY };

static const foci_arg_def args[] = {
    [MEMORY] = { .name = "memory",
                 .max = INT32_MAX,
                 .help = "leading keys that are memory; 0: as many as there are keys "
                         "more than queries" },
};

static int64_t memory(const foci_mech *m)
{
    const int64_t more = m->dims.len - m->dims.len_q;

    if (foci_arg_int(m, MEMORY)) return foci_arg_int(m, MEMORY);
    return more > 0 ? more : 0;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (memory(m) <= m->dims.len) return false;
    snprintf(why, cap, "memory=%" PRId64 ", but there are only %" PRId64 " keys",
             memory(m), m->dims.len);
    return true;
}

const foci_mech_def mech_xl = {
    FOCI_SIZED(foci_mech_def),
    .name = "xl",
    .summary = "softmax with a memory before the keys, which takes no gradient",
    .formula = "w_ij = e^x_ij / sum_t e^x_it, k = [memory; current]",
    .source = "Dai et al., Transformer-XL, 2019",
    .cost = "time n (n + M) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .refuse = refuse,
    .memory = memory,
};
