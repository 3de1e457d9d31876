/* linear_forward_segments.c -- sequences cut into segments, for threads that would
 * otherwise have nothing to do, and where outputs need sums over later keys.
 *
 * Three phases: the sums of each segment; in their place the sums of all segments
 * before it (of the whole sequence where nothing is causal); the rows of each segment.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/linear/linear_forward.h"

/* s = lam^64 s + sum over keys of lam^key g v: the update of a scan from the last chunk
 * to the first. */
static void update_reverse(const struct linear *x, const struct feature_chunk *c,
                           struct linear_forward_scratch *r, struct linear_sums s)
{
    _Alignas(64) float   decay[CHUNK];
    struct feature_chunk full = *c;

    full.n = CHUNK;
    for (int j = 0; j < CHUNK; j++)
        decay[j] = j < c->n ? x->decay[c->h].power[j] : 0;
    linear_decay_values(x, decay, r->k.v, r->k.decayed);
    memset(r->k.sum, 0, (size_t)x->m_full * sizeof *r->k.sum);
    x->k->row_sums(r->k.sum, r->k.t.f, x->m, decay);
    linear_sums_update(x, &full, &r->k, s);
}

/* Where the sums of segment i of head h are among those of a pass. */
static int64_t sums_number(const struct linear *x, int64_t h, int64_t i)
{
    assert(i < x->n_segs);
    return h * x->max_segs + i;
}

void linear_forward_sum_segment(const struct linear_forward_pass *p, int64_t h,
                                int64_t i, struct linear_forward_scratch *r)
{
    const struct linear     *x = p->x;
    const struct segment     g = linear_segment(x, i);
    const struct linear_sums s = linear_sums_at(x, p->before, sums_number(x, h, i));

    linear_sums_clear(x, s);
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);
        const struct feature_chunk next = linear_chunk(x, g.s, h, t + 1);

        if (linear_fused_chunk(x, &c, LINEAR_UPDATE, s, t + 1 < g.end ? &next : NULL,
                               NULL, r->kernel))
            continue;
        linear_load_keys(x, &c, false, s, &r->k);
        linear_sums_update(x, &c, &r->k, s);
    }
    if (!p->bidirectional) return;
    const struct linear_sums after = linear_sums_at(x, p->after, sums_number(x, h, i));
    linear_sums_clear(x, after);
    for (int64_t t = g.end; t-- > g.begin;) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);
        linear_load_keys(x, &c, false, after, &r->k);
        update_reverse(x, &c, r, after);
    }
}

/* The decay over a whole segment. */
static float segment_decay(const struct linear *x, int64_t h, const struct segment *g)
{
    if (!x->l->decays) return 1;
    return (float)pow(x->decay[h].lam, (double)((g->end - g->begin) * CHUNK));
}

/* Exchange: segment i gets r->s, the sums of all segments before it (or, in the reverse
 * scan, after it), and its own sums are added to r->s. */
static void accumulate(const struct linear *x, struct linear_sums all, int64_t h,
                       int64_t i, struct linear_forward_scratch *r)
{
    const struct segment     g = linear_segment(x, i);
    const struct linear_sums s = linear_sums_at(x, all, sums_number(x, h, i));

    linear_sums_copy(x, r->next, r->s);
    linear_sums_add(x, r->next, segment_decay(x, h, &g), s);
    linear_sums_copy(x, s, r->s);
    linear_sums_copy(x, r->s, r->next);
}

/* Without causality or decay the first segment gets the sums of the whole sequence. */
void linear_forward_join_segments(const struct linear_forward_pass *p, int64_t h,
                                  int64_t seq, struct linear_forward_scratch *r)
{
    const struct linear *x = p->x;
    const int64_t        i0 = x->seqs[seq].seg0, n = x->seqs[seq].n_segs;

    if (!x->causal && !p->bidirectional) {
        for (int64_t i = 1; i < n; i++)
            linear_sums_add(x, linear_sums_at(x, p->before, sums_number(x, h, i0)), 1,
                            linear_sums_at(x, p->before, sums_number(x, h, i0 + i)));
        return;
    }
    linear_sums_clear(x, r->s);
    for (int64_t i = 0; i < n; i++)
        accumulate(x, p->before, h, i0 + i, r);
    if (!p->bidirectional) return;
    linear_sums_clear(x, r->s);
    for (int64_t i = n; i-- > 0;)
        accumulate(x, p->after, h, i0 + i, r);
}

/* Rows of a segment from the sums of the whole sequence. */
static void read_segment(const struct linear_forward_pass *p, int64_t h, int64_t i,
                         struct linear_forward_scratch *r)
{
    const struct linear     *x = p->x;
    const struct segment     g = linear_segment(x, i);
    const struct linear_sums s =
        linear_sums_at(x, p->before, sums_number(x, h, x->seqs[g.s].seg0));

    r->sums_at.f = s.rows;
    linear_operand_at_pack(x, &r->sums_at, x->m_pad);
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);
        const struct feature_chunk next = linear_chunk(x, g.s, h, t + 1);

        if (c.r0 >= c.r1) continue;
        if (linear_fused_chunk(x, &c, LINEAR_OUTPUTS, s, t + 1 < g.end ? &next : NULL,
                               p->saved, r->kernel))
            continue;
        linear_load_queries(x, &c, s, NULL, &r->q);
        linear_forward_inter_chunk(x, r, s, true, NULL, linear_forward_lanes(&c), 0);
        linear_forward_store(x, &c, p->saved, r);
    }
}

/* Bidirectional decay: keep the sums after each chunk of the segment, then scan
 * forward. */
static void read_bidirectional(const struct linear_forward_pass *p, int64_t h,
                               int64_t i, struct linear_forward_scratch *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);
    _Alignas(64) float   decay[CHUNK];

    linear_sums_copy(x, r->next, linear_sums_at(x, p->after, sums_number(x, h, i)));
    for (int64_t t = g.end; t-- > g.begin;) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);

        linear_sums_copy(x, linear_sums_at(x, r->after, t - g.begin), r->next);
        linear_load_keys(x, &c, false, r->next, &r->k);
        update_reverse(x, &c, r, r->next);
    }
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);
        const struct linear_sums   after = linear_sums_at(x, r->after, t - g.begin);

        linear_load_keys(x, &c, false, r->s, &r->k);
        linear_pack_keys(x, &c, &r->k);
        linear_load_queries(x, &c, r->s, NULL, &r->q);
        linear_forward_inter_chunk(x, r, r->s, false,
                                   linear_forward_decay_before(x, &c, decay),
                                   linear_forward_lanes(&c), 0);
        linear_forward_inter_chunk(x, r, after, false,
                                   linear_forward_decay_after(x, &c, decay),
                                   linear_forward_lanes(&c), 1);
        linear_forward_intra_chunk(x, &c, r);
        linear_forward_store(x, &c, p->saved, r);
        linear_sums_update(x, &c, &r->k, r->s);
    }
}

void linear_forward_segment(const struct linear_forward_pass *p, int64_t h, int64_t i,
                            struct linear_forward_scratch *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);

    if (!x->causal && !p->bidirectional) {
        read_segment(p, h, i, r);
        return;
    }
    linear_sums_copy(x, r->s, linear_sums_at(x, p->before, sums_number(x, h, i)));
    if (p->bidirectional) {
        read_bidirectional(p, h, i, r);
        return;
    }
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct feature_chunk c = linear_chunk(x, g.s, h, t);
        const struct feature_chunk next = linear_chunk(x, g.s, h, t + 1);

        linear_forward_prefetch(x, t + 1 < g.end ? &next : NULL, r);
        linear_forward_causal_chunk(x, &c, p->saved, r);
    }
}
