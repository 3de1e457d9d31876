/* step.c -- one step of many sequences: check, append, attend.
 *
 * Everything that can fail comes first: the pages a step needs are counted, and the
 * tables that will hold their numbers are grown, before any state is touched.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "state/state.h"

static int64_t tokens_of(const foci_step_io *io, int64_t i)
{
    return io->tokens ? io->tokens[i] : 1;
}

/* A page that others hold too is copied before it is written into. */
static bool must_copy(const foci_state *s)
{
    return s->len % PAGE && s->pool->pages[s->pages[s->n_pages - 1]].refs > 1;
}

/* States must differ, or their order would decide what they see. */
static foci_status mark_states(const foci_pool *pool, const foci_step_io *io)
{
    foci_ctx *ctx = pool->plan->ctx;

    for (int64_t i = 0; i < io->n_states; i++) {
        if (!io->states[i] || io->states[i]->pool != pool)
            return ctx_fail(ctx, FOCI_ERR_ARG, "states[%" PRId64 "] is %s", i,
                            io->states[i] ? "of another pool" : "NULL");
        if (tokens_of(io, i) < 0)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "tokens[%" PRId64 "] is %" PRId64 ": it may be 0 or more",
                            i, tokens_of(io, i));
        if (io->states[i]->in_step)
            return ctx_fail(ctx, FOCI_ERR_ARG, "states[%" PRId64 "] is there twice", i);
        io->states[i]->in_step = true;
    }
    return FOCI_OK;
}

static foci_status check_states(const foci_pool *pool, const foci_step_io *io)
{
    const foci_status status = mark_states(pool, io);

    for (int64_t i = 0; i < io->n_states; i++)
        if (io->states[i] && io->states[i]->pool == pool)
            io->states[i]->in_step = false;
    return status;
}

static foci_status check(foci_pool *pool, const foci_step_io *io)
{
    foci_ctx *ctx = pool->plan->ctx;

    if (io->size < sizeof *io)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "io.size is %zu: set it with FOCI_SIZED(foci_step_io)",
                        io->size);
    if (io->n_states < 0 || (io->n_states && !io->states))
        return ctx_fail(ctx, FOCI_ERR_ARG, "n_states is %" PRId64 ", states is %s",
                        io->n_states, io->states ? "given" : "NULL");
    if (!io->n_states) return FOCI_OK;
    if (!io->k || !io->v || !io->q != !io->o)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%s of the step is NULL (q and o may be, together: tokens are "
                        "then appended only)",
                        !io->k   ? "k"
                        : !io->v ? "v"
                        : !io->q ? "q"
                                 : "o");
    if (!io->q) return check_states(pool, io);
    if (pool->plan->n_floats && !io->params)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "params is NULL: this plan has %" PRId64 " parameters",
                        pool->plan->n_floats);
    if (!io->work || (uintptr_t)io->work % 64)
        return ctx_fail(ctx, FOCI_ERR_ARG, "work is %s: see foci_step_bytes()",
                        io->work ? "not 64-byte aligned" : "NULL");

    const foci_status status = check_states(pool, io);
    for (int64_t i = 0; i < io->n_states; i++)
        if (io->states[i] && io->states[i]->pool == pool)
            io->states[i]->in_step = false;
    return status;
}

/* Make room, or change nothing. */
static foci_status reserve(foci_pool *pool, const foci_step_io *io)
{
    int64_t need = 0;

    for (int64_t i = 0; i < io->n_states; i++) {
        foci_state   *s = io->states[i];
        const int64_t n = tokens_of(io, i), pages = div_up(s->len + n, PAGE);
        if (!n) continue;
        need += pages - s->n_pages + must_copy(s);
        TRY(state_reserve(s, pages));
    }
    if (need <= pool->n_free) return FOCI_OK;
    return ctx_fail(pool->plan->ctx, FOCI_ERR_FULL,
                    "the step needs %" PRId64 " pages, and %" PRId64 " of %" PRId64
                    " are free: free states or call foci_pool_grow()",
                    need, pool->n_free, pool->n_pages);
}

static void own_last_page(foci_state *s)
{
    foci_pool    *pool = s->pool;
    int64_t      *last = &s->pages[s->n_pages - 1];
    const int64_t copy = pool_take(pool);

    memcpy(pool->pages[copy].data, pool->pages[*last].data, pool->page_bytes);
    pool_drop(pool, *last);
    *last = copy;
}

/* Whether heads of kv store unit keys: all heads of a group do, or none. */
static bool stores_unit(const foci_plan *plan, int64_t kv)
{
    const int64_t h = kv * (plan->p.heads / plan->p.kv_heads);
    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct group *g = &plan->spec.groups[i];
        if (h >= g->head0 && h < g->head0 + g->heads) return plan->stages[i].score.unit;
    }
    return false;
}

/* One key as scores want it. */
static void store_key(const foci_plan *plan, char *to, const char *from, bool unit)
{
    const struct kernels *k = &plan->ctx->kernels;
    const int             d = (int)plan->p.dim_qk, dtype = (int)plan->p.dtype;
    const size_t          el = foci_dtype_bytes(plan->p.dtype);
    _Alignas(64) float    part[256];
    double                sum = 0;

    if (!unit) {
        memcpy(to, from, (size_t)d * el);
        return;
    }
    for (int c = 0; c < d; c += 256) {
        const int n = (int)min64(256, d - c);
        k->load_rows(part, 256, from + (size_t)c * el, d, dtype, 1, n);
        for (int i = 0; i < n; i++)
            sum += (double)part[i] * (double)part[i];
    }
    const float by = (float)(1 / fmax(sqrt(sum), 1e-12));
    for (int c = 0; c < d; c += 256) {
        const int n = (int)min64(256, d - c);
        k->load_rows(part, 256, from + (size_t)c * el, d, dtype, 1, n);
        k->store_rows(to + (size_t)c * el, d, dtype, part, 256, by, 1, n);
    }
}

/* Put the new tokens of a state, whose rows start at row0, into its pages. */
static void append(foci_state *s, const foci_step_io *io, int64_t row0, int64_t tokens)
{
    foci_pool          *pool = s->pool;
    const foci_problem *p = &pool->plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);
    const size_t        k = (size_t)p->dim_qk * el, v = (size_t)p->dim_v * el;

    if (tokens && must_copy(s)) own_last_page(s);
    for (int64_t t = 0; t < tokens; t++, s->len++) {
        if (s->len % PAGE == 0) s->pages[s->n_pages++] = pool_take(pool);
        const int64_t page = s->pages[s->n_pages - 1];
        const size_t  at = (size_t)(s->len % PAGE);

        for (int64_t h = 0; h < p->kv_heads; h++) {
            const size_t row = (size_t)((row0 + t) * p->kv_heads + h);
            store_key(pool->plan, pool_keys(pool, page, h) + at * k,
                      (const char *)io->k + row * k, stores_unit(pool->plan, h));
            memcpy(pool_values(pool, page, h) + at * v, (const char *)io->v + row * v,
                   v);
        }
    }
}

size_t foci_step_bytes(const foci_pool *pool, int64_t n_states, int64_t tokens,
                       int64_t max_len)
{
    const foci_plan *plan = pool->plan;
    struct arena     a = { 0 };
    size_t           most = 0;

    if (n_states < 0 || tokens < 0 || max_len < 0) return 0;
    arena_take(&a, n_states, sizeof(struct step_seq));
    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct stage *s = &plan->stages[i];
        const size_t n = engine_of(s)->step_bytes(plan, s, n_states, tokens, max_len);
        if (n > most) most = n;
    }
    return (a.used + most + 63) / 64 * 64;
}

foci_status foci_step(foci_pool *pool, const foci_step_io *io)
{
    if (!pool || !io) return FOCI_ERR_ARG;
    TRY(check(pool, io));
    if (!io->n_states) return FOCI_OK;
    TRY(reserve(pool, io));

    if (!io->q) {
        for (int64_t i = 0, row = 0; i < io->n_states; row += tokens_of(io, i++))
            append(io->states[i], io, row, tokens_of(io, i));
        return FOCI_OK;
    }
    struct arena a = { .base = io->work };
    struct step  step = { .pool = pool, .io = io, .n_seqs = io->n_states };
    step.seqs = arena_take(&a, io->n_states, sizeof *step.seqs);
    for (int64_t i = 0, row = 0; i < io->n_states; i++) {
        const int64_t n = tokens_of(io, i);
        step.seqs[i] = (struct step_seq){ io->states[i], row, n };
        step.max_tokens = max64(step.max_tokens, n);
        append(io->states[i], io, row, n);
        row += n;
    }
    for (int i = 0; i < pool->plan->spec.n_groups; i++) {
        const struct stage *s = &pool->plan->stages[i];
        engine_of(s)->step(pool->plan, s, &step, a);
    }
    return FOCI_OK;
}
