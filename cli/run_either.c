/* run_either.c -- what a plan and a layer both can be asked for. */
#include "cli/layer.h"
#include "cli/run.h"

int run_n_params(const struct run *r)
{
    return r->layer ? foci_layer_n_params(r->layer) : foci_plan_n_params(r->plan);
}

foci_status run_param(const struct run *r, int index, foci_param *p)
{
    return r->layer ? foci_layer_param(r->layer, index, p)
                    : foci_plan_param(r->plan, index, p);
}

char *run_text(const struct run *r)
{
    return r->layer ? layer_text(r->layer) : plan_text(foci_plan_describe, r->plan);
}

char *run_problem_text(const struct run *r)
{
    enum { CAP = 160 };

    if (r->layer) return layer_problem_text(r->layer);
    char *text = need(CAP, 1);
    foci_problem_print(&r->p, text, CAP);
    return text;
}

void run_json_kind(const struct run *r, json_t *o)
{
    foci_layer_problem l = { FOCI_SIZED(foci_layer_problem) };

    if (!r->layer) return;
    foci_layer_get(r->layer, &l);
    json_object_set_new(o, "layer", json_string(layer_kind_name(l.kind)));
}
