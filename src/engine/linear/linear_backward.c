/* linear_backward.c -- the linear engine's backward pass: what each job computes.
 *
 * A segment of a causal sequence needs sums over the keys before it and over the
 * queries after it.  With few heads, all segments are summed in parallel first, and the
 * sums are accumulated along the sequence.  With many heads a sequence is one job: sums
 * before each of its segments, then the segments from the last to the first, handing on
 * the sums over queries.  So it is also where sums over queries need the gradients of
 * later rows.
 *
 * A segment first makes and keeps the sums before each of its chunks and then goes
 * through the chunks backward.  Without causality or decay the sums of all segments are
 * added up, and chunks do not depend on each other.
 */
#include <assert.h>

#include "engine/linear/linear_back.h"
#include "engine/shared/padding.h"

/* From so many heads times sequences on, whole sequences keep all threads busy. */
enum { ENOUGH_SEQUENCES = 8 };

/* Chunks of a segment, and bytes that the sums before them may take. */
enum { LEAST_CHUNKS = 4, FEW_CHUNKS = 16, MOST_CHUNKS = 1024 };
static const double SEGMENT_BYTES = 2e7;

/* The fused kernel adds up keys in less time than their sums take to memory and back,
 * so with it they should stay in the second-level cache. */
static const double FUSED_SUMS_BYTES = 1.25e6;

/*
 * Memory
 */

static struct linear_back_scratch linear_back_scratch_carve(const struct linear_back *b,
                                                            struct arena             *a)
{
    const struct linear *x = &b->x;
    const int64_t        features = (int64_t)x->m_full * CHUNK;
    const int64_t values = (int64_t)CHUNK * x->ldv, rows = (int64_t)CHUNK * x->ldq;
    const int64_t pairs = (int64_t)CHUNK * CHUNK, all = x->per_kv > 1 ? b->segment : 0;
    const int64_t sums = max64((int64_t)x->m_full * x->ldv, pairs);
    const bool    z = b->den_apart || x->lane_logs;
    struct linear_back_scratch r = { .k = linear_keys_carve(x, a),
                                     .q = linear_queries_carve(x, a) };

    r.n = arena_alloc(a, values, sizeof(float));
    r.decayed = arena_alloc(a, values, sizeof(float));
    r.r = arena_alloc(a, CHUNK, sizeof(float));
    r.z = arena_alloc(a, z ? features : 0, sizeof(float));
    r.dz = arena_alloc(a, z ? features : 0, sizeof(float));
    r.df = arena_alloc(a, features, sizeof(float));
    r.dg = arena_alloc(a, features, sizeof(float));
    r.tmp = arena_alloc(a, b->bidirectional ? features : 0, sizeof(float));
    r.a = arena_alloc(a, pairs, sizeof(float));
    r.da = arena_alloc(a, pairs, sizeof(float));
    r.dq = arena_alloc(a, rows, sizeof(float));
    r.dk = arena_alloc(a, rows, sizeof(float));
    r.dv = arena_alloc(a, values, sizeof(float));
    r.dv_tmp = arena_alloc(a, b->bidirectional ? values : 0, sizeof(float));
    r.dk_all = arena_alloc(a, all * rows, sizeof(float));
    r.dv_all = arena_alloc(a, all * values, sizeof(float));
    r.left = arena_alloc(a, max64(sums, values), sizeof(float));
    r.right = arena_alloc(a, max64(sums, values), sizeof(float));
    r.f_rows = arena_alloc(a, x->bf16 ? features / 2 : 0, sizeof(uint32_t));
    r.n_cols = arena_alloc(a, values, sizeof(float));
    r.n_pairs = x->bf16 ? arena_alloc(a, values / 2, sizeof(uint32_t)) : (char *)r.n;
    r.before = linear_sums_carve(x, b->intra ? b->segment : 0, a);
    r.queries_before = linear_sums_carve(x, b->bidirectional ? b->segment : 0, a);
    r.level = linear_sums_carve(x, x->causal ? LEVELS : 0, a);
    r.now = linear_sums_carve(x, 1, a);
    r.single = linear_sums_carve(x, b->n_sums, a);
    r.carry = linear_sums_carve(x, 1, a);
    r.next = linear_sums_carve(x, 1, a);
    r.kernel = arena_alloc(a, x->fused ? BACK_BYTES : 0, sizeof *r.kernel);
    return r;
}

static bool enough_sequences(const struct linear *x)
{
    return x->causal && x->heads * x->max_seqs >= ENOUGH_SEQUENCES;
}

/* With one job a sequence, segments are as long as scratch allows, since all but the
 * last are summed twice.  Else there are about as many segments as chunks in each,
 * which leaves work for many threads. */
static int64_t segment_of(const struct linear_back *b, int64_t chunks)
{
    const struct linear *x = &b->x;
    const double         bytes = (double)x->m_pad * (x->ldv + 2) * sizeof(float);
    int64_t              n = enough_sequences(x) ? MOST_CHUNKS : FEW_CHUNKS;

    while (n * n < chunks)
        n *= 2;
    while (n > LEAST_CHUNKS && n / 2 >= chunks)
        n /= 2;
    while (n > LEAST_CHUNKS && (double)n * bytes > SEGMENT_BYTES)
        n /= 2;
    while (b->fused && n * n / 4 >= chunks && (double)n * bytes > FUSED_SUMS_BYTES)
        n /= 2;
    return n;
}

/* A sequence may begin and end with a short chunk.  One of several segments has more
 * than one full segment. */
static void count_segments(struct linear_back *b)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const int64_t        len = max64(p->len_q, p->len_k), most = div_up(len, CHUNK) + 1;

    b->segment = segment_of(b, most);
    assert(b->segment > 0);
    if (p->max_docs) {
        const int64_t chunks = len / CHUNK + 2 * p->max_docs;
        b->max_segs = chunks / b->segment + p->max_docs;
        b->max_stored = min64(b->max_segs, 2 * chunks / b->segment);
        return;
    }
    b->max_segs = p->batch * div_up(most, b->segment);
    b->max_stored = most > b->segment ? b->max_segs : 0;
}

static void set_kind(struct linear_back *b)
{
    const struct linear     *x = &b->x;
    const struct plan_group *g = x->stage->group;

    b->bidirectional = x->l->decays && !x->causal;
    b->intra = x->causal || b->bidirectional;
    b->by_feature = x->l->norm == FOCI_LINEAR_NORM_FEATURE;
    b->den_apart = b->by_feature || (x->rope && x->divides);
    b->decay_grad = x->l->decays && g->mech.def->n_tensors && g->param0[0] >= 0 &&
                    b->g && b->g->dparams;
    b->n_sums = b->bidirectional ? N_SUMS : 2;
    b->fused = linear_back_can_fuse(b);
    b->sequential =
        enough_sequences(x) || (x->causal && (b->by_feature || x->lane_logs));
}

static void number_segments(struct linear_back *b)
{
    const struct linear *x = &b->x;
    int64_t              segs = 0, slots = 0;

    for (int64_t s = 0; s < x->n_seqs; s++) {
        const int64_t n = div_up(x->seqs[s].n_chunks, b->segment);

        b->seg0[s] = segs;
        b->stored0[s] = slots;
        segs += n;
        if (n > 1) slots += n;
    }
    b->seg0[x->n_seqs] = b->n_segs = segs;
}

static void back_carve(struct linear_back *b, const foci_io *io, struct arena *a)
{
    struct linear *x = &b->x;
    struct arena   one = { 0 };

    linear_open(x, io, a);
    set_kind(b);
    count_segments(b);
    b->seg0 = arena_alloc(a, x->max_seqs + 1, sizeof *b->seg0);
    b->stored0 = arena_alloc(a, x->max_seqs, sizeof *b->stored0);
    b->stored = linear_sums_carve(x, x->heads * b->max_stored * b->n_sums, a);
    b->d_lam =
        arena_alloc(a, x->l->decays ? x->heads * b->max_segs : 0, sizeof *b->d_lam);
    if (a->base) number_segments(b);
    linear_back_scratch_carve(b, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_alloc(a, x->threads, one.used);
}

size_t linear_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct linear_back b = { 0 };
    struct arena       a = { 0 };

    linear_geometry(&b.x, plan, s);
    back_carve(&b, NULL, &a);
    return a.used;
}

/*
 * Jobs
 */

static struct linear_back_scratch thread_scratch(const struct linear_back *b, int thread)
{
    const struct linear *x = &b->x;
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };

    return linear_back_scratch_carve(b, &mine);
}

static void sum_keys_job(void *arg, int64_t i, int thread)
{
    const struct linear_back        *b = arg;
    const struct linear_back_segment p = linear_back_segment_at(b, i % b->n_segs);
    struct linear_back_scratch       r = thread_scratch(b, thread);

    if (p.stored >= 0) linear_back_sum_keys(b, &r, i / b->n_segs, &p);
}

static void join_keys_job(void *arg, int64_t i, int thread)
{
    const struct linear_back  *b = arg;
    struct linear_back_scratch r = thread_scratch(b, thread);

    linear_back_join_keys(b, &r, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void sum_queries_job(void *arg, int64_t i, int thread)
{
    const struct linear_back        *b = arg;
    const struct linear_back_segment p = linear_back_segment_at(b, i % b->n_segs);
    struct linear_back_scratch       r = thread_scratch(b, thread);

    if (p.stored >= 0) linear_back_sum_queries(b, &r, i / b->n_segs, &p);
}

static void join_queries_job(void *arg, int64_t i, int thread)
{
    const struct linear_back  *b = arg;
    struct linear_back_scratch r = thread_scratch(b, thread);

    linear_back_join_queries(b, &r, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void segment_job(void *arg, int64_t i, int thread)
{
    const struct linear_back        *b = arg;
    const struct linear_back_segment p = linear_back_segment_at(b, i % b->n_segs);
    struct linear_back_scratch       r = thread_scratch(b, thread);

    linear_back_run_segment(b, &r, i / b->n_segs, &p);
}

static void sequence_job(void *arg, int64_t i, int thread)
{
    const struct linear_back  *b = arg;
    struct linear_back_scratch r = thread_scratch(b, thread);

    linear_back_run_sequence(b, &r, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void run_phases(struct linear_back *b, int threads)
{
    const struct linear *x = &b->x;
    const int64_t        all = x->heads * b->n_segs, seqs = x->heads * x->n_seqs;
    const struct phase   sequences = { x->kv_heads * x->n_seqs, 1, sequence_job, b };
    const struct phase   parts[] = {
          { all, 1, sum_keys_job, b },
          { seqs, 1, join_keys_job, b },
          { all, 1, sum_queries_job, b },
          { seqs, 1, join_queries_job, b },
          { x->kv_heads * b->n_segs, 1, segment_job, b },
    };

    if (b->sequential)
        phases_run(x->k, x->exec.shared, threads, &sequences, 1);
    else
        phases_run(x->k, x->exec.shared, threads, parts, 5);
}

/* dtheta of lam = 1/(1 + e^-theta). */
static void add_decay_grads(const struct linear_back *b)
{
    const struct linear *x = &b->x;

    for (int64_t h = 0; h < x->heads; h++) {
        const double lam = x->decay[h].lam;
        double       sum = 0;

        for (int64_t i = 0; i < b->n_segs; i++)
            sum += b->d_lam[h * b->max_segs + i];
        b->g->dparams[x->stage->group->param0[0] + h] += (float)(sum * lam * (1 - lam));
    }
}

static void clear_rest(const struct linear_back *b)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;

    padding_clear(x->plan, x->io, b->g->dq, &p->q, x->head0, x->heads, x->dq, true,
                  false);
    padding_clear(x->plan, x->io, b->g->dk, &p->k, x->kv0, x->kv_heads, x->dq, false,
                  false);
    padding_clear(x->plan, x->io, b->g->dv, &p->v, x->kv0, x->kv_heads, x->dv, false,
                  false);
}

void linear_backward(const struct execution *exec, const struct stage *s,
                     const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan   *plan = exec->plan;
    struct linear_back b = { .saved = saved, .g = g };
    struct arena       a = { .base = io->work };

    linear_geometry(&b.x, plan, s);
    b.x.exec = *exec;
    if (!b.x.max_seqs) return;
    back_carve(&b, io, &a);
    clear_rest(&b);

    const struct linear *x = &b.x;
    const int64_t        jobs = x->heads * (b.sequential ? x->n_seqs : b.n_segs);
    const int            threads = linear_threads(x, jobs, plan->cost.backward_flops);
    run_phases(&b, threads);
    if (b.decay_grad) add_decay_grads(&b);
}
