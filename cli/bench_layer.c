/* bench_layer.c -- time a layer, from hidden states to hidden states. */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

/* The parenthesis that opens at `at` closes at the very end. */
static bool closes_last(const char *at)
{
    const size_t n = strlen(at);
    int          depth = 0;

    for (size_t i = 0; i < n; i++) {
        depth += (at[i] == '(') - (at[i] == ')');
        if (!depth) return i == n - 1;
    }
    return false;
}

void bench_layer_kind(struct bench_case *c)
{
    for (int kind = FOCI_LAYER_ATTENTION; kind <= FOCI_LAYER_CONV; kind++) {
        const char  *name = layer_kind_name((foci_layer_kind)kind);
        const size_t n = strlen(name);

        if (strncmp(c->spec, name, n) || c->spec[n] != '(' || !closes_last(c->spec + n))
            continue;
        const size_t inner = strlen(c->spec) - n - 2;
        memmove(c->spec, c->spec + n + 1, inner);
        c->spec[inner] = 0;
        c->layer.kind = (foci_layer_kind)kind;
        return;
    }
}

/* A step is planned on all tokens of its state. */
foci_status bench_layer_create(foci_ctx *ctx, const struct bench_case *c,
                               foci_layer **layer)
{
    foci_layer_problem l = c->layer;

    l.dtype = c->problem.dtype;
    l.flags = c->problem.flags;
    l.lists = c->problem.lists;
    l.n_lists = c->problem.n_lists;
    if (c->pass == PASS_STEP) {
        l.len = c->problem.len_k;
        l.len_source = 0;
    }
    return foci_layer_create(ctx, c->spec, &l, layer);
}

struct bench_layer_job {
    const foci_layer *layer;
    enum pass         pass;
    foci_layer_io     io;
    foci_layer_grads  grads;
};

static foci_status run_job(void *self)
{
    const struct bench_layer_job *j = self;
    foci_status                   status = FOCI_OK;

    if (j->pass != PASS_BWD) status = foci_layer_forward(j->layer, &j->io);
    if (j->pass != PASS_FWD && status == FOCI_OK)
        status = foci_layer_backward(j->layer, &j->io, &j->grads);
    return status;
}

static foci_status open_job(const foci_layer *layer, const struct bench_case *c,
                            struct bench_layer_job *j)
{
    foci_layer_problem p = { FOCI_SIZED(foci_layer_problem) };

    foci_layer_get_problem(layer, &p);
    const size_t rows = (size_t)(p.batch * p.len), n = rows * (size_t)p.width;
    const size_t before = (size_t)(p.batch * p.memory) * (size_t)p.width;
    const size_t source = (size_t)(p.batch * p.len_source) * (size_t)p.width_source;
    const size_t floats = (size_t)foci_layer_param_floats(layer);
    const size_t bytes = foci_dtype_bytes(p.dtype);
    float       *params = need(floats, sizeof *params);

    *j = (struct bench_layer_job){ .layer = layer, .pass = c->pass };
    j->io = (foci_layer_io){ FOCI_SIZED(foci_layer_io),
                             .x = bench_draw(p.dtype, n, 1),
                             .source = source ? bench_draw(p.dtype, source, 2) : NULL,
                             .memory = before ? bench_draw(p.dtype, before, 3) : NULL,
                             .y = need(n, bytes),
                             .params = params,
                             .words = bench_words(p.batch, p.len),
                             .work = need(foci_layer_work_bytes(layer), 1) };
    if (c->pass != PASS_FWD) {
        j->io.saved = need(foci_layer_saved_bytes(layer), 1);
        j->grads =
            (foci_layer_grads){ FOCI_SIZED(foci_layer_grads),
                                .dy = bench_draw(p.dtype, n, 4), .dx = need(n, bytes),
                                .dsource = source ? need(source, bytes) : NULL,
                                .dparams = need(floats, sizeof *params) };
    }
    foci_status status = foci_layer_params_init(layer, 1, params);
    /* Otherwise statistics are found in each sequence, and that is timed. */
    if (status == FOCI_OK && p.flags & FOCI_FLAG_CAUSAL)
        status = foci_layer_params_calibrate(layer, &j->io, params);
    return status == FOCI_OK ? foci_layer_forward(layer, &j->io) : status;
}

static void close_job(struct bench_layer_job *j)
{
    void *const all[] = {
        (void *)j->io.x,      (void *)j->io.source, j->io.y,
        j->io.work,           j->io.saved,          (void *)j->io.words,
        j->grads.dx,          j->grads.dsource,     (void *)j->grads.dy,
        (void *)j->io.params, (void *)j->io.memory, j->grads.dparams,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Steps: the plan's own, and the share that the new rows have of the products. */
static void step_cost(foci_ctx *ctx, const foci_layer *layer,
                      const struct bench_case *c, foci_cost *cost)
{
    const foci_problem *p = &c->problem;
    const double        rows = (double)(p->len_q < p->len_k ? p->len_q : p->len_k);
    const double        share = p->len_k ? rows / (double)p->len_k : 0;
    const double        weights =
        (double)sizeof(float) * (double)foci_layer_param_floats(layer);
    foci_cost plan = { FOCI_SIZED(foci_cost) };

    foci_plan_cost(foci_layer_plan(layer), &plan);
    const double products = cost->forward_flops - plan.forward_flops;
    bench_step_cost(ctx, c, &plan);
    *cost = plan;
    cost->forward_flops += share * products;
    cost->forward_bytes += weights + 2 * rows * (double)(p->batch * p->dim_x) *
                                         (double)foci_dtype_bytes(p->dtype);
}

static void count(foci_ctx *ctx, const foci_layer *layer, const struct bench_case *c,
                  struct bench_result *r)
{
    const bool          forward = c->pass != PASS_BWD;
    const bool          backward = c->pass == PASS_BWD || c->pass == PASS_BOTH;
    const foci_problem *p = &c->problem;
    const double        all =
        (double)(p->batch * p->heads) * (double)p->len_q * (double)p->len_k;
    foci_cost cost = { FOCI_SIZED(foci_cost) };

    foci_layer_cost(layer, &cost);
    if (c->pass == PASS_STEP) step_cost(ctx, layer, c, &cost);
    r->flops =
        (forward ? cost.forward_flops : 0) + (backward ? cost.backward_flops : 0);
    r->bytes =
        (forward ? cost.forward_bytes : 0) + (backward ? cost.backward_bytes : 0);
    r->pairs = cost.pairs;
    r->density = all > 0 ? cost.pairs / all : 0;
    r->tiles_full = cost.tiles_full;
    r->tiles_part = cost.tiles_part;
    r->tiles_skipped = cost.tiles_skipped;
    r->work_bytes = foci_layer_work_bytes(layer);
    r->saved_bytes = foci_layer_saved_bytes(layer);
    r->plan = layer_text(layer);
}

static foci_status run_layer_job(const foci_layer *layer, const struct bench_case *c,
                                 int reps, double time, struct bench_result *r)
{
    struct bench_layer_job j;
    foci_status            status = open_job(layer, c, &j);

    if (status == FOCI_OK) status = bench_repeat(run_job, NULL, &j, reps, time, r);
    close_job(&j);
    return status;
}

int bench_layer(const struct args *a, foci_ctx *ctx, const struct bench_case *c,
                int reps, double time, struct bench_result *r)
{
    foci_layer *layer;
    foci_status status = bench_layer_create(ctx, c, &layer);

    if (status) return library_error(a, ctx, status, c->text);
    count(ctx, layer, c, r);
    status = c->pass == PASS_STEP
                 ? bench_step(ctx, foci_layer_plan(layer), layer, c, reps, time, r)
                 : run_layer_job(layer, c, reps, time, r);
    foci_layer_free(layer);
    return status ? failure(a, "%s: execution failed: %s", c->text,
                            foci_status_text(status))
                  : EXIT_OK;
}
