/* cost.c -- the flops of a sequence through a model, counted from its layers and products. */
#include <inttypes.h>

#include "train/model.h"

/* A product that gradients take twice more: for what it reads and for its weights. */
static void add_product(foci_cost *cost, double m, double n, double k)
{
    cost->forward_flops += 2 * m * n * k;
    cost->backward_flops += 4 * m * n * k;
}

/* An attention, with the convolution before it. */
static foci_status add_attention(const foci_model *m, const struct attention *a,
                                 int64_t len, int64_t source, foci_cost *cost)
{
    const foci_model_config *c = &m->config;
    foci_cost                own = { FOCI_SIZED(foci_cost) };
    foci_layer              *layer = NULL;

    TRY(attention_layer(m, a, 1, len, source, true, &layer));
    const foci_status status = foci_layer_cost(layer, &own);
    foci_layer_free(layer);
    TRY(status);
    cost->forward_flops += own.forward_flops;
    cost->backward_flops += own.backward_flops;
    cost->pairs += own.pairs;
    cost->tiles_full += own.tiles_full;
    cost->tiles_part += own.tiles_part;
    cost->tiles_skipped += own.tiles_skipped;
    if (a->conv >= 0) add_product(cost, (double)len, (double)c->width, (double)c->conv);
    return FOCI_OK;
}

static foci_status add_stack(const foci_model *m, const struct stack *s, int64_t len,
                             int64_t source, foci_cost *cost)
{
    const foci_model_config *c = &m->config;
    const double             rows = (double)len, width = (double)c->width;

    if (c->patch) add_product(cost, rows, width, (double)c->patch);
    for (int64_t b = 0; b < s->n; b++) {
        TRY(add_attention(m, &s->blocks[b].self, len, 0, cost));
        if (s->cross) TRY(add_attention(m, &s->blocks[b].cross, len, source, cost));
        if (!c->ffn) continue;
        add_product(cost, rows, (double)ffn_columns(c), width);
        add_product(cost, rows, width, (double)c->ffn);
    }
    return FOCI_OK;
}

static foci_status cost_check(foci_model *m, int64_t len, int64_t source, int64_t labels)
{
    const int64_t most = model_last(m)->context, longest = m->stacks[0].context;

    if (len < 1 || len > most)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "foci_model_cost: len is %" PRId64 ": it may be 1 to %" PRId64,
                        len, most);
    if (m->n_stacks > 1 && (source < 1 || source > longest))
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "foci_model_cost: source_len is %" PRId64
                        ": it may be 1 to %" PRId64,
                        source, longest);
    if (labels < 0 || labels > len)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "foci_model_cost: labels is %" PRId64
                        ": it may be 0 to %" PRId64,
                        labels, len);
    return FOCI_OK;
}

foci_status foci_model_cost(foci_model *model, int64_t len, int64_t source_len,
                            int64_t labels, foci_cost *cost)
{
    foci_cost all = { FOCI_SIZED(foci_cost) };

    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_model_cost: the model is NULL");
    const foci_model_config *c = &model->config;
    const bool               classifies = c->task == FOCI_MODEL_CLASSIFY;

    TRY(cost_check(model, len, source_len, labels));
    TRY(sized_check(model->ctx, "foci_cost", cost, sizeof *cost));
    if (model->length_bound) { /* batches are padded */
        len = model_last(model)->context;
        source_len = model->stacks[0].context;
    }
    if (model->n_stacks > 1)
        TRY(add_stack(model, &model->stacks[0], source_len, 0, &all));
    TRY(add_stack(model, model_last(model), len, source_len, &all));
    const int64_t rows = classifies ? 1 : labels ? labels : len;
    add_product(&all, (double)rows, (double)(classifies ? c->classes : c->vocab),
                (double)c->width);
    return sized_out(model->ctx, "foci_cost", cost, &all, sizeof all);
}
