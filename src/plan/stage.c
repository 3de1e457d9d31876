/* stage.c -- from a group of the spec to a stage: checks, the effect of its modifiers, and
 * the tiles that it needs. */
#include <math.h>

#include "plan/plan.h"

/* Modifiers that speak of the distance between a query and a key; those that change what
 * queries and keys come to; those with rows as wide as these. */
enum {
    BY_DISTANCE = FOCI_MOD_TABLE | FOCI_MOD_SLOPE | FOCI_MOD_SHAW | FOCI_MOD_TXL,
    WITH_ROWS = FOCI_MOD_SHAW | FOCI_MOD_TXL,
    OF_PAIRS =
        FOCI_MOD_SCALE | FOCI_MOD_FACTOR | FOCI_MOD_UNIT | FOCI_MOD_ROPE | WITH_ROWS,
    OF_LAYERS = FOCI_MOD_FROZEN | FOCI_MOD_INIT
};

/* Of an inner mechanism: projections are those of the layer around it all. */
static foci_status check_inner(foci_ctx *ctx, const struct plan_group *g)
{
    const foci_mech *inner = g->mech.inner;

    for (size_t i = 0; inner && i < inner->n_mods; i++)
        if (inner->mods[i].def->does & OF_LAYERS)
            return ctx_fail(ctx, FOCI_ERR_UNSUP,
                            "column %d: %s cannot follow %s inside %s: write it behind",
                            g->column, inner->mods[i].def->name, inner->def->name,
                            g->mech.def->name);
    return FOCI_OK;
}

static foci_status check_mods(foci_ctx *ctx, const struct plan_group *g)
{
    const foci_mech *m = &g->mech;
    foci_slots       levels[FOCI_MAX_LEVELS];
    const bool       slots = m->def->slots && m->def->slots(m, levels) > 0;
    foci_order       order = { 0 };

    if (m->def->order) m->def->order(m, &order);
    for (size_t i = 0; i < m->n_mods; i++) {
        const foci_mod_def *mod = m->mods[i].def;
        const char         *why = NULL;

        if (mod->does & OF_LAYERS) {
            if (!(mech_reads(m) & (FOCI_READ_Q | FOCI_READ_K)))
                why = "it reads neither queries nor keys, which are what is projected";
        } else if (m->def->engine == FOCI_ENGINE_ROUTED)
            why = "write it after the inner mechanism";
        else if (mod->does & BY_DISTANCE && slots)
            why = "a slot stands for many keys and has no position";
        else if (mod->does & FOCI_MOD_TXL && order.label)
            why = "it needs the keys in their order";
        else if (mod->does & FOCI_MOD_TXL && !m->causal)
            why =
                "keys after the query have no row of R, so the problem must be causal";
        else if ((mod->does & OF_PAIRS || mod->row_factor) &&
                 !(mech_sources(m) & FOCI_SOURCE_QK))
            why = "its logits do not come from queries and keys";
        else if (mod->does & WITH_ROWS && m->def->map == FOCI_MAP_PROJECT)
            why = "queries and keys are projected to another width than its rows have";
        else if (mod->does & FOCI_MOD_ROPE && m->def->engine != FOCI_ENGINE_LINEAR &&
                 mech_width(m) % 2)
            why = "pairs of elements are rotated, and the width of q and k is odd";
        if (why)
            return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: %s cannot follow %s: %s",
                            g->column, mod->name, m->def->name, why);
    }
    return FOCI_OK;
}

/* Sources find the matrices and vectors that they are made of by role. */
static foci_status check_sources(foci_ctx *ctx, const struct plan_group *g)
{
    static const struct {
        unsigned  source;
        foci_role first, last;
    } parts[] = {
        { FOCI_SOURCE_TABLE, FOCI_ROLE_R, FOCI_ROLE_R },
        { FOCI_SOURCE_FACTORS, FOCI_ROLE_R1, FOCI_ROLE_R2 },
        { FOCI_SOURCE_NET, FOCI_ROLE_W1, FOCI_ROLE_B2 },
        { FOCI_SOURCE_OUTER, FOCI_ROLE_W1A, FOCI_ROLE_B2B },
    };
    static const char *const names[] = {
        [FOCI_ROLE_R] = "R",     [FOCI_ROLE_R1] = "R1",   [FOCI_ROLE_R2] = "R2",
        [FOCI_ROLE_W1] = "W1",   [FOCI_ROLE_B1] = "B1",   [FOCI_ROLE_W2] = "W2",
        [FOCI_ROLE_B2] = "B2",   [FOCI_ROLE_W1A] = "W1A", [FOCI_ROLE_B1A] = "B1A",
        [FOCI_ROLE_W2A] = "W2A", [FOCI_ROLE_B2A] = "B2A", [FOCI_ROLE_W1B] = "W1B",
        [FOCI_ROLE_B1B] = "B1B", [FOCI_ROLE_W2B] = "W2B", [FOCI_ROLE_B2B] = "B2B",
    };
    const foci_mech *m = &g->mech;
    const unsigned   sources = mech_sources(m);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int role = (int)parts[i].first;
             sources & parts[i].source && role <= (int)parts[i].last; role++)
            if (mech_tensor(m, (foci_role)role) < 0)
                return ctx_fail(ctx, FOCI_ERR_ARG,
                                "column %d: mechanism %s: a source of its logits needs "
                                "a tensor with the role FOCI_ROLE_%s",
                                g->column, m->def->name, names[role]);
    return FOCI_OK;
}

static foci_status check_group(foci_ctx *ctx, const struct plan_group *g,
                               const foci_problem *p)
{
    const foci_mech_def *def = g->mech.def;
    char                 why[300] = "";

    if (p->flags & FOCI_FLAG_CAUSAL && def->no_causal)
        return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: %s cannot be causal: %s",
                        g->column, def->name, def->no_causal);
    const char *no_cross = def->no_cross;
    if (mech_paired(&g->mech) && !no_cross)
        no_cross = "a row is a query and a key at once";
    if (p->len_q != p->len_k && no_cross)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "column %d: %s needs as many queries as keys: %s", g->column,
                        def->name, no_cross);
    if (def->refuse && def->refuse(&g->mech, why, sizeof why))
        return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: %s: %s", g->column, def->name,
                        why);
    TRY(check_inner(ctx, g));
    TRY(check_sources(ctx, g));
    return check_mods(ctx, g);
}

static foci_status too_many(foci_ctx *ctx, const struct plan_group *g, int n,
                            const char *what)
{
    return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: more than %d %s", g->column, n,
                    what);
}

static foci_status add_factor(foci_ctx *ctx, const struct plan_group *g, size_t i,
                              struct score *s)
{
    const foci_mod *mod = &g->mech.mods[i];

    if (mod->def->does & FOCI_MOD_FACTOR) {
        if (s->n_factors == (int)(sizeof s->factor / sizeof *s->factor))
            return too_many(ctx, g, s->n_factors, "learned factors");
        s->factor[s->n_factors++] = g->mod_param[i][0];
    }
    if (mod->def->row_factor) {
        if (s->n_rows == (int)(sizeof s->row / sizeof *s->row))
            return too_many(ctx, g, s->n_rows, "factors of rows");
        s->row[s->n_rows++] = mod;
    }
    return FOCI_OK;
}

static foci_status add_position(foci_ctx *ctx, const struct plan_group *g, size_t i,
                                struct score *s)
{
    const foci_mod *mod = &g->mech.mods[i];
    const int64_t  *at = g->mod_param[i];
    const unsigned  does = mod->def->does;

    if (does & FOCI_MOD_ROPE) {
        s->rope_base = mod->arg[0];
        s->rope_half = mod->arg[1] != 0;
    }
    if (does & FOCI_MOD_SLOPE) s->slope = mod;
    if (does & FOCI_MOD_TABLE) {
        if (s->n_tables == (int)(sizeof s->table / sizeof *s->table))
            return too_many(ctx, g, s->n_tables, "tables over the distance");
        s->table[s->n_tables] = mod;
        mod->def->tensors->shape(&g->mech, mod->arg, &s->table_size[s->n_tables]);
        s->table_at[s->n_tables++] = at[0];
    }
    if (does & FOCI_MOD_SHAW) {
        s->clip = (int64_t)mod->arg[0];
        s->shaw_k = at[0];
        s->shaw_v = at[1];
    }
    if (does & FOCI_MOD_TXL) {
        s->txl_u = at[0];
        s->txl_w = at[1];
        s->txl_r = at[2];
    }
    return FOCI_OK;
}

/* The modifiers of a group, gathered by what they do. */
static foci_status make_score(foci_ctx *ctx, const struct plan_group *g, struct score *s)
{
    *s = (struct score){ .scale = 1 / sqrt((double)mech_width(&g->mech)),
                         .map = g->mech.def->map,
                         .sink = -1,
                         .shaw_k = -1,
                         .shaw_v = -1,
                         .txl_u = -1,
                         .txl_w = -1,
                         .txl_r = -1 };

    for (size_t i = 0; i < g->mech.n_mods; i++) {
        const foci_mod *mod = &g->mech.mods[i];
        const unsigned  does = mod->def->does;

        if (does & FOCI_MOD_SCALE) s->scale = mod->arg[0];
        if (does & FOCI_MOD_UNIT) {
            s->unit = true;
            s->scale = 1;
        }
        if (does & FOCI_MOD_CAP) s->cap = mod->arg[0];
        if (does & FOCI_MOD_SINK) s->sink = g->mod_param[i][0];
        TRY(add_factor(ctx, g, i, s));
        TRY(add_position(ctx, g, i, s));
    }
    return FOCI_OK;
}

/* Check what labels require of a problem. */
static foci_status check_order(foci_ctx *ctx, const struct stage *s)
{
    const struct plan_group *g = s->group;
    const foci_dims         *d = &g->mech.dims;

    if (!s->order.label) return FOCI_OK;
    if (max64(d->len, d->len_q) > MAX_ORDERED)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "column %d: %s sorts sequences of %d rows at most", g->column,
                        g->mech.def->name, (int)MAX_ORDERED);
    return FOCI_OK;
}

/* Refuse what the engine has no code for; no mechanism of this library needs it. */
static foci_status check_made_keys(foci_ctx *ctx, const struct stage *s)
{
    const char *why = NULL;

    if (s->score.map == FOCI_MAP_PROJECT && s->order.label)
        why = "rows that are projected have no labels";
    for (int i = 0; i < s->n_levels; i++)
        if (s->levels[i].slots.learned && (s->n_levels > 1 || s->order.label))
            why = "learned slots go with no other slots and with no labels";
    if (!why) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: %s: %s", s->group->column,
                    s->group->mech.def->name, why);
}

static foci_status make_support(foci_ctx *ctx, struct stage *s)
{
    const foci_mech *m = &s->group->mech;
    foci_slots       slots[FOCI_MAX_LEVELS] = { 0 };
    const int        n = m->def->slots ? m->def->slots(m, slots) : 0;

    if (m->def->order) m->def->order(m, &s->order);
    TRY(check_order(ctx, s));
    TRY(labelled_make(ctx, m, &s->order, &s->labelled));
    TRY(support_make(ctx, m, -1, m->dims.len, &s->support));
    for (; s->n_levels < n; s->n_levels++) {
        s->levels[s->n_levels].slots = slots[s->n_levels];
        TRY(support_make(ctx, m, s->n_levels, m->dims.len,
                         &s->levels[s->n_levels].support));
    }
    return check_made_keys(ctx, s);
}

/* Why a modifier cannot follow a mechanism that never forms all weights of a row; NULL:
 * it can. */
static const char *against_mod(const struct stage *s, const foci_mod_def *mod)
{
    const foci_engine engine = s->group->mech.def->engine;

    if (mod->does & OF_LAYERS) return NULL;
    if (engine == FOCI_ENGINE_LINEAR) return linear_against(s, mod);
    if (engine == FOCI_ENGINE_POSITIONAL) return "there are no logits to change";
    return mod->does == FOCI_MOD_SCALE ? NULL : "only the scale can be changed";
}

static foci_status check_no_weights(foci_ctx *ctx, const struct stage *s,
                                    const foci_problem *p)
{
    const foci_mech *m = &s->group->mech;
    const char      *what = NULL;

    for (size_t i = 0; i < m->n_mods; i++) {
        const char *why = against_mod(s, m->mods[i].def);
        if (why)
            return ctx_fail(ctx, FOCI_ERR_UNSUP, "column %d: %s cannot follow %s: %s",
                            s->group->column, m->mods[i].def->name, m->def->name, why);
    }
    if (p->flags & FOCI_FLAG_MASK) what = "a mask";
    if (p->flags & FOCI_FLAG_BIAS) what = "a bias";
    if (p->dropout > 0) what = "dropout of weights";
    if (!what) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_UNSUP,
                    "column %d: %s cannot have %s: it never forms the weights of pairs",
                    s->group->column, m->def->name, what);
}

foci_status stage_make(foci_plan *plan, const struct plan_group *g, struct stage *s)
{
    const foci_mech *m = &g->mech;

    s->group = g;
    TRY(check_group(plan->ctx, g, &plan->p));
    if (m->def->engine == FOCI_ENGINE_ROUTED) return FOCI_OK;
    TRY(make_score(plan->ctx, g, &s->score));
    if (!(plan->p.flags & FOCI_FLAG_MEMORY_GRADS))
        s->memory = max64(plan->p.memory, m->def->memory ? m->def->memory(m) : 0);
    if (m->def->engine == FOCI_ENGINE_LINEAR) {
        s->linear = linear_of(m);
        s->features = linear_features(m, &s->linear);
        const char *fault = linear_fault(&s->linear);
        if (fault)
            return ctx_fail(plan->ctx, FOCI_ERR_UNSUP, "column %d: %s: %s", g->column,
                            m->def->name, fault);
    }
    if (m->def->engine != FOCI_ENGINE_EXACT)
        return check_no_weights(plan->ctx, s, &plan->p);
    return make_support(plan->ctx, s);
}

void stage_free(foci_ctx *ctx, struct stage *s)
{
    support_free(ctx, &s->support);
    for (int l = 0; l < FOCI_MAX_LEVELS; l++)
        support_free(ctx, &s->levels[l].support);
}
