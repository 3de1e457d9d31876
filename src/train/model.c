/* model.c -- from a config to stacks of blocks, and queries of a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/model.h"
#include "train/ops.h"
#include "train/pass.h"

/* What all attentions of a stack have in common. */
static foci_layer_problem common_problem(const foci_model *m, const struct stack *s,
                                         const foci_block_config *b)
{
    const foci_model_config *c = &m->config;
    const bool               gau = b->kind == FOCI_LAYER_GAU;
    const int64_t            own = s == &m->stacks[0] ? c->encoder_heads : 0;

    return (foci_layer_problem){
        FOCI_SIZED(foci_layer_problem),
        .kind = b->kind,
        .dtype = c->dtype,
        .flags = s->causal ? FOCI_FLAG_CAUSAL : 0,
        .batch = 1,
        .len = s->context,
        .width = c->width,
        .heads = gau   ? 1
                 : own ? own
                       : c->heads,
        .kv_heads = gau || own ? 0 : c->kv_heads,
        .head_dim = gau ? 0 : c->head_dim,
        .value_dim = gau ? 0 : c->value_dim,
        .biases = config_biases(c),
        .seed = c->seed,
    };
}

static foci_status build_self(foci_model *m, const struct stack *s, struct attention *a,
                              const foci_block_config *b, const char *where)
{
    const struct spec_want want = { b->attention, b->kind, where, s->causal,
                                    m->config.positions == FOCI_POSITIONS_ROPE };

    a->problem = common_problem(m, s, b);
    a->problem.index = (uint64_t)(a->index = m->n_attentions++);
    return attention_plan(m, a, &want);
}

/* Queries see the whole source. */
static foci_status build_cross(foci_model *m, const struct stack *s, struct attention *a,
                               const foci_block_config *b, const char *where)
{
    const foci_block_config plain = { .kind = FOCI_LAYER_ATTENTION };
    const struct spec_want  want = { b->cross, plain.kind, where, s->causal, false };

    a->problem = common_problem(m, s, &plain);
    a->problem.flags &= ~(uint32_t)FOCI_FLAG_CAUSAL;
    a->problem.len_source = m->stacks[0].context;
    a->problem.index = (uint64_t)(a->index = m->n_attentions++);
    return attention_plan(m, a, &want);
}

static foci_status build_stack(foci_model *m, struct stack *s,
                               const foci_block_config *configs)
{
    char where[64];

    s->blocks = ctx_alloc(m->ctx, (size_t)s->n, sizeof *s->blocks);
    if (!s->blocks) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < s->n; i++) {
        snprintf(where, sizeof where, "%s%sblock %lld", s->name, *s->name ? " " : "",
                 (long long)i);
        TRY(build_self(m, s, &s->blocks[i].self, &configs[i], where));
        if (s->cross) TRY(build_cross(m, s, &s->blocks[i].cross, &configs[i], where));
    }
    return FOCI_OK;
}

/* Whether a layer for shorter sequences has the same tensors; if not, batches are padded. */
static foci_status compare_shorter(foci_model *m, const struct attention *a)
{
    const foci_layer_problem *p = &a->problem;
    foci_layer               *other = NULL;
    foci_param                x = { FOCI_SIZED(foci_param) }, y = x;

    const foci_status status = attention_layer(
        m, a, 1, p->len > 1 ? p->len - 1 : 1,
        p->len_source > 1 ? p->len_source - 1 : p->len_source, false, &other);
    if (status == FOCI_ERR_MEMORY) return status;
    bool same = !status &&
                foci_layer_param_floats(other) == foci_layer_param_floats(a->layer) &&
                foci_layer_param_count(other) == foci_layer_param_count(a->layer);
    for (int i = 0; same && i < foci_layer_param_count(other); i++)
        same = !foci_layer_param(other, i, &x) && !foci_layer_param(a->layer, i, &y) &&
               x.offset == y.offset && x.count == y.count &&
               !memcmp(x.shape, y.shape, sizeof x.shape) && !strcmp(x.name, y.name);
    foci_layer_free(other);
    m->length_bound |= !same;
    return FOCI_OK;
}

static foci_status find_length_bound(foci_model *m)
{
    for (int i = 0; i < m->n_stacks; i++)
        for (int64_t b = 0; b < m->stacks[i].n; b++) {
            TRY(compare_shorter(m, &m->stacks[i].blocks[b].self));
            if (m->stacks[i].cross)
                TRY(compare_shorter(m, &m->stacks[i].blocks[b].cross));
        }
    return FOCI_OK;
}

foci_status model_waves(int64_t first, int64_t n, int64_t width, float *rows)
{
    return foci_sinusoid(first, n, width, 10000, rows);
}

/* Of images half of the width says the row and half the column. */
static foci_status make_waves(foci_model *m, struct stack *s)
{
    const foci_model_config *c = &m->config;

    if (c->positions != FOCI_POSITIONS_SINUSOID) return FOCI_OK;
    s->waves = ctx_alloc(m->ctx, (size_t)(s->context * c->width), sizeof *s->waves);
    if (!s->waves) return FOCI_ERR_MEMORY;
    if (!c->grid_cols) return model_waves(0, s->context, c->width, s->waves);
    const int64_t half = c->width / 2, rest = c->width - half;
    for (int64_t i = 0; i < s->context; i++) {
        float *row = s->waves + i * c->width;
        TRY(model_waves(i / c->grid_cols, 1, half, row));
        TRY(model_waves(i % c->grid_cols, 1, rest, row + half));
    }
    return FOCI_OK;
}

/* The sinusoid again, for what is answered from the last token. */
static foci_status make_codes(foci_model *m, struct stack *s)
{
    const int64_t width = m->config.width;

    if (!m->config.from_last) return FOCI_OK;
    s->codes = ctx_alloc(m->ctx, (size_t)(s->context * width), sizeof *s->codes);
    if (!s->codes) return FOCI_ERR_MEMORY;
    return foci_sinusoid(0, s->context, width, 10000, s->codes);
}

static void lay_stacks(foci_model *m)
{
    const foci_model_config *c = &m->config;
    const bool               translates = c->task == FOCI_MODEL_TRANSLATE;

    m->n_stacks = translates ? 2 : 1;
    m->stacks[0] = (struct stack){
        .name = translates ? "encoder" : "",
        .causal = c->task == FOCI_MODEL_LM,
        .context = translates ? c->source_context : c->context,
        .vocab = c->source_vocab ? c->source_vocab : c->vocab,
        .n = c->layers,
    };
    m->stacks[1] = (struct stack){ .name = "decoder",
                                   .causal = true,
                                   .cross = true,
                                   .context = c->context,
                                   .vocab = c->vocab,
                                   .n = c->decoder_layers };
}

static foci_status build(foci_model *m, const foci_model_config *config)
{
    TRY(config_take(m->ctx, config, &m->config));
    lay_stacks(m);
    for (int i = 0; i < m->n_stacks; i++)
        TRY(build_stack(m, &m->stacks[i],
                        m->config.blocks + (i ? m->config.layers : 0)));
    TRY(find_length_bound(m));
    TRY(model_tensors(m));
    TRY(model_segments(m));
    for (int i = 0; i < m->n_stacks; i++)
        TRY(make_waves(m, &m->stacks[i]));
    TRY(make_codes(m, model_last(m)));
    return model_init(m);
}

foci_status foci_model_create(foci_ctx *ctx, const foci_model_config *config,
                              foci_model **model)
{
    if (!ctx || !model)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_model_create: %s is NULL",
                        ctx ? "model" : "the context");
    *model = NULL;
    foci_model *m = ctx_alloc(ctx, 1, sizeof *m);
    if (!m) return FOCI_ERR_MEMORY;
    m->ctx = ctx;
    m->ops = &cpu_ops;
    const foci_status status = build(m, config);
    if (status) {
        foci_model_free(m);
        return status;
    }
    *model = m;
    return FOCI_OK;
}

static void free_stack(foci_ctx *ctx, struct stack *s, int64_t width)
{
    for (int64_t i = 0; s->blocks && i < s->n; i++) {
        attention_free(ctx, &s->blocks[i].self);
        attention_free(ctx, &s->blocks[i].cross);
    }
    if (s->blocks) ctx_free(ctx, s->blocks, (size_t)s->n, sizeof *s->blocks);
    if (s->waves)
        ctx_free(ctx, s->waves, (size_t)(s->context * width), sizeof *s->waves);
    if (s->codes)
        ctx_free(ctx, s->codes, (size_t)(s->context * width), sizeof *s->codes);
}

void foci_model_free(foci_model *model)
{
    if (!model) return;
    foci_ctx *ctx = model->ctx;

    shapes_free(model);
    for (int i = 0; i < model->n_stacks; i++)
        free_stack(ctx, &model->stacks[i], model->config.width);
    if (model->params)
        ctx_free(ctx, model->params, (size_t)model->floats, sizeof *model->params);
    if (model->segments)
        ctx_free(ctx, model->segments, (size_t)model->n_tensors,
                 sizeof *model->segments);
    if (model->tensors)
        ctx_free(ctx, model->tensors, (size_t)model->cap_tensors,
                 sizeof *model->tensors);
    foci_config_free(ctx, &model->config);
    ctx_free(ctx, model, 1, sizeof *model);
}

/*
 * What it says of itself
 */

foci_status foci_model_get_config(const foci_model *model, foci_model_config *config)
{
    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_model_get_config: the model is NULL");
    return sized_out(model->ctx, "foci_model_config", config, &model->config,
                     sizeof model->config);
}

int64_t foci_model_param_floats(const foci_model *model) { return model->floats; }

int64_t foci_model_trained_floats(const foci_model *model) { return model->trained; }

int foci_model_param_count(const foci_model *model) { return model->n_tensors; }

float *foci_model_params(foci_model *model) { return model->params; }

foci_status foci_model_param(const foci_model *model, int index, foci_param *param)
{
    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_model_param: the model is NULL");
    if (index < 0 || index >= model->n_tensors)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "parameter tensor %d: this model has %d", index,
                        model->n_tensors);
    const struct model_tensor *t = &model->tensors[index];
    const foci_param           full = {
                  .name = t->name,
                  .offset = t->offset,
                  .count = t->count,
                  .n_dims = t->n_dims,
                  .shape = { t->shape[0], t->shape[1], t->shape[2], t->shape[3] },
                  .keep = t->keep,
    };
    return sized_out(model->ctx, "foci_param", param, &full, sizeof full);
}

size_t foci_model_activation_bytes(const foci_model *model)
{
    return model->most_bytes;
}
