/* routes.c -- the plans inside a stage that attends to several sets of keys and values.
 *
 * Key/value head (h / share) routes + r of a group is route r of its head h, so the
 * plan of a route is the inner mechanism on every routes-th of them: the same problem
 * with longer steps from head to head.  It refers to the tensors of the outer plan, and its
 * group to the place, modifiers and parameters of the outer group; it owns none of them.
 */
#include "api/api.h"

/* Offsets of the tensors of route r, which follow one another by route. */
static int64_t shifted(const foci_plan *plan, int64_t at, int64_t route, int64_t routes)
{
    if (at < 0) return at;
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].offset == at)
            return at + route * (plan->params[i].count / routes);
    return at;
}

static void set_params(const foci_plan *plan, const struct plan_group *g, int64_t route,
                       struct plan_group *mine)
{
    const int64_t    routes = mech_routes(&g->mech);
    const foci_mech *m = g->mech.inner;

    for (size_t t = 0; t < m->def->n_tensors; t++)
        mine->param0[t] = shifted(plan, g->inner_param[t], route, routes);
    for (size_t i = 0; i < m->n_mods; i++)
        for (size_t t = 0; t < m->mods[i].def->n_tensors; t++)
            mine->mod_param[i][t] = shifted(plan, g->inner_mod[i][t], route, routes);
}

static foci_status make_route(foci_plan *plan, const struct stage *s, int64_t route,
                              foci_plan **out)
{
    foci_ctx                *ctx = plan->ctx;
    const struct plan_group *g = s->group;
    const int64_t            routes = mech_routes(&g->mech);
    foci_plan               *made = ctx_alloc(ctx, 1, sizeof *made);

    *out = made;
    if (!made) return FOCI_ERR_MEMORY;
    made->ctx = ctx;
    made->p = plan->p;
    made->p.k.head *= routes;
    made->p.v.head *= routes;
    made->p.o = (foci_layout){ .batch = plan->p.len_q * plan->p.heads * plan->p.dim_v,
                               .row = plan->p.heads * plan->p.dim_v,
                               .head = plan->p.dim_v };
    made->n_floats = plan->n_floats;
    made->params = plan->params;
    made->n_params = plan->n_params;
    made->spec.groups = ctx_alloc(ctx, 1, sizeof *made->spec.groups);
    if (!made->spec.groups) return FOCI_ERR_MEMORY;
    made->spec.n_groups = 1;

    struct plan_group *mine = made->spec.groups;
    *mine = (struct plan_group){ .head0 = g->head0,
                                 .heads = g->heads,
                                 .kv_heads = g->kv_heads / routes,
                                 .column = g->column,
                                 .mech = *g->mech.inner };
    mine->mod_param = ctx_alloc(ctx, mine->mech.n_mods, sizeof *mine->mod_param);
    if (!mine->mod_param) return FOCI_ERR_MEMORY;
    set_params(plan, g, route, mine);
    TRY(plan_make_stages(made));
    return plan_add_up(made);
}

foci_status routes_make(foci_plan *plan, struct stage *s)
{
    const int64_t n = mech_routes(&s->group->mech);

    s->inner = ctx_alloc(plan->ctx, (size_t)n, sizeof *s->inner);
    if (!s->inner) return FOCI_ERR_MEMORY;
    s->n_inner = n;
    for (int64_t r = 0; r < n; r++)
        TRY(make_route(plan, s, r, &s->inner[r]));
    return FOCI_OK;
}

void routes_free(foci_plan *plan, struct stage *s)
{
    foci_ctx *ctx = plan->ctx;

    for (int64_t r = 0; r < s->n_inner; r++) {
        foci_plan *route = s->inner[r];
        if (!route) continue;
        plan_free_stages(route);
        ctx_free(ctx, route->by_cost, (size_t)route->spec.n_groups,
                 sizeof *route->by_cost);
        if (route->spec.groups) {
            struct plan_group *g = route->spec.groups;
            ctx_free(ctx, g->mod_param, g->mech.n_mods, sizeof *g->mod_param);
            ctx_free(ctx, g, 1, sizeof *g);
        }
        ctx_free(ctx, route, 1, sizeof *route);
    }
    ctx_free(ctx, s->inner, (size_t)s->n_inner, sizeof *s->inner);
}
