/* judge.c -- foci_ref_*(): the public face of the interpreter. */
#include <stdlib.h>

#include "api/check.h"
#include "ref/ref.h"

/* The caller's structs as whole ones. */
struct judge_call {
    foci_io    io;
    foci_grads grads;
};

/* As for the engines, but without scratch memory; the output may be missing where
 * it is not written. */
static foci_status judge_check(const foci_plan *plan, const foci_io *io,
                               const foci_grads *grads, bool needs_o,
                               struct judge_call *call)
{
    char    nowhere, text[400];
    foci_io it;

    TRY(plan_whole_io(plan, io, grads, &call->io, &call->grads));
    it = call->io;
    if (!needs_o) it.o = &nowhere;
    foci_status status =
        plan_check_io(plan, &it, grads ? &call->grads : NULL, text, sizeof text);
    if (!status) status = plan_check_engines(plan, &it, text, sizeof text);
    return status ? ctx_fail(plan->ctx, status, "%s", text) : FOCI_OK;
}

static double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* Parameters, their gradients and lse are floats outside and doubles inside. */
static foci_status judge_run(const foci_plan *plan, const foci_io *io,
                             const foci_grads *grads, float *weights)
{
    const foci_problem *p = &plan->p;
    const int64_t       rows = p->batch * p->heads * p->len_q;
    double             *params = doubles(plan->n_floats);
    double             *dparams = doubles(plan->n_floats);
    double             *lse = doubles(io->lse ? rows : 0);
    foci_status         status = FOCI_OK;

    if (!params || !dparams || !lse) {
        status = ctx_fail(plan->ctx, FOCI_ERR_MEMORY, "no memory for the judge");
        goto end;
    }
    for (int64_t t = 0; t < plan->n_floats; t++)
        params[t] = (double)io->params[t];
    status = ref_run(&(struct ref_call){ .plan = plan,
                                         .io = io,
                                         .grads = grads,
                                         .type = (int)p->dtype,
                                         .params = params,
                                         .lse = io->lse ? lse : NULL,
                                         .dparams = dparams,
                                         .weights = weights });
    if (status != FOCI_OK) goto end;

    if (grads)
        for (int64_t t = 0; grads->dparams && t < plan->n_floats; t++)
            grads->dparams[t] += (float)dparams[t];
    else
        for (int64_t t = 0; io->lse && t < rows; t++)
            io->lse[t] = (float)lse[t];
end:
    free(params);
    free(dparams);
    free(lse);
    return status;
}

foci_status foci_ref_forward(const foci_plan *plan, const foci_io *io)
{
    struct judge_call call;

    TRY(judge_check(plan, io, NULL, true, &call));
    return judge_run(plan, &call.io, NULL, NULL);
}

foci_status foci_ref_backward(const foci_plan *plan, const foci_io *io,
                              const foci_grads *grads)
{
    struct judge_call call;

    if (!grads)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_ref_backward: grads is NULL");
    TRY(judge_check(plan, io, grads, false, &call));
    return judge_run(plan, &call.io, &call.grads, NULL);
}

/* Why no one matrix takes v to o; NULL: one does. */
static const char *no_weights(const foci_mech *m)
{
    foci_positional p = { .parts = 1 };

    if (m->def->engine == FOCI_ENGINE_ROUTED)
        return "its routes have values of their own";
    if (m->def->engine == FOCI_ENGINE_MEMFORMER)
        return "rows are made of slots, which are normalised on the way from the "
               "values";
    if (m->def->positional) m->def->positional(m, 0, &p);
    return p.parts > 1 ? "the elements of a value have weights of their own" : NULL;
}

static foci_status check_weights(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct plan_group *group = &plan->spec.groups[g];
        const char              *why = no_weights(&group->mech);
        if (why)
            return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                            "column %d: %s has no matrix of weights: %s", group->column,
                            group->mech.def->name, why);
    }
    return FOCI_OK;
}

/*
 * Weights, some rows at a time
 */

bool ref_whole(const foci_mech *m)
{
    foci_order order = { .chunk = 0 };

    if (m->def->order) m->def->order(m, &order);
    return order.topk || order.chunk || (m->def->two_pass && m->def->two_pass(m));
}

foci_status ref_weigher_open(struct ref_weigher *w, const foci_plan *plan,
                             const foci_io *io)
{
    struct judge_call call;

    *w = (struct ref_weigher){ .plan = plan };
    TRY(judge_check(plan, io, NULL, false, &call));
    TRY(check_weights(plan));
    w->io = call.io;
    w->io.o = NULL;
    w->io.lse = NULL;
    w->params = doubles(plan->n_floats);
    if (!w->params)
        return ctx_fail(plan->ctx, FOCI_ERR_MEMORY, "no memory for the judge");
    for (int64_t t = 0; t < plan->n_floats; t++)
        w->params[t] = (double)io->params[t];
    return FOCI_OK;
}

void ref_weigher_close(struct ref_weigher *w)
{
    free(w->params);
    w->params = NULL;
}

foci_status ref_weigher_run(const struct ref_weigher *w, const struct ref_slice *slice,
                            float *weights)
{
    return ref_run(&(struct ref_call){ .plan = w->plan,
                                       .io = &w->io,
                                       .type = (int)w->plan->p.dtype,
                                       .params = w->params,
                                       .weights = weights,
                                       .slice = slice });
}

foci_status foci_ref_weights(const foci_plan *plan, const foci_io *io, float *weights)
{
    struct judge_call call;

    if (!weights)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_ref_weights: weights is NULL");
    TRY(judge_check(plan, io, NULL, false, &call));
    TRY(check_weights(plan));
    call.io.o = NULL;
    call.io.lse = NULL;
    return judge_run(plan, &call.io, NULL, weights);
}
