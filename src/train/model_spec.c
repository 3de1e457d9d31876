/* model_spec.c -- from the text of a mechanism to the layer of a block.
 *
 * A layer is planned once for the context, which fills in the arguments that follow from
 * it; the text with every argument spelled out then plans it for any batch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/model.h"

enum { MOST_MESSAGE = 512 };

/* Put "decoder block 2: " before the message that is there. */
static foci_status fail_where(foci_ctx *ctx, foci_status status, const char *where)
{
    char reason[MOST_MESSAGE];

    snprintf(reason, sizeof reason, "%s", foci_errmsg(ctx));
    return ctx_fail(ctx, status, "%s: %s", where, reason);
}

/*
 * Lists
 */

/* What a plan of this layer asks for, in the words of foci_list_wanted(). */
static foci_problem plan_problem(const foci_layer_problem *p)
{
    return (foci_problem){
        FOCI_SIZED(foci_problem),
        .flags = p->flags,
        .batch = p->batch,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .len_q = p->len,
        .len_k = p->len_source ? p->len_source : p->len,
        .dim_qk = max64(p->head_dim ? p->head_dim : p->width / p->heads, 1),
        .dim_v = p->value_dim,
        .dim_x = p->width,
    };
}

/* Blocks of tokens see themselves, their neighbours and the first one. */
static void fill_layout(int64_t *layout, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t j = 0; j < blocks; j++)
            layout[i * blocks + j] = j == 0 || (j >= i - 1 && j <= i + 1);
}

/* A layout of blocks, where the spec asks for one; lists that may be empty are. */
static foci_status make_layout(const foci_model *m, const char *spec,
                               const foci_layer_problem *p, char name[64],
                               foci_list *list)
{
    const foci_problem problem = plan_problem(p);
    foci_list_want     want = { FOCI_SIZED(foci_list_want) };

    *list = (foci_list){ 0 };
    for (int i = 0;; i++) {
        if (foci_list_wanted(m->ctx, spec, &problem, i, &want) || !*want.name)
            return FOCI_OK;
        if (want.count > 0 && want.most == 1) break;
    }
    int64_t *layout = ctx_alloc(m->ctx, (size_t)want.count, sizeof *layout);
    if (!layout) return FOCI_ERR_MEMORY;
    fill_layout(layout, (int64_t)(sqrt((double)want.count) + 0.5));
    memcpy(name, want.name, sizeof want.name);
    *list = (foci_list){ name, layout, want.count };
    return FOCI_OK;
}

/* As foci_layer_create(), with the layout that a mechanism may ask for. */
static foci_status create(const foci_model *m, const char *spec,
                          const foci_layer_problem *problem, foci_layer **layer)
{
    foci_layer_problem p = *problem;
    foci_list          list;
    char               name[64];

    if (!spec) return foci_layer_create(m->ctx, spec, &p, layer);
    TRY(make_layout(m, spec, &p, name, &list));
    p.lists = list.data ? &list : NULL;
    p.n_lists = list.data != NULL;
    const foci_status status = foci_layer_create(m->ctx, spec, &p, layer);
    if (list.data)
        ctx_free(m->ctx, (void *)list.data, (size_t)list.count, sizeof *list.data);
    return status;
}

/* Whether the output of a query depends on other queries: in a decoder such cross-attention
 * would see tokens to come. */
static bool mixes_queries(const foci_mech *mech)
{
    for (; mech; mech = mech->inner) {
        foci_order order = { 0 };
        if (mech->def->engine == FOCI_ENGINE_NYSTROM) return true;
        if (mech->def->order) mech->def->order(mech, &order);
        if (order.topk || order.chunk) return true;
    }
    return false;
}

/* Mechanisms that can be what is wanted, for a message. */
static void name_others(const foci_ctx *ctx, bool cross, char *text, size_t cap)
{
    enum { MOST = 6 };
    int                  n = 0;
    const foci_mech_def *def;

    *text = '\0';
    for (int i = 0; n < MOST && (def = foci_mechanism(ctx, i)); i++) {
        if (cross ? def->no_cross || def->engine == FOCI_ENGINE_NYSTROM || def->order
                  : def->no_causal != NULL)
            continue;
        const size_t used = strlen(text);
        snprintf(text + used, cap - used, "%s%s", n++ ? ", " : "", def->name);
    }
}

static foci_status refuse(foci_ctx *ctx, const struct spec_want *want, bool cross,
                          const char *name, const char *why)
{
    char others[128];

    name_others(ctx, cross, others, sizeof others);
    return ctx_fail(ctx, FOCI_ERR_UNSUP, "%s: %s cannot be %s: %s; %s can", want->where,
                    name, cross ? "cross-attention" : "causal", why, others);
}

/* Refuse by name what cannot be causal or cross, however the rest of the spec is.  The plan
 * is one without these demands. */
static foci_status check_groups(foci_ctx *ctx, const foci_layer *layer,
                                const struct spec_want *want, bool cross, bool decodes)
{
    foci_group g = { FOCI_SIZED(foci_group) };

    for (int i = 0; !foci_plan_group(foci_layer_plan(layer), i, &g); i++) {
        const foci_mech_def *def = g.mech->def;
        if (want->causal && !cross && def->no_causal)
            return refuse(ctx, want, false, def->name, def->no_causal);
        if (cross && def->no_cross)
            return refuse(ctx, want, true, def->name, def->no_cross);
        if (cross && decodes && mixes_queries(g.mech))
            return refuse(ctx, want, true, def->name,
                          "what a query sees there depends on the queries behind it");
    }
    return FOCI_OK;
}

/* A layer of the spec alone: no causality, no source. */
static foci_status check_names(const foci_model *m, const struct attention *a,
                               const struct spec_want *want)
{
    foci_layer_problem p = a->problem;
    foci_layer        *layer = NULL;
    const bool         cross = p.len_source > 0;

    p.flags &= ~(uint32_t)FOCI_FLAG_CAUSAL;
    p.len_source = 0;
    if (create(m, want->given, &p, &layer)) return FOCI_OK;
    const foci_status status = check_groups(m->ctx, layer, want, cross, cross);
    foci_layer_free(layer);
    return status;
}

/* The text of a plan with its arguments spelled out. */
static foci_status spell_out(foci_ctx *ctx, const foci_layer *layer, char **text)
{
    const size_t bytes = (size_t)foci_plan_spec(foci_layer_plan(layer), NULL, 0) + 1;

    *text = ctx_alloc(ctx, bytes, 1);
    if (!*text) return FOCI_ERR_MEMORY;
    foci_plan_spec(foci_layer_plan(layer), *text, bytes);
    return FOCI_OK;
}

static void free_text(foci_ctx *ctx, char *text)
{
    if (text) ctx_free(ctx, text, strlen(text) + 1, 1);
}

/*
 * Rotary positions
 */

static bool has_positions(const foci_mech *mech)
{
    enum {
        POSITIONS = FOCI_MOD_ROPE | FOCI_MOD_TABLE | FOCI_MOD_SLOPE | FOCI_MOD_SHAW |
                    FOCI_MOD_TXL
    };
    for (size_t i = 0; i < mech->n_mods; i++)
        if (mech->mods[i].def->does & POSITIONS) return true;
    return false;
}

/* The end of group number `index` of a spec: the sign + between groups stands outside all
 * parentheses. */
static const char *group_end(const char *spec, int index)
{
    int depth = 0;

    for (; *spec; spec++) {
        depth += *spec == '(';
        depth -= *spec == ')';
        if (*spec == '+' && depth == 0 && index-- == 0) break;
    }
    return spec;
}

/* *text with " rope" behind group number `index`, if that can be planned. */
static foci_status try_rope(const foci_model *m, const foci_layer_problem *p, int index,
                            char **text)
{
    foci_ctx    *ctx = m->ctx;
    const char  *end = group_end(*text, index);
    const size_t before = (size_t)(end - *text), bytes = strlen(*text) + 8;
    char        *longer = ctx_alloc(ctx, bytes, 1);
    foci_layer  *layer = NULL;

    if (!longer) return FOCI_ERR_MEMORY;
    snprintf(longer, bytes, "%.*s rope %s", (int)before, *text, end);
    const foci_status status = create(m, longer, p, &layer);
    if (status) {
        ctx_free(ctx, longer, bytes, 1);
        return status == FOCI_ERR_MEMORY ? status : FOCI_OK;
    }
    free_text(ctx, *text);
    ctx_free(ctx, longer, bytes, 1);
    const foci_status spelled = spell_out(ctx, layer, text);
    foci_layer_free(layer);
    return spelled;
}

static foci_status add_rope(const foci_model *m, struct attention *a)
{
    foci_group g = { FOCI_SIZED(foci_group) };

    for (int i = 0; !foci_plan_group(foci_layer_plan(a->layer), i, &g); i++) {
        if (has_positions(g.mech) || !(g.reads & FOCI_READ_Q)) continue;
        TRY(try_rope(m, &a->problem, i, &a->spec));
    }
    foci_layer_free(a->layer);
    return create(m, a->spec, &a->problem, &a->layer);
}

/*
 * What a layer asks of training
 */

static void look_at_mech(struct attention *a, const foci_mech *mech, bool freezes)
{
    for (; mech; mech = mech->inner) {
        foci_linear l = { 0 };
        if (mech->def->linear) mech->def->linear(mech, &l);
        if (l.moments && freezes) a->calibrates = true;
        if (l.redraw) a->redraw = l.redraw;
    }
}

static void look_at(struct attention *a, bool decodes)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    foci_param p = { FOCI_SIZED(foci_param) };

    for (int i = 0; !foci_plan_group(foci_layer_plan(a->layer), i, &g); i++) {
        look_at_mech(a, g.mech, decodes);
        a->words |= (g.reads & FOCI_READ_WORDS) != 0;
    }
    for (int i = 0; i < foci_layer_param_count(a->layer); i++)
        if (!foci_layer_param(a->layer, i, &p)) a->moves |= p.keep == FOCI_KEEP_MOVED;
}

static foci_status plan(const foci_model *m, struct attention *a,
                        const struct spec_want *want)
{
    TRY(check_names(m, a, want));
    foci_status status = create(m, want->given, &a->problem, &a->layer);
    if (!status) status = spell_out(m->ctx, a->layer, &a->spec);
    if (!status && want->rope) status = add_rope(m, a);
    return status ? fail_where(m->ctx, status, want->where) : FOCI_OK;
}

foci_status attention_plan(foci_model *m, struct attention *a,
                           const struct spec_want *want)
{
    foci_layer *train = NULL;

    TRY(plan(m, a, want));
    a->problem.size = sizeof a->problem;
    TRY(foci_layer_get_problem(a->layer, &a->problem));
    look_at(a, want->causal);
    const foci_status status = attention_layer(m, a, a->problem.batch, a->problem.len,
                                               a->problem.len_source, true, &train);
    foci_layer_free(train);
    return status ? fail_where(m->ctx, status, want->where) : FOCI_OK;
}

foci_status attention_layer(const foci_model *m, const struct attention *a,
                            int64_t batch, int64_t len, int64_t source, bool train,
                            foci_layer **layer)
{
    foci_layer_problem p = a->problem;

    p.batch = batch;
    p.len = len;
    p.len_source = source;
    if (train) {
        p.flags |= FOCI_FLAG_TRAIN;
        p.weight_dropout = m->config.weight_dropout;
        p.output_dropout = m->config.dropout;
    }
    return create(m, a->spec, &p, layer);
}

void attention_free(foci_ctx *ctx, struct attention *a)
{
    foci_layer_free(a->layer);
    free_text(ctx, a->spec);
    *a = (struct attention){ 0 };
}
