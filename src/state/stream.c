/* stream.c -- a growing list of rows in pages of a pool.
 *
 * The table of a stream has an entry for each page that it still holds, in order of
 * tiles. Most streams have dropped no more than a prefix, so an entry is found at its
 * distance from the end of the table.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

/* Whether the last page is shared: it is copied before rows are added to it. */
static bool must_copy(const foci_pool *pool, const struct stream *s)
{
    assert(!(s->rows % PAGE) || s->n > 0); /* the page of the last row is held */
    return s->rows % PAGE && pool->pages[s->entries[s->n - 1].page].refs > 1;
}

static foci_status grow_table(foci_pool *pool, struct stream *s, int64_t n)
{
    foci_ctx *ctx = pool->plan->ctx;

    if (n <= s->cap) return FOCI_OK;
    const int64_t      cap = max64(n, 2 * s->cap);
    struct page_entry *held = ctx_alloc(ctx, (size_t)cap, sizeof *held);
    if (!held) return FOCI_ERR_MEMORY;
    if (s->n) memcpy(held, s->entries, (size_t)s->n * sizeof *held);
    ctx_free(ctx, s->entries, (size_t)s->cap, sizeof *held);
    s->entries = held;
    s->cap = cap;
    return FOCI_OK;
}

/* Whether this stream will copy its last page in this step.  Of the streams that hold a
 * page, all that write into it copy it, but the last, which then holds it alone. */
static bool will_copy(foci_pool *pool, const struct stream *s)
{
    if (s->rows % PAGE == 0) return false;

    struct page *p = &pool->pages[s->entries[s->n - 1].page];
    if (p->step != pool->steps) p->writers = 0;
    p->step = pool->steps;
    p->writers++;
    return p->writers < p->refs;
}

foci_status stream_reserve(foci_pool *pool, struct stream *s, int64_t rows,
                           int64_t *pages)
{
    const int64_t more = div_up(s->rows + rows, PAGE) - div_up(s->rows, PAGE);

    if (!rows) return FOCI_OK;
    if (pages) *pages += more + will_copy(pool, s);
    return grow_table(pool, s, s->n + more);
}

void stream_extend(foci_pool *pool, struct stream *s, int64_t rows)
{
    if (!rows) return;
    if (must_copy(pool, s)) {
        int64_t      *last = &s->entries[s->n - 1].page;
        const int64_t copy = pool_alloc_page(pool);
        memcpy(pool->pages[copy].data, pool->pages[*last].data, pool->page_bytes);
        pool_unref_page(pool, *last);
        *last = copy;
    }
    for (int64_t t = div_up(s->rows, PAGE); t < div_up(s->rows + rows, PAGE); t++)
        s->entries[s->n++] = (struct page_entry){ t, pool_alloc_page(pool) };
    s->rows += rows;
    assert(s->n <= s->cap);
}

/* The first entry whose tile is `tile` or later. */
static int64_t entry_of(const struct stream *s, int64_t tile)
{
    const int64_t from_end = s->n + tile - div_up(s->rows, PAGE);
    int64_t       lo = 0, hi = s->n;

    if (from_end >= 0 && from_end < s->n && s->entries[from_end].tile == tile)
        return from_end;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if (s->entries[mid].tile < tile)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t stream_page(const struct stream *s, int64_t tile)
{
    const int64_t i = entry_of(s, tile);
    return i < s->n && s->entries[i].tile == tile ? s->entries[i].page : -1;
}

void stream_cut(foci_pool *pool, struct stream *s, int64_t rows)
{
    const int64_t tiles = div_up(rows, PAGE);

    assert(rows >= 0 && rows <= s->rows);
    while (s->n && s->entries[s->n - 1].tile >= tiles)
        pool_unref_page(pool, s->entries[--s->n].page);
    s->rows = rows;
    s->first = min64(s->first, tiles);
}

void stream_drop(foci_pool *pool, struct stream *s, int64_t first,
                 bool (*needed)(const foci_plan *plan, foci_range rows))
{
    const int64_t tile = min64(first, s->rows) / PAGE;

    if (tile <= s->first) return;
    const int64_t begin = entry_of(s, s->first), end = entry_of(s, tile);
    int64_t       kept = begin;
    for (int64_t i = begin; i < end; i++) {
        const int64_t    j = s->entries[i].tile * PAGE;
        const foci_range rows = { j, j + PAGE };
        if (needed && needed(pool->plan, rows))
            s->entries[kept++] = s->entries[i];
        else
            pool_unref_page(pool, s->entries[i].page);
    }
    memmove(s->entries + kept, s->entries + end,
            (size_t)(s->n - end) * sizeof *s->entries);
    assert(begin <= kept && kept <= end && end <= s->n);
    s->n -= end - kept;
    s->first = tile;
}

foci_status stream_copy(foci_pool *pool, const struct stream *from, struct stream *to)
{
    assert(to->n == 0);
    TRY(grow_table(pool, to, from->n));
    for (; to->n < from->n; to->n++) {
        to->entries[to->n] = from->entries[to->n];
        pool_ref_page(pool, to->entries[to->n].page);
    }
    to->rows = from->rows;
    to->first = from->first;
    return FOCI_OK;
}

void stream_free(foci_pool *pool, struct stream *s)
{
    stream_cut(pool, s, 0);
    ctx_free(pool->plan->ctx, s->entries, (size_t)s->cap, sizeof *s->entries);
    *s = (struct stream){ 0 };
}

size_t stream_bytes(const foci_pool *pool, const struct stream *s)
{
    return (size_t)s->cap * sizeof *s->entries + (size_t)s->n * pool->page_bytes;
}

/*
 * Saved
 */

void write_bytes(struct state_writer *w, const void *data, size_t n)
{
    if (w->to && n) memcpy(w->to + w->at, data, n);
    w->at += n;
}

bool read_bytes(struct state_reader *r, void *data, size_t n)
{
    if (n > r->bytes - r->at) return false;
    if (n) memcpy(data, r->from + r->at, n);
    r->at += n;
    return true;
}

/* The rows of entry `at`, head by head, keys and then values: write them, or read them
 * where w is NULL. */
static bool transfer_rows(const foci_pool *pool, const struct stream *s, int64_t at,
                          int g, struct state_writer *w, struct state_reader *r)
{
    const foci_problem      *p = &pool->plan->p;
    const struct page_part  *part = &pool->parts[g];
    const size_t             el = foci_dtype_bytes(p->dtype);
    const struct page_entry *h = &s->entries[at];
    const size_t             n = (size_t)min64(PAGE, s->rows - h->tile * PAGE);

    for (int64_t i = 0; part->head_bytes && i < (part->sets + 1) * part->kv_heads; i++) {
        const int64_t kv = i / (part->sets + 1), set = i % (part->sets + 1);
        const bool    values = set == part->sets;
        const size_t  bytes = n * (size_t)(values ? p->dim_v : part->dim_qk) * el;
        char         *rows = pool_keys(pool, g, h->page, kv, set);
        if (w)
            write_bytes(w, rows, bytes);
        else if (!read_bytes(r, rows, bytes))
            return false;
    }
    return true;
}

void stream_save(const foci_pool *pool, const struct stream *s, int g0, int g1,
                 struct state_writer *w)
{
    const int64_t head[] = { s->rows, s->first, s->n };

    write_bytes(w, head, sizeof head);
    for (int64_t i = 0; i < s->n; i++) {
        write_bytes(w, &s->entries[i].tile, sizeof s->entries[i].tile);
        for (int g = g0; g < g1; g++)
            transfer_rows(pool, s, i, g, w, NULL);
    }
}

foci_status state_damaged(const foci_pool *pool)
{
    return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                    "the saved state is of another spec, cut off or damaged");
}

foci_status stream_restore(foci_pool *pool, struct stream *s, int g0, int g1,
                           int64_t rows, int64_t keep, struct state_reader *r)
{
    const int64_t tiles = div_up(rows, PAGE);
    int64_t       head[3], tile;

    if (!read_bytes(r, head, sizeof head) || head[0] != rows || head[1] < 0 ||
        head[1] > keep / PAGE || head[2] < tiles - head[1] || head[2] > tiles)
        return state_damaged(pool);
    if (head[2] > pool->n_free)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_FULL,
                        "the state needs %" PRId64 " pages, and %" PRId64
                        " are free: free states or call foci_pool_grow()",
                        head[2], pool->n_free);
    TRY(grow_table(pool, s, head[2]));
    s->rows = rows;
    s->first = head[1];
    for (int64_t i = 0, last = -1; i < head[2]; i++, last = tile) {
        /* Tiles from head[1] on must all be there, and fill the end of the table. */
        const int64_t least = tiles - head[2] + i;
        if (!read_bytes(r, &tile, sizeof tile) || tile <= last || tile >= tiles ||
            (least >= head[1] && tile != least))
            return state_damaged(pool);
        s->entries[s->n++] = (struct page_entry){ tile, pool_alloc_page(pool) };
        for (int g = g0; g < g1; g++)
            if (!transfer_rows(pool, s, i, g, NULL, r)) return state_damaged(pool);
    }
    return FOCI_OK;
}
