/* memformer.c -- slots that tokens read and every segment writes: geometry, memory,
 * jobs. */
#include "engine/memformer/memformer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/shared/padding.h"

void memformer_geometry(struct memformer *x, const foci_plan *plan,
                        const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const foci_mech    *m = &s->group->mech;

    *x = (struct memformer){
        .plan = plan,
        .p = p,
        .stage = s,
        .k = &plan->ctx->kernels,
        .d = (int)p->dim_qk,
        .ld = (int)round_up(p->dim_qk, 16),
        .el = foci_dtype_bytes(p->dtype),
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
    };
    m->def->memformer(m, &x->r);
    x->slots = (int)x->r.slots;
    x->padded = (int)round_up(x->slots, LANES);
    x->scale = (float)s->score.scale;
    x->write_scale = (float)(s->score.scale / x->r.tau);
    x->groups = min64(x->max_seqs, MEMFORMER_GROUPS);
}

const float *memformer_beta(const struct memformer *x, int64_t h)
{
    return x->io->params + x->stage->group->param0[0] + h * x->slots * x->d;
}

/*
 * Memory
 */

static float *floats(struct arena *a, int64_t rows, int64_t of)
{
    return arena_alloc(a, rows, (size_t)of * sizeof(float));
}

static void carve_backward(const struct memformer *x, struct arena *a,
                           struct memformer_scratch *r)
{
    const int64_t all = div_up(x->p->len_q, x->r.segment) * x->slots;

    r->before = floats(a, all, x->ld);
    r->norms = floats(a, all, 1);
    r->sizes = floats(a, all, 1);
    r->d_slots = floats(a, x->slots, x->ld);
    r->next = floats(a, x->slots, x->ld);
    r->norm = floats(a, x->padded, 1);
    r->y_dot = floats(a, x->padded, 1);
    r->dyt = floats(a, x->padded, x->d);
    r->g = floats(a, LANES, x->ld);
    r->gt = floats(a, LANES, x->ld);
    r->dk = floats(a, LANES, x->ld);
    r->dv = floats(a, LANES, x->ld);
}

void memformer_scratch_carve(const struct memformer *x, struct arena *a, bool backward,
                             struct memformer_scratch *r)
{
    const int64_t most = max64(LANES, x->slots);

    r->m = floats(a, x->padded, x->ld);
    r->mt = floats(a, x->padded, x->d);
    r->max = floats(a, x->padded, 1);
    r->sum = floats(a, x->padded, 1);
    r->ot = floats(a, x->padded, x->d);
    r->y = floats(a, x->padded, x->ld);
    r->q = floats(a, LANES, x->ld);
    r->k = floats(a, LANES, x->ld);
    r->v = floats(a, LANES, x->ld);
    r->qt = floats(a, LANES, x->ld);
    r->out = floats(a, LANES, x->ld);
    r->s = floats(a, LANES, most);
    r->ds = floats(a, LANES, most);
    r->share = floats(a, LANES, 1);
    r->delta = floats(a, LANES, 1);
    if (backward) carve_backward(x, a, r);
}

void memformer_thread_scratch(const struct memformer *x, int thread, bool backward,
                              struct memformer_scratch *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    memformer_scratch_carve(x, &mine, backward, r);
}

static void carve_work(struct memformer *x, struct arena *a, bool backward)
{
    const int64_t            rows = x->kv_heads * x->p->batch * x->p->len_k;
    struct arena             one = { 0 };
    struct memformer_scratch r;

    x->seqs = arena_alloc(a, x->max_seqs, sizeof *x->seqs);
    x->f = floats(a, LANES, 1);
    x->write_f = floats(a, LANES, 1);
    if (backward) {
        x->dbeta = arena_alloc(a, x->groups * x->heads * x->slots,
                               (size_t)x->d * sizeof *x->dbeta);
        if (x->per_kv > 1) {
            x->dk_rows = floats(a, rows, x->ld);
            x->dv_rows = floats(a, rows, x->ld);
        }
    }
    memformer_scratch_carve(x, &one, backward, &r);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_alloc(a, x->plan->ctx->threads, x->scratch_bytes);
}

void memformer_factors(struct memformer *x)
{
    for (int i = 0; i < LANES; i++) {
        x->f[i] = (float)(x->stage->score.scale * LOG2_E);
        x->write_f[i] = (float)(x->stage->score.scale / x->r.tau * LOG2_E);
    }
}

static void begin_execution(struct memformer *x, const foci_io *io, bool backward)
{
    struct arena a = { .base = io->work };

    x->io = io;
    carve_work(x, &a, backward);
    memformer_factors(x);
    x->n_seqs = plan_seqs(x->plan, io, x->seqs);
    x->groups = min64(x->n_seqs, x->groups);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct memformer x;
    struct arena     a = { 0 };

    memformer_geometry(&x, plan, s);
    carve_work(&x, &a, plan->p.flags & FOCI_FLAG_TRAIN);
    return a.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

/*
 * Jobs
 */

static size_t row_at(const struct memformer *x, const foci_layout *l, int64_t b,
                     int64_t row, int64_t head)
{
    return (size_t)(b * l->batch + row * l->row + head * l->head) * x->el;
}

struct memformer_rows memformer_rows_of(const struct memformer *x, const struct seq *s,
                                        int64_t h)
{
    const foci_problem *p = x->p;
    const foci_io      *io = x->io;
    const int64_t       kv = x->kv0 + h / x->per_kv, head = x->head0 + h;

    return (struct memformer_rows){
        .q = (const char *)io->q + row_at(x, &p->q, s->b, s->q0, head),
        .k = (const char *)io->k + row_at(x, &p->k, s->b, s->k0, kv),
        .v = (const char *)io->v + row_at(x, &p->v, s->b, s->k0, kv),
        .o = (char *)io->o + row_at(x, &p->o, s->b, s->q0, head),
        .q_step = p->q.row,
        .k_step = p->k.row,
        .v_step = p->v.row,
        .o_step = p->o.row,
    };
}

static void forward_job(void *arg, int64_t i, int thread)
{
    const struct memformer  *x = arg;
    const struct seq        *s = &x->seqs[i / x->heads];
    const int64_t            h = i % x->heads;
    struct memformer_scratch r;

    if (!s->nq) return;
    const struct memformer_rows rows = memformer_rows_of(x, s, h);
    const int64_t               written = (s->nq - 1) / x->r.segment * x->r.segment;

    memformer_thread_scratch(x, thread, false, &r);
    memformer_start(x, h, &r);
    memformer_tokens(x, &rows, h, 0, 0, s->nq, written, &r);
}

static void forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    const foci_plan *plan = exec->plan;
    struct memformer x;

    (void)saved;
    memformer_geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    begin_execution(&x, io, false);
    padding_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.d, true, false);
    phases_run(x.k, exec->shared, plan->ctx->threads,
               &(struct phase){ x.n_seqs * x.heads, 1, forward_job, &x }, 1);
}

/* A group of sequences, for a key/value head and all heads that share it. */
static void backward_job(void *arg, int64_t i, int thread)
{
    const struct memformer  *x = arg;
    const int64_t            group = i / x->kv_heads, kv = i % x->kv_heads;
    const int64_t            end = (group + 1) * x->n_seqs / x->groups;
    struct memformer_scratch r;

    memformer_thread_scratch(x, thread, true, &r);
    memset(x->dbeta + (group * x->heads + kv * x->per_kv) * x->slots * x->d, 0,
           (size_t)(x->per_kv * x->slots * x->d) * sizeof *x->dbeta);
    for (int64_t s = group * x->n_seqs / x->groups; s < end; s++)
        for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
            if (x->seqs[s].nq) memformer_backward(x, group, &x->seqs[s], h, &r);
}

static void beta_job(void *arg, int64_t h, int thread)
{
    const struct memformer *x = arg;
    const int64_t           all = (int64_t)x->slots * x->d;
    float                  *to = x->g->dparams + x->stage->group->param0[0] + h * all;

    (void)thread;
    for (int64_t t = 0; t < all; t++) {
        double sum = 0;
        for (int64_t g = 0; g < x->groups; g++)
            sum += x->dbeta[(g * x->heads + h) * all + t];
        to[t] += (float)sum;
    }
}

static void backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan *plan = exec->plan;
    struct memformer x;

    (void)saved;
    memformer_geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    begin_execution(&x, io, true);
    x.g = g;
    padding_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.d, true, false);
    padding_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.d, false, false);
    padding_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.d, false, false);
    const struct phase phases[] = {
        { x.groups * x.kv_heads, 1, backward_job, &x },
        { g->dparams ? x.heads : 0, 1, beta_job, &x },
    };
    phases_run(x.k, exec->shared, plan->ctx->threads, phases,
               (int)(sizeof phases / sizeof *phases));
}

/*
 * Planning
 */

static foci_status memformer_check(const foci_plan *plan, const struct stage *s,
                                   const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap,
             "io.lse is given, but rows of %s read slots, not keys: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* A token takes two products with every slot when it reads and two when it is written.
 * The backward pass takes five of each, and two more that make the slots again. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    struct memformer    x;

    memformer_geometry(&x, plan, s);
    const double rows = (double)p->batch * (double)x.heads * (double)p->len_q;
    const double product = 2 * rows * (double)x.slots * (double)x.d;
    const double bytes = rows * (double)x.d * (double)x.el;

    cost->forward_flops += 4 * product;
    cost->backward_flops += 12 * product;
    cost->forward_bytes += 4 * bytes;
    cost->backward_bytes += 9 * bytes;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct memformer x;

    memformer_geometry(&x, plan, s);
    return snprintf(text, cap,
                    "    slots    %d, written %" PRId64 " times\n"
                    "    products f32\n",
                    x.slots, max64(0, plan->p.len_q - 1) / x.r.segment);
}

const struct engine engine_memformer = {
    .name = "memformer",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = memformer_check,
    .cost = cost,
    .describe = describe,
    .decoder = &memformer_decoder,
};
