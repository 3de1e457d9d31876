/* layer_backward.c -- gradients of hidden states and of weights. */
#include <string.h>

#include "layer/layer.h"

static char *row_of(const foci_layer *layer, const void *data, int64_t width,
                    int64_t row)
{
    return (char *)data + (size_t)(row * width) * foci_dtype_bytes(layer->p.dtype);
}

static const char *dy_of(const struct layer_pass *x, int64_t row)
{
    return row_of(x->layer, x->dy, x->layer->p.width, row);
}

/* From dy to the heads, through Wo. */
static void output_back(struct layer_pass *x, const struct layer_run *run)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    const float              *w = layer_tensor(layer, layer->out, x->io.params);
    struct product            back = { .m = run->n,
                                       .n = p->heads * p->value_dim,
                                       .k = p->width,
                                       .fast = p->flags & FOCI_FLAG_FAST };

    x->a[0] = (struct product_part){ (void *)dy_of(x, run->x), p->width, p->width };
    x->b[0] = (struct product_part){ (void *)w, p->width, p->width };
    back.a = (struct matrix){ x->a, 1, p->dtype, false };
    back.b = (struct matrix){ x->b, 1, FOCI_F32, true };
    back.c = (struct matrix){ x->c, layer_out_parts(layer, x->d, run->q, x->c),
                              p->dtype, false };
    product_run(layer->ctx, &back, x->product_work);
}

static void output_weights(struct layer_pass *x, const struct layer_run *run)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    float                    *dw = x->g.dparams + layer->params[layer->out].offset;
    struct product            back = { .m = p->heads * p->value_dim,
                                       .n = p->width,
                                       .k = run->n,
                                       .add = true,
                                       .fast = p->flags & FOCI_FLAG_FAST };

    x->b[0] = (struct product_part){ (void *)dy_of(x, run->x), p->width, p->width };
    x->c[0] = (struct product_part){ dw, p->width, p->width };
    back.a = (struct matrix){ x->a, layer_out_parts(layer, x->at, run->q, x->a),
                              p->dtype, true };
    back.b = (struct matrix){ x->b, 1, p->dtype, false };
    back.c = (struct matrix){ x->c, 1, FOCI_F32, false };
    product_run(layer->ctx, &back, x->product_work);
}

static void from_output(struct layer_pass *x)
{
    const foci_layer *layer = x->layer;

    layer_drop_back(x);
    for (int64_t i = 0; i < x->n_runs; i++) {
        if (!x->runs[i].n) continue;
        output_back(x, &x->runs[i]);
        if (x->g.dparams) output_weights(x, &x->runs[i]);
    }
    if (x->g.dparams && layer->out_bias >= 0)
        layer_sum_rows(x,
                       &(struct layer_sums){ .data = dy_of(x, 0),
                                             .ld = layer->p.width,
                                             .cols = layer->p.width },
                       x->g.dparams + layer->params[layer->out_bias].offset);
}

/* Through all matrices side by side; to floats where transforms add to it. */
static void rows_back(struct layer_pass *x, const struct hidden *r,
                      const struct layer_run *run)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    struct product            back = { .m = run->n,
                                       .n = r->width,
                                       .fast = p->flags & FOCI_FLAG_FAST };
    const bool                plan = layer->reads_x && !r->source;
    int                       heads = 0;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        const int64_t            cols = to->heads * to->dim;

        if (!hidden_gives(r, to) || layer_transform(layer, to)) continue;
        heads = layer_head_parts(layer, x->d, to, run, x->a, heads);
        x->b[back.b.n_parts++] =
            (struct product_part){ (void *)layer_weights(x, to), cols, cols };
        back.k += cols;
    }
    back.a = (struct matrix){ x->a, heads, p->dtype, false };
    back.b = (struct matrix){ x->b, back.b.n_parts, FOCI_F32, true };
    back.c = (struct matrix){ x->c, 1, x->dx_sum ? FOCI_F32 : p->dtype, false };
    x->c[0] = (struct product_part){ x->dx_sum ? (void *)(x->dx_sum + run->x * r->width)
                                               : row_of(layer, r->d, r->width, run->x),
                                     r->width, r->width };
    if (plan && !x->dx_sum) back.residual = row_of(layer, x->dx_plan, r->width, run->x);
    product_run(layer->ctx, &back, x->product_work);
}

static void transforms_back(struct layer_pass *x, const struct hidden *r,
                            const struct layer_run *run)
{
    const foci_layer *layer = x->layer;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        const struct frozen     *f = layer_transform(layer, to);
        const struct layer_view *d = &x->d[to->to];
        const int64_t            row = by_query(to->to) ? run->q : run->k;

        if (!f || !hidden_gives(r, to)) continue;
        const struct hadamard_rows at = {
            f, layer->p.dtype, run->n, r->width, d->row, d->head, x->product_work
        };
        hadamard_back(layer->ctx, &at, view_at(layer, d, to->head0, row),
                      x->dx_sum + run->x * r->width);
    }
    layer_store_sum(x, r->source ? NULL : x->dx_plan, r->d, r->width, run);
}

static void weights_back(struct layer_pass *x, const struct hidden *r,
                         const struct layer_run *run)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    struct product            back = {
                   .m = r->width, .k = run->n, .add = true, .fast = p->flags & FOCI_FLAG_FAST
    };

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection  *to = &layer->projections[i];
        const struct layer_param *w = &layer->params[to->weights];
        const int64_t             cols = to->heads * to->dim;

        if (!hidden_gives(r, to) || w->frozen >= 0) continue;
        back.b.n_parts = layer_head_parts(layer, x->d, to, run, x->b, back.b.n_parts);
        x->c[back.c.n_parts++] =
            (struct product_part){ x->g.dparams + w->offset, cols, cols };
        back.n += cols;
    }
    x->a[0] = (struct product_part){ row_of(layer, r->data, r->width, run->x), r->width,
                                     r->width };
    back.a = (struct matrix){ x->a, 1, p->dtype, true };
    back.b = (struct matrix){ x->b, back.b.n_parts, p->dtype, false };
    back.c = (struct matrix){ x->c, back.c.n_parts, FOCI_F32, false };
    if (back.n) product_run(layer->ctx, &back, x->product_work);
}

/* A bias is of the rows that its projection was given, those of the memory among them. */
static void bias_back(struct layer_pass *x, const struct projection *to,
                      const struct hidden *r)
{
    const struct layer_view *d = &x->d[to->to];
    float                   *db = x->g.dparams + x->layer->params[to->bias].offset;

    for (int64_t h = 0; h < to->heads; h++) {
        const struct layer_sums s = { view_at(x->layer, d, to->head0 + h, 0), d->row,
                                      to->dim, .keys = !by_query(to->to),
                                      .others = r->source || r->memory };
        layer_sum_rows(x, &s, db + h * to->dim);
    }
}

static void biases_back(struct layer_pass *x, const struct hidden *r)
{
    const foci_layer *layer = x->layer;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        if (to->bias >= 0 && hidden_gives(r, to)) bias_back(x, to, r);
    }
}

static void from_heads(struct layer_pass *x, struct hidden r)
{
    if (x->g.dparams && r.n_runs) r.data = layer_clean(x, r.data, r.source);
    for (int64_t i = 0; i < r.n_runs; i++) {
        const struct layer_run *run = &r.runs[i];

        if (!run->n) continue;
        if (r.d) {
            rows_back(x, &r, run);
            if (x->dx_sum) transforms_back(x, &r, run);
        }
        if (x->g.dparams) weights_back(x, &r, run);
    }
    if (r.d) layer_clear_rest(x, r.d, r.source);
    if (x->g.dparams && r.n_runs) biases_back(x, &r);
}

foci_status foci_layer_backward(const foci_layer *layer, const foci_layer_io *io,
                                const foci_layer_grads *grads)
{
    foci_layer_io     whole;
    foci_layer_grads  g;
    struct layer_pass x;

    if (!grads)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_backward: grads is NULL");
    TRY(layer_open_call(layer, io, grads, true, &whole, &g));
    layer_open(layer, &whole, &g, &x);
    from_output(&x);
    layer_gate_out_back(&x);
    const foci_io    plan_io = layer_plan_io(&x);
    const foci_grads plan_grads = layer_plan_grads(&x);
    TRY(foci_backward(layer->plan, &plan_io, &plan_grads));
    layer_clean_heads(&x);
    layer_make_back(&x);
    layer_gate_back(&x);

    from_heads(&x, layer_own(&x));
    from_heads(&x, layer_others(&x));
    return FOCI_OK;
}
