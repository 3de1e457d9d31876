/* exact_source_net_back.c -- gradients of score sources once all tiles are done:
 * through the nets of tokens, to parameters and hidden states. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"
#include "engine/exact/terms/exact_source_back.h"

/*
 * Through the nets
 */

/* The dot product of n columns of gradients and their values.  Lanes that saw nothing
 * have no gradient, whatever their elements are. */
static double dot(const float *d, const float *of, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n * LANES; i++)
        sum += d[i] != 0 ? (double)d[i] * (double)of[i] : 0;
    return sum;
}

/* Whether lane i of n columns has a gradient. */
static bool any_of(const float *d, int64_t n, int i)
{
    bool any = false;

    for (int64_t c = 0; c < n; c++)
        any = any || d[c * LANES + i] != 0;
    return any;
}

/* Lanes without a gradient must not contribute their hidden states either, where these
 * are not finite. */
static void clear_blind(const struct exact *x, const float *dq, const float *dab,
                        struct source_scratch *r)
{
    const struct sources *s = &x->source;

    if (exact_finite(x, r->x, s->ldx, (int)x->p->dim_x, LANES)) return;
    for (int i = 0; i < LANES; i++)
        if (!any_of(dq, s->ldw, i) && !any_of(dab, s->a.out + s->b.out, i))
            memset(r->x + (int64_t)i * s->ldx, 0, (size_t)s->ldx * sizeof *r->x);
    x->k->pack_cols_f32(r->xt, r->x, s->ldx, LANES, (int)x->p->dim_x);
}

/* From the gradient d of hidden values r->h through relu to the first layer. */
static void hidden_back(const struct exact *x, const struct source_net *n, int64_t h,
                        struct source_scratch *r, float *d, float *dnet)
{
    const struct net_layer first = exact_net_first(x, n, h);

    for (int64_t i = 0; i < (int64_t)n->hidden * LANES; i++)
        d[i] = r->h[i] > 0 ? d[i] : 0;
    net_layer_params(&first, r->x, x->source.ldx, d, r, dnet,
                     dnet + (int64_t)n->x * n->hidden);
}

/* One of the nets of outer, from the gradient of its output in r->d_out. */
static void net_back(const struct exact *x, const struct source_net *n, int64_t h,
                     struct source_scratch *r, float *d, float *dnet)
{
    const struct net_layer second = exact_net_second(x, n, h);
    const int64_t          ld = round_up(n->hidden, 16);
    float                 *dw2 = dnet + source_first_floats(n);
    _Alignas(64) float     ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    net_layer_back(&second, r->d_out, d, false);
    x->k->store_cols(r->hidden, ld, FOCI_F32, r->h, ones, LANES, n->hidden);
    net_layer_params(&second, r->hidden, ld, r->d_out, r, dw2,
                     dw2 + (int64_t)n->hidden * n->out);
    hidden_back(x, n, h, r, d, dnet);
}

static void outer_back(const struct exact *x, int64_t h, const struct source_back *k,
                       int64_t at, struct source_scratch *r, float *dnets)
{
    const struct sources *s = &x->source;
    const float *da = source_dab_of(x, k, 0, at), *db = da + (int64_t)s->a.out * LANES;
    const struct net_layer second = exact_net_second(x, &s->a, h);
    float      *d = k->dh + at * source_dh_floats(x) + (int64_t)s->net.hidden * LANES;
    const float weight = (float)s->weight[h][SOURCE_OUTER];

    exact_net_hidden(x, &s->a, h, r);
    net_layer_apply(&second, r->h, r->d_out);
    k->dweight[h][SOURCE_OUTER] += dot(da, r->d_out, s->a.out);
    for (int64_t i = 0; i < (int64_t)s->a.out * LANES; i++)
        r->d_out[i] = weight * da[i];
    net_back(x, &s->a, h, r, d, dnets);
    exact_net_hidden(x, &s->b, h, r);
    memcpy(r->d_out, db, (size_t)s->b.out * LANES * sizeof *db);
    net_back(x, &s->b, h, r, d + (int64_t)s->a.hidden * LANES,
             dnets + source_net_floats(&s->a));
}

/* dr1[len_q][rank] */
static void factors_back(const struct exact *x, const struct exact_block *b,
                         const struct source_back *k, const float *dq, float *dr1)
{
    const int64_t h = b->h - x->head0;
    const float   weight = (float)x->source.weight[h][SOURCE_FACTORS];
    const int     rank = x->source.rank;

    for (int i = b->r0; i < b->r1; i++) {
        const float *row = exact_source_factor(x, h, b->pos + i);

        for (int c = 0; c < rank; c++) {
            const float d = dq[c * LANES + i];
            dr1[(b->pos + i) * rank + c] += weight * d;
            if (d != 0) k->dweight[h][SOURCE_FACTORS] += (double)d * (double)row[c];
        }
    }
}

static void block_back(const struct exact *x, const struct exact_block *b,
                       const struct source_back *k, struct source_scratch *r,
                       float *dnets)
{
    const struct sources *s = &x->source;
    const int64_t         h = b->h - x->head0, first = source_first_floats(&s->net);
    const int64_t         both = source_net_floats(&s->a) + source_net_floats(&s->b);
    const float          *dq = source_dq_of(x, k, 0, b->at);
    float                *dh = k->dh + b->at * source_dh_floats(x);

    if (exact_source_nets(x)) {
        exact_source_x(x, b, r);
        clear_blind(x, dq, source_dab_of(x, k, 0, b->at), r);
    }
    if (s->rank) factors_back(x, b, k, dq, dnets + first + both);
    if (s->net.hidden) {
        const float *d = dq + (int64_t)s->rank * LANES;
        const float  weight = (float)s->weight[h][SOURCE_NET];

        exact_net_hidden(x, &s->net, h, r);
        k->dweight[h][SOURCE_NET] += dot(d, r->h, s->net.hidden);
        for (int64_t i = 0; i < (int64_t)s->net.hidden * LANES; i++)
            dh[i] = weight * d[i];
        hidden_back(x, &s->net, h, r, dh, dnets);
    }
    if (s->a.out) outer_back(x, h, k, b->at, r, dnets + first);
}

static const float *add_to(float *to, const float *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += d[i];
    return d + n;
}

/* Add the gradients of a head's nets, once for all blocks. */
static void add_nets(const struct exact *x, int64_t h, const float *d, float *dparams)
{
    const struct sources          *s = &x->source;
    const struct source_net *const nets[] = { &s->net, &s->a, &s->b };

    for (int i = 0; i < 3; i++) {
        const struct source_net *n = nets[i];
        const int64_t            first = (int64_t)n->x * n->hidden,
                      second = (int64_t)n->hidden * n->out;

        if (!n->hidden) continue;
        d = add_to(dparams + n->w1 + h * first, d, first);
        d = add_to(dparams + n->b1 + h * n->hidden, d, n->hidden);
        if (i == 0) continue;
        d = add_to(dparams + n->w2 + h * second, d, second);
        d = add_to(dparams + n->b2 + h * n->out, d, n->out);
    }
    if (s->rank)
        add_to(dparams + (exact_source_factor(x, h, 0) - x->io->params), d,
               x->p->len_q * s->rank);
}

/* Gradients of R2, W2 and b2 of a head. */
static void keys_back(const struct exact *x, int64_t h, const struct source_back *k,
                      float *dparams)
{
    const struct sources *s = &x->source;
    const int64_t         tile0 = h * s->tiles * TILE;
    const float           weight = (float)s->weight[h][SOURCE_NET];

    for (int64_t j = 0; s->rank && j < x->p->len_k; j++)
        for (int c = 0; c < s->rank; c++)
            dparams[s->r2 + (exact_source_factor(x, h, j) - x->io->params - s->r1) + c] +=
                k->dk[(tile0 + j) * s->ldw + c];
    for (int64_t j = 0; s->net.hidden && j < x->p->len_k; j++) {
        const int64_t b2 = s->net.b2 + h * s->net.out + j;
        const double  sum = k->db2[tile0 + j];

        for (int c = 0; c < s->net.hidden; c++)
            dparams[s->net.w2 + (h * s->net.hidden + c) * s->net.out + j] +=
                k->dk[(tile0 + j) * s->ldw + s->rank + c];
        dparams[b2] += weight * (float)sum;
        k->dweight[h][SOURCE_NET] += sum * (double)x->io->params[b2];
    }
}

void exact_source_back_head(const struct exact *x, int64_t head,
                            const struct source_back *k, struct source_scratch *r,
                            float *dparams)
{
    float *dnets = k->dnets + head * source_nets_floats(x);

    for (int64_t i = 0; i < exact_fold_blocks(x); i++) {
        const struct exact_block b = exact_fold_block(x, head, i);
        block_back(x, &b, k, r, dnets);
    }
    if (!dparams) return;
    add_nets(x, head, dnets, dparams);
    keys_back(x, head, k, dparams);
}

/* xt (+)= the gradient of x through one net. */
static const float *net_dx(const struct exact *x, const struct source_net *n, int64_t h,
                           const float *dh, float *xt, bool add)
{
    const struct net_layer first = exact_net_first(x, n, h);

    if (n->hidden) net_layer_back(&first, dh, xt, add);
    return dh + (int64_t)n->hidden * LANES;
}

void exact_source_back_dx(const struct exact *x, int64_t qt, const struct source_back *k,
                          struct source_scratch *r, void *dx)
{
    const struct sources    *s = &x->source;
    const struct exact_block b = exact_block(x, 0, qt);
    const foci_layout       *l = &x->p->x;
    const int d = (int)x->p->dim_x, n = b.r1 - b.r0, dtype = (int)x->p->dtype;
    char     *rows = (char *)dx + (size_t)(b.seq->s.b * l->batch +
                                       (b.seq->s.q0 + b.i0 + b.r0) * l->row) *
                                  foci_dtype_bytes(x->p->dtype);
    float             *old = r->x + (int64_t)b.r0 * s->ldx;
    _Alignas(64) float ones[LANES];

    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    for (int64_t h = 0; h < x->heads; h++) {
        const float *dh = k->dh + (h * x->max.qt + qt) * source_dh_floats(x);

        dh = net_dx(x, &s->net, h, dh, r->xt, h > 0);
        dh = net_dx(x, &s->a, h, dh, r->xt, h > 0 || s->net.hidden);
        net_dx(x, &s->b, h, dh, r->xt, true);
    }
    x->k->store_cols(r->x, s->ldx, FOCI_F32, r->xt, ones, LANES, d);
    x->k->load_rows(r->xt, s->ldx, rows, l->row, dtype, n, d);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            old[(int64_t)i * s->ldx + c] += r->xt[(int64_t)i * s->ldx + c];
    x->k->store_rows(rows, l->row, dtype, old, s->ldx, 1.0f, n, d);
}

void exact_source_back_weights(const struct exact *x, const struct source_back *k,
                               int64_t h, double d_qk, float *dparams)
{
    const struct sources *s = &x->source;
    const unsigned        from = s->kinds | (s->qk ? FOCI_SOURCE_QK : 0);
    const int             n = __builtin_popcount(from);
    double                mean = 0;
    int64_t               at = s->mix + h * n;

    if (!s->kinds || s->mix < 0 || !s->weight) return;
    const double *weight = s->weight[h];
    k->dweight[h][SOURCE_QK] = d_qk;
    for (int64_t part = 0; part < k->parts; part++)
        k->dweight[h][SOURCE_TABLE] += k->dtable[part * x->heads + h];
    for (int i = 0; i < N_SOURCES; i++)
        mean += weight[i] * k->dweight[h][i];
    for (int i = 0; i < N_SOURCES; i++)
        if (from >> i & 1)
            dparams[at++] += (float)(weight[i] * (k->dweight[h][i] - mean));
}
