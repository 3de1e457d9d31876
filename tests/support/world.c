/* world.c -- see world.h. */
#include "support/world.h"

#include <math.h>

const foci_problem world_shapes[N_SHAPES] = {
    { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL, .batch = 1, .heads = HEADS,
      .len_q = 1, .len_k = 1, .dim_qk = 16, .dim_v = 24 },
    { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL, .batch = 1, .heads = HEADS,
      .kv_heads = 2, .len_q = 1, .len_k = 1, .dim_qk = 72, .dim_v = 33 },
    { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL, .batch = 1, .heads = HEADS,
      .kv_heads = 1, .len_q = 1, .len_k = 1, .dim_qk = 5, .dim_v = 128 },
};

size_t world_row_bytes(const struct world *w, int64_t heads, int64_t dim)
{
    return (size_t)(heads * dim) * foci_dtype_bytes(w->plan->p.dtype);
}

static char *rows(struct world *w, int64_t len, int64_t heads, int64_t dim, double scale)
{
    char         *out = test_alloc((size_t)len + 1, world_row_bytes(w, heads, dim));
    const int64_t n = heads * dim;
    float        *one = test_alloc((size_t)n, sizeof *one);

    for (int64_t i = 0; i < len; i++) {
        for (int64_t c = 0; c < n; c++)
            one[c] = (float)(scale * rng_normal(&w->rng));
        w->ctx->kernels.store_rows(out + (size_t)i * world_row_bytes(w, heads, dim), n,
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
static void measure_rounding(struct world *w, const foci_io *io, struct sequence *s)
{
    const foci_problem *p = &w->plan->p;
    const int           dtype = (int)p->dtype;
    double             *params = test_alloc((size_t)w->plan->n_floats, sizeof *params);
    foci_io             rounded = *io;
    char *o = test_alloc((size_t)p->len_k, world_row_bytes(w, p->heads, p->dim_v));

    for (int64_t i = 0; i < w->plan->n_floats; i++)
        params[i] = (double)w->params[i];
    rounded.o = o;
    const struct ref_call call = {
        .plan = w->plan, .io = &rounded, .type = dtype, .params = params, .rounds = true
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

void world_expect(struct world *w, struct sequence *s)
{
    const int32_t len = (int32_t)s->len;
    void         *work = test_alloc(1, foci_plan_work_bytes(w->plan));
    const foci_io io = { FOCI_SIZED(foci_io), .q = s->q,     .k = s->k,
                         .v = s->v,           .x = s->x,     .o = s->want,
                         .len_q = &len,       .len_k = &len, .params = w->params,
                         .words = s->words,   .work = work };
    if ((w->plan->p.len_k <= SMALL ? foci_ref_forward : foci_forward)(w->plan, &io))
        fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
    measure(w->plan, &io, s);
    if (w->plan->p.len_k <= SMALL &&
        (trial_is_linear(w->plan) || trial_is(w->plan, FOCI_ENGINE_MEMFORMER)))
        measure_rounding(w, &io, s);
    free(work);
}

/* Kernels that can be negative, but divide by their sum, might divide by next to nothing:
 * on rows of one sign they do not.  Pairs of features that are rotated, of which one is far
 * above the other, leave next to nothing where they should cancel: in small rows they are
 * of one size. */
static void keep_off(const struct world *w, char *x, int64_t n)
{
    const int dtype = (int)w->plan->p.dtype;
    bool      positive = false;
    double    by = 1;

    for (int g = 0; g < w->plan->spec.n_groups; g++)
        for (const foci_mech *m = &w->plan->spec.groups[g].mech; m; m = m->inner) {
            if (m->def->engine != FOCI_ENGINE_LINEAR) continue;
            const foci_linear l = linear_of(m);
            positive =
                positive || (l.norm == FOCI_LINEAR_NORM_SUM && linear_signed(&l));
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
    const foci_io io = { FOCI_SIZED(foci_io), .q = s->q,           .k = s->k,
                         .v = s->v,           .x = s->x,           .o = s->want,
                         .words = s->words,   .params = w->params, .work = work };

    if (foci_params_calibrate(w->plan, &io, w->params))
        fail_msg("%s: %s", w->spec, foci_errmsg(w->ctx));
    free(work);
}

struct world world_make(foci_ctx *ctx, const char *spec, const foci_problem *p,
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
    w.params = test_alloc((size_t)foci_plan_param_floats(w.plan), sizeof *w.params);
    trial_params(w.plan, seed, &w.rng, w.params);
    for (int i = 0; i < n; i++) {
        struct sequence *s = &w.seq[i];
        s->len = lens[i];
        s->q = rows(&w, at.len_k, p->heads, p->dim_qk, 0.4);
        s->k = rows(&w, at.len_k, w.plan->p.kv_heads, p->dim_qk, 1);
        s->v = rows(&w, at.len_k, w.plan->p.kv_heads, w.plan->p.dim_v, 1);
        s->x = rows(&w, at.len_k, 1, w.plan->p.dim_x, 1);
        s->words = test_alloc((size_t)at.len_k + 1, sizeof *s->words);
        for (int64_t t = 1; t < at.len_k; t++)
            s->words[t] = s->words[t - 1] + (int32_t)rng_below(&w.rng, 2);
        s->want = test_alloc((size_t)at.len_k + 1,
                             world_row_bytes(&w, p->heads, w.plan->p.dim_v));
        s->got = test_alloc((size_t)at.len_k + 1,
                            world_row_bytes(&w, p->heads, w.plan->p.dim_v));
        s->size = test_alloc((size_t)(s->len * p->heads), sizeof *s->size);
        keep_off(&w, s->q, at.len_k * p->heads * p->dim_qk);
        keep_off(&w, s->k, at.len_k * w.plan->p.kv_heads * p->dim_qk);
        if (i == 0 && trial_is_linear(w.plan)) freeze(&w, s);
        world_expect(&w, s);
        assert_int_equal(foci_state_create(w.pool, &s->state), FOCI_OK);
    }
    return w;
}

void world_free(struct world *w)
{
    for (int i = 0; i < w->n; i++) {
        struct sequence *s = &w->seq[i];
        foci_state_free(s->state);
        free(s->q);
        free(s->k);
        free(s->v);
        free(s->x);
        free(s->words);
        free(s->want);
        free(s->got);
        free(s->size);
    }
    assert_int_equal(foci_pool_free_count(w->pool), foci_pool_page_count(w->pool));
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
        const void *const      all[] = { s->q, s->k, s->v, s->x, s->words };
        const char            *from = all[which];
        memcpy(out + at * row, from + (size_t)s->done * row, (size_t)n[i] * row);
        at += (size_t)n[i];
    }
    return out;
}

bool world_must_attend(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->two_pass && m->def->two_pass(m)) return true;
    return false;
}

/* Whether appending needs queries. */
static bool shared(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner) {
            foci_order order = { 0 };
            if (m->def->order) m->def->order(m, &order);
            if (order.shared_qk) return true;
        }
    return false;
}

void world_step(struct world *w, const int32_t *n, bool attend)
{
    const foci_problem *p = &w->plan->p;
    const size_t        qr = world_row_bytes(w, p->heads, p->dim_qk);
    const size_t        kr = world_row_bytes(w, p->kv_heads, p->dim_qk);
    const size_t        vr = world_row_bytes(w, p->kv_heads, p->dim_v);
    const size_t or = world_row_bytes(w, p->heads, p->dim_v);
    foci_state *states[MAX_SEQS];
    int64_t     tokens = 0, longest = 0;

    for (int i = 0; i < w->n; i++) {
        states[i] = w->seq[i].state;
        tokens += n[i];
        longest = max64(longest, foci_state_len(states[i]) + n[i]);
    }
    char *q = gather(w, n, qr, 0), *k = gather(w, n, kr, 1), *v = gather(w, n, vr, 2);
    char *o = test_alloc((size_t)tokens + 1, or);
    char *x = gather(w, n, world_row_bytes(w, 1, p->dim_x), 3);
    char *words = gather(w, n, sizeof(int32_t), 4);
    attend = attend || world_must_attend(w->plan);
    const unsigned reads = trial_reads(w->plan);
    const bool     needs_q = reads & FOCI_READ_Q && (attend || shared(w->plan));
    const bool     any = rng_below(&w->rng, 2); /* given without need */
    size_t         bytes = foci_step_work_bytes(w->pool, w->n, tokens, longest);
    char          *work = test_alloc(1, bytes + 64);
    memset(work, 0xff, bytes + 64);

    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = states,
                              .n_states = w->n,
                              .tokens = n,
                              .q = needs_q || any ? q : NULL,
                              .x = x,
                              .words = (const int32_t *)(const void *)words,
                              .k = reads & FOCI_READ_K || any ? k : NULL,
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
    free(words);
    free(o);
    free(work);
}

void world_compare(const struct world *w, const struct sequence *s)
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

void world_run(struct world *w)
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
        world_step(w, n, rng_below(&w->rng, 5) != 0);
    }
}
