/* linear_forward.c -- the linear engine's forward pass: what each job computes.
 *
 * With many heads a causal sequence is scanned chunk by chunk, one job for a few
 * heads.  With few heads, and without causality, segments are summed first
 * (linear_forward_segments.c).
 */
#include "engine/linear/linear_forward.h"
#include "engine/shared/padding.h"

/* From so many heads times sequences on, scanning whole sequences keeps all threads
 * busy. */
enum { ENOUGH_SEQUENCES = 8 };

static void linear_forward_carve(struct linear *x, const foci_io *io,
                                 struct linear_forward_pass *p, struct arena *a)
{
    struct arena one = { 0 };

    linear_open(x, io, a);
    *p = (struct linear_forward_pass){
        .x = x,
        .segments = !x->causal || x->heads * x->max_seqs < ENOUGH_SEQUENCES,
        .bidirectional = linear_bidirectional(x),
    };
    if (p->segments) p->before = linear_sums_carve(x, x->heads * x->max_segs, a);
    if (p->bidirectional) p->after = linear_sums_carve(x, x->heads * x->max_segs, a);
    linear_forward_scratch_carve(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_alloc(a, x->threads, one.used);
}

size_t linear_forward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct linear              x;
    struct linear_forward_pass p;
    struct arena               a = { 0 };

    linear_geometry(&x, plan, s);
    linear_forward_carve(&x, NULL, &p, &a);
    return a.used;
}

/* Scan n heads from h0 on, interleaved: a chunk of each in turn. */
static void scan_heads(const struct linear_forward_pass *p, int64_t h0, int64_t n,
                       int64_t s, struct linear_forward_scratch *r)
{
    const struct linear *x = p->x;
    const int64_t        end = x->seqs[s].n_chunks * n;

    for (int64_t i = 0; i < n; i++)
        linear_sums_clear(x, linear_sums_at(x, r->interleaved, i));
    for (int64_t i = 0; i < end; i++) {
        const struct feature_chunk c = linear_chunk(x, s, h0 + i % n, i / n);
        const struct feature_chunk next =
            linear_chunk(x, s, h0 + (i + 1) % n, (i + 1) / n);

        linear_forward_prefetch(x, i + 1 < end ? &next : NULL, r);
        r->s = linear_sums_at(x, r->interleaved, i % n);
        linear_forward_causal_chunk(x, &c, p->saved, r);
    }
}

static struct linear_forward_scratch thread_scratch(const struct linear *x, int thread)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    return linear_forward_scratch_carve(x, &mine);
}

static void sum_job(void *arg, int64_t i, int thread)
{
    const struct linear_forward_pass *p = arg;
    const struct linear              *x = p->x;
    struct linear_forward_scratch     r = thread_scratch(x, thread);

    linear_forward_sum_segment(p, i / x->n_segs, i % x->n_segs, &r);
}

static void join_job(void *arg, int64_t i, int thread)
{
    const struct linear_forward_pass *p = arg;
    const struct linear              *x = p->x;
    struct linear_forward_scratch     r = thread_scratch(x, thread);

    linear_forward_join_segments(p, i / x->n_seqs, i % x->n_seqs, &r);
}

static void segment_job(void *arg, int64_t i, int thread)
{
    const struct linear_forward_pass *p = arg;
    const struct linear              *x = p->x;
    struct linear_forward_scratch     r = thread_scratch(x, thread);

    linear_forward_segment(p, i / x->n_segs, i % x->n_segs, &r);
}

/* As many heads as leave every thread a job.  Results do not depend on it. */
static int64_t interleaved_heads(const struct linear *x)
{
    const int64_t share = x->heads * x->n_seqs / x->threads;
    return max64(1, min64(min64(share, MOST_INTERLEAVED), x->heads));
}

static void scan_job(void *arg, int64_t i, int thread)
{
    const struct linear_forward_pass *p = arg;
    const struct linear              *x = p->x;
    const int64_t n = interleaved_heads(x), groups = div_up(x->heads, n);
    const int64_t h0 = i % groups * n;
    struct linear_forward_scratch r = thread_scratch(x, thread);

    scan_heads(p, h0, min64(n, x->heads - h0), i / groups, &r);
}

static void run_phases(struct linear_forward_pass *p, int threads)
{
    const struct linear *x = p->x;
    const int64_t        segments = x->heads * x->n_segs;
    const struct phase scans = { div_up(x->heads, interleaved_heads(x)) * x->n_seqs, 1,
                                 scan_job, p };
    const struct phase parts[] = {
        { segments, 1, sum_job, p },
        { x->heads * x->n_seqs, 1, join_job, p },
        { segments, 1, segment_job, p },
    };

    if (p->segments)
        phases_run(x->k, x->exec.shared, threads, parts, 3);
    else
        phases_run(x->k, x->exec.shared, threads, &scans, 1);
}

void linear_forward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, float *saved)
{
    const foci_plan           *plan = exec->plan;
    struct linear              x;
    struct linear_forward_pass p;
    struct arena               a = { .base = io->work };

    linear_geometry(&x, plan, s);
    x.exec = *exec;
    if (!x.max_seqs) return;
    linear_forward_carve(&x, io, &p, &a);
    p.saved = saved;
    padding_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);

    const int64_t jobs = x.heads * (p.segments ? x.n_segs : x.n_seqs);
    const int     threads = linear_threads(&x, jobs, plan->cost.forward_flops);
    run_phases(&p, threads);
}
