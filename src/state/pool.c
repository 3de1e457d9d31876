/* pool.c -- pages of keys and values that many sequences share.
 *
 * Free pages form a list, so allocating and freeing one takes constant time.  Growing
 * adds a slab; pages never move.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

void pool_begin(foci_pool *pool)
{
    pool->reserved = 0;
    pool->steps++;
}

int64_t pool_alloc_page(foci_pool *pool)
{
    const int64_t page = pool->first_free;

    assert(page >= 0 && pool->pages[page].refs == 0);
    pool->first_free = pool->pages[page].next;
    pool->pages[page].refs = 1;
    pool->n_free--;
    return page;
}

void pool_ref_page(foci_pool *pool, int64_t page)
{
    assert(pool->pages[page].refs > 0);
    pool->pages[page].refs++;
}

void pool_unref_page(foci_pool *pool, int64_t page)
{
    struct page *p = &pool->pages[page];

    assert(p->refs > 0);
    if (--p->refs > 0) return;
    p->next = pool->first_free;
    pool->first_free = page;
    pool->n_free++;
}

/* Whether the plan can be decoded: it is causal, and its engines have decoders. */
static foci_status check_plan(const foci_plan *plan)
{
    foci_ctx *ctx = plan->ctx;

    if (!(plan->p.flags & FOCI_FLAG_CAUSAL))
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "decoding is causal: plan the problem with FOCI_FLAG_CAUSAL");
    if (plan->p.flags & (FOCI_FLAG_MASK | FOCI_FLAG_BIAS))
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "a given mask or bias has no place in a decoding state");
    for (int g = 0; g < plan->spec.n_groups; g++)
        if (!decoder_of(plan, g))
            return ctx_fail(ctx, FOCI_ERR_UNSUP,
                            "%s has no decoding state: its rows need the whole "
                            "sequence, as in foci_forward()",
                            plan->spec.groups[g].mech.def->name);
    return FOCI_OK;
}

/* The layout of a page, and the scratch of append.  Widths and heads are at most 65536,
 * so sizes do not overflow. */
static void set_layout(foci_pool *pool)
{
    const foci_plan    *plan = pool->plan;
    const foci_problem *p = &plan->p;

    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        const struct stage   *s = &plan->stages[g];
        struct page_part     *part = &pool->parts[g];

        part->at = pool->page_bytes;
        part->kv_heads = stage_learned(s) ? s->group->heads : s->group->kv_heads;
        part->sets = s->order.shared_qk || stage_own_keys(s)
                         ? s->group->heads / part->kv_heads
                         : (mech_sources(&s->group->mech) & FOCI_SOURCE_QK) != 0;
        part->dim_qk = mech_width(&s->group->mech);
        if (d->paged)
            part->head_bytes = PAGE * (size_t)(part->sets * part->dim_qk + p->dim_v) *
                               foci_dtype_bytes(p->dtype);
        pool->page_bytes += part->head_bytes * (size_t)part->kv_heads;
        if (d->append_bytes) {
            const size_t n = d->append_bytes(pool, g);
            if (n > pool->scratch_bytes) pool->scratch_bytes = n;
        }
    }
}

static foci_status make(foci_pool *pool, int64_t pages)
{
    const foci_plan *plan = pool->plan;
    foci_ctx        *ctx = plan->ctx;
    const size_t     n = (size_t)plan->spec.n_groups;

    pool->first_free = -1;
    pool->parts = ctx_alloc(ctx, n, sizeof *pool->parts);
    pool->own = ctx_alloc(ctx, n, sizeof *pool->own);
    if (!pool->parts || !pool->own) return FOCI_ERR_MEMORY;
    set_layout(pool);
    if (pool->scratch_bytes) {
        pool->scratch = ctx_alloc(ctx, pool->scratch_bytes, 1);
        if (!pool->scratch) return FOCI_ERR_MEMORY;
    }
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->pool_make) TRY(d->pool_make(pool, g));
    }
    return foci_pool_grow(pool, pages);
}

foci_status foci_pool_create(const foci_plan *plan, int64_t pages, foci_pool **pool)
{
    if (!plan || !pool)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_pool_create: %s is NULL", plan ? "pool" : "plan");
    *pool = NULL;
    TRY(check_plan(plan));
    if (plan->ctx->device)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "decoding has no form on a device: its pools are of the host");

    foci_pool *made = ctx_alloc(plan->ctx, 1, sizeof *made);
    if (!made) return FOCI_ERR_MEMORY;
    made->plan = plan;
    const foci_status status = make(made, pages);
    if (status) {
        foci_pool_free(made);
        return status;
    }
    *pool = made;
    return FOCI_OK;
}

void foci_pool_free(foci_pool *pool)
{
    if (!pool) return;
    const foci_plan *plan = pool->plan;
    foci_ctx        *ctx = plan->ctx;
    const size_t     n = (size_t)plan->spec.n_groups;

    for (int g = 0; pool->own && g < plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(plan, g);
        if (d->pool_free) d->pool_free(pool, g);
    }
    for (int64_t s = 0; s < pool->n_slabs; s++)
        ctx_free(ctx, pool->slabs[s].data, (size_t)pool->slabs[s].pages,
                 pool->page_bytes);
    ctx_free(ctx, pool->scratch, pool->scratch_bytes, 1);
    ctx_free(ctx, pool->parts, n, sizeof *pool->parts);
    ctx_free(ctx, pool->own, n, sizeof *pool->own);
    ctx_free(ctx, pool->slabs, (size_t)pool->n_slabs, sizeof *pool->slabs);
    ctx_free(ctx, pool->pages, (size_t)pool->n_pages, sizeof *pool->pages);
    ctx_free(ctx, pool, 1, sizeof *pool);
}

foci_status foci_pool_grow(foci_pool *pool, int64_t pages)
{
    if (!pool) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_pool_grow: the pool is NULL");
    foci_ctx *ctx = pool->plan->ctx;

    if (pages < 0 || pages > INT64_MAX / 64 - pool->n_pages)
        return ctx_fail(ctx, FOCI_ERR_ARG, "pages is %" PRId64 ": it may be 0 or more",
                        pages);
    if (!pages) return FOCI_OK;
    for (int g = 0; g < pool->plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(pool->plan, g);
        if (d->pool_grow) TRY(d->pool_grow(pool, g, pages));
    }

    const int64_t all = pool->n_pages + pages;
    struct slab  *slabs = ctx_alloc(ctx, (size_t)pool->n_slabs + 1, sizeof *slabs);
    struct page  *table = ctx_alloc(ctx, (size_t)all, sizeof *table);
    char         *data = ctx_alloc(ctx, (size_t)pages, pool->page_bytes);
    if (!slabs || !table || !data) {
        ctx_free(ctx, slabs, (size_t)pool->n_slabs + 1, sizeof *slabs);
        ctx_free(ctx, table, (size_t)all, sizeof *table);
        ctx_free(ctx, data, (size_t)pages, pool->page_bytes);
        return FOCI_ERR_MEMORY;
    }

    if (pool->n_slabs)
        memcpy(slabs, pool->slabs, (size_t)pool->n_slabs * sizeof *slabs);
    if (pool->n_pages)
        memcpy(table, pool->pages, (size_t)pool->n_pages * sizeof *table);
    ctx_free(ctx, pool->slabs, (size_t)pool->n_slabs, sizeof *slabs);
    ctx_free(ctx, pool->pages, (size_t)pool->n_pages, sizeof *table);
    slabs[pool->n_slabs++] = (struct slab){ data, pages };
    pool->slabs = slabs;
    pool->pages = table;

    /* Pages with lower numbers are allocated first, so that the pages of a sequence are
     * adjacent in memory as long as no other sequence grows. */
    for (int64_t i = pages - 1; i >= 0; i--) {
        struct page *p = &table[pool->n_pages + i];
        *p = (struct page){ .data = data + (size_t)i * pool->page_bytes,
                            .next = pool->first_free };
        pool->first_free = pool->n_pages + i;
    }
    pool->n_pages = all;
    pool->n_free += pages;
    return FOCI_OK;
}

int64_t foci_pool_page_count(const foci_pool *pool) { return pool->n_pages; }

int64_t foci_pool_free_count(const foci_pool *pool)
{
    int64_t n = pool->n_free;

    for (int g = 0; g < pool->plan->spec.n_groups; g++) {
        const struct decoder *d = decoder_of(pool->plan, g);
        if (d->pool_pages) n = min64(n, d->pool_pages(pool, g));
    }
    return n;
}

size_t foci_pool_page_bytes(const foci_pool *pool)
{
    return pool->page_bytes + pool->inner_bytes;
}
