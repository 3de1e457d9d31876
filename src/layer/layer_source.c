/* layer_source.c -- keys and values of a source, projected once for many calls: a decoder
 * attends to the same source for every token. */
#include <inttypes.h>
#include <string.h>

#include "layer/layer.h"

static const enum place kept[] = { PLACE_K, PLACE_V };

void layer_carve_source(const foci_layer *layer, int64_t batch,
                        struct layer_view at[LAYER_PLACES], struct arena *a)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        at[kept[i]] = layer_carve_place(layer, &layer->places[kept[i]], batch, a);
}

size_t foci_layer_source_bytes(const foci_layer *layer)
{
    struct layer_view at[LAYER_PLACES];
    struct arena      a = { 0 };

    if (!layer) return SIZE_MAX;
    if (!layer->p.len_source) return 0;
    layer_carve_source(layer, layer->p.batch, at, &a);
    return a.used;
}

static const char *fault(const foci_layer *layer, const foci_layer_io *io,
                         const void *source_kv)
{
    if (!layer->p.len_source) return "the layer was made without len_source";
    if (!io->source) return "io.source is NULL: keys and values are projections of it";
    if (!io->params) return "io.params is NULL: draw them by foci_layer_params_init()";
    if (layer->work_bytes && (!io->work || (uintptr_t)io->work % 64))
        return "io.work is NULL or not 64-byte aligned: see foci_layer_work_bytes()";
    if (!source_kv || (uintptr_t)source_kv % 64)
        return "source_kv is NULL or not 64-byte aligned: see "
               "foci_layer_source_bytes()";
    return NULL;
}

static foci_status check_lens(const foci_layer *layer, const int32_t *lens)
{
    for (int64_t b = 0; lens && b < layer->p.batch; b++)
        if (lens[b] < 0 || lens[b] > layer->p.len_source)
            return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                            "lens_source[%" PRId64 "] is %" PRId32
                            ": it may be 0 to %" PRId64,
                            b, lens[b], layer->p.len_source);
    return FOCI_OK;
}

foci_status foci_layer_source_project(const foci_layer *layer, const foci_layer_io *io,
                                      void *source_kv)
{
    foci_layer_io     whole;
    struct layer_pass x;

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    TRY(sized_in(layer->ctx, "foci_layer_io", &whole, io, sizeof whole));
    const char *what = fault(layer, &whole, source_kv);
    if (what) return ctx_fail(layer->ctx, FOCI_ERR_ARG, "%s", what);
    TRY(check_lens(layer, whole.lens_source));
    const foci_layer_io of_source = { FOCI_SIZED(foci_layer_io), .source = whole.source,
                                      .lens_source = whole.lens_source,
                                      .params = whole.params, .work = whole.work };
    layer_open(layer, &of_source, NULL, &x);
    struct arena to = { .base = source_kv };
    layer_carve_source(layer, layer->p.batch, x.at, &to);
    layer_project_others(&x);
    return FOCI_OK;
}

/* Later sequences move towards the beginning, and so do values behind fewer keys: in
 * ascending order nothing is overwritten that is still to move. */
static void move_place(const foci_layer *layer, enum place place,
                       const struct layer_view *from, const struct layer_view *to,
                       const int64_t *chosen, int64_t n)
{
    const struct layer_buffer *b = &layer->places[place];
    const size_t bytes = (size_t)(b->len * b->dim) * foci_dtype_bytes(layer->p.dtype);

    for (int64_t h = b->first; h < b->first + b->heads; h++)
        for (int64_t i = 0; i < n; i++)
            memmove(view_at(layer, to, h, i * b->len),
                    view_at(layer, from, h, chosen[i] * b->len), bytes);
}

foci_status foci_layer_source_select(const foci_layer *layer, const int64_t *from,
                                     int64_t n, void *source_kv)
{
    struct layer_view was[LAYER_PLACES], now[LAYER_PLACES];
    struct arena      a = { .base = source_kv }, b = { .base = source_kv };

    if (!layer) return ctx_fail(NULL, FOCI_ERR_ARG, "the layer is NULL");
    if (!layer->p.len_source || !source_kv || !from || n < 1 || n > layer->p.batch)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                        "foci_layer_source_select: the layer needs a source, source_kv "
                        "and from are not NULL, and n is 1 to %" PRId64,
                        layer->p.batch);
    for (int64_t i = 0; i < n; i++)
        if (from[i] < 0 || from[i] >= layer->p.batch || (i && from[i] <= from[i - 1]))
            return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                            "from[%" PRId64 "] is %" PRId64
                            ": sequences that stay keep their order and are below "
                            "%" PRId64,
                            i, from[i], layer->p.batch);
    layer_carve_source(layer, layer->p.batch, was, &a);
    layer_carve_source(layer, n, now, &b);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        move_place(layer, kept[i], &was[kept[i]], &now[kept[i]], from, n);
    return FOCI_OK;
}
