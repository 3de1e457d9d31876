/* routed.c -- a mixture of attentions: calls of the inner mechanism, one for each
 * route.
 *
 * Time and memory are those of the inner mechanism, times routes.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "engine/routed/routed.h"
#include "state/state.h"

static struct routed geometry(const foci_plan *plan, const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    return (struct routed){
        .all = { .plan = plan,
                 .k = &plan->ctx->kernels,
                 .len = p->len_q,
                 .rows = p->batch * p->len_q,
                 .head0 = s->group->head0,
                 .heads = s->group->heads,
                 .el = el },
        .plan = plan,
        .p = p,
        .stage = s,
        .group = s->group,
        .n = s->n_inner,
        .dv = (int)p->dim_v,
        .y_bytes = (size_t)round_up(p->batch * p->len_q * p->heads * p->dim_v, 32) * el,
    };
}

/* What forward keeps for backward, in floats. */
static int64_t carve_saved(struct routed *r, float *base)
{
    const int64_t gates = round_up(r->all.rows * r->all.heads * r->n, 16);
    const int64_t y = (int64_t)(r->y_bytes / sizeof(float));
    const int64_t inner = (int64_t)(r->stage->inner[0]->saved_bytes / sizeof(float));

    if (base) {
        r->gates = base;
        r->y = (char *)(base + gates);
        r->inner_saved = base + gates + r->n * y;
    }
    return gates + r->n * (y + inner);
}

static void carve_work(struct routed *r, struct arena *a, bool train, bool saves)
{
    const foci_problem *p = r->p;
    const int64_t       rows = r->all.rows * r->all.heads;
    size_t              inner = 0;

    r->seqs = arena_alloc(a, plan_max_seqs(r->plan), sizeof *r->seqs);
    r->all.valid = r->valid = arena_alloc(a, r->all.rows, 1);
    r->all.sum = arena_alloc(a, rows * max64(p->dim_v, p->dim_qk), sizeof *r->all.sum);
    r->lse = arena_alloc(a, p->batch * p->heads * p->len_q, sizeof *r->lse);
    if (!saves) {
        r->gates = arena_alloc(a, rows * r->n, sizeof *r->gates);
        r->y = arena_alloc(a, 1, r->y_bytes);
    }
    if (train) {
        r->d_y = arena_alloc(a, 1, r->y_bytes);
        r->dz = arena_alloc(a, rows * r->n, sizeof *r->dz);
    }
    for (int64_t i = 0; i < r->n; i++)
        if (r->stage->inner[i]->work_bytes > inner)
            inner = r->stage->inner[i]->work_bytes;
    r->inner_work = arena_alloc(a, 1, inner);
}

static const foci_layout *inner_o(const struct routed *r)
{
    return &r->stage->inner[0]->p.o;
}

static char *route_y(const struct routed *r, int64_t route, bool saves)
{
    const size_t at = saves ? (size_t)route * r->y_bytes : 0;
    return at ? r->y + at : r->y;
}

/* The keys and values of one route. */
static foci_io route_rows(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, int64_t route)
{
    const int64_t kv = s->group->kv0 + route;
    const size_t  el = foci_dtype_bytes(plan->p.dtype);
    foci_io       one = *io;

    if (io->k) one.k = (const char *)io->k + (size_t)(kv * plan->p.k.head) * el;
    if (io->v) one.v = (const char *)io->v + (size_t)(kv * plan->p.v.head) * el;
    return one;
}

/* The call of one route: its keys and values, its output and its part of saved. */
static foci_io route_io(const struct routed *r, int64_t route, bool saves)
{
    foci_io io = route_rows(r->plan, r->stage, r->io, route);

    io.o = route_y(r, route, saves);
    io.lse = r->io->lse ? r->lse : NULL;
    io.work = r->inner_work;
    return io;
}

static float *route_saved(const struct routed *r, int64_t route)
{
    const int64_t at =
        route * (int64_t)(r->stage->inner[0]->saved_bytes / sizeof(float));
    return at ? r->inner_saved + at : r->inner_saved;
}

/* The execution of a route.  With `top` the exact engine leaves out blocks of rows that
 * do not take the route. */
static struct execution route_execution(const struct routed *r, int64_t route)
{
    struct execution one = { .plan = r->stage->inner[route], .shared = r->all.shared };

    if (r->gates && mech_top_routes(&r->group->mech) > 0 &&
        one.plan->stages[0].engine == &engine_exact) {
        one.gates = r->gates + route;
        one.gate_step = r->n;
    }
    return one;
}

static void forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    const foci_plan *plan = exec->plan;
    struct routed    r = geometry(plan, s);
    struct arena     a = { .base = io->work };

    r.io = io;
    r.all.shared = exec->shared;
    if (saved) carve_saved(&r, saved);
    carve_work(&r, &a, false, saved);
    call_sums_valid(plan, io, true, r.seqs, r.valid);
    routed_make_gates(&r);
    for (int64_t i = 0; i < r.n; i++) {
        const struct execution inner = route_execution(&r, i);
        const struct stage    *stage = &inner.plan->stages[0];
        const foci_io          one = route_io(&r, i, saved);

        stage->engine->forward(&inner, stage, &one, saved ? route_saved(&r, i) : NULL);
        call_sums_add(&r.all, one.o, inner_o(&r), r.dv, r.gates + i, r.n, i == 0);
        if (io->lse) call_sums_lse(&r.all, r.lse, io->lse, i == 0);
    }
    call_sums_store(&r.all, io->o, &plan->p.o, r.dv);
}

/* The backward pass of one route. */
struct routed_back {
    const struct routed *r;
    const char          *d_o, *y;
    int64_t              route;
};

/* d_y = gate of the route times d_o; dz = the gradient of the gate. */
static void route_job(void *arg, int64_t i, int thread)
{
    const struct routed_back *k = arg;
    const struct routed      *r = k->r;

    (void)thread;
    for (int64_t h = 0; h < r->all.heads; h++) {
        const int64_t      row = (i * r->all.heads + h) * r->n + k->route;
        const int64_t      head = r->group->head0 + h;
        const size_t       inner = call_sums_at(&r->all, inner_o(r), i, head);
        const char        *g = k->d_o + call_sums_at(&r->all, &r->p->o, i, head);
        const float        gate = r->all.valid[i] ? r->gates[row] : 0;
        double             dot = 0;
        _Alignas(64) float part[SUM_COLUMNS], mine[SUM_COLUMNS];

        for (int c = 0; c < r->dv; c += SUM_COLUMNS) {
            const int    m = (int)min64(SUM_COLUMNS, r->dv - c);
            const size_t to = (size_t)c * r->all.el;
            r->all.k->load_rows(part, SUM_COLUMNS, g + to, r->dv, (int)r->p->dtype, 1,
                                m);
            r->all.k->load_rows(mine, SUM_COLUMNS, k->y + inner + to, r->dv,
                                (int)r->p->dtype, 1, m);
            for (int t = 0; gate != 0 && t < m; t++)
                dot += (double)part[t] * (double)mine[t];
            for (int t = 0; t < m; t++)
                part[t] = gate == 0 ? 0 : part[t] * gate;
            r->all.k->store_rows(r->d_y + inner + to, r->dv, (int)r->p->dtype, part,
                                 SUM_COLUMNS, 1.0f, 1, m);
        }
        if (r->all.valid[i]) r->dz[row] = (float)dot;
    }
}

static void backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan *plan = exec->plan;
    struct routed    r = geometry(plan, s);
    struct arena     a = { .base = io->work };

    r.io = io;
    r.all.shared = exec->shared;
    carve_saved(&r, (float *)saved);
    carve_work(&r, &a, true, true);
    call_sums_valid(plan, io, true, r.seqs, r.valid);
    for (int64_t i = 0; i < r.n; i++) {
        const struct execution inner = route_execution(&r, i);
        const struct stage    *stage = &inner.plan->stages[0];
        const foci_io          one = route_io(&r, i, true);
        const int64_t          kv = r.group->kv0 + i;
        foci_grads             mine = *g;

        struct routed_back k = { &r, g->d_o, one.o, i };
        call_sums_each_row(&r.all, route_job, &k);
        mine.d_o = r.d_y;
        if (g->dk) mine.dk = (char *)g->dk + (size_t)(kv * plan->p.k.head) * r.all.el;
        if (g->dv) mine.dv = (char *)g->dv + (size_t)(kv * plan->p.v.head) * r.all.el;
        stage->engine->backward(&inner, stage, &one, route_saved(&r, i), &mine);
        if (g->dq)
            call_sums_add(&r.all, g->dq, &plan->p.q, (int)plan->p.dim_qk, NULL, 0,
                          i == 0);
    }
    if (g->dq) call_sums_store(&r.all, g->dq, &plan->p.q, (int)plan->p.dim_qk);
    routed_gates_backward(&r, g);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct routed r = geometry(plan, s);
    struct arena  a = { 0 }, b = { 0 };

    carve_work(&r, &a, false, false);
    if (plan->p.flags & FOCI_FLAG_TRAIN) carve_work(&r, &b, true, true);
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    struct routed r = geometry(plan, s);
    return carve_saved(&r, NULL);
}

static void cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const double gates = 2.0 * (double)plan->p.batch * (double)plan->p.len_q *
                         (double)(s->group->heads * s->n_inner) * (double)plan->p.dim_x;

    c->forward_flops += gates;
    c->backward_flops += 2 * gates;
    for (int64_t i = 0; i < s->n_inner; i++)
        s->inner[i]->stages[0].engine->cost(s->inner[i], &s->inner[i]->stages[0], c);
}

/* Move or calibrate the parameters of each route. */
static foci_status move_params(const foci_plan *plan, const struct stage *s,
                               const foci_io *io, bool calibrate, float *params)
{
    const struct engine *e = s->inner[0]->stages[0].engine;
    foci_status (*move)(const foci_plan *, const struct stage *, const foci_io *,
                        float *) = calibrate ? e->calibrate : e->advance;

    for (int64_t i = 0; move && i < s->n_inner; i++) {
        const foci_plan *inner = s->inner[i];
        const foci_io    rows = route_rows(plan, s, io, i);

        TRY(move(inner, &inner->stages[0], &rows, params));
    }
    return FOCI_OK;
}

static foci_status advance(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params)
{
    return move_params(plan, s, io, false, params);
}

static foci_status calibrate(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params)
{
    return move_params(plan, s, io, true, params);
}

static foci_status routed_check(const foci_plan *plan, const struct stage *s,
                                const foci_io *io, char *text, size_t cap)
{
    const struct engine *e = s->inner[0]->stages[0].engine;

    (void)plan;
    for (int64_t i = 0; e->check && i < s->n_inner; i++)
        TRY(e->check(s->inner[i], &s->inner[i]->stages[0], io, text, cap));
    return FOCI_OK;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    const int n = snprintf(text, cap, "    routes   %" PRId64 ", each:\n", s->n_inner);
    (void)plan;
    if (n < 0 || (size_t)n >= cap) return n;
    return n + s->inner[0]->stages[0].engine->describe(
                   s->inner[0], &s->inner[0]->stages[0], text + n, cap - (size_t)n);
}

const struct engine engine_routed = {
    .decoder = &routed_decoder,
    .name = "routed",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .advance = advance,
    .calibrate = calibrate,
    .check = routed_check,
    .cost = cost,
    .describe = describe,
};
