/* plan.c -- from spec and problem to a plan: checks, stages, sizes. */
#include "plan/plan.h"
#include "device/device.h"

#include <inttypes.h>
#include <math.h>

static const struct engine *const engines[] = {
    [FOCI_EXACT] = &engine_exact,           [FOCI_LINEAR] = &engine_linear,
    [FOCI_POSITIONAL] = &engine_positional, [FOCI_LANDMARKS] = &engine_landmarks,
    [FOCI_RECALL] = &engine_recall,         [FOCI_ROUTES] = &engine_routes,
};

const struct engine *engine_of(const struct stage *s)
{
    const foci_mech *m = &s->group->mech;

    if (s->device) return &engine_exact_device;
    if (m->def->second && m->def->second(m)) return &engine_second;
    return engines[m->def->engine];
}

/*
 * The problem
 */

enum {
    FLAGS =
        FOCI_CAUSAL | FOCI_TRAIN | FOCI_FAST | FOCI_MASK | FOCI_BIAS | FOCI_MEMORY_GRADS
};

static foci_status check_range(foci_ctx *ctx, const char *name, int64_t value,
                               int64_t min, int64_t max)
{
    if (value >= min && value <= max) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s is %" PRId64 ": it may be %" PRId64 " to %" PRId64, name, value,
                    min, max);
}

/* Rows, heads and sequences of one tensor: fill in a layout left zero, and see that
 * no offset overflows. */
static foci_status check_layout(foci_ctx *ctx, const char *name, foci_layout *l,
                                int64_t batch, int64_t len, int64_t heads, int64_t dim)
{
    if (!l->batch && !l->row && !l->head) {
        int64_t per_row;
        if (__builtin_mul_overflow(heads, dim, &per_row) ||
            __builtin_mul_overflow(per_row, max64(len, 1), &l->batch))
            return ctx_fail(ctx, FOCI_ERR_ARG, "%s: its size overflows", name);
        l->head = dim;
        l->row = per_row;
    }
    const int64_t extent[] = { batch, len, heads };
    const int64_t step[] = { l->batch, l->row, l->head };
    int64_t       last = dim;
    for (int a = 0; a < 3; a++) {
        int64_t part;
        if (step[a] < 0)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s: a stride is %" PRId64 ": strides are 0 or more", name,
                            step[a]);
        if (__builtin_mul_overflow(step[a], max64(extent[a] - 1, 0), &part) ||
            __builtin_add_overflow(last, part, &last))
            return ctx_fail(ctx, FOCI_ERR_ARG, "%s: its size overflows", name);
    }
    if (last > INT64_MAX / 16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "%s: its size overflows", name);
    return FOCI_OK;
}

static foci_status check_mask_extent(foci_ctx *ctx, const char *name, int64_t *value,
                                     int64_t full)
{
    if (*value == 0) *value = 1;
    if (*value == 1 || *value == full) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "%s is %" PRId64 ": it may be 1 or %" PRId64,
                    name, *value, full);
}

/* Layouts with strides of 0 bound neither the rows of all heads and sequences, each
 * of which has a sum, nor the pairs of a given mask. */
static foci_status check_sizes(foci_ctx *ctx, const foci_problem *p)
{
    const int64_t heads = p->batch * p->heads, len = max64(p->len_q, p->len_k);
    const int64_t masks = p->mask_batch * p->mask_heads;
    int64_t       rows, pairs;

    if (__builtin_mul_overflow(heads, len + (int64_t)2 * FOCI_TILE, &rows) ||
        rows > INT64_MAX / 64)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "batch, heads and length together have more rows than can be "
                        "counted");
    if (!(p->flags & (FOCI_MASK | FOCI_BIAS))) return FOCI_OK;
    if (__builtin_mul_overflow(masks, p->len_q, &pairs) ||
        __builtin_mul_overflow(pairs, p->len_k, &pairs) || pairs > INT64_MAX / 16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "mask and bias: their size overflows");
    return FOCI_OK;
}

/* What can be said before the spec is known. */
static foci_status check_numbers(foci_ctx *ctx, foci_problem *p)
{
    if ((unsigned)p->dtype > FOCI_F16)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "dtype is %d: it may be FOCI_F32, FOCI_BF16 or FOCI_F16",
                        (int)p->dtype);
    if (p->flags & ~(uint32_t)FLAGS)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "flags 0x%" PRIx32
                        " has bits that mean nothing: 0x%x are known",
                        p->flags, (unsigned)FLAGS);
    if (!p->dim_v) p->dim_v = p->dim_qk;
    TRY(check_range(ctx, "batch", p->batch, 0, INT32_MAX));
    TRY(check_range(ctx, "heads", p->heads, 1, 65536));
    TRY(check_range(ctx, "len_q", p->len_q, 0, MAX_LEN));
    TRY(check_range(ctx, "len_k", p->len_k, 0, MAX_LEN));
    TRY(check_range(ctx, "dim_qk", p->dim_qk, 1, 65536));
    TRY(check_range(ctx, "dim_v", p->dim_v, 1, 65536));
    TRY(check_range(ctx, "dim_x", p->dim_x, 0, 1 << 24));
    TRY(check_range(ctx, "memory", p->memory, 0, p->len_k));
    TRY(check_range(ctx, "max_docs", p->max_docs, 0, INT32_MAX));
    if (p->max_docs && (p->batch != 1 || p->len_q != p->len_k))
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "packed documents need batch 1 and len_q = len_k; seen batch %" PRId64
            ", %" PRId64 " and %" PRId64,
            p->batch, p->len_q, p->len_k);
    if ((p->max_docs || p->flags & (FOCI_MASK | FOCI_BIAS)) &&
        (p->len_q > INT32_MAX || p->len_k > INT32_MAX))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "documents, masks and biases go up to 2147483647 rows");
    if (!(p->dropout >= 0 && p->dropout < 1))
        return ctx_fail(ctx, FOCI_ERR_ARG, "dropout is %g: it may be 0 to less than 1",
                        p->dropout);
    if (p->n_lists < 0 || (p->n_lists && !p->lists))
        return ctx_fail(ctx, FOCI_ERR_ARG, "n_lists is %" PRId64 ", lists is %s",
                        p->n_lists, p->lists ? "given" : "NULL");
    return FOCI_OK;
}

foci_status problem_take(foci_ctx *ctx, const foci_problem *problem, foci_problem *p)
{
    if (!sized_take(p, problem, sizeof *p))
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "problem.size is %zu: set it with FOCI_SIZED(foci_problem), %zu here",
            problem->size, sizeof *p);
    return check_numbers(ctx, p);
}

/* And the tensors, once the heads are shared out. */
static foci_status check_shapes(foci_ctx *ctx, foci_problem *p)
{
    TRY(check_mask_extent(ctx, "mask_batch", &p->mask_batch, p->batch));
    TRY(check_mask_extent(ctx, "mask_heads", &p->mask_heads, p->heads));
    TRY(check_sizes(ctx, p));
    TRY(check_layout(ctx, "q", &p->q, p->batch, p->len_q, p->heads, p->dim_qk));
    TRY(check_layout(ctx, "k", &p->k, p->batch, p->len_k, p->kv_heads, p->dim_qk));
    TRY(check_layout(ctx, "v", &p->v, p->batch, p->len_k, p->kv_heads, p->dim_v));
    TRY(check_layout(ctx, "o", &p->o, p->batch, p->len_q, p->heads, p->dim_v));
    return check_layout(ctx, "x", &p->x, p->batch, p->len_q, 1, max64(p->dim_x, 1));
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
        const struct engine *e = engine_of(s);
        const double         before = plan->cost.forward_flops;
        const size_t         work = e->work_bytes(plan, s);

        if (work > SIZE_MAX / 2 - plan->work_bytes) return too_much_work(plan->ctx);
        s->work0 = plan->work_bytes;
        plan->work_bytes = (plan->work_bytes + work + 63) / 64 * 64;
        s->saved0 = saved;
        if (plan->p.flags & FOCI_TRAIN) saved += round_up(e->saved_floats(plan, s), 16);
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

    TRY(problem_take(ctx, problem, &plan->p));
    TRY(spec_parse(ctx, spec, &plan->spec));
    TRY(spec_assign(ctx, &plan->spec, &plan->p));
    plan->p.lists = NULL; /* the groups have copies */
    plan->p.n_lists = 0;
    TRY(check_shapes(ctx, &plan->p));
    TRY(params_make(plan));
    TRY(stages_make(plan));
    return plan_add_up(plan);
}

foci_status foci_plan_create(foci_ctx *ctx, const char *spec,
                             const foci_problem *problem, foci_plan **plan)
{
    if (!plan)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_plan_create: nowhere to put the plan");
    *plan = NULL;
    if (!ctx) return FOCI_ERR_ARG;
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

    stages_free(plan);
    if (plan->by_cost)
        ctx_free(ctx, plan->by_cost, (size_t)plan->spec.n_groups, sizeof *plan->by_cost);
    ctx_free(ctx, plan->params, (size_t)plan->cap_params, sizeof *plan->params);
    spec_free(ctx, &plan->spec);
    ctx_free(ctx, plan, 1, sizeof *plan);
}

size_t foci_plan_work_bytes(const foci_plan *plan) { return plan->work_bytes; }

size_t foci_plan_saved_bytes(const foci_plan *plan) { return plan->saved_bytes; }

foci_status foci_plan_group(const foci_plan *plan, int index, foci_group *group)
{
    if (!plan || index < 0 || index >= plan->spec.n_groups) return FOCI_ERR_ARG;
    const struct group *g = &plan->spec.groups[index];
    const foci_group    full = { .head0 = g->head0,
                                 .heads = g->heads,
                                 .kv0 = g->kv0,
                                 .kv_heads = g->kv_heads,
                                 .reads = stage_reads(&plan->stages[index]),
                                 .mech = &g->mech };
    return sized_give(group, &full, sizeof full) ? FOCI_OK : FOCI_ERR_ARG;
}

foci_status foci_plan_problem(const foci_plan *plan, foci_problem *problem)
{
    return plan && sized_give(problem, &plan->p, sizeof plan->p) ? FOCI_OK
                                                                 : FOCI_ERR_ARG;
}

foci_status foci_plan_cost(const foci_plan *plan, foci_cost *cost)
{
    return sized_give(cost, &plan->cost, sizeof plan->cost) ? FOCI_OK : FOCI_ERR_ARG;
}

int foci_plan_spec(const foci_plan *plan, char *text, size_t cap)
{
    return spec_print(&plan->spec, text, cap);
}
