/* run_either.c -- queries that apply to a plan and to a layer alike. */
#include "cli/layer.h"
#include "cli/run.h"
#include "foci/mechanism.h"

int run_n_params(const struct run_verb *r)
{
    return r->layer ? foci_layer_param_count(r->layer) : foci_plan_param_count(r->plan);
}

foci_status run_param(const struct run_verb *r, int index, foci_param *p)
{
    return r->layer ? foci_layer_param(r->layer, index, p)
                    : foci_plan_param(r->plan, index, p);
}

unsigned run_reads(const foci_plan *plan)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    unsigned   reads = 0;

    for (int i = 0; i < foci_plan_group_count(plan); i++)
        if (!foci_plan_group(plan, i, &g)) reads |= g.reads;
    return reads;
}

char *run_text(const struct run_verb *r)
{
    return r->layer ? layer_text(r->layer) : plan_text(foci_plan_describe, r->plan);
}

/* Key/value heads that a plan has where none are shared. */
static int64_t sets_of_keys(const foci_plan *plan)
{
    foci_group g = { FOCI_SIZED(foci_group) };
    int64_t    all = 0;

    for (int i = 0; i < foci_plan_group_count(plan); i++) {
        (void)foci_plan_group(plan, i, &g);
        const foci_mech_def *def = g.mech->def;
        all += g.heads * (def->routes ? def->routes(g.mech) : 1);
    }
    return all;
}

char *run_problem_text(const struct run_verb *r)
{
    enum { CAP = 160 };

    if (r->layer) return layer_problem_text(r->layer);
    char        *text = need(CAP, 1);
    foci_problem p = r->p;
    if (p.kv_heads == sets_of_keys(r->plan)) p.kv_heads = 0;
    foci_problem_print(&p, text, CAP);
    return text;
}

void run_json_kind(const struct run_verb *r, json_t *o)
{
    foci_layer_problem l = { FOCI_SIZED(foci_layer_problem) };

    if (!r->layer) return;
    foci_layer_get_problem(r->layer, &l);
    json_object_set_new(o, "layer", json_string(layer_kind_name(l.kind)));
}
