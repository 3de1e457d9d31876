/* bench_step.c -- time decoding: states with m keys, of which n come with the step.
 *
 * After each step the states are truncated to their former length.  States that have dropped
 * pages needed for that start again from a copy, whose last token is appended anew: the page
 * that the step writes to is then its own before the clock runs.
 */
#include <math.h>
#include <stdlib.h>

#include "cli/bench.h"

struct bench_steps {
    foci_pool        *pool;
    foci_state      **states, **early; /* early: a token behind; NULL where keep is 0 */
    int32_t          *tokens, *words;  /* of what is appended before a step */
    int64_t           keep;            /* keys before a step */
    foci_step_io      io;
    const foci_layer *layer;       /* NULL: the plan alone */
    void             *y;           /* what a layer gives */
    void             *precomputed; /* what it makes of its parameters alone */
    size_t            work_bytes;  /* of one step */
};

static foci_status step_layer(const struct bench_steps *d)
{
    const foci_layer_step_io io = {
        FOCI_SIZED(foci_layer_step_io),
        .states = d->io.states,
        .n_states = d->io.n_states,
        .tokens = d->io.tokens,
        .x = d->io.x,
        .y = d->y,
        .words = d->io.words,
        .params = d->io.params,
        .work = d->io.work,
        .precomputed = d->precomputed,
    };
    return foci_layer_step(d->layer, d->pool, &io);
}

/* Steps take all pages they need, whatever a mechanism keeps in them. */
foci_status bench_steps_run(void *steps)
{
    const struct bench_steps *d = steps;

    for (;;) {
        const foci_status status =
            d->layer ? step_layer(d) : foci_step(d->pool, &d->io);
        if (status != FOCI_ERR_FULL) return status;
        if (foci_pool_grow(d->pool, d->io.n_states)) return FOCI_ERR_MEMORY;
    }
}

/* `n` tokens for each of `count` states of one length; plans attend to nothing. */
static foci_status append(struct bench_steps *d, foci_state *const *states,
                          int64_t count, int64_t n)
{
    struct bench_steps one = *d;

    one.io.states = states;
    one.io.n_states = count;
    one.io.tokens = d->tokens;
    one.io.words = d->words;
    one.io.o = NULL;
    if (count) bench_fill_words(d->words, count, foci_state_len(states[0]), n);
    for (int64_t i = 0; i < count; i++)
        d->tokens[i] = (int32_t)n;
    return bench_steps_run(&one);
}

static foci_status start_again(struct bench_steps *d, int64_t i)
{
    foci_state_free(d->states[i]);
    d->states[i] = NULL;
    const foci_status status = foci_state_copy(d->early[i], &d->states[i]);
    return status == FOCI_OK ? append(d, &d->states[i], 1, 1) : status;
}

/* Forget the tokens of the step before. */
foci_status bench_steps_rewind(void *steps)
{
    struct bench_steps *d = steps;
    foci_status         status = FOCI_OK;

    for (int64_t i = 0; i < d->io.n_states && status == FOCI_OK; i++) {
        status = foci_state_truncate(d->states[i], d->keep);
        if (status == FOCI_ERR_UNSUP) status = start_again(d, i);
    }
    return status;
}

/* Fill the states page by page, all with the same keys. */
static foci_status fill(struct bench_steps *d)
{
    const int64_t early = d->keep ? d->keep - 1 : 0, n = d->io.n_states;
    foci_status   status = FOCI_OK;

    for (int64_t at = 0; at < early && status == FOCI_OK; at += FOCI_PAGE)
        status =
            append(d, d->states, n, early - at < FOCI_PAGE ? early - at : FOCI_PAGE);
    for (int64_t i = 0; i < n && d->keep && status == FOCI_OK; i++)
        status = foci_state_copy(d->states[i], &d->early[i]);
    return d->keep && status == FOCI_OK ? append(d, d->states, n, 1) : status;
}

static foci_status make(struct bench_steps *d, const foci_plan *plan,
                        const foci_problem *p)
{
    const int64_t pages = (p->len_k + FOCI_PAGE - 1) / FOCI_PAGE + 1;
    foci_status   status = foci_pool_create(plan, p->batch * pages, &d->pool);

    if (d->layer) {
        d->precomputed = need(foci_layer_precompute_bytes(d->layer), 1);
        if (!status)
            status = foci_layer_precompute(d->layer, d->io.params, d->precomputed);
    }
    for (int64_t i = 0; i < p->batch && status == FOCI_OK; i++)
        status = foci_state_create(d->pool, &d->states[i]);
    return status;
}

static void release(struct bench_steps *d)
{
    for (int64_t i = 0; i < d->io.n_states; i++) {
        foci_state_free(d->states[i]);
        foci_state_free(d->early[i]);
    }
    foci_pool_free(d->pool);
    void *const all[] = { d->states,
                          d->early,
                          d->tokens,
                          (void *)d->io.tokens,
                          (void *)d->io.q,
                          (void *)d->io.k,
                          (void *)d->io.v,
                          (void *)d->io.x,
                          d->io.o,
                          (void *)d->io.params,
                          d->io.work,
                          d->y,
                          d->precomputed,
                          d->words,
                          (void *)d->io.words };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Rows of a step, or of a page when states are filled. */
static void draw(struct bench_steps *d, const foci_plan *plan, const foci_problem *p,
                 int64_t n)
{
    const size_t rows = (size_t)(p->batch * (n > FOCI_PAGE ? n : FOCI_PAGE));
    const size_t q = rows * (size_t)p->heads, kv = rows * (size_t)p->kv_heads;
    const size_t qk = (size_t)p->dim_qk, v = (size_t)p->dim_v, x = (size_t)p->dim_x;

    if (d->layer) {
        d->io.x = bench_draw(p->dtype, rows * x, 1);
        d->y = need(rows * x, foci_dtype_bytes(p->dtype));
        return;
    }
    d->io.q = bench_draw(p->dtype, q * qk, 1);
    d->io.k = bench_draw(p->dtype, kv * qk, 2);
    d->io.v = bench_draw(p->dtype, kv * v, 3);
    d->io.x = bench_draw_x(plan, p, rows);
    d->io.o = need(q * v, foci_dtype_bytes(p->dtype));
}

/* What a step reads is at most what states hold, and where they hold sums written back. */
static double most_bytes(const struct bench_steps *d, const foci_problem *p, int64_t n)
{
    const double row =
        (double)foci_dtype_bytes(p->dtype) * (double)(p->dim_qk + p->dim_v);
    double all = row * (double)(p->batch * n * (p->heads + p->kv_heads));

    return all + 2 * (double)bench_steps_state_bytes(d);
}

/* The plan on one page of tokens. */
static foci_status calibrate_page(const foci_plan *page, const foci_problem *p,
                                  float *params)
{
    const size_t  rows = (size_t)(p->batch * FOCI_PAGE), qk = (size_t)p->dim_qk;
    const foci_io io = {
        FOCI_SIZED(foci_io),
        .q = bench_draw(p->dtype, rows * (size_t)p->heads * qk, 1),
        .k = bench_draw(p->dtype, rows * (size_t)p->kv_heads * qk, 2),
        .v = need(rows * (size_t)(p->kv_heads * p->dim_v), sizeof(float)),
        .o = need(rows * (size_t)(p->heads * p->dim_v), sizeof(float)),
        .x = bench_draw_x(page, p, rows),
        .words = bench_words(p->batch, FOCI_PAGE),
        .params = params,
        .work = need(foci_plan_work_bytes(page), 1),
    };
    const foci_status status = foci_params_calibrate(page, &io, params);
    void *const       all[] = { (void *)io.q, (void *)io.k,     (void *)io.v, io.o,
                                (void *)io.x, (void *)io.words, io.work };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return status;
}

/* Statistics are frozen before there is anything to step through.  Those that depend on
 * how many tokens there are cannot be. */
static foci_status draw_params(foci_ctx *ctx, const foci_plan *plan,
                               const struct bench_case *c, float *params)
{
    foci_problem p = c->problem;
    foci_plan   *page;
    foci_status  status = foci_params_init(plan, 1, params);

    p.len_q = p.len_k = FOCI_PAGE;
    if (status || foci_plan_create(ctx, c->spec, &p, &page)) return status;
    foci_plan_get_problem(page, &p);
    if (foci_plan_param_floats(page) == foci_plan_param_floats(plan))
        status = calibrate_page(page, &p, params);
    foci_plan_free(page);
    return status;
}

static size_t bytes_of(const struct bench_steps *d, const foci_problem *p,
                       int64_t tokens)
{
    const int64_t n = p->batch * tokens;

    return d->layer
               ? foci_layer_step_work_bytes(d->layer, d->pool, p->batch, n, p->len_k)
               : foci_step_work_bytes(d->pool, p->batch, n, p->len_k);
}

/* The layer on one page of tokens. */
static foci_status draw_layer_params(foci_ctx *ctx, const foci_layer *layer,
                                     const struct bench_case *c, float *params)
{
    struct bench_case page = *c;
    foci_layer       *small;
    foci_layer_io     io = { FOCI_SIZED(foci_layer_io), .params = params };
    foci_status       status = foci_layer_params_init(layer, 1, params);

    page.problem.len_q = page.problem.len_k = FOCI_PAGE;
    if (status || bench_layer_create(ctx, &page, &small)) return status;
    if (foci_layer_param_floats(small) == foci_layer_param_floats(layer)) {
        const size_t n =
            (size_t)(c->problem.batch * FOCI_PAGE) * (size_t)c->problem.dim_x;
        io.x = bench_draw(c->problem.dtype, n, 1);
        io.y = need(n, foci_dtype_bytes(c->problem.dtype));
        io.words = bench_words(c->problem.batch, FOCI_PAGE);
        io.work = need(foci_layer_work_bytes(small), 1);
        status = foci_layer_params_calibrate(small, &io, params);
    }
    free((void *)io.x);
    free(io.y);
    free((void *)io.words);
    free(io.work);
    foci_layer_free(small);
    return status;
}

static struct bench_steps *steps_of(const foci_plan *plan, const foci_layer *layer,
                                    const foci_problem *p, int64_t n)
{
    const int64_t most = n > FOCI_PAGE ? n : FOCI_PAGE;
    const size_t  batch = (size_t)p->batch;
    const int64_t floats =
        layer ? foci_layer_param_floats(layer) : foci_plan_param_floats(plan);
    struct bench_steps *d = need(1, sizeof *d);
    int32_t            *tokens = need(batch, sizeof *tokens);
    int32_t            *words = bench_words(p->batch, n);

    for (size_t i = 0; i < batch; i++)
        tokens[i] = (int32_t)n;
    bench_fill_words(words, p->batch, p->len_k - n, n);
    *d = (struct bench_steps){
        .states = need(batch, sizeof *d->states),
        .early = need(batch, sizeof *d->early),
        .tokens = need(batch, sizeof *d->tokens),
        .words = bench_words(p->batch, most),
        .keep = p->len_k - n,
        .layer = layer,
        .io = { FOCI_SIZED(foci_step_io), .n_states = p->batch, .tokens = tokens,
                .words = words, .params = need((size_t)floats, sizeof(float)) },
    };
    d->io.states = d->states;
    return d;
}

foci_status bench_steps_open(foci_ctx *ctx, const foci_plan *plan,
                             const foci_layer *layer, const struct bench_case *c,
                             struct bench_steps **steps)
{
    const int64_t n = c->problem.len_q, most = n > FOCI_PAGE ? n : FOCI_PAGE;
    foci_problem  p = { FOCI_SIZED(foci_problem) };

    foci_plan_get_problem(plan, &p);
    struct bench_steps *d = *steps = steps_of(plan, layer, &p, n);
    float *const        params = (float *)d->io.params;
    draw(d, plan, &p, n);
    foci_status status = layer ? draw_layer_params(ctx, layer, c, params)
                               : draw_params(ctx, plan, c, params);
    if (status == FOCI_OK) status = make(d, plan, &p);
    if (status) return status;
    d->work_bytes = bytes_of(d, &p, n);
    d->io.work = need(bytes_of(d, &p, most), 1);
    return fill(d);
}

size_t bench_steps_work_bytes(const struct bench_steps *s) { return s->work_bytes; }

size_t bench_steps_state_bytes(const struct bench_steps *s)
{
    size_t bytes = 0;

    for (int64_t i = 0; i < s->io.n_states; i++)
        bytes += foci_state_bytes(s->states[i]);
    return bytes;
}

void bench_steps_close(struct bench_steps *s)
{
    if (s) release(s);
    free(s);
}

foci_status bench_step(foci_ctx *ctx, const foci_plan *plan, const foci_layer *layer,
                       const struct bench_case *c, int reps, double time,
                       struct bench_result *r)
{
    struct bench_steps *d = NULL;
    foci_problem        p = { FOCI_SIZED(foci_problem) };
    foci_status         status = bench_steps_open(ctx, plan, layer, c, &d);

    foci_plan_get_problem(plan, &p);
    r->work_bytes = d->work_bytes;
    if (status == FOCI_OK) {
        if (!layer) r->bytes = fmin(r->bytes, most_bytes(d, &p, c->problem.len_q));
        status = bench_repeat(bench_steps_run, bench_steps_rewind, d, reps, time, r);
    }
    bench_steps_close(d);
    return status;
}

/* Of a plan on so many tokens; 0 where there is none. */
static foci_cost cost_of(foci_ctx *ctx, const struct bench_case *c, int64_t len)
{
    foci_cost    cost = { FOCI_SIZED(foci_cost) };
    foci_problem p = c->problem;
    foci_plan   *plan;

    p.len_q = p.len_k = len;
    if (foci_plan_create(ctx, c->spec, &p, &plan) == FOCI_OK)
        foci_plan_cost(plan, &cost);
    foci_plan_free(plan);
    return cost;
}

/* The last n rows of a causal pass are all rows without those before them.  Where no
 * such shorter plan is to be had, they are taken to cost as much as others. */
void bench_step_cost(foci_ctx *ctx, const struct bench_case *c, foci_cost *cost)
{
    const foci_problem *p = &c->problem;
    const int64_t       n = p->len_q;
    const foci_cost     all = cost_of(ctx, c, p->len_k);
    const foci_cost     less = cost_of(ctx, c, p->len_k - n);
    const bool          known = n == p->len_k || less.pairs > 0;
    const double        share = n ? (double)n / (double)p->len_k : 0;

    cost->forward_flops =
        known ? all.forward_flops - less.forward_flops : share * all.forward_flops;
    cost->pairs = known ? all.pairs - less.pairs : share * all.pairs;

    /* Every row reads its query and the keys and values it sees, and writes. */
    const double v = (double)(p->dim_v ? p->dim_v : p->dim_qk);
    const double row = (double)foci_dtype_bytes(p->dtype) * ((double)p->dim_qk + v);
    const double kv = (double)(p->kv_heads ? p->kv_heads : p->heads);
    const double keys = n ? cost->pairs / (double)n * kv / (double)p->heads : 0;
    cost->forward_bytes = row * ((double)(p->batch * p->heads * n) + keys);
}
