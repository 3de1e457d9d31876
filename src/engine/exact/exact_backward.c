/* exact_backward.c -- exact attention backward: jobs, and their order.
 *
 * A tile of keys stays while blocks of queries go by: its dk and dv are summed in
 * place, dq of each block in memory.  Where blocks gain from neighbouring tiles, a run
 * of a few tiles stays.  A job is (sequence, key/value head, part of the key tiles).
 * Each part has its own dq, and parts are added in order at the end.  Their number
 * depends on the shape alone, so results do not depend on the number of threads.
 *
 * Weights are recomputed from the normaliser that forward saved.  The factor that all
 * rows of a head share is left out of the products and applied to their sums.
 */
#include "engine/exact/exact_back.h"

#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"
#include "engine/shared/padding.h"

static void clear_grads(const struct exact_back *k)
{
    const struct exact *x = &k->x;

    if (x->grads.collect) {
        const size_t rows = (size_t)(x->kv_heads * x->p->batch * x->p->len_k);
        memset(x->grads.dk, 0, rows * (size_t)x->d.ldq * sizeof(float));
        memset(x->grads.dv, 0, rows * (size_t)x->d.ldv * sizeof(float));
    }
    exact_position_back_clear(x, k->parts);
    const foci_problem *p = x->p;
    const int64_t       inputs = x->kv_heads / x->kv_expand;
    padding_clear(x->plan, x->io, k->g->dq, &p->q, x->head0, x->heads, p->dim_qk, true,
                  !x->d.q);
    padding_clear(x->plan, x->io, k->g->dk, &p->k, x->kv0, inputs, p->dim_qk, false,
                  !x->d.q);
    padding_clear(x->plan, x->io, k->g->dv, &p->v, x->kv0, inputs, x->d.v, false, false);
}

/* Tiles of keys, or of slots, of a sequence. */
static foci_range tiles_of(const struct exact_seq *s, bool slots)
{
    const int64_t raw = s->n_levels ? s->slot_t0[0] : s->n_kt;

    return slots ? (foci_range){ raw, s->n_kt } : (foci_range){ 0, raw };
}

/* One part of the key tiles of some sequences, for one key/value head.  Without masks
 * it is every parts-th run, in alternating direction, so that parts of a causal
 * sequence cost the same; with masks it is neighbouring runs, which see much the same
 * queries.  All sequences meet a run before the next one. */
static void do_part(const struct exact_back *k, foci_range seqs, int64_t kv,
                    int64_t part, bool slots, struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const int64_t       most = back_tiles_of_run(x);
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
        const int64_t own = at % 2 ? k->parts - 1 - part : part;
        const int64_t t = (all ? at * k->parts + own : at) * most;

        if (t >= longest) continue;
        exact_source_back_tile_begin(x, &r->source);
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
        exact_source_back_tile_end(x, kv, t, part, &k->source, &r->source,
                                   k->g->dparams);
    }
}

/* Jobs that threads share: one for each part, sequence and key/value head; or for
 * all sequences, or for all of both, where these share gradients that are summed in
 * order. */
static int64_t count_jobs(const struct exact_back *k)
{
    const struct exact *x = &k->x;
    const int64_t       seqs = x->source.kinds ? 1 : x->n.seqs;

    return k->g->dbias ? k->parts : k->parts * seqs * x->kv_heads;
}

static void do_job(const struct exact_back *k, int64_t i, bool slots,
                   struct back_scratch *r)
{
    const struct exact *x = &k->x;
    const int64_t       part = i % k->parts, own = i / k->parts;
    const int64_t step = x->source.kinds ? x->n.seqs : 1; /* sequences of one job */

    if (!k->g->dbias) {
        const int64_t s = own / x->kv_heads * step;
        do_part(k, (foci_range){ s, s + step }, own % x->kv_heads, part, slots, r);
        return;
    }
    for (int64_t s = 0; s < x->n.seqs; s += step)
        for (int64_t kv = 0; kv < x->kv_heads; kv++)
            do_part(k, (foci_range){ s, s + step }, kv, part, slots, r);
}

/* Tiles of keys that are packed for the sweep in natural order. */
static int64_t packed_tiles(const struct exact *x)
{
    return exact_natural(x) ? x->kv_heads * x->n.kt : 0;
}

static void learned_job(void *arg, int64_t i, int thread)
{
    const struct exact *x = &((const struct exact_back *)arg)->x;

    (void)thread;
    exact_learned_job(x, exact_learned_jobs(x), i);
}

/* Jobs: tiles of keys, rows of txl, keys of score sources, then blocks of queries. */
static void prepare_job(void *arg, int64_t i, int thread)
{
    struct exact_back  *k = arg;
    const struct exact *x = &k->x;
    const int64_t       n_blocks = exact_fold_blocks(x);
    const int64_t       txl_tile = i - packed_tiles(x);
    const int64_t       source = txl_tile - exact_txl_tiles(x);
    const int64_t       at = source - exact_source_tiles(x);
    struct back_scratch scratch = back_scratch_of(x, thread);

    if (txl_tile < 0) {
        exact_pack_tile(x, i / x->n.kt, i % x->n.kt, scratch.tile, scratch.tile2);
        if (scratch.panel)
            back_panel_pack_keys(x, i / x->n.kt, i % x->n.kt, scratch.tile);
    } else if (source < 0)
        exact_txl_pack(x, txl_tile, scratch.tile);
    else if (at < 0)
        exact_source_pack_keys(x, source, &scratch.source);
    else {
        const struct exact_block b = exact_fold_block(x, at / n_blocks, at % n_blocks);
        back_prepare(k, &b, &scratch);
    }
}

static void slots_job(void *arg, int64_t i, int thread)
{
    const struct exact_back *k = arg;
    struct back_scratch      scratch = back_scratch_of(&k->x, thread);

    do_job(k, i, true, &scratch);
}

static int64_t learned_params_jobs(const struct exact_back *k)
{
    return k->g->dparams ? exact_learned_params_jobs(&k->x) : 0;
}

/* Jobs: gradients of the matrices of learned slots, then parts of the keys themselves. */
static void keys_job(void *arg, int64_t i, int thread)
{
    const struct exact_back *k = arg;
    struct back_scratch      scratch = back_scratch_of(&k->x, thread);

    if (i < learned_params_jobs(k))
        exact_learned_params(&k->x, i, k->g->dparams);
    else
        do_job(k, i - learned_params_jobs(k), false, &scratch);
}

static int64_t txl_params_jobs(const struct exact_back *k)
{
    return k->g->dparams ? exact_txl_tiles(&k->x) : 0;
}

/* Jobs: collected keys, rows of txl, then blocks of queries. */
static void finish_job(void *arg, int64_t i, int thread)
{
    struct exact_back  *k = arg;
    const struct exact *x = &k->x;
    const int64_t       n_blocks = exact_fold_blocks(x);
    const int64_t       txl_tile = i - back_store_jobs(k);
    const int64_t       at = txl_tile - txl_params_jobs(k);
    struct back_scratch scratch = back_scratch_of(x, thread);

    if (txl_tile < 0)
        back_store(k, i, &scratch);
    else if (at < 0)
        exact_txl_params_rows(x, &k->txl, txl_tile, k->g->dparams);
    else {
        const struct exact_block b = exact_fold_block(x, at / n_blocks, at % n_blocks);
        back_finish(k, &b, &scratch);
    }
}

static void source_job(void *arg, int64_t h, int thread)
{
    const struct exact_back *k = arg;
    struct back_scratch      scratch = back_scratch_of(&k->x, thread);

    exact_source_back_head(&k->x, h, &k->source, &scratch.source, k->g->dparams);
}

static void dx_job(void *arg, int64_t i, int thread)
{
    const struct exact_back *k = arg;
    struct back_scratch      scratch = back_scratch_of(&k->x, thread);

    exact_source_back_dx(&k->x, i, &k->source, &scratch.source, k->g->dx);
}

static void shaw_job(void *arg, int64_t h, int thread)
{
    struct exact_back  *k = arg;
    struct back_scratch scratch = back_scratch_of(&k->x, thread);

    back_shaw_vectors(k, h, &scratch);
}

/* Recompute weights and sum up gradients, in natural order. */
static void natural_sweep(struct exact_back *k, int64_t jobs, int threads)
{
    const struct exact *x = &k->x;
    const int64_t       prepared = exact_txl_tiles(x) + exact_source_tiles(x);
    const int64_t       blocks = x->heads * exact_fold_blocks(x);
    const struct phase  all[] = {
         { exact_learned_jobs(x), 1, learned_job, k },
         { packed_tiles(x) + prepared + blocks, 4, prepare_job, k },
         { x->stage->n_levels ? jobs : 0, 1, slots_job, k },
         { learned_params_jobs(k) + (x->slots_only ? 0 : jobs), 1, keys_job, k },
    };

    phases_run(x->k, x->exec.shared, threads, all, 4);
}

static void project_job(void *arg, int64_t i, int thread)
{
    (void)thread;
    back_project(arg, i / 2, i % 2);
}

/* Store what all sweeps have summed. */
static void finish_all(struct exact_back *k, int threads)
{
    const struct exact *x = &k->x;
    const int64_t       blocks = x->heads * exact_fold_blocks(x);
    const int64_t       learns = k->g->dparams ? x->heads : 0;
    const struct phase  all[] = {
         { back_store_jobs(k) + txl_params_jobs(k) + blocks, 4, finish_job, k },
         { x->source.kinds ? x->heads : 0, 1, source_job, k },
         { k->g->dx && exact_source_nets(x) ? x->n.qt : 0, 1, dx_job, k },
         { exact_has_shaw(x) ? learns : 0, 1, shaw_job, k },
         { exact_has_project(x) ? 2 * learns : 0, 1, project_job, k },
    };

    phases_run(x->k, x->exec.shared, threads, all, 5);
}

void exact_backward(const struct execution *exec, const struct stage *s,
                    const foci_io *io, const float *saved, const foci_grads *g)
{
    const foci_plan  *plan = exec->plan;
    struct exact_back k = { .g = g, .saved = saved };
    struct arena      a = { .base = io->work };

    exact_geometry(&k.x, plan, s);
    k.x.exec = *exec;
    k.x.io = io;
    k.x.table.by_cols = true;
    if (!k.x.max.seqs) return;
    assert(io->work && (uintptr_t)io->work % 64 == 0);
    assert((saved && g->d_o) || !plan->p.len_q);
    back_carve(&k, &a);
    clear_grads(&k);
    exact_position_prepare(&k.x);
    exact_project_prepare(&k.x, true);
    exact_source_prepare(&k.x);
    exact_source_back_clear(&k.x, &k.source);
    exact_txl_back_clear(&k.x, &k.txl);
    if (k.x.order) order_begin(&k.x, false);

    const struct exact *x = &k.x;
    const int64_t       jobs = exact_natural(x) ? count_jobs(&k) : 0;
    const int threads = exact_threads(x, max64(jobs, x->heads * exact_fold_blocks(x)),
                                      plan->cost.backward_flops);
    natural_sweep(&k, jobs, threads);
    for (int64_t i = 0; x->order && exact_has_shaw(x) && i < x->heads * x->max.qt; i++)
        back_dqt(&k, 0, i);
    if (x->order) order_backward(&k.x, g, &k.shaw);
    finish_all(&k, threads);
    if (g->dparams) back_params(&k);
}
