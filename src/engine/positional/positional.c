/* positional.c -- the positional engine: geometry, memory and jobs. */
#include "engine/positional/positional.h"

#include <assert.h>
#include <string.h>

/* Results of so many bytes leave the caches before they are read. */
static const double non_temporal_bytes = 0x1p25;

foci_positional positional_kind(const struct positional *x, int64_t h)
{
    const foci_mech *m = &x->stage->group->mech;
    foci_positional  p = { 0 };

    m->def->positional(m, h, &p);
    return p;
}

void positional_geometry(struct positional *x, const foci_plan *plan,
                         const struct stage *s)
{
    const foci_problem *p = &plan->p;

    *x = (struct positional){
        .plan = plan,
        .p = p,
        .stage = s,
        .k = &plan->ctx->kernels,
        .dv = (int)p->dim_v,
        .ldv = (int)round_up(p->dim_v, 16),
        .ldx = (int)round_up(p->dim_x, 16),
        .el = foci_dtype_bytes(p->dtype),
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
        .causal = p->flags & FOCI_FLAG_CAUSAL,
    };
    x->kind = positional_kind(x, 0);
    x->non_temporal = (double)p->batch * (double)p->len_q * (double)x->heads * x->dv *
                          (double)x->el >=
                      non_temporal_bytes;
}

void positional_scratch_carve(const struct positional *x, struct arena *a,
                              struct positional_scratch *r)
{
    const int64_t tile = max64((int64_t)ROWS * x->ldv, TILE_FLOATS);

    r->tile = arena_alloc(a, tile, sizeof *r->tile);
    r->tile2 = arena_alloc(a, tile, sizeof *r->tile2);
    r->mean = arena_alloc(a, 4 * max64(x->ldv, COLUMNS), sizeof *r->mean);
    r->word = arena_alloc(a, x->ldv, sizeof *r->word);
    r->offset = arena_alloc(a, x->ldv, sizeof *r->offset);
    r->factor = arena_alloc(a, ROWS, sizeof *r->factor);
    r->cubes = arena_alloc(a, div_up(ROWS, CUBE_ROWS), sizeof *r->cubes);
    positional_taps_scratch_carve(x, a, r);
}

void positional_thread_scratch(const struct positional *x, int thread,
                               struct positional_scratch *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    positional_scratch_carve(x, &mine, r);
}

/* Heads of one job.  Neighbouring heads have adjacent rows, so a job takes as many as
 * leave every thread its share.  Results do not depend on it. */
static int64_t job_heads(const struct positional *x)
{
    const int64_t share = x->heads * x->n_seqs / x->plan->ctx->threads;

    if (x->per_kv > 1) return 1;
    return max64(1, min64(x->heads, share));
}

/* The work memory of an execution; a null arena counts. */
static void carve_work(struct positional *x, const foci_io *io, bool backward,
                       struct arena *a)
{
    struct arena              one = { 0 };
    struct positional_scratch r;

    x->io = io;
    x->seqs = arena_alloc(a, x->max_seqs, sizeof *x->seqs);
    if (backward && x->per_kv > 1)
        x->dv_rows = arena_alloc(a, x->kv_heads * x->p->batch * x->p->len_k,
                                 (size_t)x->ldv * sizeof *x->dv_rows);
    positional_taps_carve(x, backward, a);
    positional_scratch_carve(x, &one, &r);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_alloc(a, x->plan->ctx->threads, x->scratch_bytes);
    if (!a->base) return;
    x->n_seqs = plan_seqs(x->plan, io, x->seqs);
    assert(x->n_seqs <= x->max_seqs);
    x->job_heads = job_heads(x);
}

/*
 * Jobs
 */

struct positional_head positional_head_of(const struct positional *x, int64_t seq,
                                          int64_t h)
{
    return (struct positional_head){ .s = &x->seqs[seq],
                                     .kind = positional_kind(x, h),
                                     .h = h,
                                     .kv = h / x->per_kv,
                                     .first = h % x->per_kv == 0,
                                     .width = x->dv,
                                     .ld = x->ldv,
                                     .rows = ROWS };
}

/* Whether rows of neighbouring heads are adjacent in both tensors, without padding. */
static bool adjacent(const struct positional *x)
{
    return x->p->v.head == x->dv && x->p->o.head == x->dv && x->dv == x->ldv &&
           x->per_kv == 1;
}

/* Merge `at` with the heads after it, below `end`, that have its pattern: their
 * number. */
static int64_t merge_heads(const struct positional *x, struct positional_head *at,
                           int64_t end)
{
    int64_t n = 1;

    if (!adjacent(x) || at->kind.words) return 1;
    while (at->h + n < end && (n + 1) * x->dv <= COLUMNS &&
           positional_kind(x, at->h + n).pattern == at->kind.pattern)
        n++;
    at->width = at->ld = (int)(n * x->dv);
    at->rows = (int)min64(ROWS, TILE_FLOATS / at->ld);
    return n;
}

static void forward_job(void *arg, int64_t i, int thread)
{
    const struct positional  *x = arg;
    const int64_t             jobs = div_up(x->heads, x->job_heads);
    const int64_t             seq = i / jobs, h0 = i % jobs * x->job_heads;
    const int64_t             end = min64(h0 + x->job_heads, x->heads);
    struct positional_scratch r;

    positional_thread_scratch(x, thread, &r);
    if (!x->seqs[seq].nq) return;
    for (int64_t h = h0; h < end;) {
        struct positional_head at = positional_head_of(x, seq, h);

        if (positional_is_taps(&at.kind)) {
            positional_taps_forward(x, &at, end - h, &r);
            break;
        }
        h += merge_heads(x, &at, end);
        if (at.kind.words)
            positional_words_forward(x, &at, &r);
        else
            positional_scan_forward(x, &at, &r);
    }
    x->k->stream_end();
}

static void run_jobs(struct positional *x, int64_t                         jobs,
                     void (*job)(void *arg, int64_t i, int thread), double flops)
{
    phases_run(x->k, x->exec.shared, jobs_threads(x->plan->ctx->threads, jobs, flops),
               &(struct phase){ jobs, 1, job, x }, 1);
}

static void forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    const foci_plan  *plan = exec->plan;
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    carve_work(&x, io, false, &a);
    padding_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    run_jobs(&x, x.n_seqs * div_up(x.heads, x.job_heads), forward_job,
             plan->cost.forward_flops);
}

/* Round sums over heads to dv, and clear rows of the memory, which take no gradient. */
static void finish_dv(const struct positional *x, int64_t seq, int64_t kv,
                      struct positional_scratch *r)
{
    struct positional_head at = positional_head_of(x, seq, kv * x->per_kv);
    const int64_t          held = min64(x->stage->memory, at.s->nk);
    struct positional      plain = *x;

    plain.dv_rows = NULL;
    for (int64_t i = 0; x->dv_rows && i < at.s->nk; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, at.s->nk - i),
                            positional_shared_dv(x, &at, i));
    memset(r->tile, 0, (size_t)ROWS * (size_t)x->ldv * sizeof *r->tile);
    for (int64_t i = 0; i < held; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, held - i), r->tile);
}

static void backward_heads(const struct positional *x, int64_t seq, int64_t h0,
                           int64_t end, struct positional_scratch *r)
{
    for (int64_t h = h0; h < end;) {
        struct positional_head at = positional_head_of(x, seq, h);

        if (positional_is_taps(&at.kind)) {
            positional_taps_backward(x, &at, end - h, r);
            break;
        }
        h += merge_heads(x, &at, end);
        if (at.kind.words)
            positional_words_backward(x, &at, r);
        else
            positional_scan_backward(x, &at, r);
    }
}

static void backward_job(void *arg, int64_t i, int thread)
{
    const struct positional  *x = arg;
    const int64_t             jobs = div_up(x->kv_heads, x->job_heads);
    const int64_t             seq = i / jobs, kv0 = i % jobs * x->job_heads;
    const int64_t             end = min64(kv0 + x->job_heads, x->kv_heads);
    struct positional_scratch r;

    positional_thread_scratch(x, thread, &r);
    if (!x->seqs[seq].nk) return;
    backward_heads(x, seq, kv0 * x->per_kv, end * x->per_kv, &r);
    x->k->stream_end();
    for (int64_t kv = kv0; kv < end; kv++)
        finish_dv(x, seq, kv, &r);
    x->k->stream_end();
}

static void backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan  *plan = exec->plan;
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    x.exec = *exec;
    padding_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.p->dim_qk, true, true);
    padding_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.p->dim_qk, false, true);
    if (!x.max_seqs || !(g->dv || positional_is_taps(&x.kind))) return;
    carve_work(&x, io, true, &a);
    x.g = g;
    padding_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.dv, false, false);
    run_jobs(&x, x.n_seqs * div_up(x.kv_heads, x.job_heads), backward_job,
             plan->cost.backward_flops);
    if (positional_is_taps(&x.kind)) positional_taps_params_backward(&x);
}

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct positional x;
    struct arena      a = { 0 };

    positional_geometry(&x, plan, s);
    carve_work(&x, NULL, plan->p.flags & FOCI_FLAG_TRAIN, &a);
    return a.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

const struct engine engine_positional = {
    .name = "positional",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = positional_check,
    .cost = positional_cost,
    .describe = positional_describe,
    .decoder = &positional_decoder,
};
