/* layer_forward.c -- hidden states to heads, heads to hidden states. */
#include <string.h>

#include "layer/layer.h"

static const char *row_of(const foci_layer *layer, const void *data, int64_t width,
                          int64_t row)
{
    return (const char *)data + (size_t)(row * width) * foci_dtype_bytes(layer->p.dtype);
}

const float *layer_weights(const struct layer_pass *x, const struct projection *to)
{
    const struct layer_param *p = &x->layer->params[to->weights];

    return p->frozen < 0 ? x->io.params + p->offset : x->layer->frozen[p->frozen].dense;
}

/* Rounded where they are given so: unless drawn ones, which are not among params, stand
 * beside them. */
static foci_dtype stored_type(const struct layer_pass *x, const struct hidden *r)
{
    const foci_layer *layer = x->layer;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];

        if (hidden_gives(r, to) && !layer_transform(layer, to) &&
            layer->params[to->weights].frozen >= 0)
            return FOCI_F32;
    }
    return x->io.params_bf16 ? FOCI_BF16 : FOCI_F32;
}

/* Weights as a part of b. */
static struct product_part stored(const struct layer_pass *x, foci_dtype type,
                                  const float *w, int64_t cols)
{
    const uint16_t *const rounded = x->io.params_bf16;

    return (struct product_part){ type == FOCI_BF16
                                      ? (void *)(rounded + (w - x->io.params))
                                      : (void *)w,
                                  cols, cols };
}

const struct frozen *layer_transform(const foci_layer        *layer,
                                     const struct projection *to)
{
    const int f = layer->params[to->weights].frozen;
    return f < 0 || layer->frozen[f].dense ? NULL : &layer->frozen[f];
}

int layer_head_parts(const foci_layer *layer, const struct layer_view *at,
                     const struct projection *to, const struct layer_run *run,
                     struct product_part *parts, int n)
{
    const int64_t row = by_query(to->to) ? run->q : run->k;

    for (int64_t h = to->head0; h < to->head0 + to->heads; h++)
        parts[n++] = (struct product_part){ view_at(layer, &at[to->to], h, row),
                                            at[to->to].row, to->dim };
    return n;
}

static void add_bias(const struct layer_pass *x, const struct projection *to,
                     int64_t col)
{
    const size_t n = (size_t)(to->heads * to->dim);

    if (to->bias < 0)
        memset(x->bias + col, 0, n * sizeof *x->bias);
    else
        memcpy(x->bias + col, layer_tensor(x->layer, to->bias, x->io.params),
               n * sizeof *x->bias);
}

/* All matrices side by side, in one product. */
static void project_run(struct layer_pass *x, const struct hidden *r,
                        const struct layer_run *run)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    const char               *rows = row_of(layer, r->data, r->width, run->x);
    const foci_dtype          type = stored_type(x, r);
    struct product            all = { .m = run->n,
                                      .k = r->width,
                                      .fast = p->flags & FOCI_FLAG_FAST };

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        const int64_t            cols = to->heads * to->dim;

        if (!hidden_gives(r, to) || layer_transform(layer, to)) continue;
        x->b[all.b.n_parts++] = stored(x, type, layer_weights(x, to), cols);
        all.c.n_parts = layer_head_parts(layer, x->at, to, run, x->c, all.c.n_parts);
        if (p->biases) add_bias(x, to, all.n);
        all.n += cols;
    }
    x->a[0] = (struct product_part){ (void *)rows, r->width, r->width };
    all.a = (struct matrix){ x->a, 1, p->dtype, false };
    all.b = (struct matrix){ x->b, all.b.n_parts, type, false };
    all.c = (struct matrix){ x->c, all.c.n_parts, p->dtype, false };
    all.bias = p->biases ? x->bias : NULL;
    all.act = x->active ? FOCI_ACT_SILU : FOCI_ACT_NONE;
    if (all.n) product_run(layer->ctx, &all, x->product_work);
}

static void transform_run(struct layer_pass *x, const struct hidden *r,
                          const struct layer_run *run)
{
    const foci_layer *layer = x->layer;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        const struct frozen     *f = layer_transform(layer, to);
        const struct layer_view *at = &x->at[to->to];
        const int64_t            row = by_query(to->to) ? run->q : run->k;

        if (!f || !hidden_gives(r, to)) continue;
        const struct hadamard_rows rows = {
            f, layer->p.dtype, run->n, r->width, at->row, at->head, x->product_work
        };
        hadamard_run(layer->ctx, &rows, row_of(layer, r->data, r->width, run->x),
                     view_at(layer, at, to->head0, row));
    }
}

static void project_rows(struct layer_pass *x, const struct hidden *r)
{
    for (int64_t i = 0; i < r->n_runs; i++) {
        if (!r->runs[i].n) continue;
        project_run(x, r, &r->runs[i]);
        transform_run(x, r, &r->runs[i]);
    }
}

void layer_project_others(struct layer_pass *x)
{
    const struct hidden others = layer_others(x);
    project_rows(x, &others);
}

void layer_project(struct layer_pass *x)
{
    const struct hidden own = layer_own(x);

    project_rows(x, &own);
    layer_project_others(x);
}

/* Those of a gau are behind their gates. */
int layer_out_parts(const foci_layer *layer, const struct layer_view *at, int64_t row,
                    struct product_part *parts)
{
    const enum place place = layer->p.kind == FOCI_LAYER_GAU ? PLACE_H : PLACE_O;

    for (int64_t h = 0; h < layer->p.heads; h++)
        parts[h] = (struct product_part){ view_at(layer, &at[place], h, row),
                                          at[place].row, layer->p.value_dim };
    return (int)layer->p.heads;
}

void layer_output(struct layer_pass *x)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    const foci_dtype          type = x->io.params_bf16 ? FOCI_BF16 : FOCI_F32;

    for (int64_t i = 0; i < x->n_runs; i++) {
        const struct layer_run *run = &x->runs[i];
        const float            *w = layer_tensor(layer, layer->out, x->io.params);
        struct product          out = { .m = run->n,
                                        .n = p->width,
                                        .k = p->heads * p->value_dim,
                                        .fast = p->flags & FOCI_FLAG_FAST };

        x->b[0] = stored(x, type, w, p->width);
        x->c[0] =
            (struct product_part){ (void *)row_of(layer, x->io.y, p->width, run->x),
                                   p->width, p->width };
        out.a = (struct matrix){ x->a, layer_out_parts(layer, x->at, run->q, x->a),
                                 p->dtype, false };
        out.b = (struct matrix){ x->b, 1, type, false };
        out.c = (struct matrix){ x->c, 1, p->dtype, false };
        if (layer->out_bias >= 0)
            out.bias = layer_tensor(layer, layer->out_bias, x->io.params);
        if (x->io.residual)
            out.residual = row_of(layer, x->io.residual, p->width, run->x);
        out.drop = p->output_dropout;
        out.drop_seed = x->io.dropout_seed;
        out.drop_len = p->len;
        out.drop_row0 = run->x;
        if (run->n) product_run(layer->ctx, &out, x->product_work);
    }
}

foci_status foci_layer_forward(const foci_layer *layer, const foci_layer_io *io)
{
    foci_layer_io     whole;
    foci_layer_grads  none;
    struct layer_pass x;

    TRY(layer_open_call(layer, io, NULL, true, &whole, &none));
    layer_open(layer, &whole, NULL, &x);
    layer_project(&x);
    layer_gate(&x);
    const foci_io plan_io = layer_plan_io(&x);
    TRY(foci_forward(layer->plan, &plan_io));
    layer_gate_out(&x);
    layer_output(&x);
    layer_clear_rest(&x, whole.y, false);
    layer_remember(&x);
    return FOCI_OK;
}

/* Parameters that mechanisms move or calibrate themselves, from the projected q and k. */
static foci_status change(const foci_layer *layer, const foci_layer_io *io,
                          float *params,
                          foci_status (*change_plan)(const foci_plan *, const foci_io *,
                                                     float *))
{
    foci_layer_io     whole;
    foci_layer_grads  none;
    struct layer_pass x;

    TRY(layer_open_call(layer, io, NULL, false, &whole, &none));
    if (layer->n_floats && !params)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "params is NULL: nothing can change");
    whole.saved = NULL; /* of the forward pass it is left alone */
    layer_open(layer, &whole, NULL, &x);
    layer_project(&x);
    layer_gate(&x);
    const foci_io plan_io = layer_plan_io(&x);
    if (!layer->n_distances)
        return change_plan(layer->plan, &plan_io, params + layer->own_floats);
    TRY(change_plan(layer->plan, &plan_io, x.plan_params));
    layer_keep_stored(layer, x.plan_params, params + layer->own_floats);
    return FOCI_OK;
}

foci_status foci_layer_params_advance(const foci_layer *layer, const foci_layer_io *io,
                                      float *params)
{
    return change(layer, io, params, foci_params_advance);
}

foci_status foci_layer_params_calibrate(const foci_layer    *layer,
                                        const foci_layer_io *io, float *params)
{
    return change(layer, io, params, foci_params_calibrate);
}
