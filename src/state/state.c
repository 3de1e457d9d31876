/* state.c -- one sequence: the pages it holds, copies, and its form in a file.
 *
 * Saved: a header, the spec with every argument, then the rows of keys and values of
 * each head without padding.  It is checked against the pool before anything is made.
 */
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

foci_status state_reserve(foci_state *state, int64_t n)
{
    foci_ctx *ctx = state->pool->plan->ctx;

    if (n <= state->cap_pages) return FOCI_OK;
    const int64_t cap = max64(n, 2 * state->cap_pages);
    int64_t      *pages = ctx_alloc(ctx, (size_t)cap, sizeof *pages);
    if (!pages) return FOCI_ERR_MEMORY;
    if (state->n_pages)
        memcpy(pages, state->pages, (size_t)state->n_pages * sizeof *pages);
    ctx_free(ctx, state->pages, (size_t)state->cap_pages, sizeof *pages);
    state->pages = pages;
    state->cap_pages = cap;
    return FOCI_OK;
}

foci_status foci_state_create(foci_pool *pool, foci_state **state)
{
    if (!pool || !state) return FOCI_ERR_ARG;
    *state = ctx_alloc(pool->plan->ctx, 1, sizeof **state);
    if (!*state) return FOCI_ERR_MEMORY;
    (*state)->pool = pool;
    return FOCI_OK;
}

foci_status foci_state_copy(const foci_state *state, foci_state **copy)
{
    if (!state || !copy) return FOCI_ERR_ARG;
    *copy = NULL;

    foci_state *made;
    TRY(foci_state_create(state->pool, &made));
    if (state_reserve(made, state->n_pages)) {
        foci_state_free(made);
        return FOCI_ERR_MEMORY;
    }
    for (int64_t i = 0; i < state->n_pages; i++) {
        made->pages[i] = state->pages[i];
        pool_hold(state->pool, state->pages[i]);
    }
    made->n_pages = state->n_pages;
    made->len = state->len;
    *copy = made;
    return FOCI_OK;
}

foci_status foci_state_truncate(foci_state *state, int64_t len)
{
    if (!state || len < 0 || len > state->len) return FOCI_ERR_ARG;
    while (state->n_pages > div_up(len, PAGE))
        pool_drop(state->pool, state->pages[--state->n_pages]);
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
    foci_ctx *ctx = state->pool->plan->ctx;

    foci_state_reset(state);
    ctx_free(ctx, state->pages, (size_t)state->cap_pages, sizeof *state->pages);
    ctx_free(ctx, state, 1, sizeof *state);
}

int64_t foci_state_len(const foci_state *state) { return state->len; }

size_t foci_state_bytes(const foci_state *state)
{
    return sizeof *state + (size_t)state->cap_pages * sizeof *state->pages +
           (size_t)state->n_pages * state->pool->page_bytes;
}

/*
 * Saved states
 */

struct header {
    char    magic[8];
    int64_t spec_bytes; /* of the text after this, with its end */
    int64_t dtype, kv_heads, dim_qk, dim_v, len;
};

static const char magic[8] = "fociST1";

static struct header header_of(const foci_pool *pool, int64_t len)
{
    const foci_problem *p = &pool->plan->p;
    struct header       h = {
              .spec_bytes = foci_plan_spec(pool->plan, NULL, 0) + 1,
              .dtype = (int64_t)p->dtype,
              .kv_heads = p->kv_heads,
              .dim_qk = p->dim_qk,
              .dim_v = p->dim_v,
              .len = len,
    };
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

/* All rows, page by page and head by head, keys and then values: out of the state into
 * `to`, or, where that is NULL, from `from` into the state. */
static void move_rows(const foci_state *state, char *to, const char *from)
{
    const foci_pool    *pool = state->pool;
    const foci_problem *p = &pool->plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype);
    size_t              at = 0;

    for (int64_t i = 0; i < 2 * p->kv_heads * state->n_pages; i++) {
        const int64_t page = i / (2 * p->kv_heads), kv = i / 2 % p->kv_heads;
        const size_t  n = (size_t)min64(PAGE, state->len - page * PAGE);
        const size_t  bytes = n * (size_t)(i % 2 ? p->dim_v : p->dim_qk) * el;
        char         *rows = i % 2 ? pool_values(pool, state->pages[page], kv)
                                   : pool_keys(pool, state->pages[page], kv);
        if (to)
            memcpy(to + at, rows, bytes);
        else
            memcpy(rows, from + at, bytes);
        at += bytes;
    }
}

size_t foci_state_save(const foci_state *state, void *data, size_t cap)
{
    const foci_pool    *pool = state->pool;
    const struct header h = header_of(pool, state->len);
    const size_t        text = (size_t)h.spec_bytes;
    const size_t        need =
        sizeof h + text + (size_t)state->len * (pool->page_bytes / PAGE);

    if (!data || cap < need) return need;
    char *at = data;
    memcpy(at, &h, sizeof h);
    foci_plan_spec(pool->plan, at + sizeof h, text);
    move_rows(state, at + sizeof h + text, NULL);
    return need;
}

static foci_status check_saved(const foci_pool *pool, const void *data, size_t bytes,
                               struct header *h)
{
    foci_ctx *ctx = pool->plan->ctx;

    if (!data || bytes < sizeof *h)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "a saved state has at least %zu bytes, not %zu", sizeof *h,
                        data ? bytes : 0);
    memcpy(h, data, sizeof *h);
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return ctx_fail(ctx, FOCI_ERR_ARG, "this is no saved state");

    const struct header want = header_of(pool, h->len);
    if (h->dtype != want.dtype || h->kv_heads != want.kv_heads ||
        h->dim_qk != want.dim_qk || h->dim_v != want.dim_v)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the saved state is of dtype %" PRId64 ", %" PRId64
                        " key/value heads, widths %" PRId64 " and %" PRId64
                        ", the pool of %" PRId64 ", %" PRId64 ", %" PRId64
                        " and %" PRId64,
                        h->dtype, h->kv_heads, h->dim_qk, h->dim_v, want.dtype,
                        want.kv_heads, want.dim_qk, want.dim_v);
    const size_t row = pool->page_bytes / PAGE;
    if (h->spec_bytes != want.spec_bytes || h->len < 0 ||
        (uint64_t)h->len > SIZE_MAX / 2 / row ||
        bytes != sizeof *h + (size_t)h->spec_bytes + (size_t)h->len * row)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "the saved state is of another spec, cut off or damaged");
    return FOCI_OK;
}

/* The spec of the pool's plan against the one that was saved. */
static foci_status check_spec(const foci_pool *pool, const char *saved, size_t n)
{
    foci_ctx *ctx = pool->plan->ctx;
    char     *text = ctx_alloc(ctx, n, 1);

    if (!text) return FOCI_ERR_MEMORY;
    foci_plan_spec(pool->plan, text, n);
    const bool same = memcmp(text, saved, n) == 0;
    ctx_free(ctx, text, n, 1);
    if (same) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "the saved state is of another spec: %.*s",
                    (int)min64((int64_t)n - 1, 200), saved);
}

foci_status foci_state_restore(foci_pool *pool, const void *data, size_t bytes,
                               foci_state **state)
{
    struct header h = { 0 };

    if (!pool || !state) return FOCI_ERR_ARG;
    *state = NULL;
    TRY(check_saved(pool, data, bytes, &h));
    TRY(check_spec(pool, (const char *)data + sizeof h, (size_t)h.spec_bytes));

    const int64_t pages = div_up(h.len, PAGE);
    if (pages > pool->n_free)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_FULL,
                        "the state needs %" PRId64 " pages, and %" PRId64 " are free",
                        pages, pool->n_free);
    foci_state *made;
    TRY(foci_state_create(pool, &made));
    if (state_reserve(made, pages)) {
        foci_state_free(made);
        return FOCI_ERR_MEMORY;
    }
    for (; made->n_pages < pages; made->n_pages++)
        made->pages[made->n_pages] = pool_take(pool);
    made->len = h.len;
    move_rows(made, NULL, (const char *)data + sizeof h + h.spec_bytes);
    *state = made;
    return FOCI_OK;
}
