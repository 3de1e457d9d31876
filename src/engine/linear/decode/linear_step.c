/* linear_step.c -- steps of the linear engine: checks, memory, the items of a step. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/linear/decode/linear_step.h"

/*
 * Checks
 */

/* Whether the mechanism has statistics of which some are NaN. */
static bool uncalibrated(const struct linear_step *s, const float *params)
{
    const struct plan_group *g = s->x.stage->group;
    const int64_t            d = s->x.dq;
    const int                last = s->x.l->moments == FOCI_MOMENTS_NORM ? 1 : 5;

    for (int t = 1; s->x.l->moments && t <= last; t++)
        for (int64_t i = 0; i < s->x.heads * d * (t > 1 ? d : 1); i++)
            if (isnan(params[g->param0[t] + i])) return true;
    return false;
}

static foci_status linear_step_check(const foci_pool *pool, int g,
                                     const foci_step_io *io)
{
    const struct linear_step s = linear_step_geometry(pool->plan, g);
    const char              *name = s.x.stage->group->mech.def->name;
    const bool               reads = linear_step_projects(&s.x) ||
                       (s.x.l->decays && s.x.stage->group->param0[0] >= 0);

    if (reads && pool->plan->n_floats && !io->params)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                        "params is NULL: %s needs them for tokens that are only "
                        "appended, too",
                        name);
    if (uncalibrated(&s, io->params))
        return ctx_fail(pool->plan->ctx, FOCI_ERR_UNSUP,
                        "the statistics of %s are not numbers: decoding needs them "
                        "frozen, by foci_params_calibrate() or given as A",
                        name);
    return FOCI_OK;
}

static foci_status reserve(foci_state *state, int g, int64_t tokens, int64_t *pages)
{
    const struct stage *s = &state->pool->plan->stages[g];
    const int64_t       len = state->len + tokens;

    (void)pages;
    if (s->linear.cosine && (double)len > s->linear.length)
        return ctx_fail(state->pool->plan->ctx, FOCI_ERR_UNSUP,
                        "%s has length=%.0f, and the state would have %" PRId64
                        " tokens",
                        s->group->mech.def->name, s->linear.length, len);
    return FOCI_OK;
}

/*
 * Memory
 */

static struct linear_step_scratch scratch_carve(const struct linear_step *s,
                                                struct arena             *a)
{
    const struct linear       *x = &s->x;
    const int64_t              m = s->layout.m_full;
    struct linear_step_scratch r = { 0 };

    r.rows = arena_alloc(a, 8 * s->ldx, sizeof *r.rows);
    r.dots = arena_alloc(a, (int64_t)8 * LANES, sizeof *r.dots);
    r.key = arena_alloc(a, m, sizeof *r.key);
    r.query = arena_alloc(a, m, sizeof *r.query);
    r.rotated_key = x->rope ? arena_alloc(a, m, sizeof *r.rotated_key) : r.key;
    r.rotated_query = x->rope ? arena_alloc(a, m, sizeof *r.rotated_query) : r.query;
    r.max_log = arena_alloc(a, x->logs ? m : 0, sizeof *r.max_log);
    r.shrink = arena_alloc(a, x->logs ? m : 0, sizeof *r.shrink);
    r.angles = arena_alloc(a, x->rope ? m : 0, sizeof *r.angles);
    r.rotation = arena_alloc(a, x->rope ? m : 0, sizeof *r.rotation);
    r.retain = arena_alloc(a, m, sizeof *r.retain);
    r.v = arena_alloc(a, s->layout.lds, sizeof *r.v);
    r.out = arena_alloc(a, s->layout.lds, sizeof *r.out);
    r.o = arena_alloc(a, s->layout.lds, sizeof *r.o);
    if (s->prefills) r.prefill = linear_prefill_carve(x, a);
    return r;
}

static void linear_step_carve(struct linear_step *s, int64_t n_seqs, struct arena *a)
{
    struct linear *x = &s->x;
    struct arena   one = { 0 };

    s->rotations =
        arena_alloc(a, x->rope ? n_seqs : 0, (size_t)x->m * sizeof *s->rotations);
    s->bias =
        linear_step_has_bias(x)
            ? arena_alloc(a, x->heads * (int64_t)s->layout.m_full, sizeof *s->bias)
            : NULL;
    if (s->prefills) {
        x->seqs = arena_alloc(a, n_seqs, sizeof *x->seqs);
        linear_params_carve(x, a);
    }
    scratch_carve(s, &one);
    s->scratch_bytes = one.used;
    s->scratch = arena_alloc(a, x->threads, one.used);
}

static size_t append_bytes(const foci_pool *pool, int g)
{
    struct linear_step s = linear_step_geometry(pool->plan, g);
    struct arena       a = { 0 };

    s.prefills = true;
    linear_step_carve(&s, 1, &a);
    return a.used;
}

static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct linear_step s = linear_step_geometry(pool->plan, g);
    struct arena       a = { 0 };

    (void)max_len;
    s.prefills = tokens >= PREFILL_TOKENS;
    linear_step_carve(&s, n_seqs, &a);
    return a.used;
}

/*
 * A step
 */

/* Sums number n % sets of sequence n / sets: all new tokens. */
static void do_item(const struct linear_step *s, int64_t n, bool attend,
                    struct linear_step_scratch *r)
{
    const struct linear    *x = &s->x;
    const int64_t           q = n / s->layout.sets, at = n % s->layout.sets;
    struct linear_step_item i = { .q = q,
                                  .seq = &s->step->seqs[q],
                                  .sums = linear_step_sums_at(
                                      s, s->step->seqs[q].state->own[s->g], at) };

    i.heads = s->layout.shared ? x->per_kv : 1;
    i.h = at * i.heads;
    i.kv = i.h / x->per_kv;
    i.lam = x->l->decays ? linear_lambda(x, i.h) : 1;
    const int64_t first = s->prefills ? linear_step_prefill(s, &i, attend, r) : 0;
    linear_step_retain(s, i.lam, r);
    if (x->rope && first)
        linear_step_rotation(s, i.seq, first, r->rotation);
    else if (x->rope)
        memcpy(r->rotation, s->rotations + q * x->m, (size_t)x->m * sizeof *r->rotation);
    for (int64_t t = first; t < i.seq->tokens; t++)
        linear_step_token(s, &i, t, attend, r);
}

/* With fewer bytes to read and write, waking threads costs more than they save. */
static const double alone_bytes = 1 << 20;

static int threads_of(const struct linear_step *s)
{
    double all = 0;

    for (int64_t i = 0; i < s->step->n_seqs; i++)
        all += (double)s->step->seqs[i].tokens * (double)s->layout.sets *
               (double)s->layout.all * 2;
    return all < alone_bytes ? 1 : team_size(s->x.threads);
}

static void run_items(struct linear_step *s, bool attend)
{
    const int64_t items = s->step->n_seqs * s->layout.sets;
    const int     threads = threads_of(s);

    for (int64_t i = 0; i < s->step->n_seqs; i++)
        linear_step_rotation(s, &s->step->seqs[i], 0, s->rotations + i * s->x.m);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena               mine = { .base = s->scratch +
                                                    (size_t)omp_get_thread_num() * s->scratch_bytes };
        struct linear_step_scratch r = scratch_carve(s, &mine);
        struct thread_state        before;

        if (s->x.k->begin) s->x.k->begin(&before);
        if (s->bias) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t h = 0; h < s->x.heads; h++)
                linear_step_bias(s, h, &r);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++)
            do_item(s, i, attend, &r);
        if (s->x.k->end) s->x.k->end(&before);
    }
}

static void step_run(const struct state_step *step, int g, struct arena *a, bool attend)
{
    struct linear_step s = linear_step_geometry(step->pool->plan, g);

    s.step = step;
    s.g = g;
    s.prefills = step->max_tokens >= PREFILL_TOKENS;
    s.io.params = step->io->params;
    s.x.io = &s.io;
    s.x.maps = ((const struct linear_pool *)step->pool->own[g])->maps;
    linear_step_carve(&s, step->n_seqs, a);
    if (s.prefills) linear_step_prefill_open(&s);
    run_items(&s, attend);
}

/* A step with outputs adds its tokens while its queries read the sums: see
 * step_all(). */
static void append(const struct state_step *step, int g)
{
    struct arena a = { .base = step->pool->scratch };

    if (!step->io->o) step_run(step, g, &a, false);
}

static void step_all(const struct state_step *step, int g, struct arena work)
{
    step_run(step, g, &work, true);
}

const struct decoder linear_decoder = {
    .pool_make = linear_step_pool_make,
    .pool_free = linear_step_pool_free,
    .make = linear_step_state_make,
    .copy = linear_step_state_copy,
    .free = linear_step_state_free,
    .bytes = linear_step_state_bytes,
    .save = linear_step_state_save,
    .restore = linear_step_state_restore,
    .truncate = linear_step_state_truncate,
    .check = linear_step_check,
    .reserve = reserve,
    .append_bytes = append_bytes,
    .append = append,
    .step_bytes = step_bytes,
    .step = step_all,
};
