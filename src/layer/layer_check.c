/* layer_check.c -- the border of an execution of a layer. */
#include <inttypes.h>
#include <stdio.h>

#include "layer/layer.h"
#include "plan/groups.h"

foci_status layer_whole_io(const foci_layer_io *io, const foci_layer_grads *grads,
                           foci_layer_io *whole, foci_layer_grads *whole_grads)
{
    const bool taken = sized_take(whole, io, sizeof *whole);
    const bool other = sized_take(whole_grads, grads, sizeof *whole_grads);
    return taken && (other || !grads) ? FOCI_OK : FOCI_ERR_ARG;
}

static foci_status say(char *text, size_t cap, const char *what)
{
    snprintf(text, cap, "%s", what);
    return FOCI_ERR_ARG;
}

static const char *fault(const foci_layer *layer, const foci_layer_io *io,
                         const foci_layer_grads *g)
{
    const foci_layer_problem *p = &layer->p;
    const bool                rows = p->batch && p->len;

    if (rows && !io->x) return "io.x is NULL: hidden states are what a layer reads";
    if (rows && !io->y && !g) return "io.y is NULL: the output needs a place";
    if (p->batch && p->len_source && !io->source)
        return "io.source is NULL, and the layer was made with len_source";
    if (p->batch && p->memory && !io->memory)
        return "io.memory is NULL, and the layer has memory: give zeros at first";
    if (io->lens_source && !p->len_source)
        return "io.lens_source is given, and there is no source";
    if (!io->params) return "io.params is NULL: draw them by foci_layer_init()";
    if (layer->work_bytes && (!io->work || (uintptr_t)io->work % 64))
        return "io.work is NULL or not 64-byte aligned: see foci_layer_work_bytes()";
    if ((uintptr_t)io->saved % 64) return "io.saved is not 64-byte aligned";
    if (!g) return NULL;
    if (!(p->flags & FOCI_TRAIN)) return "the layer was made without FOCI_TRAIN";
    if (layer->saved_bytes && !io->saved)
        return "io.saved is NULL: backward needs what forward saved";
    if (rows && !g->dy) return "grads.dy is NULL: the gradient of y is where it starts";
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

static foci_status check_all(const foci_layer *layer, const foci_layer_io *io,
                             const foci_layer_grads *grads, bool engines, char *text,
                             size_t cap)
{
    foci_layer_io    whole;
    foci_layer_grads g;

    if (cap) text[0] = 0;
    if (!layer) return say(text, cap, "the layer is NULL");
    if (layer_whole_io(io, grads, &whole, &g))
        return say(
            text, cap,
            "io or grads is NULL or of a strange size: start them with FOCI_SIZED");
    const char *what = fault(layer, &whole, grads ? &g : NULL);
    if (what) return say(text, cap, what);
    return check_plan(layer, &whole, grads ? &g : NULL, engines, text, cap);
}

foci_status layer_check_change(const foci_layer *layer, const foci_layer_io *io)
{
    return check_all(layer, io, NULL, false, NULL, 0);
}

foci_status foci_layer_check(const foci_layer *layer, const foci_layer_io *io,
                             const foci_layer_grads *grads, char *text, size_t cap)
{
    return check_all(layer, io, grads, true, text, cap);
}
