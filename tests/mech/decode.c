/* decode.c -- token by token is the causal forward, whatever the steps are cut into,
 * who else takes part in them, and through copies, saved states and full pools. */
#include <math.h>

#include "support/trial.h"

enum { HEADS = 4, MAX_SEQS = 3 };

/* One sequence: inputs, what forward makes of them, what steps made. */
struct sequence {
    int64_t     len, done;
    char       *q, *k, *v, *x, *want, *got;
    double     *size; /* [len][heads] magnitudes of the weights of a row, summed */
    foci_state *state;
};

struct world {
    foci_ctx       *ctx;
    foci_plan      *plan;
    foci_pool      *pool;
    const char     *spec;
    float          *params;
    struct sequence seq[MAX_SEQS];
    int             n;
    struct rng      rng;
};

static size_t row_bytes(const struct world *w, int64_t heads, int64_t dim)
{
    return (size_t)(heads * dim) * foci_dtype_bytes(w->plan->p.dtype);
}

static char *rows(struct world *w, int64_t len, int64_t heads, int64_t dim, double scale)
{
    char         *out = test_alloc((size_t)len + 1, row_bytes(w, heads, dim));
    const int64_t n = heads * dim;
    float        *one = test_alloc((size_t)n, sizeof *one);

    for (int64_t i = 0; i < len; i++) {
        for (int64_t c = 0; c < n; c++)
            one[c] = (float)(scale * rng_normal(&w->rng));
        w->ctx->kernels.store_rows(out + (size_t)i * row_bytes(w, heads, dim), n,
                                   (int)w->plan->p.dtype, one, n, 1.0f, 1, (int)n);
    }
    free(one);
    return out;
}

/* Long sequences are forward's to judge, and their errors are relative to 1. */
enum { SMALL = 300 };

/* Errors are relative to what was added up; to 1 where that are no weights. */
static void measure(const foci_plan *plan, const foci_io *io, struct sequence *s)
{
    const int64_t n = plan->p.len_k, heads = plan->p.heads;
    float        *a = test_alloc((size_t)(n <= SMALL ? heads * n * n : 1), sizeof *a);
    const bool    small = n <= SMALL && foci_ref_weights(plan, io, a) == FOCI_OK;

    for (int64_t i = 0; i < s->len; i++)
        for (int64_t h = 0; h < heads; h++) {
            double sum = small ? 0 : 1;
            for (int64_t j = 0; small && j < n; j++)
                sum += fabs((double)a[(h * n + i) * n + j]);
            s->size[i * heads + h] = sum;
        }
    free(a);
}

/* Within this share of the largest value, about 4, times the sum of the weights; with 16
 * bits weights and results are rounded. */
static double share_of(const foci_plan *plan)
{
    return plan->p.dtype == FOCI_F32 ? 2e-5 : 3e-2;
}

/* Features may cancel in a weight, and be rounded all the same: rows are off by what
 * rounding of each product does to them. */
static void measure_words(struct world *w, const foci_io *io, struct sequence *s)
{
    const foci_problem *p = &w->plan->p;
    const int           dtype = (int)p->dtype;
    double             *params = test_alloc((size_t)w->plan->n_floats, sizeof *params);
    foci_io             words = *io;
    char *o = test_alloc((size_t)p->len_k, row_bytes(w, p->heads, p->dim_v));

    for (int64_t i = 0; i < w->plan->n_floats; i++)
        params[i] = (double)w->params[i];
    words.o = o;
    const struct ref_call call = {
        .plan = w->plan, .io = &words, .type = dtype, .params = params, .words = true
    };
    assert_int_equal(ref_run(&call), FOCI_OK);
    for (int64_t i = 0; i < s->len * p->heads; i++) {
        double sum = 0;
        for (int64_t c = i * p->dim_v; c < (i + 1) * p->dim_v; c++) {
            const double off = ref_load(dtype, o, c) - ref_load(dtype, s->want, c);
            sum += isfinite(off) ? off * off : 0;
        }
        s->size[i] += 10 * sqrt(sum / (double)p->dim_v) / (4 * share_of(w->plan));
    }
    free(params);
    free(o);
}

/* The causal forward over the whole sequence. */
static void expect(struct world *w, struct sequence *s)
{
    const int32_t len = (int32_t)s->len;
    void         *work = test_alloc(1, foci_plan_work_bytes(w->plan));
    const foci_io io = { FOCI_SIZED(foci_io), .q = s->q,     .k = s->k,
                         .v = s->v,           .x = s->x,     .o = s->want,
                         .len_q = &len,       .len_k = &len, .params = w->params,
                         .work = work };
    if ((w->plan->p.len_k <= SMALL ? foci_ref_forward : foci_forward)(w->plan, &io))
        fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
    measure(w->plan, &io, s);
    if (w->plan->p.len_k <= SMALL && trial_is_linear(w->plan)) measure_words(w, &io, s);
    free(work);
}

/* Kernels that can be negative, but divide by their sum, might divide by next to nothing:
 * on rows of one sign they do not.  Pairs of features that are turned, of which one is far
 * above the other, leave next to nothing where they should cancel: in small rows they are
 * of one size. */
static void keep_off(const struct world *w, char *x, int64_t n)
{
    const int dtype = (int)w->plan->p.dtype;
    bool      positive = false;
    double    by = 1;

    for (int g = 0; g < w->plan->spec.n_groups; g++)
        for (const foci_mech *m = &w->plan->spec.groups[g].mech; m; m = m->inner) {
            if (m->def->engine != FOCI_LINEAR) continue;
            const foci_linear l = linear_of(m);
            positive = positive || (l.norm == FOCI_NORM_SUM && linear_signed(&l));
            if (l.feature == FOCI_FEATURE_TRIG ||
                (l.feature == FOCI_FEATURE_EXP && trial_does(w->plan, FOCI_MOD_ROPE)))
                by = 0.05;
        }
    for (int64_t i = 0; (positive || by < 1) && i < n; i++) {
        const double at = ref_load(dtype, x, i);
        ref_store(dtype, x, i, by * (positive ? 0.4 * fabs(at) : at));
    }
}

/* Statistics that parameters leave open, of the first sequence. */
static void freeze(struct world *w, const struct sequence *s)
{
    void         *work = test_alloc(1, foci_plan_work_bytes(w->plan));
    const foci_io io = { FOCI_SIZED(foci_io), .q = s->q,   .k = s->k,
                         .v = s->v,           .x = s->x,   .o = s->want,
                         .params = w->params, .work = work };

    if (foci_params_calibrate(w->plan, &io, w->params))
        fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
    free(work);
}

/* One plan serves sequences of all lengths: tensors and lists may depend on the length
 * it is made for. */
static struct world world_make(foci_ctx *ctx, const char *spec, const foci_problem *p,
                               const int64_t *lens, int n, uint64_t seed)
{
    struct world w = { .ctx = ctx, .spec = spec, .n = n };
    foci_problem at = *p;

    rng_seed(&w.rng, seed, 77);
    for (int i = 0; i < n; i++)
        at.len_q = at.len_k = max64(at.len_k, lens[i]);
    w.plan = trial_plan(ctx, spec, &at);
    if (!w.plan) return w; /* cannot be causal */
    if (foci_pool_create(w.plan, 2, &w.pool)) fail_msg("%s", foci_errmsg(ctx));
    w.params = test_alloc((size_t)foci_plan_params(w.plan), sizeof *w.params);
    assert_int_equal(foci_params_init(w.plan, seed, w.params), FOCI_OK);
    for (int i = 0; i < n; i++) {
        struct sequence *s = &w.seq[i];
        s->len = lens[i];
        s->q = rows(&w, at.len_k, p->heads, p->dim_qk, 0.4);
        s->k = rows(&w, at.len_k, w.plan->p.kv_heads, p->dim_qk, 1);
        s->v = rows(&w, at.len_k, w.plan->p.kv_heads, p->dim_v, 1);
        s->x = rows(&w, at.len_k, 1, w.plan->p.dim_x, 1);
        s->want = test_alloc((size_t)at.len_k + 1, row_bytes(&w, p->heads, p->dim_v));
        s->got = test_alloc((size_t)at.len_k + 1, row_bytes(&w, p->heads, p->dim_v));
        s->size = test_alloc((size_t)(s->len * p->heads), sizeof *s->size);
        keep_off(&w, s->q, at.len_k * p->heads * p->dim_qk);
        keep_off(&w, s->k, at.len_k * w.plan->p.kv_heads * p->dim_qk);
        if (i == 0 && trial_is_linear(w.plan)) freeze(&w, s);
        expect(&w, s);
        assert_int_equal(foci_state_create(w.pool, &s->state), FOCI_OK);
    }
    return w;
}

static void world_free(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        struct sequence *s = &w->seq[i];
        foci_state_free(s->state);
        free(s->q);
        free(s->k);
        free(s->v);
        free(s->x);
        free(s->want);
        free(s->got);
        free(s->size);
    }
    assert_int_equal(foci_pool_free_pages(w->pool), foci_pool_pages(w->pool));
    foci_pool_free(w->pool);
    free(w->params);
    foci_plan_free(w->plan);
}

/* Rows `from` to `from + n` of each sequence's tensor, one sequence after the other. */
static char *gather(const struct world *w, const int32_t *n, size_t row, int which)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < w->n; i++)
        total += (size_t)n[i];
    char *out = test_alloc(total + 1, row);
    for (int i = 0; i < w->n; i++) {
        const struct sequence *s = &w->seq[i];
        const char *const      all[] = { s->q, s->k, s->v, s->x };
        const char            *from = all[which];
        memcpy(out + at * row, from + (size_t)s->done * row, (size_t)n[i] * row);
        at += (size_t)n[i];
    }
    return out;
}

/* Whether appending needs outputs, and whether it needs queries. */
static bool must_attend(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->second && m->def->second(m)) return true;
    return false;
}

static bool shared(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner) {
            foci_order order = { 0 };
            if (m->def->order) m->def->order(m, &order);
            if (order.shared) return true;
        }
    return false;
}

/* One step of all sequences, n[i] tokens each; a full pool is grown and tried again.
 * Where nothing is attended, what was wanted counts as what came. */
static void take_step(struct world *w, const int32_t *n, bool attend)
{
    const foci_problem *p = &w->plan->p;
    const size_t        qr = row_bytes(w, p->heads, p->dim_qk);
    const size_t        kr = row_bytes(w, p->kv_heads, p->dim_qk);
    const size_t        vr = row_bytes(w, p->kv_heads, p->dim_v);
    const size_t or = row_bytes(w, p->heads, p->dim_v);
    foci_state *states[MAX_SEQS];
    int64_t     tokens = 0, longest = 0;

    for (int i = 0; i < w->n; i++) {
        states[i] = w->seq[i].state;
        tokens += n[i];
        longest = max64(longest, foci_state_len(states[i]) + n[i]);
    }
    char *q = gather(w, n, qr, 0), *k = gather(w, n, kr, 1), *v = gather(w, n, vr, 2);
    char *o = test_alloc((size_t)tokens + 1, or);
    char *x = gather(w, n, row_bytes(w, 1, p->dim_x), 3);
    attend = attend || must_attend(w->plan);
    size_t bytes = foci_step_bytes(w->pool, w->n, tokens, longest);
    char  *work = test_alloc(1, bytes + 64);
    memset(work, 0xff, bytes + 64);

    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = states,
                              .n_states = w->n,
                              .tokens = n,
                              .q = attend || rng_below(&w->rng, 2) || shared(w->plan)
                                       ? q
                                       : NULL,
                              .x = x,
                              .k = k,
                              .v = v,
                              .o = attend ? o : NULL,
                              .params = w->params,
                              .work = attend ? work : NULL };
    foci_status        status;
    while ((status = foci_step(w->pool, &io)) == FOCI_ERR_FULL) {
        for (int i = 0; i < w->n; i++)
            assert_int_equal(foci_state_len(states[i]), w->seq[i].done);
        assert_int_equal(foci_pool_grow(w->pool, 1), FOCI_OK);
    }
    if (status) fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
    for (size_t i = 0; i < 64; i++)
        if (work[bytes + i] != (char)0xff) fail_msg("the step wrote beyond its work");

    size_t at = 0;
    for (int i = 0; i < w->n; i++) {
        struct sequence *s = &w->seq[i];
        memcpy(s->got + (size_t)s->done * or,
               attend ? o + at * or : s->want + (size_t)s->done * or, (size_t)n[i] * or);
        s->done += n[i];
        at += (size_t)n[i];
        assert_int_equal(foci_state_len(s->state), s->done);
    }
    free(q);
    free(k);
    free(v);
    free(x);
    free(o);
    free(work);
}

static void compare(const struct world *w, const struct sequence *s)
{
    const foci_problem *p = &w->plan->p;
    const int64_t       n = s->done * p->heads * p->dim_v;
    const double        most = share_of(w->plan);

    for (int64_t i = 0; i < n; i++) {
        const double a = ref_load((int)p->dtype, s->got, i);
        const double b = ref_load((int)p->dtype, s->want, i);
        if (a != b && !(fabs(a - b) <= most * 4 * fmax(1, s->size[i / p->dim_v])))
            fail_msg(
                "%s, dtype %d, d %d, level %s: row %lld, element %lld is %g, not %g",
                w->spec, (int)p->dtype, (int)p->dim_qk,
                level_names[w->ctx->kernels.has_bf16 ? LEVEL_BF16 : 0],
                (long long)(i / (p->heads * p->dim_v)), (long long)i, a, b);
    }
}

/* A state that was copied, saved and restored, or cut back, goes on as if nothing had
 * happened.  What is no longer kept cannot be gone back to. */
static void happen(struct world *w, struct sequence *s)
{
    const int64_t what = rng_below(&w->rng, 9), back = rng_below(&w->rng, 12);
    foci_state   *other = NULL;
    const int64_t len = foci_state_len(s->state);

    if (what == 0) {
        assert_int_equal(foci_state_copy(s->state, &other), FOCI_OK);
        if (rng_below(&w->rng, 2))
            assert_int_equal(foci_state_truncate(s->state, 0), 0);
    } else if (what == 1) {
        const size_t bytes = foci_state_save(s->state, NULL, 0);
        char        *saved = test_alloc(1, bytes);
        assert_int_equal(foci_state_save(s->state, saved, bytes), bytes);
        foci_status status;
        while ((status = foci_state_restore(w->pool, saved, bytes, &other)) ==
               FOCI_ERR_FULL)
            assert_int_equal(foci_pool_grow(w->pool, 1), FOCI_OK);
        if (status) fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
        free(saved);
    } else if (what == 2 && back <= len) {
        const foci_status status = foci_state_truncate(s->state, len - back);
        assert_true(status == FOCI_OK || status == FOCI_ERR_UNSUP);
        if (status) assert_non_null(strstr(foci_errmsg(w->ctx), "cannot be cut back"));
        if (!status) s->done -= back;
    }
    assert_int_equal(foci_state_len(other ? other : s->state), s->done);
    if (!other) return;
    foci_state_free(s->state);
    s->state = other;
}

/* Steps of every size, until all sequences are through. */
static void run_through(struct world *w)
{
    for (;;) {
        int32_t n[MAX_SEQS] = { 0 };
        int64_t left = 0;
        for (int i = 0; i < w->n; i++) {
            happen(w, &w->seq[i]);
            const int64_t most = w->seq[i].len - w->seq[i].done;
            const int64_t some =
                rng_below(&w->rng, 3) ? rng_below(&w->rng, 4) : rng_below(&w->rng, 90);
            n[i] = (int32_t)min64(most, some);
            left += most;
        }
        if (!left) return;
        take_step(w, n, rng_below(&w->rng, 5) != 0);
    }
}

static const foci_problem shapes[] = {
    { FOCI_SIZED(foci_problem), .flags = FOCI_CAUSAL, .batch = 1, .heads = HEADS,
      .len_q = 1, .len_k = 1, .dim_qk = 16, .dim_v = 24 },
    { FOCI_SIZED(foci_problem), .flags = FOCI_CAUSAL, .batch = 1, .heads = HEADS,
      .kv_heads = 2, .len_q = 1, .len_k = 1, .dim_qk = 72, .dim_v = 33 },
    { FOCI_SIZED(foci_problem), .flags = FOCI_CAUSAL, .batch = 1, .heads = HEADS,
      .kv_heads = 1, .len_q = 1, .len_k = 1, .dim_qk = 5, .dim_v = 128 },
};

/* Three sequences, from their first token to their last; false: no such plan. */
static bool walk(foci_ctx *ctx, const char *spec, const foci_problem *p, uint64_t seed)
{
    static const int64_t lens[] = { 150, 64, 1 };
    struct world         w = world_make(ctx, spec, p, lens, MAX_SEQS, seed);

    if (!w.plan) return false;
    run_through(&w);
    for (int s = 0; s < w.n; s++)
        compare(&w, &w.seq[s]);
    world_free(&w);
    return true;
}

static void test_steps(void **state)
{
    struct levels l = levels_make(2);
    char          spec[SPEC_CAP];

    (void)state;
    for (int i = 0; i < l.n; i++)
        kept_register(l.ctx[i]);
    for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
        foci_problem p = shapes[i % 3];
        p.dtype = (foci_dtype)(i / 2 % 3);
        walk(l.ctx[i % l.n], spec, &p, (uint64_t)i);
    }
    levels_free(&l);
}

/* Groups that keep different things, in one state. */
static void test_mixes(void **state)
{
    static const char *const mixes[] = {
        "2*lsh(buckets=8, rounds=2) + 2*pooled(block=8, levels=2)",
        "1*local(window=9) alibi + 1*strided(stride=5) + 1*routing(clusters=4) + "
        "1*sparse_fixed(stride=6) rope",
        "2*local(window=70) rope logn + 2*segmented(length=10, integrate=summary) sink",
        "2*segmented(length=9, back=1, integrate=second) logn + "
        "2*routed(inner=local(window=5) rope, routes=3, top=2)",
        "routed(inner=pooled(block=4, levels=2) qknorm)",
        "routed(inner=lsh(buckets=4, rounds=2), routes=2)",
        "routed(inner=segmented(length=6, integrate=second))",
        "2*linear rope + 1*softmax + 1*local(window=9)",
        "1*performer + 1*retention(norm=retnet) + 1*efficient + 1*pooled(block=8)",
        "routed(inner=cosformer(length=500), routes=2)",
        "1*test_ring(place=70) + 1*test_heap(levels=3) + 1*test_tail + "
        "1*test_label(kind=floor)",
    };
    struct levels l = levels_make(2);
    foci_problem  p = shapes[0];

    (void)state;
    for (int i = 0; i < l.n; i++)
        kept_register(l.ctx[i]);
    for (size_t i = 0; i < 3 * sizeof mixes / sizeof *mixes; i++) {
        p.dtype = (foci_dtype)(i % 3);
        assert_true(walk(l.ctx[i % (size_t)l.n], mixes[i / 3], &p, i));
    }
    levels_free(&l);
}

/* Long enough for several parts: the same bits for any number of threads. */
static void test_parts(void **state)
{
    static const int64_t     lens[] = { 2300, 1030 };
    static const char *const specs[] = {
        "2*softmax sink + 2*l2norm logn",
        "2*lsh(buckets=8, rounds=2) t5 + 2*pooled(block=8) rope",
        "2*performer + 2*retention(decay=0.9)",
    };

    (void)state;
    for (int i = 0; i < 6; i++) {
        foci_ctx    *one = test_ctx(NULL, 1), *seven = test_ctx(NULL, 7);
        foci_problem p = shapes[1];
        p.dtype = (foci_dtype)(i % 2); /* f32, bf16 */
        struct world w = world_make(one, specs[i / 2], &p, lens, 2, 9);
        struct world x = world_make(seven, specs[i / 2], &p, lens, 2, 9);
        run_through(&w);
        run_through(&x);
        for (int s = 0; s < 2; s++) {
            compare(&w, &w.seq[s]);
            assert_memory_equal(w.seq[s].got, x.seq[s].got,
                                (size_t)lens[s] * row_bytes(&w, p.heads, p.dim_v));
        }
        world_free(&w);
        world_free(&x);
        foci_ctx_free(one);
        foci_ctx_free(seven);
    }
}

/* What is not finite stays with the rows that see it, also inside one step. */
static void test_nonfinite(void **state)
{
    static const char *const specs[] = { "softmax",
                                         "local(window=7)",
                                         "pooled(block=8)",
                                         "lsh(buckets=8, rounds=2)",
                                         "lsh(hash=floor, rounds=2)",
                                         "routing(clusters=3)",
                                         "linear",
                                         "efficient",
                                         "performer",
                                         "retention(norm=sum)" };
    static const int64_t     lens[] = { 90 };
    foci_ctx                *ctx = test_ctx(NULL, 1);
    const size_t             row = (size_t)(HEADS * 24);

    (void)state;
    for (size_t t = 0; t < 2 * sizeof specs / sizeof *specs; t++) {
        struct world w = world_make(ctx, specs[t / 2], &shapes[0], lens, 1, 3);
        /* Token 80, head 0, column 0. */
        if (t % 2)
            ((float *)(void *)w.seq[0].v)[80 * row] = NAN;
        else
            ((float *)(void *)w.seq[0].k)[80 * HEADS * 16] = NAN;
        expect(&w, &w.seq[0]);
        take_step(&w, (const int32_t[MAX_SEQS]){ 70 }, true);
        take_step(&w, (const int32_t[MAX_SEQS]){ 20 }, true);
        const float *got = (const float *)(const void *)w.seq[0].got;
        const float *want = (const float *)(const void *)w.seq[0].want;
        for (size_t i = 0; i < 90 * row; i++)
            if (isnan(got[i]) != isnan(want[i]))
                fail_msg("%s: element %zu is %g, not %g", specs[t / 2], i,
                         (double)got[i], (double)want[i]);
        world_free(&w);
    }
    foci_ctx_free(ctx);
}

/* A copy goes its own way from the middle of a page; so do what was saved and
 * restored, and what was cut back. */
static void test_forks(void **state)
{
    static const int64_t lens[] = { 200, 200 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    struct world         w = world_make(ctx, "softmax", &shapes[1], lens, 2, 4);
    const size_t         qr = row_bytes(&w, w.plan->p.heads, w.plan->p.dim_qk);
    const size_t         kr = row_bytes(&w, w.plan->p.kv_heads, w.plan->p.dim_qk);
    const size_t         vr = row_bytes(&w, w.plan->p.kv_heads, w.plan->p.dim_v);

    (void)state;
    /* The two share their first 100 tokens. */
    memcpy(w.seq[1].q, w.seq[0].q, 100 * qr);
    memcpy(w.seq[1].k, w.seq[0].k, 100 * kr);
    memcpy(w.seq[1].v, w.seq[0].v, 100 * vr);
    expect(&w, &w.seq[1]);
    take_step(&w, (const int32_t[MAX_SEQS]){ 100, 0 }, true);

    foci_state_free(w.seq[1].state);
    assert_int_equal(foci_state_copy(w.seq[0].state, &w.seq[1].state), FOCI_OK);
    assert_int_equal(foci_pool_pages(w.pool) - foci_pool_free_pages(w.pool), 2);
    w.seq[1].done = 100;
    memcpy(w.seq[1].got, w.seq[0].got,
           100 * row_bytes(&w, w.plan->p.heads, w.plan->p.dim_v));

    take_step(&w, (const int32_t[MAX_SEQS]){ 3, 1 }, true);
    const size_t bytes = foci_state_save(w.seq[0].state, NULL, 0);
    char        *saved = test_alloc(1, bytes);
    assert_int_equal(foci_state_save(w.seq[0].state, saved, bytes), bytes);
    take_step(&w, (const int32_t[MAX_SEQS]){ 50, 20 }, true);
    foci_state_free(w.seq[0].state);
    if (foci_state_restore(w.pool, saved, bytes, &w.seq[0].state))
        fail_msg("%s", foci_errmsg(ctx));
    w.seq[0].done = 103;
    assert_int_equal(foci_state_truncate(w.seq[1].state, 110), FOCI_OK);
    w.seq[1].done = 110;
    run_through(&w);
    compare(&w, &w.seq[0]);
    compare(&w, &w.seq[1]);

    /* Damaged in every byte of its head, or cut off anywhere: refused, or the same. */
    for (size_t i = 0; i < bytes; i += i < 80 ? 1 : 97) {
        foci_state *x = NULL;
        assert_int_not_equal(foci_state_restore(w.pool, saved, i, &x), FOCI_OK);
        assert_null(x);
        saved[i] ^= 1;
        if (i < 60)
            assert_int_not_equal(foci_state_restore(w.pool, saved, bytes, &x), 0);
        saved[i] ^= 1;
        foci_state_free(x);
    }
    free(saved);
    world_free(&w);
    foci_ctx_free(ctx);
}

/* What is refused, and that nothing changes by it. */
static void test_refusals(void **state)
{
    static const int64_t lens[] = { 70 };
    foci_ctx            *ctx = test_ctx(NULL, 1);
    struct world         w = world_make(ctx, "softmax temper", &shapes[0], lens, 1, 4);
    foci_problem         p = shapes[0];
    foci_plan           *plan;
    foci_pool           *pool = NULL;
    _Alignas(64) char    work[64];
    foci_state          *twice[] = { w.seq[0].state, w.seq[0].state };
    foci_step_io io = { FOCI_SIZED(foci_step_io), .states = twice,    .n_states = 2,
                        .q = w.seq[0].q,          .k = w.seq[0].k,    .v = w.seq[0].v,
                        .o = w.seq[0].got,        .params = w.params, .work = work };

    (void)state;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "twice"));
    io.n_states = 1;
    io.params = NULL;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(ctx), "params"));
    io.params = w.params;
    io.work = work + 1;
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    io.work = work;
    io.tokens = (const int32_t[MAX_SEQS]){ -1 };
    assert_int_equal(foci_step(w.pool, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_state_len(w.seq[0].state), 0);
    assert_int_equal(foci_state_truncate(w.seq[0].state, 1), FOCI_ERR_ARG);

    p.flags = 0;
    plan = test_plan(ctx, "softmax", &p);
    assert_int_equal(foci_pool_create(plan, 1, &pool), FOCI_ERR_UNSUP);
    assert_null(pool);
    assert_non_null(strstr(foci_errmsg(ctx), "causal"));
    foci_plan_free(plan);
    world_free(&w);
    foci_ctx_free(ctx);
}

/* A sequence of any length, of which only the state matters. */
struct stretch {
    foci_ctx   *ctx;
    foci_plan  *plan;
    foci_pool  *pool;
    foci_state *state;
    float      *params, *rows, *o;
    void       *work;
};

enum { STRIDE = 50 }; /* tokens of its steps */

static struct stretch stretch_make(const char *spec, int64_t planned)
{
    struct stretch s = { .ctx = test_ctx(NULL, 1) };
    foci_problem   p = shapes[0];
    struct rng     r;

    p.len_q = p.len_k = planned;
    p.dim_v = p.dim_qk;
    s.plan = test_plan(s.ctx, spec, &p);
    s.params = test_alloc((size_t)foci_plan_params(s.plan), sizeof *s.params);
    assert_int_equal(foci_params_init(s.plan, 1, s.params), FOCI_OK);
    assert_int_equal(foci_pool_create(s.plan, 0, &s.pool), FOCI_OK);
    assert_int_equal(foci_state_create(s.pool, &s.state), FOCI_OK);
    s.rows = test_alloc(STRIDE * HEADS * 16, sizeof *s.rows);
    s.o = must_attend(s.plan) ? test_alloc(STRIDE * HEADS * 16, sizeof *s.o) : NULL;
    s.work = test_alloc(1, foci_step_bytes(s.pool, 1, STRIDE, 1 << 13));
    rng_seed(&r, 5, 5);
    for (int i = 0; i < STRIDE * HEADS * 16; i++)
        s.rows[i] = (float)rng_normal(&r);
    return s;
}

static foci_status stretch_step(struct stretch *s, int32_t n)
{
    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = &s->state,
                              .n_states = 1,
                              .tokens = &n,
                              .q = s->rows,
                              .k = s->rows,
                              .v = s->rows,
                              .o = s->o,
                              .params = s->params,
                              .work = s->work };
    foci_status        status;

    while ((status = foci_step(s->pool, &io)) == FOCI_ERR_FULL)
        assert_int_equal(foci_pool_grow(s->pool, 1), FOCI_OK);
    return status;
}

static void stretch_to(struct stretch *s, int64_t len)
{
    for (int64_t at; (at = foci_state_len(s->state)) < len;)
        if (stretch_step(s, (int32_t)min64(STRIDE, len - at)))
            fail_msg("%s", foci_errmsg(s->ctx));
}

static void stretch_free(struct stretch *s)
{
    foci_state_free(s->state);
    assert_int_equal(foci_pool_free_pages(s->pool), foci_pool_pages(s->pool));
    foci_pool_free(s->pool);
    foci_plan_free(s->plan);
    free(s->params);
    free(s->rows);
    free(s->o);
    free(s->work);
    foci_ctx_free(s->ctx);
}

static int64_t pages_of(const struct stretch *s)
{
    return foci_pool_pages(s->pool) - foci_pool_free_pages(s->pool);
}

/* A state holds what the mechanism still needs: pages of 64 rows, of tokens or of slots,
 * and tables of labels, at most; it may be longer than what was planned. */
static void test_sizes(void **state)
{
    enum { LEN = 6000, PLANNED = 200 };
    static const struct {
        const char *spec;
        int64_t     least, most; /* pages */
        int64_t     table; /* bytes for each token, twice for what doubling wastes */
    } cases[] = {
        { "softmax", 94, 94, 0 },
        { "2*local(window=64) + 2*softmax", 94, 94, 0 },
        { "local(window=64)", 2, 3, 0 },
        { "local(window=20, dilation=10)", 4, 5, 0 },
        { "blocklocal(block=100)", 1, 3, 0 },
        { "segmented(length=64)", 0, 1, 0 },
        { "segmented(length=64, back=2)", 2, 3, 0 },
        { "segmented(length=64, integrate=summary)", 2, 3, 0 },
        { "segmented(length=64, integrate=second)", 2, 3, 0 },
        { "global(window=64, first=3)", 3, 4, 0 },
        { "bigbird(block=64, random=0)", 3, 4, 0 },
        { "bigbird(block=64)", 94, 94, 0 },
        { "strided(stride=50)", 94, 94, 2 * 8 },
        { "sparse_fixed(stride=50, summary=2)", 4 + 0, 4 + 2, 0 },
        { "pooled(block=16)", 6, 7, 0 },
        { "pooled(block=8, levels=3)", 1, 5, 0 },
        { "lsh(buckets=8, rounds=3)", 94, 94, 2 * 3 * 8 * HEADS },
        { "routing(clusters=8)", 94, 94, 2 * 8 * HEADS },
        { "xl(memory=64)", 94, 94, 0 },
        { "performer(features=8)", 0, 1, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stretch s = stretch_make(cases[i].spec, PLANNED);
        stretch_to(&s, LEN);
        const int64_t pages = pages_of(&s);
        const size_t  most = (size_t)pages * foci_pool_page_bytes(s.pool) +
                            (size_t)(LEN * cases[i].table + 8192);
        if (pages < cases[i].least || pages > cases[i].most)
            fail_msg("%s holds %lld pages", cases[i].spec, (long long)pages);
        if (foci_state_bytes(s.state) > most)
            fail_msg("%s holds %zu bytes, more than %zu", cases[i].spec,
                     foci_state_bytes(s.state), most);
        stretch_free(&s);
    }
}

/* A ring is no longer for twice the tokens, and its table of pages neither. */
static void test_ring(void **state)
{
    struct stretch s = stretch_make("local(window=100)", 10);

    (void)state;
    stretch_to(&s, 2000);
    const size_t bytes = foci_state_bytes(s.state);
    stretch_to(&s, 4000);
    assert_true(foci_state_bytes(s.state) <= bytes + foci_pool_page_bytes(s.pool));
    assert_int_equal(foci_state_truncate(s.state, 1000), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "1000"));
    assert_int_equal(foci_state_len(s.state), 4000);
    assert_int_equal(foci_state_truncate(s.state, 3999), FOCI_OK);
    foci_state_reset(s.state);
    assert_int_equal(foci_state_len(s.state), 0);
    assert_int_equal(pages_of(&s), 0);
    stretch_to(&s, 300);
    stretch_free(&s);
}

/* Tables by distance end where the plan did. */
static void test_limits(void **state)
{
    struct stretch s = stretch_make("softmax txl", 60);

    (void)state;
    stretch_to(&s, 60);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "planned for 60"));
    assert_int_equal(foci_state_len(s.state), 60);
    stretch_free(&s);
}

/* Sums cannot forget tokens, and positions turn features up to a length. */
static void test_sums(void **state)
{
    struct stretch s = stretch_make("cosformer(length=70)", 60);

    (void)state;
    stretch_to(&s, 70);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "length=70"));
    assert_int_equal(foci_state_truncate(s.state, 69), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "cannot be cut back to 69"));
    assert_int_equal(foci_state_len(s.state), 70);
    foci_state_reset(s.state);
    assert_int_equal(stretch_step(&s, 1), FOCI_OK);
    stretch_free(&s);

    s = stretch_make("performer(sderf)", 60);
    assert_int_equal(stretch_step(&s, 1), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(s.ctx), "calibrate"));
    assert_int_equal(foci_state_len(s.state), 0);
    stretch_free(&s);
}

/* Values 0, 1, 2 in turn, all with one key: their mean is 1, also when each is added to
 * so many that sums of floats would lose it. */
static void test_one_by_one(void **state)
{
    static const char *const specs[] = { "linear", "performer" };

    (void)state;
    for (int c = 0; c < 2; c++) {
        struct stretch     s = stretch_make(specs[c], 60);
        const int64_t      n = getenv("FOCI_TEST_LONG")    ? 999999
                               : getenv("FOCI_TEST_SHORT") ? 999
                                                           : 99999;
        float              v[HEADS * 16], o[HEADS * 16];
        const foci_step_io io = { FOCI_SIZED(foci_step_io),
                                  .states = &s.state,
                                  .n_states = 1,
                                  .q = s.rows,
                                  .k = s.rows,
                                  .v = v,
                                  .o = o,
                                  .params = s.params,
                                  .work = s.work };

        for (int64_t t = 0; t < n; t++) {
            for (int i = 0; i < HEADS * 16; i++)
                v[i] = (float)(t % 3);
            foci_status status;
            while ((status = foci_step(s.pool, &io)) == FOCI_ERR_FULL)
                assert_int_equal(foci_pool_grow(s.pool, 1), FOCI_OK);
            assert_int_equal(status, FOCI_OK);
        }
        for (int i = 0; i < HEADS * 16; i++)
            if (!(fabs((double)o[i] - 1) <= 2e-7))
                fail_msg("%s: %.9g after %lld tokens", specs[c], (double)o[i],
                         (long long)n);
        stretch_free(&s);
    }
}

/* Tokens that are only appended have labels too, and keys that are their queries. */
static void test_append_only(void **state)
{
    struct stretch s = stretch_make("lsh(buckets=8, shared=1)", 60);
    foci_step_io   io = { FOCI_SIZED(foci_step_io), .states = &s.state, .n_states = 1,
                          .v = s.rows };

    (void)state;
    assert_int_equal(foci_step(s.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(s.ctx), "params"));
    io.params = s.params;
    assert_int_equal(foci_step(s.pool, &io), FOCI_ERR_ARG);
    assert_non_null(strstr(foci_errmsg(s.ctx), "queries"));
    io.q = s.rows;
    assert_int_equal(foci_pool_grow(s.pool, 1), FOCI_OK);
    assert_int_equal(foci_step(s.pool, &io), FOCI_OK);
    assert_int_equal(foci_state_len(s.state), 1);
    stretch_free(&s);
}

/* Many sequences through one pool: its pages come back. */
static void test_many(void **state)
{
    foci_ctx     *ctx = test_ctx(NULL, 1);
    foci_problem  p = shapes[0];
    foci_plan    *plan = test_plan(ctx, "softmax", &p);
    const int64_t many = getenv("FOCI_TEST_LONG") ? 100000 : 2000;
    foci_pool    *pool;
    float         q[HEADS * 16] = { 1 }, v[HEADS * 24] = { 2 }, o[HEADS * 24];

    (void)state;
    assert_int_equal(foci_pool_create(plan, 8, &pool), FOCI_OK);
    void *work = test_alloc(1, foci_step_bytes(pool, 1, 1, 200));
    for (int64_t i = 0; i < many; i++) {
        foci_state        *s;
        const int          steps = i % 50 == 0 ? 130 : 3;
        const foci_step_io io = { FOCI_SIZED(foci_step_io),
                                  .states = &s,
                                  .n_states = 1,
                                  .q = q,
                                  .k = q,
                                  .v = v,
                                  .o = o,
                                  .work = work };
        assert_int_equal(foci_state_create(pool, &s), FOCI_OK);
        for (int t = 0; t < steps; t++)
            assert_int_equal(foci_step(pool, &io), FOCI_OK);
        assert_true(o[0] == 2);
        foci_state_free(s);
    }
    assert_int_equal(foci_pool_free_pages(pool), 8);
    assert_int_equal(foci_pool_pages(pool), 8);
    free(work);
    foci_pool_free(pool);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),       cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_parts),       cmocka_unit_test(test_forks),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_nonfinite),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_ring),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_sums),        cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_append_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
