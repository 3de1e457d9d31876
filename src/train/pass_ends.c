/* pass_ends.c -- the embedding before the first block, and norm and loss after the last. */
#include <math.h>

#include "train/pass.h"

/*
 * Norms
 */

static foci_norm_io norm_io(const struct model_pass *x, int64_t rows, int64_t gain,
                            int64_t bias, const void *in, float *stats)
{
    const foci_model_config *c = &x->m->config;

    return (foci_norm_io){
        FOCI_SIZED(foci_norm_io),
        .kind = c->norm,
        .dtype = c->dtype,
        .rows = rows,
        .width = c->width,
        .gain = at_offset(x->m->params, gain),
        .bias = at_offset(x->m->params, bias),
        .x = in,
        .stats = stats,
        .work = x->work,
    };
}

foci_status norm_rows(struct model_pass *x, int64_t rows, int64_t gain, int64_t bias,
                      const void *in, void *out, float *stats)
{
    foci_norm_io io = norm_io(x, rows, gain, bias, in, stats);

    io.y = out;
    return x->dry ? FOCI_OK : x->m->ops->norm_forward(x->m->ctx, &io);
}

foci_status norm_back(struct model_pass *x, int64_t rows, int64_t gain, int64_t bias,
                      const void *in, float *stats, const void *dy, void *more, void *dx)
{
    foci_norm_io io = norm_io(x, rows, gain, bias, in, stats);

    io.dy = dy;
    io.more = more;
    io.dx = dx;
    io.dgain = at_offset(x->grads, gain);
    io.dbias = at_offset(x->grads, bias);
    if (x->dry) return pass_needs(x, foci_norm_work_bytes(x->m->ctx, &io));
    return x->m->ops->norm_backward(x->m->ctx, &io);
}

/*
 * Embeddings
 */

static foci_embed_io embed_io(const struct model_pass *x, const struct pass_side *s)
{
    const foci_model_config *c = &x->m->config;
    const bool               scaled = c->positions == FOCI_POSITIONS_SINUSOID;
    float                   *learned = at_offset(x->m->params, s->stack->positions);

    return (foci_embed_io){
        FOCI_SIZED(foci_embed_io),
        .dtype = c->dtype,
        .batch = s->batch,
        .len = s->len,
        .width = c->width,
        .vocab = s->stack->vocab,
        .n_positions = learned || s->stack->waves ? s->stack->context : 0,
        .ids = c->patch ? NULL : s->ids,
        .lens = s->lens,
        .table = at_offset(x->m->params, s->stack->embedding),
        .positions = learned ? learned : s->stack->waves,
        .scale = scaled ? sqrt((double)c->width) : 1,
        .dropout = x->train ? c->embedding_dropout : 0,
        .dropout_seed =
            draw_seed(x->o->dropout_seed, DRAW_EMBEDDING, s->stack - x->m->stacks),
    };
}

/* Patches times their matrix. */
static foci_product_io patch_io(const struct model_pass *x, const struct pass_side *s,
                                void *out)
{
    const foci_model_config *c = &x->m->config;

    return (foci_product_io){
        FOCI_SIZED(foci_product_io),
        .m = s->rows,
        .n = c->width,
        .k = c->patch,
        .a = s->patches,
        .b = at_offset(x->m->params, s->stack->patch),
        .c = out,
        .type_a = FOCI_F32,
        .type_b = FOCI_F32,
        .type_c = c->dtype,
        .flags = c->dtype == FOCI_F32 ? 0 : FOCI_PRODUCT_FAST,
        .bias = at_offset(x->m->params, s->stack->patch_bias),
        .work = x->work,
    };
}

foci_status embed_stack(struct model_pass *x, const struct pass_side *s, void *out)
{
    foci_embed_io io = embed_io(x, s);

    if (x->m->config.patch) {
        const foci_product_io p = patch_io(x, s, out);
        if (x->dry) return pass_needs(x, foci_product_work_bytes(x->m->ctx, &p));
        TRY(x->m->ops->product(x->m->ctx, &p));
        io.x = out;
    }
    io.y = out;
    return x->dry ? FOCI_OK : x->m->ops->embed_forward(x->m->ctx, &io);
}

static foci_status patch_back(struct model_pass *x, const struct pass_side *s,
                              const void *d)
{
    const foci_product_io p = patch_io(x, s, (void *)d);
    foci_product_grads    g = {
           FOCI_SIZED(foci_product_grads),
           .dc = d,
           .db = at_offset(x->grads, s->stack->patch),
           .dbias = at_offset(x->grads, s->stack->patch_bias),
           .work = x->work,
    };
    if (x->dry) return pass_needs(x, foci_product_grads_work_bytes(x->m->ctx, &p, &g));
    return x->m->ops->product_backward(x->m->ctx, &p, &g);
}

foci_status embed_back(struct model_pass *x, const struct pass_side *s, void *d)
{
    foci_embed_io io = embed_io(x, s);

    io.dy = d;
    io.dtable = at_offset(x->grads, s->stack->embedding);
    io.dpositions = at_offset(x->grads, s->stack->positions);
    if (x->m->config.patch)
        io.x = io.dx = d; /* backward reads no x: it must be there */
    if (!x->dry) TRY(x->m->ops->embed_backward(x->m->ctx, &io));
    return x->m->config.patch ? patch_back(x, s, d) : FOCI_OK;
}

/*
 * The output
 */

static foci_pooling_io pooling_io(const struct model_pass *x, const struct pass_side *s)
{
    return (foci_pooling_io){
        FOCI_SIZED(foci_pooling_io),
        .kind = x->m->config.pooling,
        .dtype = x->m->config.dtype,
        .batch = s->batch,
        .len = s->len,
        .width = x->m->config.width,
        .lens = s->lens,
    };
}

foci_status pass_output_rows(struct model_pass *x, struct output_rows *o)
{
    const foci_model_config *c = &x->m->config;
    const int                last = x->m->n_stacks - 1;
    const struct pass_side  *s = &x->sides[last];

    if (c->task != FOCI_MODEL_CLASSIFY) {
        *o = (struct output_rows){ x->acts[last].out, s->rows, s->stack->vocab,
                                   x->batch->labels };
        return FOCI_OK;
    }
    foci_pooling_io io = pooling_io(x, s);
    io.x = x->acts[last].out;
    io.y = pass_temp(x, s->batch * c->width, act_bytes(x));
    *o = (struct output_rows){ io.y, s->batch, c->classes, x->batch->classes };
    return x->dry ? FOCI_OK : x->m->ops->pooling_forward(x->m->ctx, &io);
}

/* Rows without a label are left out. */
static void tell_labels(const struct model_pass *x, const struct output_rows *o,
                        const float *nats, const int32_t *best)
{
    const foci_loss_options *to = x->o;
    int64_t                  n = 0;

    for (int64_t i = 0; i < o->rows; i++) {
        if (o->labels[i] < 0) continue;
        if (to->nats) to->nats[n] = nats[i];
        if (to->best) to->best[n] = best[i];
        n++;
    }
}

/* Sequences all of whose labels are the likeliest. */
static void count_exact(struct model_pass *x, const struct output_rows *o,
                        const int32_t *best)
{
    const int64_t batch = x->sides[x->m->n_stacks - 1].batch, len = o->rows / batch;

    for (int64_t b = 0; b < batch && !x->batch->n_docs; b++) {
        bool some = false, right = true;
        for (int64_t i = b * len; i < (b + 1) * len; i++) {
            some = some || o->labels[i] >= 0;
            right = right && best[i] == o->labels[i];
        }
        x->sequences += some;
        x->exact += some && right;
    }
}

static foci_status loss_run(struct model_pass *x, const struct output_rows *o, void *dh)
{
    const foci_model_config *c = &x->m->config;
    foci_loss_io             io = {
                    FOCI_SIZED(foci_loss_io),
                    .dtype = c->dtype,
                    .rows = o->rows,
                    .width = c->width,
                    .vocab = o->vocab,
                    .h = o->h,
                    .w = at_offset(x->m->params, x->m->out),
                    .bias = at_offset(x->m->params, x->m->out_bias),
                    .labels = o->labels,
                    .smoothing = x->o->smoothing,
                    .scale = x->o->scale,
                    .dh = dh,
                    .dw = at_offset(x->grads, x->m->out),
                    .dbias = at_offset(x->grads, x->m->out_bias),
                    .work = x->work,
    };
    if (!dh) {
        io.best = pass_temp(x, o->rows, sizeof *io.best);
        io.row_loss = pass_temp(x, o->rows, sizeof *io.row_loss);
    }
    if (x->dry) return pass_needs(x, foci_loss_work_bytes(x->m->ctx, &io, dh != NULL));
    if (dh) return x->m->ops->loss_backward(x->m->ctx, &io, &x->sums);
    TRY(x->m->ops->loss_forward(x->m->ctx, &io, &x->sums));
    count_exact(x, o, io.best);
    tell_labels(x, o, io.row_loss, io.best);
    return FOCI_OK;
}

foci_status head_run(struct model_pass *x, void *d)
{
    const int               last = x->m->n_stacks - 1;
    const struct pass_side *s = &x->sides[last];
    const size_t            mark = x->temp.used;
    struct output_rows      o = { 0 };
    void                   *dh = d;

    TRY(pass_output_rows(x, &o));
    const bool pools = x->m->config.task == FOCI_MODEL_CLASSIFY;
    if (d && pools) dh = pass_temp(x, o.rows * x->m->config.width, act_bytes(x));
    TRY(loss_run(x, &o, dh));
    if (d && pools) {
        foci_pooling_io io = pooling_io(x, s);
        io.dy = dh;
        io.dx = d;
        if (!x->dry) TRY(x->m->ops->pooling_backward(x->m->ctx, &io));
    }
    if (d)
        TRY(norm_back(x, s->rows, s->stack->gain, s->stack->bias, x->acts[last].last,
                      x->acts[last].stats, d, NULL, d));
    pass_release(x, mark);
    return FOCI_OK;
}
