/* linear_back_segments.c -- sums over the keys and queries of segments, and along a
 * sequence.
 *
 * Sums over keys are accumulated first, forward.  Sums over queries follow backward, in
 * the units that the sums over keys have at the start of their segment: these only
 * shrink on the way back, so nothing overflows.
 */
#include <assert.h>
#include <math.h>

#include "engine/linear/linear_back.h"

struct linear_back_segment linear_back_segment_at(const struct linear_back *b, int64_t i)
{
    int64_t s = 0, past = b->x.n_seqs;

    while (past - s > 1) {
        const int64_t middle = (s + past) / 2;
        *(b->seg0[middle] <= i ? &s : &past) = middle;
    }
    assert(i < b->n_segs);
    const int64_t t = i - b->seg0[s], chunks = b->x.seqs[s].n_chunks;
    return (struct linear_back_segment){
        .s = s,
        .begin = t * b->segment,
        .end = min64((t + 1) * b->segment, chunks),
        .i = i,
        .stored = chunks > b->segment ? b->stored0[s] + t : -1,
    };
}

struct linear_back_boundary linear_back_boundary(const struct linear_back         *b,
                                                 struct linear_back_scratch       *r,
                                                 int64_t                           h,
                                                 const struct linear_back_segment *p)
{
    const struct linear        *x = &b->x;
    struct linear_back_boundary m = { 0 };

    for (int i = 0; i < b->n_sums; i++)
        m.of[i] = p->stored < 0
                      ? linear_sums_at(x, r->single, i)
                      : linear_sums_at(x, b->stored,
                                       (h * b->max_stored + p->stored) * b->n_sums + i);
    return m;
}

void linear_back_boundary_clear(const struct linear_back    *b,
                                struct linear_back_boundary *m)
{
    for (int i = 0; i < b->n_sums; i++)
        linear_sums_clear(&b->x, m->of[i]);
}

static double power(const struct linear_back *b, int64_t h, int64_t n)
{
    return pow(b->x.decay[h].lam, (double)n);
}

/* lam^(n + 1) to lam^(n + 64): the decay of each lane of a chunk from n positions
 * before it; NULL where nothing decays. */
static const float *decay_from(const struct linear_back *b, int64_t h, int64_t n,
                               float *decay)
{
    if (!b->x.decay) return NULL;
    for (int i = 0; i < CHUNK; i++)
        decay[i] = (float)power(b, h, n + i + 1);
    return decay;
}

const float *linear_back_decay_to_end(const struct linear_back   *b,
                                      const struct feature_chunk *c, float *decay)
{
    const int n = linear_back_length(c);

    for (int i = 0; i < CHUNK; i++)
        decay[i] = i < n ? b->x.decay[c->h].power[n - 1 - i] : 0;
    return decay;
}

bool linear_back_fused_keys(const struct linear_back *b, struct linear_back_scratch *r,
                            int64_t h, const struct linear_back_segment *p, int64_t t,
                            struct linear_sums s)
{
    const struct linear       *x = &b->x;
    const struct feature_chunk c = linear_chunk(x, p->s, h, t);
    const struct feature_chunk next = linear_chunk(x, p->s, h, t + 1);

    return linear_fused_chunk(x, &c, LINEAR_UPDATE, s, t + 1 < p->end ? &next : NULL,
                              NULL, r->kernel);
}

void linear_back_load_keys(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t h, const struct linear_back_segment *p, int64_t t,
                           struct linear_sums s)
{
    const struct feature_chunk c = linear_chunk(&b->x, p->s, h, t);

    linear_back_prefetch_chunk(b, r, h, p, t + 1, PREFETCH_KEYS);
    linear_back_prefetch(b, r, PREFETCH_PARTS / 2);
    linear_load_keys(&b->x, &c, false, s, &r->k);
    linear_back_prefetch(b, r, PREFETCH_PARTS / 2);
}

void linear_back_sum_keys(const struct linear_back *b, struct linear_back_scratch *r,
                          int64_t h, const struct linear_back_segment *p)
{
    const struct linear        *x = &b->x;
    struct linear_back_boundary m = linear_back_boundary(b, r, h, p);
    _Alignas(64) float          decay[CHUNK];

    linear_back_boundary_clear(b, &m);
    for (int64_t t = p->begin; t < p->end; t++) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);

        if (linear_back_fused_keys(b, r, h, p, t, m.of[KEYS])) continue;
        linear_back_load_keys(b, r, h, p, t, m.of[KEYS]);
        linear_sums_update(x, &c, &r->k, m.of[KEYS]);
        if (b->bidirectional)
            linear_back_add_keys(b, r, m.of[KEYS_AFTER], 1,
                                 decay_from(b, h, (t - p->begin) * CHUNK, decay));
    }
}

void linear_back_sum_queries(const struct linear_back *b, struct linear_back_scratch *r,
                             int64_t h, const struct linear_back_segment *p)
{
    const struct linear        *x = &b->x;
    struct linear_back_boundary m = linear_back_boundary(b, r, h, p), of = m;
    _Alignas(64) float          decay[CHUNK];

    if (!b->intra && p->stored >= 0) {
        const struct linear_back_segment first =
            linear_back_segment_at(b, b->seg0[p->s]);
        of = linear_back_boundary(b, r, h, &first);
    }
    linear_back_sums_rescale(x, m.of[QUERIES], of.of[KEYS].max_log);
    for (int64_t t = p->begin; t < p->end; t++) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);

        if (c.r0 >= c.r1) continue;
        linear_back_prefetch_chunk(b, r, h, p, t + 1, PREFETCH_QUERIES);
        linear_back_prefetch(b, r, PREFETCH_PARTS / 2);
        linear_back_load_queries(b, r, &c, &of);
        linear_back_prefetch(b, r, PREFETCH_PARTS / 2);
        linear_back_add_queries(b, r, m.of[QUERIES], 1,
                                decay_from(b, h, (t - p->begin) * CHUNK, decay));
        if (b->bidirectional)
            linear_back_add_queries(b, r, m.of[QUERIES_BEFORE],
                                    x->decay[h].power[linear_back_length(&c)],
                                    linear_back_decay_to_end(b, &c, decay));
    }
}

/* Positions of a segment that have a key. */
static int64_t positions(const struct linear_back         *b,
                         const struct linear_back_segment *p)
{
    const int64_t nk = b->x.seqs[p->s].s.nk, from = b->x.seqs[p->s].first;
    return min64((from + p->end) * CHUNK, nk) - (from + p->begin) * CHUNK;
}

/* Exchange: segment p gets r->carry, the sums of all segments before it (or after it),
 * and its own sums are added to r->carry. */
static void accumulate(const struct linear_back *b, struct linear_back_scratch *r,
                       int64_t h, const struct linear_back_segment *p, int which)
{
    const struct linear              *x = &b->x;
    const struct linear_back_boundary m = linear_back_boundary(b, r, h, p);
    const struct linear_sums          s = m.of[which];
    const float by = x->decay ? (float)power(b, h, positions(b, p)) : 1;

    linear_sums_copy(x, r->next, r->carry);
    if (which == QUERIES) {
        linear_back_sums_rescale(x, r->next, m.of[KEYS].max_log);
        linear_back_sums_scale(x, r->next, by);
        linear_back_sums_add(x, r->next, s);
    } else {
        linear_sums_add(x, r->next, by, s);
    }
    linear_sums_copy(x, s, r->carry);
    linear_sums_copy(x, r->carry, r->next);
}

static void accumulate_all(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t h, int64_t s, int which, bool forward)
{
    const int64_t i0 = b->seg0[s], n = b->seg0[s + 1] - i0;

    linear_sums_clear(&b->x, r->carry);
    for (int64_t t = 0; t < n; t++) {
        const struct linear_back_segment p =
            linear_back_segment_at(b, forward ? i0 + t : i0 + n - 1 - t);
        accumulate(b, r, h, &p, which);
    }
}

/* Without causality or decay: the first segment gets the sums of the whole sequence. */
static void join_all(const struct linear_back *b, struct linear_back_scratch *r,
                     int64_t h, int64_t s, int which)
{
    const struct linear_back_segment  first = linear_back_segment_at(b, b->seg0[s]);
    const struct linear_back_boundary m = linear_back_boundary(b, r, h, &first);

    for (int64_t i = b->seg0[s] + 1; i < b->seg0[s + 1]; i++) {
        const struct linear_back_segment p = linear_back_segment_at(b, i);
        const struct linear_sums from = linear_back_boundary(b, r, h, &p).of[which];

        if (which == QUERIES)
            linear_back_sums_add(&b->x, m.of[which], from);
        else
            linear_sums_add(&b->x, m.of[which], 1, from);
    }
    if (which == QUERIES && b->by_feature)
        linear_back_den_features(&b->x, m.of[KEYS], m.of[QUERIES]);
}

bool linear_back_has_segments(const struct linear_back *b, int64_t s)
{
    return b->seg0[s + 1] - b->seg0[s] > 1;
}

void linear_back_join_keys(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t h, int64_t s)
{
    if (!linear_back_has_segments(b, s)) return;
    if (!b->intra) {
        join_all(b, r, h, s, KEYS);
        return;
    }
    accumulate_all(b, r, h, s, KEYS, true);
    if (b->bidirectional) accumulate_all(b, r, h, s, KEYS_AFTER, false);
}

void linear_back_join_queries(const struct linear_back   *b,
                              struct linear_back_scratch *r, int64_t h, int64_t s)
{
    if (!linear_back_has_segments(b, s)) return;
    if (!b->intra) {
        join_all(b, r, h, s, QUERIES);
        return;
    }
    accumulate_all(b, r, h, s, QUERIES, false);
    if (b->bidirectional) accumulate_all(b, r, h, s, QUERIES_BEFORE, true);
}
