/* linear_describe.c -- cost and printing of a stage of the linear engine. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/linear/linear.h"

/* Pairs of one head of one sequence of full length: 1 + 2 + ... where causal. */
static double count_pairs(const foci_problem *p)
{
    const double  nq = (double)p->len_q, nk = (double)p->len_k;
    const int64_t first = max64(1, p->len_k - p->len_q + 1);

    if (!(p->flags & FOCI_FLAG_CAUSAL)) return nq * nk;
    return ((double)first + nk) / 2 * (nk - (double)first + 1);
}

static double feature_flops(const struct linear *x)
{
    const double m = (double)x->m, d = (double)x->dq;

    switch (x->l->feature) {
    case FOCI_FEATURE_EXP: return 2 * m * d / (x->l->both ? 2 : 1);
    case FOCI_FEATURE_TRIG: return m * d;
    default: return m;
    }
}

/* Products of sums with rows, of pairs inside chunks, and of projections to
 * features. */
void linear_cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const foci_problem *p = &plan->p;
    struct linear       x;

    linear_geometry(&x, plan, s);
    const double times = (double)p->batch * (double)x.heads;
    const double nq = (double)p->len_q, nk = (double)p->len_k;
    const double m = (double)x.m, d = (double)x.dq, dv = (double)x.dv;
    const double el = (double)foci_dtype_bytes(p->dtype);
    const double q_el = el * times * nq,
                 k_el = el * (double)p->batch * (double)x.kv_heads * nk;
    const double intra = x.causal || x.l->decays ? nq * (CHUNK + 1) / 2 : 0;
    const double rows = (nq + nk) * feature_flops(&x);

    c->pairs += times * count_pairs(p);
    c->forward_flops += times * (2 * m * dv * (nq + nk) + 2 * intra * (m + dv) + rows);
    c->backward_flops += times * (2 * m * dv * (2 * nq + 3 * nk) +
                                  2 * intra * (3 * m + 2 * dv) + 3 * rows);
    c->forward_bytes += (q_el + k_el) * (d + dv);
    c->backward_bytes += (q_el + k_el) * 2 * (d + dv) + q_el * dv;
}

static const char *kernel_text(const foci_ctx *ctx, int id, char *text, size_t cap)
{
    const char *level = "";
    const char *name = foci_kernel(ctx, id, &level);

    snprintf(text, cap, "%s (%s)", name, level);
    return text;
}

int linear_describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct linear x;
    char          gemm[64];

    linear_geometry(&x, plan, s);
    kernel_text(plan->ctx,
                x.fused  ? K_chunk_rows
                : x.bf16 ? K_gemm_bf16
                         : K_gemm_f32,
                gemm, sizeof gemm);
    return snprintf(text, cap,
                    "    linear   %d feature%s, %s products; sums of %.4g kB a head; "
                    "chunks of %d in segments of %" PRId64 "\n"
                    "    kernels  %s\n",
                    x.m, x.m == 1 ? "" : "s", x.bf16 ? "bf16" : "f32",
                    (double)x.m * (x.dv + 1 + (x.logs ? 1 : 0)) * sizeof(float) / 1e3,
                    CHUNK, x.segment, gemm);
}
