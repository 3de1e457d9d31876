/* layer.c -- from a spec and the shape of hidden states to a layer. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layer/layer.h"
#include "plan/groups.h"

/* Extents beyond which products of a few of them could overflow. */
static const int64_t most_width = (int64_t)1 << 24, most_rows = (int64_t)1 << 36;

static foci_status out_of_range(foci_ctx *ctx, const char *what, int64_t is,
                                int64_t least, int64_t most)
{
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s is %" PRId64 ": it may be %" PRId64 " to %" PRId64, what, is,
                    least, most);
}

static foci_status check_extents(foci_ctx *ctx, const foci_layer_problem *p)
{
    const struct {
        const char *name;
        int64_t     is, least, most;
    } all[] = {
        { "batch", p->batch, 1, most_rows },
        { "len", p->len, 1, most_rows },
        { "len_source", p->len_source, 0, most_rows },
        { "memory", p->memory, 0, most_rows },
        { "width", p->width, 1, most_width },
        { "width_source", p->width_source, 0, most_width },
        { "heads", p->heads, 1, most_width },
        { "kv_heads", p->kv_heads, 0, most_width },
        { "head_dim", p->head_dim, 0, most_width },
        { "value_dim", p->value_dim, 0, most_width },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is < all[i].least || all[i].is > all[i].most)
            return out_of_range(ctx, all[i].name, all[i].is, all[i].least, all[i].most);
    const double rows =
        (double)p->batch * (double)max64(p->len + p->memory, p->len_source);
    const double wide = (double)max64(p->width, p->width_source);
    if (rows * wide > 0x1p56)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%.3g rows of %.0f elements are too many: a layer has 2^56 "
                        "elements at most",
                        rows, wide);
    if (p->kind > FOCI_LAYER_CONV)
        return out_of_range(ctx, "kind", p->kind, 0, FOCI_LAYER_CONV);
    if (p->output_dropout < 0 || p->output_dropout >= 1 ||
        p->output_dropout != p->output_dropout)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "output_dropout is %g: it may be 0 or more, and below 1",
                        p->output_dropout);
    if (p->len_source && p->memory)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "memory goes before x, and with a source keys do not come from x");
    if (p->memory && p->max_docs)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "packed documents have no memory before them");
    if (p->width_source && p->width_source != p->width && !p->len_source)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "width_source is %" PRId64 " and there is no source: give "
                        "len_source",
                        p->width_source);
    return FOCI_OK;
}

static foci_status fill_attention(foci_ctx *ctx, foci_layer_problem *p)
{
    if (!p->head_dim) {
        if (p->width % p->heads)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "width %" PRId64 " is not divisible by %" PRId64
                            " heads: give head_dim, or other heads",
                            p->width, p->heads);
        p->head_dim = p->width / p->heads;
    }
    if (!p->value_dim) p->value_dim = p->head_dim;
    return FOCI_OK;
}

/* Restrictions and defaults of gau and conv. */
static foci_status fill_other(foci_ctx *ctx, foci_layer_problem *p)
{
    enum { GAU_DIM = 128 };
    const bool gau = p->kind == FOCI_LAYER_GAU;

    if (p->len_source || p->memory)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "a layer of kind %s takes its rows from x alone: no source and "
                        "no memory",
                        gau ? "gau" : "conv");
    if (!gau) return fill_attention(ctx, p);
    if (p->heads != 1)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "heads is %" PRId64 ": a layer of kind gau has one", p->heads);
    if (!p->head_dim) p->head_dim = GAU_DIM;
    if (!p->value_dim) p->value_dim = 2 * p->width;
    return FOCI_OK;
}

static foci_status take_problem(foci_ctx *ctx, const foci_layer_problem *problem,
                                foci_layer_problem *p)
{
    TRY(sized_in(ctx, "foci_layer_problem", p, problem, sizeof *p));
    if (!p->batch) p->batch = 1;
    if (!p->heads) p->heads = 1;
    TRY(check_extents(ctx, p));
    if (!p->width_source) p->width_source = p->width;
    if (p->kind == FOCI_LAYER_ATTENTION) return fill_attention(ctx, p);
    return fill_other(ctx, p);
}

/* Heads lie apart, rows of a head together. */
static foci_status make_plan(foci_layer *layer, const char *spec)
{
    const foci_layer_problem *l = &layer->p;
    foci_problem              p = {
                     FOCI_SIZED(foci_problem),
                     .dtype = l->dtype,
                     .flags = l->flags | (l->memory ? FOCI_FLAG_MEMORY_GRADS : 0U),
                     .batch = l->batch,
                     .heads = l->heads,
                     .kv_heads = l->kv_heads,
                     .len_q = l->len,
                     .len_k = layer->len_k,
                     .dim_qk = l->head_dim,
                     .dim_v = l->value_dim,
                     .dim_x = l->width,
                     .memory = l->memory,
                     .max_docs = l->max_docs,
                     .mask_batch = l->mask_batch,
                     .mask_heads = l->mask_heads,
                     .lists = l->lists,
                     .n_lists = l->n_lists,
                     .seed = l->seed,
                     .dropout = l->weight_dropout,
    };
    const struct layer_buffer q = { .len = l->len, .dim = l->head_dim };
    const struct layer_buffer k = { .len = layer->len_k, .dim = l->head_dim };
    const struct layer_buffer v = { .len = layer->len_k, .dim = l->value_dim };
    const struct layer_buffer o = { .len = l->len, .dim = l->value_dim };

    if (l->batch && l->len && layer->len_k) {
        p.q = layer_layout(&q, l->batch);
        p.k = layer_layout(&k, l->batch);
        p.v = layer_layout(&v, l->batch);
        p.o = layer_layout(&o, l->batch);
    }
    TRY(foci_plan_create(layer->ctx, spec, &p, &layer->plan));
    p.size = sizeof p;
    TRY(foci_plan_get_problem(layer->plan, &p));
    layer->p.kv_heads = p.kv_heads;
    return FOCI_OK;
}

/* The heads of a place that groups read: from the first that one reads to the last. */
static void widen(struct layer_buffer *b, int64_t head0, int64_t heads)
{
    const int64_t end =
        b->heads ? max64(b->first + b->heads, head0 + heads) : head0 + heads;

    b->first = b->heads ? min64(b->first, head0) : head0;
    b->heads = end - b->first;
}

static void make_places(foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    struct layer_buffer      *at = layer->places;
    foci_group                g = { FOCI_SIZED(foci_group) };

    at[PLACE_Q] = (struct layer_buffer){ .len = p->len, .dim = p->head_dim };
    at[PLACE_K] = (struct layer_buffer){ .len = layer->len_k, .dim = p->head_dim };
    at[PLACE_V] = (struct layer_buffer){ .len = layer->len_k, .dim = p->value_dim };
    at[PLACE_O] = (struct layer_buffer){ 0, p->heads, p->len, p->value_dim };
    for (int i = 0; i < foci_plan_group_count(layer->plan); i++) {
        (void)foci_plan_group(layer->plan, i, &g);
        if (g.reads & FOCI_READ_Q) widen(&at[PLACE_Q], g.head0, g.heads);
        if (g.reads & FOCI_READ_K) widen(&at[PLACE_K], g.kv0, g.kv_heads);
        if (g.reads & FOCI_READ_V) widen(&at[PLACE_V], g.kv0, g.kv_heads);
        layer->reads_x |= (g.reads & FOCI_READ_X) != 0;
    }
    if (p->kind == FOCI_LAYER_CONV)
        at[PLACE_U] = (struct layer_buffer){ 0, 2 * p->kv_heads, p->len, p->value_dim };
    if (p->kind != FOCI_LAYER_GAU) return;
    at[PLACE_U] = at[PLACE_W] = at[PLACE_H] =
        (struct layer_buffer){ 0, 1, p->len, p->value_dim };
    if (at[PLACE_Q].heads || at[PLACE_K].heads)
        at[PLACE_Z] = (struct layer_buffer){ 0, 1, p->len, p->head_dim };
}

static foci_status check_kind(const foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    foci_group                g = { FOCI_SIZED(foci_group) };

    if (p->kind == FOCI_LAYER_GAU && p->kv_heads != 1)
        return ctx_fail(layer->ctx, FOCI_ERR_UNSUP,
                        "a layer of kind gau has one head of keys, and this mechanism "
                        "reads %" PRId64,
                        p->kv_heads);
    for (int i = 0;
         p->kind == FOCI_LAYER_CONV && i < foci_plan_group_count(layer->plan); i++)
        if (!foci_plan_group(layer->plan, i, &g) &&
            g.reads & (FOCI_READ_Q | FOCI_READ_K))
            return ctx_fail(
                layer->ctx, FOCI_ERR_UNSUP,
                "a layer of kind conv has no queries and keys, and %s reads "
                "them: take lightconv, dynconv or fixed",
                g.mech->def->name);
    return FOCI_OK;
}

static bool sizes_of(foci_layer *layer, bool saves, bool backward)
{
    struct layer_pass x = { .layer = layer };
    struct arena      work = { 0 }, saved = { 0 };

    layer_carve(layer, &x, &work, saves ? &saved : NULL, backward);
    if (!arena_ok(&work) || !arena_ok(&saved)) return false;
    if (work.used > layer->work_bytes) layer->work_bytes = work.used;
    if (saves) layer->saved_bytes = saved.used;
    return true;
}

static foci_status add_up(foci_layer *layer)
{
    const bool train = layer->p.flags & FOCI_FLAG_TRAIN;

    layer->cols = 1;
    for (int i = 0; i < layer->n_projections; i++)
        layer->cols += (int)layer->projections[i].heads;
    layer->cols += (int)layer->p.heads;
    if (!sizes_of(layer, false, false) || (train && !sizes_of(layer, true, true)))
        return ctx_fail(
            layer->ctx, FOCI_ERR_ARG,
            "the work memory of this layer does not fit into this machine's "
            "address space");
    return FOCI_OK;
}

/* Rows of memory that mechanisms ask for: by their argument, or as many as x has. */
static void default_memory(const struct spec *spec, foci_layer_problem *p)
{
    if (p->memory || p->len_source || p->max_docs || p->kind != FOCI_LAYER_ATTENTION)
        return;
    for (int g = 0; g < spec->n_groups; g++) {
        const foci_mech *m = &spec->groups[g].mech;
        const int64_t    asks = m->def->memory ? m->def->memory(m) : 0;
        if (m->def->memory) p->memory = max64(p->memory, asks > 0 ? asks : p->len);
    }
}

/* Arguments that follow from the length of what is seen: a layer knows its context.  True:
 * some did. */
static bool fill_args(foci_mech *m, double context)
{
    bool some = false;

    for (; m; m = (foci_mech *)m->inner)
        for (size_t a = 0; a < m->def->n_args; a++) {
            const foci_follows follows = m->def->args[a].follows;
            if (m->arg[a] != 0 || follows == FOCI_FOLLOWS_NONE) continue;
            m->arg[a] = follows == FOCI_FOLLOWS_LEN ? context : ceil(sqrt(context));
            some = true;
        }
    return some;
}

static foci_status plan_parsed(foci_layer *layer, const char *spec, struct spec *parsed)
{
    foci_layer_problem *p = &layer->p;
    bool                filled = false;

    default_memory(parsed, p);
    layer->len_k = p->len_source ? p->len_source : p->memory + p->len;
    for (int g = 0; p->flags & FOCI_FLAG_CAUSAL && g < parsed->n_groups; g++)
        filled |= fill_args(&parsed->groups[g].mech, (double)max64(layer->len_k, 1));
    if (!filled) return make_plan(layer, spec);

    const size_t cap = (size_t)spec_print(parsed, NULL, 0) + 1;
    char        *text = ctx_alloc(layer->ctx, cap, 1);
    if (!text) return FOCI_ERR_MEMORY;
    spec_print(parsed, text, cap);
    const foci_status status = make_plan(layer, text);
    ctx_free(layer->ctx, text, cap, 1);
    return status;
}

static foci_status plan_spec(foci_layer *layer, const char *spec)
{
    static const char *const presets[] = { "softmax", "relu2", "lightconv" };
    struct spec              parsed = { 0 };

    if (!spec) spec = presets[layer->p.kind];
    foci_status status = spec_parse(layer->ctx, spec, &parsed);
    if (!status) status = plan_parsed(layer, spec, &parsed);
    spec_free(layer->ctx, &parsed);
    return status;
}

static foci_status build(foci_layer *layer, const char *spec,
                         const foci_layer_problem *problem)
{
    TRY(take_problem(layer->ctx, problem, &layer->p));
    TRY(plan_spec(layer, spec));
    layer->p.lists = NULL;
    layer->p.n_lists = 0;
    TRY(check_kind(layer));
    make_places(layer);
    TRY(layer_projections(layer));
    TRY(layer_distances(layer));
    TRY(layer_params_plan(layer));
    return add_up(layer);
}

foci_status foci_layer_create(foci_ctx *ctx, const char *spec,
                              const foci_layer_problem *problem, foci_layer **layer)
{
    if (!layer)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_layer_create: nowhere to put the layer");
    *layer = NULL;
    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_layer_create: the context is NULL");
    if (ctx->device)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "layers have no form on a device: plan their mechanism there");
    foci_layer *l = ctx_alloc(ctx, 1, sizeof *l);
    if (!l) return FOCI_ERR_MEMORY;
    l->ctx = ctx;
    l->out_bias = -1;
    const foci_status status = build(l, spec, problem);
    if (status) {
        foci_layer_free(l);
        return status;
    }
    *layer = l;
    return FOCI_OK;
}

void foci_layer_free(foci_layer *layer)
{
    if (!layer) return;
    foci_ctx *ctx = layer->ctx;
    for (int i = 0; i < layer->n_frozen; i++)
        frozen_free(ctx, &layer->frozen[i]);
    if (layer->frozen)
        ctx_free(ctx, layer->frozen, (size_t)layer->cap_frozen, sizeof *layer->frozen);
    if (layer->params)
        ctx_free(ctx, layer->params, (size_t)layer->cap_params, sizeof *layer->params);
    if (layer->projections)
        ctx_free(ctx, layer->projections, (size_t)layer->cap_projections,
                 sizeof *layer->projections);
    layer_distances_free(layer);
    foci_plan_free(layer->plan);
    ctx_free(ctx, layer, 1, sizeof *layer);
}

foci_status foci_layer_get_problem(const foci_layer *layer, foci_layer_problem *problem)
{
    if (!layer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_layer_get_problem: the layer is NULL");
    return sized_out(layer->ctx, "foci_layer_problem", problem, &layer->p,
                     sizeof layer->p);
}

const foci_plan *foci_layer_plan(const foci_layer *layer) { return layer->plan; }

size_t foci_layer_work_bytes(const foci_layer *layer) { return layer->work_bytes; }

size_t foci_layer_saved_bytes(const foci_layer *layer) { return layer->saved_bytes; }
