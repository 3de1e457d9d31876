/* linear_back_scan.c -- gradients of a segment, and of a sequence segment by
 * segment. */
#include <string.h>

#include "engine/linear/linear_back.h"

/* Make and keep the sums before each chunk. */
static void keep_sums(const struct linear_back *b, struct linear_back_scratch *r,
                      int64_t h, const struct linear_back_segment *p,
                      const struct linear_back_boundary *m)
{
    const struct linear *x = &b->x;
    _Alignas(64) float   decay[CHUNK];

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);

        linear_sums_copy(x, linear_sums_at(x, r->before, t - p->begin), m->of[KEYS]);
        if (t + 1 < p->end && linear_back_fused_keys(b, r, h, p, t, m->of[KEYS]))
            continue;
        linear_back_load_keys(b, r, h, p, t, m->of[KEYS]);
        if (t + 1 < p->end) linear_sums_update(x, &c, &r->k, m->of[KEYS]);
        if (!b->bidirectional) continue;
        linear_sums_copy(x, linear_sums_at(x, r->queries_before, t - p->begin),
                         m->of[QUERIES_BEFORE]);
        linear_back_load_queries(b, r, &c, m);
        linear_back_add_queries(b, r, m->of[QUERIES_BEFORE],
                                x->decay[h].power[linear_back_length(&c)],
                                linear_back_decay_to_end(b, &c, decay));
    }
}

/* From the last chunk of a segment to the first: features and weights of a chunk are
 * made once for all of its gradients. */
static void scan_back(const struct linear_back *b, struct linear_back_scratch *r,
                      int64_t h, const struct linear_back_segment *p,
                      struct linear_back_boundary m)
{
    const struct linear *x = &b->x;
    const int64_t        from = linear_chunk(x, p->s, h, p->begin).pos;

    keep_sums(b, r, h, p, &m);
    r->d_lam = 0;
    for (int64_t t = p->end; t-- > p->begin;) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);

        linear_back_prefetch_chunk(
            b, r, h, p, t - 1, PREFETCH_KEYS | PREFETCH_QUERIES | PREFETCH_GRADIENTS);
        m.of[KEYS] = linear_sums_at(x, r->before, t - p->begin);
        if (b->bidirectional)
            m.of[QUERIES_BEFORE] = linear_sums_at(x, r->queries_before, t - p->begin);
        if (!linear_back_fused_chunk(b, r, &c, m))
            linear_back_chunk(b, r, &c, m, 0, from);
    }
}

/* Chunks that do not depend on each other: their sums are over the whole sequence. */
static void scan_alone(const struct linear_back *b, struct linear_back_scratch *r,
                       int64_t h, const struct linear_back_segment *p,
                       struct linear_back_boundary m)
{
    const struct linear *x = &b->x;
    const int64_t        from = linear_chunk(x, p->s, h, p->begin).pos;

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);
        linear_back_prefetch_chunk(
            b, r, h, p, t + 1, PREFETCH_KEYS | PREFETCH_QUERIES | PREFETCH_GRADIENTS);
        linear_back_chunk_alone(b, r, &c, m, from);
    }
}

/* The boundary of a segment.  Of a sequence of one segment it is made here. */
static struct linear_back_boundary make_boundary(const struct linear_back         *b,
                                                 struct linear_back_scratch       *r,
                                                 int64_t                           h,
                                                 const struct linear_back_segment *p)
{
    struct linear_back_boundary m = linear_back_boundary(b, r, h, p);

    if (p->stored >= 0 && !b->intra) {
        const struct linear_back_segment first =
            linear_back_segment_at(b, b->seg0[p->s]);
        return linear_back_boundary(b, r, h, &first);
    }
    if (p->stored >= 0) return m;
    linear_back_boundary_clear(b, &m);
    if (b->intra) return m;
    linear_back_sum_keys(b, r, h, p);
    linear_back_sum_queries(b, r, h, p);
    if (b->by_feature) linear_back_den_features(&b->x, m.of[KEYS], m.of[QUERIES]);
    return m;
}

/* Store the gradients of keys and values that were summed over the heads of a group. */
static void store_shared(const struct linear_back *b, struct linear_back_scratch *r,
                         int64_t h, const struct linear_back_segment *p)
{
    const struct linear *x = &b->x;

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct feature_chunk c = linear_chunk(x, p->s, h, t);
        const int64_t              row = (t - p->begin) * CHUNK;

        if (c.n)
            linear_back_store_k(b, &c, r->dk_all + row * x->ldq,
                                r->dv_all + row * x->ldv);
    }
}

void linear_back_run_segment(const struct linear_back *b, struct linear_back_scratch *r,
                             int64_t kv, const struct linear_back_segment *p)
{
    const struct linear *x = &b->x;
    const int64_t        h0 = kv * x->per_kv;
    const size_t         rows = (size_t)(p->end - p->begin) * CHUNK;

    if (x->per_kv > 1) {
        memset(r->dk_all, 0, rows * (size_t)x->ldq * sizeof(float));
        memset(r->dv_all, 0, rows * (size_t)x->ldv * sizeof(float));
    }
    for (int64_t h = h0; h < h0 + x->per_kv; h++) {
        const struct linear_back_boundary m = make_boundary(b, r, h, p);

        if (b->intra)
            scan_back(b, r, h, p, m);
        else
            scan_alone(b, r, h, p, m);
        if (x->l->decays) b->d_lam[h * b->max_segs + p->i] = r->d_lam;
    }
    if (x->per_kv > 1) store_shared(b, r, h0, p);
}

/* Sums over the keys before each segment of a sequence, for head h.  The sums over
 * queries start with those of the last segment, which are 0. */
static void keep_boundaries(const struct linear_back *b, struct linear_back_scratch *r,
                            int64_t h, int64_t s)
{
    const struct linear *x = &b->x;
    const int64_t        i0 = b->seg0[s], i1 = b->seg0[s + 1];

    linear_sums_clear(x, r->carry);
    for (int64_t i = i0; i < i1; i++) {
        const struct linear_back_segment p = linear_back_segment_at(b, i);
        struct linear_back_boundary      m = linear_back_boundary(b, r, h, &p);

        linear_sums_copy(x, m.of[KEYS], r->carry);
        linear_sums_clear(x, m.of[QUERIES]);
        for (int64_t t = p.begin; i + 1 < i1 && t < p.end; t++) {
            const struct feature_chunk c = linear_chunk(x, s, h, t);

            if (linear_back_fused_keys(b, r, h, &p, t, r->carry)) continue;
            linear_back_load_keys(b, r, h, &p, t, r->carry);
            linear_sums_update(x, &c, &r->k, r->carry);
        }
    }
}

/* A sequence of several segments as one job: from its last segment to its first,
 * handing on the sums over queries. */
static void run_sequential(const struct linear_back *b, struct linear_back_scratch *r,
                           int64_t kv, int64_t s)
{
    const struct linear *x = &b->x;
    const int64_t        i0 = b->seg0[s], i1 = b->seg0[s + 1];
    const int64_t        h0 = kv * x->per_kv, h1 = h0 + x->per_kv;

    for (int64_t h = h0; h < h1; h++)
        keep_boundaries(b, r, h, s);
    for (int64_t i = i1; i-- > i0;) {
        const struct linear_back_segment p = linear_back_segment_at(b, i);

        linear_back_run_segment(b, r, kv, &p);
        for (int64_t h = h0; i > i0 && h < h1; h++) {
            const struct linear_back_segment before = linear_back_segment_at(b, i - 1);
            linear_sums_copy(x, linear_back_boundary(b, r, h, &before).of[QUERIES],
                             linear_back_boundary(b, r, h, &p).of[QUERIES]);
        }
    }
}

void linear_back_run_sequence(const struct linear_back   *b,
                              struct linear_back_scratch *r, int64_t kv, int64_t s)
{
    if (b->seg0[s] == b->seg0[s + 1]) return;
    if (linear_back_has_segments(b, s)) {
        run_sequential(b, r, kv, s);
        return;
    }
    const struct linear_back_segment p = linear_back_segment_at(b, b->seg0[s]);
    linear_back_run_segment(b, r, kv, &p);
}
