/* exact_live.c -- tables of tiles that are made when an execution is.
 *
 * Where masks depend on the length, the plan's table serves sequences of the length it
 * was made for.  Any other has two bits for each pair of tiles, skipped, partial or
 * full, in work memory, and partial tiles ask the mechanism for their masks.
 */
#include <string.h>

#include "engine/exact_tiles.h"

enum { PER_BYTE = 4 };

/* Of sequences of up to n keys, tiles of queries times tiles of keys and slots, whose
 * sum is largest where one document has all the rows. */
static int64_t most_pairs(const struct exact *x)
{
    const int64_t tiles = div_up(x->p->len_k, TILE), wide = 1 + x->stage->n_levels;
    const int64_t one = tiles * tiles * wide;

    return x->p->max_docs ? one + x->p->max_docs * wide : one * x->p->batch;
}

void exact_live_take(struct exact *x, struct arena *a)
{
    if (!x->by_length) return;
    x->mechs = arena_take(a, x->max_seqs, sizeof *x->mechs);
    x->kinds = arena_take(a, most_pairs(x) / PER_BYTE + x->max_seqs, 1);
    x->listed = arena_take(a, div_up(x->p->len_k, TILE), 1);
}

/* Pairs of tiles lie by query tile, or by key tile where those are walked. */
struct live exact_live_row(const struct exact *x, const struct exact_seq *s, int64_t row)
{
    return x->by_cols ? (struct live){ s->kinds, row, s->n_rows }
                      : (struct live){ s->kinds, row * s->n_kt, 1 };
}

struct live exact_live_col(const struct exact *x, const struct exact_seq *s, int64_t t)
{
    return x->by_cols ? (struct live){ s->kinds, t * s->n_rows, 1 }
                      : (struct live){ s->kinds, t, s->n_kt };
}

int exact_live_kind(struct live l, int64_t t)
{
    const int64_t at = l.first + t * l.step;
    return l.kinds[at / PER_BYTE] >> at % PER_BYTE * 2 & 3;
}

static void set(struct live l, int64_t t, unsigned kind)
{
    const int64_t at = l.first + t * l.step;
    uint8_t      *byte = l.kinds + at / PER_BYTE;

    *byte = (uint8_t)(*byte | kind << at % PER_BYTE * 2);
}

/* List the tiles of one level for all query tiles. */
static void list_level(const struct exact *x, const struct exact_seq *s, int level)
{
    foci_tile_list list = { .len = level < 0 ? s->s.nk
                                             : slots_of(&s->slots[level], s->s.nk),
                            .kind = x->listed };
    const int64_t  t0 = level < 0 ? 0 : s->slot_t0[level];

    memset(x->listed, TILE_SKIP, (size_t)div_up(list.len, TILE));
    for (int64_t row = 0; row < s->n_rows; row++) {
        const foci_range rows = { row * TILE, min64((row + 1) * TILE, s->s.nk) };
        tiles_list(s->mech, level, rows, &list);
        for (int64_t t = tiles_next(&list, list.begin); t < list.end;
             t = tiles_next(&list, t + 1))
            set(exact_live_row(x, s, row), t0 + t, list.kind[t]);
    }
}

void exact_live_mech(struct exact *x, struct exact_seq *s, int64_t i)
{
    const foci_mech *m = &x->stage->group->mech;

    s->mech = m;
    if (!x->by_length || s->s.nk == m->dims.len) return;
    x->mechs[i] = *m;
    x->mechs[i].dims.len = s->s.nk;
    x->mechs[i].dims.len_q = s->s.nq;
    s->mech = &x->mechs[i];
}

/* The result is the first byte after its table. */
uint8_t *exact_live_make(const struct exact *x, struct exact_seq *s, uint8_t *at)
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
