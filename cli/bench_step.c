/* bench_step.c -- time decoding: states with m keys, of which n come with the step. */
#include <stdlib.h>

#include "bench.h"

struct decoding {
    foci_pool   *pool;
    foci_state **states, **before; /* before: as they are before a step */
    int64_t      keep;             /* keys before a step */
    foci_step_io io;
};

/* Forget the tokens of the step before.  A state that cannot, because it has let go of
 * what it would need, is copied anew. */
static foci_status rewind_states(void *self)
{
    const struct decoding *d = self;
    foci_status            status = FOCI_OK;

    for (int64_t i = 0; i < d->io.n_states && status == FOCI_OK; i++) {
        if (foci_state_truncate(d->states[i], d->keep) == FOCI_OK) continue;
        foci_state_free(d->states[i]);
        status = foci_state_copy(d->before[i], &d->states[i]);
    }
    return status;
}

/* A step, with the pool grown until it is large enough. */
static foci_status step_growing(const struct decoding *d, const foci_step_io *io)
{
    foci_status status;

    while ((status = foci_step(d->pool, io)) == FOCI_ERR_FULL) {
        status = foci_pool_grow(d->pool, io->n_states);
        if (status != FOCI_OK) return status;
    }
    return status;
}

static foci_status step(void *self)
{
    const struct decoding *d = self;
    return foci_step(d->pool, &d->io);
}

/* Fill the states page by page, all with the same keys. */
static foci_status fill(struct decoding *d)
{
    foci_step_io io = d->io;
    int32_t     *tokens = need((size_t)io.n_states, sizeof *tokens);
    foci_status  status = FOCI_OK;

    io.o = NULL;
    io.tokens = tokens;
    for (int64_t at = 0; at < d->keep && status == FOCI_OK; at += FOCI_PAGE) {
        const int64_t n = d->keep - at < FOCI_PAGE ? d->keep - at : FOCI_PAGE;
        for (int64_t i = 0; i < io.n_states; i++)
            tokens[i] = (int32_t)n;
        status = step_growing(d, &io);
    }
    free(tokens);
    return status;
}

/* Copies to come back to, and pages for the next step of both. */
static foci_status make_copies(struct decoding *d)
{
    foci_status status = FOCI_OK;

    for (int64_t i = 0; i < d->io.n_states && status == FOCI_OK; i++)
        status = foci_state_copy(d->states[i], &d->before[i]);
    return status;
}

static foci_status make(struct decoding *d, const foci_plan *plan, const foci_problem *p)
{
    const int64_t pages = (p->len_k + FOCI_PAGE - 1) / FOCI_PAGE;
    foci_status   status = foci_pool_create(plan, p->batch * (pages + 1), &d->pool);

    for (int64_t i = 0; i < p->batch && status == FOCI_OK; i++)
        status = foci_state_create(d->pool, &d->states[i]);
    if (status == FOCI_OK) status = fill(d);
    return status == FOCI_OK ? make_copies(d) : status;
}

foci_status bench_step(const foci_plan *plan, const struct bench_case *c, int reps,
                       double time, struct bench_result *r)
{
    const foci_problem *p = &c->problem;
    const size_t        kv = (size_t)(p->kv_heads ? p->kv_heads : p->heads);
    const size_t        v = (size_t)(p->dim_v ? p->dim_v : p->dim_qk);
    const int64_t       n = c->tokens;
    const size_t        most = (size_t)(n > FOCI_PAGE ? n : FOCI_PAGE);
    const size_t        rows = (size_t)p->batch * most;
    float              *params = need((size_t)foci_plan_params(plan), sizeof *params);
    int32_t            *tokens = need((size_t)p->batch, sizeof *tokens);
    void *q = bench_draw(p->dtype, rows * (size_t)(p->heads * p->dim_qk), 1);
    void *k = bench_draw(p->dtype, rows * kv * (size_t)p->dim_qk, 2);
    void *values = bench_draw(p->dtype, rows * kv * v, 3);
    void *o = need(rows * (size_t)p->heads * v, foci_dtype_bytes(p->dtype));

    for (int64_t i = 0; i < p->batch; i++)
        tokens[i] = (int32_t)n;
    struct decoding d = {
        .states = need((size_t)p->batch, sizeof *d.states),
        .before = need((size_t)p->batch, sizeof *d.before),
        .keep = p->len_k - n,
        .io = { FOCI_SIZED(foci_step_io), .n_states = p->batch, .tokens = tokens,
                .q = q, .k = k, .v = values, .o = o, .params = params },
    };
    d.io.states = d.states;
    foci_status status = foci_params_init(plan, 1, params);
    if (status == FOCI_OK) status = make(&d, plan, p);
    if (status == FOCI_OK) {
        r->work_bytes = foci_step_bytes(d.pool, p->batch, p->batch * n, p->len_k);
        d.io.work = need(r->work_bytes, 1);
        status = step_growing(&d, &d.io); /* so that the pool grows no more */
    }
    if (status == FOCI_OK)
        status = bench_repeat(step, rewind_states, &d, reps, time, r);
    for (int64_t i = 0; i < p->batch; i++) {
        foci_state_free(d.states[i]);
        foci_state_free(d.before[i]);
    }
    foci_pool_free(d.pool);
    void *const all[] = {
        params, tokens, q, k, values, o, d.states, d.before, d.io.work
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return status;
}

/* All tokens, less those before the step.  Every pair of a query and a key reads the key
 * and its value, once for all heads that share them. */
void bench_step_cost(foci_ctx *ctx, const struct bench_case *c, const foci_cost *whole,
                     struct bench_result *r)
{
    const foci_problem *p = &c->problem;
    const int64_t       n = c->tokens;
    const int64_t       v = p->dim_v ? p->dim_v : p->dim_qk;
    const double        share = (double)(p->kv_heads ? p->heads / p->kv_heads : 1);
    const double        el = (double)foci_dtype_bytes(p->dtype);
    const double rows = (double)(p->batch * n * p->heads) * (double)(p->dim_qk + v);
    foci_cost    before = { FOCI_SIZED(foci_cost) };
    foci_problem shorter = *p;
    foci_plan   *plan = NULL;

    shorter.len_q = shorter.len_k = p->len_k - n;
    if (shorter.len_k && foci_plan_create(ctx, c->spec, &shorter, &plan) == FOCI_OK)
        foci_plan_cost(plan, &before);
    foci_plan_free(plan);
    r->flops = whole->forward_flops - before.forward_flops;
    r->bytes =
        el * (rows + (whole->pairs - before.pairs) / share * (double)(p->dim_qk + v));
}
