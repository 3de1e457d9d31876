/* linear_forward.c -- outputs from sums over features.
 *
 * Causal sequences are scanned chunk by chunk, one task for each head.  Where heads are
 * few, and where nothing is causal, segments are summed first (see linear.h).
 */
#include <math.h>
#include <string.h>

#include "engine/linear.h"
#include "engine/rest.h"

/* Heads times sequences from which on causal ones need no segments. */
enum { ENOUGH_SCANS = 8 };

/* Heads that a task scans side by side: their rows lie in the same pages. */
enum { MOST_ABREAST = 4 };

/* Scratch of one thread. */
struct room {
    struct keys    k;
    struct queries q;
    struct sums_of scans; /* [MOST_ABREAST] of heads side by side */
    struct sums_of s;     /* before the chunk */
    struct sums_of next;
    struct sums_of after; /* [segment] after each chunk: decay both ways */
    struct across  sums;  /* s, or of after, as operand */
    float         *faded; /* [m_room][64] queries times powers of the decay */
    struct along   by;    /* that */
    float         *a;     /* [64][64] weights of keys of the chunk */
    uint32_t      *words; /* [32][64] of them */
    float         *ot;    /* [ldv][64] */
    float         *tile;  /* [64][ldv] */
    struct chunk   ahead; /* the chunk that follows */
    int            asked; /* parts of it asked for */
    char          *whole; /* scratch of the kernel that does a whole chunk */
    _Alignas(64) float den[CHUNK];
};

/* Sums of segments, where they are needed. */
struct pass {
    const struct linear *x;
    float               *saved;
    bool                 segments, both; /* both: decay from either side */
    struct sums_of       before, after;  /* [heads][max_segs] */
};

static bool both_ways(const struct linear *x) { return x->l->decays && !x->causal; }

static struct room room_take(const struct linear *x, struct arena *a)
{
    const int64_t tile = (int64_t)CHUNK * x->ldv;
    const bool    both = both_ways(x);
    const int     fades = x->l->decays ? x->m_pad : 0;
    struct room   r = { .k = linear_keys_take(x, a),
                        .q = linear_queries_take(x, a),
                        .asked = LINEAR_PARTS };

    r.scans = linear_sums_take(x, MOST_ABREAST, a);
    r.s = r.scans;
    r.next = linear_sums_take(x, 1, a);
    r.after = linear_sums_take(x, both ? x->segment : 0, a);
    r.sums = across_take(x, r.s.rows, x->ldv, x->m_pad, x->dv_pad, a);
    r.faded = arena_take(a, round_up(fades, CHUNK) * CHUNK, sizeof *r.faded);
    r.by = along_take(x, r.faded, fades, a);
    r.a = arena_take(a, (int64_t)CHUNK * CHUNK, sizeof *r.a);
    r.words = arena_take(a, x->bf16 ? CHUNK * CHUNK / 2 : 0, sizeof *r.words);
    r.ot = arena_take(a, tile, sizeof *r.ot);
    r.tile = arena_take(a, tile, sizeof *r.tile);
    r.whole = arena_take(a, x->whole ? CHUNK_BYTES : 0, sizeof *r.whole);
    return r;
}

static void take(struct linear *x, const foci_io *io, struct pass *p, struct arena *a)
{
    struct arena one = { 0 };

    linear_open(x, io, a);
    *p = (struct pass){
        .x = x,
        .segments = !x->causal || x->heads * x->max_seqs < ENOUGH_SCANS,
        .both = both_ways(x),
    };
    if (p->segments) p->before = linear_sums_take(x, x->heads * x->max_segs, a);
    if (p->both) p->after = linear_sums_take(x, x->heads * x->max_segs, a);
    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->threads, one.used);
}

size_t linear_forward_bytes(const foci_plan *plan, const struct stage *s)
{
    struct linear x;
    struct pass   p;
    struct arena  a = { 0 };

    linear_geometry(&x, plan, s);
    take(&x, NULL, &p, &a);
    return a.used;
}

/* Ask for some of the rows of the chunk that follows, between products. */
static void look_ahead(const struct linear *x, struct room *r)
{
    if (r->asked < LINEAR_PARTS) linear_ask(x, &r->ahead, r->asked++);
}

/* Chunk number t of a walk is being computed, and that after it comes next: its rows
 * are asked for meanwhile.  NULL: none does. */
static void expect(const struct linear *x, const struct chunk *next, struct room *r)
{
    while (r->asked < LINEAR_PARTS)
        look_ahead(x, r);
    r->asked = next ? 0 : LINEAR_PARTS;
    if (next) r->ahead = *next;
}

/*
 * Numerators and denominators
 */

/* Lanes that products are made for. */
static int lanes_of(const struct chunk *c)
{
    return (int)round_up(max64(c->n, c->r1), 16);
}

/* Queries times fade[64], as operand. */
static const struct along *fade(const struct linear *x, struct room *r, const float *by)
{
    memcpy(r->faded, r->q.turned, (size_t)x->m_pad * CHUNK * sizeof *r->faded);
    x->k->shrink(r->faded, x->m, by);
    along_pack(x, &r->by);
    return &r->by;
}

/* ot and den (add 0: =, else +=) what sums bring, times fade[64] where that is given. */
static void ask_sums(const struct linear *x, struct room *r, struct sums_of s,
                     bool packed, const float *by, int end, int add)
{
    _Alignas(64) float  den[CHUNK];
    const struct along *q = by ? fade(x, r, by) : &r->q.by;

    r->sums.f = s.rows;
    if (!packed) across_pack(x, &r->sums, x->m_pad);
    linear_meet(x, r->ot, &r->sums, 0, x->bf16 ? x->dv_pad : x->dv, q, 0, end, add);
    if (!x->divides) return;
    x->k->gemm_f32(den, CHUNK, s.total, x->m, 1, r->q.t.f, CHUNK, 1, end, x->m, 0);
    for (int i = 0; i < end; i++)
        r->den[i] = (add ? r->den[i] : 0) + (by ? by[i] : 1) * den[i];
}

/* Products of the keys with the queries that see them: groups of keys, from the lane of
 * the first on. */
static void weights(const struct linear *x, const struct across *keys,
                    const struct along *q, int n, int end, struct room *r)
{
    for (int j = 0; j < n; j += x->group) {
        const int m = (int)min64(x->group, n - j), lane = x->causal ? j : 0;

        linear_meet(x, r->a + (int64_t)j * CHUNK + lane, keys, j,
                    x->bf16 ? (int)round_up(m, x->k->depth) : m, q, lane, end, 0);
        look_ahead(x, r);
    }
}

/* Sum and, with `words`, round the weights of the chunk's keys. */
static void near(const struct linear *x, const struct chunk *c, struct room *r,
                 const float *by, float *sum)
{
    if (x->bf16)
        x->k->near_bf16(r->a, r->words, c->n, r->k.n_pad / 2, by, !x->causal, sum);
    else
        x->k->near_f32(r->a, c->n, by, !x->causal, sum);
}

static void ask_keys(const struct linear *x, const struct chunk *c, struct room *r)
{
    const float       *by = x->l->decays ? x->decay[c->h].near : NULL;
    const int          end = lanes_of(c), n = c->n;
    const bool         apart = x->turns && x->divides;
    _Alignas(64) float none[CHUNK];

    if (apart) {
        weights(x, &r->k.plain, &r->q.plain, n, end, r);
        near(x, c, r, by, r->den);
    }
    weights(x, &r->k.by, &r->q.by, n, end, r);
    near(x, c, r, by, apart ? none : r->den);
    for (int j = 0; j < n; j += x->group) {
        const int m = (int)min64(x->group, r->k.n_pad - j);
        linear_weigh(x, r->ot, &r->k.values, x->bf16 ? (const void *)r->words : r->a, j,
                     m, x->causal ? j : 0, end);
        look_ahead(x, r);
    }
}

/*
 * Rows
 */

/* What lane i is divided by; 0: the row is empty. */
static float divisor(const struct linear *x, const struct chunk *c, int i, float den)
{
    switch (x->l->norm) {
    case FOCI_NORM_NONE: return 1;
    case FOCI_NORM_FEATURE: return linear_visible(x, c, i) > 0 ? 1.0f : 0.0f;
    case FOCI_NORM_COUNT: return (float)linear_visible(x, c, i);
    case FOCI_NORM_RETNET: {
        const float t = (float)sqrt(linear_fade(x, c, i));
        return fabsf(den) > t ? den : t;
    }
    case FOCI_NORM_SUM: den += (float)x->l->eps; break;
    }
    return linear_signed(x->l) && fabsf(den) < LEAST_DIVISOR ? 0 : den;
}

static void finish(const struct pass *p, const struct chunk *c, struct room *r)
{
    const struct linear *x = p->x;
    float               *saved = p->saved ? p->saved + linear_saved_at(x, c) : NULL;
    _Alignas(64) float   factor[CHUNK] = { 0 };

    for (int i = c->r0; i < c->r1; i++) {
        const float by = divisor(x, c, i, r->den[i]);

        factor[i] = by == 0 ? 0 : 1 / (x->l->norm == FOCI_NORM_RETNET ? fabsf(by) : by);
        if (saved)
            saved[i] = !x->logs || x->l->norm == FOCI_NORM_FEATURE ? by
                       : by == 0                                   ? INFINITY
                                 : r->q.top[i] + logf(by);
        if (by == 0)
            for (int d = 0; d < x->dv; d++)
                r->ot[d * CHUNK + i] = 0;
    }
    linear_store_q(x, c, x->io->o, &x->p->o, r->ot, x->dv, x->ldv, factor, r->tile);
}

/* Factors of what came before a chunk, and of what comes after it. */
static const float *fade_before(const struct linear *x, const struct chunk *c, float *by)
{
    if (!x->l->decays) return NULL;
    for (int i = 0; i < CHUNK; i++)
        by[i] = x->decay[c->h].power[i + 1];
    return by;
}

static const float *fade_after(const struct linear *x, const struct chunk *c, float *by)
{
    for (int i = 0; i < CHUNK; i++)
        by[i] = x->decay[c->h].power[CHUNK - i];
    return by;
}

/* Keys of a causal chunk, in units that move sums, and its rows.  false: nothing was
 * done, and the chunk is to be taken apart. */
static bool read_chunk(const struct pass *p, const struct chunk *c, struct room *r)
{
    const struct linear *x = p->x;
    _Alignas(64) float   by[CHUNK];

    if (!linear_keys(x, c, c->r0 < c->r1, r->s, &r->k)) return false;
    if (c->r0 < c->r1) {
        linear_show(x, c, &r->k);
        linear_queries(x, c, r->s, &r->k, &r->q);
        ask_sums(x, r, r->s, false, fade_before(x, c, by), lanes_of(c), 0);
        ask_keys(x, c, r);
        finish(p, c, r);
    }
    return true;
}

/* The same by one kernel, keys into sums included. */
static bool whole_chunk(const struct pass *p, const struct chunk *c, struct room *r)
{
    const struct chunk *next = r->asked ? NULL : &r->ahead;

    if (!linear_whole(p->x, c, LINEAR_ROWS | LINEAR_KEYS, r->s, next, p->saved,
                      r->whole))
        return false;
    r->asked = LINEAR_PARTS;
    return true;
}

static void scan_chunk(const struct pass *p, const struct chunk *c, struct room *r)
{
    if (whole_chunk(p, c, r)) return;
    if (!read_chunk(p, c, r)) {
        const int          half = (int)max64(c->n, c->r1) / 2;
        const struct chunk first = linear_piece(c, 0, half);
        const struct chunk second = linear_piece(c, half, CHUNK);

        scan_chunk(p, &first, r);
        scan_chunk(p, &second, r);
        return;
    }
    linear_absorb(p->x, c, &r->k, r->s);
}

/*
 * Chunks of a decoding step
 */

struct scan linear_scan_take(const struct linear *x, struct arena *a)
{
    struct room *room = arena_take(a, 1, sizeof *room);
    struct room  r = room_take(x, a);

    if (room) *room = r;
    return (struct scan){ r.s, r.next, room };
}

bool linear_scan(const struct linear *x, const struct chunk *c, struct scan *s)
{
    const struct pass p = { .x = x };

    s->room->s = s->before;
    return read_chunk(&p, c, s->room);
}

void linear_scan_absorb(const struct linear *x, const struct chunk *c, struct scan *s)
{
    linear_sums_clear(x, s->more);
    linear_absorb(x, c, &s->room->k, s->more);
}

/*
 * Segments
 */

/* s = lam^64 s + sum over keys of lam^key g v, going back over chunks. */
static void absorb_back(const struct linear *x, const struct chunk *c, struct room *r,
                        struct sums_of s)
{
    _Alignas(64) float fade[CHUNK];
    struct chunk       whole = *c;

    whole.n = CHUNK;
    for (int j = 0; j < CHUNK; j++)
        fade[j] = j < c->n ? x->decay[c->h].power[j] : 0;
    linear_fade_values(x, fade, r->k.v, r->k.faded);
    memset(r->k.sum, 0, (size_t)x->m_room * sizeof *r->k.sum);
    x->k->row_sums(r->k.sum, r->k.t.f, x->m, fade);
    linear_absorb(x, &whole, &r->k, s);
}

static int64_t sums_number(const struct linear *x, int64_t h, int64_t i)
{
    return h * x->max_segs + i;
}

static void sum_segment(const struct pass *p, int64_t h, int64_t i, struct room *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);
    const struct sums_of s = linear_sums_at(x, p->before, sums_number(x, h, i));

    linear_sums_clear(x, s);
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct chunk c = linear_chunk(x, g.s, h, t);
        const struct chunk next = linear_chunk(x, g.s, h, t + 1);

        if (linear_whole(x, &c, LINEAR_KEYS, s, t + 1 < g.end ? &next : NULL, NULL,
                         r->whole))
            continue;
        linear_keys(x, &c, false, s, &r->k);
        linear_absorb(x, &c, &r->k, s);
    }
    if (!p->both) return;
    const struct sums_of back = linear_sums_at(x, p->after, sums_number(x, h, i));
    linear_sums_clear(x, back);
    for (int64_t t = g.end; t-- > g.begin;) {
        const struct chunk c = linear_chunk(x, g.s, h, t);
        linear_keys(x, &c, false, back, &r->k);
        absorb_back(x, &c, r, back);
    }
}

/* What sums of segments shrink by over one of them. */
static float segment_decay(const struct linear *x, int64_t h, const struct segment *g)
{
    if (!x->l->decays) return 1;
    return (float)pow(x->decay[h].lam, (double)((g->end - g->begin) * CHUNK));
}

/* In place of the sums of segment i, those of all segments before it (or after it, if the
 * caller goes backward), which are in r->s. */
static void pass_on(const struct linear *x, struct sums_of all, int64_t h, int64_t i,
                    struct room *r)
{
    const struct segment g = linear_segment(x, i);
    const struct sums_of s = linear_sums_at(x, all, sums_number(x, h, i));

    linear_sums_copy(x, r->next, r->s);
    linear_sums_add(x, r->next, segment_decay(x, h, &g), s);
    linear_sums_copy(x, s, r->s);
    linear_sums_copy(x, r->s, r->next);
}

/* Sums along the sequence; where order does not matter, of all of it in its first. */
static void join_segments(const struct pass *p, int64_t h, int64_t seq, struct room *r)
{
    const struct linear *x = p->x;
    const int64_t        i0 = x->seqs[seq].seg0, n = x->seqs[seq].n_segs;

    if (!x->causal && !p->both) {
        for (int64_t i = 1; i < n; i++)
            linear_sums_add(x, linear_sums_at(x, p->before, sums_number(x, h, i0)), 1,
                            linear_sums_at(x, p->before, sums_number(x, h, i0 + i)));
        return;
    }
    linear_sums_clear(x, r->s);
    for (int64_t i = 0; i < n; i++)
        pass_on(x, p->before, h, i0 + i, r);
    if (!p->both) return;
    linear_sums_clear(x, r->s);
    for (int64_t i = n; i-- > 0;)
        pass_on(x, p->after, h, i0 + i, r);
}

/* Rows of a segment by the sums of the whole sequence. */
static void ask_segment(const struct pass *p, int64_t h, int64_t i, struct room *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);
    const struct sums_of s =
        linear_sums_at(x, p->before, sums_number(x, h, x->seqs[g.s].seg0));

    r->sums.f = s.rows;
    across_pack(x, &r->sums, x->m_pad);
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct chunk c = linear_chunk(x, g.s, h, t);
        const struct chunk next = linear_chunk(x, g.s, h, t + 1);

        if (c.r0 >= c.r1) continue;
        if (linear_whole(x, &c, LINEAR_ROWS, s, t + 1 < g.end ? &next : NULL, p->saved,
                         r->whole))
            continue;
        linear_queries(x, &c, s, NULL, &r->q);
        ask_sums(x, r, s, true, NULL, lanes_of(&c), 0);
        finish(p, &c, r);
    }
}

/* Decay both ways: what comes after each chunk of the segment, then its rows. */
static void ask_both_ways(const struct pass *p, int64_t h, int64_t i, struct room *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);
    _Alignas(64) float   by[CHUNK];

    linear_sums_copy(x, r->next, linear_sums_at(x, p->after, sums_number(x, h, i)));
    for (int64_t t = g.end; t-- > g.begin;) {
        const struct chunk c = linear_chunk(x, g.s, h, t);

        linear_sums_copy(x, linear_sums_at(x, r->after, t - g.begin), r->next);
        linear_keys(x, &c, false, r->next, &r->k);
        absorb_back(x, &c, r, r->next);
    }
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct chunk   c = linear_chunk(x, g.s, h, t);
        const struct sums_of after = linear_sums_at(x, r->after, t - g.begin);

        linear_keys(x, &c, false, r->s, &r->k);
        linear_show(x, &c, &r->k);
        linear_queries(x, &c, r->s, NULL, &r->q);
        ask_sums(x, r, r->s, false, fade_before(x, &c, by), lanes_of(&c), 0);
        ask_sums(x, r, after, false, fade_after(x, &c, by), lanes_of(&c), 1);
        ask_keys(x, &c, r);
        finish(p, &c, r);
        linear_absorb(x, &c, &r->k, r->s);
    }
}

static void run_segment(const struct pass *p, int64_t h, int64_t i, struct room *r)
{
    const struct linear *x = p->x;
    const struct segment g = linear_segment(x, i);

    if (!x->causal && !p->both) {
        ask_segment(p, h, i, r);
        return;
    }
    linear_sums_copy(x, r->s, linear_sums_at(x, p->before, sums_number(x, h, i)));
    if (p->both) {
        ask_both_ways(p, h, i, r);
        return;
    }
    for (int64_t t = g.begin; t < g.end; t++) {
        const struct chunk c = linear_chunk(x, g.s, h, t);
        const struct chunk next = linear_chunk(x, g.s, h, t + 1);

        expect(x, t + 1 < g.end ? &next : NULL, r);
        scan_chunk(p, &c, r);
    }
}

/* Heads h0 to h0 + n, which take turns. */
static void scan(const struct pass *p, int64_t h0, int64_t n, int64_t s, struct room *r)
{
    const struct linear *x = p->x;
    const int64_t        end = x->seqs[s].n_chunks * n;

    for (int64_t i = 0; i < n; i++)
        linear_sums_clear(x, linear_sums_at(x, r->scans, i));
    for (int64_t i = 0; i < end; i++) {
        const struct chunk c = linear_chunk(x, s, h0 + i % n, i / n);
        const struct chunk next = linear_chunk(x, s, h0 + (i + 1) % n, (i + 1) / n);

        expect(x, i + 1 < end ? &next : NULL, r);
        r->s = linear_sums_at(x, r->scans, i % n);
        scan_chunk(p, &c, r);
    }
}

static struct room room_of(const struct linear *x, int thread)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    return room_take(x, &mine);
}

static void sum_job(void *arg, int64_t i, int thread)
{
    const struct pass   *p = arg;
    const struct linear *x = p->x;
    struct room          room = room_of(x, thread);

    sum_segment(p, i / x->n_segs, i % x->n_segs, &room);
}

static void join_job(void *arg, int64_t i, int thread)
{
    const struct pass   *p = arg;
    const struct linear *x = p->x;
    struct room          room = room_of(x, thread);

    join_segments(p, i / x->n_seqs, i % x->n_seqs, &room);
}

static void segment_job(void *arg, int64_t i, int thread)
{
    const struct pass   *p = arg;
    const struct linear *x = p->x;
    struct room          room = room_of(x, thread);

    run_segment(p, i / x->n_segs, i % x->n_segs, &room);
}

/* How many heads go side by side: as many as leave every thread its share, which is
 * nothing that results depend on. */
static int64_t abreast(const struct linear *x)
{
    const int64_t share = x->heads * x->n_seqs / x->threads;
    return max64(1, min64(min64(share, MOST_ABREAST), x->heads));
}

static void scan_job(void *arg, int64_t i, int thread)
{
    const struct pass   *p = arg;
    const struct linear *x = p->x;
    const int64_t        n = abreast(x), groups = div_up(x->heads, n);
    const int64_t        h0 = i % groups * n;
    struct room          room = room_of(x, thread);

    scan(p, h0, min64(n, x->heads - h0), i / groups, &room);
}

/* Where sequences are summed in segments first; or all of each in one go. */
static void run(struct pass *p, int threads)
{
    const struct linear *x = p->x;
    const int64_t        segments = x->heads * x->n_segs;
    const struct phase scans = { div_up(x->heads, abreast(x)) * x->n_seqs, 1, scan_job,
                                 p };
    const struct phase parts[] = {
        { segments, 1, sum_job, p },
        { x->heads * x->n_seqs, 1, join_job, p },
        { segments, 1, segment_job, p },
    };

    if (p->segments)
        phases_run(x->k, x->plan->shared, threads, parts, 3);
    else
        phases_run(x->k, x->plan->shared, threads, &scans, 1);
}

void linear_forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct linear x;
    struct pass   p;
    struct arena  a = { .base = io->work };

    linear_geometry(&x, plan, s);
    if (!x.max_seqs) return;
    take(&x, io, &p, &a);
    p.saved = saved;
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);

    const int64_t jobs = x.heads * (p.segments ? x.n_segs : x.n_seqs);
    const int     threads = linear_threads(&x, jobs, plan->cost.forward_flops);
    run(&p, threads);
}
