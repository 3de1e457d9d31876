/* exact_cost.c -- tiles, pairs, operations and bytes of a stage, counted when it is
 * planned. */
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"

#include <math.h>

/* Count the pairs of block b with all keys, of a sequence of full length. */
static void count_block(const struct exact *x, const struct exact_block *b, foci_cost *c)
{
    struct exact_walk w = exact_walk_keys(x, b);
    int64_t           t, full = 0, part = 0;
    int32_t           mask;
    uint64_t          seen[TILE];

    while (exact_next(&w, &t, &mask)) {
        const int n = exact_keys_in(b->seq, t);
        if (!exact_tile_mask(x, b, t, mask, n, seen)) {
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

/* The sum of t + first over t = 0 to n - 1, each term clamped to 0 and `most`. */
static double sum_between(int64_t n, int64_t first, int64_t most)
{
    const int64_t a = min64(max64(-first, 0), n); /* terms from here on are positive */
    const int64_t b = min64(max64(most - first, a), n);
    const double  rising = (double)(b - a);

    return rising * ((double)first + (double)(a + b - 1) / 2) +
           (double)(n - b) * (double)most;
}

static int64_t tiles_below(int64_t n) { return n >= 0 ? n / TILE : -div_up(-n, TILE); }

/* Counts are doubles until they are added up. */
struct tile_counts {
    double pairs, full, part, skipped;
};

/* Of a causal sequence without a mask: block t of queries starts at position 64 t +
 * pos0. */
static struct tile_counts count_causal(const struct exact_seq *s)
{
    const int64_t nq = s->s.nq, nk = s->s.nk, first = s->pos0 + 1;
    const int64_t late =
        -tiles_below(first - nk); /* first block that sees the last key */
    const double met = sum_between(s->n_qt, -tiles_below(-first - TILE + 1), s->n_kt);
    struct tile_counts c = { .full =
                                 sum_between(s->n_qt, tiles_below(first), nk / TILE) };

    if (nk % TILE) c.full += (double)(s->n_qt - min64(max64(late, 0), s->n_qt));
    c.pairs = sum_between(nq, first, nk);
    c.part = met - c.full;
    c.skipped = (double)s->n_qt * (double)s->n_kt - met;
    return c;
}

static struct tile_counts count_blocks(struct exact *x, const struct exact_seq *s)
{
    foci_cost one = { 0 };

    for (int64_t t = 0; t < s->n_qt; t++) {
        struct exact_block b = exact_block(x, 0, 0);
        b.i0 = t * LANES - s->lead;
        b.r0 = (int)max64(-b.i0, 0);
        b.r1 = (int)min64(LANES, s->s.nq - b.i0);
        b.pos = b.i0 + s->pos0;
        count_block(x, &b, &one);
    }
    return (struct tile_counts){ one.pairs, (double)one.tiles_full,
                                 (double)one.tiles_part, (double)one.tiles_skipped };
}

/* Counts that overflow are clamped. */
static void add_tiles(int64_t *to, double n)
{
    const double sum = (double)*to + n;
    *to = sum < 0x1p62 ? (int64_t)sum : INT64_C(1) << 62;
}

/* Operations that make the rows of one head that meet: projections, learned slots. */
static double prepare_flops(const struct exact *x)
{
    const double rows = (double)x->p->len_q + (double)x->p->len_k;

    if (exact_has_project(x)) return 2 * rows * x->d.in * x->d.q;
    if (!stage_learned(x->stage)) return 0;
    return 2 * (double)x->stage->levels[0].slots.learned * (double)x->p->len_k *
           (x->d.q + x->d.v);
}

/* Counted on one sequence of full length without the caller's mask, times batch and
 * heads. */
void exact_cost(const foci_plan *plan, const struct stage *s, foci_cost *c)
{
    const foci_problem *p = &plan->p;
    struct exact        x;
    struct tile_counts  one;
    foci_problem        bare = *p;

    exact_geometry(&x, plan, s);
    bare.flags &= ~(uint32_t)FOCI_FLAG_MASK;
    x.p = &bare;
    struct exact_seq seq = { .s = { .nq = p->len_q, .nk = p->len_k },
                             .pos0 = p->len_k - p->len_q,
                             .mech = &s->group->mech };
    foci_slots       slots[FOCI_MAX_LEVELS];
    int64_t          slot_t0[FOCI_MAX_LEVELS];
    int32_t          zero = 0;
    exact_number_tiles(&x, &seq, slots, slot_t0);
    x.seqs = &seq;
    x.seq_of_q = &zero;
    if (!x.support->all) seq.lead = ((seq.pos0 % LANES) + LANES) % LANES;
    seq.n_qt = p->len_q ? div_up(seq.lead + p->len_q, LANES) : 0;

    if (!x.support->all)
        one = count_blocks(&x, &seq);
    else if (p->flags & FOCI_FLAG_CAUSAL)
        one = count_causal(&seq);
    else
        one = (struct tile_counts){ .pairs = (double)p->len_q * (double)p->len_k,
                                    .full = (double)seq.n_qt * (double)seq.n_kt };
    const double times = (double)p->batch * (double)s->group->heads;
    const double el = (double)foci_dtype_bytes(p->dtype);
    const double q_el =
        el * (double)p->batch * (double)s->group->heads * (double)p->len_q;
    const double k_el =
        el * (double)p->batch * (double)s->group->kv_heads * (double)p->len_k;
    const double d = x.d.q, dv = x.d.v, wide = x.d.in;
    const double prepare = prepare_flops(&x);

    const struct labelled *l = &s->labelled;
    const double           met = one.pairs + l->met;
    const double           rows = (double)p->len_q + (double)p->len_k;
    c->pairs += times * (one.pairs + l->pairs);
    add_tiles(&c->tiles_full, times * (one.full + l->full));
    add_tiles(&c->tiles_part, times * (one.part + l->part));
    add_tiles(&c->tiles_skipped, times * fmax(0, one.skipped - l->full - l->part));
    c->forward_flops += times * (met * 2 * (d + dv) + rows * l->row_flops + prepare);
    c->backward_flops += times * (met * 2 * (3 * d + 2 * dv) + 3 * prepare);
    exact_source_cost(&x, one.pairs, c);
    c->forward_bytes += (q_el + k_el) * (wide + dv);
    c->backward_bytes += (q_el + k_el) * 2 * (wide + dv) + q_el * dv;
}
