/* sequences_weights.c -- weights as steps read them.  Few rows cost what reading the weights
 * does, and some tens of rows as much again for packing them: both are done once. */
#include "train/sequences.h"

static const struct stack *stack_of(const foci_sequences *s)
{
    return model_last(s->model);
}

const void *sequences_rounded(const foci_sequences *s, int64_t offset)
{
    return s->params_bf16 ? s->params_bf16 + offset : NULL;
}

static const void *weights(const foci_sequences *s, int64_t offset)
{
    return s->params_bf16 ? sequences_rounded(s, offset) : s->model->params + offset;
}

static foci_dtype weights_type(const foci_sequences *s)
{
    return s->params_bf16 ? FOCI_BF16 : FOCI_F32;
}

foci_product_io sequences_ffn(const foci_sequences *s, int64_t block, bool second)
{
    const foci_model_config   *c = &s->model->config;
    const struct feed_forward *f = &stack_of(s)->blocks[block].ffn;

    return (foci_product_io){
        FOCI_SIZED(foci_product_io),
        .n = second ? c->width : c->ffn,
        .k = second ? c->ffn : c->width,
        .b = weights(s, second ? f->w2 : f->w1),
        .type_a = c->dtype,
        .type_b = weights_type(s),
        .type_c = c->dtype,
        .flags = c->gated && !second ? FOCI_PRODUCT_GATED : 0,
        .bias = at_offset(s->model->params, second ? f->b2 : f->b1),
        .act = second ? FOCI_ACT_NONE : c->activation,
        .packed = s->packed[2 * block + second].data,
    };
}

foci_logits_io sequences_logits(const foci_sequences *s)
{
    const foci_model *m = s->model;

    return (foci_logits_io){
        FOCI_SIZED(foci_logits_io),
        .dtype = m->config.dtype,
        .width = m->config.width,
        .vocab = stack_of(s)->vocab,
        .w = weights(s, m->out),
        .type_w = weights_type(s),
        .bias = at_offset(m->params, m->out_bias),
        .packed = s->packed[2 * stack_of(s)->n].data,
    };
}

/* Memory that product_pack fills, with scratch of its own for the while. */
static foci_status pack(foci_sequences *s, foci_product_io io, struct packed *to)
{
    foci_ctx    *ctx = s->model->ctx;
    const size_t scratch = foci_product_work_bytes(ctx, &io);

    to->bytes = foci_product_pack_bytes(ctx, &io);
    if (!to->bytes) return FOCI_OK;
    to->data = ctx_alloc(ctx, to->bytes, 1);
    if (!to->data) return FOCI_ERR_MEMORY;
    io.work = ctx_alloc(ctx, scratch, 1);
    if (!io.work) return FOCI_ERR_MEMORY;
    const foci_status status = foci_product_pack(ctx, &io, to->data);
    ctx_free(ctx, io.work, scratch, 1);
    return status;
}

static foci_status pack_all(foci_sequences *s)
{
    const foci_logits_io  l = sequences_logits(s);
    const foci_product_io out = { FOCI_SIZED(foci_product_io),
                                  .m = 1,
                                  .n = l.vocab,
                                  .k = l.width,
                                  .b = l.w,
                                  .type_a = l.dtype,
                                  .type_b = l.type_w,
                                  .type_c = FOCI_F32,
                                  .flags = FOCI_PRODUCT_TRANSPOSE_B };

    for (int64_t i = 0; s->model->config.ffn && i < 2 * stack_of(s)->n; i++) {
        foci_product_io io = sequences_ffn(s, i / 2, i % 2);
        io.m = 1;
        TRY(pack(s, io, &s->packed[i]));
    }
    return pack(s, out, &s->packed[2 * stack_of(s)->n]);
}

static foci_status round_params(foci_sequences *s)
{
    const foci_model *m = s->model;

    if (m->config.dtype != FOCI_BF16) return FOCI_OK;
    s->params_bf16 = ctx_alloc(m->ctx, (size_t)m->floats, sizeof *s->params_bf16);
    if (!s->params_bf16) return FOCI_ERR_MEMORY;
    return foci_convert(m->ctx, FOCI_BF16, s->params_bf16, FOCI_F32, m->params,
                        m->floats);
}

static foci_status precompute(foci_sequences *s, const foci_layer *layer,
                              int64_t params, struct packed *to)
{
    foci_ctx *ctx = s->model->ctx;

    to->bytes = foci_layer_precompute_bytes(layer);
    if (!to->bytes) return FOCI_OK;
    to->data = ctx_alloc(ctx, to->bytes, 1);
    if (!to->data) return FOCI_ERR_MEMORY;
    return foci_layer_precompute(layer, s->model->params + params, to->data);
}

foci_status sequences_weights(foci_sequences *s)
{
    const struct stack *stack = stack_of(s);

    TRY(round_params(s));
    for (int64_t b = 0; b < stack->n; b++)
        TRY(precompute(s, stack->blocks[b].self.layer, stack->blocks[b].self.params,
                       &s->made[b]));
    /* One sequence reads weights as they are. */
    return s->cap > 1 ? pack_all(s) : FOCI_OK;
}

/* The weights of cross-attention do not depend on the sources: any layer packs them. */
foci_status sequences_cross_weights(foci_sequences *s)
{
    const struct stack *stack = stack_of(s);

    for (int64_t b = 0; b < stack->n; b++)
        if (!s->cross_made[b].data)
            TRY(precompute(s, s->cross[b], stack->blocks[b].cross.params,
                           &s->cross_made[b]));
    return FOCI_OK;
}

static void free_all(foci_sequences *s, struct packed *all, int64_t n)
{
    for (int64_t i = 0; all && i < n; i++)
        if (all[i].data) ctx_free(s->model->ctx, all[i].data, all[i].bytes, 1);
    if (all) ctx_free(s->model->ctx, all, (size_t)n, sizeof *all);
}

void sequences_weights_free(foci_sequences *s)
{
    const int64_t n = stack_of(s)->n;

    free_all(s, s->made, n);
    free_all(s, s->cross_made, n);
    free_all(s, s->packed, 2 * n + 1);
    if (s->params_bf16)
        ctx_free(s->model->ctx, s->params_bf16, (size_t)s->model->floats,
                 sizeof *s->params_bf16);
}
