/* tiles.c -- from a mechanism's mask() and tiles() to runs of key tiles.
 *
 * mask() defines which pairs are visible; tiles() only spares the work where
 * the mask is empty.  Planning runs both once.  A tile in which all pairs are
 * visible is full; the others name an entry of a dictionary of 64 x 64 bit
 * masks.  Masks repeat (one or two for a window), so the dictionary is small.
 */
#include <assert.h>
#include <string.h>

#include "plan/plan.h"

/* Join entry i with the one after it. */
static void join(struct tile_spans *s, int i)
{
    s->span[i].end = max64(s->span[i].end, s->span[i + 1].end);
    memmove(s->span + i + 1, s->span + i + 2, (size_t)(s->n - i - 2) * sizeof *s->span);
    s->n--;
}

/* Join the two that have the fewest tiles between them. */
static void join_nearest(struct tile_spans *s)
{
    int best = 0;
    for (int i = 1; i + 1 < s->n; i++)
        if (s->span[i + 1].begin - s->span[i].end <
            s->span[best + 1].begin - s->span[best].end)
            best = i;
    join(s, best);
}

void spans_add(struct tile_spans *s, foci_range tiles)
{
    int at = 0;

    if (tiles.end <= tiles.begin) return;
    while (at < s->n && s->span[at].end < tiles.begin)
        at++;
    if (at == s->n || tiles.end < s->span[at].begin) {
        if (s->n == s->cap && s->cap == 1) {
            s->span[0].begin = min64(s->span[0].begin, tiles.begin);
            s->span[0].end = max64(s->span[0].end, tiles.end);
            return;
        }
        if (s->n == s->cap) {
            join_nearest(s);
            spans_add(s, tiles);
            return;
        }
        memmove(s->span + at + 1, s->span + at, (size_t)(s->n - at) * sizeof *s->span);
        s->span[at] = tiles;
        s->n++;
        return;
    }
    s->span[at].begin = min64(s->span[at].begin, tiles.begin);
    s->span[at].end = max64(s->span[at].end, tiles.end);
    while (at + 1 < s->n && s->span[at + 1].begin <= s->span[at].end)
        join(s, at);
}

void foci_tiles_cover(foci_tile_list *out, foci_range hull, foci_range core)
{
    const int64_t begin = max64(hull.begin, 0);
    const int64_t end = min64(hull.end, out->len);

    if (end <= begin) return;
    if (out->spans) {
        spans_add(out->spans, (foci_range){ begin / FOCI_TILE, div_up(end, FOCI_TILE) });
        return;
    }
    const bool first = out->end <= out->begin;
    out->begin = first ? begin / FOCI_TILE : min64(out->begin, begin / FOCI_TILE);
    out->end = first ? div_up(end, FOCI_TILE) : max64(out->end, div_up(end, FOCI_TILE));
    for (int64_t j = begin / FOCI_TILE * FOCI_TILE; j < end; j += FOCI_TILE) {
        const int64_t last = min64(j + FOCI_TILE, out->len);
        uint8_t      *kind = &out->kind[j / FOCI_TILE];

        if (core.begin <= j && last <= core.end)
            *kind = TILE_FULL;
        else if (*kind == TILE_SKIP)
            *kind = TILE_PART;
    }
}

int64_t tiles_next(const foci_tile_list *list, int64_t t)
{
    static const uint64_t none = 0;

    /* Few tiles of a long row are listed: eight at a time are passed over. */
    while (t < list->end && list->kind[t] == TILE_SKIP)
        t += t + 8 <= list->end && !memcmp(list->kind + t, &none, sizeof none) ? 8 : 1;
    return t;
}

void tiles_list(const foci_mech *m, int level, foci_range rows, foci_tile_list *list)
{
    if (list->begin < list->end)
        memset(list->kind + list->begin, TILE_SKIP, (size_t)(list->end - list->begin));
    list->begin = list->end = 0;
    if (level < 0 && m->def->tiles)
        m->def->tiles(m, rows, list);
    else if (level >= 0 && m->def->slot_tiles)
        m->def->slot_tiles(m, level, rows, list);
    else
        foci_tiles_cover(list, (foci_range){ 0, list->len }, (foci_range){ 0, 0 });
}

/* Growing arrays of the table under construction. */
struct tiles_table {
    foci_ctx       *ctx;
    struct support *s;
    int             level; /* of slots; -1: keys */
    int64_t         cap_rows;
    int32_t         cap_masks;
    int32_t        *slots; /* hash table over masks, -1: free */
    int64_t         n_slots;
};

static void *grow(foci_ctx *ctx, void *old, size_t old_n, size_t new_n, size_t size)
{
    void *p = ctx_alloc(ctx, new_n, size);
    if (!p) return NULL;
    if (old_n) memcpy(p, old, old_n * size);
    ctx_free(ctx, old, old_n, size);
    return p;
}

static uint64_t hash_mask(const uint64_t *mask)
{
    uint64_t h = 0;
    for (int t = 0; t < FOCI_TILE; t++) {
        h = (h ^ mask[t]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

static foci_status rehash(struct tiles_table *t)
{
    const int64_t n = t->n_slots ? 2 * t->n_slots : 64;
    int32_t      *slots = ctx_alloc(t->ctx, (size_t)n, sizeof *slots);
    if (!slots) return FOCI_ERR_MEMORY;
    memset(slots, 0xff, (size_t)n * sizeof *slots);
    ctx_free(t->ctx, t->slots, (size_t)t->n_slots, sizeof *t->slots);
    t->slots = slots;
    t->n_slots = n;
    for (int32_t i = 0; i < t->s->n_masks; i++) {
        uint64_t at = hash_mask(t->s->masks[i]);
        while (slots[at % (uint64_t)n] >= 0)
            at++;
        slots[at % (uint64_t)n] = i;
    }
    return FOCI_OK;
}

/* The number of `mask` in the dictionary, entered if it is new. */
static foci_status find_mask(struct tiles_table *t, const uint64_t *mask, int32_t *id)
{
    struct support *s = t->s;

    if (2 * (int64_t)(s->n_masks + 1) > t->n_slots) TRY(rehash(t));
    uint64_t at = hash_mask(mask);
    for (; t->slots[at % (uint64_t)t->n_slots] >= 0; at++) {
        *id = t->slots[at % (uint64_t)t->n_slots];
        if (!memcmp(s->masks[*id], mask, sizeof *s->masks)) return FOCI_OK;
    }
    if (s->n_masks == t->cap_masks) {
        if (t->cap_masks > INT32_MAX / 2)
            return ctx_fail(t->ctx, FOCI_ERR_MEMORY, "too many different mask tiles");
        const int32_t cap = t->cap_masks ? 2 * t->cap_masks : 8;
        void         *masks =
            grow(t->ctx, s->masks, (size_t)t->cap_masks, (size_t)cap, sizeof *s->masks);
        if (!masks) return FOCI_ERR_MEMORY;
        s->masks = masks;
        t->cap_masks = cap;
    }
    *id = s->n_masks;
    memcpy(s->masks[s->n_masks++], mask, sizeof *s->masks);
    t->slots[at % (uint64_t)t->n_slots] = *id;
    return FOCI_OK;
}

static foci_status add_run(struct tiles_table *t, int64_t row, int64_t tile,
                           int32_t mask)
{
    struct support *s = t->s;

    if (mask < 0 && s->n_rows > s->row0[row]) {
        struct tile_run *last = &s->rows[s->n_rows - 1];
        if (last->mask < 0 && last->end == tile) {
            last->end++;
            return FOCI_OK;
        }
    }
    if (s->n_rows == t->cap_rows) {
        const int64_t cap = t->cap_rows ? 2 * t->cap_rows : 64;
        void         *rows =
            grow(t->ctx, s->rows, (size_t)t->cap_rows, (size_t)cap, sizeof *s->rows);
        if (!rows) return FOCI_ERR_MEMORY;
        s->rows = rows;
        t->cap_rows = cap;
    }
    s->rows[s->n_rows++] = (struct tile_run){ (int32_t)tile, (int32_t)tile + 1, mask };
    return FOCI_OK;
}

/* Rows become columns: squares of 32, 16, ... 1 bits change places. */
static void transpose_bits(uint64_t a[FOCI_TILE])
{
    uint64_t low = UINT64_C(0xffffffff);

    for (int s = 32; s; s /= 2, low ^= low << s)
        for (int i = 0; i < FOCI_TILE; i = ((i | s) + 1) & ~s) {
            const uint64_t t = (a[i] >> s ^ a[i | s]) & low;
            a[i] ^= t << s;
            a[i | s] ^= t;
        }
}

enum tile_kind tiles_look(const foci_mech *m, int level, foci_range rows, int64_t j0,
                          int64_t len, uint64_t by_key[FOCI_TILE])
{
    const uint64_t keys = foci_bits_in((foci_range){ 0, len }, j0);
    uint64_t       some = 0, every = keys;

    assert(rows.end - rows.begin <= FOCI_TILE && j0 % FOCI_TILE == 0);
    memset(by_key, 0, FOCI_TILE * sizeof *by_key);
    for (int64_t i = rows.begin; i < rows.end; i++) {
        const uint64_t seen = keys & (level < 0 ? m->def->mask(m, i, j0)
                                                : m->def->slot_mask(m, level, i, j0));
        some |= seen;
        every &= seen;
        by_key[i - rows.begin] = seen;
    }
    transpose_bits(by_key);
    return !some ? TILE_SKIP : every == keys ? TILE_FULL : TILE_PART;
}

static foci_status make_row(struct tiles_table *t, const foci_mech *m,
                            foci_tile_list *list, int64_t row)
{
    const int64_t    len = t->s->len;
    const foci_range rows = { row * FOCI_TILE, min64((row + 1) * FOCI_TILE, len) };
    uint64_t         by_key[FOCI_TILE];

    tiles_list(m, t->level, rows, list);
    t->s->row0[row] = t->s->n_rows;
    for (int64_t j = tiles_next(list, list->begin); j < list->end;
         j = tiles_next(list, j + 1)) {
        enum tile_kind kind = list->kind[j];
        int32_t        mask = -1;
        if (kind == TILE_PART)
            kind = tiles_look(m, t->level, rows, j * FOCI_TILE, list->len, by_key);
        if (kind == TILE_PART) TRY(find_mask(t, by_key, &mask));
        if (kind != TILE_SKIP) TRY(add_run(t, row, j, mask));
    }
    t->s->row0[row + 1] = t->s->n_rows;
    return FOCI_OK;
}

/* Enter the tiles of all rows into the columns; without `cols` only count them in col0.
 * Query tiles are visited upward, so the runs of a column come out in order, and full
 * neighbours are joined.  open[j]: the end of the column's last run, if it is full. */
static void enter(struct support *s, int32_t *open)
{
    for (int64_t i = 0; i < s->n_tiles; i++)
        for (int64_t r = s->row0[i]; r < s->row0[i + 1]; r++)
            for (int64_t j = s->rows[r].begin; j < s->rows[r].end; j++) {
                const int32_t at = (int32_t)i, mask = s->rows[r].mask;
                const bool    joins = i && mask < 0 && open[j] == at;

                if (s->cols && joins) s->cols[s->col0[j] - 1].end++;
                if (s->cols && !joins)
                    s->cols[s->col0[j]] = (struct tile_run){ at, at + 1, mask };
                if (!joins) s->col0[j]++;
                open[j] = mask < 0 ? at + 1 : 0;
            }
}

/* The same runs by key tile. */
static foci_status transpose(foci_ctx *ctx, struct support *s)
{
    const size_t n = (size_t)s->n_key_tiles;
    int32_t     *open = ctx_alloc(ctx, n, sizeof *open);
    int64_t      sum = 0;

    if (!open) return FOCI_ERR_MEMORY;
    enter(s, open);
    for (size_t j = 0; j <= n; j++) {
        const int64_t count = s->col0[j];
        s->col0[j] = sum;
        sum += count;
    }
    s->n_cols = sum;
    s->cols = ctx_alloc(ctx, (size_t)s->n_cols, sizeof *s->cols);
    if (s->cols) {
        memset(open, 0, n * sizeof *open);
        enter(s, open);
        memmove(s->col0 + 1, s->col0, n * sizeof *s->col0);
        s->col0[0] = 0;
    }
    ctx_free(ctx, open, n, sizeof *open);
    return s->cols || !sum ? FOCI_OK : FOCI_ERR_MEMORY;
}

static foci_status make_rows(struct tiles_table *t, const foci_mech *m, int64_t n_keys)
{
    foci_tile_list list = { .len = n_keys };
    foci_status    status = FOCI_OK;

    list.kind = ctx_alloc(t->ctx, (size_t)t->s->n_key_tiles, 1);
    if (!list.kind) return FOCI_ERR_MEMORY;
    for (int64_t row = 0; row < t->s->n_tiles && !status; row++)
        status = make_row(t, m, &list, row);
    ctx_free(t->ctx, list.kind, (size_t)t->s->n_key_tiles, 1);
    return status;
}

/* Keys, or slots, that sequences of len keys have; *all: every query sees every one. */
static int64_t keys_of(const foci_mech *m, int level, int64_t len, bool *all)
{
    foci_slots levels[FOCI_MAX_LEVELS] = { 0 };

    *all = level < 0 && !m->def->mask && !m->def->order;
    if (level < 0) return len;
    m->def->slots(m, levels);
    *all = levels[level].all;
    return slots_of(&levels[level], len);
}

foci_status support_make(foci_ctx *ctx, const foci_mech *m, int level, int64_t len,
                         struct support *s)
{
    struct tiles_table t = { .ctx = ctx, .s = s, .level = level };
    bool               all;
    const int64_t      n = keys_of(m, level, len, &all);

    *s = (struct support){ .all = all, .len = len };
    if (s->all || !n || (level < 0 && !m->def->mask)) return FOCI_OK;

    s->n_tiles = div_up(len, FOCI_TILE);
    s->n_key_tiles = div_up(n, FOCI_TILE);
    s->row0 = ctx_alloc(ctx, (size_t)s->n_tiles + 1, sizeof *s->row0);
    s->col0 = ctx_alloc(ctx, (size_t)s->n_key_tiles + 1, sizeof *s->col0);
    foci_status status = s->row0 && s->col0 ? make_rows(&t, m, n) : FOCI_ERR_MEMORY;
    ctx_free(ctx, t.slots, (size_t)t.n_slots, sizeof *t.slots);

    s->cap_rows = t.cap_rows;
    s->cap_masks = t.cap_masks;
    if (!status) status = transpose(ctx, s);
    return status;
}

void support_free(foci_ctx *ctx, struct support *s)
{
    ctx_free(ctx, s->row0, (size_t)s->n_tiles + 1, sizeof *s->row0);
    ctx_free(ctx, s->col0, (size_t)s->n_key_tiles + 1, sizeof *s->col0);
    ctx_free(ctx, s->rows, (size_t)s->cap_rows, sizeof *s->rows);
    ctx_free(ctx, s->cols, (size_t)s->n_cols, sizeof *s->cols);
    ctx_free(ctx, s->masks, (size_t)s->cap_masks, sizeof *s->masks);
    *s = (struct support){ 0 };
}

static const struct tile_run everything = { 0, INT32_MAX, -1 };

static const struct tile_run *pick(const struct support *s, const int64_t *first,
                                   const struct tile_run *runs, int64_t n_tiles,
                                   int64_t t, int64_t *n)
{
    *n = 1;
    if (s->all) return &everything;
    *n = 0;
    if (t < 0 || t >= n_tiles) return NULL;
    *n = first[t + 1] - first[t];
    return *n ? runs + first[t] : NULL;
}

const struct tile_run *support_row(const struct support *s, int64_t t, int64_t *n)
{
    return pick(s, s->row0, s->rows, s->n_tiles, t, n);
}

const struct tile_run *support_col(const struct support *s, int64_t t, int64_t *n)
{
    return pick(s, s->col0, s->cols, s->n_key_tiles, t, n);
}
