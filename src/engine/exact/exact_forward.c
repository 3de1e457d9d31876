/* exact_forward.c -- exact attention forward: memory, jobs, and their order. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_forward.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_order.h"
#include "engine/shared/padding.h"

enum { OWN_TILES = 8 }; /* tiles of a head that one thread packs and attends to */

static struct forward_scratch forward_scratch_carve(const struct exact *x,
                                                    struct arena       *a)
{
    const int64_t          ld = max64(x->d.ldq, x->d.ldv);
    struct forward_scratch r;

    r.tile = arena_alloc(a, TILE * ld, sizeof(float));
    r.tile2 = arena_alloc(a, TILE * ld, sizeof(float));
    r.q = arena_alloc(a, LANES * (int64_t)x->d.ldq, sizeof(float));
    r.s = arena_alloc(a, (int64_t)x->panel * LANES, sizeof(float));
    r.w = x->bf16 ? arena_alloc(a, (int64_t)x->panel / 2 * LANES, sizeof(uint32_t))
                  : NULL;
    r.ot = arena_alloc(a, exact_fold_max(x) * LANES * x->d.ldv, sizeof(float));
    r.bias =
        exact_has_bias(x) ? arena_alloc(a, (int64_t)TILE * LANES, sizeof(float)) : NULL;
    r.seen = arena_alloc(a, x->panel, sizeof(uint64_t));
    r.fused = exact_fused_scratch(x, a);
    r.key = x->fused ? arena_alloc(a, 1, x->packed.key_bytes) : NULL;
    r.value = x->fused ? arena_alloc(a, 1, x->packed.value_bytes) : NULL;
    r.shaw = exact_shaw_scratch(x, a);
    r.txl = exact_txl_scratch(x, a);
    r.source = exact_source_scratch(x, false, a);
    return r;
}

void exact_forward_carve(struct exact *x, struct arena *a, float *saved)
{
    const int64_t tiles = exact_natural(x) ? x->kv_heads * x->max.kt : 0;
    struct arena  one = { 0 };

    exact_fused_geometry(x);
    exact_cut_seqs(x, x->io, a);
    if (x->stage->order.label) order_carve(x, a, saved, false);
    if (!exact_keys_in_place(x))
        x->packed.keys = arena_alloc(a, tiles, x->packed.key_bytes);
    if (x->bf16)
        x->packed.values_sum = arena_alloc(a, tiles, x->packed.value_bytes);
    else if (!exact_values_in_place(x))
        x->packed.values = arena_alloc(a, tiles, x->packed.value_bytes);
    x->packed.norms = arena_alloc(a, tiles, TILE * sizeof *x->packed.norms);
    x->packed.max_norm = arena_alloc(a, tiles, sizeof *x->packed.max_norm);
    x->packed.nonfinite = arena_alloc(a, tiles, 1);
    exact_position_carve(x, a);
    exact_txl_carve(x, a, false);
    exact_project_carve(x, a, false);
    exact_learned_carve(x, a);
    exact_source_carve(x, a, false);
    forward_scratch_carve(x, &one);
    x->scratch.bytes = one.used;
    x->scratch.base = arena_alloc(a, x->threads, one.used);
}

/* Rows outside all sequences have seen nothing. */
static void clear_lse(const struct exact *x)
{
    const foci_problem *p = x->p;

    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = x->head0; h < x->head0 + x->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++)
                x->io->lse[(b * p->heads + h) * p->len_q + i] = -INFINITY;
}

/* One key/value head of a sequence: one thread packs its tiles and attends to its
 * blocks, which then are in its cache. */
static void head_sweep(const struct exact *x, int64_t kv, const struct exact_seq *s,
                       struct forward_scratch *scratch, float *saved)
{
    exact_learned_head(x, kv, s);
    for (int64_t t = 0; t < s->n_kt; t++)
        exact_pack_tile(x, kv, s->kt0 + t, scratch->tile, scratch->tile2);
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
        for (int64_t t = 0; t < s->n_qt; t++) {
            const struct exact_block b = exact_block(x, h, s->qt0 + t);
            forward_blocks(x, &b, 1, scratch, saved);
        }
}

/* Whether a job is one head of a sequence.  With few tiles to a head, waiting for all
 * of them to be packed and fetching them from another core costs more than an uneven
 * distribution.  Rows of txl and keys of score sources are shared by all, so all wait
 * for them. */
static bool by_heads(const struct exact *x, int threads)
{
    const int64_t heads = x->kv_heads * x->n.seqs;

    if (exact_txl_tiles(x) || exact_source_tiles(x) || x->fold > 1) return false;
    for (int64_t s = 0; s < x->n.seqs; s++)
        if (x->seqs[s].n_kt > OWN_TILES) return false;
    /* At most an eighth more time than an even distribution. */
    const int64_t rounds = div_up(heads, threads);
    return heads >= x->heads * x->n.qt || rounds * threads * 8 <= heads * 9;
}

/* The argument of jobs. */
struct forward_job {
    const struct exact *x;
    float              *saved;
};

static struct forward_scratch forward_scratch_of(const struct exact *x, int thread)
{
    struct arena mine = { .base = x->scratch.base + (size_t)thread * x->scratch.bytes };
    return forward_scratch_carve(x, &mine);
}

static void head_job(void *arg, int64_t i, int thread)
{
    const struct forward_job *w = arg;
    const struct exact       *x = w->x;
    struct forward_scratch    scratch = forward_scratch_of(x, thread);

    head_sweep(x, i / x->n.seqs, &x->seqs[i % x->n.seqs], &scratch, w->saved);
}

static void learned_job(void *arg, int64_t i, int thread)
{
    const struct forward_job *w = arg;

    (void)thread;
    exact_learned_job(w->x, exact_learned_jobs(w->x), i);
}

/* Jobs: rows of txl, keys of score sources, then tiles of keys. */
static void pack_job(void *arg, int64_t i, int thread)
{
    const struct forward_job *w = arg;
    const struct exact       *x = w->x;
    struct forward_scratch    scratch = forward_scratch_of(x, thread);
    const int64_t             source = i - exact_txl_tiles(x);
    const int64_t             tile = source - exact_source_tiles(x);

    if (source < 0)
        exact_txl_pack(x, i, scratch.tile);
    else if (tile < 0)
        exact_source_pack_keys(x, source, &scratch.source);
    else
        exact_pack_tile(x, tile / x->n.kt, tile % x->n.kt, scratch.tile, scratch.tile2);
}

/* The last blocks of a causal sequence take longest: they go first. */
static void block_job(void *arg, int64_t i, int thread)
{
    const struct forward_job *w = arg;
    const struct exact       *x = w->x;
    const int64_t blocks = exact_fold_blocks(x), jobs = div_up(blocks, x->fused_blocks);
    const int64_t end = blocks - i % jobs * x->fused_blocks;
    const int     n = (int)min64(x->fused_blocks, end);
    struct forward_scratch scratch = forward_scratch_of(x, thread);
    struct exact_block     b[FUSED_BLOCKS];

    for (int k = 0; k < n; k++)
        b[k] = exact_fold_block(x, i / jobs, end - n + k);
    forward_blocks(x, b, n, &scratch, w->saved);
}

static void finish_job(void *arg, int64_t i, int thread)
{
    const struct forward_job *w = arg;
    const struct exact       *x = w->x;
    const struct exact_block  b = exact_block(x, i / x->n.qt, i % x->n.qt);
    struct forward_scratch    scratch = forward_scratch_of(x, thread);

    forward_finish(x, &b, &scratch, w->saved);
}

/* Pack tiles, then attend to blocks, in natural order. */
static void natural_sweep(const struct exact *x, int threads, float *saved)
{
    struct forward_job w = { x, saved };
    const int64_t      prepared = exact_txl_tiles(x) + exact_source_tiles(x);
    const struct phase by_head = { x->kv_heads * x->n.seqs, 1, head_job, &w };
    const struct phase all[] = {
        { exact_learned_jobs(x), 1, learned_job, &w },
        { prepared + x->kv_heads * x->n.kt, 4, pack_job, &w },
        { x->heads * div_up(exact_fold_blocks(x), x->fused_blocks), 1, block_job, &w },
    };

    if (by_heads(x, threads))
        phases_run(x->k, x->exec.shared, threads, &by_head, 1);
    else
        phases_run(x->k, x->exec.shared, threads, all, 3);
}

static void finish_blocks(const struct exact *x, int threads, float *saved)
{
    struct forward_job w = { x, saved };

    phases_run(x->k, x->exec.shared, threads,
               &(struct phase){ x->heads * x->n.qt, 4, finish_job, &w }, 1);
}

void exact_forward(const struct execution *exec, const struct stage *s,
                   const foci_io *io, float *saved)
{
    const foci_plan *plan = exec->plan;
    struct exact     x;
    struct arena     a = { .base = io->work };

    exact_geometry(&x, plan, s);
    x.exec = *exec;
    x.io = io;
    if (!x.max.seqs) return;
    assert(io->work && (uintptr_t)io->work % 64 == 0);
    assert(io->o || !plan->p.len_q);
    exact_forward_carve(&x, &a, saved);
    padding_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.d.v, true, false);
    if (io->lse) clear_lse(&x);
    exact_position_prepare(&x);
    exact_project_prepare(&x, false);
    exact_source_prepare(&x);

    const int64_t tiles = x.kv_heads * x.n.kt, blocks = x.heads * x.n.qt;
    const int     threads =
        exact_threads(&x, max64(tiles, blocks), plan->cost.forward_flops);
    if (x.order) order_begin(&x, true);
    if (exact_natural(&x)) natural_sweep(&x, threads, saved);
    if (!x.order) return;
    order_forward(&x, saved);
    if (!s->order.topk) finish_blocks(&x, threads, saved);
}
