/* layer_project.c -- the list of projections of a layer: those that its heads read. */
#include <inttypes.h>
#include <stdio.h>

#include "layer/layer.h"

/* Streams of the seed (docs/random.md). */
enum {
    STREAM_Q = 10,
    STREAM_K = 11,
    STREAM_V = 12,
    STREAM_O = 13,
    STREAM_U = 15,
    STREAM_Z = 16,
    STREAM_I = 17
};

/* A projection being added: to which heads of a place, under which name. */
struct wanted {
    struct projection to;
    const char       *name, *bias;
    uint64_t          stream;
    enum start        start;
    int               group; /* -1: the layer's */
};

/* The settings of the modifiers `frozen` and `init` of a group. */
struct said {
    bool             frozen;
    enum frozen_kind kind;
    bool             block, tie, shared;
    enum start       start; /* of learned ones */
};

static struct said said_of(const foci_mech *m)
{
    struct said s = { .start = START_NORMAL };

    for (size_t i = 0; i < m->n_mods; i++) {
        const foci_mod *mod = &m->mods[i];

        if (mod->def->does & FOCI_MOD_FROZEN) {
            s.frozen = true;
            s.kind = (enum frozen_kind)mod->arg[0];
            s.block = mod->arg[1] != 0;
            s.tie = mod->arg[2] != 0;
            s.shared = mod->arg[3] != 0;
        }
        if (mod->def->does & FOCI_MOD_INIT && mod->arg[0] == 0) s.start = START_FRAME;
    }
    return s;
}

static void name_of(const foci_layer *layer, int group, const char *tensor, char *name,
                    size_t cap)
{
    if (group < 0 || foci_plan_group_count(layer->plan) == 1)
        snprintf(name, cap, "%s", tensor);
    else
        snprintf(name, cap, "%d.%s", group, tensor);
}

static int64_t input_width(const foci_layer *layer, bool source)
{
    return source ? layer->p.width_source : layer->p.width;
}

/* Weights and their bias. */
static foci_status add(foci_layer *layer, const struct wanted *w)
{
    const int64_t      cols = w->to.heads * w->to.dim;
    struct layer_param param = { .n_dims = 2,
                                 .shape = { input_width(layer, w->to.source), cols },
                                 .keep = FOCI_KEEP_TRAINED,
                                 .start = w->start,
                                 .stream = w->stream,
                                 .heads = w->to.heads,
                                 .frozen = -1 };
    struct projection *to = &layer->projections[layer->n_projections];
    char               name[32], why[200];

    if (w->start == START_FRAME && !frozen_can(FROZEN_ORTHOGONAL, false, param.shape[0],
                                               w->to.heads, w->to.dim, why, sizeof why))
        return ctx_fail(layer->ctx, FOCI_ERR_ARG, "init: %s", why);
    *to = w->to;
    to->weights = layer->n_params;
    to->bias = -1;
    name_of(layer, w->group, w->name, name, sizeof name);
    TRY(params_add(layer, &param, "%s", name));
    if (layer->p.biases) {
        to->bias = layer->n_params;
        param = (struct layer_param){
            .n_dims = 1, .shape = { cols }, .keep = FOCI_KEEP_TRAINED, .frozen = -1
        };
        name_of(layer, w->group, w->bias, name, sizeof name);
        TRY(params_add(layer, &param, "%s", name));
    }
    layer->n_projections++;
    return FOCI_OK;
}

/* A projection that is drawn; `same`, not -1, is the one that it is tied to. */
static foci_status add_frozen(foci_layer *layer, const struct wanted *w,
                              const struct said *s, int same)
{
    foci_ctx          *ctx = layer->ctx;
    struct projection *to = &layer->projections[layer->n_projections];
    struct frozen     *f = &layer->frozen[layer->n_frozen];
    const int64_t      width = input_width(layer, w->to.source);
    char               name[32], why[200];

    struct layer_param param = { .n_dims = 2,
                                 .shape = { width, w->to.heads * w->to.dim },
                                 .keep = FOCI_KEEP_FROZEN,
                                 .stream = w->stream,
                                 .heads = w->to.heads,
                                 .frozen = same < 0 ? layer->n_frozen : same };
    if (!frozen_can(s->kind, s->block, width, w->to.heads, w->to.dim, why, sizeof why))
        return ctx_fail(ctx, FOCI_ERR_ARG, "frozen: %s", why);
    if (same < 0) {
        *f = (struct frozen){ .kind = s->kind,
                              .block = s->block,
                              .width = width,
                              .heads = w->to.heads,
                              .dim = w->to.dim };
        layer->n_frozen++;
        TRY(frozen_make(ctx, f, layer->p.seed + (s->shared ? 0 : layer->p.index),
                        w->stream));
    }
    *to = w->to;
    to->weights = layer->n_params;
    to->bias = -1;
    layer->n_projections++;
    name_of(layer, w->group, w->name, name, sizeof name);
    return params_add(layer, &param, "%s", name);
}

static foci_status check_tie(const foci_layer *layer, const foci_group *g)
{
    const foci_layer_problem *p = &layer->p;

    if (g->kv_heads != g->heads)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                        "frozen: tie=1 needs as many heads of keys as of queries, and "
                        "there are %" PRId64 " and %" PRId64,
                        g->kv_heads, g->heads);
    if (p->width_source != p->width)
        return ctx_fail(layer->ctx, FOCI_ERR_ARG,
                        "frozen: tie=1 projects the source as x, and they are %" PRId64
                        " and %" PRId64 " wide",
                        p->width_source, p->width);
    return FOCI_OK;
}

static foci_status add_pair(foci_layer *layer, int group, const foci_group *g)
{
    const foci_layer_problem *p = &layer->p;
    const struct said         s = said_of(g->mech);
    const uint64_t            mix = (uint64_t)group << 32;
    const bool                source = p->len_source > 0;
    struct wanted             q = { { .to = PLACE_Q,
                                      .head0 = g->head0,
                                      .heads = g->heads,
                                      .dim = p->head_dim,
                                      .source = false },
                                    "Wq",
                                    "bq",
                                    STREAM_Q + mix,
                                    s.start,
                                    group };
    struct wanted             k = { { .to = PLACE_K,
                                      .head0 = g->kv0,
                                      .heads = g->kv_heads,
                                      .dim = p->head_dim,
                                      .source = source },
                                    "Wk",
                                    "bk",
                                    STREAM_K + mix,
                                    s.start,
                                    group };
    int                       same = -1;

    if (s.frozen && s.tie && g->reads & FOCI_READ_K) TRY(check_tie(layer, g));
    if (g->reads & FOCI_READ_Q) {
        if (s.frozen && s.tie) same = layer->n_frozen;
        TRY(s.frozen ? add_frozen(layer, &q, &s, -1) : add(layer, &q));
    }
    if (g->reads & FOCI_READ_K)
        TRY(s.frozen ? add_frozen(layer, &k, &s, same) : add(layer, &k));
    return FOCI_OK;
}

static foci_status add_attention(foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    foci_group                g = { FOCI_SIZED(foci_group) };

    for (int i = 0; i < foci_plan_group_count(layer->plan); i++) {
        (void)foci_plan_group(layer->plan, i, &g);
        const struct wanted v = { { .to = PLACE_V,
                                    .head0 = g.kv0,
                                    .heads = g.kv_heads,
                                    .dim = p->value_dim,
                                    .source = p->len_source > 0 },
                                  "Wv",
                                  "bv",
                                  STREAM_V + ((uint64_t)i << 32),
                                  START_NORMAL,
                                  i };
        TRY(add_pair(layer, i, &g));
        if (g.reads & FOCI_READ_V) TRY(add(layer, &v));
    }
    return FOCI_OK;
}

static foci_status add_gau(foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    const struct wanted       all[] = {
              { { .to = PLACE_U, .head0 = 0, .heads = 1, .dim = p->value_dim, .source = false },
                "Wu",
                "bu",
                STREAM_U,
                START_NORMAL,
                -1 },
              { { .to = PLACE_W, .head0 = 0, .heads = 1, .dim = p->value_dim, .source = false },
                "Wv",
                "bv",
                STREAM_V,
                START_NORMAL,
                -1 },
              { { .to = PLACE_Z, .head0 = 0, .heads = 1, .dim = p->head_dim, .source = false },
                "Wz",
                "bz",
                STREAM_Z,
                START_NORMAL,
                -1 },
    };
    static const char *const names[] = { "gamma_q", "beta_q", "gamma_k", "beta_k" };
    foci_group               g = { FOCI_SIZED(foci_group) };

    TRY(foci_plan_group(layer->plan, 0, &g));
    if (said_of(g.mech).frozen || said_of(g.mech).start != START_NORMAL)
        return ctx_fail(
            layer->ctx, FOCI_ERR_UNSUP,
            "a layer of kind gau makes q and k of one projection and has no "
            "Wq and Wk to freeze");
    for (int i = 0; i < 3; i++)
        if (layer->places[all[i].to.to].heads) TRY(add(layer, &all[i]));
    for (int i = 0; i < 4 && layer->places[PLACE_Z].heads; i++) {
        const struct layer_param param = { .n_dims = 1,
                                           .shape = { p->head_dim },
                                           .keep = FOCI_KEEP_TRAINED,
                                           .start = i % 2 ? START_ZERO : START_ONE,
                                           .frozen = -1 };
        layer->gamma[i] = layer->n_params;
        TRY(params_add(layer, &param, "%s", names[i]));
    }
    return FOCI_OK;
}

static foci_status add_conv(foci_layer *layer)
{
    const struct wanted w = {
        { .to = PLACE_U, .heads = 2 * layer->p.kv_heads, .dim = layer->p.value_dim },
        "Wi",
        "bi",
        STREAM_I,
        START_NORMAL,
        -1
    };
    return add(layer, &w);
}

/* From the heads to y. */
static foci_status add_out(foci_layer *layer)
{
    const foci_layer_problem *p = &layer->p;
    struct layer_param        param = { .n_dims = 2,
                                        .shape = { p->heads * p->value_dim, p->width },
                                        .keep = FOCI_KEEP_TRAINED,
                                        .start = START_NORMAL,
                                        .stream = STREAM_O,
                                        .heads = 1,
                                        .frozen = -1 };

    layer->out = layer->n_params;
    TRY(params_add(layer, &param, "Wo"));
    if (!p->biases) return FOCI_OK;
    layer->out_bias = layer->n_params;
    param = (struct layer_param){
        .n_dims = 1, .shape = { p->width }, .keep = FOCI_KEEP_TRAINED, .frozen = -1
    };
    return params_add(layer, &param, "bo");
}

foci_status layer_projections(foci_layer *layer)
{
    enum { OF_GROUP = 3, OTHERS = 10, TENSORS = 2 };
    foci_ctx *ctx = layer->ctx;
    const int n = OF_GROUP * foci_plan_group_count(layer->plan) + OTHERS;

    layer->cap_projections = layer->cap_frozen = n;
    layer->cap_params = TENSORS * n;
    layer->projections = ctx_alloc(ctx, (size_t)n, sizeof *layer->projections);
    layer->frozen = ctx_alloc(ctx, (size_t)n, sizeof *layer->frozen);
    layer->params = ctx_alloc(ctx, (size_t)layer->cap_params, sizeof *layer->params);
    if (!layer->projections || !layer->frozen || !layer->params) return FOCI_ERR_MEMORY;
    switch (layer->p.kind) {
    case FOCI_LAYER_ATTENTION: TRY(add_attention(layer)); break;
    case FOCI_LAYER_GAU: TRY(add_gau(layer)); break;
    case FOCI_LAYER_CONV: TRY(add_conv(layer)); break;
    }
    return add_out(layer);
}
