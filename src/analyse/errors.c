/* errors.c -- how far the output of a plan is from that of softmax attention. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/check.h"
#include "foci/analyse.h"
#include "layer/layer.h"
#include "plan/groups.h"
#include "plan/plan.h"
#include "ref/ref.h"

enum { ALIGNED = 64 };

/* Softmax in place of a group of heads of another plan, with memory of its own. */
struct softmax {
    const foci_plan         *other;
    const struct plan_group *group;
    bool                     modified; /* with the modifiers of the group */
    foci_plan               *plan;
    size_t                   bytes;
    char                    *block; /* work, and o behind it */
    char                    *work, *o;
};

static const foci_mech_def *find_softmax(const foci_ctx *ctx)
{
    const foci_mech_def *def = NULL;

    for (int i = 0; (def = foci_mechanism(ctx, i)); i++)
        if (!strcmp(def->name, "softmax")) break;
    return def;
}

static void print_spec(const struct softmax *s, char *text, size_t cap)
{
    struct plan_group g = { .mech = s->group->mech };

    g.mech.def = find_softmax(s->other->ctx);
    g.mech.inner = NULL;
    if (!s->modified) g.mech.n_mods = 0;
    spec_print(&(struct spec){ &g, 1 }, text, cap);
}

/* The parameters of modifiers follow one another, those of softmax are none but these. */
static const float *params_of(const struct softmax *s, const float *params)
{
    const struct plan_group *g = s->group;

    for (size_t i = 0; s->plan->n_floats && i < g->mech.n_mods; i++)
        for (size_t t = 0; t < g->mech.mods[i].def->n_tensors; t++)
            if (g->mod_param[i][t] >= 0) return params + g->mod_param[i][t];
    return NULL;
}

/* Whatever only the other mechanism reads or needs is left out. */
static foci_problem problem_of(const struct softmax *s)
{
    foci_problem p = s->other->p;

    p.flags &= ~(uint32_t)(FOCI_FLAG_TRAIN | FOCI_FLAG_FAST);
    p.heads = s->group->heads;
    p.kv_heads = s->group->kv_heads;
    if (p.mask_heads > 1) p.mask_heads = p.heads;
    p.o = p.x = (foci_layout){ 0 };
    p.lists = NULL;
    p.n_lists = p.dim_x = 0;
    p.dropout = 0;
    return p;
}

static foci_status open_softmax(struct softmax *s)
{
    foci_ctx          *ctx = s->other->ctx;
    const foci_problem p = problem_of(s);
    char               spec[1024];

    if (p.mask_heads > 1 && p.mask_batch > 1 && p.heads < s->other->p.heads)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "heads of a mix that have masks of their own in every sequence "
                        "are not compared");
    print_spec(s, spec, sizeof spec);
    TRY(foci_plan_create(ctx, spec, &p, &s->plan));
    const size_t work = foci_plan_work_bytes(s->plan);
    const size_t o =
        (size_t)(p.batch * p.heads * p.len_q * p.dim_v) * foci_dtype_bytes(p.dtype);
    s->bytes = work + o + 2 * (size_t)ALIGNED;
    s->block = ctx_alloc(ctx, s->bytes, 1);
    if (!s->block) return FOCI_ERR_MEMORY;
    s->work = s->block + (ALIGNED - (uintptr_t)s->block % ALIGNED);
    s->o = s->work + work;
    return FOCI_OK;
}

static void close_softmax(struct softmax *s)
{
    if (s->block) ctx_free(s->other->ctx, s->block, s->bytes, 1);
    foci_plan_free(s->plan);
}

/* The first of the group's heads in a tensor of all. */
static const void *heads_from(const struct softmax *s, const void *all,
                              const foci_layout *l, int64_t head)
{
    const int64_t elements = head * l->head;
    return (const void *)((uintptr_t)all +
                          (uintptr_t)elements * foci_dtype_bytes(s->other->p.dtype));
}

/* What softmax reads of io. */
static foci_status softmax_io(const struct softmax *s, const foci_io *io, foci_io *out)
{
    const foci_problem *p = &s->other->p;
    const int64_t masks = p->mask_heads > 1 ? s->group->head0 * p->len_q * p->len_k : 0;
    foci_io       it;
    foci_grads    none;

    TRY(plan_whole_io(s->other, io, NULL, &it, &none));
    it.q = heads_from(s, it.q, &p->q, s->group->head0);
    it.k = heads_from(s, it.k, &p->k, s->group->kv0);
    it.v = heads_from(s, it.v, &p->v, s->group->kv0);
    it.x = NULL;
    if (it.mask) it.mask += masks;
    if (it.bias) it.bias += masks;
    it.lse = NULL;
    it.params = params_of(s, it.params);
    it.saved = NULL;
    it.o = s->o;
    it.work = s->work;
    *out = it;
    return FOCI_OK;
}

static foci_status run_softmax(const struct softmax *s, const foci_io *io)
{
    foci_io it;

    TRY(softmax_io(s, io, &it));
    return foci_forward(s->plan, &it);
}

/* Of head h of the group. */
static double error_of(const struct softmax *s, const void *o, int64_t h)
{
    const foci_problem *p = &s->other->p;
    const foci_layout  *at = &p->o, *to = &s->plan->p.o;
    const int64_t       head = (s->group->head0 + h) * at->head;
    const int           type = (int)p->dtype;
    double              far = 0, all = 0;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->len_q; i++)
            for (int64_t c = 0; c < p->dim_v; c++) {
                const double x =
                    ref_load(type, o, b * at->batch + i * at->row + head + c);
                const double y = ref_load(
                    type, s->o, b * to->batch + i * to->row + h * to->head + c);
                far += (x - y) * (x - y);
                all += y * y;
            }
    return far == 0 ? 0 : sqrt(far / all);
}

/* The output of the other plan is in io->o. */
static foci_status compare(const foci_plan *plan, int group, bool modified,
                           const foci_io *io, double *errors)
{
    struct softmax s = { .other = plan,
                         .group = &plan->spec.groups[group],
                         .modified = modified };

    foci_status status = open_softmax(&s);
    if (!status) status = run_softmax(&s, io);
    for (int64_t h = 0; !status && h < s.group->heads; h++)
        errors[s.group->head0 + h] = error_of(&s, io->o, h);
    close_softmax(&s);
    return status;
}

foci_status foci_softmax_errors(const foci_plan *plan, const foci_io *io, double *errors)
{
    if (!plan || !errors)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_softmax_errors: %s is NULL", plan ? "errors" : "plan");
    TRY(foci_forward(plan, io));
    for (int g = 0; g < plan->spec.n_groups; g++)
        TRY(compare(plan, g, false, io, errors));
    return FOCI_OK;
}

/*
 * Weights
 */

/* Both sides of a group, head by head of each sequence. */
struct both_weights {
    const struct softmax *s;
    struct ref_weigher    theirs, exact;
    int64_t               rows, step; /* that are compared, and between them */
    float                *a;          /* [threads][2][rows][len_k] */
    double               *sums;       /* [batch][heads][2] */
    foci_status          *status;     /* [threads] */
};

static void weights_job(void *arg, int64_t i, int thread)
{
    const struct both_weights *w = arg;
    const foci_problem        *p = &w->s->other->p;
    const int64_t              heads = w->s->group->heads, n = w->rows * p->len_k;
    struct ref_slice           slice = { i / heads,
                                         w->s->group->head0 + i % heads,
                                         { w->step / 2,
                                           w->step / 2 + (w->rows - 1) * w->step + 1 },
                                         w->step };
    float *const a = w->a + (ptrdiff_t)2 * thread * n, *const b = a + n;

    foci_status status = ref_weigher_run(&w->theirs, &slice, a);
    slice.head = i % heads;
    if (!status) status = ref_weigher_run(&w->exact, &slice, b);
    if (status) w->status[thread] = status;
    for (int64_t t = 0; t < n; t++) {
        const double x = (double)a[t], y = (double)b[t];
        w->sums[2 * i] += (x - y) * (x - y);
        w->sums[2 * i + 1] += y * y;
    }
}

static void carve_both(struct both_weights *w, struct arena *a)
{
    const foci_problem *p = &w->s->other->p;
    const int64_t       threads = w->s->other->ctx->threads;

    w->a = arena_alloc(a, threads * 2 * w->rows, (size_t)p->len_k * sizeof *w->a);
    w->sums = arena_alloc(a, p->batch * w->s->group->heads, 2 * sizeof *w->sums);
    w->status = arena_alloc(a, threads, sizeof *w->status);
}

static foci_status run_both(struct both_weights *w, double *errors)
{
    foci_ctx           *ctx = w->s->other->ctx;
    const foci_problem *p = &w->s->other->p;
    const int64_t       heads = w->s->group->heads;
    const struct phase  phase = {
         .n = p->batch * heads, .chunk = 1, .job = weights_job, .arg = w
    };

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, phase.n, 1e9), &phase,
               1);
    for (int t = 0; t < ctx->threads; t++)
        if (w->status[t])
            return ctx_fail(ctx, w->status[t], "the weights cannot be computed: %s",
                            foci_status_text(w->status[t]));
    for (int64_t h = 0; h < heads; h++) {
        double far = 0, all = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            far += w->sums[2 * (b * heads + h)];
            all += w->sums[2 * (b * heads + h) + 1];
        }
        errors[w->s->group->head0 + h] = far == 0 ? 0 : sqrt(far / all);
    }
    return FOCI_OK;
}

static foci_status compare_rows(struct both_weights *w, double *errors)
{
    foci_ctx    *ctx = w->s->other->ctx;
    struct arena a = { 0 };

    carve_both(w, &a);
    if (!arena_ok(&a))
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "%" PRId64 " rows are too many", w->rows);
    const size_t bytes = a.used;
    a = (struct arena){ .base = ctx_alloc(ctx, bytes, 1) };
    if (!a.base) return FOCI_ERR_MEMORY;
    carve_both(w, &a);
    const foci_status status = run_both(w, errors);
    ctx_free(ctx, a.base, bytes, 1);
    return status;
}

/* Of the heads of a group, of so many rows of each sequence. */
static foci_status compare_weights(const struct ref_weigher *all, int group,
                                   int64_t rows, double *errors)
{
    struct softmax s = { .other = all->plan, .group = &all->plan->spec.groups[group] };
    struct both_weights w = {
        .s = &s, .theirs = *all, .rows = rows, .step = all->plan->p.len_q / rows
    };
    foci_io it;

    foci_status status = open_softmax(&s);
    if (!status) status = softmax_io(&s, &all->io, &it);
    if (!status) {
        status = ref_weigher_open(&w.exact, s.plan, &it);
        if (!status) status = compare_rows(&w, errors);
        ref_weigher_close(&w.exact);
    }
    close_softmax(&s);
    return status;
}

foci_status foci_softmax_weight_errors(const foci_plan *plan, const foci_io *io,
                                       int64_t rows, double *errors)
{
    struct ref_weigher all;

    if (!plan || !errors || rows < 0)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_softmax_weight_errors: %s",
                        !plan     ? "plan is NULL"
                        : !errors ? "errors is NULL"
                                  : "rows is negative; it takes 0 (all) or more");
    for (int64_t h = 0; h < plan->p.heads; h++)
        errors[h] = NAN;
    foci_status status = ref_weigher_open(&all, plan, io);
    if (status == FOCI_ERR_UNSUP) return FOCI_OK;
    TRY(status);
    const int64_t n = rows && rows < plan->p.len_q ? rows : plan->p.len_q;
    if (all.io.docs)
        status = ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                          "the weights of packed documents are not compared");
    for (int g = 0; g < plan->spec.n_groups && n && !status; g++)
        status = compare_weights(&all, g, n, errors);
    ref_weigher_close(&all);
    return status;
}

/*
 * Layers
 */

/* Whether the heads of a group read what softmax does. */
static bool reads_all(const foci_plan *plan, int group)
{
    const unsigned all = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V;
    foci_group     g = { FOCI_SIZED(foci_group) };

    return !foci_plan_group(plan, group, &g) && (g.reads & all) == all &&
           g.kv_heads > 0 && g.heads % g.kv_heads == 0;
}

foci_status foci_layer_softmax_errors(const foci_layer *layer, const foci_layer_io *io,
                                      double *errors)
{
    foci_io heads = { FOCI_SIZED(foci_io) };

    if (!layer || !errors)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_layer_softmax_errors: %s is NULL",
                        layer ? "errors" : "the layer");
    const foci_plan *plan = layer->plan;
    TRY(foci_layer_heads(layer, io, &heads));
    TRY(foci_forward(plan, &heads));
    for (int64_t h = 0; h < plan->p.heads; h++)
        errors[h] = NAN;
    for (int g = 0; g < plan->spec.n_groups; g++)
        if (reads_all(plan, g)) TRY(compare(plan, g, true, &heads, errors));
    return FOCI_OK;
}
