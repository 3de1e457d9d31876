/* pass_ffn.c -- feed-forward layers: y = x + drop(act(norm(x) W1 + b1) W2 + b2). */
#include "train/pass.h"

static foci_product_io first_io(const struct model_pass *x, const struct pass_side *s,
                                const struct feed_forward *f, const void *n, void *a)
{
    const foci_model_config *c = &x->m->config;

    return (foci_product_io){
        FOCI_SIZED(foci_product_io),
        .m = s->rows,
        .n = c->ffn,
        .k = c->width,
        .a = n,
        .b = at_offset(x->m->params, f->w1),
        .c = a,
        .type_a = c->dtype,
        .type_b = FOCI_F32,
        .type_c = c->dtype,
        .flags = c->gated ? FOCI_PRODUCT_GATED : 0,
        .bias = at_offset(x->m->params, f->b1),
        .act = c->activation,
        .work = x->work,
    };
}

static foci_product_io second_io(const struct model_pass *x, const struct pass_side *s,
                                 const struct feed_forward *f, int64_t index,
                                 const void *a)
{
    const foci_model_config *c = &x->m->config;

    return (foci_product_io){
        FOCI_SIZED(foci_product_io),
        .m = s->rows,
        .n = c->width,
        .k = c->ffn,
        .a = a,
        .b = at_offset(x->m->params, f->w2),
        .type_a = c->dtype,
        .type_b = FOCI_F32,
        .type_c = c->dtype,
        .bias = at_offset(x->m->params, f->b2),
        .dropout = x->train ? c->dropout : 0,
        .dropout_seed = draw_seed(x->o->dropout_seed, DRAW_FFN, index),
        .work = x->work,
    };
}

static foci_status run_product(struct model_pass *x, const foci_product_io *io)
{
    if (x->dry) return pass_needs(x, foci_product_work_bytes(x->m->ctx, io));
    return x->m->ops->product(x->m->ctx, io);
}

static foci_status run_back(struct model_pass *x, const foci_product_io *io,
                            const foci_product_grads *g)
{
    if (x->dry) return pass_needs(x, foci_product_grads_work_bytes(x->m->ctx, io, g));
    return x->m->ops->product_backward(x->m->ctx, io, g);
}

foci_status ffn_forward(struct model_pass *x, const struct pass_side *s,
                        const struct feed_forward *f, int64_t index,
                        struct block_acts *k, void *in, void *out)
{
    const foci_model_config *c = &x->m->config;
    const size_t             mark = x->temp.used;
    void                    *n = pass_temp(x, s->rows * c->width, act_bytes(x));
    void                    *a = pass_temp(x, s->rows * c->ffn, act_bytes(x));
    foci_product_io          first = first_io(x, s, f, n, a);
    foci_product_io          second = second_io(x, s, f, index, a);

    if (x->train) {
        k->ffn_in = in;
        k->ffn_stats = pass_keep(x, 2 * s->rows, sizeof(float));
        k->pre = pass_keep(x, s->rows * ffn_columns(c), act_bytes(x));
        first.pre = k->pre;
    }
    second.c = out;
    second.residual = in;
    TRY(norm_rows(x, s->rows, f->gain, f->bias, in, n, x->train ? k->ffn_stats : NULL));
    TRY(run_product(x, &first));
    TRY(run_product(x, &second));
    pass_release(x, mark);
    return FOCI_OK;
}

/* What the activation made, once more. */
static foci_status activate(struct model_pass *x, const struct pass_side *s,
                            const void *pre, void *a)
{
    const foci_model_config *c = &x->m->config;
    const foci_act_io        io = {
               FOCI_SIZED(foci_act_io),
               .act = c->activation,
               .gated = c->gated,
               .dtype = c->dtype,
               .rows = s->rows,
               .width = c->ffn,
               .x = pre,
               .y = a,
    };
    return x->dry ? FOCI_OK : x->m->ops->act_forward(x->m->ctx, &io);
}

foci_status ffn_backward(struct model_pass *x, const struct pass_side *s,
                         const struct feed_forward *f, int64_t index,
                         const struct block_acts *k, void *d)
{
    const foci_model_config *c = &x->m->config;
    const size_t             mark = x->temp.used;
    void                    *n = pass_temp(x, s->rows * c->width, act_bytes(x));
    void                    *dn = pass_temp(x, s->rows * c->width, act_bytes(x));
    void                    *a = pass_temp(x, s->rows * c->ffn, act_bytes(x));
    void           *dpre = pass_temp(x, s->rows * ffn_columns(c), act_bytes(x));
    foci_product_io first = first_io(x, s, f, n, a);
    foci_product_io second = second_io(x, s, f, index, a);
    const foci_product_grads of_second = {
        FOCI_SIZED(foci_product_grads),
        .dc = d,
        .da = dpre,
        .db = at_offset(x->grads, f->w2),
        .dbias = at_offset(x->grads, f->b2),
        .act_a = c->activation,
        .gated_a = c->gated,
        .pre_a = x->dry ? (const void *)d : k->pre,
        .work = x->work,
    };
    const foci_product_grads of_first = {
        FOCI_SIZED(foci_product_grads),
        .dc = dpre,
        .dc_is_dz = 1,
        .da = dn,
        .db = at_offset(x->grads, f->w1),
        .dbias = at_offset(x->grads, f->b1),
        .work = x->work,
    };

    first.pre = (void *)of_second.pre_a;
    TRY(norm_rows(x, s->rows, f->gain, f->bias, k->ffn_in, n, NULL));
    TRY(activate(x, s, k->pre, a));
    TRY(run_back(x, &second, &of_second));
    TRY(run_back(x, &first, &of_first));
    TRY(norm_back(x, s->rows, f->gain, f->bias, k->ffn_in, k->ffn_stats, dn, d, d));
    pass_release(x, mark);
    return FOCI_OK;
}
