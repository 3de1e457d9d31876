/* layer_links.c -- the projections of a layer, by the names of their tensors. */
#include <stdio.h>
#include <string.h>

#include "ref/layer.h"

static bool is_mix(const struct ref_pass *x)
{
    return foci_plan_group_count(x->plan) > 1;
}

int ref_find(const struct ref_pass *x, int group, const char *name)
{
    char whole[64];

    if (group >= 0 && is_mix(x))
        snprintf(whole, sizeof whole, "%d.%s", group, name);
    else
        snprintf(whole, sizeof whole, "%s", name);
    for (int i = 0; i < x->own; i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        if (!foci_layer_param(x->call->layer, i, &param) &&
            strcmp(param.name, whole) == 0)
            return i;
    }
    return -1;
}

int64_t ref_offset(const struct ref_pass *x, int tensor)
{
    foci_param param = { FOCI_SIZED(foci_param), .offset = -1 };

    if (tensor >= 0) (void)foci_layer_param(x->call->layer, tensor, &param);
    return param.offset;
}

static int64_t columns(const struct ref_place *p) { return p->heads * p->dim; }

/* A link whose tensors are called so, if there are any. */
static void add(struct ref_pass *x, int group, const char *w, const char *b,
                struct ref_link link)
{
    link.weights = ref_find(x, group, w);
    link.bias = ref_find(x, group, b);
    link.cols = link.heads * x->at[link.to].dim;
    if (link.weights >= 0) x->links[x->n_links++] = link;
}

/* Keys or values: of the source, or of x with the memory before it. */
static void add_keys(struct ref_pass *x, int group, const foci_group *g, const char *w,
                     const char *b, enum ref_at to)
{
    const enum ref_at from = x->p.len_source ? REF_SOURCE : REF_X;
    struct ref_link   link = { .to = to, .head0 = g->kv0, .heads = g->kv_heads };

    if (x->p.memory) {
        link.from = REF_MEMORY;
        add(x, group, w, b, link);
    }
    link.from = from;
    link.row0 = x->p.memory;
    add(x, group, w, b, link);
}

static void add_attention(struct ref_pass *x)
{
    foci_group g = { FOCI_SIZED(foci_group) };

    for (int i = 0; i < foci_plan_group_count(x->plan); i++) {
        (void)foci_plan_group(x->plan, i, &g);
        add(x, i, "Wq", "bq",
            (struct ref_link){
                .from = REF_X, .to = REF_Q, .head0 = g.head0, .heads = g.heads });
        add_keys(x, i, &g, "Wk", "bk", REF_K);
        add_keys(x, i, &g, "Wv", "bv", REF_V);
    }
}

static void add_from_x(struct ref_pass *x, const char *w, const char *b, enum ref_at to)
{
    add(x, -1, w, b,
        (struct ref_link){ .from = REF_X, .to = to, .heads = x->at[to].heads });
}

foci_status ref_links_open(struct ref_pass *x)
{
    enum { OF_GROUP = 5, OTHERS = 4 }; /* at most */

    x->cap_links = OF_GROUP * foci_plan_group_count(x->plan) + OTHERS;
    x->links = ctx_alloc(x->ctx, (size_t)x->cap_links, sizeof *x->links);
    if (!x->links) return FOCI_ERR_MEMORY;
    switch (x->p.kind) {
    case FOCI_LAYER_ATTENTION: add_attention(x); break;
    case FOCI_LAYER_GAU:
        add_from_x(x, "Wu", "bu", REF_U);
        add_from_x(x, "Wv", "bv", REF_W);
        add_from_x(x, "Wz", "bz", REF_Z);
        break;
    case FOCI_LAYER_CONV: add_from_x(x, "Wi", "bi", REF_U); break;
    }
    add(x, -1, "Wo", "bo",
        (struct ref_link){ .from = x->p.kind == FOCI_LAYER_GAU ? REF_G : REF_O,
                           .to = REF_Y,
                           .heads = 1 });
    return FOCI_OK;
}

/* Its weights, stored or drawn. */
static foci_status load(const struct ref_pass *x, const struct ref_link *l)
{
    foci_param param = { FOCI_SIZED(foci_param) };

    (void)foci_layer_param(x->call->layer, l->weights, &param);
    if (param.offset < 0)
        TRY(foci_layer_frozen_get(x->call->layer, l->weights, x->drawn));
    for (int64_t t = 0; t < param.count; t++)
        l->w[t] =
            ref_round(x->operand, param.offset < 0 ? (double)x->drawn[t]
                                                   : x->call->params[param.offset + t]);
    return FOCI_OK;
}

void ref_links_carve(struct ref_pass *x, struct arena *scratch)
{
    int64_t most = 0;

    for (int i = 0; i < x->n_links; i++) {
        struct ref_link *l = &x->links[i];
        const int64_t    n = columns(&x->at[l->from]) * l->cols;
        l->w = arena_alloc(scratch, n, sizeof *l->w);
        most = max64(most, n);
    }
    x->drawn = arena_alloc(scratch, most, sizeof *x->drawn);
}

foci_status ref_links_load(const struct ref_pass *x)
{
    for (int i = 0; i < x->n_links; i++)
        TRY(load(x, &x->links[i]));
    return FOCI_OK;
}

/* Where a tensor's numbers, or their gradients, are; NULL: not stored. */
static double *stored(const struct ref_pass *x, int tensor, double *of)
{
    const int64_t at = ref_offset(x, tensor);
    return at < 0 || !of ? NULL : of + at;
}

void ref_link_run(const struct ref_pass *x, const struct ref_link *l)
{
    const struct ref_place *from = &x->at[l->from], *to = &x->at[l->to];
    const double           *bias = stored(x, l->bias, (double *)x->call->params);
    const int64_t           n = columns(from), col0 = l->head0 * to->dim;

    for (int64_t b = 0; b < x->p.batch; b++) {
        const foci_range rows = ref_valid(x, l->from, b);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t c = 0; c < l->cols; c++) {
                double sum = bias ? bias[c] : 0;
                for (int64_t t = 0; t < n; t++)
                    sum += ref_round(x->operand, *ref_element(from, from->x, b, i, t)) *
                           l->w[t * l->cols + c];
                *ref_element(to, to->x, b, l->row0 + i, col0 + c) =
                    ref_round(x->place, sum);
            }
    }
}

void ref_link_back(const struct ref_pass *x, const struct ref_link *l)
{
    const struct ref_place *from = &x->at[l->from], *to = &x->at[l->to];
    double                 *dw = stored(x, l->weights, x->call->dparams);
    double                 *dbias = stored(x, l->bias, x->call->dparams);
    const int64_t           n = columns(from), col0 = l->head0 * to->dim;

    for (int64_t b = 0; b < x->p.batch; b++) {
        const foci_range rows = ref_valid(x, l->from, b);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t c = 0; c < l->cols; c++) {
                const double d = ref_round(
                    x->place, *ref_element(to, to->d, b, l->row0 + i, col0 + c));
                const double g = ref_round(x->operand, d);
                if (dbias) dbias[c] += d;
                for (int64_t t = 0; t < n; t++) {
                    const double in =
                        ref_round(x->operand, *ref_element(from, from->x, b, i, t));
                    if (dw) dw[t * l->cols + c] += in * g;
                    *ref_element(from, from->d, b, i, t) += g * l->w[t * l->cols + c];
                }
            }
    }
}
