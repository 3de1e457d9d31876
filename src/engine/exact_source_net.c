/* exact_source_net.c -- small nets of each token, rows as lanes, and the way back.
 *
 * They are taken in floats whatever the tensors are: they cost as much as the rows of
 * one product, and the whole row of logits rests on what is inside.
 */
#include <string.h>

#include "engine/exact.h"

void layer_apply(const struct layer *l, const float *in, float *out)
{
    for (int c = 0; c < l->out; c++)
        for (int i = 0; i < LANES; i++)
            out[c * LANES + i] = l->b[c];
    l->k->gemm_f32(out, LANES, l->w, 1, l->out, in, LANES, l->out, LANES, l->in, 1);
}

void layer_back(const struct layer *l, const float *d_out, float *d_in, bool add)
{
    l->k->gemm_f32(d_in, LANES, l->w, l->out, 1, d_out, LANES, l->in, LANES, l->out,
                   add);
}

void layer_params(const struct layer *l, const float *in, int64_t ld,
                  const float *d_out, struct source_room *r, float *dw, float *db)
{
    const int64_t      wide = round_up(l->out, 16);
    _Alignas(64) float ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    memset(r->turned, 0, (size_t)(LANES * wide) * sizeof *r->turned);
    l->k->store_cols(r->turned, wide, FOCI_F32, d_out, ones, LANES, l->out);
    for (int at = 0; at < l->in; at += LANES) {
        const int m = (int)min64(LANES, l->in - at);
        l->k->gemm_f32(r->strip, wide, in + at, 1, ld, r->turned, wide, m, (int)wide,
                       LANES, 0);
        for (int i = 0; i < m; i++)
            for (int c = 0; c < l->out; c++)
                dw[(int64_t)(at + i) * l->out + c] += r->strip[i * wide + c];
    }
    l->k->row_sums(db, d_out, l->out, NULL);
}

struct layer exact_net_first(const struct exact *x, const struct source_net *n,
                             int64_t h)
{
    const float *params = x->io->params;
    return (struct layer){ x->k, params + n->w1 + h * n->x * n->inside,
                           params + n->b1 + h * n->inside, n->x, n->inside };
}

struct layer exact_net_second(const struct exact *x, const struct source_net *n,
                              int64_t h)
{
    const float *params = x->io->params;
    return (struct layer){ x->k, params + n->w2 + h * n->inside * n->out,
                           params + n->b2 + h * n->out, n->inside, n->out };
}

void exact_net_inside(const struct exact *x, const struct source_net *n, int64_t h,
                      struct source_room *r)
{
    const struct layer first = exact_net_first(x, n, h);

    layer_apply(&first, r->xt, r->h);
    for (int64_t i = 0; i < (int64_t)n->inside * LANES; i++)
        r->h[i] = r->h[i] <= 0 ? 0 : r->h[i];
}
