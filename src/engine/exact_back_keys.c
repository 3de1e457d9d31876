/* exact_back_keys.c -- tiles of keys stay while blocks of queries go by; then their
 * gradients are stored. */
#include <math.h>
#include <string.h>

#include "engine/exact_back.h"

/* Rows of tile t in dk_rows and dv_rows. */
static int64_t collected_at(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t)
{
    return (kv * x->p->batch + s->s.b) * x->p->len_k + s->s.k0 + t * TILE;
}

/* What this sweep finds of dk and dv of a tile, added to what others do. */
static void collect_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t t, const float *dk, const float *dv)
{
    const int64_t at = collected_at(x, s, kv, t), n = exact_keys_in(s, t);
    float        *all_k = x->dk_rows + at * x->ldq, *all_v = x->dv_rows + at * x->ldv;

    for (int64_t i = 0; i < n * x->ldq; i++)
        all_k[i] += dk[i];
    for (int64_t i = 0; i < n * x->ldv; i++)
        all_v[i] += dv[i];
}

/* dk and dv of a tile are complete: round and store them. */
static void store_tile(const struct back *k, const struct exact_seq *s, int64_t kv,
                       int64_t t, float *dk, float *dv, struct back_room *r)
{
    const struct exact *x = &k->x;
    const foci_problem *p = x->p;
    const int           n = exact_keys_in(s, t);
    const int64_t       row = s->s.k0 + t * TILE, head = x->kv0 + kv;
    const size_t        el = foci_dtype_bytes(p->dtype);
    const struct places at = { t * TILE, NULL };
    struct mapped       mapped;

    exact_share_slots(x, s, kv, t, dk, dv);
    if (x->stage->order.shared)
        memset(dk, 0, (size_t)n * (size_t)x->ldq * sizeof *dk);
    else if (exact_maps(x)) {
        exact_load_tile(x, s, kv, t, x->io->k, &p->k, x->dq, x->ldq, r->tile);
        exact_map(x, r->tile, n, at, true, &mapped);
        exact_map_back(x, dk, r->tile, n, at, true, &mapped);
    }
    for (int j = 0; j < n && t * TILE + j < x->stage->memory; j++) {
        memset(dk + (int64_t)j * x->ldq, 0, (size_t)x->dq * sizeof(float));
        memset(dv + (int64_t)j * x->ldv, 0, (size_t)x->dv * sizeof(float));
    }
    if (k->g->dk && x->dq)
        x->k->store_rows(
            (char *)k->g->dk +
                (size_t)(s->s.b * p->k.batch + row * p->k.row + head * p->k.head) * el,
            p->k.row, (int)p->dtype, dk, x->ldq, 1.0f, n, x->dq);
    if (k->g->dv)
        x->k->store_rows(
            (char *)k->g->dv +
                (size_t)(s->s.b * p->v.batch + row * p->v.row + head * p->v.head) * el,
            p->v.row, (int)p->dtype, dv, x->ldv, 1.0f, n, x->dv);
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

/* A block meets those tiles of the run that see it, from the last on. */
static void meet_run(const struct back_run *u, const struct block *b, int64_t qt,
                     struct column *c, struct back_room *r)
{
    const struct back  *k = u->k;
    const struct exact *x = &k->x;
    const bool          wanted = exact_wanted(x, b);

    for (int64_t i = u->n - 1; i >= 0; i--) {
        const int64_t t = u->t + i;
        const int32_t mask = c[i].mask;

        if (c[i].qt != qt) continue;
        column_next(&c[i]);
        if (!wanted) continue;
        struct meeting st = {
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
            .more = i > 0 && c[i - 1].qt == qt,
        };
        if (exact_has_txl(x)) back_place(x, r, exact_txl_place(x, &r->txl, i));
        back_meet(&st, mask);
    }
    exact_txl_end_back(x, b, &k->txl, k->rows[b->at].mul, &r->txl, u->part,
                       back_dqt_of(k, u->part, b->at));
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
                store_tile(u->k, u->s + f, u->kv, t, dk, dv + f * TILE * x->ldv, r);
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
        for (int64_t qt; (qt = first_block(c, u->n)) >= 0;) {
            const struct block b = exact_block(x, h, u->s->qt0 + qt);
            meet_run(u, &b, qt, c, r);
        }
        for (int64_t i = 0; i < count; i++)
            r->dk[i] += scale * r->dk_head[i];
    }
    leave_run(u, r);
}

void back_store(const struct back *k, int64_t kv, int64_t kt, struct back_room *r)
{
    const struct exact     *x = &k->x;
    const struct exact_seq *s = &x->seqs[x->seq_of_k[kt]];
    const int64_t           at = collected_at(x, s, kv, kt - s->kt0);
    const size_t            n = (size_t)exact_keys_in(s, kt - s->kt0);

    if (exact_level(s, kt - s->kt0) >= 0) return;
    memcpy(r->dk, x->dk_rows + at * x->ldq, n * (size_t)x->ldq * sizeof *r->dk);
    memcpy(r->dv, x->dv_rows + at * x->ldv, n * (size_t)x->ldv * sizeof *r->dv);
    store_tile(k, s, kv, kt - s->kt0, r->dk, r->dv, r);
}
