/* exact_back_panel.c -- plain softmax on words: a run of key tiles meets several blocks of
 * queries at once, in one kernel.
 *
 * What is not finite, and whatever adds to scores or to their gradients, goes meeting by
 * meeting (exact_back_meet.c).
 */
#include <math.h>
#include <string.h>

#include "engine/exact_back.h"
#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

bool back_has_panels(const struct exact *x)
{
    const struct score *s = x->score;
    const bool          plain = x->kind == FOCI_SOFTMAX && !(s->cap > 0) && !s->slope &&
                       !s->n_tables && !exact_biased(x) && !exact_has_shaw(x) &&
                       !exact_has_txl(x) && !x->from.from && !back_wants_sums(x);

    return x->bf16 && x->k->has_panels && plain && x->dq > 0 && !x->drops &&
           !x->stage->n_levels && !x->stage->order.label &&
           !x->stage->group->mech.def->stop;
}

static int64_t most_blocks(const struct exact *x)
{
    return max64(1, min64(PANEL_TILES, x->max_qt));
}

void back_panel_take(const struct exact *x, int64_t run, struct arena *a,
                     struct back_room *r)
{
    const int64_t blocks = most_blocks(x);

    r->panel = NULL;
    if (!back_has_panels(x)) return;
    r->panel = arena_take(a, PANEL_BYTES(run, blocks), 1);
    r->panel_seen = arena_take(a, run * blocks * TILE, sizeof *r->panel_seen);
    r->own.keys = arena_take(a, 1, x->key_size);
    r->own.values = arena_take(a, 1, x->value_size);
    r->own.q_cols = arena_take(a, 1, x->key_size);
    r->own.q_rows = arena_take(a, 1, x->key_size);
    r->own.g_cols = arena_take(a, 1, x->value_size);
    r->own.g_rows = arena_take(a, 1, x->value_size);
}

/*
 * Tiles of operands
 */

enum { WORDS = 16 }; /* of a row of a tile, which has as many rows */

static void tile_in_place(const struct exact *x, char *words, int rows, int cols,
                          void *room)
{
    memcpy(room, words, (size_t)rows * (size_t)cols * sizeof(uint32_t));
    x->k->tile_words((void *)words, room, cols, rows, cols);
}

void back_tile_block(const struct back *k, const struct block *b, void *room)
{
    const struct exact *x = &k->x;
    const size_t        q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    tile_in_place(x, k->q_cols + q, x->dq_pad / 2, LANES, room);
    tile_in_place(x, k->q_rows + q, LANES / 2, x->dq_pad, room);
    tile_in_place(x, k->g_cols + g, x->dv_pad / 2, LANES, room);
    tile_in_place(x, k->g_rows + g, LANES / 2, x->dv_pad, room);
}

bool back_as_stored(const struct exact *x, const struct back_room *r)
{
    return r->panel && exact_as_stored(x) && !x->score->n_rows;
}

/* Rows from the first on, those without a query zero. */
static bool take_rows(const struct exact *x, const struct block *b, const void *base,
                      const foci_layout *l, int d, int d_pad, char *cols, char *rows,
                      void *room)
{
    _Alignas(64) float square[LANES];
    int64_t            ld;
    const uint16_t    *in = exact_stored_block(x, b, base, l, d, room, &ld);
    bool               finite = true;

    x->k->squares_bf16(square, in, ld, b->r1, d);
    for (int i = 0; i < b->r1; i++)
        finite = finite && isfinite(square[i]);
    x->k->take_block_bf16((void *)cols, (void *)rows, in, ld, b->r1, d, d_pad);
    return finite;
}

void back_take_block(const struct back *k, const struct block *b, void *room)
{
    const struct exact *x = &k->x;
    const size_t        q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    if (!take_rows(x, b, x->io->q, &x->p->q, x->dq, x->dq_pad, k->q_cols + q,
                   k->q_rows + q, room))
        k->rows[b->at].bad |= BAD_QUERY;
    if (!take_rows(x, b, k->g->d_o, &x->p->o, x->dv, x->dv_pad, k->g_cols + g,
                   k->g_rows + g, room))
        k->rows[b->at].bad |= BAD_GRAD;
}

void back_tile_keys(const struct exact *x, int64_t kv, int64_t kt, void *room)
{
    const size_t at = (size_t)(kv * x->max_kt + kt);

    tile_in_place(x, x->keys + at * x->key_size, TILE, x->dq_pad / 2, room);
    tile_in_place(x, x->values + at * x->value_size, TILE, x->dv_pad / 2, room);
}

static void untile(char *out, const char *tiles, int rows, int cols)
{
    const size_t row = WORDS * sizeof(uint32_t);

    for (int i = 0; i < rows; i += WORDS)
        for (int j = 0; j < cols; j += WORDS)
            for (int r = i; r < i + WORDS; r++, tiles += row)
                memcpy(out + (size_t)(r * cols + j) * sizeof(uint32_t), tiles, row);
}

void back_untile(const struct back_run *u, const struct block *b, int64_t t,
                 const struct back_words *own)
{
    const struct back  *k = u->k;
    const struct exact *x = &k->x;
    const size_t        q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    untile(own->keys, exact_keys(x, u->s, u->kv, t).at, TILE, x->dq_pad / 2);
    untile(own->values, exact_values(x, u->s, u->kv, t).at, TILE, x->dv_pad / 2);
    untile(own->q_cols, k->q_cols + q, x->dq_pad / 2, LANES);
    untile(own->q_rows, k->q_rows + q, LANES / 2, x->dq_pad);
    untile(own->g_cols, k->g_cols + g, x->dv_pad / 2, LANES);
    untile(own->g_rows, k->g_rows + g, LANES / 2, x->dv_pad);
}

/*
 * Meetings
 */

/* What 32 queries from `lane` on see of 32 keys. */
static uint8_t unit_of(const uint64_t *seen, int lane)
{
    uint32_t any = 0, all = UINT32_MAX;

    for (int j = 0; j < PANEL_UNIT; j++) {
        any |= (uint32_t)(seen[j] >> lane);
        all &= (uint32_t)(seen[j] >> lane);
    }
    return any == 0 ? PANEL_NONE : all == UINT32_MAX ? PANEL_ALL : PANEL_SOME;
}

/* Tile i of the run and block number j: which of their pairs are seen. */
static void look(const struct back_panel *w, int i, int j, struct back_room *r,
                 struct grad_panel *p)
{
    const struct back_run *u = w->run;
    const int              n = exact_keys_in(u->s, u->t + i);
    uint64_t  *seen = r->panel_seen + ((int64_t)i * most_blocks(&u->k->x) + j) * TILE;
    const bool masked =
        exact_seen(&u->k->x, &w->block[j], u->t + i, w->mask[i][j], n, seen);

    if (!masked) memset(seen, 0xff, (size_t)n * sizeof *seen);
    memset(seen + n, 0, (size_t)(TILE - n) * sizeof *seen);
    p->seen[i][j] = seen;
    for (int k = 0; k < 4; k++)
        p->unit[2 * i + k / 2][2 * j + k % 2] =
            masked || n < TILE ? unit_of(seen + k / 2 * PANEL_UNIT, k % 2 * PANEL_UNIT)
                               : PANEL_ALL;
}

static struct panel_tile tile_of(const struct back_run *u, int64_t t)
{
    const struct exact *x = &u->k->x;

    return (struct panel_tile){
        (const void *)exact_keys(x, u->s, u->kv, t).at,
        (const void *)exact_values(x, u->s, u->kv, t).at,
        (const void *)exact_keys_sum(x, u->s, u->kv, t).at,
    };
}

static struct panel_block block_of(const struct back_run *u, const struct block *b)
{
    const struct back *k = u->k;
    const size_t       q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;
    const struct back_rows *rows = &k->rows[b->at];

    return (struct panel_block){
        .q_cols = (const void *)(k->q_cols + q),
        .g_cols = (const void *)(k->g_cols + g),
        .q_rows = (const void *)(k->q_rows + q),
        .g_rows = (const void *)(k->g_rows + g),
        .f = rows->f,
        .norm = rows->norm,
        .delta = rows->delta,
        .dqt = back_dqt(k, u->part, b->at),
    };
}

bool back_panel_finite(const struct back_panel *w)
{
    const struct back_run *u = w->run;
    const struct exact    *x = &u->k->x;
    bool                   finite = true;

    for (int j = 0; j < w->n; j++)
        finite = finite && !u->k->rows[w->block[j].at].bad;
    for (int64_t i = 0; i < u->n; i++)
        finite = finite && !x->bad_k[u->kv * x->max_kt + u->s->kt0 + u->t + i];
    return finite;
}

void back_panel(const struct back_panel *w, const struct back_panel *next,
                struct back_room *r)
{
    struct panel_block     ahead[PANEL_TILES];
    const struct back_run *u = w->run;
    const struct exact    *x = &u->k->x;
    struct grad_panel      p = {
             .n_tiles = (int)u->n,
             .n_blocks = w->n,
             .dq = x->dq_pad,
             .dv = x->dv_pad,
             .dk_sum = r->dk_head,
             .dv_sum = r->dv,
             .room = r->panel,
             .next = ahead,
             .n_next = next->n,
    };

    for (int i = 0; i < p.n_tiles; i++) {
        p.tile[i] = tile_of(u, u->t + i);
        for (int j = 0; j < w->n; j++)
            if (w->meets[i][j]) look(w, i, j, r, &p);
    }
    for (int j = 0; j < w->n; j++)
        p.block[j] = block_of(u, &w->block[j]);
    for (int j = 0; j < next->n; j++)
        ahead[j] = block_of(u, &next->block[j]);
    x->k->grad_panel_bf16(&p);
}
