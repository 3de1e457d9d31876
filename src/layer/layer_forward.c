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

struct product layer_projections_of(const struct layer_pass *x, const struct hidden *r,
                                    int64_t rows)
{
    const foci_layer *layer = x->layer;
    const foci_dtype  type = stored_type(x, r);
    struct product    all = { .m = rows,
                              .k = r->width,
                              .a = { x->a, 1, layer->p.dtype, false },
                              .b = { x->b, 0, type, false },
                              .c = { x->c, 0, layer->p.dtype, false },
                              .fast = layer->p.flags & FOCI_FLAG_FAST };

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        const int64_t            cols = to->heads * to->dim;

        if (!hidden_gives(r, to) || layer_transform(layer, to)) continue;
        x->b[all.b.n_parts++] = stored(x, type, layer_weights(x, to), cols);
        all.n += cols;
    }
    return all;
}

/* Where the results of this product go, and the biases of its columns. */
static void to_heads(const struct layer_pass *x, const struct hidden *r,
                     const struct layer_run *run, struct product *all)
{
    const foci_layer *layer = x->layer;
    int64_t           col = 0;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];

        if (!hidden_gives(r, to) || layer_transform(layer, to)) continue;
        all->c.n_parts = layer_head_parts(layer, x->at, to, run, x->c, all->c.n_parts);
        if (layer->p.biases) add_bias(x, to, col);
        col += to->heads * to->dim;
    }
    all->bias = layer->p.biases ? x->bias : NULL;
}

/* All matrices side by side, in one product. */
static void project_run(struct layer_pass *x, const struct hidden *r,
                        const struct layer_run *run)
{
    const foci_layer *layer = x->layer;
    struct product    all = layer_projections_of(x, r, run->n);

    x->a[0] = (struct product_part){ (void *)row_of(layer, r->data, r->width, run->x),
                                     r->width, r->width };
    to_heads(x, r, run, &all);
    all.act = x->active ? FOCI_ACT_SILU : FOCI_ACT_NONE;
    if (!r->source && !r->memory) all.packed = x->packed_own;
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

struct product layer_output_of(const struct layer_pass *x, int64_t rows)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;
    const foci_dtype          type = x->io.params_bf16 ? FOCI_BF16 : FOCI_F32;

    x->b[0] = stored(x, type, layer_tensor(layer, layer->out, x->io.params), p->width);
    return (struct product){ .m = rows,
                             .n = p->width,
                             .k = p->heads * p->value_dim,
                             .a = { x->a, 0, p->dtype, false },
                             .b = { x->b, 1, type, false },
                             .c = { x->c, 1, p->dtype, false },
                             .fast = p->flags & FOCI_FLAG_FAST };
}

void layer_output(struct layer_pass *x)
{
    const foci_layer         *layer = x->layer;
    const foci_layer_problem *p = &layer->p;

    for (int64_t i = 0; i < x->n_runs; i++) {
        const struct layer_run *run = &x->runs[i];
        struct product          out = layer_output_of(x, run->n);

        x->c[0] =
            (struct product_part){ (void *)row_of(layer, x->io.y, p->width, run->x),
                                   p->width, p->width };
        out.a.n_parts = layer_out_parts(layer, x->at, run->q, x->a);
        out.packed = x->packed_out;
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

/* q, k and v alone.  What forward saved is left alone. */
static foci_status project_heads(const foci_layer *layer, const foci_layer_io *io,
                                 struct layer_pass *x, foci_io *heads)
{
    foci_layer_io    whole;
    foci_layer_grads none;

    TRY(layer_open_call(layer, io, NULL, false, &whole, &none));
    whole.saved = NULL;
    whole.precomputed = NULL;
    layer_open(layer, &whole, NULL, x);
    layer_project(x);
    layer_gate(x);
    *heads = layer_plan_io(x);
    return FOCI_OK;
}

foci_status foci_layer_heads(const foci_layer *layer, const foci_layer_io *io,
                             foci_io *heads)
{
    struct layer_pass x;
    foci_io           whole;

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    TRY(sized_check(layer->ctx, "foci_io", heads, sizeof *heads));
    TRY(project_heads(layer, io, &x, &whole));
    return sized_out(layer->ctx, "foci_io", heads, &whole, sizeof whole);
}

/* Parameters that mechanisms move or calibrate themselves, from the projected q and k. */
static foci_status change(const foci_layer *layer, const foci_layer_io *io,
                          float *params,
                          foci_status (*change_plan)(const foci_plan *, const foci_io *,
                                                     float *))
{
    struct layer_pass x;
    foci_io           heads;

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    if (layer->n_floats && !params)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "params is NULL: nothing can change");
    TRY(project_heads(layer, io, &x, &heads));
    if (!layer->n_distances)
        return change_plan(layer->plan, &heads, params + layer->own_floats);
    TRY(change_plan(layer->plan, &heads, x.plan_params));
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
