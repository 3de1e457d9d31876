/* two_pass.c -- attention in two passes: geometry, memory, the forward pass. */
#include <stdio.h>
#include <string.h>

#include "engine/two_pass/two_pass.h"
#include "state/state.h"

static foci_layout packed(const foci_problem *p, int64_t d)
{
    return (foci_layout){ p->len_q * p->heads * d, p->heads * d, d };
}

static void geometry(struct two_pass *s, const foci_plan *plan,
                     const struct stage *stage)
{
    const foci_problem *p = &plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    *s = (struct two_pass){
        .all = { .plan = plan,
                 .k = &plan->ctx->kernels,
                 .len = p->len_q,
                 .rows = p->batch * p->len_q,
                 .head0 = stage->group->head0,
                 .heads = stage->group->heads,
                 .el = el },
        .plan = *plan,
        .group = *stage->group,
        .first = *stage,
        .means = *stage,
        .outer = plan,
        .stage = stage,
    };
    const int64_t rows = s->all.rows * p->heads;
    s->y_bytes = (size_t)round_up(rows * p->dim_v, 32) * el;
    s->k_bytes = (size_t)round_up(rows * p->dim_qk, 32) * el;
    s->first.n_levels = 0;
    s->plan.p.o = packed(p, p->dim_v);
    s->plan2 = s->plan;
    s->plan2.p.k = packed(p, p->dim_qk);
    s->plan2.p.v = packed(p, p->dim_v);
    s->group.kv0 = s->group.head0;
    s->group.kv_heads = s->group.heads;
    s->means.group = &s->group;
    s->means.memory = 0; /* add_keys_job() leaves out the memory */
    s->means.support = (struct support){ .len = stage->support.len };
}

static int64_t carve_saved(struct two_pass *s, float *base)
{
    const int64_t y = (int64_t)(s->y_bytes / sizeof(float));

    s->floats_y = round_up(engine_exact.saved_floats(&s->plan, &s->first), 16);
    const int64_t z = round_up(engine_exact.saved_floats(&s->plan2, &s->means), 16);
    if (base) {
        s->y = (char *)base;
        s->z = (char *)(base + y);
        s->saved_y = base + 2 * y;
        s->saved_z = s->saved_y + s->floats_y;
    }
    return 2 * y + s->floats_y + z;
}

static void carve_work(struct two_pass *s, struct arena *a, bool train, bool saves)
{
    const foci_problem *p = &s->plan.p;
    const int64_t       rows = s->all.rows * s->all.heads;
    const size_t        one = engine_exact.work_bytes(&s->plan, &s->first);
    const size_t        two = engine_exact.work_bytes(&s->plan2, &s->means);

    s->seqs = arena_alloc(a, plan_max_seqs(s->outer), sizeof *s->seqs);
    s->all.valid = s->valid = arena_alloc(a, s->all.rows, 1);
    s->position = arena_alloc(a, s->all.rows, sizeof *s->position);
    s->gamma = arena_alloc(a, rows, sizeof *s->gamma);
    s->all.sum = arena_alloc(a, rows * max64(p->dim_v, p->dim_qk), sizeof *s->all.sum);
    s->lse = arena_alloc(a, p->batch * p->heads * p->len_q, sizeof *s->lse);
    s->k = arena_alloc(a, 1, s->k_bytes);
    if (!saves) {
        s->y = arena_alloc(a, 1, s->y_bytes);
        s->z = arena_alloc(a, 1, s->y_bytes);
    }
    if (train) {
        s->dk = arena_alloc(a, 1, s->k_bytes);
        s->dy = arena_alloc(a, 1, s->y_bytes);
        s->dz = arena_alloc(a, 1, s->y_bytes);
        s->d_gamma = arena_alloc(a, s->all.heads, sizeof *s->d_gamma);
        s->dq = arena_alloc(a, rows * p->dim_qk, sizeof *s->dq);
    }
    s->exact_work = arena_alloc(a, 1, one > two ? one : two);
}

/* A copy of the keys for every query head. */
static void copy_keys_job(void *arg, int64_t i, int thread)
{
    const struct two_pass   *s = arg;
    const foci_problem      *p = &s->outer->p;
    const struct plan_group *g = s->stage->group;
    const int64_t            per = g->heads / g->kv_heads;

    (void)thread;
    for (int64_t h = 0; s->valid[i] && h < g->heads; h++)
        memcpy(s->k + call_sums_at(&s->all, &s->plan2.p.k, i, g->head0 + h),
               (const char *)s->io->k +
                   call_sums_at(&s->all, &p->k, i, g->kv0 + h / per),
               (size_t)p->dim_qk * s->all.el);
}

bool two_pass_sees_run(const struct two_pass *s, int64_t i)
{
    return !s->stage->group->mech.causal ||
           s->position[i] >= s->stage->levels[0].slots.run_len;
}

/* gamma of every row: 0 for rows that see no run. */
static void set_gamma(struct two_pass *s)
{
    const float  *gamma = s->io->params + s->stage->group->param0[0];
    const int64_t n = plan_seqs(s->outer, s->io, s->seqs);

    call_sums_valid(s->outer, s->io, true, s->seqs, s->valid);
    for (int64_t q = 0; q < n; q++)
        for (int64_t i = 0; i < s->seqs[q].nq; i++)
            s->position[s->seqs[q].b * s->all.len + s->seqs[q].q0 + i] = i;
    for (int64_t i = 0; i < s->all.rows; i++)
        for (int64_t h = 0; s->valid[i] && h < s->all.heads; h++)
            s->gamma[i * s->all.heads + h] = two_pass_sees_run(s, i) ? gamma[h] : 0;
}

foci_io two_pass_first_io(const struct two_pass *s)
{
    foci_io io = *s->io;

    io.o = s->y;
    io.work = s->exact_work;
    return io;
}

foci_io two_pass_second_io(const struct two_pass *s)
{
    foci_io io = *s->io;

    io.k = s->k;
    io.v = s->y;
    io.o = s->z;
    io.lse = NULL;
    io.work = s->exact_work;
    return io;
}

void two_pass_begin(struct two_pass *s, const struct execution *exec,
                    const struct stage *stage, const foci_io *io, float *saved,
                    bool backward)
{
    struct arena a = { .base = io->work };

    geometry(s, exec->plan, stage);
    s->io = io;
    s->all.shared = exec->shared;
    carve_saved(s, saved);
    carve_work(s, &a, backward, saved || backward);
    set_gamma(s);
    call_sums_each_row(&s->all, copy_keys_job, s);
}

static void forward(const struct execution *exec, const struct stage *stage,
                    const foci_io *io, float *saved)
{
    const foci_plan *plan = exec->plan;
    struct two_pass  s;

    two_pass_begin(&s, exec, stage, io, saved, false);
    const struct execution first = { .plan = &s.plan, .shared = exec->shared };
    const struct execution means = { .plan = &s.plan2, .shared = exec->shared };
    foci_io                one = two_pass_first_io(&s);
    one.lse = io->lse ? s.lse : NULL;
    engine_exact.forward(&first, &s.first, &one, saved ? s.saved_y : NULL);
    const foci_io two = two_pass_second_io(&s);
    engine_exact.forward(&means, &s.means, &two, saved ? s.saved_z : NULL);

    const foci_layout *l = &s.plan.p.o;
    const int          d = (int)plan->p.dim_v;
    call_sums_add(&s.all, s.z, l, d, s.gamma, 1, true);
    for (int64_t i = 0; i < s.all.rows * s.all.heads; i++)
        s.gamma[i] = 1 - s.gamma[i];
    call_sums_add(&s.all, s.y, l, d, s.gamma, 1, false);
    call_sums_store(&s.all, io->o, &plan->p.o, d);
    if (io->lse) call_sums_lse(&s.all, s.lse, io->lse, true);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *stage)
{
    struct two_pass s;
    struct arena    a = { 0 }, b = { 0 };

    geometry(&s, plan, stage);
    carve_work(&s, &a, false, false);
    if (plan->p.flags & FOCI_FLAG_TRAIN) carve_work(&s, &b, true, true);
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *stage)
{
    struct two_pass s;

    geometry(&s, plan, stage);
    return carve_saved(&s, NULL);
}

static void cost(const foci_plan *plan, const struct stage *stage, foci_cost *c)
{
    struct two_pass s;

    geometry(&s, plan, stage);
    engine_exact.cost(&s.plan, &s.first, c);
    engine_exact.cost(&s.plan2, &s.means, c);
}

static int describe(const foci_plan *plan, const struct stage *stage, char *text,
                    size_t cap)
{
    struct two_pass s;

    geometry(&s, plan, stage);
    const int n = engine_exact.describe(&s.plan, &s.first, text, cap);
    if (n < 0 || (size_t)n >= cap) return n;
    const int m = snprintf(text + n, cap - (size_t)n, "    again    over means:\n");
    if (m < 0 || (size_t)(n + m) >= cap) return n + m;
    return n + m +
           engine_exact.describe(&s.plan2, &s.means, text + n + m,
                                 cap - (size_t)(n + m));
}

const struct engine engine_two_pass = {
    .decoder = &two_pass_decoder,
    .name = "two_pass",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = two_pass_backward,
    .cost = cost,
    .describe = describe,
};
