/* bench_run.c -- time one case.
 *
 * Inputs are standard normal, since the time of an exponential or of a product may depend
 * on its operands, and the same for every case of a shape.  Two
 * repetitions warm caches, clocks and threads and are not counted; buffers are the
 * same each time, so what fits into a cache stays there.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "foci/mechanism.h"

enum { WARM = 2, MAX_REPS = 100000 };

/* By SplitMix64. */
double bench_uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

static float normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(bench_uniform(state)));
    return (float)(radius * cos(6.283185307179586 * bench_uniform(state)));
}

void *bench_draw(foci_dtype dtype, size_t n, uint64_t seed)
{
    void *data = need(n, foci_dtype_bytes(dtype));
    for (size_t i = 0; i < n; i++) {
        const float x = normal(&seed);
        if (dtype == FOCI_BF16)
            to_bf16(&x, 1, (uint16_t *)data + i);
        else
            ((float *)data)[i] = x;
    }
    return data;
}

void bench_fill_words(int32_t *words, int64_t seqs, int64_t first, int64_t n)
{
    enum { TOKENS_OF_A_WORD = 4 };

    for (int64_t i = 0; i < seqs * n; i++)
        words[i] = (int32_t)((first + i % n) / TOKENS_OF_A_WORD);
}

int32_t *bench_words(int64_t seqs, int64_t n)
{
    int32_t *words = need((size_t)(seqs * n), sizeof *words);

    bench_fill_words(words, seqs, 0, n);
    return words;
}

void *bench_draw_x(const foci_plan *plan, const foci_problem *p, size_t n)
{
    return run_reads(plan) & FOCI_READ_X ? bench_draw(p->dtype, n * (size_t)p->dim_x, 5)
                                         : NULL;
}

/* Elements of the tensors of a plan; 0 of those that are not read. */
struct extents {
    foci_dtype dtype;
    size_t     q, k, v, x, o, params;
};

static struct extents extents_of(const foci_plan *plan)
{
    foci_problem p = { FOCI_SIZED(foci_problem) };

    const unsigned reads = run_reads(plan);
    foci_plan_get_problem(plan, &p);
    const size_t q = (size_t)(p.batch * p.heads) * (size_t)p.len_q;
    const size_t k = (size_t)(p.batch * p.kv_heads) * (size_t)p.len_k;
    const size_t qk = (size_t)p.dim_qk, v = (size_t)p.dim_v;
    return (struct extents){
        .dtype = p.dtype,
        .q = reads & FOCI_READ_Q ? q * qk : 0,
        .k = reads & FOCI_READ_K ? k * qk : 0,
        .v = k * v,
        .x = reads & FOCI_READ_X ? (size_t)(p.batch * p.len_q * p.dim_x) : 0,
        .o = q * v,
        .params = (size_t)foci_plan_param_floats(plan),
    };
}

/*
 * Inputs
 */

struct bench_input {
    struct bench_input *next;
    foci_dtype          dtype;
    size_t              n;
    uint64_t            seed;
    void               *data;
};

static const struct bench_input *find(const struct bench_input *all, foci_dtype dtype,
                                      size_t n, uint64_t seed)
{
    while (all && (all->dtype != dtype || all->n != n || all->seed != seed))
        all = all->next;
    return all;
}

const void *bench_input(struct bench_input **all, foci_dtype dtype, size_t n,
                        uint64_t seed)
{
    const struct bench_input *found = find(*all, dtype, n, seed);
    if (found) return found->data;

    struct bench_input *drawn = need(1, sizeof *drawn);
    *drawn = (struct bench_input){ *all, dtype, n, seed, bench_draw(dtype, n, seed) };
    *all = drawn;
    return drawn->data;
}

void bench_inputs_free(struct bench_input *all)
{
    while (all) {
        struct bench_input *next = all->next;
        free(all->data);
        free(all);
        all = next;
    }
}

/* NULL of tensors that are not read. */
static const void *input(struct bench_input **all, const struct extents *e, size_t n,
                         uint64_t seed)
{
    return n ? bench_input(all, e->dtype, n, seed) : NULL;
}

size_t bench_job_bytes(const foci_plan *plan, enum pass pass,
                       const struct bench_input *drawn)
{
    const struct extents e = extents_of(plan);
    const bool           back = pass != PASS_FWD;
    const size_t         inputs[] = { e.q, e.k, e.v, back ? e.o : 0, e.x };
    size_t               n = e.o + (back ? e.q + e.k + e.v + e.x : 0);

    for (uint64_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (!find(drawn, e.dtype, inputs[i], BENCH_Q + i)) n += inputs[i];
    return n * foci_dtype_bytes(e.dtype) + (back ? 2 : 1) * e.params * sizeof(float);
}

/*
 * Jobs
 */

/* Room for a gradient; NULL of what is not read. */
static void *gradient(const struct extents *e, size_t n)
{
    return n ? need(n, foci_dtype_bytes(e->dtype)) : NULL;
}

static void open_backward(const struct extents *e, struct bench_input **inputs,
                          struct bench_job *j)
{
    j->io.saved = need(foci_plan_saved_bytes(j->plan), 1);
    j->grads = (foci_grads){ FOCI_SIZED(foci_grads),
                             .d_o = input(inputs, e, e->o, BENCH_DO),
                             .dx = gradient(e, e->x),
                             .dq = gradient(e, e->q),
                             .dk = gradient(e, e->k),
                             .dv = gradient(e, e->v),
                             .dparams = need(e->params, sizeof(float)) };
}

foci_status bench_job_open(foci_ctx *ctx, const foci_plan *plan,
                           const struct bench_case *c, struct bench_input **inputs,
                           struct bench_job *j)
{
    const struct extents e = extents_of(plan);
    foci_problem         p = { FOCI_SIZED(foci_problem) };
    float               *params = need(e.params, sizeof *params);

    foci_plan_get_problem(plan, &p);
    *j = (struct bench_job){ .plan = plan, .pass = c->pass };
    j->io = (foci_io){ FOCI_SIZED(foci_io),
                       .q = input(inputs, &e, e.q, BENCH_Q),
                       .k = input(inputs, &e, e.k, BENCH_K),
                       .v = input(inputs, &e, e.v, BENCH_V),
                       .x = input(inputs, &e, e.x, BENCH_X),
                       .o = need(e.o, foci_dtype_bytes(e.dtype)),
                       .words = bench_words(p.batch, p.len_q),
                       .params = params,
                       .work = need(foci_plan_work_bytes(plan), 1) };
    if (c->pass != PASS_FWD) open_backward(&e, inputs, j);
    foci_status status = foci_params_init(plan, 1, params);
    /* Otherwise statistics are found in each sequence, and that is timed. */
    j->there = on_device(ctx);
    if (status == FOCI_OK && c->problem.flags & FOCI_FLAG_CAUSAL && !j->there)
        status = foci_params_calibrate(plan, &j->io, params);
    if (status == FOCI_OK && j->there)
        status = device_send(ctx, plan, &j->io, c->pass == PASS_FWD ? NULL : &j->grads,
                             &j->copy);
    return status == FOCI_OK ? foci_forward(plan, j->there ? &j->copy.io : &j->io)
                             : status;
}

void bench_job_close(struct bench_job *j)
{
    void *const all[] = { (void *)j->io.params, j->io.o,     j->io.work,
                          j->io.saved,          j->grads.dx, j->grads.dq,
                          j->grads.dk,          j->grads.dv, j->grads.dparams,
                          (void *)j->io.words };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    if (j->there) device_release(&j->copy);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void tell_fault(const struct bench_job *j, const foci_io *io)
{
    const foci_grads *g = j->there ? &j->copy.grads : &j->grads;
    char              text[512] = "";

    foci_io_check(j->plan, io, j->pass == PASS_FWD ? NULL : g, text, sizeof text);
    fprintf(stderr, "foci: %s\n", text);
}

foci_status bench_job_run(void *job)
{
    const struct bench_job *j = job;
    foci_status             status = FOCI_OK;

    const foci_io *io = j->there ? &j->copy.io : &j->io;

    if (j->pass != PASS_BWD) status = foci_forward(j->plan, io);
    if (j->pass != PASS_FWD && status == FOCI_OK)
        status = foci_backward(j->plan, io, j->there ? &j->copy.grads : &j->grads);
    if (j->there && status == FOCI_OK) status = foci_device_wait(j->copy.ctx, NULL);
    if (status == FOCI_ERR_ARG) tell_fault(j, io);
    return status;
}

foci_status bench_repeat(foci_status (*once)(void *), foci_status (*before)(void *),
                         void *self, int reps, double time, struct bench_result *r)
{
    double     *times = need(MAX_REPS, sizeof *times);
    foci_status status = FOCI_OK;
    double      total = 0;
    int         n = -WARM;

    while (status == FOCI_OK && n < MAX_REPS && (n < reps || total < time)) {
        if (before) status = before(self);
        const double begin = seconds();
        if (status == FOCI_OK) status = once(self);
        const double took = seconds() - begin;
        if (n >= 0) total += times[n] = took;
        n++;
    }
    if (status == FOCI_OK) {
        r->reps = n;
        r->median = bench_median(times, n);
        r->best = times[0];
        r->low = times[n / 4];
        r->high = times[n - 1 - n / 4];
    }
    free(times);
    return status;
}

static foci_status run_plan(foci_ctx *ctx, const foci_plan *plan,
                            const struct bench_case *c, int reps, double time,
                            struct bench_result *r)
{
    struct bench_input *inputs = NULL;
    struct bench_job    j;
    foci_status         status = bench_job_open(ctx, plan, c, &inputs, &j);

    if (status == FOCI_OK)
        status = bench_repeat(bench_job_run, NULL, &j, reps, time, r);
    bench_job_close(&j);
    bench_inputs_free(inputs);
    return status;
}

foci_status bench_plan(foci_ctx *ctx, const struct bench_case *c, foci_plan **plan)
{
    foci_problem p = c->problem;
    foci_status  status = foci_plan_create(ctx, c->spec, &p, plan);

    if (status == FOCI_ERR_UNSUP && c->pass == PASS_STEP && p.len_q != p.len_k) {
        p.len_q = p.len_k;
        status = foci_plan_create(ctx, c->spec, &p, plan);
    }
    return status;
}

/* On a device, which has no pools, a step is its queries with all keys at once. */
static foci_status run_step(foci_ctx *ctx, const foci_plan *plan,
                            const struct bench_case *c, int reps, double time,
                            struct bench_result *r)
{
    struct bench_case forward = *c;

    if (!on_device(ctx)) return bench_step(ctx, plan, NULL, c, reps, time, r);
    forward.pass = PASS_FWD;
    return run_plan(ctx, plan, &forward, reps, time, r);
}

static void count(foci_ctx *ctx, const foci_plan *plan, const struct bench_case *c,
                  struct bench_result *r)
{
    const bool          forward = c->pass != PASS_BWD;
    const bool          backward = c->pass == PASS_BWD || c->pass == PASS_BOTH;
    const foci_problem *p = &c->problem;
    foci_cost           cost = { FOCI_SIZED(foci_cost) };

    foci_plan_cost(plan, &cost);
    if (c->pass == PASS_STEP) bench_step_cost(ctx, c, &cost);
    r->flops =
        (forward ? cost.forward_flops : 0) + (backward ? cost.backward_flops : 0);
    r->bytes =
        (forward ? cost.forward_bytes : 0) + (backward ? cost.backward_bytes : 0);
    const double all =
        (double)(p->batch * p->heads) * (double)p->len_q * (double)p->len_k;
    r->pairs = cost.pairs;
    r->density = all > 0 ? cost.pairs / all : 0;
    r->tiles_full = cost.tiles_full;
    r->tiles_part = cost.tiles_part;
    r->tiles_skipped = cost.tiles_skipped;
    r->work_bytes = foci_plan_work_bytes(plan);
    r->saved_bytes = foci_plan_saved_bytes(plan);
    r->plan = plan_text(foci_plan_describe, plan);
}

int bench_run(const struct args *a, foci_ctx *ctx, const struct bench_case *c, int reps,
              double time, struct bench_result *r)
{
    foci_plan *plan;
    *r = (struct bench_result){ 0 };
    if (c->is_layer) return bench_layer(a, ctx, c, reps, time, r);
    foci_status status = bench_plan(ctx, c, &plan);
    if (status != FOCI_OK) return library_error(a, ctx, status, c->text);

    count(ctx, plan, c, r);
    status = c->pass == PASS_STEP ? run_step(ctx, plan, c, reps, time, r)
                                  : run_plan(ctx, plan, c, reps, time, r);
    foci_plan_free(plan);
    return status == FOCI_OK ? EXIT_OK
                             : failure(a, "%s: execution failed: %s", c->text,
                                       device_reason(ctx, status));
}

void bench_release(struct bench_result *r) { free(r->plan); }
