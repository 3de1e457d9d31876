/* step.c -- one step of many sequences: check, reserve, append, attend.
 *
 * Everything that can fail comes first: pages are counted and tables are grown before
 * any state changes.  The tables are all that a step allocates.
 */
#include <inttypes.h>

#include "state/state.h"

static int64_t tokens_of(const foci_step_io *io, int64_t i)
{
    return io->tokens ? io->tokens[i] : 1;
}

/* A state may be given once only: two steps of one state would depend on their
 * order. */
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

/* What the stages read.  Keys that are the queries are not read. */
static unsigned reads(const foci_plan *plan)
{
    unsigned all = 0;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const unsigned mine = mech_reads(&plan->spec.groups[g].mech);
        all |= plan->stages[g].order.shared_qk ? mine & ~(unsigned)FOCI_READ_K : mine;
    }
    return all;
}

static const char *missing(const foci_plan *plan, const foci_step_io *io)
{
    const unsigned needs = reads(plan);

    if (needs & FOCI_READ_K && !io->k) return "k";
    if (needs & FOCI_READ_V && !io->v) return "v";
    return needs & FOCI_READ_Q && io->o && !io->q ? "q" : NULL;
}

/* Rows of all tensors lie one after another. */
static foci_status check_overlap(const foci_pool *pool, const foci_step_io *io)
{
    const foci_problem *p = &pool->plan->p;
    const uintptr_t     el = foci_dtype_bytes(p->dtype), o = (uintptr_t)io->o;
    int64_t             rows = 0;

    for (int64_t i = 0; i < io->n_states; i++)
        rows = min64(rows + tokens_of(io, i), MAX_LEN);
    const struct {
        const char *name;
        const void *data;
        int64_t     width;
    } ins[] = {
        { "q", io->q, p->heads * p->dim_qk },
        { "k", io->k, p->kv_heads * p->dim_qk },
        { "v", io->v, p->kv_heads * p->dim_v },
        { "x", io->x, p->dim_x },
    };
    const uintptr_t o_bytes = (uintptr_t)(rows * p->heads * p->dim_v) * el;
    for (size_t i = 0; i < sizeof ins / sizeof *ins; i++) {
        const uintptr_t at = (uintptr_t)ins[i].data;
        if (o && at && o < at + (uintptr_t)(rows * ins[i].width) * el &&
            at < o + o_bytes)
            return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                            "io.o overlaps io.%s: outputs need memory of their own",
                            ins[i].name);
    }
    return FOCI_OK;
}

static foci_status step_check(const foci_pool *pool, const foci_step_io *io)
{
    const foci_plan *plan = pool->plan;
    foci_ctx        *ctx = plan->ctx;

    if (io->n_states < 0 || (io->n_states && !io->states))
        return ctx_fail(ctx, FOCI_ERR_ARG, "n_states is %" PRId64 ", states is %s",
                        io->n_states, io->states ? "given" : "NULL");
    if (!io->n_states) return FOCI_OK;
    if (missing(plan, io))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%s of the step is NULL (without o, tokens are appended only)",
                        missing(plan, io));
    if (io->o && plan->n_floats && !io->params)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "params is NULL: this plan has %" PRId64 " parameters",
                        plan->n_floats);
    if (io->o && (!io->work || (uintptr_t)io->work % 64))
        return ctx_fail(ctx, FOCI_ERR_ARG, "work is %s: see foci_step_work_bytes()",
                        io->work ? "not 64-byte aligned" : "NULL");
    TRY(check_states(pool, io));
    TRY(check_overlap(pool, io));
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->check) TRY(d->check(pool, g, io));
    }
    return FOCI_OK;
}

foci_status state_reserve(foci_state *s, int64_t tokens, int64_t *pages)
{
    const foci_plan *plan = s->pool->plan;

    if (!tokens) return FOCI_OK;
    if (tokens > MAX_LEN - s->len)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "a state would have more than %" PRId64 " tokens", MAX_LEN);
    TRY(stream_reserve(s->pool, &s->tokens, tokens, pages));
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->reserve) TRY(d->reserve(s, g, tokens, pages));
    }
    return FOCI_OK;
}

foci_status foci_state_reserve(foci_state *state, int64_t tokens)
{
    if (!state)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_state_reserve: the state is NULL");
    if (tokens < 0)
        return ctx_fail(state->pool->plan->ctx, FOCI_ERR_ARG,
                        "tokens is %" PRId64 ": it may be 0 or more", tokens);
    return state_reserve(state, tokens, NULL);
}

/* Reserve pages and tables for all new tokens, or change nothing. */
static foci_status reserve(foci_pool *pool, const foci_step_io *io)
{
    int64_t need = 0;

    pool_begin(pool);
    for (int64_t i = 0; i < io->n_states; i++)
        TRY(state_reserve(io->states[i], tokens_of(io, i), &need));
    if (need <= pool->n_free) return FOCI_OK;
    return ctx_fail(pool->plan->ctx, FOCI_ERR_FULL,
                    "the step needs %" PRId64 " pages, and %" PRId64 " of %" PRId64
                    " are free: free states or call foci_pool_grow()",
                    need, pool->n_free, pool->n_pages);
}

size_t step_scratch(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                    int64_t max_len)
{
    const struct decoder *d = decoder_of(pool->plan, g);
    return d->step_bytes ? d->step_bytes(pool, g, n_seqs, tokens, max_len)
                         : d->append_bytes(pool, g);
}

size_t foci_step_work_bytes(const foci_pool *pool, int64_t n_states, int64_t tokens,
                            int64_t max_len)
{
    struct arena a = { 0 };
    size_t       most = 0;

    if (!pool || n_states < 0 || tokens < 0 || max_len < 0) return SIZE_MAX;
    if (n_states > MAX_LEN || tokens > MAX_LEN || max_len > MAX_LEN) return SIZE_MAX;
    const foci_plan *plan = pool->plan;
    arena_alloc(&a, n_states, sizeof(struct step_seq));
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const size_t n = step_scratch(pool, g, n_states, tokens, max_len);
        if (n > most) most = n;
    }
    arena_alloc(&a, 1, most);
    return a.used;
}

void step_append(struct state_step *step)
{
    const foci_plan *plan = step->pool->plan;

    for (int64_t i = 0; i < step->n_seqs; i++) {
        struct step_seq *seq = &step->seqs[i];
        stream_extend(step->pool, &seq->state->tokens, seq->tokens);
        seq->state->len += seq->tokens;
        step->max_tokens = max64(step->max_tokens, seq->tokens);
    }
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->append) d->append(step, g);
    }
}

void state_drop(foci_state *s)
{
    const foci_plan *plan = s->pool->plan;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->drop) d->drop(s, g);
    }
    stream_drop(s->pool, &s->tokens, state_first_key(plan, s->len), state_pinned);
}

/* Without outputs there is no work memory, so sequences are appended one by one. */
static void append_only(foci_pool *pool, const foci_step_io *io)
{
    for (int64_t i = 0, row = 0; i < io->n_states; row += tokens_of(io, i++)) {
        struct step_seq   seq = { io->states[i], row, tokens_of(io, i) };
        struct state_step step = {
            .pool = pool, .io = io, .seqs = &seq, .n_seqs = 1, .kv_step = 1
        };
        if (!seq.tokens) continue;
        step_append(&step);
        state_drop(seq.state);
    }
}

static void attend(foci_pool *pool, const foci_step_io *io)
{
    struct arena      a = { .base = io->work };
    struct state_step step = {
        .pool = pool, .io = io, .n_seqs = io->n_states, .kv_step = 1
    };

    step.seqs = arena_alloc(&a, io->n_states, sizeof *step.seqs);
    for (int64_t i = 0, row = 0; i < io->n_states; row += tokens_of(io, i++))
        step.seqs[i] = (struct step_seq){ io->states[i], row, tokens_of(io, i) };
    step_append(&step);
    for (int g = 0; g < pool->plan->spec.n_groups; g++)
        decoder_of(pool->plan, g)->step(&step, g, a);
    for (int64_t i = 0; i < io->n_states; i++)
        state_drop(io->states[i]);
}

foci_status foci_step(foci_pool *pool, const foci_step_io *io)
{
    foci_step_io whole;

    if (!pool) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_step: the pool is NULL");
    TRY(sized_in(pool->plan->ctx, "foci_step_io", &whole, io, sizeof whole));
    TRY(step_check(pool, &whole));
    if (!whole.n_states) return FOCI_OK;
    TRY(reserve(pool, &whole));
    if (whole.o)
        attend(pool, &whole);
    else
        append_only(pool, &whole);
    return FOCI_OK;
}
