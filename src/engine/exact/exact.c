/* exact.c -- the exact engine: geometry of an execution, and the sizes of its memory. */
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/order/exact_order.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_txl.h"

#include <math.h>
#include <omp.h>
#include <string.h>

int exact_thread(void) { return omp_get_thread_num(); }

int exact_threads(const struct exact *x, int64_t jobs, double flops)
{
    return jobs_threads(x->threads, jobs, flops);
}

bool exact_is_aligned(const struct exact *x)
{
    return !x->support->all || exact_has_txl(x);
}

/* Packed operands are padded to what a product takes at once, rows of floats to whole
 * vectors. */
static void set_widths(struct exact *x)
{
    const int depth = x->bf16 ? x->k->depth : 1;

    x->d.q = (int)mech_width(&x->stage->group->mech);
    x->d.v = (int)x->p->dim_v;
    x->d.in = (int)x->p->dim_qk;
    if (!(mech_sources(&x->stage->group->mech) & FOCI_SOURCE_QK)) x->d.q = x->d.in = 0;
    x->kpack = x->bf16 ? 2 : 1;
    x->granule = depth > 16 ? depth : 16;
    x->d.q_pad = (int)round_up(x->d.q, depth);
    x->d.v_pad = (int)round_up(x->d.v, depth);
    x->d.ldq = (int)round_up(x->d.q, x->granule);
    x->d.ldv = (int)round_up(x->d.v, x->granule);
    x->d.ld_in = (int)round_up(x->d.in, x->granule);

    const size_t el = x->bf16 ? 2 : sizeof(float);
    x->packed.key_bytes = (size_t)(x->bf16 ? x->d.q_pad : x->d.ldq) * TILE * el;
    x->packed.value_bytes = (size_t)(x->bf16 ? x->d.v_pad : x->d.ldv) * TILE * el;
}

static void set_heads(struct exact *x, const struct plan_group *g)
{
    x->heads = g->heads;
    x->head0 = g->head0;
    x->kv_heads = stage_own_keys(x->stage) ? g->heads : g->kv_heads;
    x->kv0 = g->kv0;
    x->per_kv = x->heads / x->kv_heads;
    x->kv_expand = x->kv_heads / g->kv_heads;
}

/* Every sequence may end in a short tile, and start with one where blocks are aligned
 * to positions. */
static void set_limits(struct exact *x)
{
    const foci_problem *p = x->p;
    const int64_t       seqs = p->max_docs ? p->max_docs : p->batch;
    const int64_t       q =
        p->max_docs ? p->len_q / LANES + seqs : seqs * div_up(p->len_q, LANES);
    const int64_t k =
        p->max_docs ? p->len_k / TILE + seqs : seqs * div_up(p->len_k, TILE);

    x->max.seqs = plan_max_seqs(x->plan);
    x->max.qt = q + (exact_is_aligned(x) ? seqs : 0);
    x->max.st = exact_max_slot_tiles(x);
    x->max.kt = (x->slots_only ? 0 : k) + x->max.st;
}

void exact_geometry(struct exact *x, const foci_plan *plan, const struct stage *s)
{
    const foci_problem   *p = &plan->p;
    const struct kernels *k = &plan->ctx->kernels;

    *x = (struct exact){
        .plan = plan,
        .p = p,
        .stage = s,
        .score = &s->score,
        .support = &s->support,
        .k = k,
        .kind = (int)s->group->mech.def->weigh,
        .bf16 = k->has_bf16 && (p->dtype != FOCI_F32 || p->flags & FOCI_FLAG_FAST),
        .slots_only = stage_learned(s) && !s->support.all && !s->support.n_rows,
        .fused_blocks = 1,
        .panel = (int)min64(k->panel, MAX_PANEL),
        .fold = 1,
        /* What a causal query sees cannot depend on what follows it. */
        .table.by_length =
            s->group->mech.def->by_length && !(p->flags & FOCI_FLAG_CAUSAL),
        .dropout = { p->dropout > 0, (float)(1 / (1 - p->dropout)) },
        .threads = plan->ctx->threads,
    };
    set_heads(x, s->group);
    set_widths(x);
    x->grads.collect = s->order.label || exact_has_project(x) || x->kv_expand > 1;
    exact_source_geometry(x);
    /* Weights that serve many sequences gain from long sums, and one sequence alone
     * must give the same sums. */
    if (exact_shares_weights(x)) x->panel = MAX_PANEL;
    set_limits(x);
    assert(x->heads % x->kv_heads == 0 && x->panel % TILE == 0);
}

void exact_number_tiles(const struct exact *x, struct exact_seq *s, foci_slots *slots,
                        int64_t *slot_t0)
{
    const struct stage *stage = x->stage;
    const foci_mech    *plain = &stage->group->mech;

    s->n_kt = x->slots_only ? 0 : div_up(s->s.nk, TILE);
    s->n_levels = stage->n_levels;
    s->slots = slots;
    s->slot_t0 = slot_t0;
    for (int i = 0; i < s->n_levels; i++)
        slots[i] = stage->levels[i].slots;
    if (s->n_levels && s->mech != plain) {
        foci_slots slot_list[FOCI_MAX_LEVELS] = { 0 };
        s->mech->def->slots(s->mech, slot_list);
        memcpy(slots, slot_list, (size_t)s->n_levels * sizeof *slots);
    }
    for (int i = 0; i < s->n_levels; i++) {
        slot_t0[i] = s->n_kt;
        s->n_kt += div_up(slots_of(&slots[i], s->s.nk), TILE);
    }
}

/* On a null arena only the bytes are counted. */
void exact_cut_seqs(struct exact *x, const foci_io *io, struct arena *a)
{
    const int   levels = x->stage->n_levels;
    struct seq *plain = arena_alloc(a, x->max.seqs, sizeof *plain);
    x->seqs = arena_alloc(a, x->max.seqs, sizeof *x->seqs);
    x->seq_of_q = arena_alloc(a, x->max.qt, sizeof *x->seq_of_q);
    x->seq_of_k = arena_alloc(a, x->max.kt, sizeof *x->seq_of_k);
    x->slot.list = arena_alloc(a, x->max.seqs * levels, sizeof *x->slot.list);
    x->slot.t0 = arena_alloc(a, x->max.seqs * levels, sizeof *x->slot.t0);
    exact_table_carve(x, a);
    if (!a->base) return;

    int64_t  st = 0;
    uint8_t *kinds = x->table.kinds;
    x->io = io;
    x->n.seqs = plan_seqs(x->plan, io, plain);
    for (int64_t i = 0; i < x->n.seqs; i++) {
        struct exact_seq *s = &x->seqs[i];

        *s = (struct exact_seq){ .s = plain[i],
                                 .pos0 = plain[i].nk - plain[i].nq,
                                 .qt0 = x->n.qt,
                                 .kt0 = x->n.kt,
                                 .st0 = st };
        exact_table_mech(x, s, i);
        exact_number_tiles(x, s, x->slot.list + i * levels, x->slot.t0 + i * levels);
        if (levels) st += s->n_kt - s->slot_t0[0];
        kinds = exact_table_make(x, s, kinds);
        if (exact_is_aligned(x)) s->lead = ((s->pos0 % LANES) + LANES) % LANES;
        s->n_qt = s->s.nq ? div_up(s->lead + s->s.nq, LANES) : 0;
        for (int64_t t = 0; t < s->n_qt; t++)
            x->seq_of_q[x->n.qt++] = (int32_t)i;
        for (int64_t t = 0; t < s->n_kt; t++)
            x->seq_of_k[x->n.kt++] = (int32_t)i;
    }
    assert(x->n.seqs <= x->max.seqs && x->n.qt <= x->max.qt && x->n.kt <= x->max.kt);
    x->fold = exact_find_fold(x);
}

int64_t exact_fold_blocks(const struct exact *x)
{
    return x->fold > 1 ? div_up(x->n.seqs, x->fold) * x->seqs[0].n_qt : x->n.qt;
}

struct exact_block exact_fold_block(const struct exact *x, int64_t head, int64_t i)
{
    if (x->fold == 1) return exact_block(x, head, i);
    const int64_t n = x->seqs[0].n_qt;
    return exact_block(x, head, x->seqs[i / n * x->fold].qt0 + i % n);
}

int64_t exact_fold_size(const struct exact *x, const struct exact_seq *s)
{
    return min64(x->fold, x->n.seqs - (s - x->seqs));
}

struct exact_block exact_fold_member(const struct exact_block *b, int64_t f)
{
    struct exact_block one = *b;

    one.seq += f;
    one.at += f * b->seq->n_qt;
    return one;
}

struct exact_block exact_block(const struct exact *x, int64_t head, int64_t qt)
{
    const struct exact_seq *s = &x->seqs[x->seq_of_q[qt]];
    const int64_t           i0 = (qt - s->qt0) * LANES - s->lead;

    return (struct exact_block){
        .seq = s,
        .h = x->head0 + head,
        .kv = head / x->per_kv,
        .at = head * x->max.qt + qt,
        .i0 = i0,
        .r0 = (int)max64(-i0, 0),
        .r1 = (int)min64(LANES, s->s.nq - i0),
        .pos = i0 + s->pos0,
    };
}

int64_t exact_saved_at(const struct exact *x, const struct exact_block *b)
{
    return ((b->h - x->head0) * x->p->batch + b->seq->s.b) * x->p->len_q +
           b->seq->s.q0 + b->i0;
}

double exact_head_scale(const struct exact *x, int64_t h)
{
    double f = exact_source_scores(x)
                   ? 1
                   : x->score->scale * exact_source_weight(x, h - x->head0, SOURCE_QK);
    for (int i = 0; i < x->score->n_factors; i++)
        f *= (double)x->io->params[x->score->factor[i] + h - x->head0];
    return f;
}

/*
 * Sizes for the plan
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct exact x;
    struct arena a = { 0 };

    exact_geometry(&x, plan, s);
    exact_forward_carve(&x, &a, NULL);
    if (!(plan->p.flags & FOCI_FLAG_TRAIN)) return a.used;
    const size_t backward = exact_backward_bytes(plan, s);
    return backward > a.used ? backward : a.used;
}

/* For each row the log2 of its normaliser (of relu2 1/n), then labels. */
static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    const int64_t norms = s->group->heads * plan->p.batch * plan->p.len_q;
    struct exact  x;

    if (!s->order.label) return norms;
    exact_geometry(&x, plan, s);
    return norms + order_saved_floats(&x);
}

const struct engine engine_exact = {
    .name = "exact",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = exact_forward,
    .backward = exact_backward,
    .advance = exact_advance,
    .cost = exact_cost,
    .describe = exact_describe,
    .decoder = &exact_decoder,
};
