/* device.c -- executions on a device: operands are copied there, and results back. */
#include "cli/device.h"

#include <stdio.h>
#include <string.h>

bool on_device(const foci_ctx *ctx)
{
    foci_device d = { FOCI_SIZED(foci_device) };
    return foci_ctx_get_device(ctx, &d) == FOCI_OK && d.name;
}

const char *device_reason(const foci_ctx *ctx, foci_status status)
{
    const bool told = status == FOCI_ERR_DEVICE || status == FOCI_ERR_MEMORY;
    return told && on_device(ctx) ? foci_errmsg(ctx) : foci_status_text(status);
}

/* The copy of `bytes` at `host`; NULL of NULL, and once something has failed. */
static void *send(struct device_copy *c, const void *host, size_t bytes, bool result)
{
    struct device_block *b = &c->blocks[c->n];

    if (!host || c->status) return NULL;
    *b =
        (struct device_block){ .host = (void *)host, .bytes = bytes, .result = result };
    c->status = foci_device_alloc(c->ctx, bytes, &b->there);
    if (c->status) return NULL;
    c->n++;
    c->status = foci_device_write(c->ctx, b->there, host, bytes);
    return b->there;
}

static size_t extent(const foci_problem *p, const foci_layout *l, int64_t rows,
                     int64_t heads, int64_t dim)
{
    if (!p->batch || !rows || !heads) return 0;
    return (size_t)((p->batch - 1) * l->batch + (rows - 1) * l->row +
                    (heads - 1) * l->head + dim) *
           foci_dtype_bytes(p->dtype);
}

foci_status device_send(foci_ctx *ctx, const foci_plan *plan, const foci_io *io,
                        const foci_grads *g, struct device_copy *c)
{
    foci_problem p = { FOCI_SIZED(foci_problem) };

    *c = (struct device_copy){ .ctx = ctx, .io = *io };
    foci_plan_get_problem(plan, &p);
    const size_t q = extent(&p, &p.q, p.len_q, p.heads, p.dim_qk);
    const size_t k = extent(&p, &p.k, p.len_k, p.kv_heads, p.dim_qk);
    const size_t v = extent(&p, &p.v, p.len_k, p.kv_heads, p.dim_v);
    const size_t o = extent(&p, &p.o, p.len_q, p.heads, p.dim_v);
    const size_t params = (size_t)foci_plan_param_floats(plan) * sizeof(float);
    const size_t lens = (size_t)p.batch * sizeof(int32_t);
    const size_t pairs = (size_t)(p.mask_batch * p.mask_heads * p.len_q * p.len_k);

    c->io.q = send(c, io->q, q, false);
    c->io.k = send(c, io->k, k, false);
    c->io.v = send(c, io->v, v, false);
    c->io.o = send(c, io->o, o, true);
    c->io.lse =
        send(c, io->lse, (size_t)(p.batch * p.heads * p.len_q) * sizeof(float), true);
    c->io.len_q = send(c, io->len_q, lens, false);
    c->io.len_k = send(c, io->len_k, lens, false);
    c->io.docs = send(c, io->docs, (size_t)(io->n_docs + 1) * sizeof(int32_t), false);
    c->io.params = send(c, io->params, params, false);
    c->io.mask = send(c, io->mask, pairs, false);
    c->io.bias = send(c, io->bias, pairs * sizeof(float), false);
    c->io.work = send(c, io->work, foci_plan_work_bytes(plan), false);
    c->io.saved = send(c, io->saved, foci_plan_saved_bytes(plan), false);
    if (!g) return c->status;
    c->grads = *g;
    c->grads.d_o = send(c, g->d_o, o, false);
    c->grads.dq = send(c, g->dq, q, true);
    c->grads.dk = send(c, g->dk, k, true);
    c->grads.dv = send(c, g->dv, v, true);
    c->grads.dparams = send(c, g->dparams, params, true);
    c->grads.dbias = send(c, g->dbias, pairs * sizeof(float), true);
    return c->status;
}

foci_status device_fetch(struct device_copy *c)
{
    for (int i = 0; i < c->n && !c->status; i++)
        if (c->blocks[i].result)
            c->status = foci_device_read(c->ctx, c->blocks[i].host, c->blocks[i].there,
                                         c->blocks[i].bytes);
    return c->status;
}

void device_release(struct device_copy *c)
{
    for (int i = 0; i < c->n; i++)
        foci_device_free(c->ctx, c->blocks[i].there, c->blocks[i].bytes);
    c->n = 0;
}
