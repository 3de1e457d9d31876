/* exact_backward.c -- gradients of exact attention in tiles, five products a tile.
 *
 * A tile of keys stays, blocks of queries go by: its dk and dv are summed in place,
 * dq of each block in memory.  Where blocks gain by meeting neighbours one after the
 * other, a run of a few tiles stays.  Work is shared out as (sequence, key/value head, part
 * of the key tiles).  Each part has its own dq, and the parts are added up in order
 * at the end; their number depends on the shape alone, so results do not depend on
 * the number of threads.
 *
 * Weights are recomputed from the normaliser that forward saved.  The factor that all
 * rows of a head share stays out of the products and is applied to their sums.
 */
#include "engine/exact_back.h"

#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_slots.h"
#include "engine/exact_txl.h"
#include "engine/rest.h"

enum { MIN_RUN = 2 };

/* Tiles of keys that stay at a time: more of them cost fewer ends of runs, but leave
 * fewer pieces. */
static int64_t tiles_in_run(const struct exact *x)
{
    const int64_t tiles =
        x->p->batch * x->kv_heads * div_up(x->p->len_k, TILE) / PIECES;

    if (back_has_panels(x)) return max64(1, min64(PANEL_TILES, tiles));
    return exact_has_txl(x) && !x->from.from ? max64(MIN_RUN, min64(MAX_RUN, tiles))
                                             : 1;
}

static struct back_room room_take(const struct exact *x, struct arena *a)
{
    const int64_t    ld = max64(x->ldq, x->ldv), pairs = (int64_t)TILE * LANES;
    const int64_t    run = tiles_in_run(x);
    struct back_room r;

    r.tile = arena_take(a, TILE * ld, sizeof(float));
    r.tile2 = arena_take(a, TILE * ld, sizeof(float));
    r.tile3 = arena_take(a, x->stage->order.shared ? TILE * (int64_t)x->ldq : 0,
                         sizeof(float));
    r.s = arena_take(a, pairs, sizeof(float));
    r.dp = arena_take(a, pairs, sizeof(float));
    r.scores = back_wants_sums(x) ? arena_take(a, pairs, sizeof(float)) : NULL;
    r.w16 = x->bf16 ? arena_take(a, pairs, sizeof(uint16_t)) : NULL;
    r.ds16 = x->bf16 ? arena_take(a, pairs, sizeof(uint16_t)) : NULL;
    r.words = x->bf16 ? arena_take(a, STACK * pairs / 2, sizeof(uint32_t)) : NULL;
    r.waiting = 0;
    r.dk = arena_take(a, run * TILE * (int64_t)x->ldq, sizeof(float));
    r.dk_head = arena_take(a, run * TILE * (int64_t)x->ldq, sizeof(float));
    r.dv = arena_take(a, exact_fold_most(x) * run * TILE * x->ldv, sizeof(float));
    r.all_k = arena_take(a, x->own > 1 ? TILE * max64(x->ldq, x->ld_given) : 0,
                         sizeof(float));
    r.all_v = arena_take(a, x->own > 1 ? TILE * (int64_t)x->ldv : 0, sizeof(float));
    r.bias = exact_biased(x) ? arena_take(a, pairs, sizeof(float)) : NULL;
    r.seen = arena_take(a, TILE, sizeof(uint64_t));
    r.stop = arena_take(a, TILE, sizeof(uint64_t));
    r.keep = x->drops ? arena_take(a, TILE, sizeof(uint64_t)) : NULL;
    back_panel_take(x, run, a, &r);
    r.txl = exact_txl_room_back(x, run, a);
    r.from = exact_source_room(x, true, a);
    return r;
}

static void take_collected(struct exact *x, struct arena *a)
{
    const int64_t rows = x->kv_heads * x->p->batch * x->p->len_k;

    x->dk_slots =
        arena_take(a, x->kv_heads * x->max_st * TILE, (size_t)x->ldq * sizeof(float));
    x->dv_slots =
        arena_take(a, x->kv_heads * x->max_st * TILE, (size_t)x->ldv * sizeof(float));
    if (!x->collect) return;
    x->dk_rows = arena_take(a, rows, (size_t)x->ldq * sizeof(float));
    x->dv_rows = arena_take(a, rows, (size_t)x->ldv * sizeof(float));
}

/* A gradient of the given bias, which heads and sequences may share, wants pieces of key
 * tiles alone; those of sources are shared by sequences. */
static int64_t count_parts(const struct exact *x)
{
    const int64_t seqs = x->from.from ? 1 : x->p->batch;
    const int64_t jobs = max64(1, seqs * x->kv_heads);
    const int64_t parts =
        x->p->flags & FOCI_BIAS ? max64(PIECES / jobs, PIECES / 2) : PIECES / jobs;

    const int64_t tiles =
        x->bare ? x->max_st : div_up(x->p->len_k, TILE * tiles_in_run(x));
    return max64(1, min64(parts, tiles));
}

static void back_take(struct back *k, struct arena *a)
{
    struct exact *x = &k->x;
    const int64_t blocks = x->heads * x->max_qt;
    /* Without a sweep in natural order what is packed is not kept. */
    const int64_t k_tiles = exact_natural(x) ? x->kv_heads * x->max_kt : 0;
    const int64_t pieces = exact_natural(x) ? blocks : x->threads;
    const size_t  el = x->bf16 ? 2 : sizeof(float);
    struct arena  one = { 0 };

    exact_seqs(x, x->io, a);
    if (x->stage->order.label) order_take(x, a, (float *)k->saved, true);
    if (!exact_keys_in_place(x)) x->keys = arena_take(a, k_tiles, x->key_size);
    if (!exact_values_in_place(x)) x->values = arena_take(a, k_tiles, x->value_size);
    x->keys_sum = x->bf16 ? arena_take(a, k_tiles, x->key_size) : NULL;
    x->norms = arena_take(a, k_tiles, TILE * sizeof *x->norms);
    x->top = arena_take(a, k_tiles, sizeof *x->top);
    x->bad_k = arena_take(a, k_tiles, 1);

    k->q_size = (size_t)x->ldq * LANES * el;
    k->g_size = (size_t)x->ldv * LANES * el;
    k->q_cols = arena_take(a, pieces, k->q_size);
    k->q_rows = arena_take(a, pieces, k->q_size);
    k->g_cols = arena_take(a, pieces, k->g_size);
    k->g_rows = arena_take(a, pieces, k->g_size);
    k->rows = arena_take(a, blocks, sizeof *k->rows);

    k->parts = exact_natural(x) ? count_parts(x) : 1;
    k->dqt = arena_take(a, k->parts * pieces, (size_t)x->ldq * LANES * sizeof(float));
    k->met = arena_take(a, k->parts * blocks, 1);
    k->sums =
        back_wants_sums(x) ? arena_take(a, k->parts * blocks, sizeof *k->sums) : NULL;
    take_collected(x, a);
    exact_position_take(x, a);
    exact_position_take_back(x, k->parts, a);
    exact_txl_take(x, a, true);
    exact_project_take(x, a, true);
    exact_mix_take(x, a);
    exact_txl_take_back(x, k->parts, &k->txl, a);
    exact_shaw_take_back(x, k->parts, &k->shaw, a);
    exact_source_take(x, a, true);
    exact_source_take_back(x, k->parts, &k->from, a);

    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->threads, one.used);
}

size_t exact_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct back  k = { 0 };
    struct arena a = { 0 };

    exact_geometry(&k.x, plan, s);
    back_take(&k, &a);
    return a.used;
}

static void clear(const struct back *k)
{
    const struct exact *x = &k->x;

    if (x->collect) {
        const size_t rows = (size_t)(x->kv_heads * x->p->batch * x->p->len_k);
        memset(x->dk_rows, 0, rows * (size_t)x->ldq * sizeof(float));
        memset(x->dv_rows, 0, rows * (size_t)x->ldv * sizeof(float));
    }
    exact_position_clear(x, k->parts);
    const foci_problem *p = x->p;
    const int64_t       given = x->kv_heads / x->own;
    rest_clear(x->plan, x->io, k->g->dq, &p->q, x->head0, x->heads, p->dim_qk, true,
               !x->dq);
    rest_clear(x->plan, x->io, k->g->dk, &p->k, x->kv0, given, p->dim_qk, false, !x->dq);
    rest_clear(x->plan, x->io, k->g->dv, &p->v, x->kv0, given, x->dv, false, false);
}

/* Tiles of keys, or of slots, of a sequence. */
static foci_range tiles_of(const struct exact_seq *s, bool slots)
{
    const int64_t raw = s->n_levels ? s->slot_t0[0] : s->n_kt;

    return slots ? (foci_range){ raw, s->n_kt } : (foci_range){ 0, raw };
}

/* A part of the tiles of sequences s0 to s1 for a key/value head.  On full supports it is
 * every part-th run, to and fro so that parts of a causal sequence weigh alike; on others
 * neighbours, which see much the same queries.  A run is met by all sequences before the
 * next is. */
static void job(const struct back *k, foci_range seqs, int64_t kv, int64_t part,
                bool slots, struct back_room *r)
{
    const struct exact *x = &k->x;
    const int64_t       most = tiles_in_run(x);
    const bool          all = x->support->all;
    int64_t             longest = 0;

    for (int64_t s = seqs.begin; s < seqs.end; s++) {
        const foci_range tiles = tiles_of(&x->seqs[s], slots);
        longest = max64(longest, tiles.end - tiles.begin);
    }
    const int64_t runs = div_up(longest, most);
    const int64_t first = all ? 0 : runs * part / k->parts;
    const int64_t end = all ? div_up(runs, k->parts) : runs * (part + 1) / k->parts;
    for (int64_t at = first; at < end; at++) {
        const int64_t mine = at % 2 ? k->parts - 1 - part : part;
        const int64_t t = (all ? at * k->parts + mine : at) * most;

        if (t >= longest) continue;
        exact_source_begin_tile(x, &r->from);
        for (int64_t s = seqs.begin; s < seqs.end; s += x->fold) {
            const foci_range      tiles = tiles_of(&x->seqs[s], slots);
            const struct back_run u = { k,
                                        &x->seqs[s],
                                        kv,
                                        tiles.begin + t,
                                        min64(most, tiles.end - tiles.begin - t),
                                        part };
            if (u.n > 0) back_keys(&u, r);
        }
        exact_source_end_tile(x, kv, t, part, &k->from, &r->from, k->g->dparams);
    }
}

/* Jobs that threads share: of a sequence and key/value head each, of all sequences, or of
 * all of both, so that what they share is summed in order. */
static int64_t count_jobs(const struct back *k)
{
    const struct exact *x = &k->x;
    const int64_t       seqs = x->from.from ? 1 : x->n_seqs;

    return k->g->dbias ? k->parts : k->parts * seqs * x->kv_heads;
}

static void jobs_of(const struct back *k, int64_t i, bool slots, struct back_room *r)
{
    const struct exact *x = &k->x;
    const int64_t       part = i % k->parts, mine = i / k->parts;
    const int64_t       step = x->from.from ? x->n_seqs : 1; /* taken by one job */

    if (!k->g->dbias) {
        const int64_t s = mine / x->kv_heads * step;
        job(k, (foci_range){ s, s + step }, mine % x->kv_heads, part, slots, r);
        return;
    }
    for (int64_t s = 0; s < x->n_seqs; s += step)
        for (int64_t kv = 0; kv < x->kv_heads; kv++)
            job(k, (foci_range){ s, s + step }, kv, part, slots, r);
}

static struct back_room room_of(const struct exact *x, int thread)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    return room_take(x, &mine);
}

/* Tiles that sweeps in natural order keep packed. */
static int64_t kept_tiles(const struct exact *x)
{
    return exact_natural(x) ? x->kv_heads * x->n_kt : 0;
}

static void mix_job(void *arg, int64_t i, int thread)
{
    const struct exact *x = &((const struct back *)arg)->x;

    (void)thread;
    exact_mix(x, exact_mix_jobs(x), i);
}

/* Tiles of keys, rows of distances, keys of sources, then blocks of queries. */
static void prepare_job(void *arg, int64_t i, int thread)
{
    struct back        *k = arg;
    const struct exact *x = &k->x;
    const int64_t       leads = exact_leads(x);
    const int64_t       distances = i - kept_tiles(x);
    const int64_t       source = distances - exact_txl_tiles(x);
    const int64_t       at = source - exact_source_tiles(x);
    struct back_room    room = room_of(x, thread);

    if (distances < 0) {
        exact_pack_tile(x, i / x->n_kt, i % x->n_kt, room.tile, room.tile2);
        if (room.panel) back_tile_keys(x, i / x->n_kt, i % x->n_kt, room.tile);
    } else if (source < 0)
        exact_txl_make(x, distances, room.tile);
    else if (at < 0)
        exact_source_make(x, source, &room.from);
    else {
        const struct block b = exact_lead(x, at / leads, at % leads);
        back_prepare(k, &b, &room);
    }
}

static void slots_job(void *arg, int64_t i, int thread)
{
    const struct back *k = arg;
    struct back_room   room = room_of(&k->x, thread);

    jobs_of(k, i, true, &room);
}

static int64_t learned_mixes(const struct back *k)
{
    return k->g->dparams ? exact_mix_params_jobs(&k->x) : 0;
}

/* Gradients of what mixes keys, then parts of the keys themselves. */
static void keys_job(void *arg, int64_t i, int thread)
{
    const struct back *k = arg;
    struct back_room   room = room_of(&k->x, thread);

    if (i < learned_mixes(k))
        exact_mix_params(&k->x, i, k->g->dparams);
    else
        jobs_of(k, i - learned_mixes(k), false, &room);
}

static int64_t learned_distances(const struct back *k)
{
    return k->g->dparams ? exact_txl_tiles(&k->x) : 0;
}

/* Tiles of keys, rows of distances, then blocks of queries. */
static void finish_job(void *arg, int64_t i, int thread)
{
    struct back        *k = arg;
    const struct exact *x = &k->x;
    const int64_t       leads = exact_leads(x);
    const int64_t       distances = i - back_store_jobs(k);
    const int64_t       at = distances - learned_distances(k);
    struct back_room    room = room_of(x, thread);

    if (distances < 0)
        back_store(k, i, &room);
    else if (at < 0)
        exact_txl_params_rows(x, &k->txl, distances, k->g->dparams);
    else {
        const struct block b = exact_lead(x, at / leads, at % leads);
        back_finish(k, &b, &room);
    }
}

static void source_job(void *arg, int64_t h, int thread)
{
    const struct back *k = arg;
    struct back_room   room = room_of(&k->x, thread);

    exact_source_head(&k->x, h, &k->from, &room.from, k->g->dparams);
}

static void dx_job(void *arg, int64_t i, int thread)
{
    const struct back *k = arg;
    struct back_room   room = room_of(&k->x, thread);

    exact_source_dx(&k->x, i, &k->from, &room.from, k->g->dx);
}

static void vectors_job(void *arg, int64_t h, int thread)
{
    struct back     *k = arg;
    struct back_room room = room_of(&k->x, thread);

    back_vectors(k, h, &room);
}

/* Weights are made again and gradients summed, in natural order. */
static void natural_sweep(struct back *k, int64_t jobs, int threads)
{
    const struct exact *x = &k->x;
    const int64_t       made = exact_txl_tiles(x) + exact_source_tiles(x);
    const int64_t       blocks = x->heads * exact_leads(x);
    const struct phase  all[] = {
         { exact_mix_jobs(x), 1, mix_job, k },
         { kept_tiles(x) + made + blocks, 4, prepare_job, k },
         { x->stage->n_levels ? jobs : 0, 1, slots_job, k },
         { learned_mixes(k) + (x->bare ? 0 : jobs), 1, keys_job, k },
    };

    phases_run(x->k, x->plan->shared, threads, all, 4);
}

static void project_job(void *arg, int64_t i, int thread)
{
    (void)thread;
    back_project(arg, i / 2, i % 2);
}

/* What all sweeps have summed goes out. */
static void finish_all(struct back *k, int threads)
{
    const struct exact *x = &k->x;
    const int64_t       blocks = x->heads * exact_leads(x);
    const int64_t       learns = k->g->dparams ? x->heads : 0;
    const struct phase  all[] = {
         { back_store_jobs(k) + learned_distances(k) + blocks, 4, finish_job, k },
         { x->from.from ? x->heads : 0, 1, source_job, k },
         { k->g->dx && exact_source_nets(x) ? x->n_qt : 0, 1, dx_job, k },
         { exact_has_shaw(x) ? learns : 0, 1, vectors_job, k },
         { exact_projects(x) ? 2 * learns : 0, 1, project_job, k },
    };

    phases_run(x->k, x->plan->shared, threads, all, 5);
}

void exact_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    const float *saved, const foci_grads *g)
{
    struct back  k = { .g = g, .saved = saved };
    struct arena a = { .base = io->work };

    exact_geometry(&k.x, plan, s);
    k.x.io = io;
    k.x.by_cols = true;
    if (!k.x.max_seqs) return;
    back_take(&k, &a);
    clear(&k);
    exact_position_make(&k.x);
    exact_project_make(&k.x, true);
    exact_source_open(&k.x);
    exact_source_clear(&k.x, &k.from);
    exact_txl_clear(&k.x, &k.txl);
    if (k.x.order) order_begin(&k.x, false);

    const struct exact *x = &k.x;
    const int64_t       jobs = exact_natural(x) ? count_jobs(&k) : 0;
    const int threads = exact_threads(x, max64(jobs, x->heads * exact_leads(x)),
                                      plan->cost.backward_flops);
    natural_sweep(&k, jobs, threads);
    for (int64_t i = 0; x->order && exact_has_shaw(x) && i < x->heads * x->max_qt; i++)
        back_dqt(&k, 0, i);
    if (x->order) order_backward(&k.x, g, &k.shaw);
    finish_all(&k, threads);
    if (g->dparams) back_params(&k);
}
