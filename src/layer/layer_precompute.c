/* layer_precompute.c -- what follows from the parameters alone, computed once for many calls:
 * rows for all distances, and weights in the layout that kernels read. */
#include "layer/layer.h"

/* The sizes of a product, whatever its rows. */
static size_t packed_bytes(const foci_layer *layer, int64_t n, int64_t k)
{
    const struct product p = { .m = FOCI_TILE,
                               .n = n,
                               .k = k,
                               .a = { .dtype = layer->p.dtype },
                               .c = { .dtype = layer->p.dtype },
                               .fast = layer->p.flags & FOCI_FLAG_FAST };

    return n ? product_pack_bytes(layer->ctx, &p) : 0;
}

static int64_t own_columns(const foci_layer *layer, const struct layer_pass *x)
{
    const struct hidden own = layer_own(x);
    int64_t             n = 0;

    for (int i = 0; i < layer->n_projections; i++) {
        const struct projection *to = &layer->projections[i];
        if (hidden_gives(&own, to) && !layer_transform(layer, to))
            n += to->heads * to->dim;
    }
    return n;
}

static void carve_made(const foci_layer *layer, struct layer_pass *x, struct arena *a)
{
    const foci_layer_problem *p = &layer->p;
    const int64_t floats = layer->n_distances ? foci_plan_param_floats(layer->plan) : 0;
    const size_t  own = packed_bytes(layer, own_columns(layer, x), p->width);
    const size_t  out = packed_bytes(layer, p->width, p->heads * p->value_dim);

    if (floats) x->plan_params = arena_alloc(a, floats, sizeof *x->plan_params);
    if (own) x->packed_own = arena_alloc(a, (int64_t)own, 1);
    if (out) x->packed_out = arena_alloc(a, (int64_t)out, 1);
}

void layer_open_made(struct layer_pass *x)
{
    struct arena a = { .base = (void *)x->io.precomputed };

    if (x->io.precomputed)
        carve_made(x->layer, x, &a);
    else
        layer_make_params(x);
}

size_t foci_layer_precompute_bytes(const foci_layer *layer)
{
    struct layer_pass x = { .layer = layer };
    struct arena      a = { 0 };

    if (!layer) return SIZE_MAX;
    carve_made(layer, &x, &a);
    return a.used;
}

static void compute(struct layer_pass *x)
{
    const foci_layer   *layer = x->layer;
    const struct hidden own = layer_own(x);

    layer_make_params(x);
    if (x->packed_own) {
        const struct product p = layer_projections_of(x, &own, FOCI_TILE);
        product_pack(layer->ctx, &p, x->packed_own, x->product_work);
    }
    if (x->packed_out) {
        const struct product p = layer_output_of(x, FOCI_TILE);
        product_pack(layer->ctx, &p, x->packed_out, x->product_work);
    }
}

foci_status foci_layer_precompute(const foci_layer *layer, const float *params,
                                  void *precomputed)
{
    struct layer_pass x = { .layer = layer, .io = { .params = params } };
    struct arena      size = { 0 }, made = { .base = precomputed };

    if (!layer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_layer_precompute: the layer is NULL");
    if (!foci_layer_precompute_bytes(layer)) return FOCI_OK;
    if (!params || !precomputed || (uintptr_t)precomputed % 64)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "%s",
                        params
                            ? "precomputed is NULL or not 64-byte aligned: see "
                              "foci_layer_precompute_bytes()"
                            : "params is NULL: draw them by foci_layer_params_init()");
    layer_carve_scratch(layer, &x, FOCI_TILE, false, &size);
    void *scratch = ctx_alloc(layer->ctx, size.used, 1);
    if (!scratch) return FOCI_ERR_MEMORY;
    struct arena a = { .base = scratch };
    layer_carve_scratch(layer, &x, FOCI_TILE, false, &a);
    carve_made(layer, &x, &made);
    compute(&x);
    ctx_free(layer->ctx, scratch, size.used, 1);
    return FOCI_OK;
}
