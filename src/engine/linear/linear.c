/* linear.c -- the linear engine: geometry of an execution, its sequences and
 * segments. */
#include <assert.h>

#include "engine/linear/linear_chunk.h"

/* With fewer features most of a packed bf16 operand would be padding, and rounding the
 * one feature of retention(content=0) can be seen in the result. */
enum { LEAST_PAIRED = 16 };

/* The backward pass keeps sums at the start of every segment and of every chunk of one
 * segment: segments of sqrt(chunks) chunks make their number least. */
static int64_t segment_of(int64_t chunks)
{
    int64_t n = 16;

    while (n * n < chunks)
        n *= 2;
    return n;
}

static void set_segments(struct linear *x)
{
    const foci_problem *p = x->p;
    const int64_t       chunks = div_up(max64(p->len_q, p->len_k), CHUNK);

    x->segment = segment_of(chunks);
    x->max_segs = p->max_docs
                      ? (p->len_k / CHUNK + p->max_docs) / x->segment + p->max_docs
                      : p->batch * div_up(chunks + 1, x->segment);
}

/* Where rows are divided by their sum the scale cancels and is left out: queries then
 * keep the precision they were given with, and no sum is taken for 0 only because of
 * the scale. */
static double scale_of(const struct stage *s)
{
    const foci_linear *l = &s->linear;
    const bool         cancels = l->feature == FOCI_FEATURE_ROW &&
                         l->norm == FOCI_LINEAR_NORM_SUM && l->eps == 0;

    return cancels && s->score.scale != 0 ? 1 : s->score.scale;
}

void linear_geometry(struct linear *x, const foci_plan *plan, const struct stage *s)
{
    const foci_problem   *p = &plan->p;
    const struct kernels *k = &plan->ctx->kernels;
    const foci_linear    *l = &s->linear;

    *x = (struct linear){
        .plan = plan,
        .p = p,
        .stage = s,
        .l = l,
        .k = k,
        .bf16 = k->has_bf16 && s->features >= LEAST_PAIRED &&
                (p->dtype != FOCI_F32 || p->flags & FOCI_FLAG_FAST),
        .causal = p->flags & FOCI_FLAG_CAUSAL,
        .divides = l->norm == FOCI_LINEAR_NORM_SUM || l->norm == FOCI_LINEAR_NORM_RETNET,
        .rope = s->score.rope_base > 0,
        .logs = l->feature == FOCI_FEATURE_EXP || l->feature == FOCI_FEATURE_SOFTMAX,
        .lane_logs = l->feature == FOCI_FEATURE_TRIG,
        .scale = scale_of(s),
        .el = (int64_t)foci_dtype_bytes(p->dtype),
        .dq = (int)p->dim_qk,
        .dv = (int)p->dim_v,
        .m = (int)s->features,
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
        .threads = plan->ctx->threads,
    };
    const int depth = x->bf16 ? k->depth : 1, group = depth > 16 ? depth : 16;
    x->group = group;
    x->dv_pad = (int)round_up(x->dv, depth);
    x->ldq = (int)round_up(x->dq, group);
    x->ldv = (int)round_up(x->dv, group);
    x->m_pad = (int)round_up(x->m, group);
    x->m_full = (int)round_up(x->m, CHUNK);
    x->fused = linear_can_fuse(x);
    set_segments(x);
}

int linear_threads(const struct linear *x, int64_t jobs, double flops)
{
    return jobs_threads(x->threads, jobs, flops);
}

/*
 * Sequences
 */

static int64_t floor_chunk(int64_t pos)
{
    return pos >= 0 ? pos / CHUNK : -div_up(-pos, CHUNK);
}

void linear_params_carve(struct linear *x, struct arena *a)
{
    linear_decay_carve(x, a);
    if (x->l->feature == FOCI_FEATURE_EXP || x->l->feature == FOCI_FEATURE_TRIG)
        linear_random_carve(x, a);
}

void linear_open(struct linear *x, const foci_io *io, struct arena *a)
{
    struct seq *plain = arena_alloc(a, x->max_seqs, sizeof *plain);

    x->io = io;
    x->seqs = arena_alloc(a, x->max_seqs, sizeof *x->seqs);
    x->seq_of = arena_alloc(a, x->max_segs, sizeof *x->seq_of);
    x->n_seqs = a->base ? plan_seqs(x->plan, io, plain) : 0;
    x->n_segs = 0;
    assert(x->n_seqs <= x->max_seqs);
    for (int64_t i = 0; i < x->n_seqs; i++) {
        struct linear_seq *s = &x->seqs[i];

        *s = (struct linear_seq){ .s = plain[i],
                                  .pos0 = plain[i].nk - plain[i].nq,
                                  .seg0 = x->n_segs };
        s->first = min64(0, floor_chunk(s->pos0));
        if (s->s.nq && s->s.nk) s->n_chunks = div_up(s->s.nk, CHUNK) - s->first;
        s->n_segs = div_up(s->n_chunks, x->segment);
        for (int64_t t = 0; t < s->n_segs; t++)
            x->seq_of[x->n_segs++] = (int32_t)i;
    }
    assert(x->n_segs <= x->max_segs);
    linear_maps_carve(x, a);
    linear_params_carve(x, a);
}

struct segment linear_segment(const struct linear *x, int64_t i)
{
    const int64_t            s = x->seq_of[i];
    const struct linear_seq *seq = &x->seqs[s];
    const int64_t            begin = (i - seq->seg0) * x->segment;

    return (struct segment){ s, begin, min64(begin + x->segment, seq->n_chunks) };
}

/*
 * Sizes
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    const size_t forward = linear_forward_bytes(plan, s);

    if (!(plan->p.flags & FOCI_FLAG_TRAIN)) return forward;
    const size_t backward = linear_backward_bytes(plan, s);
    return backward > forward ? backward : forward;
}

/* One number a row: its divisor, or the log of it. */
static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    return s->group->heads * plan->p.batch * plan->p.len_q;
}

const struct engine engine_linear = {
    .name = "linear",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = linear_forward,
    .backward = linear_backward,
    .advance = linear_advance,
    .calibrate = linear_calibrate,
    .check = linear_check,
    .cost = linear_cost,
    .describe = linear_describe,
    .decoder = &linear_decoder,
};
