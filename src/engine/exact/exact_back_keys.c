/* exact_back_keys.c -- a run of key tiles stays while blocks of queries go by; then its
 * gradients are stored. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_back.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_txl.h"

int64_t back_key_row(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j)
{
    return (kv * x->p->batch + s->s.b) * x->p->len_k + s->s.k0 + j;
}

/* Add this sweep's dk and dv of a tile to those of other sweeps. */
static void collect_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t t, const float *dk, const float *dv)
{
    const int64_t at = back_key_row(x, s, kv, t * TILE), n = exact_keys_in(s, t);
    float *sum_k = x->grads.dk + at * x->d.ldq, *sum_v = x->grads.dv + at * x->d.ldv;

    for (int64_t i = 0; i < n * x->d.ldq; i++)
        sum_k[i] += dk[i];
    for (int64_t i = 0; i < n * x->d.ldv; i++)
        sum_v[i] += dv[i];
}

static int rows_from(const struct exact_seq *s, int64_t j)
{
    return (int)min64(TILE, s->s.nk - j);
}

/* From the gradient of mapped keys, from key j on, to that of the caller's keys.
 * Returns where the result is: rows of d.ld_in if keys are projected. */
static float *unmap_keys(const struct exact_back *k, const struct exact_seq *s,
                         int64_t kv, int64_t j, float *dk, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const int           n = rows_from(s, j);
    struct mapped       mapped;

    if (x->stage->order.shared_qk) {
        memset(dk, 0, (size_t)n * (size_t)x->d.ldq * sizeof *dk);
        return dk;
    }
    if (!exact_has_map(x)) return dk;
    exact_load_key_rows(x, s, kv, j, n, r->tile, &mapped);
    exact_map_back(x, dk, r->tile, n, (struct positions){ j, NULL }, true, &mapped);
    if (!exact_has_project(x)) return dk;
    memcpy(x->grads.dk + back_key_row(x, s, kv, j) * x->d.ldq, dk,
           (size_t)n * (size_t)x->d.ldq * sizeof *dk);
    exact_project_back(x, kv, true, dk, n, exact_project_input(x));
    return exact_project_input(x);
}

/* Round and store n rows from row j of the sequence on.  Leading keys that are memory
 * are constants. */
static void store_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j, float *rows, int ld, void *base, const foci_layout *l,
                       int d)
{
    const foci_problem *p = x->p;
    const int           n = rows_from(s, j);
    const int64_t       to =
        s->s.b * l->batch + (s->s.k0 + j) * l->row + exact_input_head(x, kv) * l->head;

    if (!base || !d) return;
    for (int i = 0; i < n && j + i < x->stage->memory; i++)
        memset(rows + (int64_t)i * ld, 0, (size_t)d * sizeof *rows);
    x->k->store_rows((char *)base + (size_t)to * foci_dtype_bytes(p->dtype), l->row,
                     (int)p->dtype, rows, ld, 1.0f, n, d);
}

static int input_ld(const struct exact *x)
{
    return exact_has_project(x) ? x->d.ld_in : x->d.ldq;
}

/* Store dk and dv of the keys from j on, which are complete. */
static void store_keys(const struct exact_back *k, const struct exact_seq *s, int64_t kv,
                       int64_t j, float *dk, float *dv, struct back_scratch *r)
{
    const struct exact *x = &k->x;

    exact_add_slot_grads(x, s, kv, j, dk, dv);
    dk = unmap_keys(k, s, kv, j, dk, r);
    if (x->d.q) store_rows(x, s, kv, j, dk, input_ld(x), k->g->dk, &x->p->k, x->d.in);
    store_rows(x, s, kv, j, dv, x->d.ldv, k->g->dv, &x->p->v, x->d.v);
}

/* An iteration over the blocks of one tile of the run. */
struct back_column {
    struct exact_walk w;
    int64_t           qt; /* block at hand; -1: no more */
    int32_t           mask;
};

static void column_next(struct back_column *c)
{
    if (!exact_next(&c->w, &c->qt, &c->mask)) c->qt = -1;
}

/* The first block that any tile of the run meets; -1: none. */
static int64_t first_block(const struct back_column *c, int64_t n)
{
    int64_t first = -1;

    for (int64_t i = 0; i < n; i++)
        if (c[i].qt >= 0 && (first < 0 || c[i].qt < first)) first = c[i].qt;
    return first;
}

/* A block and tile i of the run; `more`: the block meets tile i - 1 next. */
static void do_tile(const struct back_run *u, const struct exact_block *b, int64_t i,
                    int32_t mask, bool more, struct back_scratch *r)
{
    const struct exact_back *k = u->k;
    const struct exact      *x = &k->x;
    const int64_t            t = u->t + i;
    struct back_tile         tile = {
                .k = k,
                .b = b,
                .r = r,
                .t = t,
                .kt = u->s->kt0 + t,
                .n = exact_keys_in(u->s, t),
                .key = exact_keys(x, u->s, u->kv, t),
                .value = exact_values(x, u->s, u->kv, t),
                .key_sum = exact_keys_sum(x, u->s, u->kv, t),
                .part = u->part,
                .dqt = back_dqt(k, u->part, b->at),
                .dk = r->dk_head + i * TILE * x->d.ldq,
                .dv = r->dv + i * TILE * x->d.ldv,
                .fold = exact_fold_size(x, u->s),
                .more = more,
    };

    if (r->panel) {
        back_panel_unpack(u, b, t, &r->apart);
        tile.apart = &r->apart;
        tile.key.at = r->apart.keys;
        tile.value.at = r->apart.values;
    }
    if (exact_has_txl(x)) back_set_ds(x, r, exact_txl_back_ds(x, &r->txl, i));
    back_tile(&tile, mask);
}

/* A block and those tiles of the run that it sees, from the last one on. */
static void do_block(const struct back_run *u, const struct exact_block *b, int64_t qt,
                     struct back_column *c, struct back_scratch *r)
{
    const struct exact_back *k = u->k;
    const struct exact      *x = &k->x;
    const bool               wanted = exact_block_wanted(x, b);

    for (int64_t i = u->n - 1; i >= 0; i--) {
        const int32_t mask = c[i].mask;

        if (c[i].qt != qt) continue;
        column_next(&c[i]);
        if (wanted) do_tile(u, b, i, mask, i > 0 && c[i - 1].qt == qt, r);
    }
    exact_txl_back_run_end(x, b, &k->txl, k->rows[b->at].mul, &r->txl, u->part,
                           back_dqt_of(k, u->part, b->at));
}

/* Collect the next blocks that the run meets, as many as a panel takes; false: there
 * are no more. */
static bool next_panel(const struct back_run *u, int64_t h, struct back_column *c,
                       struct back_panel *w)
{
    int64_t qt;

    *w = (struct back_panel){ .run = u };
    while (w->n < PANEL_TILES && (qt = first_block(c, u->n)) >= 0) {
        const struct exact_block b = exact_block(&u->k->x, h, u->s->qt0 + qt);
        const bool               wanted = exact_block_wanted(&u->k->x, &b);

        w->block[w->n] = b;
        for (int64_t i = 0; i < u->n; i++) {
            if (c[i].qt != qt) continue;
            w->mask[i][w->n] = c[i].mask;
            w->meets[i][w->n] = wanted;
            column_next(&c[i]);
        }
        w->n += wanted;
    }
    return w->n > 0;
}

static void do_apart(const struct back_panel *w, int j, struct back_scratch *r)
{
    for (int64_t i = 0; i < w->run->n; i++)
        if (w->meets[i][j]) do_tile(w->run, &w->block[j], i, w->mask[i][j], false, r);
}

/* Non-finite blocks meet the tiles of the run one by one, and so do all blocks where a
 * tile is not finite.  The other blocks stay a panel: the separate kernels round
 * differently, and gradients beside a NaN should move as little as possible. */
static void do_nonfinite(const struct back_panel *w, struct back_scratch *r)
{
    const bool        tiles = back_tiles_finite(w->run);
    struct back_panel rest = { .run = w->run }, none = { .run = w->run };

    for (int j = 0; j < w->n; j++) {
        if (!tiles || !back_block_finite(w->run, &w->block[j])) {
            do_apart(w, j, r);
            continue;
        }
        rest.block[rest.n] = w->block[j];
        for (int64_t i = 0; i < w->run->n; i++) {
            rest.mask[i][rest.n] = w->mask[i][j];
            rest.meets[i][rest.n] = w->meets[i][j];
        }
        rest.n++;
    }
    if (rest.n) back_panel(&rest, &none, r);
}

/* All blocks of a head in panels. */
static void do_panels(const struct back_run *u, int64_t h, struct back_column *c,
                      struct back_scratch *r)
{
    struct back_panel two[2], *w = &two[0], *next = &two[1];

    for (bool more = next_panel(u, h, c, w); more;) {
        more = next_panel(u, h, c, next);
        if (back_panel_finite(w))
            back_panel(w, next, r);
        else
            do_nonfinite(w, r);
        struct back_panel *const done = w;
        w = next;
        next = done;
    }
}

/* Store dk and dv of the run, which are complete as far as this sweep goes. */
static void store_run(const struct back_run *u, struct back_scratch *r)
{
    const struct exact *x = &u->k->x;

    for (int64_t i = 0; i < u->n; i++) {
        const int64_t t = u->t + i;
        float *dk = r->dk + i * TILE * x->d.ldq, *dv = r->dv + i * TILE * x->d.ldv;

        if (exact_slot_level(u->s, t) >= 0)
            exact_store_slot_grads(x, u->s, u->kv, t, dk, dv);
        else if (x->grads.collect)
            collect_tile(x, u->s, u->kv, t, dk, dv);
        else
            for (int64_t f = 0; f < exact_fold_size(x, u->s); f++)
                store_keys(u->k, u->s + f, u->kv, t * TILE, dk,
                           dv + f * TILE * x->d.ldv, r);
    }
}

void back_keys(const struct back_run *u, struct back_scratch *r)
{
    const struct exact *x = &u->k->x;
    const int64_t       count = u->n * TILE * x->d.ldq;
    struct back_column  c[MAX_RUN];

    assert(u->n > 0 && u->n <= MAX_RUN);
    memset(r->dk, 0, (size_t)count * sizeof(float));
    memset(r->dv, 0,
           (size_t)(exact_fold_size(x, u->s) * u->n * TILE * x->d.ldv) * sizeof(float));
    for (int64_t h = u->kv * x->per_kv; h < (u->kv + 1) * x->per_kv; h++) {
        const float scale = (float)exact_head_scale(x, x->head0 + h);

        memset(r->dk_head, 0, (size_t)count * sizeof(float));
        for (int64_t i = 0; i < u->n; i++) {
            c[i].w = exact_walk_blocks(x, u->s, u->t + i);
            column_next(&c[i]);
        }
        if (r->panel) do_panels(u, h, c, r);
        for (int64_t qt; (qt = first_block(c, u->n)) >= 0;) {
            const struct exact_block b = exact_block(x, h, u->s->qt0 + qt);
            do_block(u, &b, qt, c, r);
        }
        for (int64_t i = 0; i < count; i++)
            r->dk[i] += scale * r->dk_head[i];
    }
    store_run(u, r);
}

/* Load what all sweeps have added to the keys of one head from j on. */
static void load_collected(const struct exact *x, const struct exact_seq *s, int64_t kv,
                           int64_t j, struct back_scratch *r)
{
    const size_t n = (size_t)rows_from(s, j);

    if (!x->grads.collect) {
        memset(r->dk, 0, n * (size_t)x->d.ldq * sizeof *r->dk);
        memset(r->dv, 0, n * (size_t)x->d.ldv * sizeof *r->dv);
        return;
    }
    const int64_t at = back_key_row(x, s, kv, j);
    memcpy(r->dk, x->grads.dk + at * x->d.ldq, n * (size_t)x->d.ldq * sizeof *r->dk);
    memcpy(r->dv, x->grads.dv + at * x->d.ldv, n * (size_t)x->d.ldv * sizeof *r->dv);
}

/* Add up the heads, from head kv on, that were made of one head of the caller's
 * tensors. */
static void store_expanded(const struct exact_back *k, const struct exact_seq *s,
                           int64_t kv, int64_t j, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const int           n = rows_from(s, j), ld = input_ld(x);

    for (int64_t i = 0; i < x->kv_expand; i++) {
        load_collected(x, s, kv + i, j, r);
        exact_add_slot_grads(x, s, kv + i, j, r->dk, r->dv);
        const float *dk = unmap_keys(k, s, kv + i, j, r->dk, r);
        for (int64_t c = 0; c < (int64_t)n * ld; c++)
            r->sum_k[c] = i ? r->sum_k[c] + dk[c] : dk[c];
        for (int64_t c = 0; c < (int64_t)n * x->d.ldv; c++)
            r->sum_v[c] = i ? r->sum_v[c] + r->dv[c] : r->dv[c];
    }
    store_rows(x, s, kv, j, r->sum_k, ld, k->g->dk, &x->p->k, x->d.in);
    store_rows(x, s, kv, j, r->sum_v, x->d.ldv, k->g->dv, &x->p->v, x->d.v);
}

int64_t back_store_jobs(const struct exact_back *k)
{
    const struct exact *x = &k->x;
    return x->grads.collect || x->slots_only
               ? x->kv_heads / x->kv_expand * x->n.seqs * PIECES
               : 0;
}

void back_store(const struct exact_back *k, int64_t job, struct back_scratch *r)
{
    const struct exact     *x = &k->x;
    const int64_t           at = job / PIECES;
    const struct exact_seq *s = &x->seqs[at % x->n.seqs];
    const int64_t           kv = at / x->n.seqs * x->kv_expand;

    for (int64_t j = job % PIECES * TILE; j < s->s.nk; j += (int64_t)PIECES * TILE) {
        if (x->kv_expand > 1) {
            store_expanded(k, s, kv, j, r);
            continue;
        }
        load_collected(x, s, kv, j, r);
        store_keys(k, s, kv, j, r->dk, r->dv, r);
    }
}
