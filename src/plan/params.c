/* params.c -- the tensors of a plan: where each lies and how it starts. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static int count_tensors(const struct spec *spec)
{
    size_t n = 0;
    for (int g = 0; g < spec->n_groups; g++)
        for (const foci_mech *m = &spec->groups[g].mech; m; m = m->inner) {
            n += m->def->n_tensors;
            for (size_t i = 0; i < m->n_mods; i++)
                n += m->mods[i].def->n_tensors;
        }
    return (int)n;
}

/* Whose tensors are being laid out. */
struct owner {
    foci_plan       *plan;
    const foci_mech *mech;
    int              group;
    const char      *prefix;
    int64_t          rows; /* the first extent: heads, of an inner mechanism by route */
    const char      *modifier; /* NULL: the mechanism's own */
};

static bool taken(const foci_plan *plan, int group, const char *name)
{
    for (int i = plan->n_params; i-- > 0 && plan->params[i].group == group;)
        if (strcmp(plan->params[i].name, name) == 0) return true;
    return false;
}

/* Where modifiers of a group call their tensors alike, the later has its own name too. */
static void set_name(const struct owner *o, const char *tensor, char *name, size_t cap)
{
    char group[16] = "";

    if (o->plan->spec.n_groups > 1) snprintf(group, sizeof group, "%d.", o->group);
    snprintf(name, cap, "%s%s%s", group, o->prefix, tensor);
    if (o->modifier && taken(o->plan, o->group, name))
        snprintf(name, cap, "%s%s%s.%s", group, o->prefix, o->modifier, tensor);
}

/* A tensor with nothing in it is left out. */
static foci_status add(const struct owner *o, const foci_tensor_def *def,
                       const double *arg)
{
    foci_plan    *plan = o->plan;
    struct param *p = &plan->params[plan->n_params];

    set_name(o, def->name, p->name, sizeof p->name);
    p->def = def;
    p->mech = o->mech;
    p->group = o->group;
    p->n_dims = 1 + def->n_dims;
    p->shape[0] = o->rows;
    if (def->n_dims) def->shape(o->mech, arg, p->shape + 1);
    p->count = 1;
    for (int d = 0; d < p->n_dims; d++)
        if (p->shape[d] < 0 ||
            __builtin_mul_overflow(p->count, p->shape[d], &p->count) ||
            p->count > INT64_MAX / 64)
            return ctx_fail(plan->ctx, FOCI_ERR_ARG, "%s: its size overflows", p->name);
    if (!p->count) return FOCI_OK;
    p->keep = def->frozen && def->frozen(o->mech, arg) ? FOCI_KEEP_FROZEN : def->keep;
    p->value = def->value_of ? def->value_of(o->mech, arg)
               : def->preset ? arg[def->preset - 1]
                             : def->value;
    plan->n_params++;
    p->offset = plan->n_floats;
    if (__builtin_add_overflow(plan->n_floats, p->count, &plan->n_floats) ||
        plan->n_floats > INT64_MAX / 64)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG, "the parameters' size overflows");
    return FOCI_OK;
}

/* at[] are the offsets, -1 where a tensor is left out. */
static foci_status add_all(const struct owner *o, const foci_tensor_def *defs, size_t n,
                           const double *arg, int64_t *at)
{
    for (size_t t = 0; t < n; t++) {
        const int before = o->plan->n_params;
        at[t] = o->plan->n_floats;
        TRY(add(o, &defs[t], arg));
        if (o->plan->n_params == before) at[t] = -1;
    }
    return FOCI_OK;
}

static foci_status add_mech(const struct owner *o, int64_t *at,
                            int64_t (*mod_at)[FOCI_MAX_TENSORS])
{
    const foci_mech *m = o->mech;

    TRY(add_all(o, m->def->tensors, m->def->n_tensors, m->arg, at));
    for (size_t i = 0; i < m->n_mods; i++) {
        const foci_mod *mod = &m->mods[i];
        struct owner    its = *o;
        its.modifier = mod->def->name;
        TRY(add_all(&its, mod->def->tensors, mod->def->n_tensors, mod->arg, mod_at[i]));
    }
    return FOCI_OK;
}

foci_status params_make(foci_plan *plan)
{
    plan->cap_params = count_tensors(&plan->spec);
    if (!plan->cap_params) return FOCI_OK;
    plan->params = ctx_alloc(plan->ctx, (size_t)plan->cap_params, sizeof *plan->params);
    if (!plan->params) return FOCI_ERR_MEMORY;

    for (int i = 0; i < plan->spec.n_groups; i++) {
        struct plan_group *g = &plan->spec.groups[i];
        const foci_mech   *m = &g->mech;

        TRY(add_mech(&(struct owner){ plan, m, i, "", g->heads, NULL }, g->param0,
                     g->mod_param));
        if (m->inner)
            TRY(add_mech(&(struct owner){ plan, m->inner, i, "inner.",
                                          g->heads * mech_routes(m), NULL },
                         g->inner_param, g->inner_mod));
    }
    return FOCI_OK;
}

int64_t foci_plan_param_floats(const foci_plan *plan) { return plan->n_floats; }

int64_t plan_mod_tensor(const foci_plan *plan, int group, size_t mod, size_t t)
{
    return plan->spec.groups[group].mod_param[mod][t];
}

int foci_plan_param_count(const foci_plan *plan) { return plan->n_params; }

foci_status foci_plan_param(const foci_plan *plan, int index, foci_param *param)
{
    if (!plan) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_plan_param: the plan is NULL");
    if (index < 0 || index >= plan->n_params)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "parameter tensor %d: this plan has %d", index, plan->n_params);
    const struct param *p = &plan->params[index];
    const foci_param    full = {
           .name = p->name,
           .offset = p->offset,
           .count = p->count,
           .n_dims = p->n_dims,
           .shape = { p->shape[0], p->shape[1], p->shape[2], p->shape[3] },
           .keep = p->keep,
    };
    return sized_out(plan->ctx, "foci_param", param, &full, sizeof full);
}

/* Blocks of d rows: of each a frame, then its rows with a fresh length each. */
void rows_draw(foci_rows kind, struct rng *r, int64_t rows, int64_t d, double *frame,
               float *out)
{
    for (int64_t i = 0; i < rows; i++) {
        double length = 1;

        if (kind == FOCI_ROWS_NORMAL) {
            for (int64_t t = 0; t < d; t++)
                out[i * d + t] = (float)rng_normal(r);
            continue;
        }
        if (i % d == 0) rng_haar(r, d, d, frame);
        if (kind == FOCI_ROWS_SQRT) length = sqrt((double)d);
        if (kind == FOCI_ROWS_CHI) {
            double squares = 0;
            for (int64_t t = 0; t < d; t++) {
                const double x = rng_normal(r);
                squares += x * x;
            }
            length = sqrt(squares);
        }
        for (int64_t t = 0; t < d; t++)
            out[i * d + t] = (float)(length * frame[i % d * d + t]);
    }
}

/* n numbers of head h, or of one round of it, to `out`. */
static foci_status draw(foci_ctx *ctx, const struct param *p, struct rng *r, int64_t h,
                        int64_t n, float *out)
{
    const int64_t cols = p->shape[p->n_dims - 1], rows = n / cols;
    const double  sd = sqrt(p->value);
    double        value = p->value, *frame;

    switch (p->def->init) {
    case FOCI_INIT_CONST:
        if (p->def->by_head) value = p->def->by_head(p->mech, h, p->shape[0]);
        for (int64_t t = 0; t < n; t++)
            out[t] = (float)value;
        break;
    case FOCI_INIT_ROWS:
        frame = ctx_alloc(ctx, (size_t)(cols * cols), sizeof *frame);
        if (!frame) return FOCI_ERR_MEMORY;
        rows_draw((foci_rows)value, r, rows, cols, frame, out);
        ctx_free(ctx, frame, (size_t)(cols * cols), sizeof *frame);
        break;
    case FOCI_INIT_NORMAL:
        for (int64_t t = 0; t < n; t++)
            out[t] = (float)(sd * rng_normal(r));
        break;
    case FOCI_INIT_UNIFORM:
        for (int64_t t = 0; t < n; t++)
            out[t] = p->value > 0 ? (float)(p->value * rng_uniform(r)) : 0;
        break;
    case FOCI_INIT_SINUSOID:
        for (int64_t t = 0; t < n; t++) {
            const int64_t row = t / cols, pair = t % cols / 2;
            const double  angle =
                (double)row * pow(10000, -2 * (double)pair / (double)cols);
            out[t] = (float)(t % cols % 2 ? cos(angle) : sin(angle));
        }
        break;
    case FOCI_INIT_ORTHOGONAL: /* columns are orthonormal */
        frame = ctx_alloc(ctx, (size_t)n, sizeof *frame);
        if (!frame) return FOCI_ERR_MEMORY;
        rng_haar(r, rows, cols, frame);
        for (int64_t t = 0; t < n; t++)
            out[t] = (float)frame[t];
        ctx_free(ctx, frame, (size_t)n, sizeof *frame);
        break;
    }
    return FOCI_OK;
}

/* Tensors i to end - 1 of a group share a stream: heads follow one another in it, and
 * of each head its tensors; rounds have streams of their own. */
static foci_status draw_run(const foci_plan *plan, uint64_t seed, int i, int end,
                            float *params)
{
    const struct param *first = &plan->params[i];
    const int64_t       rounds = first->def->by_rounds ? first->shape[1] : 1;
    struct rng          r;

    for (int64_t round = 0; round < rounds; round++) {
        rng_seed(&r, seed,
                 first->def->stream + (uint64_t)round + ((uint64_t)first->group << 32));
        for (int64_t h = 0; h < first->shape[0]; h++)
            for (const struct param *p = first; p < plan->params + end; p++) {
                const int64_t n = p->count / p->shape[0] / rounds;
                TRY(draw(plan->ctx, p, &r, h, n,
                         params + p->offset + (h * rounds + round) * n));
            }
    }
    return FOCI_OK;
}

foci_status foci_params_init(const foci_plan *plan, uint64_t seed, float *params)
{
    if (!plan)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_params_init: the plan is NULL");
    if (plan->n_floats && !params)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "foci_params_init: params is NULL, and this plan has %" PRId64
                        " floats of them",
                        plan->n_floats);

    for (int i = 0, end; i < plan->n_params; i = end) {
        const struct param *p = &plan->params[i];
        for (end = i + 1; end < plan->n_params; end++) {
            const struct param *next = &plan->params[end];
            if (next->group != p->group || next->def->stream != p->def->stream ||
                next->def->by_rounds != p->def->by_rounds)
                break;
        }
        TRY(draw_run(plan, seed, i, end, params));
    }
    return FOCI_OK;
}

foci_status params_draw(const foci_plan *plan, int64_t offset, uint64_t seed,
                        float *params)
{
    for (int i = 0; i < plan->n_params; i++)
        if (plan->params[i].offset == offset)
            return draw_run(plan, seed, i, i + 1, params);
    return FOCI_OK;
}
