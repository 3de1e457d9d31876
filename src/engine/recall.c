/* recall.c -- slots that tokens read and every segment writes: geometry, sizes, cost. */
#include "engine/recall.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/rest.h"

void recall_geometry(struct recall *x, const foci_plan *plan, const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const foci_mech    *m = &s->group->mech;

    *x = (struct recall){
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
    m->def->recall(m, &x->r);
    x->slots = (int)x->r.slots;
    x->padded = (int)round_up(x->slots, LANES);
    x->scale = (float)s->score.scale;
    x->write_scale = (float)(s->score.scale / x->r.tau);
    x->groups = min64(x->max_seqs, RECALL_GROUPS);
}

const float *recall_beta(const struct recall *x, int64_t h)
{
    return x->io->params + x->stage->group->param0[0] + h * x->slots * x->d;
}

/*
 * Memory
 */

static float *floats(struct arena *a, int64_t rows, int64_t of)
{
    return arena_take(a, rows, (size_t)of * sizeof(float));
}

static void take_backward(const struct recall *x, struct arena *a, struct recall_room *r)
{
    const int64_t all = div_up(x->p->len_q, x->r.segment) * x->slots;

    r->states = floats(a, all, x->ld);
    r->norms = floats(a, all, 1);
    r->size = floats(a, all, 1);
    r->now = floats(a, x->slots, x->ld);
    r->next = floats(a, x->slots, x->ld);
    r->dyt = floats(a, x->padded, x->d);
    r->g = floats(a, LANES, x->ld);
    r->gt = floats(a, LANES, x->ld);
    r->dk = floats(a, LANES, x->ld);
    r->dv = floats(a, LANES, x->ld);
}

void recall_room_take(const struct recall *x, struct arena *a, bool backward,
                      struct recall_room *r)
{
    const int64_t most = max64(LANES, x->slots);

    r->m = floats(a, x->padded, x->ld);
    r->mt = floats(a, x->padded, x->d);
    r->top = floats(a, x->padded, 1);
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
    if (backward) take_backward(x, a, r);
}

void recall_room(const struct recall *x, int thread, bool backward,
                 struct recall_room *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    recall_room_take(x, &mine, backward, r);
}

static void take_work(struct recall *x, struct arena *a, bool backward)
{
    const int64_t      rows = x->kv_heads * x->p->batch * x->p->len_k;
    struct arena       one = { 0 };
    struct recall_room room;

    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    x->f = floats(a, LANES, 1);
    x->write_f = floats(a, LANES, 1);
    if (backward) {
        x->dbeta = arena_take(a, x->groups * x->heads * x->slots,
                              (size_t)x->d * sizeof *x->dbeta);
        if (x->per_kv > 1) {
            x->dk_rows = floats(a, rows, x->ld);
            x->dv_rows = floats(a, rows, x->ld);
        }
    }
    recall_room_take(x, &one, backward, &room);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_take(a, x->plan->ctx->threads, x->scratch_bytes);
}

void recall_factors(struct recall *x)
{
    for (int i = 0; i < LANES; i++) {
        x->f[i] = (float)(x->stage->score.scale * LANES_LOG2_E);
        x->write_f[i] = (float)(x->stage->score.scale / x->r.tau * LANES_LOG2_E);
    }
}

static void open_call(struct recall *x, const foci_io *io, bool backward)
{
    struct arena a = { .base = io->work };

    x->io = io;
    take_work(x, &a, backward);
    recall_factors(x);
    x->n_seqs = plan_seqs(x->plan, io, x->seqs);
    x->groups = min64(x->n_seqs, x->groups);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct recall x;
    struct arena  a = { 0 };

    recall_geometry(&x, plan, s);
    take_work(&x, &a, plan->p.flags & FOCI_TRAIN);
    return a.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

/*
 * Passes
 */

static size_t row_at(const struct recall *x, const foci_layout *l, int64_t b,
                     int64_t row, int64_t head)
{
    return (size_t)(b * l->batch + row * l->row + head * l->head) * x->el;
}

struct recall_rows recall_rows_of(const struct recall *x, const struct seq *s, int64_t h)
{
    const foci_problem *p = x->p;
    const foci_io      *io = x->io;
    const int64_t       kv = x->kv0 + h / x->per_kv, head = x->head0 + h;

    return (struct recall_rows){
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
    const struct recall *x = arg;
    const struct seq    *s = &x->seqs[i / x->heads];
    const int64_t        h = i % x->heads;
    struct recall_room   r;

    if (!s->nq) return;
    const struct recall_rows rows = recall_rows_of(x, s, h);
    const int64_t            written = (s->nq - 1) / x->r.segment * x->r.segment;

    recall_room(x, thread, false, &r);
    recall_start(x, h, &r);
    recall_tokens(x, &rows, h, 0, 0, s->nq, written, &r);
}

static void forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct recall x;

    (void)saved;
    recall_geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_call(&x, io, false);
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.d, true, false);
    phases_run(x.k, plan->shared, plan->ctx->threads,
               &(struct phase){ x.n_seqs * x.heads, 1, forward_job, &x }, 1);
}

/* A group of sequences and a key/value head. */
static void backward_job(void *arg, int64_t i, int thread)
{
    const struct recall *x = arg;
    const int64_t        group = i / x->kv_heads, kv = i % x->kv_heads;
    const int64_t        end = (group + 1) * x->n_seqs / x->groups;
    struct recall_room   r;

    recall_room(x, thread, true, &r);
    memset(x->dbeta + (group * x->heads + kv * x->per_kv) * x->slots * x->d, 0,
           (size_t)(x->per_kv * x->slots * x->d) * sizeof *x->dbeta);
    for (int64_t s = group * x->n_seqs / x->groups; s < end; s++)
        for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
            if (x->seqs[s].nq) recall_backward(x, group, &x->seqs[s], h, &r);
}

static void beta_job(void *arg, int64_t h, int thread)
{
    const struct recall *x = arg;
    const int64_t        all = (int64_t)x->slots * x->d;
    float               *to = x->g->dparams + x->stage->group->param0[0] + h * all;

    (void)thread;
    for (int64_t t = 0; t < all; t++) {
        double sum = 0;
        for (int64_t g = 0; g < x->groups; g++)
            sum += x->dbeta[(g * x->heads + h) * all + t];
        to[t] += (float)sum;
    }
}

static void backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct recall x;

    (void)saved;
    recall_geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_call(&x, io, true);
    x.g = g;
    rest_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.d, true, false);
    rest_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.d, false, false);
    rest_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.d, false, false);
    const struct phase phases[] = {
        { x.groups * x.kv_heads, 1, backward_job, &x },
        { g->dparams ? x.heads : 0, 1, beta_job, &x },
    };
    phases_run(x.k, plan->shared, plan->ctx->threads, phases,
               (int)(sizeof phases / sizeof *phases));
}

/*
 * Planning
 */

static foci_status check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap,
             "io.lse is given, but rows of %s read slots, not keys: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* A token meets every slot in two products when it reads and in two when it is written;
 * on the way back in five each, and in two more that make the slots again. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    struct recall       x;

    recall_geometry(&x, plan, s);
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
    struct recall x;

    recall_geometry(&x, plan, s);
    return snprintf(text, cap,
                    "    recall   %d slots, written %" PRId64 " times\n"
                    "    products f32\n",
                    x.slots, max64(0, plan->p.len_q - 1) / x.r.segment);
}

const struct engine engine_recall = {
    .name = "recall",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = check,
    .cost = cost,
    .describe = describe,
    .decoder = &recall_decoder,
};
