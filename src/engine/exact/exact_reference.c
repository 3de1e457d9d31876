/* exact_reference.c -- references of the softmax, and what is stored of a finished
 * block.
 *
 * Weights are exponentials relative to a reference of each row.  Where the product of
 * the norms bounds the logits closely enough, the bound serves as reference: no maximum
 * is taken and nothing is ever rescaled.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact/exact_forward.h"
#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_score.h"

void exact_max_key_norms(const struct exact *x, const struct exact_block *b,
                         float *longest)
{
    const int64_t first = b->kv * x->max.kt + b->seq->kt0;
    const bool    causal = x->p->flags & FOCI_FLAG_CAUSAL;
    const int64_t whole =
        causal ? max64(0, min64(b->seq->n_kt, (b->pos + 1) / TILE))
               : b->seq->n_kt; /* tiles that every lane sees completely */
    float top = 0;

    for (int64_t t = 0; t < whole; t++)
        top = x->packed.max_norm[first + t] > top ? x->packed.max_norm[first + t] : top;
    int64_t j = whole * TILE; /* keys whose norms are in `top` */
    for (int r = 0; r < LANES; r++) {
        const int64_t end = causal ? min64(b->seq->s.nk, b->pos + r + 1) : j;
        for (; j < end; j++)
            top = x->packed.norms[first * TILE + j] > top
                      ? x->packed.norms[first * TILE + j]
                      : top;
        longest[r] = top;
    }
}

/* Bounds of the logits, from bounds of the products and the largest biases. */
static void bounds_of(const struct exact *x, const float *product, const float *bias,
                      float *bound)
{
    const float cap = (float)x->score->cap;

    for (int r = 0; r < LANES; r++)
        bound[r] = product[r] + bias[r];
    for (int r = 0; r < LANES && cap > 0; r++)
        bound[r] = (float)exact_logit_unit(x) * cap * tanhf(bound[r] / cap);
}

/* Set the references of the lanes whose bound is neither too far above their logits nor
 * below the sink; true: of all. */
static bool hold_bounds(struct forward_pass *p, const float *product,
                        const float *bound, float sink)
{
    const struct exact *x = p->x;
    const float         most = x->kind == FOCI_WEIGH_L2NORM ? 15 : 30;
    const float         unit = x->score->cap > 0 ? (float)exact_logit_unit(x) : 1;
    int                 held = 0;

    for (int r = 0; r < LANES; r++) {
        const int ok = (product[r] * unit <= most) & (fabsf(bound[r]) <= FLT_MAX) &
                       (sink - bound[r] <= most);

        p->m[r] = ok ? bound[r] : sink;
        held += ok;
    }
    return held == LANES;
}

/* |q||k| bounds the products of a row, and the largest bias is that of a key it sees: a
 * bound not far above the logits serves as reference, and is never raised.  Other rows
 * start from nothing.  The choice is made for each lane, from the keys it sees:
 * anything else would make its result depend on other rows. */
bool forward_references(struct forward_pass *p, const float *norms, const float *extra)
{
    const struct exact *x = p->x;
    const float        *f = x->score->cap > 0 ? p->plain : p->f;
    const bool bounds = x->support->all && !x->stage->n_levels && !exact_has_bias(x) &&
                        !exact_source_scores(x);
    float longest[LANES], product[LANES], bound[LANES], bias[LANES] = { 0 };
    float sink = -INFINITY;
    bool  fixed = false;

    if (x->score->sink >= 0)
        sink = x->io->params[x->score->sink + p->b->h - x->head0] * (float)LOG2_E;
    for (int r = 0; r < LANES; r++)
        p->m[r] = sink;
    if (bounds) {
        exact_max_key_norms(x, p->b, longest);
        if (x->position.rel) exact_position_max_bias(x, p->b, bias);
        for (int r = 0; r < LANES; r++)
            product[r] = fabsf(f[r]) * (norms[r] * longest[r] + extra[r]);
        bounds_of(x, product, bias, bound);
        fixed = hold_bounds(p, product, bound, sink);
    }
    for (int r = 0; r < LANES; r++)
        p->l[r] = sink == -INFINITY ? 0 : exp2f(sink - p->m[r]);
    return fixed;
}

/* m and log2(l) may be large and of opposite sign, so they are added in double. */
void exact_store_norms(const struct exact *x, const struct exact_block *b,
                       const float *m, const float *l, const float *share, float *saved)
{
    float norm[LANES];

    for (int r = 0; r < LANES; r++) {
        const double half = x->kind == FOCI_WEIGH_L2NORM ? 0.5 : 1;
        if (x->kind == FOCI_WEIGH_RELU2)
            norm[r] = share[r];
        else
            norm[r] = l[r] == 0 ? INFINITY : (float)(m[r] + log2((double)l[r]) * half);
    }
    if (saved)
        memcpy(saved + exact_saved_at(x, b) + b->r0, norm + b->r0,
               (size_t)(b->r1 - b->r0) * sizeof *norm);
    if (!x->io->lse) return;

    float *lse = x->io->lse + (b->seq->s.b * x->p->heads + b->h) * x->p->len_q +
                 b->seq->s.q0 + b->i0;
    for (int r = b->r0; r < b->r1; r++) {
        if (x->kind == FOCI_WEIGH_RELU2)
            lse[r] = norm[r] == 0 ? -INFINITY : -logf(norm[r]);
        else
            lse[r] = norm[r] == INFINITY ? -INFINITY : norm[r] / (float)LOG2_E;
    }
}

void forward_store(struct forward_pass *p, const int64_t *visible, float *saved)
{
    const struct exact *x = p->x;
    _Alignas(64) float  factor[LANES];

    if (x->kind == FOCI_WEIGH_RELU2) exact_shares(x, visible, factor);
    for (int r = 0; r < LANES && x->kind != FOCI_WEIGH_RELU2; r++) {
        const float l = p->l[r];
        factor[r] = l == 0 ? 0 : 1 / (x->kind == FOCI_WEIGH_L2NORM ? sqrtf(l) : l);
    }
    for (int64_t f = 0; (saved || x->io->lse) && f < p->fold; f++) {
        const struct exact_block b = exact_fold_member(p->b, f);
        exact_store_norms(x, &b, p->m, p->l, factor, saved);
    }
    for (int r = 0; r < LANES && x->dropout.on; r++)
        factor[r] *= x->dropout.scale;
    for (int64_t f = 0; f < p->fold; f++) {
        const struct exact_block b = exact_fold_member(p->b, f);
        exact_store_block(x, &b, x->io->o, &x->p->o, forward_sum(p, f), x->d.v,
                          x->d.ldv, factor, p->r->tile);
    }
}
