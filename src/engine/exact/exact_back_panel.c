/* exact_back_panel.c -- backward, plain softmax on bf16 pairs: a run of key tiles and
 * several blocks of queries in one kernel.
 *
 * Non-finite operands, and terms that add to scores or to their gradients, take the
 * separate kernels (exact_back_tile.c).
 */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_back.h"
#include "engine/exact/exact_pack.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"

bool back_has_panels(const struct exact *x)
{
    const struct score *s = x->score;
    const bool plain = x->kind == FOCI_WEIGH_SOFTMAX && !(s->cap > 0) && !s->slope &&
                       !s->n_tables && !exact_has_bias(x) && !exact_has_shaw(x) &&
                       !exact_has_txl(x) && !x->source.kinds && !back_wants_sums(x);

    return x->bf16 && x->k->has_panels && plain && x->d.q > 0 && !x->dropout.on &&
           !x->stage->n_levels && !x->stage->order.label &&
           !x->stage->group->mech.def->stop;
}

static int64_t most_blocks(const struct exact *x)
{
    return max64(1, min64(PANEL_TILES, x->max.qt));
}

void back_panel_carve(const struct exact *x, int64_t run, struct arena *a,
                      struct back_scratch *r)
{
    const int64_t blocks = most_blocks(x);

    r->panel = NULL;
    if (!back_has_panels(x)) return;
    r->panel = arena_alloc(a, panel_bytes(run, blocks), 1);
    r->panel_seen = arena_alloc(a, run * blocks * TILE, sizeof *r->panel_seen);
    r->apart.keys = arena_alloc(a, 1, x->packed.key_bytes);
    r->apart.values = arena_alloc(a, 1, x->packed.value_bytes);
    r->apart.q_cols = arena_alloc(a, 1, x->packed.key_bytes);
    r->apart.q_rows = arena_alloc(a, 1, x->packed.key_bytes);
    r->apart.g_cols = arena_alloc(a, 1, x->packed.value_bytes);
    r->apart.g_rows = arena_alloc(a, 1, x->packed.value_bytes);
}

/*
 * Layout of operands: tiles of 16 rows of 16 pairs, each contiguous
 */

enum { TILE_ROW = 16 }; /* pairs of a row of a tile, and its rows */

static void pack_tiles(const struct exact *x, char *pairs, int rows, int cols,
                       void *scratch)
{
    memcpy(scratch, pairs, (size_t)rows * (size_t)cols * sizeof(uint32_t));
    x->k->pairs_to_tiles((void *)pairs, scratch, cols, rows, cols);
}

void back_panel_pack_block(const struct exact_back *k, const struct exact_block *b,
                           void *scratch)
{
    const struct exact *x = &k->x;
    const size_t        q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    pack_tiles(x, k->q_cols + q, x->d.q_pad / 2, LANES, scratch);
    pack_tiles(x, k->q_rows + q, LANES / 2, x->d.q_pad, scratch);
    pack_tiles(x, k->g_cols + g, x->d.v_pad / 2, LANES, scratch);
    pack_tiles(x, k->g_rows + g, LANES / 2, x->d.v_pad, scratch);
}

bool back_packs_stored(const struct exact *x, const struct back_scratch *r)
{
    return r->panel && exact_packs_stored(x) && !x->score->n_rows;
}

/* Pack stored rows from lane 0 on as columns and as rows; lanes without a query are
 * zero. */
static bool pack_stored_rows(const struct exact *x, const struct exact_block *b,
                             const void *base, const foci_layout *l, int d, int d_pad,
                             char *cols, char *rows, void *scratch)
{
    _Alignas(64) float square[LANES];
    int64_t            ld;
    const uint16_t    *in = exact_stored_block(x, b, base, l, d, scratch, &ld);
    bool               finite = true;

    x->k->squares_bf16(square, in, ld, b->r1, d);
    for (int i = 0; i < b->r1; i++)
        finite = finite && isfinite(square[i]);
    x->k->pack_block_from_bf16((void *)cols, (void *)rows, in, ld, b->r1, d, d_pad);
    return finite;
}

void back_panel_pack_stored(const struct exact_back *k, const struct exact_block *b,
                            void *scratch)
{
    const struct exact *x = &k->x;
    const size_t        q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    if (!pack_stored_rows(x, b, x->io->q, &x->p->q, x->d.q, x->d.q_pad, k->q_cols + q,
                          k->q_rows + q, scratch))
        k->rows[b->at].nonfinite |= NONFINITE_QUERY;
    if (!pack_stored_rows(x, b, k->g->d_o, &x->p->o, x->d.v, x->d.v_pad, k->g_cols + g,
                          k->g_rows + g, scratch))
        k->rows[b->at].nonfinite |= NONFINITE_GRAD;
}

void back_panel_pack_keys(const struct exact *x, int64_t kv, int64_t kt, void *scratch)
{
    const size_t at = (size_t)(kv * x->max.kt + kt);

    pack_tiles(x, x->packed.keys + at * x->packed.key_bytes, TILE, x->d.q_pad / 2,
               scratch);
    pack_tiles(x, x->packed.values + at * x->packed.value_bytes, TILE, x->d.v_pad / 2,
               scratch);
}

static void unpack_tiles(char *out, const char *tiles, int rows, int cols)
{
    const size_t row = TILE_ROW * sizeof(uint32_t);

    for (int i = 0; i < rows; i += TILE_ROW)
        for (int j = 0; j < cols; j += TILE_ROW)
            for (int r = i; r < i + TILE_ROW; r++, tiles += row)
                memcpy(out + (size_t)(r * cols + j) * sizeof(uint32_t), tiles, row);
}

void back_panel_unpack(const struct back_run *u, const struct exact_block *b, int64_t t,
                       const struct back_operands *to)
{
    const struct exact_back *k = u->k;
    const struct exact      *x = &k->x;
    const size_t q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;

    unpack_tiles(to->keys, exact_keys(x, u->s, u->kv, t).at, TILE, x->d.q_pad / 2);
    unpack_tiles(to->values, exact_values(x, u->s, u->kv, t).at, TILE, x->d.v_pad / 2);
    unpack_tiles(to->q_cols, k->q_cols + q, x->d.q_pad / 2, LANES);
    unpack_tiles(to->q_rows, k->q_rows + q, LANES / 2, x->d.q_pad);
    unpack_tiles(to->g_cols, k->g_cols + g, x->d.v_pad / 2, LANES);
    unpack_tiles(to->g_rows, k->g_rows + g, LANES / 2, x->d.v_pad);
}

/*
 * Panels
 */

/* Which of the keys from `first` on 32 queries from `lane` on see: none, some or all. */
static uint8_t unit_kind(const uint64_t *seen, int first, int lane)
{
    uint32_t any = 0, all = UINT32_MAX;

    for (int j = first; j < first + PANEL_UNIT; j++) {
        any |= (uint32_t)(seen[j] >> lane);
        all &= (uint32_t)(seen[j] >> lane);
    }
    return any == 0 ? PANEL_NONE : all == UINT32_MAX ? PANEL_ALL : PANEL_SOME;
}

/* Find the visible pairs of tile i of the run and block j. */
static void find_units(const struct back_panel *w, int i, int j, struct back_scratch *r,
                       struct grad_panel *p)
{
    const struct back_run *u = w->run;
    const int              n = exact_keys_in(u->s, u->t + i);
    uint64_t  *seen = r->panel_seen + ((int64_t)i * most_blocks(&u->k->x) + j) * TILE;
    const bool masked =
        exact_tile_mask(&u->k->x, &w->block[j], u->t + i, w->mask[i][j], n, seen);

    if (!masked) memset(seen, 0xff, (size_t)n * sizeof *seen);
    memset(seen + n, 0, (size_t)(TILE - n) * sizeof *seen);
    p->seen[i][j] = seen;
    for (int k = 0; k < 4; k++)
        p->unit[2 * i + k / 2][2 * j + k % 2] =
            masked || n < TILE ? unit_kind(seen, k / 2 * PANEL_UNIT, k % 2 * PANEL_UNIT)
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

static struct panel_block block_of(const struct back_run *u, const struct exact_block *b)
{
    const struct exact_back *k = u->k;
    const size_t q = (size_t)b->at * k->q_size, g = (size_t)b->at * k->g_size;
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

bool back_block_finite(const struct back_run *u, const struct exact_block *b)
{
    return !u->k->rows[b->at].nonfinite;
}

bool back_tiles_finite(const struct back_run *u)
{
    const struct exact *x = &u->k->x;
    bool                finite = true;

    for (int64_t i = 0; i < u->n; i++)
        finite =
            finite && !x->packed.nonfinite[u->kv * x->max.kt + u->s->kt0 + u->t + i];
    return finite;
}

bool back_panel_finite(const struct back_panel *w)
{
    bool finite = back_tiles_finite(w->run);

    for (int j = 0; j < w->n; j++)
        finite = finite && back_block_finite(w->run, &w->block[j]);
    return finite;
}

void back_panel(const struct back_panel *w, const struct back_panel *next,
                struct back_scratch *r)
{
    struct panel_block     prefetch[PANEL_TILES];
    const struct back_run *u = w->run;
    const struct exact    *x = &u->k->x;
    struct grad_panel      p = {
             .n_tiles = (int)u->n,
             .n_blocks = w->n,
             .dq = x->d.q_pad,
             .dv = x->d.v_pad,
             .dk_sum = r->dk_head,
             .dv_sum = r->dv,
             .scratch = r->panel,
             .next = prefetch,
             .n_next = next->n,
    };

    for (int i = 0; i < p.n_tiles; i++) {
        p.tile[i] = tile_of(u, u->t + i);
        for (int j = 0; j < w->n; j++)
            if (w->meets[i][j]) find_units(w, i, j, r, &p);
    }
    for (int j = 0; j < w->n; j++)
        p.block[j] = block_of(u, &w->block[j]);
    for (int j = 0; j < next->n; j++)
        prefetch[j] = block_of(u, &next->block[j]);
    x->k->grad_panel_bf16(&p);
}
