/* describe.c -- the text that describes a plan: one line a stage, kernels and cost. */
#include <inttypes.h>
#include <stdio.h>

#include "api/api.h"

static const char *precision(const foci_problem *p)
{
    static const char *const names[] = { "f32", "bf16", "f16" };
    return p->dtype == FOCI_F32 && p->flags & FOCI_FLAG_FAST ? "f32 fast"
                                                             : names[p->dtype];
}

static const char *best_level(const foci_ctx *ctx)
{
    const char *name = level_names[0];
    for (int l = 0; l < N_LEVELS; l++)
        if (ctx->levels & 1u << l) name = level_names[l];
    return name;
}

static void add_group(struct printer *t, const foci_plan *plan, int i)
{
    const struct plan_group *g = &plan->spec.groups[i];
    const struct spec        one = { .groups = &plan->spec.groups[i], .n_groups = 1 };
    char                     text[4096];

    spec_print(&one, text, sizeof text);
    if (g->heads == 1)
        printer_add(t, "  head %" PRId64 ": %s\n", g->head0, text);
    else
        printer_add(t, "  heads %" PRId64 " to %" PRId64 ": %s\n", g->head0,
                    g->head0 + g->heads - 1, text);
    plan->stages[i].engine->describe(plan, &plan->stages[i], text, sizeof text);
    printer_add(t, "%s", text);
}

/* Key/value heads are told where they are fewer than heads and routes ask for. */
static void print_problem(const foci_plan *plan, char *text, size_t cap)
{
    foci_problem p = plan->p;
    int64_t      all = 0;

    for (int i = 0; i < plan->spec.n_groups; i++)
        all += plan->spec.groups[i].heads * mech_routes(&plan->spec.groups[i].mech);
    if (p.kv_heads == all) p.kv_heads = 0;
    foci_problem_print(&p, text, cap);
}

int foci_plan_describe(const foci_plan *plan, char *text, size_t cap)
{
    struct printer t = { text, cap, 0 };
    char           problem[160];

    print_problem(plan, problem, sizeof problem);
    printer_add(&t, "plan %s, %s%s, ", problem, precision(&plan->p),
                plan->p.flags & FOCI_FLAG_TRAIN ? ", forward and backward" : "");
    if (plan->ctx->device)
        printer_add(&t, "on %s, %s\n", plan->ctx->device->name,
                    plan->ctx->device->info.name);
    else
        printer_add(&t, "level %s, %d thread%s\n", best_level(plan->ctx),
                    plan->ctx->threads, plan->ctx->threads == 1 ? "" : "s");
    for (int i = 0; i < plan->spec.n_groups; i++)
        add_group(&t, plan, i);
    printer_cost(&t, &plan->cost, plan->p.flags & FOCI_FLAG_TRAIN);
    printer_memory(&t, plan->work_bytes, plan->saved_bytes, plan->n_floats);
    return t.used;
}
