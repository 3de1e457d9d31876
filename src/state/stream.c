/* stream.c -- rows that come one after another and lie in pages of a pool.
 *
 * The table of a stream has an entry for each page it still holds, in order.  Most
 * streams have let go of a prefix at the most, so that a page is found at its distance
 * from one of the two ends.
 */
#include <inttypes.h>
#include <string.h>

#include "state/state.h"

/* A page that others hold too is copied before it is written into. */
static bool must_copy(const foci_pool *pool, const struct stream *s)
{
    return s->rows % PAGE && pool->pages[s->held[s->n - 1].page].refs > 1;
}

static foci_status make_room(foci_pool *pool, struct stream *s, int64_t n)
{
    foci_ctx *ctx = pool->plan->ctx;

    if (n <= s->cap) return FOCI_OK;
    const int64_t cap = max64(n, 2 * s->cap);
    struct held  *held = ctx_alloc(ctx, (size_t)cap, sizeof *held);
    if (!held) return FOCI_ERR_MEMORY;
    if (s->n) memcpy(held, s->held, (size_t)s->n * sizeof *held);
    ctx_free(ctx, s->held, (size_t)s->cap, sizeof *held);
    s->held = held;
    s->cap = cap;
    return FOCI_OK;
}

/* Whether another copy will be made for this step: of those who hold a page, the last to
 * write has it alone by then. */
static bool will_copy(foci_pool *pool, const struct stream *s)
{
    if (s->rows % PAGE == 0) return false;

    struct page *p = &pool->pages[s->held[s->n - 1].page];
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
    *pages += more + will_copy(pool, s);
    return make_room(pool, s, s->n + more);
}

void stream_extend(foci_pool *pool, struct stream *s, int64_t rows)
{
    if (!rows) return;
    if (must_copy(pool, s)) {
        int64_t      *last = &s->held[s->n - 1].page;
        const int64_t copy = pool_take(pool);
        memcpy(pool->pages[copy].data, pool->pages[*last].data, pool->page_bytes);
        pool_drop(pool, *last);
        *last = copy;
    }
    for (int64_t t = div_up(s->rows, PAGE); t < div_up(s->rows + rows, PAGE); t++)
        s->held[s->n++] = (struct held){ t, pool_take(pool) };
    s->rows += rows;
}

/* The number of the first entry whose tile is `tile` or later. */
static int64_t entry_of(const struct stream *s, int64_t tile)
{
    const int64_t from_end = s->n + tile - div_up(s->rows, PAGE);
    int64_t       lo = 0, hi = s->n;

    if (from_end >= 0 && from_end < s->n && s->held[from_end].tile == tile)
        return from_end;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if (s->held[mid].tile < tile)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t stream_page(const struct stream *s, int64_t tile)
{
    const int64_t i = entry_of(s, tile);
    return i < s->n && s->held[i].tile == tile ? s->held[i].page : -1;
}

void stream_cut(foci_pool *pool, struct stream *s, int64_t rows)
{
    const int64_t tiles = div_up(rows, PAGE);

    while (s->n && s->held[s->n - 1].tile >= tiles)
        pool_drop(pool, s->held[--s->n].page);
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
        const int64_t    j = s->held[i].tile * PAGE;
        const foci_range rows = { j, j + PAGE };
        if (needed && needed(pool->plan, rows))
            s->held[kept++] = s->held[i];
        else
            pool_drop(pool, s->held[i].page);
    }
    memmove(s->held + kept, s->held + end, (size_t)(s->n - end) * sizeof *s->held);
    s->n -= end - kept;
    s->first = tile;
}

foci_status stream_copy(foci_pool *pool, const struct stream *from, struct stream *to)
{
    TRY(make_room(pool, to, from->n));
    for (; to->n < from->n; to->n++) {
        to->held[to->n] = from->held[to->n];
        pool_hold(pool, to->held[to->n].page);
    }
    to->rows = from->rows;
    to->first = from->first;
    return FOCI_OK;
}

void stream_free(foci_pool *pool, struct stream *s)
{
    stream_cut(pool, s, 0);
    ctx_free(pool->plan->ctx, s->held, (size_t)s->cap, sizeof *s->held);
    *s = (struct stream){ 0 };
}

size_t stream_bytes(const foci_pool *pool, const struct stream *s)
{
    return (size_t)s->cap * sizeof *s->held + (size_t)s->n * pool->page_bytes;
}

/*
 * Saved
 */

void write_bytes(struct writer *w, const void *data, size_t n)
{
    if (w->to && n) memcpy(w->to + w->at, data, n);
    w->at += n;
}

bool read_bytes(struct reader *r, void *data, size_t n)
{
    if (n > r->bytes - r->at) return false;
    if (n) memcpy(data, r->from + r->at, n);
    r->at += n;
    return true;
}

/* The rows of entry `at`, head by head, keys and then values: written, or, where w is
 * NULL, read. */
static bool move_rows(const foci_pool *pool, const struct stream *s, int64_t at, int g,
                      struct writer *w, struct reader *r)
{
    const foci_problem     *p = &pool->plan->p;
    const struct page_part *part = &pool->parts[g];
    const size_t            el = foci_dtype_bytes(p->dtype);
    const struct held      *h = &s->held[at];
    const size_t            n = (size_t)min64(PAGE, s->rows - h->tile * PAGE);

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
                 struct writer *w)
{
    const int64_t head[] = { s->rows, s->first, s->n };

    write_bytes(w, head, sizeof head);
    for (int64_t i = 0; i < s->n; i++) {
        write_bytes(w, &s->held[i].tile, sizeof s->held[i].tile);
        for (int g = g0; g < g1; g++)
            move_rows(pool, s, i, g, w, NULL);
    }
}

foci_status state_damaged(const foci_pool *pool)
{
    return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                    "the saved state is of another spec, cut off or damaged");
}

foci_status stream_restore(foci_pool *pool, struct stream *s, int g0, int g1,
                           int64_t rows, int64_t keep, struct reader *r)
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
    TRY(make_room(pool, s, head[2]));
    s->rows = rows;
    s->first = head[1];
    for (int64_t i = 0, last = -1; i < head[2]; i++, last = tile) {
        /* Those from the first that none may miss on fill the end of the table. */
        const int64_t least = tiles - head[2] + i;
        if (!read_bytes(r, &tile, sizeof tile) || tile <= last || tile >= tiles ||
            (least >= head[1] && tile != least))
            return state_damaged(pool);
        s->held[s->n++] = (struct held){ tile, pool_take(pool) };
        for (int g = g0; g < g1; g++)
            if (!move_rows(pool, s, i, g, NULL, r)) return state_damaged(pool);
    }
    return FOCI_OK;
}
