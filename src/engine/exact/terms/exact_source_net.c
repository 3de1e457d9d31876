/* exact_source_net.c -- small nets of each token, with rows as lanes, and their
 * gradients.
 *
 * They are evaluated in floats for all dtypes: they cost as much as the rows of one
 * product, and a whole row of logits depends on their hidden values.
 */
#include <string.h>

#include "engine/exact/exact.h"

void net_layer_apply(const struct net_layer *l, const float *in, float *out)
{
    for (int c = 0; c < l->out; c++)
        for (int i = 0; i < LANES; i++)
            out[c * LANES + i] = l->b[c];
    l->k->gemm_f32(out, LANES, l->w, 1, l->out, in, LANES, l->out, LANES, l->in, 1);
}

void net_layer_back(const struct net_layer *l, const float *d_out, float *d_in, bool add)
{
    l->k->gemm_f32(d_in, LANES, l->w, l->out, 1, d_out, LANES, l->in, LANES, l->out,
                   add);
}

void net_layer_params(const struct net_layer *l, const float *in, int64_t ld,
                      const float *d_out, struct source_scratch *r, float *dw, float *db)
{
    const int64_t      wide = round_up(l->out, 16);
    _Alignas(64) float ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    memset(r->transposed, 0, (size_t)(LANES * wide) * sizeof *r->transposed);
    l->k->store_cols(r->transposed, wide, FOCI_F32, d_out, ones, LANES, l->out);
    for (int at = 0; at < l->in; at += LANES) {
        const int m = (int)min64(LANES, l->in - at);
        l->k->gemm_f32(r->strip, wide, in + at, 1, ld, r->transposed, wide, m,
                       (int)wide, LANES, 0);
        for (int i = 0; i < m; i++)
            for (int c = 0; c < l->out; c++)
                dw[(int64_t)(at + i) * l->out + c] += r->strip[i * wide + c];
    }
    l->k->row_sums(db, d_out, l->out, NULL);
}

struct net_layer exact_net_first(const struct exact *x, const struct source_net *n,
                                 int64_t h)
{
    const float *params = x->io->params;
    return (struct net_layer){ x->k, params + n->w1 + h * n->x * n->hidden,
                               params + n->b1 + h * n->hidden, n->x, n->hidden };
}

struct net_layer exact_net_second(const struct exact *x, const struct source_net *n,
                                  int64_t h)
{
    const float *params = x->io->params;
    return (struct net_layer){ x->k, params + n->w2 + h * n->hidden * n->out,
                               params + n->b2 + h * n->out, n->hidden, n->out };
}

void exact_net_hidden(const struct exact *x, const struct source_net *n, int64_t h,
                      struct source_scratch *r)
{
    const struct net_layer first = exact_net_first(x, n, h);

    net_layer_apply(&first, r->xt, r->h);
    for (int64_t i = 0; i < (int64_t)n->hidden * LANES; i++)
        r->h[i] = r->h[i] <= 0 ? 0 : r->h[i];
}
