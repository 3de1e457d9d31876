/* routes.c -- a mixture of attentions: the inner mechanism on every set of keys and
 * values, the outputs summed by gates of the hidden states.
 *
 *     o_i = sum_r P_ir y_ir,   P_i = softmax_r(W x_i)
 *
 * With `top`, all but the largest gates of a row are 0 and the rest sum to one; which
 * they are counts as constant in the gradient.  Routes run one after the other, each
 * with all threads.  Time and memory are those of the inner mechanism, times routes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/routes.h"
#include "engine/sums.h"
#include "state/state.h"

enum { TOP_ARG = 2 }; /* inner, routes, top: the arguments of a mechanism with routes */

struct routes {
    struct sums         all; /* of its rows of queries */
    const foci_plan    *plan;
    const foci_problem *p;
    const struct stage *stage;
    const struct group *group;
    const foci_io      *io;
    int64_t             n;
    int                 dv;

    /* Saved, or in work where nothing is: gates [rows][heads][n], and the outputs of
     * routes, tensors like p.o of their plans. */
    float *gates;
    char  *y;
    size_t y_bytes; /* of one route */
    float *inner_saved;

    struct seq *seqs;
    uint8_t    *valid;
    float      *lse;  /* [batch][heads of the problem][len_q] */
    char       *gy;   /* gradient of one route's output */
    float      *dz;   /* [rows][heads][n] of the gates' logits */
    char       *rest; /* work of the inner plans */
};

static struct routes geometry(const foci_plan *plan, const struct stage *s)
{
    const foci_problem *p = &plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    return (struct routes){
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

/* What forward keeps for backward.  Everything is in floats. */
static int64_t take_saved(struct routes *r, float *base)
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

static void take_work(struct routes *r, struct arena *a, bool train, bool saves)
{
    const foci_problem *p = r->p;
    const int64_t       rows = r->all.rows * r->all.heads;
    size_t              inner = 0;

    r->seqs = arena_take(a, plan_max_seqs(r->plan), sizeof *r->seqs);
    r->all.valid = r->valid = arena_take(a, r->all.rows, 1);
    r->all.sum = arena_take(a, rows * max64(p->dim_v, p->dim_qk), sizeof *r->all.sum);
    r->lse = arena_take(a, p->batch * p->heads * p->len_q, sizeof *r->lse);
    if (!saves) {
        r->gates = arena_take(a, rows * r->n, sizeof *r->gates);
        r->y = arena_take(a, 1, r->y_bytes);
    }
    if (train) {
        r->gy = arena_take(a, 1, r->y_bytes);
        r->dz = arena_take(a, rows * r->n, sizeof *r->dz);
    }
    for (int64_t i = 0; i < r->n; i++)
        if (r->stage->inner[i]->work_bytes > inner)
            inner = r->stage->inner[i]->work_bytes;
    r->rest = arena_take(a, 1, inner);
}

static const foci_layout *inner_o(const struct routes *r)
{
    return &r->stage->inner[0]->p.o;
}

static char *route_y(const struct routes *r, int64_t route, bool saves)
{
    const size_t at = saves ? (size_t)route * r->y_bytes : 0;
    return at ? r->y + at : r->y;
}

/* Keep the `top` largest, the first of equal ones. */
static void keep_top(double *gate, int64_t n, int64_t top)
{
    double sum = 0;

    for (int64_t left = n; left > top; left--) {
        int64_t least = -1;
        for (int64_t t = 0; t < n; t++)
            if (gate[t] >= 0 && (least < 0 || gate[t] <= gate[least])) least = t;
        gate[least] = -1;
    }
    for (int64_t t = 0; t < n; t++)
        sum += gate[t] < 0 ? 0 : gate[t];
    for (int64_t t = 0; t < n; t++)
        gate[t] = gate[t] < 0 ? 0 : gate[t] / sum;
}

/* z[n] = W x, in double so that ties are those of the definition. */
static void gate_logits(const foci_plan *plan, int64_t n, const float *w, const char *x,
                        double *z)
{
    const int64_t      d = plan->p.dim_x;
    const size_t       el = foci_dtype_bytes(plan->p.dtype);
    _Alignas(64) float part[SUMS_CHUNK];

    for (int64_t t = 0; t < n; t++)
        z[t] = 0;
    for (int64_t c = 0; c < d; c += SUMS_CHUNK) {
        const int m = (int)min64(SUMS_CHUNK, d - c);
        plan->ctx->kernels.load_rows(part, SUMS_CHUNK, x + (size_t)c * el, d,
                                     (int)plan->p.dtype, 1, m);
        for (int64_t t = 0; t < n; t++)
            for (int i = 0; i < m; i++)
                z[t] += (double)part[i] * (double)w[t * d + c + i];
    }
}

void routes_gates(const foci_plan *plan, const struct stage *s, const float *params,
                  const char *x, int64_t h, double *gate)
{
    const int64_t n = s->n_inner, keep = foci_arg_int(&s->group->mech, TOP_ARG);
    const float  *w = params + s->group->param0[0] + h * n * plan->p.dim_x;
    double        top = -INFINITY, sum = 0;

    gate_logits(plan, n, w, x, gate);
    for (int64_t t = 0; t < n; t++)
        top = fmax(top, gate[t]);
    for (int64_t t = 0; t < n; t++)
        sum += gate[t] = exp(gate[t] - top);
    for (int64_t t = 0; t < n; t++)
        gate[t] /= sum;
    if (keep && keep < n) keep_top(gate, n, keep);
}

static void gates_job(void *arg, int64_t i, int thread)
{
    const struct routes *r = arg;
    const char          *x = (const char *)r->io->x + sums_at(&r->all, &r->p->x, i, 0);

    (void)thread;
    for (int64_t h = 0; r->all.valid[i] && h < r->all.heads; h++) {
        double z[MAX_ROUTES] = { 0 };

        routes_gates(r->plan, r->stage, r->io->params, x, h, z);
        for (int64_t t = 0; t < r->n; t++)
            r->gates[(i * r->all.heads + h) * r->n + t] = (float)z[t];
    }
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
static foci_io route_io(const struct routes *r, int64_t route, bool saves)
{
    foci_io io = route_rows(r->plan, r->stage, r->io, route);

    io.o = route_y(r, route, saves);
    io.lse = r->io->lse ? r->lse : NULL;
    io.work = r->rest;
    return io;
}

static float *route_saved(const struct routes *r, int64_t route)
{
    const int64_t at =
        route * (int64_t)(r->stage->inner[0]->saved_bytes / sizeof(float));
    return at ? r->inner_saved + at : r->inner_saved;
}

/* The plan of a route; with `top`, the exact engine is told which rows take it, if there
 * are any. */
static foci_plan route_plan(const struct routes *r, int64_t route)
{
    foci_plan one = *r->stage->inner[route];

    one.shared = r->plan->shared;
    if (r->gates && r->group->mech.arg[TOP_ARG] > 0 &&
        engine_of(&one.stages[0]) == &engine_exact) {
        one.gates = r->gates + route;
        one.gate_step = r->n;
    }
    return one;
}

static void forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct routes r = geometry(plan, s);
    struct arena  a = { .base = io->work };

    r.io = io;
    if (saved) take_saved(&r, saved);
    take_work(&r, &a, false, saved);
    sums_valid(plan, io, true, r.seqs, r.valid);
    sums_rows(&r.all, gates_job, &r);
    for (int64_t i = 0; i < r.n; i++) {
        const foci_plan     inner = route_plan(&r, i);
        const struct stage *stage = &inner.stages[0];
        const foci_io       one = route_io(&r, i, saved);

        engine_of(stage)->forward(&inner, stage, &one,
                                  saved ? route_saved(&r, i) : NULL);
        sums_add(&r.all, one.o, inner_o(&r), r.dv, r.gates + i, r.n, i == 0);
        if (io->lse) sums_lse(&r.all, r.lse, io->lse, i == 0);
    }
    sums_store(&r.all, io->o, &plan->p.o, r.dv);
}

/* The gradient of one route. */
struct back {
    const struct routes *r;
    const char          *d_o, *y;
    int64_t              route;
};

/* gy = gate of the route times the gradient of the output; dz = gradient of the gate. */
static void route_job(void *arg, int64_t i, int thread)
{
    const struct back   *k = arg;
    const struct routes *r = k->r;

    (void)thread;
    for (int64_t h = 0; h < r->all.heads; h++) {
        const int64_t      row = (i * r->all.heads + h) * r->n + k->route;
        const int64_t      head = r->group->head0 + h;
        const size_t       inner = sums_at(&r->all, inner_o(r), i, head);
        const char        *g = k->d_o + sums_at(&r->all, &r->p->o, i, head);
        const float        gate = r->all.valid[i] ? r->gates[row] : 0;
        double             dot = 0;
        _Alignas(64) float part[SUMS_CHUNK], mine[SUMS_CHUNK];

        for (int c = 0; c < r->dv; c += SUMS_CHUNK) {
            const int    m = (int)min64(SUMS_CHUNK, r->dv - c);
            const size_t to = (size_t)c * r->all.el;
            r->all.k->load_rows(part, SUMS_CHUNK, g + to, r->dv, (int)r->p->dtype, 1, m);
            r->all.k->load_rows(mine, SUMS_CHUNK, k->y + inner + to, r->dv,
                                (int)r->p->dtype, 1, m);
            for (int t = 0; gate != 0 && t < m; t++)
                dot += (double)part[t] * (double)mine[t];
            for (int t = 0; t < m; t++)
                part[t] = gate == 0 ? 0 : part[t] * gate;
            r->all.k->store_rows(r->gy + inner + to, r->dv, (int)r->p->dtype, part,
                                 SUMS_CHUNK, 1.0f, 1, m);
        }
        if (r->all.valid[i]) r->dz[row] = (float)dot;
    }
}

/* From gradients of gates to those of their logits, in place. */
static void through_softmax(const struct routes *r)
{
    for (int64_t i = 0; i < r->all.rows * r->all.heads; i++) {
        const float *gate = r->gates + i * r->n;
        float       *dz = r->dz + i * r->n;
        double       mean = 0;

        if (!r->all.valid[i / r->all.heads]) continue;
        for (int64_t t = 0; t < r->n; t++)
            mean += (double)gate[t] * (double)dz[t];
        for (int64_t t = 0; t < r->n; t++)
            dz[t] = (float)((double)gate[t] * ((double)dz[t] - mean));
    }
}

/* Where gradients of the gates go. */
struct gates_to {
    const struct routes *r;
    float               *dw;
    char                *dx;
};

/* dW += sum of dz x: a piece of the columns of a row of W. */
static void weights_job(void *arg, int64_t i, int thread)
{
    const struct gates_to *k = arg;
    const struct routes   *r = k->r;
    const int64_t          d = r->p->dim_x, chunks = div_up(d, SUMS_CHUNK);
    const int64_t          c = i % chunks * SUMS_CHUNK, ht = i / chunks;
    const int              m = (int)min64(SUMS_CHUNK, d - c);
    double                 sum[SUMS_CHUNK] = { 0 };
    _Alignas(64) float     part[SUMS_CHUNK];

    (void)thread;
    for (int64_t row = 0; row < r->all.rows; row++) {
        const double z =
            r->all.valid[row] ? (double)r->dz[row * r->all.heads * r->n + ht] : 0;
        if (z == 0) continue;
        r->all.k->load_rows(part, SUMS_CHUNK,
                            (const char *)r->io->x + sums_at(&r->all, &r->p->x, row, 0) +
                                (size_t)c * r->all.el,
                            d, (int)r->p->dtype, 1, m);
        for (int t = 0; t < m; t++)
            sum[t] += z * (double)part[t];
    }
    for (int t = 0; t < m; t++)
        k->dw[ht * d + c + t] += (float)sum[t];
}

/* dx += W^T dz, of all heads at once. */
static void x_job(void *arg, int64_t i, int thread)
{
    const struct gates_to *k = arg;
    const struct routes   *r = k->r;
    const int64_t          d = r->p->dim_x, n = r->all.heads * r->n;
    const float           *w = r->io->params + r->group->param0[0];

    (void)thread;
    for (int64_t c = 0; r->all.valid[i] && c < d; c += SUMS_CHUNK) {
        const int m = (int)min64(SUMS_CHUNK, d - c);
        char     *to = k->dx + sums_at(&r->all, &r->p->x, i, 0) + (size_t)c * r->all.el;
        _Alignas(64) float part[SUMS_CHUNK];

        r->all.k->load_rows(part, SUMS_CHUNK, to, d, (int)r->p->dtype, 1, m);
        for (int64_t t = 0; t < n; t++)
            for (int e = 0; e < m; e++)
                part[e] += r->dz[i * n + t] * w[t * d + c + e];
        r->all.k->store_rows(to, d, (int)r->p->dtype, part, SUMS_CHUNK, 1.0f, 1, m);
    }
}

static void grad_of_gates(const struct routes *r, const foci_grads *g)
{
    const int64_t   jobs = div_up(r->p->dim_x, SUMS_CHUNK) * r->all.heads * r->n;
    struct gates_to k = { r, g->dparams, g->dx };

    if (k.dw) {
        k.dw += r->group->param0[0];
        phases_run(r->all.k, r->plan->shared, r->plan->ctx->threads,
                   &(struct phase){ jobs, 1, weights_job, &k }, 1);
    }
    if (k.dx) sums_rows(&r->all, x_job, &k);
}

static void backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct routes r = geometry(plan, s);
    struct arena  a = { .base = io->work };

    r.io = io;
    take_saved(&r, (float *)saved);
    take_work(&r, &a, true, true);
    sums_valid(plan, io, true, r.seqs, r.valid);
    for (int64_t i = 0; i < r.n; i++) {
        const foci_plan     inner = route_plan(&r, i);
        const struct stage *stage = &inner.stages[0];
        const foci_io       one = route_io(&r, i, true);
        const int64_t       kv = r.group->kv0 + i;
        foci_grads          mine = *g;

        struct back k = { &r, g->d_o, one.o, i };
        sums_rows(&r.all, route_job, &k);
        mine.d_o = r.gy;
        if (g->dk) mine.dk = (char *)g->dk + (size_t)(kv * plan->p.k.head) * r.all.el;
        if (g->dv) mine.dv = (char *)g->dv + (size_t)(kv * plan->p.v.head) * r.all.el;
        engine_of(stage)->backward(&inner, stage, &one, route_saved(&r, i), &mine);
        if (g->dq)
            sums_add(&r.all, g->dq, &plan->p.q, (int)plan->p.dim_qk, NULL, 0, i == 0);
    }
    if (g->dq) sums_store(&r.all, g->dq, &plan->p.q, (int)plan->p.dim_qk);
    through_softmax(&r);
    grad_of_gates(&r, g);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct routes r = geometry(plan, s);
    struct arena  a = { 0 }, b = { 0 };

    take_work(&r, &a, false, false);
    if (plan->p.flags & FOCI_TRAIN) take_work(&r, &b, true, true);
    return a.used > b.used ? a.used : b.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    struct routes r = geometry(plan, s);
    return take_saved(&r, NULL);
}

static void cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const double gates = 2.0 * (double)plan->p.batch * (double)plan->p.len_q *
                         (double)(s->group->heads * s->n_inner) * (double)plan->p.dim_x;

    c->forward_flops += gates;
    c->backward_flops += 2 * gates;
    for (int64_t i = 0; i < s->n_inner; i++)
        engine_of(&s->inner[i]->stages[0])->cost(s->inner[i], &s->inner[i]->stages[0], c);
}

/* What the engine of all routes does to parameters, route by route. */
static foci_status change(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, bool calibrate, float *params)
{
    const struct engine *e = engine_of(&s->inner[0]->stages[0]);
    foci_status (*one)(const foci_plan *, const struct stage *, const foci_io *,
                       float *) = calibrate ? e->calibrate : e->advance;

    for (int64_t i = 0; one && i < s->n_inner; i++) {
        const foci_plan *inner = s->inner[i];
        const foci_io    rows = route_rows(plan, s, io, i);

        TRY(one(inner, &inner->stages[0], &rows, params));
    }
    return FOCI_OK;
}

static foci_status advance(const foci_plan *plan, const struct stage *s,
                           const foci_io *io, float *params)
{
    return change(plan, s, io, false, params);
}

static foci_status calibrate(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, float *params)
{
    return change(plan, s, io, true, params);
}

static foci_status check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    for (int64_t i = 0; i < s->n_inner; i++)
        TRY(plan_check_engines(s->inner[i], io, text, cap));
    return FOCI_OK;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    const int n = snprintf(text, cap, "    routes   %" PRId64 ", each:\n", s->n_inner);
    (void)plan;
    if (n < 0 || (size_t)n >= cap) return n;
    return n + engine_of(&s->inner[0]->stages[0])
                   ->describe(s->inner[0], &s->inner[0]->stages[0], text + n,
                              cap - (size_t)n);
}

const struct engine engine_routes = {
    .decoder = &routes_decoder,
    .name = "routes",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .advance = advance,
    .calibrate = calibrate,
    .check = check,
    .cost = cost,
    .describe = describe,
};
