/* differences.c -- the judge's gradients against central differences of its forward
 * pass, all in double: step 1e-5, tolerance 1e-6.  A given bias is of floats, so its
 * steps are powers of two that are added without rounding. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

enum { Q, K, V, X, PARAMS, N_INPUTS };

static const char *const names[N_INPUTS] = { "dq", "dk", "dv", "dx", "dparams" };

/* An execution in doubles, packed. */
struct point {
    const foci_plan    *plan;
    const struct trial *t;
    double             *x[N_INPUTS], *grad[N_INPUTS];
    int64_t             n[N_INPUTS];
    double             *g, *o;
    int64_t             n_o;
    float              *bias, *dbias;
    int64_t             n_bias;
};

static foci_io io_of(const struct point *p)
{
    foci_io io = trial_io(p->t);

    io.q = p->t->q ? p->x[Q] : NULL;
    io.k = p->t->k ? p->x[K] : NULL;
    io.v = p->x[V];
    io.x = p->t->x ? p->x[X] : NULL;
    io.o = p->o;
    io.bias = p->bias;
    return io;
}

/* sum of g o */
static double loss(const struct point *p)
{
    const foci_io         io = io_of(p);
    const struct ref_call call = {
        .plan = p->plan, .io = &io, .type = REF_F64, .params = p->x[PARAMS]
    };
    double sum = 0;

    assert_int_equal(ref_run(&call), FOCI_OK);
    for (int64_t i = 0; i < p->n_o; i++)
        sum += p->g[i] * p->o[i];
    return sum;
}

static const struct plan_group *group_of_kv(const foci_plan *plan, int64_t kv)
{
    const struct plan_group *g = plan->spec.groups;
    while (kv >= g->kv0 + g->kv_heads)
        g++;
    return g;
}

/* Does a query of the sequence hold gradients back from any key? */
static bool has_stops(const foci_mech *m)
{
    for (int64_t i = 0; m->def->stop && i < m->dims.len; i++)
        if (m->def->stop(m, i, 0)) return true;
    return false;
}

static int64_t memory_of(const foci_problem *p, const foci_mech *m)
{
    int64_t n = p->memory;

    if (p->flags & FOCI_FLAG_MEMORY_GRADS) return 0;
    for (; m; m = m->inner)
        if (m->def->memory) n = max64(n, m->def->memory(m));
    return n;
}

/* The place of a row in its document. */
static int64_t place_of(const struct trial *t, int64_t row)
{
    int64_t start = 0;
    for (int64_t d = 0; t->docs && d < t->p.max_docs && t->docs[d] <= row; d++)
        start = t->docs[d];
    return row - start;
}

/* Queries that are keys too, of head h, are constants as keys in memory. */
static int64_t memory_of_shared(const foci_plan *plan, int64_t h)
{
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct plan_group *group = &plan->spec.groups[g];
        const foci_mech         *m = &group->mech;
        foci_order               order = { 0 };

        if (h < group->head0 || h >= group->head0 + group->heads) continue;
        while (m->inner)
            m = m->inner;
        if (m->def->order) m->def->order(m, &order);
        return order.shared_qk ? memory_of(&plan->p, m) : 0;
    }
    return 0;
}

/* Keys of memory, and behind a stop, take no gradient though the loss depends on them;
 * nor do parameters that are not trained. */
static bool is_constant(const struct point *p, int which, int64_t i)
{
    const foci_problem *pr = &p->t->p;

    if (which == K || which == V) {
        const int64_t            row = i / (which == K ? pr->dim_qk : pr->dim_v);
        const struct plan_group *g = group_of_kv(p->plan, row % pr->kv_heads);
        const int64_t            place = place_of(p->t, row / pr->kv_heads % pr->len_k);
        return place < memory_of(pr, &g->mech) || has_stops(&g->mech);
    }
    if (which == Q) {
        const int64_t row = i / pr->dim_qk;
        return place_of(p->t, row / pr->heads % pr->len_q) <
               memory_of_shared(p->plan, row % pr->heads);
    }
    if (which == PARAMS) {
        const struct param *t = p->plan->params;
        while (i >= t->offset + t->count)
            t++;
        return t->keep != FOCI_KEEP_TRAINED;
    }
    return false;
}

/* Losses are doubles, and so is how finely two of them can differ. */
static bool near(double got, double want, double loss, double step)
{
    return fabs(got - want) <= 1e-6 * fmax(1, fabs(want)) + 0x1p-50 * fabs(loss) / step;
}

/* Central difference of the loss at *x. */
static double difference(const struct point *p, double *x, double step)
{
    const double at = *x;

    *x = at + step;
    const double up = loss(p);
    *x = at - step;
    const double down = loss(p);
    *x = at;
    return (up - down) / (2 * step);
}

/* The judge's gradients, to `grad`, which is zero before. */
static void gradients(const struct point *p, double *const grad[N_INPUTS], float *dbias)
{
    const foci_io    io = io_of(p);
    const foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = p->g,   .dq = grad[Q],
                               .dk = grad[K],          .dv = grad[V], .dx = grad[X],
                               .dbias = dbias };
    const struct ref_call call = { .plan = p->plan,
                                   .io = &io,
                                   .grads = &grads,
                                   .type = REF_F64,
                                   .params = p->x[PARAMS],
                                   .dparams = grad[PARAMS] };

    assert_int_equal(ref_run(&call), FOCI_OK);
}

/* By how much roundings move the loss, and the gradients of each input. */
struct grain {
    double loss, grad[N_INPUTS];
};

/* Every input goes a unit in its last place up or down. */
static void nudge(const struct point *p, struct rng *r, const struct point *to)
{
    for (int w = 0; w < N_INPUTS; w++) {
        memset(to->grad[w], 0, (size_t)p->n[w] * sizeof(double));
        for (int64_t i = 0; i < p->n[w]; i++)
            to->x[w][i] = p->x[w][i] * (1 + (rng_below(r, 2) ? 0x1p-52 : -0x1p-52));
    }
}

/* What doubles make of the problem is about what is true of one whose inputs are as far
 * off as they are rounded, so that such problems tell how far.  Through an inverse it is
 * far: of a matrix whose singular values are k times apart the loss is good to k 2^-52,
 * and its gradient, which takes the inverse twice, to k^2 2^-52. */
static struct grain grain_of(const struct point *p)
{
    enum { DRAWS = 8 };
    struct grain grain = { 0 };
    struct point off = *p;
    const double at = loss(p);
    struct rng   r;

    rng_seed(&r, p->t->seed, 5);
    for (int w = 0; w < N_INPUTS; w++) {
        off.x[w] = test_alloc((size_t)p->n[w], sizeof(double));
        off.grad[w] = test_alloc((size_t)p->n[w], sizeof(double));
    }
    for (int n = 0; n < DRAWS; n++) {
        nudge(p, &r, &off);
        grain.loss = fmax(grain.loss, fabs(loss(&off) - at));
        gradients(&off, off.grad, NULL);
        for (int w = 0; w < N_INPUTS; w++)
            for (int64_t i = 0; i < p->n[w]; i++)
                grain.grad[w] =
                    fmax(grain.grad[w], fabs(off.grad[w][i] - p->grad[w][i]));
    }
    for (int w = 0; w < N_INPUTS; w++) {
        free(off.x[w]);
        free(off.grad[w]);
    }
    return grain;
}

static void check_one(const struct point *p, int w, int64_t i, double at)
{
    static const double step = 1e-5;
    const double        got = p->grad[w][i];
    const double        coarse = difference(p, &p->x[w][i], step);

    if (near(got, coarse, at, step)) return;
    /* Where the function bends much, or a label changes nearby. */
    if (near(got, difference(p, &p->x[w][i], step / 100), at, step / 100)) return;
    /* Where roundings weigh more than that: two losses, and twice what was drawn. */
    const struct grain grain = grain_of(p);
    const double       rounds = 2 * (grain.loss / step + grain.grad[w]);
    if (!(fabs(got - coarse) <= 1e-6 * fmax(1, fabs(coarse)) + rounds))
        trial_fail(p->plan, p->t, names[w], i, got, coarse);
}

static void check(const struct point *p)
{
    const double at = loss(p);

    for (int w = 0; w < N_INPUTS; w++)
        for (int64_t i = 0; i < p->n[w]; i++)
            if (!is_constant(p, w, i)) check_one(p, w, i, at);
}

static void check_bias(const struct point *p)
{
    for (int64_t i = 0; i < p->n_bias; i++) {
        float *const x = &p->bias[i], at = *x;
        *x = at + 0x1p-12f;
        const double up = loss(p), right = (double)*x;
        *x = at - 0x1p-12f;
        const double down = loss(p), left = (double)*x;
        *x = at;
        const double want = (up - down) / (right - left), got = (double)p->dbias[i];
        if (!near(got, want, 0, 1)) trial_fail(p->plan, p->t, "dbias", i, got, want);
    }
}

static double *widen(const void *from, int64_t n)
{
    double *x = test_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; from && i < n; i++)
        x[i] = ref_load(FOCI_F32, from, i);
    return x;
}

static struct point point_make(const foci_plan *plan, const struct trial *t)
{
    const foci_problem *p = &plan->p;
    const int64_t       queries = p->batch * p->len_q * p->heads;
    const int64_t       keys = p->batch * p->len_k * p->kv_heads;
    struct point        at = { .plan = plan,
                               .t = t,
                               .n_o = queries * p->dim_v,
                               .n = { [Q] = queries * p->dim_qk,
                                      [K] = keys * p->dim_qk,
                                      [V] = keys * p->dim_v,
                                      [X] = p->batch * p->len_q * p->dim_x,
                                      [PARAMS] = plan->n_floats } };
    const void         *from[N_INPUTS] = { t->q, t->k, t->v, t->x, t->params };

    for (int w = 0; w < N_INPUTS; w++) {
        at.x[w] = widen(from[w], at.n[w]);
        at.grad[w] = test_alloc((size_t)at.n[w], sizeof(double));
    }
    at.g = widen(t->g, at.n_o);
    at.o = test_alloc((size_t)at.n_o, sizeof *at.o);
    if (t->bias) {
        at.n_bias = p->mask_batch * p->mask_heads * p->len_q * p->len_k;
        at.bias = test_alloc((size_t)at.n_bias, sizeof *at.bias);
        at.dbias = test_alloc((size_t)at.n_bias, sizeof *at.dbias);
        memcpy(at.bias, t->bias, (size_t)at.n_bias * sizeof *at.bias);
    }
    return at;
}

static void point_free(struct point *p)
{
    for (int w = 0; w < N_INPUTS; w++) {
        free(p->x[w]);
        free(p->grad[w]);
    }
    free(p->g);
    free(p->o);
    free(p->bias);
    free(p->dbias);
}

/* Of tables for long sequences the small ones below say enough. */
enum { MOST_PARAMS = 2000 };

static void run_case(foci_ctx *ctx, const char *spec, const foci_problem *problem,
                     unsigned gives, uint64_t seed)
{
    foci_plan *plan = trial_plan(ctx, spec, problem);

    if (!plan || plan->n_floats > MOST_PARAMS) {
        foci_plan_free(plan);
        return;
    }
    struct trial t = trial_make(plan, spec, seed, gives | TRIAL_FROZEN);
    struct point at = point_make(plan, &t);

    gradients(&at, at.grad, at.dbias);
    check(&at);
    check_bias(&at);
    point_free(&at);
    trial_free(&t);
    foci_plan_free(plan);
}

/* Small ones, of which each row and each branch of a definition is seen. */
static const char *const small[] = {
    "softmax shaw(clip=2) t5(buckets=4, max_distance=6)",
    "softmax shaw(clip=1, values=0) alibi cap(2) temper",
    "softmax rope(layout=half) bias(clip=1) qknorm",
    "l2norm rope shaw(clip=1)",
    "softmax txl",
    "xl txl cap(3) temper",
    "local(window=1, dilation=2)",
    "strided(stride=2) alibi",
    "sparse_fixed(stride=3, summary=1) sink",
    "sparse_fixed(stride=3, summary=2, part=2)",
    "global(window=1, first=1) bias(clip=2)",
    "bigbird(block=2, radius=0, global=0) logn",
    "pooled(block=2) temper",
    "pooled(block=2, local=1, count_bias=1) sink cap(2)",
    "pooled(block=2, levels=2) rope qknorm logn",
    "segmented(length=2, integrate=summary, count_bias=1)",
    "segmented(length=2, back=1, integrate=summary) rope",
    "segmented(length=2, back=1, stop_grad=1)",
    "segmented(length=2, integrate=second)",
    "segmented(length=3, integrate=second) logn sink cap(2) temper",
    "lsh(buckets=4, rounds=3) temper",
    "lsh(buckets=4, rounds=3, dedup=0) cap(2) rope shaw(clip=1)",
    "lsh(hash=floor, width=2, rounds=2) sink",
    "lsh(buckets=2, rounds=2, shared=1)",
    "lsh(buckets=4, rounds=2, shared=1, chunk=2) rope",
    "routing(clusters=2) alibi qknorm",
    "routing(clusters=3, pick=topk, take=2) sink temper",
    "routed(softmax, routes=3, top=2)",
    "routed(softmax sink temper bias(clip=1), routes=2)",
    "routed(pooled(block=2), routes=2)",
    "routed(lsh(buckets=2, shared=1), routes=2)",
    "routed(segmented(length=2, integrate=second), routes=2)",
    "routed(l2norm qknorm temper, routes=2)",
    "routed(softmax sink temper cap(2), routes=2)",
    "fixed(left)",
    "fixed(right)",
    "fixed(end)",
    "fixed(start)",
    "fixed(left, words=1, empty=self)",
    "fixed(right, words=1)",
    "fixed(start, words=1)",
    "lightconv(width=3)",
    "dynconv(width=4)",
    "synthesizer(random, max=9)",
    "synthesizer(frandom, max=8, rank=2) cap(2) sink",
    "synthesizer(dense, max=8, hidden=3) alibi",
    "synthesizer(fdense, max=8, hidden=3, split=2)",
    "synthesizer(random+dense, max=8)",
    "synthesizer(random+vanilla, max=8) temper logn shaw(clip=1)",
    "synthesizer(dense+vanilla, max=8) txl",
    "linformer(rank=2) temper rope",
    "linformer(rank=3, share=0) sink cap(2)",
    "linformer(rank=2, block=2)",
    "linformer(rank=1, block=2, share=0) qknorm",
    "lowrank(rank=1) temper",
    "lowrank(rank=2) rope qknorm sink",
    "nystrom(landmarks=2)",
    "nystrom(landmarks=2, iters=0)",
    "nystrom(landmarks=3, iters=2, conv=3)",
    "memformer(slots=2, segment=2)",
    "memformer(slots=3, segment=1, tau=1)",
};

static void differences(void **state)
{
    static const struct {
        foci_problem p;
        unsigned     gives;
    } kinds[] = {
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 5, .len_k = 5,
            .dim_qk = 4, .dim_v = 2, .flags = FOCI_FLAG_TRAIN },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 4, .kv_heads = 2, .len_q = 3,
            .len_k = 6, .dim_qk = 2, .memory = 2,
            .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL },
          0 },
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 2, .kv_heads = 1, .len_q = 4,
            .len_k = 4, .dim_qk = 2, .dim_v = 3, .mask_heads = 2, .dropout = 0.2,
            .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_MASK | FOCI_FLAG_BIAS },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1, .len_q = 7, .len_k = 7,
            .dim_qk = 2, .max_docs = 3, .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL },
          TRIAL_DOCS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .kv_heads = 1, .len_q = 4,
            .len_k = 6, .dim_qk = 2, .memory = 2, .flags = FOCI_FLAG_TRAIN },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 2, .heads = 2, .kv_heads = 1, .len_q = 6,
            .len_k = 6, .dim_qk = 2, .memory = 1, .flags = FOCI_FLAG_TRAIN },
          TRIAL_LENS },
        { { FOCI_SIZED(foci_problem), .batch = 1, .heads = 2, .len_q = 4, .len_k = 6,
            .dim_qk = 2, .memory = 3,
            .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL | FOCI_FLAG_MEMORY_GRADS },
          TRIAL_LENS },
    };
    foci_ctx *ctx = test_ctx("portable", 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int i = 0; specs_next(ctx, i, spec); i++)
            run_case(ctx, spec, &kinds[k].p, kinds[k].gives, (uint64_t)i);
        for (size_t i = 0; i < sizeof small / sizeof *small; i++)
            if (specs_wanted(small[i]))
                run_case(ctx, small[i], &kinds[k].p, kinds[k].gives, (uint64_t)i);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(differences) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
