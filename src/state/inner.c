/* inner.c -- states inside states, of engines that step other plans.
 *
 * Every inner plan has a pool of its own, with as many pages as the outer one.  The
 * inner states of a state have the same tokens.
 */
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

/*
 * Pools
 */

foci_status inner_pools_make(foci_pool *pool, int g, const foci_plan *const *plans,
                             int64_t n)
{
    struct inner_pools *inner = pool->own[g];

    inner->pool = ctx_alloc(pool->plan->ctx, (size_t)n, sizeof *inner->pool);
    if (!inner->pool) return FOCI_ERR_MEMORY;
    inner->n = n;
    for (int64_t i = 0; i < n; i++) {
        TRY(foci_pool_create(plans[i], pool->n_pages, &inner->pool[i]));
        pool->inner_bytes += foci_pool_page_bytes(inner->pool[i]);
    }
    return FOCI_OK;
}

void inner_pools_free(foci_pool *pool, int g)
{
    struct inner_pools *inner = pool->own[g];

    for (int64_t i = 0; i < inner->n; i++)
        foci_pool_free(inner->pool[i]);
    ctx_free(pool->plan->ctx, inner->pool, (size_t)inner->n, sizeof *inner->pool);
}

foci_status inner_pools_grow(foci_pool *pool, int g, int64_t pages)
{
    const struct inner_pools *inner = pool->own[g];

    for (int64_t i = 0; i < inner->n; i++)
        TRY(foci_pool_grow(inner->pool[i], pages));
    return FOCI_OK;
}

int64_t inner_pools_pages(const foci_pool *pool, int g)
{
    const struct inner_pools *inner = pool->own[g];
    int64_t                   least = INT64_MAX;

    for (int64_t i = 0; i < inner->n; i++)
        least = min64(least, foci_pool_free_count(inner->pool[i]));
    return least;
}

/*
 * States
 */

static int64_t count(const foci_state *state, int g)
{
    return ((const struct inner_pools *)state->pool->own[g])->n;
}

foci_status inner_make(foci_state *state, int g)
{
    const int64_t n = count(state, g);
    foci_state  **own = ctx_alloc(state->pool->plan->ctx, (size_t)n, sizeof *own);

    state->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        TRY(foci_state_create(inner_pool(state->pool, g, i), &own[i]));
    return FOCI_OK;
}

void inner_free(foci_state *state, int g)
{
    foci_state  **own = state->own[g];
    const int64_t n = count(state, g);

    for (int64_t i = 0; own && i < n; i++)
        foci_state_free(own[i]);
    ctx_free(state->pool->plan->ctx, own, (size_t)n, sizeof *own);
    state->own[g] = NULL;
}

/* Replace the empty state that was made with the outer one. */
static void replace(foci_state *state, int g, int64_t i, foci_state *by)
{
    foci_state **own = state->own[g];
    foci_state_free(own[i]);
    own[i] = by;
}

foci_status inner_copy(const foci_state *from, foci_state *to, int g)
{
    for (int64_t i = 0; i < count(from, g); i++) {
        foci_state *made;
        TRY(foci_state_copy(inner_state(from, g, i), &made));
        replace(to, g, i, made);
    }
    return FOCI_OK;
}

size_t inner_bytes(const foci_state *state, int g)
{
    size_t n = 0;

    for (int64_t i = 0; i < count(state, g); i++)
        n += sizeof(foci_state *) + foci_state_bytes(inner_state(state, g, i));
    return n;
}

void inner_save(const foci_state *state, int g, struct state_writer *w)
{
    for (int64_t i = 0; i < count(state, g); i++) {
        const foci_state *s = inner_state(state, g, i);
        const uint64_t    bytes = foci_state_save(s, NULL, 0);

        write_bytes(w, &bytes, sizeof bytes);
        if (w->to) foci_state_save(s, w->to + w->at, bytes);
        w->at += bytes;
    }
}

foci_status inner_restore(foci_state *state, int g, struct state_reader *r)
{
    for (int64_t i = 0; i < count(state, g); i++) {
        foci_state *made;
        uint64_t    bytes;

        if (!read_bytes(r, &bytes, sizeof bytes) || bytes > r->bytes - r->at)
            return state_damaged(state->pool);
        TRY(foci_state_restore(inner_pool(state->pool, g, i), r->from + r->at, bytes,
                               &made));
        r->at += bytes;
        replace(state, g, i, made);
        if (made->len != state->len) return state_damaged(state->pool);
    }
    return FOCI_OK;
}

foci_status inner_truncate(foci_state *state, int g, int64_t len, bool really)
{
    for (int64_t i = 0; i < count(state, g); i++)
        TRY(really ? foci_state_truncate(inner_state(state, g, i), len)
                   : state_check_truncate(inner_state(state, g, i), len));
    return FOCI_OK;
}

/*
 * Steps
 */

foci_status inner_check(const foci_pool *pool, int g, const foci_step_io *io)
{
    const struct inner_pools *inner = pool->own[g];

    for (int64_t i = 0; i < inner->n; i++) {
        const struct decoder *d = decoder_of(inner->pool[i]->plan, 0);
        pool_begin(inner->pool[i]);
        if (d->check) TRY(d->check(inner->pool[i], 0, io));
    }
    return FOCI_OK;
}

foci_status inner_reserve(foci_state *state, int g, int64_t tokens, int64_t *pages)
{
    /* Inner states have pools of their own. */
    for (int64_t i = 0; i < count(state, g); i++) {
        foci_pool *pool = inner_pool(state->pool, g, i);

        TRY(state_reserve(inner_state(state, g, i), tokens,
                          pages ? &pool->reserved : NULL));
        if (pages && pool->reserved > pool->n_free)
            return ctx_fail(pool->plan->ctx, FOCI_ERR_FULL,
                            "the step needs %" PRId64 " pages, and %" PRId64
                            " of %" PRId64
                            " are free: free states or call foci_pool_grow()",
                            pool->reserved, pool->n_free, pool->n_pages);
    }
    return FOCI_OK;
}

void inner_drop(foci_state *state, int g)
{
    for (int64_t i = 0; i < count(state, g); i++)
        state_drop(inner_state(state, g, i));
}

struct state_step inner_step(const struct state_step *step, int g, int64_t i,
                             struct step_seq *seqs)
{
    struct state_step inner = *step;

    inner.pool = inner_pool(step->pool, g, i);
    inner.seqs = seqs;
    for (int64_t s = 0; s < step->n_seqs; s++) {
        seqs[s] = step->seqs[s];
        seqs[s].state = inner_state(step->seqs[s].state, g, i);
    }
    return inner;
}
