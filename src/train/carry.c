/* carry.c -- hidden states that a batch hands on to the batch that continues it. */
#include <inttypes.h>

#include "train/pass.h"

size_t carry_bytes(const struct attention *a, int64_t batch)
{
    const foci_layer_problem *p = &a->problem;

    return (size_t)(batch * p->memory * p->width) * foci_dtype_bytes(p->dtype);
}

/* Attention number `index`, in the order of blocks. */
static const struct attention *find(const foci_model *m, int64_t index)
{
    for (int i = 0; i < m->n_stacks; i++)
        for (int64_t b = 0; b < m->stacks[i].n; b++) {
            const struct model_block *block = &m->stacks[i].blocks[b];
            if (block->self.index == index) return &block->self;
            if (m->stacks[i].cross && block->cross.index == index) return &block->cross;
        }
    return NULL;
}

static bool carries(const foci_model *m)
{
    for (int64_t i = 0; i < m->n_attentions; i++)
        if (find(m, i)->problem.memory) return true;
    return false;
}

static foci_status carry_fill(foci_carry *c)
{
    foci_model *m = c->model;

    c->rows = ctx_alloc(m->ctx, (size_t)m->n_attentions, sizeof *c->rows);
    c->next = ctx_alloc(m->ctx, (size_t)m->n_attentions, sizeof *c->next);
    if (!c->rows || !c->next) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < m->n_attentions; i++) {
        const size_t bytes = carry_bytes(find(m, i), c->batch);
        if (!bytes) continue;
        c->rows[i] = ctx_alloc(m->ctx, bytes, 1);
        c->next[i] = ctx_alloc(m->ctx, bytes, 1);
        if (!c->rows[i] || !c->next[i]) return FOCI_ERR_MEMORY;
    }
    return FOCI_OK;
}

foci_status foci_carry_create(foci_model *model, int64_t batch, foci_carry **carry)
{
    if (!model || !carry)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_carry_create: %s is NULL", model ? "carry" : "the model");
    *carry = NULL;
    if (batch < 1)
        return ctx_fail(model->ctx, FOCI_ERR_ARG,
                        "batch is %" PRId64 ": a carry has 1 row or more", batch);
    if (!carries(model)) return FOCI_OK;
    foci_carry *c = ctx_alloc(model->ctx, 1, sizeof *c);
    if (!c) return FOCI_ERR_MEMORY;
    c->model = model;
    c->batch = batch;
    const foci_status status = carry_fill(c);
    if (status) {
        foci_carry_free(c);
        return status;
    }
    *carry = c;
    return FOCI_OK;
}

void foci_carry_free(foci_carry *carry)
{
    if (!carry) return;
    foci_model *m = carry->model;
    void      **lists[] = { carry->rows, carry->next };

    for (int l = 0; l < 2; l++) {
        for (int64_t i = 0; lists[l] && i < m->n_attentions; i++)
            if (lists[l][i])
                ctx_free(m->ctx, lists[l][i], carry_bytes(find(m, i), carry->batch), 1);
        if (lists[l])
            ctx_free(m->ctx, lists[l], (size_t)m->n_attentions, sizeof *lists[l]);
    }
    ctx_free(m->ctx, carry, 1, sizeof *carry);
}

foci_status carry_check(const struct model_pass *x)
{
    const foci_carry *c = x->o->carry;

    if (!c || (c->model == x->m && c->batch == x->batch->batch)) return FOCI_OK;
    return ctx_fail(x->m->ctx, FOCI_ERR_ARG,
                    "the carry is of another model, or of %" PRId64
                    " rows where the batch has %" PRId64,
                    c->batch, x->batch->batch);
}

void carry_swap(foci_carry *carry)
{
    if (!carry) return;
    void **rows = carry->rows;
    carry->rows = carry->next;
    carry->next = rows;
}
