/* params.c -- the tensors of a plan: where each lies and how it starts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static int count_tensors(const struct spec *spec)
{
    size_t n = 0;
    for (int g = 0; g < spec->n_groups; g++) {
        const foci_mech *m = &spec->groups[g].mech;
        n += m->def->n_tensors;
        for (size_t i = 0; i < m->n_mods; i++)
            n += m->mods[i].def->n_tensors;
    }
    return (int)n;
}

static foci_status add(foci_plan *plan, int g, const foci_tensor_def *def,
                       const double *arg)
{
    struct group *group = &plan->spec.groups[g];
    struct param *p = &plan->params[plan->n_made++];

    if (plan->spec.n_groups > 1)
        snprintf(p->name, sizeof p->name, "%d.%s", g, def->name);
    else
        snprintf(p->name, sizeof p->name, "%s", def->name);
    p->def = def;
    p->group = g;
    p->n_dims = 1 + def->n_dims;
    p->shape[0] = group->heads;
    if (def->n_dims) def->shape(&group->mech, p->shape + 1);
    p->count = 1;
    for (int d = 0; d < p->n_dims; d++)
        if (p->shape[d] < 0 ||
            __builtin_mul_overflow(p->count, p->shape[d], &p->count) ||
            p->count > INT64_MAX / 64)
            return ctx_fail(plan->ctx, FOCI_ERR_ARG, "%s: its size overflows", p->name);
    p->value = def->preset ? arg[def->preset - 1] : def->value;
    p->offset = plan->n_floats;
    if (__builtin_add_overflow(plan->n_floats, p->count, &plan->n_floats) ||
        plan->n_floats > INT64_MAX / 64)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG, "the parameters' size overflows");
    return FOCI_OK;
}

foci_status params_make(foci_plan *plan)
{
    plan->n_params = count_tensors(&plan->spec);
    if (!plan->n_params) return FOCI_OK;
    plan->params = ctx_alloc(plan->ctx, (size_t)plan->n_params, sizeof *plan->params);
    if (!plan->params) return FOCI_ERR_MEMORY;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        struct group *group = &plan->spec.groups[g];
        foci_mech    *m = &group->mech;

        for (size_t t = 0; t < m->def->n_tensors; t++) {
            group->param0[t] = plan->n_floats;
            TRY(add(plan, g, &m->def->tensors[t], m->arg));
        }
        for (size_t i = 0; i < m->n_mods; i++) {
            const foci_mod *mod = &m->mods[i];
            group->mod_param0[i] = mod->def->n_tensors ? plan->n_floats : -1;
            for (size_t t = 0; t < mod->def->n_tensors; t++)
                TRY(add(plan, g, &mod->def->tensors[t], mod->arg));
        }
    }
    return FOCI_OK;
}

int64_t foci_plan_params(const foci_plan *plan) { return plan->n_floats; }

int foci_plan_n_params(const foci_plan *plan) { return plan->n_params; }

foci_status foci_plan_param(const foci_plan *plan, int index, foci_param *param)
{
    if (index < 0 || index >= plan->n_params || !param || !param->size ||
        param->size > sizeof *param)
        return FOCI_ERR_ARG;
    const struct param *p = &plan->params[index];
    const foci_param    full = {
           .size = param->size,
           .name = p->name,
           .offset = p->offset,
           .count = p->count,
           .n_dims = p->n_dims,
           .shape = { p->shape[0], p->shape[1], p->shape[2], p->shape[3] },
           .keep = p->def->keep,
    };
    memcpy(param, &full, param->size);
    return FOCI_OK;
}

/* Frames of orthonormal columns, one for each head; the last two dimensions are
 * rows and columns, at most as many columns as rows. */
static foci_status init_orthogonal(const foci_plan *plan, const struct param *p,
                                   struct rng *r, float *out)
{
    const int64_t rows = p->shape[p->n_dims - 2], cols = p->shape[p->n_dims - 1];
    const size_t  n = (size_t)(rows * cols);
    double       *q = ctx_alloc(plan->ctx, n, sizeof *q);
    if (!q) return FOCI_ERR_MEMORY;
    for (int64_t at = 0; at < p->count; at += rows * cols) {
        rng_haar(r, rows, cols, q);
        for (size_t i = 0; i < n; i++)
            out[at + (int64_t)i] = (float)q[i];
    }
    ctx_free(plan->ctx, q, n, sizeof *q);
    return FOCI_OK;
}

foci_status foci_params_init(const foci_plan *plan, uint64_t seed, float *params)
{
    if (plan->n_floats && !params) return FOCI_ERR_ARG;

    struct rng r;
    int        last_group = -1;
    uint64_t   last_stream = 0;
    for (int i = 0; i < plan->n_params; i++) {
        const struct param *p = &plan->params[i];
        const uint64_t      stream = p->def->stream + ((uint64_t)p->group << 32);
        float              *out = params + p->offset;

        if (p->def->init == FOCI_INIT_CONST) {
            for (int64_t t = 0; t < p->count; t++)
                out[t] = (float)p->value;
            continue;
        }
        /* Tensors of one group that share a stream follow one another in it. */
        if (p->group != last_group || stream != last_stream) rng_seed(&r, seed, stream);
        last_group = p->group;
        last_stream = stream;
        if (p->def->init == FOCI_INIT_ORTHOGONAL) {
            TRY(init_orthogonal(plan, p, &r, out));
            continue;
        }
        const double sd = sqrt(p->value);
        for (int64_t t = 0; t < p->count; t++)
            out[t] = (float)(sd * rng_normal(&r));
    }
    return FOCI_OK;
}
