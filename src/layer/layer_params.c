/* layer_params.c -- the tensors of a layer: where each lies and how it starts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layer/layer.h"

foci_status params_add(foci_layer *layer, const struct layer_param *like,
                       const char *format, ...)
{
    struct layer_param *p = &layer->params[layer->n_params];
    va_list             args;

    *p = *like;
    va_start(args, format);
    vsnprintf(p->name, sizeof p->name, format, args);
    va_end(args);
    p->count = 1;
    for (int d = 0; d < p->n_dims; d++)
        if (__builtin_mul_overflow(p->count, p->shape[d], &p->count) ||
            p->count > INT64_MAX / 64)
            return ctx_fail(layer->ctx, FOCI_ERR_ARG, "%s: its size overflows", p->name);
    layer->n_params++;
    if (p->frozen >= 0) {
        p->offset = -1;
        return FOCI_OK;
    }
    p->offset = layer->own_floats;
    if (__builtin_add_overflow(layer->own_floats, p->count, &layer->own_floats) ||
        layer->own_floats > INT64_MAX / 64)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "the parameters' size overflows");
    return FOCI_OK;
}

/* Tensors of the plan that the layer makes are not its parameters. */
foci_status layer_params_plan(foci_layer *layer)
{
    const int64_t plan = foci_plan_param_floats(layer->plan);
    const int64_t stored = plan - layer_made_before(layer, plan);

    if (__builtin_add_overflow(layer->own_floats, stored, &layer->n_floats) ||
        layer->n_floats > INT64_MAX / 64)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "the parameters' size overflows");
    return FOCI_OK;
}

int64_t foci_layer_param_floats(const foci_layer *layer) { return layer->n_floats; }

int foci_layer_param_count(const foci_layer *layer)
{
    return layer->n_params + foci_plan_param_count(layer->plan) - layer->n_distances;
}

/* Number `index` of the plan's tensors that are stored. */
static foci_status plan_param(const foci_layer *layer, int index, foci_param *p)
{
    for (int i = 0;; i++) {
        *p = (foci_param){ FOCI_SIZED(foci_param) };
        TRY(foci_plan_param(layer->plan, i, p));
        if (layer_makes(layer, p->offset)) continue;
        if (!index--) break;
    }
    p->offset += layer->own_floats - layer_made_before(layer, p->offset);
    return FOCI_OK;
}

foci_status foci_layer_param(const foci_layer *layer, int index, foci_param *param)
{
    foci_param full;

    if (!layer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_layer_param: the layer is NULL");
    const int n = foci_layer_param_count(layer);
    if (index < 0 || index >= n)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                        "parameter tensor %d: this layer has %d", index, n);
    if (index >= layer->n_params) {
        TRY(plan_param(layer, index - layer->n_params, &full));
    } else {
        const struct layer_param *p = &layer->params[index];
        full = (foci_param){
            .name = p->name,
            .offset = p->offset,
            .count = p->count,
            .n_dims = p->n_dims,
            .shape = { p->shape[0], p->shape[1], p->shape[2], p->shape[3] },
            .keep = p->keep,
        };
    }
    return sized_out(layer->ctx, "foci_param", param, &full, sizeof full);
}

/* Heads side by side, each drawn row by row, one after another. */
static foci_status draw(const foci_layer *layer, const struct layer_param *p,
                        uint64_t seed, float *out)
{
    const enum frozen_kind kind =
        p->start == START_FRAME ? FROZEN_ORTHOGONAL : FROZEN_GAUSSIAN;
    struct frozen f = { .kind = kind,
                        .width = p->shape[0],
                        .heads = p->heads,
                        .dim = p->shape[1] / p->heads };

    foci_status status = frozen_make(layer->ctx, &f, seed, p->stream);
    if (!status) status = frozen_write(&f, out);
    frozen_free(layer->ctx, &f);
    return status;
}

/* All of the plan's, of which those that are stored are kept. */
static foci_status init_plan(const foci_layer *layer, uint64_t seed, float *params)
{
    const int64_t n = foci_plan_param_floats(layer->plan);

    if (!layer->n_distances) return foci_params_init(layer->plan, seed, params);
    float *all = ctx_alloc(layer->ctx, (size_t)n, sizeof *all);
    if (!all) return FOCI_ERR_MEMORY;
    const foci_status status = foci_params_init(layer->plan, seed, all);
    layer_keep_stored(layer, all, params);
    ctx_free(layer->ctx, all, (size_t)n, sizeof *all);
    return status;
}

foci_status foci_layer_params_init(const foci_layer *layer, uint64_t seed, float *params)
{
    if (!layer || (layer->n_floats && !params))
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_params_init: %s is NULL",
                        layer ? "params" : "the layer");
    for (int i = 0; i < layer->n_params; i++) {
        const struct layer_param *p = &layer->params[i];

        if (p->frozen >= 0) continue;
        if (p->start == START_NORMAL || p->start == START_FRAME)
            TRY(draw(layer, p, seed, params + p->offset));
        else
            for (int64_t t = 0; t < p->count; t++)
                params[p->offset + t] = p->start == START_ONE ? 1 : 0;
    }
    return init_plan(layer, seed, params + layer->own_floats);
}

static const struct layer_param *frozen_param(const foci_layer *layer, int index)
{
    if (!layer || index < 0 || index >= layer->n_params) return NULL;
    return layer->params[index].frozen < 0 ? NULL : &layer->params[index];
}

static foci_status no_frozen(const foci_layer *layer, int index,
                             const struct layer_param *p)
{
    if (!layer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "frozen tensors: the layer is NULL");
    if (p) return ctx_fail(layer->ctx, FOCI_ERR_ARG, "frozen tensors: data is NULL");
    return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                    "tensor %d of this layer is not one that is frozen", index);
}

foci_status foci_layer_frozen_get(const foci_layer *layer, int index, float *out)
{
    const struct layer_param *p = frozen_param(layer, index);

    if (!p || !out) return no_frozen(layer, index, p);
    return frozen_write(&layer->frozen[p->frozen], out);
}

/* A transform becomes the matrix that was given. */
foci_status foci_layer_frozen_set(foci_layer *layer, int index, const float *data)
{
    const struct layer_param *p = frozen_param(layer, index);

    if (!p || !data) return no_frozen(layer, index, p);
    struct frozen *f = &layer->frozen[p->frozen];
    if (!f->dense) {
        float *dense = ctx_alloc(layer->ctx, (size_t)p->count, sizeof *dense);
        if (!dense) return FOCI_ERR_MEMORY;
        struct frozen given = *f;
        frozen_free(layer->ctx, f);
        *f = (struct frozen){ .kind = FROZEN_GAUSSIAN,
                              .width = given.width,
                              .heads = given.heads,
                              .dim = given.dim,
                              .dense = dense,
                              .ctx = layer->ctx };
    }
    memcpy(f->dense, data, (size_t)p->count * sizeof *data);
    return FOCI_OK;
}
