/* exact_table.c -- tile tables made by an execution.
 *
 * Where masks depend on the length, the plan's table serves sequences of the length it
 * was made for.  Any other sequence has a table in work memory, two bits for each pair
 * of tiles: skipped, partial or full.  Partial tiles evaluate the mechanism's mask.
 */
#include <string.h>

#include "engine/exact/exact_tiles.h"

enum { PER_BYTE = 4 };

/* A bound of all tables together.  The largest sum is that of one document with all
 * rows. */
static int64_t max_pairs(const struct exact *x)
{
    const int64_t tiles = div_up(x->p->len_k, TILE), levels = 1 + x->stage->n_levels;
    const int64_t one = tiles * tiles * levels;

    return x->p->max_docs ? one + x->p->max_docs * levels : one * x->p->batch;
}

void exact_table_carve(struct exact *x, struct arena *a)
{
    if (!x->table.by_length) return;
    x->table.mechs = arena_alloc(a, x->max.seqs, sizeof *x->table.mechs);
    x->table.kinds = arena_alloc(a, max_pairs(x) / PER_BYTE + x->max.seqs, 1);
    x->table.row = arena_alloc(a, div_up(x->p->len_k, TILE), 1);
}

/* Tables are stored by query tile, or by key tile where those are walked. */
struct table_line exact_table_row(const struct exact *x, const struct exact_seq *s,
                                  int64_t row)
{
    return x->table.by_cols ? (struct table_line){ s->kinds, row, s->n_rows }
                            : (struct table_line){ s->kinds, row * s->n_kt, 1 };
}

struct table_line exact_table_col(const struct exact *x, const struct exact_seq *s,
                                  int64_t t)
{
    return x->table.by_cols ? (struct table_line){ s->kinds, t * s->n_rows, 1 }
                            : (struct table_line){ s->kinds, t, s->n_kt };
}

int exact_table_kind(struct table_line l, int64_t t)
{
    const int64_t at = l.first + t * l.step;
    return l.kinds[at / PER_BYTE] >> at % PER_BYTE * 2 & 3;
}

static void set(struct table_line l, int64_t t, unsigned kind)
{
    const int64_t at = l.first + t * l.step;
    uint8_t      *byte = l.kinds + at / PER_BYTE;

    *byte = (uint8_t)(*byte | kind << at % PER_BYTE * 2);
}

/* Enter the tiles of one level for all query tiles. */
static void list_level(const struct exact *x, const struct exact_seq *s, int level)
{
    foci_tile_list list = { .len = level < 0 ? s->s.nk
                                             : slots_of(&s->slots[level], s->s.nk),
                            .kind = x->table.row };
    const int64_t  t0 = level < 0 ? 0 : s->slot_t0[level];

    memset(x->table.row, TILE_SKIP, (size_t)div_up(list.len, TILE));
    for (int64_t row = 0; row < s->n_rows; row++) {
        const foci_range rows = { row * TILE, min64((row + 1) * TILE, s->s.nk) };
        tiles_list(s->mech, level, rows, &list);
        for (int64_t t = tiles_next(&list, list.begin); t < list.end;
             t = tiles_next(&list, t + 1))
            set(exact_table_row(x, s, row), t0 + t, list.kind[t]);
    }
}

void exact_table_mech(struct exact *x, struct exact_seq *s, int64_t i)
{
    const foci_mech *m = &x->stage->group->mech;

    s->mech = m;
    if (!x->table.by_length || s->s.nk == m->dims.len) return;
    x->table.mechs[i] = *m;
    x->table.mechs[i].dims.len = s->s.nk;
    x->table.mechs[i].dims.len_q = s->s.nq;
    s->mech = &x->table.mechs[i];
}

uint8_t *exact_table_make(const struct exact *x, struct exact_seq *s, uint8_t *at)
{
    if (s->mech == &x->stage->group->mech || (!s->mech->def->mask && !s->n_levels))
        return at;
    s->n_rows = div_up(s->s.nk, TILE);
    const size_t bytes = (size_t)div_up(s->n_rows * s->n_kt, PER_BYTE);
    s->kinds = at;
    memset(at, 0, bytes);
    if (s->mech->def->mask) list_level(x, s, -1);
    for (int level = 0; level < s->n_levels; level++)
        list_level(x, s, level);
    return at + bytes;
}
