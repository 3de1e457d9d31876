/* layer_check.c -- checks of the arguments of an execution of a layer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/check.h"
#include "layer/layer.h"
#include "plan/groups.h"

static foci_status whole_io(const foci_layer *layer, const foci_layer_io *io,
                            const foci_layer_grads *grads, foci_layer_io *whole,
                            foci_layer_grads *whole_grads)
{
    memset(whole_grads, 0, sizeof *whole_grads);
    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    TRY(sized_in(layer->ctx, "foci_layer_io", whole, io, sizeof *whole));
    return grads ? sized_in(layer->ctx, "foci_layer_grads", whole_grads, grads,
                            sizeof *whole_grads)
                 : FOCI_OK;
}

/* A tensor of rows without gaps. */
struct check_rows {
    const void *data; /* NULL: it is not there */
    int64_t     n, width;
};

static bool meet(const foci_layer *layer, struct check_rows a, struct check_rows b)
{
    const size_t    el = foci_dtype_bytes(layer->p.dtype);
    const uintptr_t from_a = (uintptr_t)a.data, from_b = (uintptr_t)b.data;

    return a.data && b.data && from_a < from_b + (size_t)(b.n * b.width) * el &&
           from_b < from_a + (size_t)(a.n * a.width) * el;
}

static const char *overlap(const foci_layer *layer, const foci_layer_io *io,
                           const foci_layer_grads *g)
{
    const foci_layer_problem *p = &layer->p;
    const int64_t             n = p->batch * p->len;
    const struct check_rows   x = { io->x, n, p->width }, y = { io->y, n, p->width };
    const struct check_rows   source = { io->source, p->batch * p->len_source,
                                         p->width_source };
    const struct check_rows   memory = { io->memory, p->batch * p->memory, p->width };
    const struct check_rows   residual = { io->residual, n, p->width };

    if (!g) {
        if (meet(layer, y, x) || meet(layer, y, source) || meet(layer, y, memory))
            return "io.y overlaps io.x, io.source or io.memory: it needs memory of its "
                   "own";
        if (io->y != io->residual && meet(layer, y, residual))
            return "io.y overlaps io.residual and is not the same tensor";
        return NULL;
    }
    const struct check_rows dx = { g->dx, n, p->width }, dy = { g->dy, n, p->width };
    const struct check_rows dsource = { g->dsource, source.n, p->width_source };
    const struct check_rows ins[] = { x, source, memory, dy };
    for (size_t i = 0; i < sizeof ins / sizeof *ins; i++)
        if (meet(layer, dx, ins[i]) || meet(layer, dsource, ins[i]))
            return "grads.dx or grads.dsource overlaps an input: it needs memory of "
                   "its own";
    return meet(layer, dx, dsource) ? "grads.dx and grads.dsource overlap" : NULL;
}

static const char *fault(const foci_layer *layer, const foci_layer_io *io,
                         const foci_layer_grads *g)
{
    const foci_layer_problem *p = &layer->p;
    if (!io->x) return "io.x is NULL: hidden states are what a layer reads";
    if (!io->y && !g) return "io.y is NULL: the output needs a place";
    if (p->len_source && !io->source && !io->source_kv)
        return "io.source is NULL, and the layer was made with len_source";
    if (io->source_kv && (!p->len_source || io->saved || g))
        return "io.source_kv is of a layer with a source, and for inference only";
    if ((io->params_bf16 || io->precomputed) && (io->saved || g))
        return "io.params_bf16 and io.precomputed are for inference only";
    if ((uintptr_t)io->source_kv % 64) return "io.source_kv is not 64-byte aligned";
    if (p->memory && !io->memory)
        return "io.memory is NULL, and the layer has memory: give zeros at first";
    if (io->lens_source && !p->len_source)
        return "io.lens_source is given, and there is no source";
    if (!io->params) return "io.params is NULL: draw them by foci_layer_params_init()";
    if (layer->work_bytes && (!io->work || (uintptr_t)io->work % 64))
        return "io.work is NULL or not 64-byte aligned: see foci_layer_work_bytes()";
    if ((uintptr_t)io->saved % 64) return "io.saved is not 64-byte aligned";
    if (!g) return NULL;
    if (!(p->flags & FOCI_FLAG_TRAIN))
        return "the layer was made without FOCI_FLAG_TRAIN";
    if (layer->saved_bytes && !io->saved)
        return "io.saved is NULL: backward needs what forward saved";
    if (!g->dy) return "grads.dy is NULL: the gradient of y is where it starts";
    if (g->dsource && !p->len_source)
        return "grads.dsource is given, and there is no source";
    return NULL;
}

/* The plan judges lengths, documents, masks and words; any address stands for tensors.
 * What engines say of its parameters they say once more when they have them, and then of
 * those too that the layer makes. */
static foci_status check_plan(const foci_layer *layer, const foci_layer_io *io,
                              const foci_layer_grads *g, bool engines, char *text,
                              size_t cap)
{
    const bool       cross = layer->p.len_source > 0;
    void            *any = io->work;
    const foci_io    plan_io = { FOCI_SIZED(foci_io),
                                 .q = any,
                                 .k = any,
                                 .v = any,
                                 .x = io->x,
                                 .o = any,
                                 .len_q = io->lens,
                                 .len_k = cross             ? io->lens_source
                                          : layer->p.memory ? NULL
                                                            : io->lens,
                                 .docs = io->docs,
                                 .n_docs = io->n_docs,
                                 .words = io->words,
                                 .params = io->params + layer->own_floats,
                                 .saved =
                                  foci_plan_saved_bytes(layer->plan) ? io->saved : NULL,
                                 .work = any,
                                 .mask = io->mask,
                                 .bias = io->bias };
    const foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = any,
                               .dbias = g ? g->dbias : NULL };

    TRY(plan_check_io(layer->plan, &plan_io, g ? &grads : NULL, text, cap));
    if (!engines || layer->n_distances) return FOCI_OK;
    return plan_check_engines(layer->plan, &plan_io, text, cap);
}

foci_status layer_open_call(const foci_layer *layer, const foci_layer_io *io,
                            const foci_layer_grads *grads, bool engines,
                            foci_layer_io *whole, foci_layer_grads *whole_grads)
{
    char                    text[400] = "";
    const foci_layer_grads *g = grads ? whole_grads : NULL;

    TRY(whole_io(layer, io, grads, whole, whole_grads));
    const char *what = fault(layer, whole, g);
    if (!what && engines) what = overlap(layer, whole, g);
    if (what) return ctx_fail(layer->ctx, FOCI_ERR_ARG, "%s", what);
    const foci_status status = check_plan(layer, whole, g, engines, text, sizeof text);
    return status ? ctx_fail(layer->ctx, status, "%s", text) : FOCI_OK;
}

foci_status foci_layer_io_check(const foci_layer *layer, const foci_layer_io *io,
                                const foci_layer_grads *grads, char *text, size_t cap)
{
    foci_layer_io     whole = { 0 };
    foci_layer_grads  g = { 0 };
    const foci_status status = layer_open_call(layer, io, grads, true, &whole, &g);

    snprintf(text, cap, "%s", status ? foci_errmsg(NULL) : "");
    return status;
}
