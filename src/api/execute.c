/* execute.c -- executions: check the arguments, run the stages. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/check.h"

/* Where the sentence of a refusal goes. */
struct execute_out {
    char  *text;
    size_t cap;
};

static foci_status refuse(struct execute_out out, const char *format, ...)
    PRINTF_LIKE(2, 3);

static foci_status refuse(struct execute_out out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out.text, out.cap, format, args);
    va_end(args);
    return FOCI_ERR_ARG;
}

static unsigned reads(const foci_plan *plan)
{
    unsigned all = 0;
    for (int g = 0; g < plan->spec.n_groups; g++)
        all |= stage_reads(&plan->stages[g]);
    return all;
}

static foci_status check_tensors(const foci_plan *plan, const foci_io *io,
                                 struct execute_out out)
{
    const foci_problem *p = &plan->p;
    const unsigned      needs = reads(plan);
    const bool          q = p->batch && p->len_q, k = p->batch && p->len_k;

    if (q && !io->o) return refuse(out, "io.o is NULL: the output needs a place");
    if (q && needs & FOCI_READ_Q && !io->q)
        return refuse(out, "io.q is NULL, and this mechanism reads queries");
    if (k && needs & FOCI_READ_K && !io->k)
        return refuse(out, "io.k is NULL, and this mechanism reads keys");
    if (k && needs & FOCI_READ_V && !io->v)
        return refuse(out, "io.v is NULL, and this mechanism reads values");
    if (q && needs & FOCI_READ_X && !io->x)
        return refuse(out, "io.x is NULL, and this mechanism reads hidden states");
    if (q && needs & FOCI_READ_WORDS && !io->words)
        return refuse(out, "io.words is NULL, and this mechanism reads words");
    if (plan->n_floats && !io->params)
        return refuse(out,
                      "io.params is NULL: this plan has %" PRId64
                      " parameters; draw them by foci_params_init()",
                      plan->n_floats);
    if (!(p->flags & FOCI_FLAG_MASK) != !io->mask)
        return refuse(
            out,
            io->mask
                ? "io.mask is given, but the problem was planned without FOCI_FLAG_MASK"
                : "io.mask is NULL, but the problem was planned with FOCI_FLAG_MASK");
    if (!(p->flags & FOCI_FLAG_BIAS) != !io->bias)
        return refuse(
            out,
            io->bias
                ? "io.bias is given, but the problem was planned without FOCI_FLAG_BIAS"
                : "io.bias is NULL, but the problem was planned with FOCI_FLAG_BIAS");
    return FOCI_OK;
}

/* Lengths of an entry that are not the same, where they have to be. */
static foci_status check_pairs(const foci_plan *plan, const foci_io *io,
                               struct execute_out out)
{
    const foci_problem *p = &plan->p;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech *m = &plan->spec.groups[g].mech;

        for (int64_t b = 0; mech_paired(m) && b < p->batch; b++) {
            const int64_t nq = io->len_q ? io->len_q[b] : p->len_q;
            const int64_t nk = io->len_k ? io->len_k[b] : p->len_k;
            if (nq != nk)
                return refuse(out,
                              "entry %" PRId64 " has %" PRId64 " queries and %" PRId64
                              " keys: %s needs as many of both",
                              b, nq, nk, m->def->name);
        }
    }
    return FOCI_OK;
}

static foci_status check_lengths(const foci_plan *plan, const foci_io *io,
                                 struct execute_out out)
{
    const foci_problem *p = &plan->p;

    for (int64_t b = 0; b < p->batch; b++) {
        if (io->len_q && (io->len_q[b] < 0 || io->len_q[b] > p->len_q))
            return refuse(out,
                          "len_q[%" PRId64 "] is %" PRId32 ": it may be 0 to %" PRId64,
                          b, io->len_q[b], p->len_q);
        if (io->len_k && (io->len_k[b] < 0 || io->len_k[b] > p->len_k))
            return refuse(out,
                          "len_k[%" PRId64 "] is %" PRId32 ": it may be 0 to %" PRId64,
                          b, io->len_k[b], p->len_k);
    }
    TRY(check_pairs(plan, io, out));
    if (!io->docs) return FOCI_OK;
    if (io->len_q || io->len_k)
        return refuse(
            out, "docs and lengths are both given: documents have their own lengths");
    if (io->n_docs < 0 || io->n_docs > p->max_docs)
        return refuse(out,
                      "n_docs is %" PRId64 ": this plan takes 0 to %" PRId64
                      " (problem.max_docs)",
                      io->n_docs, p->max_docs);
    for (int64_t d = 0; d <= io->n_docs; d++)
        if (io->docs[d] < (d ? io->docs[d - 1] : 0) || io->docs[d] > p->len_q)
            return refuse(out,
                          "docs[%" PRId64 "] is %" PRId32
                          ": offsets start at 0 or more, never fall and end at %" PRId64
                          " at most",
                          d, io->docs[d], p->len_q);
    return FOCI_OK;
}

static foci_status check_grads(const foci_plan *plan, const foci_io *io,
                               const foci_grads *g, struct execute_out out)
{
    if (!(plan->p.flags & FOCI_FLAG_TRAIN))
        return refuse(out, "the problem was planned without FOCI_FLAG_TRAIN");
    if (plan->p.batch && plan->p.len_q && !g->d_o)
        return refuse(out, "grads.d_o is NULL: the gradient of the output is needed");
    if (g->dbias && !io->bias)
        return refuse(out, "grads.dbias is given, but the problem was planned without "
                           "FOCI_FLAG_BIAS: there is no bias to have a gradient");
    return FOCI_OK;
}

foci_status plan_check_io(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, char *text, size_t cap)
{
    const struct execute_out out = { text, cap };

    TRY(check_tensors(plan, io, out));
    TRY(check_lengths(plan, io, out));
    return grads ? check_grads(plan, io, grads, out) : FOCI_OK;
}

/* The same of memory of a device: lengths cannot be looked at. */
static foci_status check_io_there(const foci_plan *plan, const foci_io *io,
                                  const foci_grads *grads, struct execute_out out)
{
    TRY(check_tensors(plan, io, out));
    TRY(device_check_io(plan, io, grads, out.text, out.cap));
    return grads ? check_grads(plan, io, grads, out) : FOCI_OK;
}

foci_status plan_check_engines(const foci_plan *plan, const foci_io *io, char *text,
                               size_t cap)
{
    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct stage  *s = &plan->stages[i];
        const struct engine *e = s->engine;
        if (e->check) TRY(e->check(plan, s, io, text, cap));
    }
    return FOCI_OK;
}

foci_status plan_whole_io(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, foci_io *whole,
                          foci_grads *whole_grads)
{
    memset(whole_grads, 0, sizeof *whole_grads);
    if (!plan) return ctx_fail(NULL, FOCI_ERR_ARG, "the plan is NULL");
    TRY(sized_in(plan->ctx, "foci_io", whole, io, sizeof *whole));
    return grads ? sized_in(plan->ctx, "foci_grads", whole_grads, grads,
                            sizeof *whole_grads)
                 : FOCI_OK;
}

static foci_status check_memory(const foci_plan *plan, const foci_io *io, bool backward,
                                struct execute_out out)
{
    if (plan->work_bytes && !io->work)
        return refuse(out, "io.work is NULL: this plan needs %zu bytes",
                      plan->work_bytes);
    if ((uintptr_t)io->work % 64) return refuse(out, "io.work is not 64-byte aligned");
    if ((uintptr_t)io->saved % 64)
        return refuse(out, "io.saved is not 64-byte aligned");
    if (backward && plan->saved_bytes && !io->saved)
        return refuse(out,
                      "io.saved is NULL: give forward and backward the same %zu bytes",
                      plan->saved_bytes);
    return FOCI_OK;
}

/* All of it, on whole structs. */
static foci_status check_all(const foci_plan *plan, const foci_io *io,
                             const foci_grads *grads, struct execute_out out)
{
    TRY(plan->ctx->device ? check_io_there(plan, io, grads, out)
                          : plan_check_io(plan, io, grads, out.text, out.cap));
    return check_memory(plan, io, grads, out);
}

/* The start of foci_forward() and, with grads, of foci_backward(): the structs of the
 * caller completed and checked.  A refusal is the message of the plan's context.  Advance and
 * calibrate write no tensors and check parameters themselves: with `computes` false the
 * checks of outputs and of engines are left out. */
static foci_status open_call(const foci_plan *plan, const foci_io *io,
                             const foci_grads *grads, bool computes, foci_io *whole,
                             foci_grads *whole_grads)
{
    char                     text[400];
    const struct execute_out out = { text, sizeof text };

    TRY(plan_whole_io(plan, io, grads, whole, whole_grads));
    foci_status status = check_all(plan, whole, grads ? whole_grads : NULL, out);
    if (!status && computes)
        status =
            overlap_check(plan, whole, grads ? whole_grads : NULL, text, sizeof text);
    if (!status && computes)
        status = plan_check_engines(plan, whole, text, sizeof text);
    return status ? ctx_fail(plan->ctx, status, "%s", text) : FOCI_OK;
}

foci_status foci_io_check(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, char *text, size_t cap)
{
    foci_io           whole;
    foci_grads        whole_grads;
    const foci_status status = open_call(plan, io, grads, true, &whole, &whole_grads);

    snprintf(text, cap, "%s", status ? foci_errmsg(NULL) : "");
    return status;
}

/* A pass over all stages. */
struct execute_pass {
    const struct execution *run;
    const foci_io          *io;
    const foci_grads       *grads; /* NULL: forward */
};

/* The gradients that a stage writes: those of the inputs that it reads. */
static foci_grads grads_of(const struct stage *s, const foci_grads *all)
{
    const unsigned reads = stage_reads(s);
    foci_grads     g = *all;

    if (!g.skip_unread) return g;
    if (!(reads & FOCI_READ_Q)) g.dq = NULL;
    if (!(reads & FOCI_READ_K)) g.dk = NULL;
    if (!(reads & FOCI_READ_V)) g.dv = NULL;
    return g;
}

static void run_stage(void *arg, int64_t i)
{
    const struct execute_pass *pass = arg;
    const foci_plan           *plan = pass->run->plan;
    const struct stage        *s = &plan->stages[plan->by_cost[i]];
    const struct engine       *e = s->engine;
    float  *saved = plan->saved_bytes ? (float *)pass->io->saved : NULL;
    foci_io mine = *pass->io;

    if (saved) saved += s->saved0;
    if (mine.work) mine.work = (char *)mine.work + s->work0;
    if (pass->grads) {
        const foci_grads grads = grads_of(s, pass->grads);
        e->backward(pass->run, s, &mine, saved, &grads);
    } else
        e->forward(pass->run, s, &mine, saved);
}

/* Whether several stages add to the same gradient, which they then do in turn. */
static bool adds_twice(const foci_plan *plan, const foci_grads *grads)
{
    int n = 0;

    if (!grads) return false;
    for (int i = 0; i < plan->spec.n_groups; i++)
        n += grads->dx && mech_reads(&plan->spec.groups[i].mech) & FOCI_READ_X;
    return grads->dbias || n > 1;
}

/* The most expensive first, so that cheap ones fill the gaps at the end. */
static foci_status run_stages(const foci_plan *plan, const foci_io *io,
                              const foci_grads *grads)
{
    int fault = 0;

    const int    n = plan->spec.n_groups;
    const double flops = grads ? plan->cost.backward_flops : plan->cost.forward_flops;
    const int    threads = jobs_threads(plan->ctx->threads, INT64_MAX, flops);
    const bool   shared =
        n > 1 && threads > 1 && !plan->ctx->device && !adds_twice(plan, grads);
    const struct execution run = { .plan = plan, .shared = shared, .fault = &fault };
    struct execute_pass    pass = { &run, io, grads };

    if (shared) jobs_share(&plan->ctx->kernels, threads, n, run_stage, &pass);
    for (int i = 0; i < n && !shared && !fault; i++)
        run_stage(&pass, i);
    return fault ? device_status(plan->ctx, fault, "launching") : FOCI_OK;
}

foci_status foci_forward(const foci_plan *plan, const foci_io *io)
{
    foci_io    whole;
    foci_grads none;

    TRY(open_call(plan, io, NULL, true, &whole, &none));
    return run_stages(plan, &whole, NULL);
}

/* The stages that read x add to its gradient. */
static void clear_dx(const foci_plan *plan, void *dx)
{
    const foci_problem *p = &plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    for (int64_t b = 0; dx && b < p->batch; b++)
        for (int64_t i = 0; i < p->len_q; i++)
            memset((char *)dx + (size_t)(b * p->x.batch + i * p->x.row) * el, 0,
                   (size_t)p->dim_x * el);
}

/* All stages add to that of the bias. */
static void clear_dbias(const foci_plan *plan, float *dbias)
{
    const foci_problem *p = &plan->p;
    const int64_t       n = p->mask_batch * p->mask_heads * p->len_q * p->len_k;

    if (dbias) memset(dbias, 0, (size_t)n * sizeof *dbias);
}

foci_status foci_backward(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads)
{
    foci_io    whole;
    foci_grads whole_grads;

    if (!grads)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_backward: grads is NULL");
    TRY(open_call(plan, io, grads, true, &whole, &whole_grads));
    if (plan->ctx->device)
        TRY(device_clear_dbias(plan, &whole, &whole_grads));
    else {
        clear_dx(plan, whole_grads.dx);
        clear_dbias(plan, whole_grads.dbias);
    }
    return run_stages(plan, &whole, &whole_grads);
}

/* One of the two functions of an engine that change parameters. */
static foci_status change_params(const foci_plan *plan, const foci_io *io,
                                 bool calibrate, float *params)
{
    foci_io    whole;
    foci_grads none;

    TRY(open_call(plan, io, NULL, false, &whole, &none));
    if (plan->n_floats && !params)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "params is NULL: there is nothing to %s",
                        calibrate ? "calibrate" : "advance");
    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct stage  *s = &plan->stages[i];
        const struct engine *e = s->engine;
        foci_status (*change)(const foci_plan *, const struct stage *, const foci_io *,
                              float *) = calibrate ? e->calibrate : e->advance;
        if (change) TRY(change(plan, s, &whole, params));
    }
    return FOCI_OK;
}

foci_status foci_params_advance(const foci_plan *plan, const foci_io *io, float *params)
{
    return change_params(plan, io, false, params);
}

foci_status foci_params_calibrate(const foci_plan *plan, const foci_io *io,
                                  float *params)
{
    return change_params(plan, io, true, params);
}
