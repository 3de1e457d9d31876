/* state.c -- the state of one sequence: made, copied, truncated, saved and restored.
 *
 * A saved state is a header, the spec with every argument, the rows of keys and values
 * of each head without padding, then what each stage keeps beside them.  Restoring
 * checks all of it against the pool.
 */
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

int64_t state_first_key(const foci_plan *plan, int64_t n)
{
    int64_t first = n;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech *m = &plan->spec.groups[g].mech;
        if (!decoder_of(plan, g)->paged) continue;
        first = min64(first, m->def->first_key ? max64(0, m->def->first_key(m, n)) : 0);
    }
    return first;
}

bool state_pinned(const foci_plan *plan, foci_range rows)
{
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech *m = &plan->spec.groups[g].mech;
        if (decoder_of(plan, g)->paged && m->def->pinned && m->def->pinned(m, rows))
            return true;
    }
    return false;
}

static foci_status make(foci_state *state)
{
    const foci_plan *plan = state->pool->plan;

    state->own = ctx_alloc(plan->ctx, (size_t)plan->spec.n_groups, sizeof *state->own);
    if (!state->own) return FOCI_ERR_MEMORY;
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->make) TRY(d->make(state, g));
    }
    return FOCI_OK;
}

foci_status foci_state_create(foci_pool *pool, foci_state **state)
{
    if (!pool || !state)
        return ctx_fail(pool ? pool->plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_state_create: %s is NULL", pool ? "state" : "pool");
    *state = NULL;

    foci_state *made = ctx_alloc(pool->plan->ctx, 1, sizeof *made);
    if (!made) return FOCI_ERR_MEMORY;
    made->pool = pool;
    const foci_status status = make(made);
    if (status) {
        foci_state_free(made);
        return status;
    }
    *state = made;
    return FOCI_OK;
}

static foci_status state_fill(const foci_state *from, foci_state *to)
{
    const foci_plan *plan = from->pool->plan;

    TRY(stream_copy(from->pool, &from->tokens, &to->tokens));
    to->len = from->len;
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->copy) TRY(d->copy(from, to, g));
    }
    return FOCI_OK;
}

foci_status foci_state_copy(const foci_state *state, foci_state **copy)
{
    if (!state || !copy)
        return ctx_fail(state ? state->pool->plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_state_copy: %s is NULL", state ? "copy" : "state");
    *copy = NULL;

    foci_state *made;
    TRY(foci_state_create(state->pool, &made));
    const foci_status status = state_fill(state, made);
    if (status) {
        foci_state_free(made);
        return status;
    }
    *copy = made;
    return FOCI_OK;
}

foci_status state_check_truncate(foci_state *state, int64_t len)
{
    const foci_plan *plan = state->pool->plan;
    const int64_t    first = state->tokens.first * PAGE;

    /* Stages first: those that keep sums give a better reason than missing rows. */
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->truncate) TRY(d->truncate(state, g, len, false));
    }
    if (len && state_first_key(plan, len) < first)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: those before token %" PRId64
                        ", which they would need, are no longer kept",
                        len, first);
    return FOCI_OK;
}

foci_status foci_state_truncate(foci_state *state, int64_t len)
{
    if (!state)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_state_truncate: the state is NULL");
    const foci_plan *plan = state->pool->plan;

    if (len < 0 || len > state->len)
        return ctx_fail(plan->ctx, FOCI_ERR_ARG,
                        "len is %" PRId64 ": a state of %" PRId64
                        " tokens can be cut back to 0 to %" PRId64,
                        len, state->len, state->len);
    if (len == state->len) return FOCI_OK;
    TRY(state_check_truncate(state, len));
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->truncate) (void)d->truncate(state, g, len, true);
    }
    stream_cut(state->pool, &state->tokens, len);
    state->len = len;
    return FOCI_OK;
}

void foci_state_reset(foci_state *state)
{
    if (state) (void)foci_state_truncate(state, 0);
}

void foci_state_free(foci_state *state)
{
    if (!state) return;
    const foci_plan *plan = state->pool->plan;

    for (int g = 0; state->own && g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->free) d->free(state, g);
    }
    stream_free(state->pool, &state->tokens);
    ctx_free(plan->ctx, state->own, (size_t)plan->spec.n_groups, sizeof *state->own);
    ctx_free(plan->ctx, state, 1, sizeof *state);
}

int64_t foci_state_len(const foci_state *state) { return state->len; }

size_t foci_state_bytes(const foci_state *state)
{
    const foci_plan *plan = state->pool->plan;
    size_t           n = sizeof *state + stream_bytes(state->pool, &state->tokens);

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        n += sizeof *state->own + (d->bytes ? d->bytes(state, g) : 0);
    }
    return n;
}

/*
 * Saved states
 */

struct state_header {
    char     magic[8];
    int64_t  spec_bytes; /* of the text after this, with its end */
    int64_t  dtype, kv_heads, dim_qk, dim_v, len, heads;
    uint64_t inputs; /* a hash of the seed and of the lists that supports depend on */
};

static const char magic[8] = "fociST2";

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 32;
}

static uint64_t hash_inputs(const foci_plan *plan)
{
    uint64_t h = mix(0, plan->p.seed);

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech *m = &plan->spec.groups[g].mech;
        h = mix(h, (uint64_t)m->n_list);
        for (int64_t i = 0; i < m->n_list; i++)
            h = mix(h, (uint64_t)m->list[i]);
    }
    return h;
}

static struct state_header header_of(const foci_pool *pool, int64_t len)
{
    const foci_problem *p = &pool->plan->p;
    struct state_header h = {
        .spec_bytes = foci_plan_spec(pool->plan, NULL, 0) + 1,
        .dtype = (int64_t)p->dtype,
        .kv_heads = p->kv_heads,
        .dim_qk = p->dim_qk,
        .dim_v = p->dim_v,
        .len = len,
        .heads = p->heads,
        .inputs = hash_inputs(pool->plan),
    };
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

static void write_state(const foci_state *state, struct state_writer *w)
{
    const foci_plan          *plan = state->pool->plan;
    const struct state_header h = header_of(state->pool, state->len);

    write_bytes(w, &h, sizeof h);
    if (w->to) foci_plan_spec(plan, w->to + w->at, (size_t)h.spec_bytes);
    w->at += (size_t)h.spec_bytes;
    stream_save(state->pool, &state->tokens, 0, plan->spec.n_groups, w);
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->save) d->save(state, g, w);
    }
}

size_t foci_state_save(const foci_state *state, void *data, size_t cap)
{
    struct state_writer need = { 0 };

    write_state(state, &need);
    if (!data || cap < need.at) return need.at;
    struct state_writer w = { .to = data };
    write_state(state, &w);
    return need.at;
}

static foci_status check_header(const foci_pool *pool, struct state_reader *r,
                                struct state_header *h)
{
    foci_ctx *ctx = pool->plan->ctx;

    if (!r->from || r->bytes < sizeof *h)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "a saved state has at least %zu bytes, not %zu", sizeof *h,
                        r->from ? r->bytes : 0);
    (void)read_bytes(r, h, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return ctx_fail(ctx, FOCI_ERR_ARG, "this is no saved state");

    const struct state_header want = header_of(pool, h->len);
    if (h->dtype != want.dtype || h->heads != want.heads ||
        h->kv_heads != want.kv_heads || h->dim_qk != want.dim_qk ||
        h->dim_v != want.dim_v)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the saved state is of dtype %" PRId64 ", %" PRId64
                        " heads, %" PRId64 " key/value heads, widths %" PRId64
                        " and %" PRId64 ", the pool of %" PRId64 ", %" PRId64
                        ", %" PRId64 ", %" PRId64 " and %" PRId64,
                        h->dtype, h->heads, h->kv_heads, h->dim_qk, h->dim_v,
                        want.dtype, want.heads, want.kv_heads, want.dim_qk, want.dim_v);
    if (h->len < 0 || h->len > MAX_LEN || h->spec_bytes != want.spec_bytes)
        return state_damaged(pool);
    if (h->inputs != want.inputs)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the saved state was made with another seed or other lists");
    return FOCI_OK;
}

/* Compare the spec of the pool's plan with the saved one. */
static foci_status check_spec(const foci_pool *pool, struct state_reader *r, size_t n)
{
    foci_ctx   *ctx = pool->plan->ctx;
    const char *saved = r->from + r->at;
    char       *text = ctx_alloc(ctx, n, 1);

    if (!text) return FOCI_ERR_MEMORY;
    foci_plan_spec(pool->plan, text, n);
    const bool whole = n <= r->bytes - r->at, same = whole && !memcmp(text, saved, n);
    ctx_free(ctx, text, n, 1);
    if (!whole) return state_damaged(pool);
    if (!same)
        return ctx_fail(ctx, FOCI_ERR_ARG, "the saved state is of another spec: %.*s",
                        (int)min64((int64_t)n - 1, 200), saved);
    r->at += n;
    return FOCI_OK;
}

static foci_status read_state(foci_state *state, int64_t len, struct state_reader *r)
{
    foci_pool       *pool = state->pool;
    const foci_plan *plan = pool->plan;

    TRY(stream_restore(pool, &state->tokens, 0, plan->spec.n_groups, len,
                       state_first_key(plan, len), r));
    for (int64_t t = 0; t < state->tokens.first; t++)
        if (stream_page(&state->tokens, t) < 0 &&
            state_pinned(plan, (foci_range){ t * PAGE, (t + 1) * PAGE }))
            return state_damaged(pool);
    state->len = len;
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->restore) TRY(d->restore(state, g, r));
    }
    return r->at == r->bytes ? FOCI_OK : state_damaged(pool);
}

foci_status foci_state_restore(foci_pool *pool, const void *data, size_t bytes,
                               foci_state **state)
{
    struct state_reader r = { .from = data, .bytes = bytes };
    struct state_header h = { 0 };

    if (!pool || !state)
        return ctx_fail(pool ? pool->plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_state_restore: %s is NULL", pool ? "state" : "pool");
    *state = NULL;
    TRY(check_header(pool, &r, &h));
    TRY(check_spec(pool, &r, (size_t)h.spec_bytes));

    foci_state *made;
    TRY(foci_state_create(pool, &made));
    const foci_status status = read_state(made, h.len, &r);
    if (status) {
        foci_state_free(made);
        return status;
    }
    *state = made;
    return FOCI_OK;
}
