/* linear.c -- the linear engine: geometry of an execution, sizes, cost, printing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "engine/linear.h"

/* Fewer features would not fill the words of a product. */
enum { LEAST_WORDS = 16 };

/* Sums at the start of every segment and of every chunk of one are both kept in
 * backward: the square root of the chunks is least for both together. */
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

/* Where rows are divided by their sum, their scale cancels.  Without it words of queries
 * stay as exact as they were given, and sums that are next to nothing only by it are not
 * taken for 0. */
static double scale_of(const struct stage *s)
{
    const foci_linear *l = &s->linear;
    const bool         cancels =
        l->feature == FOCI_FEATURE_ROW && l->norm == FOCI_NORM_SUM && l->eps == 0;

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
        .bf16 = k->has_bf16 && s->features >= LEAST_WORDS &&
                (p->dtype != FOCI_F32 || p->flags & FOCI_FAST),
        .causal = p->flags & FOCI_CAUSAL,
        .divides = l->norm == FOCI_NORM_SUM || l->norm == FOCI_NORM_RETNET,
        .turns = s->score.rope_base > 0,
        .logs = l->feature == FOCI_FEATURE_EXP || l->feature == FOCI_FEATURE_SOFTMAX,
        .lane_logs = l->feature == FOCI_FEATURE_TRIG,
        .scale = scale_of(s),
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
    x->m_room = (int)round_up(x->m, CHUNK);
    x->whole = linear_takes_whole(x);
    set_segments(x);
}

int linear_threads(const struct linear *x, int64_t jobs, double flops)
{
    return jobs_threads(x->threads, jobs, flops);
}

/*
 * Decay
 */

double linear_decay(const struct linear *x, int64_t h)
{
    const struct group *g = x->stage->group;

    if (g->mech.def->n_tensors && g->param0[0] >= 0)
        return 1 / (1 + exp(-(double)x->io->params[g->param0[0] + h]));
    return g->mech.def->decay(&g->mech, h, g->heads);
}

static void make_decay(const struct linear *x, int64_t h, struct decay *d)
{
    double power = 1, before = 0; /* lam^t and lam^(t - 1) */

    d->lam = linear_decay(x, h);
    for (int t = 0; t <= CHUNK; t++) {
        d->power[t] = (float)power;
        d->slope[t] = (float)(t * before);
        before = power;
        power *= d->lam;
    }
    for (int key = 0; key < CHUNK; key++)
        for (int lane = 0; lane < CHUNK; lane++) {
            const int t = lane - key;
            d->near[key * CHUNK + lane] = t >= 0      ? d->power[t]
                                          : x->causal ? 0
                                                      : d->power[-t];
        }
}

static void take_decay(struct linear *x, struct arena *a)
{
    if (!x->l->decays) return;
    x->decay = arena_take(a, x->heads, sizeof *x->decay);
    float *near = arena_take(a, x->heads * CHUNK * CHUNK, sizeof *near);
    for (int64_t h = 0; a->base && h < x->heads; h++) {
        x->decay[h].near = near + h * CHUNK * CHUNK;
        make_decay(x, h, &x->decay[h]);
    }
}

double linear_series(double lam, int64_t n)
{
    if (n <= 0) return 0;
    if (lam >= 1) return (double)n;
    return lam > 0 ? expm1((double)n * log(lam)) / (lam - 1) : 1;
}

double linear_fade(const struct linear *x, const struct chunk *c, int lane)
{
    const double  lam = x->decay ? x->decay[c->h].lam : 1;
    const int64_t nk = c->seq->s.nk, at = c->pos + lane;
    const double  after = linear_series(lam, nk - max64(at + 1, 0));

    if (x->causal) return linear_series(lam, at + 1);
    if (at < 0) return pow(lam, (double)-at) * after;
    return linear_series(lam, at + 1) + lam * after;
}

int64_t linear_visible(const struct linear *x, const struct chunk *c, int lane)
{
    return x->causal ? max64(0, c->pos + lane + 1) : c->seq->s.nk;
}

/*
 * Sequences
 */

static int64_t floor_chunk(int64_t pos)
{
    return pos >= 0 ? pos / CHUNK : -div_up(-pos, CHUNK);
}

void linear_params_take(struct linear *x, struct arena *a)
{
    take_decay(x, a);
    if (x->l->feature == FOCI_FEATURE_EXP || x->l->feature == FOCI_FEATURE_TRIG)
        linear_random_take(x, a);
}

void linear_open(struct linear *x, const foci_io *io, struct arena *a)
{
    struct seq *plain = arena_take(a, x->max_seqs, sizeof *plain);

    x->io = io;
    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    x->seq_of = arena_take(a, x->max_segs, sizeof *x->seq_of);
    x->n_seqs = a->base ? plan_seqs(x->plan, io, plain) : 0;
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
    linear_maps_take(x, a);
    linear_params_take(x, a);
}

struct chunk linear_chunk(const struct linear *x, int64_t s, int64_t h, int64_t t)
{
    const struct linear_seq *seq = &x->seqs[s];
    const int64_t            pos = (seq->first + t) * CHUNK;

    return (struct chunk){
        .seq = seq,
        .s = s,
        .h = h,
        .kv = h / x->per_kv,
        .pos = pos,
        .n = pos < 0 ? 0 : (int)min64(CHUNK, seq->s.nk - pos),
        .r0 = (int)min64(CHUNK, max64(0, seq->pos0 - pos)),
        .r1 = (int)min64(CHUNK, seq->s.nk - pos),
    };
}

struct segment linear_segment(const struct linear *x, int64_t i)
{
    const int64_t            s = x->seq_of[i];
    const struct linear_seq *seq = &x->seqs[s];
    const int64_t            begin = (i - seq->seg0) * x->segment;

    return (struct segment){ s, begin, min64(begin + x->segment, seq->n_chunks) };
}

/*
 * What the plan asks
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    const size_t forward = linear_forward_bytes(plan, s);

    if (!(plan->p.flags & FOCI_TRAIN)) return forward;
    const size_t backward = linear_backward_bytes(plan, s);
    return backward > forward ? backward : forward;
}

/* What each row was divided by. */
static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    return s->group->heads * plan->p.batch * plan->p.len_q;
}

/* Pairs of one head of one sequence of full length: 1 + 2 + ... where causal. */
static double count_pairs(const foci_problem *p)
{
    const double  nq = (double)p->len_q, nk = (double)p->len_k;
    const int64_t first = max64(1, p->len_k - p->len_q + 1);

    if (!(p->flags & FOCI_CAUSAL)) return nq * nk;
    return ((double)first + nk) / 2 * (nk - (double)first + 1);
}

static double feature_flops(const struct linear *x)
{
    const double m = (double)x->m, d = (double)x->dq;

    switch (x->l->feature) {
    case FOCI_FEATURE_EXP: return 2 * m * d / (x->l->both ? 2 : 1);
    case FOCI_FEATURE_TRIG: return m * d;
    default: return m;
    }
}

/* Products of sums with rows, and of pairs inside chunks. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const foci_problem *p = &plan->p;
    struct linear       x;

    linear_geometry(&x, plan, s);
    const double times = (double)p->batch * (double)x.heads;
    const double nq = (double)p->len_q, nk = (double)p->len_k;
    const double m = (double)x.m, d = (double)x.dq, dv = (double)x.dv;
    const double el = (double)foci_dtype_bytes(p->dtype);
    const double q_el = el * times * nq,
                 k_el = el * (double)p->batch * (double)x.kv_heads * nk;
    const double near = x.causal || x.l->decays ? nq * (CHUNK + 1) / 2 : 0;
    const double rows = (nq + nk) * feature_flops(&x);

    c->pairs += times * count_pairs(p);
    c->forward_flops += times * (2 * m * dv * (nq + nk) + 2 * near * (m + dv) + rows);
    c->backward_flops += times * (2 * m * dv * (2 * nq + 3 * nk) +
                                  2 * near * (3 * m + 2 * dv) + 3 * rows);
    c->forward_bytes += (q_el + k_el) * (d + dv);
    c->backward_bytes += (q_el + k_el) * 2 * (d + dv) + q_el * dv;
}

static const char *kernel_text(const foci_ctx *ctx, int id, char *text, size_t cap)
{
    const char *level = "";
    const char *name = foci_kernel(ctx, id, &level);

    snprintf(text, cap, "%s (%s)", name, level);
    return text;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct linear x;
    char          gemm[64];

    linear_geometry(&x, plan, s);
    kernel_text(plan->ctx,
                x.whole  ? K_chunk_rows
                : x.bf16 ? K_gemm_bf16
                         : K_gemm_f32,
                gemm, sizeof gemm);
    return snprintf(text, cap,
                    "    linear   %d feature%s, %s products; sums of %.4g kB a head; "
                    "chunks of %d in segments of %" PRId64 "\n"
                    "    kernels  %s\n",
                    x.m, x.m == 1 ? "" : "s", x.bf16 ? "bf16" : "f32",
                    (double)x.m * (x.dv + 1 + (x.logs ? 1 : 0)) * sizeof(float) / 1e3,
                    CHUNK, x.segment, gemm);
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
    .cost = cost,
    .describe = describe,
    .decoder = &linear_decoder,
};
