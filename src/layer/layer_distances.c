/* layer_distances.c -- rows for distances: waves times weights.
 *
 * txl reads R, a row for each distance and head.  By itself a plan has R among its
 * parameters; a layer has WR [width][heads dim] in its place and makes R = waves WR, as
 * Dai et al., "Transformer-XL" (2019), section 3.3.
 */
#include <stdio.h>
#include <string.h>

#include "layer/layer.h"
#include "plan/groups.h"

enum { STREAM_R = 14, OF_R = 2 }; /* R is the third tensor of the modifier */

static bool reads_rows(const foci_mod *mod) { return mod->def->does & FOCI_MOD_TXL; }

static int count(const foci_plan *plan)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    int        n = 0;

    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        (void)foci_plan_group(plan, i, &g);
        for (size_t t = 0; t < g.mech->n_mods; t++)
            n += reads_rows(&g.mech->mods[t]);
    }
    return n;
}

static foci_status add(foci_layer *layer, int group, int64_t heads, int64_t offset)
{
    const int64_t      dim = layer->p.head_dim;
    struct layer_param param = { .n_dims = 2,
                                 .shape = { layer->p.width, heads * dim },
                                 .keep = FOCI_KEEP_TRAINED,
                                 .start = START_NORMAL,
                                 .stream = STREAM_R + ((uint64_t)group << 32),
                                 .heads = heads,
                                 .frozen = -1 };
    char               name[32] = "WR";

    if (heads < layer->p.heads) snprintf(name, sizeof name, "%d.WR", group);
    layer->distances[layer->n_distances++] =
        (struct distances){ layer->n_params, offset, heads, layer->len_k, dim };
    return params_add(layer, &param, "%s", name);
}

foci_status layer_distances(foci_layer *layer)
{
    const foci_plan *plan = layer->plan;
    const int        n = count(plan);
    foci_group       g = { FOCI_SIZED(foci_group) };

    if (!n) return FOCI_OK;
    layer->distances = ctx_alloc(layer->ctx, (size_t)n, sizeof *layer->distances);
    layer->waves = ctx_alloc(layer->ctx, (size_t)(layer->len_k * layer->p.width),
                             sizeof *layer->waves);
    if (!layer->distances || !layer->waves) return FOCI_ERR_MEMORY;
    TRY(foci_sinusoid(0, layer->len_k, layer->p.width, 10000, layer->waves));
    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        (void)foci_plan_group(plan, i, &g);
        for (size_t t = 0; t < g.mech->n_mods; t++)
            if (reads_rows(&g.mech->mods[t]))
                TRY(add(layer, i, g.heads, plan_mod_tensor(plan, i, t, OF_R)));
    }
    return FOCI_OK;
}

void layer_distances_free(foci_layer *layer)
{
    const int n = layer->plan ? count(layer->plan) : 0;

    if (layer->distances)
        ctx_free(layer->ctx, layer->distances, (size_t)n, sizeof *layer->distances);
    if (layer->waves)
        ctx_free(layer->ctx, layer->waves, (size_t)(layer->len_k * layer->p.width),
                 sizeof *layer->waves);
}

static int64_t floats_of(const struct distances *d)
{
    return d->heads * d->rows * d->dim;
}

int64_t layer_made_before(const foci_layer *layer, int64_t offset)
{
    int64_t n = 0;

    for (int i = 0; i < layer->n_distances; i++)
        if (layer->distances[i].offset < offset) n += floats_of(&layer->distances[i]);
    return n;
}

bool layer_makes(const foci_layer *layer, int64_t offset)
{
    for (int i = 0; i < layer->n_distances; i++)
        if (layer->distances[i].offset == offset) return true;
    return false;
}

/* Floats of the plan between two that are made; from `at`, the result is their end. */
static int64_t piece_end(const foci_layer *layer, int64_t at)
{
    int64_t end = foci_plan_param_floats(layer->plan);

    for (int i = 0; i < layer->n_distances; i++)
        if (layer->distances[i].offset >= at)
            end = min64(end, layer->distances[i].offset);
    return end;
}

/* The first float behind those that are made from `at` on. */
static int64_t piece_next(const foci_layer *layer, int64_t at)
{
    for (int i = 0; i < layer->n_distances; i++)
        if (layer->distances[i].offset == at)
            return at + floats_of(&layer->distances[i]);
    return at;
}

/* Between all floats of the plan and those that are stored: to the stored ones, back, or
 * added to them. */
enum way { TO_STORED, TO_ALL, ADD_TO_STORED };

static void move(const foci_layer *layer, float *all, float *stored, enum way way)
{
    const int64_t n = foci_plan_param_floats(layer->plan);

    for (int64_t at = 0, end; at < n; at = piece_next(layer, end)) {
        end = piece_end(layer, at);
        float *other = stored + at - layer_made_before(layer, at);
        for (int64_t i = at; i < end; i++, other++)
            if (way == TO_STORED)
                *other = all[i];
            else if (way == TO_ALL)
                all[i] = *other;
            else
                *other += all[i];
    }
}

void layer_keep_stored(const foci_layer *layer, const float *all, float *stored)
{
    move(layer, (float *)all, stored, TO_STORED);
}

/* R of all heads as parts. */
static int head_parts(const struct distances *d, float *plan, struct product_part *parts)
{
    for (int64_t h = 0; h < d->heads; h++)
        parts[h] = (struct product_part){ plan + d->offset + h * d->rows * d->dim,
                                          d->dim, d->dim };
    return (int)d->heads;
}

void layer_make_params(struct layer_pass *x)
{
    const foci_layer *layer = x->layer;
    const int64_t     width = layer->p.width;

    if (!layer->n_distances) return;
    move(layer, x->plan_params, (float *)x->io.params + layer->own_floats, TO_ALL);
    for (int i = 0; i < layer->n_distances; i++) {
        const struct distances *d = &layer->distances[i];
        const int64_t           cols = d->heads * d->dim;
        struct product          r = { .m = d->rows, .n = cols, .k = width };

        x->a[0] = (struct product_part){ layer->waves, width, width };
        x->b[0] = (struct product_part){
            (float *)layer_tensor(layer, d->weights, x->io.params), cols, cols
        };
        r.a = (struct matrix){ x->a, 1, FOCI_F32, false };
        r.b = (struct matrix){ x->b, 1, FOCI_F32, false };
        r.c = (struct matrix){ x->c, head_parts(d, x->plan_params, x->c), FOCI_F32,
                               false };
        product_run(layer->ctx, &r, x->product_work);
    }
    if (x->plan_dparams)
        memset(x->plan_dparams, 0,
               (size_t)foci_plan_param_floats(layer->plan) * sizeof *x->plan_dparams);
}

void layer_make_back(struct layer_pass *x)
{
    const foci_layer *layer = x->layer;
    const int64_t     width = layer->p.width;

    if (!layer->n_distances || !x->g.dparams) return;
    move(layer, x->plan_dparams, x->g.dparams + layer->own_floats, ADD_TO_STORED);
    for (int i = 0; i < layer->n_distances; i++) {
        const struct distances *d = &layer->distances[i];
        const int64_t           cols = d->heads * d->dim;
        float                  *dw = x->g.dparams + layer->params[d->weights].offset;
        struct product back = { .m = width, .n = cols, .k = d->rows, .add = true };

        x->a[0] = (struct product_part){ layer->waves, width, width };
        x->c[0] = (struct product_part){ dw, cols, cols };
        back.a = (struct matrix){ x->a, 1, FOCI_F32, true };
        back.b = (struct matrix){ x->b, head_parts(d, x->plan_dparams, x->b), FOCI_F32,
                                  false };
        back.c = (struct matrix){ x->c, 1, FOCI_F32, false };
        product_run(layer->ctx, &back, x->product_work);
    }
}
