/* linear_backward.c -- gradients of linear attention: what is summed when.
 *
 * A segment of a causal sequence needs sums over the keys before it and over the queries
 * after it.  Where heads are few, all segments are summed first, in parallel, and the sums
 * added up along the sequence: the keys' upward, then, in the units these have by then,
 * the queries' downward.  Where heads are many a sequence is one piece of work: sums
 * before each of its segments, then the segments from the last to the first, the sums
 * over queries handed on.  The same where the gradients of later rows have to be known
 * before those of earlier ones can be summed.
 *
 * A segment first makes and keeps the sums before each of its chunks, and then goes
 * through them backwards, so that features and weights are made once for all gradients.
 * Where nothing is causal the sums of all segments are added up, and chunks do not matter
 * to each other.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/linear_back.h"
#include "engine/rest.h"

/* Heads times sequences from which on they are pieces of work enough. */
enum { ENOUGH_LINES = 8 };

/* Chunks of a segment, and what their sums may take. */
enum { LEAST_CHUNKS = 4, FEW_CHUNKS = 16, MOST_CHUNKS = 1024 };
static const double SEGMENT_BYTES = 2e7;

/* Where whole chunks are done by one kernel, adding up keys once more takes less than
 * writing their sums to memory and reading them again: they stay in the second cache. */
static const double WHOLE_BYTES = 1.25e6;

/*
 * Room
 */

static struct back_room room_take(const struct back *b, struct arena *a)
{
    const struct linear *x = &b->x;
    const int64_t        features = (int64_t)x->m_room * CHUNK;
    const int64_t values = (int64_t)CHUNK * x->ldv, rows = (int64_t)CHUNK * x->ldq;
    const int64_t pairs = (int64_t)CHUNK * CHUNK, all = x->per_kv > 1 ? b->segment : 0;
    const int64_t sums = max64((int64_t)x->m_room * x->ldv, pairs);
    const bool    z = b->apart || x->lane_logs;
    struct back_room r = { .k = linear_keys_take(x, a), .q = linear_queries_take(x, a) };

    r.n = arena_take(a, values, sizeof(float));
    r.fade = arena_take(a, values, sizeof(float));
    r.r = arena_take(a, CHUNK, sizeof(float));
    r.z = arena_take(a, z ? features : 0, sizeof(float));
    r.dz = arena_take(a, z ? features : 0, sizeof(float));
    r.df = arena_take(a, features, sizeof(float));
    r.dg = arena_take(a, features, sizeof(float));
    r.more = arena_take(a, b->two ? features : 0, sizeof(float));
    r.a = arena_take(a, pairs, sizeof(float));
    r.da = arena_take(a, pairs, sizeof(float));
    r.dq = arena_take(a, rows, sizeof(float));
    r.dk = arena_take(a, rows, sizeof(float));
    r.dv = arena_take(a, values, sizeof(float));
    r.dv_more = arena_take(a, b->two ? values : 0, sizeof(float));
    r.dk_all = arena_take(a, all * rows, sizeof(float));
    r.dv_all = arena_take(a, all * values, sizeof(float));
    r.left = arena_take(a, max64(sums, values), sizeof(float));
    r.right = arena_take(a, max64(sums, values), sizeof(float));
    r.f_rows = arena_take(a, x->bf16 ? features / 2 : 0, sizeof(uint32_t));
    r.n_cols = arena_take(a, values, sizeof(float));
    r.n_pairs = x->bf16 ? arena_take(a, values / 2, sizeof(uint32_t)) : (char *)r.n;
    r.before = linear_sums_take(x, b->near ? b->segment : 0, a);
    r.before2 = linear_sums_take(x, b->two ? b->segment : 0, a);
    r.level = linear_sums_take(x, x->causal ? LEVELS : 0, a);
    r.now = linear_sums_take(x, 1, a);
    r.own = linear_sums_take(x, b->n_sums, a);
    r.carry = linear_sums_take(x, 1, a);
    r.next = linear_sums_take(x, 1, a);
    r.whole = arena_take(a, x->whole ? BACK_BYTES : 0, sizeof *r.whole);
    return r;
}

static bool enough_lines(const struct linear *x)
{
    return x->causal && x->heads * x->max_seqs >= ENOUGH_LINES;
}

/* In line, segments are as long as scratch allows: those before the last are summed twice.
 * Else as many as their chunks are, about, so that there is work for many threads. */
static int64_t segment_of(const struct back *b, int64_t chunks)
{
    const struct linear *x = &b->x;
    const double         bytes = (double)x->m_pad * (x->ldv + 2) * sizeof(float);
    int64_t              n = enough_lines(x) ? MOST_CHUNKS : FEW_CHUNKS;

    while (n * n < chunks)
        n *= 2;
    while (n > LEAST_CHUNKS && n / 2 >= chunks)
        n /= 2;
    while (n > LEAST_CHUNKS && (double)n * bytes > SEGMENT_BYTES)
        n /= 2;
    while (b->whole && n * n / 4 >= chunks && (double)n * bytes > WHOLE_BYTES)
        n /= 2;
    return n;
}

/* Every sequence may begin and end in a short chunk.  One of several segments has more
 * than one full one. */
static void count_segments(struct back *b)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;
    const int64_t        len = max64(p->len_q, p->len_k), most = div_up(len, CHUNK) + 1;

    b->segment = segment_of(b, most);
    assert(b->segment > 0);
    if (p->max_docs) {
        const int64_t chunks = len / CHUNK + 2 * p->max_docs;
        b->max_segs = chunks / b->segment + p->max_docs;
        b->max_slots = min64(b->max_segs, 2 * chunks / b->segment);
        return;
    }
    b->max_segs = p->batch * div_up(most, b->segment);
    b->max_slots = most > b->segment ? b->max_segs : 0;
}

static void set_kind(struct back *b)
{
    const struct linear *x = &b->x;
    const struct group  *g = x->stage->group;

    b->two = x->l->decays && !x->causal;
    b->near = x->causal || b->two;
    b->by_feature = x->l->norm == FOCI_NORM_FEATURE;
    b->apart = b->by_feature || (x->turns && x->divides);
    b->learns = x->l->decays && g->mech.def->n_tensors && g->param0[0] >= 0 && b->g &&
                b->g->dparams;
    b->n_sums = b->two ? N_SUMS : 2;
    b->whole = back_takes_whole(b);
    b->in_line = enough_lines(x) || (x->causal && (b->by_feature || x->lane_logs));
}

static void number_segments(struct back *b)
{
    const struct linear *x = &b->x;
    int64_t              segs = 0, slots = 0;

    for (int64_t s = 0; s < x->n_seqs; s++) {
        const int64_t n = div_up(x->seqs[s].n_chunks, b->segment);

        b->seg0[s] = segs;
        b->slot0[s] = slots;
        segs += n;
        if (n > 1) slots += n;
    }
    b->seg0[x->n_seqs] = b->n_segs = segs;
}

static void back_take(struct back *b, const foci_io *io, struct arena *a)
{
    struct linear *x = &b->x;
    struct arena   one = { 0 };

    linear_open(x, io, a);
    set_kind(b);
    count_segments(b);
    b->seg0 = arena_take(a, x->max_seqs + 1, sizeof *b->seg0);
    b->slot0 = arena_take(a, x->max_seqs, sizeof *b->slot0);
    b->slots = linear_sums_take(x, x->heads * b->max_slots * b->n_sums, a);
    b->d_lam =
        arena_take(a, x->l->decays ? x->heads * b->max_segs : 0, sizeof *b->d_lam);
    if (a->base) number_segments(b);
    room_take(b, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->threads, one.used);
}

size_t linear_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct back  b = { 0 };
    struct arena a = { 0 };

    linear_geometry(&b.x, plan, s);
    back_take(&b, NULL, &a);
    return a.used;
}

/*
 * Segments
 */

/* Chunks begin to end - 1 of a sequence; of all segments number i. */
struct stretch {
    int64_t s, begin, end;
    int64_t i, slot; /* slot -1: the sequence has no other segment */
};

static struct stretch stretch_of(const struct back *b, int64_t i)
{
    int64_t s = 0, past = b->x.n_seqs;

    while (past - s > 1) {
        const int64_t middle = (s + past) / 2;
        *(b->seg0[middle] <= i ? &s : &past) = middle;
    }
    const int64_t t = i - b->seg0[s], chunks = b->x.seqs[s].n_chunks;
    return (struct stretch){
        .s = s,
        .begin = t * b->segment,
        .end = min64((t + 1) * b->segment, chunks),
        .i = i,
        .slot = chunks > b->segment ? b->slot0[s] + t : -1,
    };
}

/* The sums of a segment for head h; of sequences of one, the thread's own. */
static struct meeting meeting_of(const struct back *b, struct back_room *r, int64_t h,
                                 const struct stretch *p)
{
    const struct linear *x = &b->x;
    struct meeting       m = { 0 };

    for (int i = 0; i < b->n_sums; i++)
        m.of[i] = p->slot < 0
                      ? linear_sums_at(x, r->own, i)
                      : linear_sums_at(x, b->slots,
                                       (h * b->max_slots + p->slot) * b->n_sums + i);
    return m;
}

static void clear(const struct back *b, struct meeting *m)
{
    for (int i = 0; i < b->n_sums; i++)
        linear_sums_clear(&b->x, m->of[i]);
}

/* lam^n, and lam^(n + 1) to lam^(n + 64) for lanes of n positions further on. */
static double power(const struct back *b, int64_t h, int64_t n)
{
    return pow(b->x.decay[h].lam, (double)n);
}

static const float *fade_from(const struct back *b, int64_t h, int64_t n, float *fade)
{
    if (!b->x.decay) return NULL;
    for (int i = 0; i < CHUNK; i++)
        fade[i] = (float)power(b, h, n + i + 1);
    return fade;
}

static const float *fade_to(const struct back *b, const struct chunk *c, float *fade)
{
    const int n = back_length(c);

    for (int i = 0; i < CHUNK; i++)
        fade[i] = i < n ? b->x.decay[c->h].power[n - 1 - i] : 0;
    return fade;
}

/* Chunk t of the stretch comes next, if there is one. */
static void look_ahead(const struct back *b, struct back_room *r, int64_t h,
                       const struct stretch *p, int64_t t, unsigned asks)
{
    r->asked = BACK_PARTS;
    if (t < p->begin || t >= p->end) return;
    r->ahead = linear_chunk(&b->x, p->s, h, t);
    r->asked = 0;
    r->asks = asks;
}

/* Of that chunk, so many parts. */
static void ask_parts(const struct back *b, struct back_room *r, int n)
{
    for (int i = 0; i < n; i++)
        back_ask(b, r);
}

/* Add chunk t to sums over keys by one kernel. */
static bool add_whole(const struct back *b, struct back_room *r, int64_t h,
                      const struct stretch *p, int64_t t, struct sums_of s)
{
    const struct linear *x = &b->x;
    const struct chunk   c = linear_chunk(x, p->s, h, t);
    const struct chunk   next = linear_chunk(x, p->s, h, t + 1);

    return linear_whole(x, &c, LINEAR_KEYS, s, t + 1 < p->end ? &next : NULL, NULL,
                        r->whole);
}

/* Sums over the keys of a segment, also as those before it see them. */
static void sum_keys(const struct back *b, struct back_room *r, int64_t h,
                     const struct stretch *p)
{
    const struct linear *x = &b->x;
    struct meeting       m = meeting_of(b, r, h, p);
    _Alignas(64) float   fade[CHUNK];

    clear(b, &m);
    for (int64_t t = p->begin; t < p->end; t++) {
        const struct chunk c = linear_chunk(x, p->s, h, t);

        if (add_whole(b, r, h, p, t, m.of[KEYS])) continue;
        look_ahead(b, r, h, p, t + 1, ASK_KEYS);
        ask_parts(b, r, BACK_PARTS / 2);
        linear_keys(x, &c, false, m.of[KEYS], &r->k);
        ask_parts(b, r, BACK_PARTS / 2);
        linear_absorb(x, &c, &r->k, m.of[KEYS]);
        if (b->two)
            back_add_keys(b, r, m.of[KEYS_AFTER], 1,
                          fade_from(b, h, (t - p->begin) * CHUNK, fade));
    }
}

/* Sums over its queries, in the units of the sums over keys before it. */
static void sum_queries(const struct back *b, struct back_room *r, int64_t h,
                        const struct stretch *p)
{
    const struct linear *x = &b->x;
    struct meeting       m = meeting_of(b, r, h, p), of = m;
    _Alignas(64) float   fade[CHUNK];

    if (!b->near && p->slot >= 0) {
        const struct stretch first = stretch_of(b, b->seg0[p->s]);
        of = meeting_of(b, r, h, &first);
    }
    back_to_units(x, m.of[QUERIES], of.of[KEYS].top);
    for (int64_t t = p->begin; t < p->end; t++) {
        const struct chunk c = linear_chunk(x, p->s, h, t);

        if (c.r0 >= c.r1) continue;
        look_ahead(b, r, h, p, t + 1, ASK_QUERIES);
        ask_parts(b, r, BACK_PARTS / 2);
        back_load_queries(b, r, &c, &of);
        ask_parts(b, r, BACK_PARTS / 2);
        back_add_queries(b, r, m.of[QUERIES], 1,
                         fade_from(b, h, (t - p->begin) * CHUNK, fade));
        if (b->two)
            back_add_queries(b, r, m.of[QUERIES_BEFORE],
                             x->decay[h].power[back_length(&c)], fade_to(b, &c, fade));
    }
}

static int64_t positions(const struct back *b, const struct stretch *p)
{
    const int64_t nk = b->x.seqs[p->s].s.nk, from = b->x.seqs[p->s].first;
    return min64((from + p->end) * CHUNK, nk) - (from + p->begin) * CHUNK;
}

/* In place of sums of segment p, those of all before it (or after it), which are in
 * r->carry. */
static void pass_on(const struct back *b, struct back_room *r, int64_t h,
                    const struct stretch *p, int which)
{
    const struct linear *x = &b->x;
    const struct meeting m = meeting_of(b, r, h, p);
    const struct sums_of s = m.of[which];
    const float          by = x->decay ? (float)power(b, h, positions(b, p)) : 1;

    linear_sums_copy(x, r->next, r->carry);
    if (which == QUERIES) {
        back_to_units(x, r->next, m.of[KEYS].top);
        back_times(x, r->next, by);
        back_plus(x, r->next, s);
    } else {
        linear_sums_add(x, r->next, by, s);
    }
    linear_sums_copy(x, s, r->carry);
    linear_sums_copy(x, r->carry, r->next);
}

static void pass_all(const struct back *b, struct back_room *r, int64_t h, int64_t s,
                     int which, bool upward)
{
    const int64_t i0 = b->seg0[s], n = b->seg0[s + 1] - i0;

    linear_sums_clear(&b->x, r->carry);
    for (int64_t t = 0; t < n; t++) {
        const struct stretch p = stretch_of(b, upward ? i0 + t : i0 + n - 1 - t);
        pass_on(b, r, h, &p, which);
    }
}

/* Where order does not matter, in place of the first the sums of all. */
static void join_all(const struct back *b, struct back_room *r, int64_t h, int64_t s,
                     int which)
{
    const struct stretch first = stretch_of(b, b->seg0[s]);
    const struct meeting m = meeting_of(b, r, h, &first);

    for (int64_t i = b->seg0[s] + 1; i < b->seg0[s + 1]; i++) {
        const struct stretch p = stretch_of(b, i);
        const struct sums_of from = meeting_of(b, r, h, &p).of[which];

        if (which == QUERIES)
            back_plus(&b->x, m.of[which], from);
        else
            linear_sums_add(&b->x, m.of[which], 1, from);
    }
    if (which == QUERIES && b->by_feature)
        back_finish_features(&b->x, m.of[KEYS], m.of[QUERIES]);
}

static bool has_segments(const struct back *b, int64_t s)
{
    return b->seg0[s + 1] - b->seg0[s] > 1;
}

static void join_keys(const struct back *b, struct back_room *r, int64_t h, int64_t s)
{
    if (!has_segments(b, s)) return;
    if (!b->near) {
        join_all(b, r, h, s, KEYS);
        return;
    }
    pass_all(b, r, h, s, KEYS, true);
    if (b->two) pass_all(b, r, h, s, KEYS_AFTER, false);
}

static void join_queries(const struct back *b, struct back_room *r, int64_t h, int64_t s)
{
    if (!has_segments(b, s)) return;
    if (!b->near) {
        join_all(b, r, h, s, QUERIES);
        return;
    }
    pass_all(b, r, h, s, QUERIES, false);
    if (b->two) pass_all(b, r, h, s, QUERIES_BEFORE, true);
}

/*
 * Gradients
 */

/* Make and keep the sums before each chunk, then go back through them. */
static void scan_back(const struct back *b, struct back_room *r, int64_t h,
                      const struct stretch *p, struct meeting m)
{
    const struct linear *x = &b->x;
    const int64_t        from = linear_chunk(x, p->s, h, p->begin).pos;
    _Alignas(64) float   fade[CHUNK];

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct chunk c = linear_chunk(x, p->s, h, t);

        linear_sums_copy(x, linear_sums_at(x, r->before, t - p->begin), m.of[KEYS]);
        if (t + 1 < p->end && add_whole(b, r, h, p, t, m.of[KEYS])) continue;
        look_ahead(b, r, h, p, t + 1, ASK_KEYS);
        ask_parts(b, r, BACK_PARTS / 2);
        linear_keys(x, &c, false, m.of[KEYS], &r->k);
        ask_parts(b, r, BACK_PARTS / 2);
        if (t + 1 < p->end) linear_absorb(x, &c, &r->k, m.of[KEYS]);
        if (!b->two) continue;
        linear_sums_copy(x, linear_sums_at(x, r->before2, t - p->begin),
                         m.of[QUERIES_BEFORE]);
        back_load_queries(b, r, &c, &m);
        back_add_queries(b, r, m.of[QUERIES_BEFORE], x->decay[h].power[back_length(&c)],
                         fade_to(b, &c, fade));
    }
    r->d_lam = 0;
    for (int64_t t = p->end; t-- > p->begin;) {
        const struct chunk c = linear_chunk(x, p->s, h, t);

        look_ahead(b, r, h, p, t - 1, ASK_KEYS | ASK_QUERIES | ASK_GRADIENTS);
        m.of[KEYS] = linear_sums_at(x, r->before, t - p->begin);
        if (b->two) m.of[QUERIES_BEFORE] = linear_sums_at(x, r->before2, t - p->begin);
        if (!back_whole(b, r, &c, m)) back_chunk(b, r, &c, m, 0, from);
    }
}

static void each_alone(const struct back *b, struct back_room *r, int64_t h,
                       const struct stretch *p, struct meeting m)
{
    const struct linear *x = &b->x;
    const int64_t        from = linear_chunk(x, p->s, h, p->begin).pos;

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct chunk c = linear_chunk(x, p->s, h, t);
        look_ahead(b, r, h, p, t + 1, ASK_KEYS | ASK_QUERIES | ASK_GRADIENTS);
        back_alone(b, r, &c, m, from);
    }
}

/* The sums that the chunks of a segment see: for a sequence of one, made here. */
static struct meeting sums_for(const struct back *b, struct back_room *r, int64_t h,
                               const struct stretch *p)
{
    struct meeting m = meeting_of(b, r, h, p);

    if (p->slot >= 0 && !b->near) {
        const struct stretch first = stretch_of(b, b->seg0[p->s]);
        return meeting_of(b, r, h, &first);
    }
    if (p->slot >= 0) return m;
    clear(b, &m);
    if (b->near) return m;
    sum_keys(b, r, h, p);
    sum_queries(b, r, h, p);
    if (b->by_feature) back_finish_features(&b->x, m.of[KEYS], m.of[QUERIES]);
    return m;
}

static void store_all(const struct back *b, struct back_room *r, int64_t h,
                      const struct stretch *p)
{
    const struct linear *x = &b->x;

    for (int64_t t = p->begin; t < p->end; t++) {
        const struct chunk c = linear_chunk(x, p->s, h, t);
        const int64_t      row = (t - p->begin) * CHUNK;

        if (c.n)
            back_store_k(b, &c, r->dk_all + row * x->ldq, r->dv_all + row * x->ldv);
    }
}

/* A segment of a key/value head, for all heads that read it. */
static void run_part(const struct back *b, struct back_room *r, int64_t kv,
                     const struct stretch *p)
{
    const struct linear *x = &b->x;
    const int64_t        h0 = kv * x->per_kv;
    const size_t         rows = (size_t)(p->end - p->begin) * CHUNK;

    if (x->per_kv > 1) {
        memset(r->dk_all, 0, rows * (size_t)x->ldq * sizeof(float));
        memset(r->dv_all, 0, rows * (size_t)x->ldv * sizeof(float));
    }
    for (int64_t h = h0; h < h0 + x->per_kv; h++) {
        const struct meeting m = sums_for(b, r, h, p);

        if (b->near)
            scan_back(b, r, h, p, m);
        else
            each_alone(b, r, h, p, m);
        if (x->l->decays) b->d_lam[h * b->max_segs + p->i] = r->d_lam;
    }
    if (x->per_kv > 1) store_all(b, r, h0, p);
}

/* A sequence of several segments, one after the other. */
static void run_line(const struct back *b, struct back_room *r, int64_t kv, int64_t s)
{
    const struct linear *x = &b->x;
    const int64_t        i0 = b->seg0[s], i1 = b->seg0[s + 1];

    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++) {
        linear_sums_clear(x, r->carry);
        for (int64_t i = i0; i < i1; i++) {
            const struct stretch p = stretch_of(b, i);
            struct meeting       m = meeting_of(b, r, h, &p);

            linear_sums_copy(x, m.of[KEYS], r->carry);
            linear_sums_clear(x, m.of[QUERIES]);
            for (int64_t t = p.begin; i + 1 < i1 && t < p.end; t++) {
                const struct chunk c = linear_chunk(x, s, h, t);

                if (add_whole(b, r, h, &p, t, r->carry)) continue;
                look_ahead(b, r, h, &p, t + 1, ASK_KEYS);
                ask_parts(b, r, BACK_PARTS / 2);
                linear_keys(x, &c, false, r->carry, &r->k);
                ask_parts(b, r, BACK_PARTS / 2);
                linear_absorb(x, &c, &r->k, r->carry);
            }
        }
    }
    for (int64_t i = i1; i-- > i0;) {
        const struct stretch p = stretch_of(b, i);

        run_part(b, r, kv, &p);
        for (int64_t h = kv * x->per_kv; i > i0 && h < (kv + 1) * x->per_kv; h++) {
            const struct stretch before = stretch_of(b, i - 1);
            linear_sums_copy(x, meeting_of(b, r, h, &before).of[QUERIES],
                             meeting_of(b, r, h, &p).of[QUERIES]);
        }
    }
}

static void run_sequence(const struct back *b, struct back_room *r, int64_t kv,
                         int64_t s)
{
    if (b->seg0[s] == b->seg0[s + 1]) return;
    if (has_segments(b, s)) {
        run_line(b, r, kv, s);
        return;
    }
    const struct stretch p = stretch_of(b, b->seg0[s]);
    run_part(b, r, kv, &p);
}

static struct back_room room_of(const struct back *b, int thread)
{
    const struct linear *x = &b->x;
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };

    return room_take(b, &mine);
}

static void sum_keys_job(void *arg, int64_t i, int thread)
{
    const struct back   *b = arg;
    const struct stretch p = stretch_of(b, i % b->n_segs);
    struct back_room     room = room_of(b, thread);

    if (p.slot >= 0) sum_keys(b, &room, i / b->n_segs, &p);
}

static void join_keys_job(void *arg, int64_t i, int thread)
{
    const struct back *b = arg;
    struct back_room   room = room_of(b, thread);

    join_keys(b, &room, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void sum_queries_job(void *arg, int64_t i, int thread)
{
    const struct back   *b = arg;
    const struct stretch p = stretch_of(b, i % b->n_segs);
    struct back_room     room = room_of(b, thread);

    if (p.slot >= 0) sum_queries(b, &room, i / b->n_segs, &p);
}

static void join_queries_job(void *arg, int64_t i, int thread)
{
    const struct back *b = arg;
    struct back_room   room = room_of(b, thread);

    join_queries(b, &room, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void part_job(void *arg, int64_t i, int thread)
{
    const struct back   *b = arg;
    const struct stretch p = stretch_of(b, i % b->n_segs);
    struct back_room     room = room_of(b, thread);

    run_part(b, &room, i / b->n_segs, &p);
}

static void sequence_job(void *arg, int64_t i, int thread)
{
    const struct back *b = arg;
    struct back_room   room = room_of(b, thread);

    run_sequence(b, &room, i / b->x.n_seqs, i % b->x.n_seqs);
}

static void run(struct back *b, int threads)
{
    const struct linear *x = &b->x;
    const int64_t        all = x->heads * b->n_segs, seqs = x->heads * x->n_seqs;
    const struct phase   lines = { x->kv_heads * x->n_seqs, 1, sequence_job, b };
    const struct phase   parts[] = {
          { all, 1, sum_keys_job, b },
          { seqs, 1, join_keys_job, b },
          { all, 1, sum_queries_job, b },
          { seqs, 1, join_queries_job, b },
          { x->kv_heads * b->n_segs, 1, part_job, b },
    };

    if (b->in_line)
        phases_run(x->k, x->plan->shared, threads, &lines, 1);
    else
        phases_run(x->k, x->plan->shared, threads, parts, 5);
}

/* From lam = 1/(1 + e^-theta). */
static void add_params(const struct back *b)
{
    const struct linear *x = &b->x;

    for (int64_t h = 0; h < x->heads; h++) {
        const double lam = x->decay[h].lam;
        double       sum = 0;

        for (int64_t i = 0; i < b->n_segs; i++)
            sum += b->d_lam[h * b->max_segs + i];
        b->g->dparams[x->stage->group->param0[0] + h] += (float)(sum * lam * (1 - lam));
    }
}

static void clear_rest(const struct back *b)
{
    const struct linear *x = &b->x;
    const foci_problem  *p = x->p;

    rest_clear(x->plan, x->io, b->g->dq, &p->q, x->head0, x->heads, x->dq, true, false);
    rest_clear(x->plan, x->io, b->g->dk, &p->k, x->kv0, x->kv_heads, x->dq, false,
               false);
    rest_clear(x->plan, x->io, b->g->dv, &p->v, x->kv0, x->kv_heads, x->dv, false,
               false);
}

void linear_backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct back  b = { .saved = saved, .g = g };
    struct arena a = { .base = io->work };

    linear_geometry(&b.x, plan, s);
    if (!b.x.max_seqs) return;
    back_take(&b, io, &a);
    clear_rest(&b);

    const struct linear *x = &b.x;
    const int64_t        jobs = x->heads * (b.in_line ? x->n_seqs : b.n_segs);
    const int            threads = linear_threads(x, jobs, plan->cost.backward_flops);
    run(&b, threads);
    if (b.learns) add_params(&b);
}
