/* layer_describe.c -- the text that describes a layer, and its cost. */
#include <inttypes.h>
#include <stdio.h>

#include "layer/layer.h"

static void add_tensor(struct printer *t, const foci_layer *layer,
                       const struct layer_param *p)
{
    static const char *const kinds[] = { "orthogonal", "gaussian", "hadamard" };

    printer_add(t, "  %-8s", p->name);
    for (int d = 0; d < p->n_dims; d++)
        printer_add(t, "%s%" PRId64, d ? " x " : " ", p->shape[d]);
    if (p->frozen >= 0)
        printer_add(t, ", frozen, %s, from the seed",
                    kinds[layer->frozen[p->frozen].kind]);
    else if (p->start == START_FRAME)
        printer_add(t, ", starts orthogonal");
    printer_add(t, "\n");
}

int foci_layer_describe(const foci_layer *layer, char *text, size_t cap)
{
    static const char *const  kinds[] = { "attention", "gau", "conv" };
    const foci_layer_problem *p = &layer->p;
    foci_cost                 cost = { FOCI_SIZED(foci_cost) };
    struct printer            t = { text, cap, 0 };

    if (cap) text[0] = 0;
    printer_add(&t, "layer %s, %" PRId64 " rows of %" PRId64, kinds[p->kind],
                p->batch * p->len, p->width);
    if (p->len_source)
        printer_add(&t, ", source of %" PRId64 " rows of %" PRId64,
                    p->batch * p->len_source, p->width_source);
    if (p->memory)
        printer_add(&t, ", %" PRId64 " rows of memory", p->batch * p->memory);
    printer_add(&t, "\n");
    for (int i = 0; i < layer->n_params; i++)
        add_tensor(&t, layer, &layer->params[i]);
    (void)foci_layer_cost(layer, &cost);
    printer_cost(&t, &cost, p->flags & FOCI_FLAG_TRAIN);
    printer_memory(&t, layer->work_bytes, layer->saved_bytes, layer->n_floats);

    const size_t left = (size_t)t.used < cap ? cap - (size_t)t.used : 0;
    const int    n = foci_plan_describe(layer->plan, left ? text + t.used : NULL, left);
    return n < 0 ? n : t.used + n;
}

/* Rows that a projection reads. */
static double rows_of(const foci_layer *layer, const struct projection *to)
{
    const foci_layer_problem *p = &layer->p;
    const int64_t             len = to->source         ? p->len_source
                                    : by_query(to->to) ? p->len
                                                       : layer->len_k;
    return (double)p->batch * (double)len;
}

foci_status foci_layer_cost(const foci_layer *layer, foci_cost *cost)
{
    if (!layer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_layer_cost: the layer is NULL");
    const foci_layer_problem *p = &layer->p;
    const double              rows = (double)p->batch * (double)p->len;
    const double              out = 2 * (double)layer->params[layer->out].count;
    const double bytes = rows * (double)p->width * (double)foci_dtype_bytes(p->dtype);
    foci_cost    all = { FOCI_SIZED(foci_cost) };

    TRY(foci_plan_cost(layer->plan, &all));
    all.forward_flops += rows * out;
    all.backward_flops += 2 * rows * out;
    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection  *to = &layer->projections[i];
        const struct layer_param *w = &layer->params[to->weights];
        const double              flops = 2 * rows_of(layer, to) * (double)w->count;

        if (layer_transform(layer, to)) continue;
        all.forward_flops += flops;
        all.backward_flops += w->frozen < 0 ? 2 * flops : flops;
    }
    all.forward_bytes += 2 * bytes + 4 * (double)layer->own_floats;
    all.backward_bytes += 3 * bytes + 8 * (double)layer->own_floats;
    return sized_out(layer->ctx, "foci_cost", cost, &all, sizeof all);
}
