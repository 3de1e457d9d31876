/* pass_last.c -- models that answer all labels of a row from its last token.
 *
 *     z_i = x_last + sinusoid(i),   y_i = z_i + act(norm(z_i) W1 + b1) W2 + b2
 *
 * x_last is what the last block made of the last token: all that there is to say of the row has
 * to be in these `width` numbers.  Spreading them over the row is an embedding whose table has
 * one line for each row of the batch, and so is its gradient.
 */
#include <string.h>

#include "train/pass.h"

/* The last rows in f32, [batch][width], and for each position the line to take. */
struct spread {
    float   *table;
    int32_t *ids;
};

static struct spread take_spread(struct model_pass *x, const struct pass_side *s)
{
    struct spread p;

    p.table = pass_temp(x, s->batch * x->m->config.width, sizeof *p.table);
    p.ids = pass_temp(x, s->rows, sizeof *p.ids);
    for (int64_t i = 0; !x->dry && i < s->rows; i++)
        p.ids[i] = (int32_t)(i / s->len);
    return p;
}

static foci_embed_io spread_io(const struct model_pass *x, const struct pass_side *s,
                               const struct spread *p)
{
    return (foci_embed_io){
        FOCI_SIZED(foci_embed_io),
        .dtype = x->m->config.dtype,
        .batch = s->batch,
        .len = s->len,
        .width = x->m->config.width,
        .vocab = s->batch,
        .n_positions = s->stack->context,
        .ids = p->ids,
        .lens = s->lens,
        .table = p->table,
        .positions = s->stack->codes,
    };
}

/* The row of the last token of sequence b; of an empty one its first, which has no label. */
static char *last_row(const struct model_pass *x, const struct pass_side *s, void *rows,
                      int64_t b)
{
    const int64_t last = b * s->len + (s->lens[b] > 0 ? s->lens[b] - 1 : 0);
    return (char *)rows + (size_t)(last * x->m->config.width) * act_bytes(x);
}

foci_status last_forward(struct model_pass *x, const struct pass_side *s,
                         struct stack_acts *k, void **flow)
{
    const foci_model_config *c = &x->m->config;
    const size_t             mark = x->temp.used;
    const struct spread      p = take_spread(x, s);
    void                    *z = pass_flow(x, s, *flow), *y;
    foci_embed_io            io = spread_io(x, s, &p);

    for (int64_t b = 0; !x->dry && b < s->batch; b++)
        TRY(foci_convert(x->m->ctx, FOCI_F32, p.table + b * c->width, c->dtype,
                         last_row(x, s, *flow, b), c->width));
    io.y = z;
    if (!x->dry) TRY(x->m->ops->embed_forward(x->m->ctx, &io));
    y = pass_flow(x, s, z);
    TRY(ffn_forward(x, s, &s->stack->reader, x->m->n_attentions, &k->reader, z, y));
    *flow = y;
    pass_release(x, mark);
    return FOCI_OK;
}

foci_status last_backward(struct model_pass *x, const struct pass_side *s,
                          const struct stack_acts *k, void *d)
{
    const foci_model_config *c = &x->m->config;
    const size_t             mark = x->temp.used;
    const struct spread      p = take_spread(x, s);
    foci_embed_io            io = spread_io(x, s, &p);

    TRY(ffn_backward(x, s, &s->stack->reader, x->m->n_attentions, &k->reader, d));
    io.dy = d;
    io.dtable = p.table;
    if (!x->dry) {
        memset(p.table, 0, (size_t)(s->batch * c->width) * sizeof *p.table);
        TRY(x->m->ops->embed_backward(x->m->ctx, &io));
        memset(d, 0, (size_t)(s->rows * c->width) * act_bytes(x));
        for (int64_t b = 0; b < s->batch; b++)
            TRY(foci_convert(x->m->ctx, c->dtype, last_row(x, s, d, b), FOCI_F32,
                             p.table + b * c->width, c->width));
    }
    pass_release(x, mark);
    return FOCI_OK;
}
