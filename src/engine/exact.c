/* exact.c -- the exact engine: geometry of an execution, sizes, cost, printing. */
#include "engine/exact_order.h"
#include "engine/exact_pack.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

#include <math.h>
#include <omp.h>
#include <string.h>

int exact_thread(void) { return omp_get_thread_num(); }

int exact_threads(const struct exact *x, int64_t jobs, double flops)
{
    return jobs_threads(x->threads, jobs, flops);
}

/* Whether blocks start at multiples of 64 in position: where tables are consulted, and
 * where distances come in tiles. */
static bool aligned(const struct exact *x)
{
    return !x->support->all || exact_has_txl(x);
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
        .bf16 = k->has_bf16 && (p->dtype != FOCI_F32 || p->flags & FOCI_FAST),
        .dq = (int)mech_width(&s->group->mech),
        .dv = (int)p->dim_v,
        .given = (int)p->dim_qk,
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = stage_own_keys(s) ? s->group->heads : s->group->kv_heads,
        .kv0 = s->group->kv0,
        .max_seqs = plan_max_seqs(plan),
        .threads = plan->ctx->threads,
        .panel = (int)min64(k->panel, MAX_PANEL),
        .drops = p->dropout > 0,
        .together = 1,
        .kept = (float)(1 / (1 - p->dropout)),
        /* What a causal query sees cannot depend on what follows it. */
        .by_length = s->group->mech.def->by_length && !(p->flags & FOCI_CAUSAL),
    };
    x->per_kv = x->heads / x->kv_heads;
    x->own = x->kv_heads / s->group->kv_heads;
    x->bare = stage_learned(s) && !s->support.all && !s->support.n_rows;
    x->collect = s->order.label || exact_projects(x) || x->own > 1;
    x->fold = 1;
    if (!(mech_sources(&s->group->mech) & FOCI_SOURCE_QK)) x->dq = x->given = 0;

    const int depth = x->bf16 ? k->depth : 1;
    x->per = x->bf16 ? 2 : 1;
    x->group = depth > 16 ? depth : 16;
    x->dq_pad = (int)round_up(x->dq, depth);
    x->dv_pad = (int)round_up(x->dv, depth);
    x->ldq = (int)round_up(x->dq, x->group);
    x->ldv = (int)round_up(x->dv, x->group);
    x->ld_given = (int)round_up(x->given, x->group);
    exact_source_geometry(x);
    /* Each weight may serve many values; alone it makes the same sums. */
    if (exact_common(x)) x->panel = MAX_PANEL;

    /* Every sequence may end in a short tile, and start with one where blocks are
     * aligned to positions. */
    const int64_t seqs = p->max_docs ? p->max_docs : p->batch;
    x->max_kt = x->bare       ? 0
                : p->max_docs ? p->len_k / TILE + seqs
                              : seqs * div_up(p->len_k, TILE);
    x->max_qt = p->max_docs ? p->len_q / LANES + seqs : seqs * div_up(p->len_q, LANES);
    if (aligned(x)) x->max_qt += seqs;
    x->max_st = exact_max_slot_tiles(x);
    x->max_kt += x->max_st;

    const size_t el = x->bf16 ? 2 : sizeof(float);
    x->key_size = (size_t)(x->bf16 ? x->dq_pad : x->ldq) * TILE * el;
    x->value_size = (size_t)(x->bf16 ? x->dv_pad : x->ldv) * TILE * el;
}

/* Number the tiles of a sequence: keys, then the slots of each level. */
static void number_tiles(const struct exact *x, struct exact_seq *s, foci_slots *slots,
                         int64_t *slot_t0)
{
    const struct stage *stage = x->stage;
    const foci_mech    *plain = &stage->group->mech;

    s->n_kt = x->bare ? 0 : div_up(s->s.nk, TILE);
    s->n_levels = stage->n_levels;
    s->slots = slots;
    s->slot_t0 = slot_t0;
    for (int i = 0; i < s->n_levels; i++)
        slots[i] = stage->levels[i].slots;
    if (s->n_levels && s->mech != plain) {
        foci_slots own[FOCI_MAX_LEVELS] = { 0 };
        s->mech->def->slots(s->mech, own);
        memcpy(slots, own, (size_t)s->n_levels * sizeof *slots);
    }
    for (int i = 0; i < s->n_levels; i++) {
        slot_t0[i] = s->n_kt;
        s->n_kt += div_up(slots_of(&slots[i], s->s.nk), TILE);
    }
}

/* Cut the sequences into blocks and tiles.  On a null arena only take the room. */
void exact_seqs(struct exact *x, const foci_io *io, struct arena *a)
{
    const int   levels = x->stage->n_levels;
    struct seq *plain = arena_take(a, x->max_seqs, sizeof *plain);
    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    x->seq_of_q = arena_take(a, x->max_qt, sizeof *x->seq_of_q);
    x->seq_of_k = arena_take(a, x->max_kt, sizeof *x->seq_of_k);
    x->slots = arena_take(a, x->max_seqs * levels, sizeof *x->slots);
    x->slot_t0 = arena_take(a, x->max_seqs * levels, sizeof *x->slot_t0);
    exact_live_take(x, a);
    if (!a->base) return;

    int64_t  st = 0;
    uint8_t *kinds = x->kinds;
    x->io = io;
    x->n_seqs = plan_seqs(x->plan, io, plain);
    for (int64_t i = 0; i < x->n_seqs; i++) {
        struct exact_seq *s = &x->seqs[i];

        *s = (struct exact_seq){ .s = plain[i],
                                 .pos0 = plain[i].nk - plain[i].nq,
                                 .qt0 = x->n_qt,
                                 .kt0 = x->n_kt,
                                 .st0 = st };
        exact_live_mech(x, s, i);
        number_tiles(x, s, x->slots + i * levels, x->slot_t0 + i * levels);
        if (levels) st += s->n_kt - s->slot_t0[0];
        kinds = exact_live_make(x, s, kinds);
        if (aligned(x)) s->lead = ((s->pos0 % LANES) + LANES) % LANES;
        s->n_qt = s->s.nq ? div_up(s->lead + s->s.nq, LANES) : 0;
        for (int64_t t = 0; t < s->n_qt; t++)
            x->seq_of_q[x->n_qt++] = (int32_t)i;
        for (int64_t t = 0; t < s->n_kt; t++)
            x->seq_of_k[x->n_kt++] = (int32_t)i;
    }
    x->fold = exact_fold(x);
}

int64_t exact_leads(const struct exact *x)
{
    return x->fold > 1 ? div_up(x->n_seqs, x->fold) * x->seqs[0].n_qt : x->n_qt;
}

struct block exact_lead(const struct exact *x, int64_t head, int64_t i)
{
    if (x->fold == 1) return exact_block(x, head, i);
    const int64_t n = x->seqs[0].n_qt;
    return exact_block(x, head, x->seqs[i / n * x->fold].qt0 + i % n);
}

int64_t exact_with(const struct exact *x, const struct exact_seq *s)
{
    return min64(x->fold, x->n_seqs - (s - x->seqs));
}

struct block exact_follow(const struct block *b, int64_t f)
{
    struct block one = *b;

    one.seq += f;
    one.at += f * b->seq->n_qt;
    return one;
}

struct block exact_block(const struct exact *x, int64_t head, int64_t qt)
{
    const struct exact_seq *s = &x->seqs[x->seq_of_q[qt]];
    const int64_t           i0 = (qt - s->qt0) * LANES - s->lead;

    return (struct block){
        .seq = s,
        .h = x->head0 + head,
        .kv = head / x->per_kv,
        .at = head * x->max_qt + qt,
        .i0 = i0,
        .r0 = (int)max64(-i0, 0),
        .r1 = (int)min64(LANES, s->s.nq - i0),
        .pos = i0 + s->pos0,
    };
}

int64_t exact_saved_at(const struct exact *x, const struct block *b)
{
    return ((b->h - x->head0) * x->p->batch + b->seq->s.b) * x->p->len_q +
           b->seq->s.q0 + b->i0;
}

/* The factor of q.k that all rows of head h share. */
double exact_head_scale(const struct exact *x, int64_t h)
{
    double f = exact_source_scores(x)
                   ? 1
                   : x->score->scale * exact_source_share(x, h - x->head0, OF_QK);
    for (int i = 0; i < x->score->n_factors; i++)
        f *= (double)x->io->params[x->score->factor[i] + h - x->head0];
    return f;
}

/* Rows of floats are read in place when they follow one another; further apart they
 * would fall on the same few lines of the cache. */
static bool in_place(const struct exact *x, const foci_layout *l, int d)
{
    return !x->bf16 && x->p->dtype == FOCI_F32 && l->row == d;
}

bool exact_keys_in_place(const struct exact *x)
{
    return in_place(x, &x->p->k, x->dq) && !exact_maps(x) && !x->stage->n_levels;
}

bool exact_values_in_place(const struct exact *x)
{
    return in_place(x, &x->p->v, x->dv) && !x->stage->n_levels;
}

static const char *piece(const struct exact *x, const char *base, size_t size,
                         const struct exact_seq *s, int64_t kv, int64_t t)
{
    return base + (size_t)(kv * x->max_kt + s->kt0 + t) * size;
}

/* Rows of a tile in the caller's tensor. */
static const char *given(const struct exact *x, const void *base, const foci_layout *l,
                         const struct exact_seq *s, int64_t kv, int64_t t)
{
    return (const char *)((const float *)base + s->s.b * l->batch +
                          (s->s.k0 + t * TILE) * l->row +
                          exact_given_head(x, kv) * l->head);
}

struct operand exact_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t)
{
    if (!x->keys)
        return (struct operand){ given(x, x->io->k, &x->p->k, s, kv, t), x->p->k.row,
                                 1 };
    return (struct operand){ piece(x, x->keys, x->key_size, s, kv, t),
                             x->bf16 ? x->dq_pad / 2 : x->ldq, 1 };
}

struct operand exact_values(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t)
{
    if (!x->values)
        return (struct operand){ given(x, x->io->v, &x->p->v, s, kv, t), x->p->v.row,
                                 1 };
    return (struct operand){ piece(x, x->values, x->value_size, s, kv, t),
                             x->bf16 ? x->dv_pad / 2 : x->ldv, 1 };
}

/* Floats are summed over rows by exchanging the strides; words are packed for it. */
static struct operand turned(struct operand a)
{
    return (struct operand){ a.at, a.col, a.row };
}

struct operand exact_summed(const struct exact *x, const char *at, int d_pad)
{
    return x->k->sum_by_rows ? (struct operand){ at, TILE / 2, 1 }
                             : (struct operand){ at, 1, d_pad };
}

struct operand exact_keys_sum(const struct exact *x, const struct exact_seq *s,
                              int64_t kv, int64_t t)
{
    if (!x->bf16) return turned(exact_keys(x, s, kv, t));
    return exact_summed(x, piece(x, x->keys_sum, x->key_size, s, kv, t), x->dq_pad);
}

struct operand exact_values_sum(const struct exact *x, const struct exact_seq *s,
                                int64_t kv, int64_t t)
{
    if (!x->bf16) return turned(exact_values(x, s, kv, t));
    return exact_summed(x, piece(x, x->values_sum, x->value_size, s, kv, t), x->dv_pad);
}

/*
 * What the plan asks
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct exact x;
    struct arena a = { 0 };

    exact_geometry(&x, plan, s);
    exact_forward_take(&x, &a, NULL);
    if (!(plan->p.flags & FOCI_TRAIN)) return a.used;
    const size_t backward = exact_backward_bytes(plan, s);
    return backward > a.used ? backward : a.used;
}

/* For each row the log2 of its normaliser (relu2: 1/n); after them labels. */
static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    const int64_t norms = s->group->heads * plan->p.batch * plan->p.len_q;
    struct exact  x;

    if (!s->order.label) return norms;
    exact_geometry(&x, plan, s);
    return norms + order_saved_floats(&x);
}

/* Keys of position-tile t that queries of block b see, on full-length sequences. */
static void count_block(const struct exact *x, const struct block *b, foci_cost *c)
{
    struct walk w = exact_walk_keys(x, b);
    int64_t     t, full = 0, part = 0;
    int32_t     mask;
    uint64_t    seen[TILE];

    while (exact_next(&w, &t, &mask)) {
        const int n = exact_keys_in(b->seq, t);
        if (!exact_seen(x, b, t, mask, n, seen)) {
            full++;
            c->pairs += (double)n * (b->r1 - b->r0);
            continue;
        }
        part++;
        for (int j = 0; j < n; j++)
            c->pairs += __builtin_popcountll(seen[j]);
    }
    c->tiles_full += full;
    c->tiles_part += part;
    c->tiles_skipped += b->seq->n_kt - full - part;
}

/* The sum of t + first, no less than 0 and no more than `most`, over t = 0 to n - 1. */
static double sum_between(int64_t n, int64_t first, int64_t most)
{
    const int64_t a = min64(max64(-first, 0), n); /* from here on above 0 */
    const int64_t b = min64(max64(most - first, a), n);
    const double  rising = (double)(b - a);

    return rising * ((double)first + (double)(a + b - 1) / 2) +
           (double)(n - b) * (double)most;
}

static int64_t tiles_below(int64_t n) { return n >= 0 ? n / TILE : -div_up(-n, TILE); }

/* Counts of tiles are doubles until they are added up. */
struct counts {
    double pairs, full, part, skipped;
};

/* Of a causal sequence, all of whose pairs a mechanism sees: block t of queries starts
 * at position 64 t + pos0 and sees what is not behind it. */
static struct counts count_causal(const struct exact_seq *s)
{
    const int64_t nq = s->s.nq, nk = s->s.nk, first = s->pos0 + 1;
    const int64_t late = -tiles_below(first - nk); /* block that sees the last key */
    const double  met = sum_between(s->n_qt, -tiles_below(-first - TILE + 1), s->n_kt);
    struct counts c = { .full = sum_between(s->n_qt, tiles_below(first), nk / TILE) };

    if (nk % TILE) c.full += (double)(s->n_qt - min64(max64(late, 0), s->n_qt));
    c.pairs = sum_between(nq, first, nk);
    c.part = met - c.full;
    c.skipped = (double)s->n_qt * (double)s->n_kt - met;
    return c;
}

static struct counts count_blocks(struct exact *x, const struct exact_seq *s)
{
    foci_cost one = { 0 };

    for (int64_t t = 0; t < s->n_qt; t++) {
        struct block b = exact_block(x, 0, 0);
        b.i0 = t * LANES - s->lead;
        b.r0 = (int)max64(-b.i0, 0);
        b.r1 = (int)min64(LANES, s->s.nq - b.i0);
        b.pos = b.i0 + s->pos0;
        count_block(x, &b, &one);
    }
    return (struct counts){ one.pairs, (double)one.tiles_full, (double)one.tiles_part,
                            (double)one.tiles_skipped };
}

/* More tiles than can be counted are as many as can be. */
static void add_tiles(int64_t *to, double n)
{
    const double sum = (double)*to + n;
    *to = sum < 0x1p62 ? (int64_t)sum : INT64_C(1) << 62;
}

/* To make the rows that meet of those that are given, of one head. */
static double made_flops(const struct exact *x)
{
    const double rows = (double)x->p->len_q + (double)x->p->len_k;

    if (exact_projects(x)) return 2 * rows * x->given * x->dq;
    if (!stage_learned(x->stage)) return 0;
    return 2 * (double)x->stage->levels[0].slots.learned * (double)x->p->len_k *
           (x->dq + x->dv);
}

/* Counted on one sequence of full length without given mask, times batch and heads. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const foci_problem *p = &plan->p;
    struct exact        x;
    struct counts       one;
    foci_problem        bare = *p;

    exact_geometry(&x, plan, s);
    bare.flags &= ~(uint32_t)FOCI_MASK;
    x.p = &bare;
    struct exact_seq seq = { .s = { .nq = p->len_q, .nk = p->len_k },
                             .pos0 = p->len_k - p->len_q,
                             .mech = &s->group->mech };
    foci_slots       slots[FOCI_MAX_LEVELS];
    int64_t          slot_t0[FOCI_MAX_LEVELS];
    int32_t          zero = 0;
    number_tiles(&x, &seq, slots, slot_t0);
    x.seqs = &seq;
    x.seq_of_q = &zero;
    if (!x.support->all) seq.lead = ((seq.pos0 % LANES) + LANES) % LANES;
    seq.n_qt = p->len_q ? div_up(seq.lead + p->len_q, LANES) : 0;

    if (!x.support->all)
        one = count_blocks(&x, &seq);
    else if (p->flags & FOCI_CAUSAL)
        one = count_causal(&seq);
    else
        one = (struct counts){ .pairs = (double)p->len_q * (double)p->len_k,
                               .full = (double)seq.n_qt * (double)seq.n_kt };
    const double times = (double)p->batch * (double)s->group->heads;
    const double el = (double)foci_dtype_bytes(p->dtype);
    const double q_el =
        el * (double)p->batch * (double)s->group->heads * (double)p->len_q;
    const double k_el =
        el * (double)p->batch * (double)s->group->kv_heads * (double)p->len_k;
    const double d = x.dq, dv = x.dv, wide = x.given;
    const double made = made_flops(&x);

    const struct labelled *l = &s->labelled;
    const double           met = one.pairs + l->met;
    const double           rows = (double)p->len_q + (double)p->len_k;
    c->pairs += times * (one.pairs + l->pairs);
    add_tiles(&c->tiles_full, times * (one.full + l->full));
    add_tiles(&c->tiles_part, times * (one.part + l->part));
    add_tiles(&c->tiles_skipped, times * fmax(0, one.skipped - l->full - l->part));
    c->forward_flops += times * (met * 2 * (d + dv) + rows * l->row_flops + made);
    c->backward_flops += times * (met * 2 * (3 * d + 2 * dv) + 3 * made);
    exact_source_cost(&x, one.pairs, c);
    c->forward_bytes += (q_el + k_el) * (wide + dv);
    c->backward_bytes += (q_el + k_el) * 2 * (wide + dv) + q_el * dv;
}

const struct engine engine_exact = {
    .name = "exact",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = exact_forward,
    .backward = exact_backward,
    .advance = exact_advance,
    .cost = cost,
    .describe = exact_describe,
    .decoder = &exact_decoder,
};
