/* pass.c -- forward and backward through all blocks. */
#include <string.h>

#include "train/pass.h"

/* Stands for memory that a dry pass does not have. */
static char stand_in[64];

void *pass_keep(struct model_pass *x, int64_t n, size_t size)
{
    void *p = arena_alloc(&x->keep, n, size);
    return x->dry ? stand_in : p;
}

void *pass_temp(struct model_pass *x, int64_t n, size_t size)
{
    void *p = arena_alloc(&x->temp, n, size);
    if (x->temp.used > x->temp_peak) x->temp_peak = x->temp.used;
    return x->dry ? stand_in : p;
}

void *pass_flow(struct model_pass *x, const struct pass_side *s, const void *current)
{
    if (x->train) return pass_keep(x, s->rows * x->m->config.width, act_bytes(x));
    return x->dry || current == x->flow[1] ? x->flow[0] : x->flow[1];
}

foci_status pass_needs(struct model_pass *x, size_t bytes)
{
    if (bytes > x->work_bytes) x->work_bytes = bytes;
    return FOCI_OK;
}

static void set_sides(struct model_pass *x)
{
    const foci_batch *b = x->batch;
    const int         last = x->m->n_stacks - 1;

    x->sides[last] = (struct pass_side){
        .len = b->len,
        .ids = b->ids,
        .lens = b->lens,
        .words = b->words,
        .patches = b->patches,
        .source_len = b->source_len,
        .source_lens = b->source_lens,
    };
    if (last)
        x->sides[0] = (struct pass_side){ .len = b->source_len,
                                          .ids = b->source_ids,
                                          .lens = b->source_lens,
                                          .words = b->source_words };
    for (int i = 0; i <= last; i++) {
        x->sides[i].stack = &x->m->stacks[i];
        x->sides[i].batch = b->batch;
        x->sides[i].rows = b->batch * x->sides[i].len;
    }
}

void pass_begin(struct model_pass *x, foci_model *m, const foci_batch *batch,
                const struct pass_shape *shape)
{
    *x = (struct model_pass){ .m = m,
                              .batch = batch,
                              .shape = shape,
                              .train = shape->extent == EXTENT_GRADIENTS,
                              .sums = { FOCI_SIZED(foci_loss_sums) } };
    set_sides(x);
}

/* Give the pass the model's memory, which grows when a shape needs more than any before. */
foci_status pass_memory(struct model_pass *x)
{
    foci_model              *m = x->m;
    const struct pass_shape *s = x->shape;
    const size_t             bytes = s->keep_bytes + s->temp_bytes + s->work_bytes;

    if (bytes > m->memory_bytes) {
        if (m->memory) ctx_free(m->ctx, m->memory, m->memory_bytes, 1);
        m->memory_bytes = 0;
        m->memory = ctx_alloc(m->ctx, bytes, 1);
        if (!m->memory) return FOCI_ERR_MEMORY;
        m->memory_bytes = bytes;
        m->most_bytes = bytes;
    }
    x->keep.base = m->memory;
    x->temp.base = m->memory + s->keep_bytes;
    x->work = m->memory + s->keep_bytes + s->temp_bytes;
    return FOCI_OK;
}

/*
 * Forward
 */

static foci_status block_forward(struct model_pass *x, const struct pass_side *s,
                                 int64_t index, struct block_acts *k, void **flow)
{
    const struct model_block *b = &s->stack->blocks[index];
    void                     *out = pass_flow(x, s, *flow);

    TRY(attention_forward(x, s, &b->self, &k->self, *flow, out));
    *flow = out;
    if (s->stack->cross) {
        out = pass_flow(x, s, *flow);
        TRY(attention_forward(x, s, &b->cross, &k->cross, *flow, out));
        *flow = out;
    }
    if (!x->m->config.ffn) return FOCI_OK;
    out = pass_flow(x, s, *flow);
    TRY(ffn_forward(x, s, &b->ffn, b->self.index, k, *flow, out));
    *flow = out;
    return FOCI_OK;
}

/* Where nothing is kept the stream goes to and fro between two places. */
static void begin_flow(struct model_pass *x, const struct pass_side *s)
{
    const int64_t n = s->rows * x->m->config.width;

    if (x->train) return;
    x->flow[0] = pass_temp(x, n, act_bytes(x));
    x->flow[1] = pass_temp(x, n, act_bytes(x));
}

static foci_status stack_forward(struct model_pass *x, int i)
{
    struct pass_side  *s = &x->sides[i];
    struct stack_acts *k = &x->acts[i];
    const int64_t      n = s->rows * x->m->config.width;
    struct block_acts  dry = { 0 };

    k->out = pass_keep(x, n, act_bytes(x));
    k->stats = pass_keep(x, 2 * s->rows, sizeof(float));
    k->blocks = pass_keep(x, s->stack->n, sizeof *k->blocks);
    const size_t mark = x->temp.used;
    begin_flow(x, s);
    void *flow = pass_flow(x, s, NULL);
    TRY(embed_stack(x, s, flow));
    for (int64_t b = 0; b < s->stack->n; b++)
        TRY(block_forward(x, s, b, x->dry ? &dry : &k->blocks[b], &flow));
    if (s->stack->codes) TRY(last_forward(x, s, k, &flow));
    k->last = flow;
    TRY(norm_rows(x, s->rows, s->stack->gain, s->stack->bias, flow, k->out, k->stats));
    pass_release(x, mark);
    return FOCI_OK;
}

foci_status pass_encode(struct model_pass *x) { return stack_forward(x, 0); }

foci_status pass_forward(struct model_pass *x)
{
    if (x->m->n_stacks > 1) {
        TRY(stack_forward(x, 0));
        x->sides[1].source = x->acts[0].out;
    }
    return stack_forward(x, x->m->n_stacks - 1);
}

/*
 * Backward
 */

/* d is the gradient behind the block, and becomes that before it. */
static foci_status block_backward(struct model_pass *x, const struct pass_side *s,
                                  int64_t index, const struct block_acts *k, void *d)
{
    const struct model_block *b = &s->stack->blocks[index];

    if (x->m->config.ffn) TRY(ffn_backward(x, s, &b->ffn, b->self.index, k, d));
    if (s->stack->cross) TRY(attention_backward(x, s, &b->cross, &k->cross, d));
    return attention_backward(x, s, &b->self, &k->self, d);
}

static foci_status stack_backward(struct model_pass *x, const struct pass_side *s,
                                  int i, void *d)
{
    static const struct block_acts dry;

    if (s->stack->codes) TRY(last_backward(x, s, &x->acts[i], d));
    for (int64_t b = s->stack->n - 1; b >= 0; b--)
        TRY(block_backward(x, s, b, x->dry ? &dry : &x->acts[i].blocks[b], d));
    return embed_back(x, s, d);
}

/* The gradient of the source is the sum of what blocks of the decoder give. */
static foci_status begin_source(struct model_pass *x, struct pass_side *s,
                                const struct pass_side *from)
{
    const int64_t n = from->rows * x->m->config.width;

    s->d_source = pass_temp(x, n, act_bytes(x));
    s->d_source_part = pass_temp(x, n, act_bytes(x));
    if (!x->dry) memset(s->d_source, 0, (size_t)n * act_bytes(x));
    return FOCI_OK;
}

foci_status pass_backward(struct model_pass *x)
{
    const int         last = x->m->n_stacks - 1;
    struct pass_side *s = &x->sides[last];
    const size_t      mark = x->temp.used;

    if (last) TRY(begin_source(x, s, &x->sides[0]));
    void *d = pass_temp(x, s->rows * x->m->config.width, act_bytes(x));
    TRY(head_run(x, d));
    TRY(stack_backward(x, s, last, d));
    if (last) {
        const struct pass_side *e = &x->sides[0];
        void                   *de = s->d_source;
        TRY(norm_back(x, e->rows, e->stack->gain, e->stack->bias, x->acts[0].last,
                      x->acts[0].stats, de, NULL, de));
        TRY(stack_backward(x, e, 0, de));
    }
    pass_release(x, mark);
    return FOCI_OK;
}

foci_status pass_run(struct model_pass *x)
{
    if (x->shape->extent == EXTENT_ENCODER) return pass_encode(x);
    TRY(pass_forward(x));
    return x->train ? pass_backward(x) : head_run(x, NULL);
}

foci_status foci_model_loss(foci_model *model, const foci_batch *batch,
                            const foci_loss_options *options, float *grads,
                            foci_loss *loss)
{
    foci_loss_options        o = { FOCI_SIZED(foci_loss_options) };
    const struct pass_shape *shape;
    foci_batch               whole;
    struct model_pass        x;

    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_model_loss: the model is NULL");
    if (options) TRY(sized_in(model->ctx, "foci_loss_options", &o, options, sizeof o));
    if (loss) TRY(sized_check(model->ctx, "foci_loss", loss, sizeof *loss));
    TRY(batch_check(model, batch, &whole));
    TRY(shape_find(model, &whole, grads ? EXTENT_GRADIENTS : EXTENT_LOSS, &shape));
    pass_begin(&x, model, &whole, shape);
    x.o = &o;
    x.grads = grads;
    TRY(carry_check(&x));
    TRY(pass_memory(&x));
    TRY(pass_run(&x));
    carry_swap(o.carry);
    const foci_loss sums = { .sum = x.sums.loss,
                             .labels = x.sums.count,
                             .hits = x.sums.correct,
                             .sequences = x.sequences,
                             .exact = x.exact };
    return loss ? sized_out(model->ctx, "foci_loss", loss, &sums, sizeof sums)
                : FOCI_OK;
}
