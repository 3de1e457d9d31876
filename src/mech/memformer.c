/* memformer.c -- slots that tokens read, and that every segment writes.
 *
 *     o_i = sum_t softmax_t(s q_i.m_t) m_t         slots as they were before i's segment
 *     m_t <- (m' + beta_t)/|m' + beta_t|,  m' = softmax((s/tau) m_t.[m_t; K]) [m_t; V]
 *
 * with K and V of the segment, after each that is full; m_t = beta_t/|beta_t| where a
 * sequence begins, that is in every forward pass; states keep slots from step to step.
 * Wu, Lan, Qian, Gu, Geramifard and Yu, "Memformer: a memory-augmented transformer for
 * sequence modeling" (2022).  Causal always.  Time O(n slots dim), memory O(slots dim).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { SLOTS, SEGMENT, TAU };

static const foci_arg_def args[] = {
    [SLOTS] = { .name = "slots", .preset = 16, .min = 1, .max = 4096, .help = "slots" },
    [SEGMENT] = { .name = "segment",
                  .preset = 64,
                  .min = 1,
                  .max = INT32_MAX,
                  .help = "tokens between two writings" },
    [TAU] = { .name = "tau",
              .preset = 0.25,
              .min = 1e-6,
              .max = 1e6,
              .real = true,
              .help = "temperature of writing" },
};

static void slots(const foci_mech *m, foci_memformer *r)
{
    r->slots = foci_arg_int(m, SLOTS);
    r->segment = foci_arg_int(m, SEGMENT);
    r->tau = m->arg[TAU];
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (m->dims.qk == m->dims.v) return false;
    snprintf(why, cap,
             "slots are keys and values at once, so the widths must be the same: "
             "keys have %lld, values %lld",
             (long long)m->dims.qk, (long long)m->dims.v);
    return true;
}

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    shape[0] = (int64_t)arg[SLOTS];
    shape[1] = m->dims.qk;
}

static const foci_tensor_def tensors[] = {
    { .name = "beta",
      .help = "where slots start and are drawn to",
      .n_dims = 2,
      .shape = shape,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = 7,
      .keep = FOCI_KEEP_TRAINED },
};

const foci_mech_def mech_memformer = {
    FOCI_SIZED(foci_mech_def),
    .name = "memformer",
    .summary = "slots that tokens read and segments write",
    .formula = "o_i = softmax(s q_i M^T) M",
    .source = "Wu et al., Memformer: a memory-augmented transformer, 2022",
    .cost = "time n slots dim, memory slots dim",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_MEMFORMER,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .no_cross = "queries and keys are cut into the same segments",
    .refuse = refuse,
    .memformer = slots,
};
