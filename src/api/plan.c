/* plan.c -- from spec and problem to a plan: stages, the engine of each, sizes. */
#include "api/api.h"
#include "plan/layout.h"

static const struct engine *const engines[] = {
    [FOCI_ENGINE_EXACT] = &engine_exact,
    [FOCI_ENGINE_LINEAR] = &engine_linear,
    [FOCI_ENGINE_POSITIONAL] = &engine_positional,
    [FOCI_ENGINE_ROUTED] = &engine_routed,
    [FOCI_ENGINE_NYSTROM] = &engine_nystrom,
    [FOCI_ENGINE_MEMFORMER] = &engine_memformer,
};

static const struct engine *choose_engine(const struct stage *s)
{
    const foci_mech *m = &s->group->mech;

    if (s->device) return &engine_exact_device;
    if (m->def->two_pass && m->def->two_pass(m)) return &engine_two_pass;
    return engines[m->def->engine];
}

foci_status plan_make_stages(foci_plan *plan)
{
    plan->stages =
        ctx_alloc(plan->ctx, (size_t)plan->spec.n_groups, sizeof *plan->stages);
    if (!plan->stages) return FOCI_ERR_MEMORY;
    for (int i = 0; i < plan->spec.n_groups; i++) {
        struct stage *s = &plan->stages[i];

        TRY(stage_make(plan, &plan->spec.groups[i], s));
        if (s->group->mech.def->engine == FOCI_ENGINE_ROUTED) TRY(routes_make(plan, s));
        if (plan->ctx->device) TRY(device_stage_make(plan, s));
        s->engine = choose_engine(s);
        s->decoder = s->engine->decoder;
    }
    return FOCI_OK;
}

void plan_free_stages(foci_plan *plan)
{
    foci_ctx    *ctx = plan->ctx;
    const size_t n = (size_t)plan->spec.n_groups;

    for (size_t i = 0; plan->stages && i < n; i++) {
        struct stage *s = &plan->stages[i];

        device_stage_free(ctx, s);
        stage_free(ctx, s);
        routes_free(plan, s);
    }
    ctx_free(ctx, plan->stages, n, sizeof *plan->stages);
    plan->stages = NULL;
}

static foci_status too_much_work(foci_ctx *ctx)
{
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "the work memory of this problem does not fit into this machine's "
                    "addresses");
}

/* Insertion keeps stages that cost the same in their order. */
static void sort_by_cost(foci_plan *plan)
{
    for (int i = 0; i < plan->spec.n_groups; i++) {
        int at = i;
        for (; at > 0 &&
               plan->stages[plan->by_cost[at - 1]].flops < plan->stages[i].flops;
             at--)
            plan->by_cost[at] = plan->by_cost[at - 1];
        plan->by_cost[at] = i;
    }
}

/* Stages run side by side: each has its own work memory, and its part of what forward
 * saves for backward. */
foci_status plan_add_up(foci_plan *plan)
{
    int64_t saved = 0;

    plan->by_cost =
        ctx_alloc(plan->ctx, (size_t)plan->spec.n_groups, sizeof *plan->by_cost);
    if (!plan->by_cost) return FOCI_ERR_MEMORY;
    plan->cost.size = sizeof plan->cost;
    for (int i = 0; i < plan->spec.n_groups; i++) {
        struct stage        *s = &plan->stages[i];
        const struct engine *e = s->engine;
        const double         before = plan->cost.forward_flops;
        const size_t         work = e->work_bytes(plan, s);

        if (work > SIZE_MAX / 2 - plan->work_bytes) return too_much_work(plan->ctx);
        s->work0 = plan->work_bytes;
        plan->work_bytes = (plan->work_bytes + work + 63) / 64 * 64;
        s->saved0 = saved;
        if (plan->p.flags & FOCI_FLAG_TRAIN)
            saved += round_up(e->saved_floats(plan, s), 16);
        e->cost(plan, s, &plan->cost);
        s->flops = plan->cost.forward_flops - before;
    }
    plan->saved_bytes = (size_t)saved * sizeof(float);
    sort_by_cost(plan);
    return FOCI_OK;
}

static foci_status make(foci_plan *plan, const char *spec, const foci_problem *problem)
{
    foci_ctx *ctx = plan->ctx;

    TRY(problem_copy(ctx, problem, &plan->p));
    TRY(spec_parse(ctx, spec, &plan->spec));
    TRY(spec_assign(ctx, &plan->spec, &plan->p));
    plan->p.lists = NULL; /* the groups have copies */
    plan->p.n_lists = 0;
    TRY(problem_complete(ctx, &plan->p));
    TRY(params_make(plan));
    TRY(plan_make_stages(plan));
    return plan_add_up(plan);
}

foci_status foci_plan_create(foci_ctx *ctx, const char *spec,
                             const foci_problem *problem, foci_plan **plan)
{
    if (!plan)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_plan_create: nowhere to put the plan");
    *plan = NULL;
    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_plan_create: the context is NULL");
    if (!spec || !problem)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_plan_create: %s is NULL",
                        spec ? "problem" : "spec");

    foci_plan *made = ctx_alloc(ctx, 1, sizeof *made);
    if (!made) return FOCI_ERR_MEMORY;
    made->ctx = ctx;

    const foci_status status = make(made, spec, problem);
    if (status) {
        foci_plan_free(made);
        return status;
    }
    *plan = made;
    return FOCI_OK;
}

void foci_plan_free(foci_plan *plan)
{
    if (!plan) return;
    foci_ctx *ctx = plan->ctx;

    plan_free_stages(plan);
    if (plan->by_cost)
        ctx_free(ctx, plan->by_cost, (size_t)plan->spec.n_groups, sizeof *plan->by_cost);
    ctx_free(ctx, plan->params, (size_t)plan->cap_params, sizeof *plan->params);
    spec_free(ctx, &plan->spec);
    ctx_free(ctx, plan, 1, sizeof *plan);
}

size_t foci_plan_work_bytes(const foci_plan *plan) { return plan->work_bytes; }

size_t foci_plan_saved_bytes(const foci_plan *plan) { return plan->saved_bytes; }

int foci_plan_group_count(const foci_plan *plan)
{
    return plan ? plan->spec.n_groups : 0;
}

foci_status foci_plan_group(const foci_plan *plan, int index, foci_group *group)
{
    if (!plan) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_plan_group: the plan is NULL");
    if (index < 0 || index >= plan->spec.n_groups)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG, "group %d: this plan has %d", index,
                        plan->spec.n_groups);
    const struct plan_group *g = &plan->spec.groups[index];
    const foci_group         full = { .head0 = g->head0,
                                      .heads = g->heads,
                                      .kv0 = g->kv0,
                                      .kv_heads = g->kv_heads,
                                      .reads = stage_reads(&plan->stages[index]),
                                      .mech = &g->mech };
    return sized_out(plan->ctx, "foci_group", group, &full, sizeof full);
}

foci_status foci_plan_get_problem(const foci_plan *plan, foci_problem *problem)
{
    if (!plan)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_plan_get_problem: the plan is NULL");
    foci_problem       p = plan->p;
    foci_layout *const layouts[] = { &p.q, &p.k, &p.v, &p.o, &p.x };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        layout_name_broadcasts(layouts[i]);
    return sized_out(plan->ctx, "foci_problem", problem, &p, sizeof p);
}

foci_status foci_plan_cost(const foci_plan *plan, foci_cost *cost)
{
    if (!plan) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_plan_cost: the plan is NULL");
    return sized_out(plan->ctx, "foci_cost", cost, &plan->cost, sizeof plan->cost);
}
