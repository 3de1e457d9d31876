/* exact_back_memory.c -- the memory of the backward pass, and into how many parts its
 * key tiles are cut. */
#include "engine/exact/exact_back.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/slots/exact_slots.h"

enum { MIN_RUN = 2 };

int64_t back_tiles_of_run(const struct exact *x)
{
    const int64_t tiles =
        x->p->batch * x->kv_heads * div_up(x->p->len_k, TILE) / PIECES;

    if (back_has_panels(x)) return max64(1, min64(PANEL_TILES, tiles));
    return exact_has_txl(x) && !x->source.kinds ? max64(MIN_RUN, min64(MAX_RUN, tiles))
                                                : 1;
}

static struct back_scratch back_scratch_carve(const struct exact *x, struct arena *a)
{
    const int64_t       ld = max64(x->d.ldq, x->d.ldv), pairs = (int64_t)TILE * LANES;
    const int64_t       run = back_tiles_of_run(x);
    struct back_scratch r;

    r.tile = arena_alloc(a, TILE * ld, sizeof(float));
    r.tile2 = arena_alloc(a, TILE * ld, sizeof(float));
    r.tile3 = arena_alloc(a, x->stage->order.shared_qk ? TILE * (int64_t)x->d.ldq : 0,
                          sizeof(float));
    r.s = arena_alloc(a, pairs, sizeof(float));
    r.dp = arena_alloc(a, pairs, sizeof(float));
    r.scores = back_wants_sums(x) ? arena_alloc(a, pairs, sizeof(float)) : NULL;
    r.w16 = x->bf16 ? arena_alloc(a, pairs, sizeof(uint16_t)) : NULL;
    r.ds16 = x->bf16 ? arena_alloc(a, pairs, sizeof(uint16_t)) : NULL;
    r.ds_pairs = x->bf16 ? arena_alloc(a, STACK * pairs / 2, sizeof(uint32_t)) : NULL;
    r.pending = 0;
    r.dk = arena_alloc(a, run * TILE * (int64_t)x->d.ldq, sizeof(float));
    r.dk_head = arena_alloc(a, run * TILE * (int64_t)x->d.ldq, sizeof(float));
    r.dv = arena_alloc(a, exact_fold_max(x) * run * TILE * x->d.ldv, sizeof(float));
    r.sum_k = arena_alloc(a, x->kv_expand > 1 ? TILE * max64(x->d.ldq, x->d.ld_in) : 0,
                          sizeof(float));
    r.sum_v =
        arena_alloc(a, x->kv_expand > 1 ? TILE * (int64_t)x->d.ldv : 0, sizeof(float));
    r.bias = exact_has_bias(x) ? arena_alloc(a, pairs, sizeof(float)) : NULL;
    r.seen = arena_alloc(a, TILE, sizeof(uint64_t));
    r.stop = arena_alloc(a, TILE, sizeof(uint64_t));
    r.dropout_mask = x->dropout.on ? arena_alloc(a, TILE, sizeof(uint64_t)) : NULL;
    back_panel_carve(x, run, a, &r);
    r.txl = exact_txl_back_scratch(x, run, a);
    r.source = exact_source_scratch(x, true, a);
    return r;
}

static void carve_collected(struct exact *x, struct arena *a)
{
    const int64_t rows = x->kv_heads * x->p->batch * x->p->len_k;

    x->grads.dk_slots = arena_alloc(a, x->kv_heads * x->max.st * TILE,
                                    (size_t)x->d.ldq * sizeof(float));
    x->grads.dv_slots = arena_alloc(a, x->kv_heads * x->max.st * TILE,
                                    (size_t)x->d.ldv * sizeof(float));
    if (!x->grads.collect) return;
    x->grads.dk = arena_alloc(a, rows, (size_t)x->d.ldq * sizeof(float));
    x->grads.dv = arena_alloc(a, rows, (size_t)x->d.ldv * sizeof(float));
}

/* Heads and sequences may share the gradient of the caller's bias, so its jobs are
 * parts of the key tiles alone.  Sequences share gradients of score sources. */
static int64_t count_parts(const struct exact *x)
{
    const int64_t seqs = x->source.kinds ? 1 : x->p->batch;
    const int64_t jobs = max64(1, seqs * x->kv_heads);
    const int64_t parts =
        x->p->flags & FOCI_FLAG_BIAS ? max64(PIECES / jobs, PIECES / 2) : PIECES / jobs;

    const int64_t tiles =
        x->slots_only ? x->max.st : div_up(x->p->len_k, TILE * back_tiles_of_run(x));
    return max64(1, min64(parts, tiles));
}

/* Packed keys.  Without a sweep in natural order nothing packed is kept. */
static void carve_keys(struct exact *x, struct arena *a)
{
    const int64_t tiles = exact_natural(x) ? x->kv_heads * x->max.kt : 0;

    if (!exact_keys_in_place(x))
        x->packed.keys = arena_alloc(a, tiles, x->packed.key_bytes);
    if (!exact_values_in_place(x))
        x->packed.values = arena_alloc(a, tiles, x->packed.value_bytes);
    x->packed.keys_sum = x->bf16 ? arena_alloc(a, tiles, x->packed.key_bytes) : NULL;
    x->packed.norms = arena_alloc(a, tiles, TILE * sizeof *x->packed.norms);
    x->packed.max_norm = arena_alloc(a, tiles, sizeof *x->packed.max_norm);
    x->packed.nonfinite = arena_alloc(a, tiles, 1);
}

/* Packed queries and gradients of outputs, and the parts of dq. */
static void carve_blocks(struct exact_back *k, struct arena *a)
{
    const struct exact *x = &k->x;
    const int64_t       blocks = x->heads * x->max.qt;
    const int64_t       packed = exact_natural(x) ? blocks : x->threads;
    const size_t        el = x->bf16 ? 2 : sizeof(float);

    k->q_size = (size_t)x->d.ldq * LANES * el;
    k->g_size = (size_t)x->d.ldv * LANES * el;
    k->q_cols = arena_alloc(a, packed, k->q_size);
    k->q_rows = arena_alloc(a, packed, k->q_size);
    k->g_cols = arena_alloc(a, packed, k->g_size);
    k->g_rows = arena_alloc(a, packed, k->g_size);
    k->rows = arena_alloc(a, blocks, sizeof *k->rows);

    k->parts = exact_natural(x) ? count_parts(x) : 1;
    k->dqt =
        arena_alloc(a, k->parts * packed, (size_t)x->d.ldq * LANES * sizeof(float));
    k->begun = arena_alloc(a, k->parts * blocks, 1);
    k->sums =
        back_wants_sums(x) ? arena_alloc(a, k->parts * blocks, sizeof *k->sums) : NULL;
}

void back_carve(struct exact_back *k, struct arena *a)
{
    struct exact *x = &k->x;
    struct arena  one = { 0 };

    exact_cut_seqs(x, x->io, a);
    if (x->stage->order.label) order_carve(x, a, (float *)k->saved, true);
    carve_keys(x, a);
    carve_blocks(k, a);
    carve_collected(x, a);
    exact_position_carve(x, a);
    exact_position_back_carve(x, k->parts, a);
    exact_txl_carve(x, a, true);
    exact_project_carve(x, a, true);
    exact_learned_carve(x, a);
    exact_txl_back_carve(x, k->parts, &k->txl, a);
    exact_shaw_back_carve(x, k->parts, &k->shaw, a);
    exact_source_carve(x, a, true);
    exact_source_back_carve(x, k->parts, &k->source, a);

    back_scratch_carve(x, &one);
    x->scratch.bytes = one.used;
    x->scratch.base = arena_alloc(a, x->threads, one.used);
}

size_t exact_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct exact_back k = { 0 };
    struct arena      a = { 0 };

    exact_geometry(&k.x, plan, s);
    back_carve(&k, &a);
    return a.used;
}

struct back_scratch back_scratch_of(const struct exact *x, int thread)
{
    struct arena mine = { .base = x->scratch.base + (size_t)thread * x->scratch.bytes };
    return back_scratch_carve(x, &mine);
}
