/* errors.c -- how far the output of a plan is from that of softmax attention. */
#include <math.h>

#include "api/check.h"
#include "foci/analyse.h"
#include "plan/plan.h"
#include "ref/ref.h"

enum { ALIGNED = 64 };

/* Softmax on the problem of another plan, with memory of its own. */
struct softmax {
    foci_plan *plan;
    size_t     bytes;
    char      *block; /* work, and o behind it */
    char      *work, *o;
};

/* Whatever only the other mechanism reads or needs is left out. */
static foci_status open_softmax(const foci_plan *plan, struct softmax *s)
{
    foci_problem p = plan->p;

    *s = (struct softmax){ 0 };
    p.flags &= ~(uint32_t)(FOCI_FLAG_TRAIN | FOCI_FLAG_FAST);
    p.o = p.x = (foci_layout){ 0 };
    p.lists = NULL;
    p.n_lists = p.dim_x = 0;
    p.dropout = 0;
    TRY(foci_plan_create(plan->ctx, "softmax", &p, &s->plan));
    const size_t work = foci_plan_work_bytes(s->plan);
    const size_t o =
        (size_t)(p.batch * p.heads * p.len_q * p.dim_v) * foci_dtype_bytes(p.dtype);
    s->bytes = work + o + 2 * (size_t)ALIGNED;
    s->block = ctx_alloc(plan->ctx, s->bytes, 1);
    if (!s->block) return FOCI_ERR_MEMORY;
    s->work = s->block + (ALIGNED - (uintptr_t)s->block % ALIGNED);
    s->o = s->work + work;
    return FOCI_OK;
}

static void close_softmax(const foci_plan *plan, struct softmax *s)
{
    if (s->block) ctx_free(plan->ctx, s->block, s->bytes, 1);
    foci_plan_free(s->plan);
}

static double error_of(const foci_plan *plan, const struct softmax *s, const void *o,
                       int64_t h)
{
    const foci_problem *p = &plan->p;
    const foci_layout  *at = &p->o, *to = &s->plan->p.o;
    const int           type = (int)p->dtype;
    double              far = 0, all = 0;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->len_q; i++)
            for (int64_t c = 0; c < p->dim_v; c++) {
                const double x =
                    ref_load(type, o, b * at->batch + i * at->row + h * at->head + c);
                const double y = ref_load(
                    type, s->o, b * to->batch + i * to->row + h * to->head + c);
                far += (x - y) * (x - y);
                all += y * y;
            }
    return far == 0 ? 0 : sqrt(far / all);
}

foci_status foci_softmax_errors(const foci_plan *plan, const foci_io *io, double *errors)
{
    struct softmax s;

    if (!plan || !errors)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_softmax_errors: %s is NULL", plan ? "errors" : "plan");
    TRY(foci_forward(plan, io));
    foci_status status = open_softmax(plan, &s);
    if (!status) {
        foci_io    it;
        foci_grads none;
        (void)plan_whole_io(plan, io, NULL, &it, &none);
        it.lse = NULL;
        it.params = NULL;
        it.saved = NULL;
        it.o = s.o;
        it.work = s.work;
        status = foci_forward(s.plan, &it);
    }
    for (int64_t h = 0; !status && h < plan->p.heads; h++)
        errors[h] = error_of(plan, &s, io->o, h);
    close_softmax(plan, &s);
    return status;
}
