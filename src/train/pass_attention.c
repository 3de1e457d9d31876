/* pass_attention.c -- attention of a block: y = x + layer(conv(norm(x))). */
#include <stdio.h>
#include <string.h>

#include "train/pass.h"

static foci_conv_io conv_io(const struct model_pass *x, const struct pass_side *s,
                            const struct attention *a)
{
    const foci_model_config *c = &x->m->config;

    return (foci_conv_io){
        FOCI_SIZED(foci_conv_io), .dtype = c->dtype,
        .batch = s->batch,        .len = s->len,
        .width = c->width,        .taps = c->conv,
        .lens = s->lens,          .w = at_offset(x->m->params, a->conv),
        .work = x->work,
    };
}

/* What the layer reads: rows behind the norm n, and in their place those behind the
 * convolution. */
static foci_status prepare(struct model_pass *x, const struct pass_side *s,
                           const struct attention *a, const void *in, float *stats,
                           void **n, void **rows)
{
    const int64_t width = x->m->config.width;

    *rows = *n = pass_temp(x, s->rows * width, act_bytes(x));
    TRY(norm_rows(x, s->rows, a->gain, a->bias, in, *n, stats));
    if (a->conv < 0) return FOCI_OK;
    *rows = pass_temp(x, s->rows * width, act_bytes(x));
    foci_conv_io io = conv_io(x, s, a);
    io.x = *n;
    io.y = *rows;
    return x->dry ? FOCI_OK : x->m->ops->conv_forward(x->m->ctx, &io);
}

static bool crosses(const struct attention *a) { return a->problem.len_source > 0; }

/* Memory of the batch before; rows of zeros where nothing is carried. */
static void set_memory(struct model_pass *x, const struct attention *a,
                       foci_layer_io *io)
{
    foci_carry *c = x->o->carry;

    if (!a->problem.memory) return;
    if (c) {
        io->memory = c->rows[a->index];
        io->memory_next = c->next[a->index];
        if (!x->batch->carries && !x->dry)
            memset(c->rows[a->index], 0, carry_bytes(a, c->batch));
        return;
    }
    const size_t bytes = carry_bytes(a, x->batch->batch);
    void        *none = pass_temp(x, (int64_t)bytes, 1);
    if (!x->dry) memset(none, 0, bytes);
    io->memory = none;
}

static foci_layer_io layer_io(struct model_pass *x, const struct pass_side *s,
                              const struct attention *a, const void *rows,
                              const void *in, void *out, void *saved)
{
    foci_layer_io io = {
        FOCI_SIZED(foci_layer_io),
        .x = rows,
        .source = crosses(a) ? s->source : NULL,
        .residual = in,
        .y = out,
        .lens = s->lens,
        .lens_source = crosses(a) ? s->source_lens : NULL,
        .words = s->words,
        .params = x->m->params + a->params,
        .saved = saved,
        .work = x->work,
        .dropout_seed = draw_seed(x->o->dropout_seed, DRAW_LAYER, a->index),
    };
    set_memory(x, a, &io);
    return io;
}

/* Which attention a refusal is of. */
static foci_status layer_status(const struct model_pass *x, const struct attention *a,
                                foci_status status)
{
    char text[400];

    if (status != FOCI_ERR_ARG) return status;
    snprintf(text, sizeof text, "%s", foci_errmsg(x->m->ctx));
    return ctx_fail(x->m->ctx, status, "attention %lld of the model: %s",
                    (long long)a->index, text);
}

/* On the first step, and on the one behind each redraw. */
static bool calibration_due(const struct model_pass *x, const struct attention *a)
{
    const int64_t done = x->o->calibrate - 1;

    if (!a->calibrates || done < 0) return false;
    return done == 0 || (a->redraw && done % a->redraw == 0);
}

foci_status attention_forward(struct model_pass *x, const struct pass_side *s,
                              const struct attention *a, struct attention_acts *k,
                              void *in, void *out)
{
    const foci_layer *layer = x->shape->layers[a->index];
    const size_t      mark = x->temp.used;
    void             *n, *rows;

    if (x->train) {
        k->in = in;
        k->stats = pass_keep(x, 2 * s->rows, sizeof(float));
        k->saved = pass_keep(x, (int64_t)foci_layer_saved_bytes(layer), 1);
    }
    TRY(prepare(x, s, a, in, x->train ? k->stats : NULL, &n, &rows));
    const foci_layer_io io =
        layer_io(x, s, a, rows, in, out, x->train ? k->saved : NULL);
    if (x->dry) {
        TRY(pass_needs(x, foci_layer_work_bytes(layer)));
    } else {
        if (calibration_due(x, a))
            TRY(foci_layer_params_calibrate(layer, &io, x->m->params + a->params));
        if (x->observe) pass_show(x, s, a, &io);
        TRY(layer_status(x, a, x->m->ops->layer_forward(layer, &io)));
    }
    pass_release(x, mark);
    return FOCI_OK;
}

/* The gradient of the source grows by that of this block. */
static foci_status add_source(struct model_pass *x, const struct pass_side *s)
{
    const foci_act_io io = {
        FOCI_SIZED(foci_act_io),     .act = FOCI_ACT_NONE,
        .dtype = x->m->config.dtype, .rows = s->batch * s->source_len,
        .width = x->m->config.width, .x = s->d_source_part,
        .residual = s->d_source,     .y = s->d_source,
    };
    return x->m->ops->act_forward(x->m->ctx, &io);
}

static foci_status layer_back(struct model_pass *x, const struct pass_side *s,
                              const struct attention *a, const foci_layer_io *io,
                              const void *dy, void *dx)
{
    const foci_layer      *layer = x->shape->layers[a->index];
    const foci_layer_grads g = {
        FOCI_SIZED(foci_layer_grads),
        .dy = dy,
        .dx = dx,
        .dsource = crosses(a) ? s->d_source_part : NULL,
        .dparams = x->grads + a->params,
    };

    if (x->dry) return pass_needs(x, foci_layer_work_bytes(layer));
    TRY(layer_status(x, a, x->m->ops->layer_backward(layer, io, &g)));
    if (crosses(a)) TRY(add_source(x, s));
    if (!x->o->advance || !a->moves) return FOCI_OK;
    return foci_layer_params_advance(layer, io, x->m->params + a->params);
}

static foci_status conv_back(struct model_pass *x, const struct pass_side *s,
                             const struct attention *a, const void *n, const void *dy,
                             void **dn)
{
    if (a->conv < 0) return FOCI_OK;
    foci_conv_io io = conv_io(x, s, a);
    io.x = n;
    io.dy = dy;
    io.dx = *dn = pass_temp(x, s->rows * x->m->config.width, act_bytes(x));
    io.dw = at_offset(x->grads, a->conv);
    if (x->dry) return pass_needs(x, foci_conv_work_bytes(x->m->ctx, &io));
    return x->m->ops->conv_backward(x->m->ctx, &io);
}

foci_status attention_backward(struct model_pass *x, const struct pass_side *s,
                               const struct attention      *a,
                               const struct attention_acts *k, void *d)
{
    const size_t mark = x->temp.used;
    void        *n, *rows;

    TRY(prepare(x, s, a, k->in, NULL, &n, &rows));
    void               *dn = pass_temp(x, s->rows * x->m->config.width, act_bytes(x));
    const foci_layer_io io = layer_io(x, s, a, rows, k->in, d, k->saved);
    TRY(layer_back(x, s, a, &io, d, dn));
    TRY(conv_back(x, s, a, n, dn, &dn));
    TRY(norm_back(x, s->rows, a->gain, a->bias, k->in, k->stats, dn, d, d));
    pass_release(x, mark);
    return FOCI_OK;
}
