/* exact_back_keys.c -- tiles of keys stay while blocks of queries go by; then their
 * gradients are stored. */
#include <math.h>
#include <string.h>

#include "engine/exact_back.h"
#include "engine/exact_pack.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

int64_t back_collected(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j)
{
    return (kv * x->p->batch + s->s.b) * x->p->len_k + s->s.k0 + j;
}

/* What this sweep finds of dk and dv of a tile, added to what others do. */
static void collect_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t t, const float *dk, const float *dv)
{
    const int64_t at = back_collected(x, s, kv, t * TILE), n = exact_keys_in(s, t);
    float        *all_k = x->dk_rows + at * x->ldq, *all_v = x->dv_rows + at * x->ldv;

    for (int64_t i = 0; i < n * x->ldq; i++)
        all_k[i] += dk[i];
    for (int64_t i = 0; i < n * x->ldv; i++)
        all_v[i] += dv[i];
}

static int rows_from(const struct exact_seq *s, int64_t j)
{
    return (int)min64(TILE, s->s.nk - j);
}

/* From dk of keys as they went into scores, from j on, to that of keys as they are given;
 * the result is where it lies, ld_given wide where they were projected. */
static float *take_back(const struct back *k, const struct exact_seq *s, int64_t kv,
                        int64_t j, float *dk, struct back_room *r)
{
    const struct exact *x = &k->x;
    const int           n = rows_from(s, j);
    struct mapped       mapped;

    if (x->stage->order.shared) {
        memset(dk, 0, (size_t)n * (size_t)x->ldq * sizeof *dk);
        return dk;
    }
    if (!exact_maps(x)) return dk;
    exact_load_mapped(x, s, kv, j, n, r->tile, &mapped);
    exact_map_back(x, dk, r->tile, n, (struct places){ j, NULL }, true, &mapped);
    if (!exact_projects(x)) return dk;
    memcpy(x->dk_rows + back_collected(x, s, kv, j) * x->ldq, dk,
           (size_t)n * (size_t)x->ldq * sizeof *dk);
    exact_project_back(x, kv, true, dk, n, exact_wide(x));
    return exact_wide(x);
}

/* Round and store n rows from row j of the sequence on; leading ones are constants. */
static void store_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                       int64_t j, float *rows, int ld, void *base, const foci_layout *l,
                       int d)
{
    const foci_problem *p = x->p;
    const int           n = rows_from(s, j);
    const int64_t       to =
        s->s.b * l->batch + (s->s.k0 + j) * l->row + exact_given_head(x, kv) * l->head;

    if (!base || !d) return;
    for (int i = 0; i < n && j + i < x->stage->memory; i++)
        memset(rows + (int64_t)i * ld, 0, (size_t)d * sizeof *rows);
    x->k->store_rows((char *)base + (size_t)to * foci_dtype_bytes(p->dtype), l->row,
                     (int)p->dtype, rows, ld, 1.0f, n, d);
}

static int given_ld(const struct exact *x)
{
    return exact_projects(x) ? x->ld_given : x->ldq;
}

/* dk and dv of keys from j on are complete. */
static void store_keys(const struct back *k, const struct exact_seq *s, int64_t kv,
                       int64_t j, float *dk, float *dv, struct back_room *r)
{
    const struct exact *x = &k->x;

    exact_share_slots(x, s, kv, j, dk, dv);
    dk = take_back(k, s, kv, j, dk, r);
    if (x->dq) store_rows(x, s, kv, j, dk, given_ld(x), k->g->dk, &x->p->k, x->given);
    store_rows(x, s, kv, j, dv, x->ldv, k->g->dv, &x->p->v, x->dv);
}

/* What a walk over the blocks of a tile has come to. */
struct column {
    struct walk w;
    int64_t     qt; /* -1: there are no more */
    int32_t     mask;
};

static void column_next(struct column *c)
{
    if (!exact_next(&c->w, &c->qt, &c->mask)) c->qt = -1;
}

/* The first block that a tile of the run is to meet; -1: none. */
static int64_t first_block(const struct column *c, int64_t n)
{
    int64_t first = -1;

    for (int64_t i = 0; i < n; i++)
        if (c[i].qt >= 0 && (first < 0 || c[i].qt < first)) first = c[i].qt;
    return first;
}

/* A block meets tile i of the run, with the mask of the two, and `more` before it. */
static void meet(const struct back_run *u, const struct block *b, int64_t i,
                 int32_t mask, bool more, struct back_room *r)
{
    const struct back  *k = u->k;
    const struct exact *x = &k->x;
    const int64_t       t = u->t + i;
    struct meeting      st = {
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
             .dk = r->dk_head + i * TILE * x->ldq,
             .dv = r->dv + i * TILE * x->ldv,
             .with = exact_with(x, u->s),
             .more = more,
    };

    if (r->panel) {
        back_untile(u, b, t, &r->own);
        st.own = &r->own;
        st.key.at = r->own.keys;
        st.value.at = r->own.values;
    }
    if (exact_has_txl(x)) back_place(x, r, exact_txl_place(x, &r->txl, i));
    back_meet(&st, mask);
}

/* A block meets those tiles of the run that see it, from the last on. */
static void meet_run(const struct back_run *u, const struct block *b, int64_t qt,
                     struct column *c, struct back_room *r)
{
    const struct back  *k = u->k;
    const struct exact *x = &k->x;
    const bool          wanted = exact_wanted(x, b);

    for (int64_t i = u->n - 1; i >= 0; i--) {
        const int32_t mask = c[i].mask;

        if (c[i].qt != qt) continue;
        column_next(&c[i]);
        if (wanted) meet(u, b, i, mask, i > 0 && c[i - 1].qt == qt, r);
    }
    exact_txl_end_back(x, b, &k->txl, k->rows[b->at].mul, &r->txl, u->part,
                       back_dqt_of(k, u->part, b->at));
}

/* The next blocks that the tiles of the run are to meet, as many as a panel takes; false:
 * there are no more. */
static bool gather_panel(const struct back_run *u, int64_t h, struct column *c,
                         struct back_panel *w)
{
    int64_t qt;

    *w = (struct back_panel){ .run = u };
    while (w->n < PANEL_TILES && (qt = first_block(c, u->n)) >= 0) {
        const struct block b = exact_block(&u->k->x, h, u->s->qt0 + qt);
        const bool         wanted = exact_wanted(&u->k->x, &b);

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

static void meet_apart(const struct back_panel *w, struct back_room *r)
{
    for (int j = 0; j < w->n; j++)
        for (int64_t i = 0; i < w->run->n; i++)
            if (w->meets[i][j]) meet(w->run, &w->block[j], i, w->mask[i][j], false, r);
}

/* All blocks of a head, several at once; tile by tile where something is not finite. */
static void meet_panels(const struct back_run *u, int64_t h, struct column *c,
                        struct back_room *r)
{
    struct back_panel two[2], *w = &two[0], *next = &two[1];

    for (bool more = gather_panel(u, h, c, w); more;) {
        more = gather_panel(u, h, c, next);
        if (back_panel_finite(w))
            back_panel(w, next, r);
        else
            meet_apart(w, r);
        struct back_panel *const done = w;
        w = next;
        next = done;
    }
}

/* dk and dv of the run are complete, as far as this sweep goes. */
static void leave_run(const struct back_run *u, struct back_room *r)
{
    const struct exact *x = &u->k->x;

    for (int64_t i = 0; i < u->n; i++) {
        const int64_t t = u->t + i;
        float        *dk = r->dk + i * TILE * x->ldq, *dv = r->dv + i * TILE * x->ldv;

        if (exact_level(u->s, t) >= 0)
            exact_keep_slots(x, u->s, u->kv, t, dk, dv);
        else if (x->collect)
            collect_tile(x, u->s, u->kv, t, dk, dv);
        else
            for (int64_t f = 0; f < exact_with(x, u->s); f++)
                store_keys(u->k, u->s + f, u->kv, t * TILE, dk, dv + f * TILE * x->ldv,
                           r);
    }
}

void back_keys(const struct back_run *u, struct back_room *r)
{
    const struct exact *x = &u->k->x;
    const int64_t       count = u->n * TILE * x->ldq;
    struct column       c[MAX_RUN];

    memset(r->dk, 0, (size_t)count * sizeof(float));
    memset(r->dv, 0,
           (size_t)(exact_with(x, u->s) * u->n * TILE * x->ldv) * sizeof(float));
    for (int64_t h = u->kv * x->per_kv; h < (u->kv + 1) * x->per_kv; h++) {
        const float scale = (float)exact_head_scale(x, x->head0 + h);

        memset(r->dk_head, 0, (size_t)count * sizeof(float));
        for (int64_t i = 0; i < u->n; i++) {
            c[i].w = exact_walk_blocks(x, u->s, u->t + i);
            column_next(&c[i]);
        }
        if (r->panel) meet_panels(u, h, c, r);
        for (int64_t qt; (qt = first_block(c, u->n)) >= 0;) {
            const struct block b = exact_block(x, h, u->s->qt0 + qt);
            meet_run(u, &b, qt, c, r);
        }
        for (int64_t i = 0; i < count; i++)
            r->dk[i] += scale * r->dk_head[i];
    }
    leave_run(u, r);
}

/* What all sweeps have added to keys of one head from j on. */
static void load_collected(const struct exact *x, const struct exact_seq *s, int64_t kv,
                           int64_t j, struct back_room *r)
{
    const size_t n = (size_t)rows_from(s, j);

    if (!x->collect) {
        memset(r->dk, 0, n * (size_t)x->ldq * sizeof *r->dk);
        memset(r->dv, 0, n * (size_t)x->ldv * sizeof *r->dv);
        return;
    }
    const int64_t at = back_collected(x, s, kv, j);
    memcpy(r->dk, x->dk_rows + at * x->ldq, n * (size_t)x->ldq * sizeof *r->dk);
    memcpy(r->dv, x->dv_rows + at * x->ldv, n * (size_t)x->ldv * sizeof *r->dv);
}

/* The heads made of one that is given, from head kv on, are added up. */
static void store_sum(const struct back *k, const struct exact_seq *s, int64_t kv,
                      int64_t j, struct back_room *r)
{
    const struct exact *x = &k->x;
    const int           n = rows_from(s, j), ld = given_ld(x);

    for (int64_t i = 0; i < x->own; i++) {
        load_collected(x, s, kv + i, j, r);
        exact_share_slots(x, s, kv + i, j, r->dk, r->dv);
        const float *dk = take_back(k, s, kv + i, j, r->dk, r);
        for (int64_t c = 0; c < (int64_t)n * ld; c++)
            r->all_k[c] = i ? r->all_k[c] + dk[c] : dk[c];
        for (int64_t c = 0; c < (int64_t)n * x->ldv; c++)
            r->all_v[c] = i ? r->all_v[c] + r->dv[c] : r->dv[c];
    }
    store_rows(x, s, kv, j, r->all_k, ld, k->g->dk, &x->p->k, x->given);
    store_rows(x, s, kv, j, r->all_v, x->ldv, k->g->dv, &x->p->v, x->dv);
}

int64_t back_store_jobs(const struct back *k)
{
    const struct exact *x = &k->x;
    return x->collect || x->bare ? x->kv_heads / x->own * x->n_seqs * PIECES : 0;
}

void back_store(const struct back *k, int64_t job, struct back_room *r)
{
    const struct exact     *x = &k->x;
    const int64_t           at = job / PIECES;
    const struct exact_seq *s = &x->seqs[at % x->n_seqs];
    const int64_t           kv = at / x->n_seqs * x->own;

    for (int64_t j = job % PIECES * TILE; j < s->s.nk; j += (int64_t)PIECES * TILE) {
        if (x->own > 1) {
            store_sum(k, s, kv, j, r);
            continue;
        }
        load_collected(x, s, kv, j, r);
        store_keys(k, s, kv, j, r->dk, r->dv, r);
    }
}
