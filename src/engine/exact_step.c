/* exact_step.c -- exact attention of new tokens to what their states hold.
 *
 * Bound by reading keys and values: each page is read once for all rows that share it,
 * the heads of a group and the new tokens.  A sequence is cut into parts of PART pages
 * and its rows into bundles of BUNDLE; each (sequence, key/value head, bundle, part) is
 * a piece of work that leaves sums relative to its own reference, and the parts are
 * merged in order.  The cut depends on lengths alone, so results do not depend on the
 * number of threads.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/exact.h"

enum {
    PART = 16,   /* pages */
    BUNDLE = 64, /* rows */
    FEW = 8      /* rows that kernels take at a time */
};

/* Below this much to read, waking threads costs more than they save. */
static const int64_t alone_bytes = 256 << 10;

/* The rows of a bundle after a part of the pages. */
struct sums {
    float *m, *l, *o; /* [bundle], [bundle], [bundle][ldo] */
};

struct cutting {
    int64_t bundles, parts; /* of one sequence and head */
    int64_t first;          /* number of its first piece */
};

struct stepping {
    const foci_plan      *plan;
    int                   g;
    const struct stage   *stage;
    const struct step    *step;
    const struct kernels *k;
    const foci_mech      *mech;
    int                   kind, dq, dv, ldq, ldo;
    bool                  bf16;
    int64_t               per_kv, kv_heads, bundle;
    struct cutting       *cut; /* [n_seqs] */
    int64_t               pieces;
    float                *sums; /* [pieces][bundle][ldo + 2] */
    char                 *scratch;
    size_t                scratch_bytes;
};

/* Scratch of one thread: one bundle. */
struct room {
    float    *q;       /* [BUNDLE][ldq] */
    uint32_t *words;   /* [BUNDLE][ldq / 2] */
    float    *s;       /* [FEW][LANES] */
    float    *f;       /* [BUNDLE][LANES], each row one number */
    float    *tile;    /* [PAGE][ldo], for pages that are not finite */
    int64_t  *visible; /* [BUNDLE] */
};

static struct room room_take(const struct stepping *x, struct arena *a)
{
    struct room r;

    r.q = arena_take(a, (int64_t)BUNDLE * x->ldq, sizeof *r.q);
    r.words = arena_take(a, (int64_t)BUNDLE * x->ldq / 2, sizeof *r.words);
    r.s = arena_take(a, (int64_t)FEW * LANES, sizeof *r.s);
    r.f = arena_take(a, (int64_t)BUNDLE * LANES, sizeof *r.f);
    r.tile = arena_take(a, (int64_t)PAGE * x->ldo, sizeof *r.tile);
    r.visible = arena_take(a, BUNDLE, sizeof *r.visible);
    return r;
}

static struct stepping geometry(const foci_plan *plan, int g)
{
    const foci_problem *p = &plan->p;
    const struct stage *s = &plan->stages[g];
    struct stepping     x = {
            .plan = plan,
            .g = g,
            .stage = s,
            .k = &plan->ctx->kernels,
            .mech = &s->group->mech,
            .kind = (int)s->group->mech.def->weigh,
            .dq = (int)p->dim_qk,
            .dv = (int)p->dim_v,
            .bf16 = plan->ctx->kernels.has_bf16 && p->dtype == FOCI_BF16,
            .per_kv = s->group->heads / s->group->kv_heads,
    };
    x.ldq = (int)round_up(x.dq, 32);
    x.ldo = (int)round_up(x.dv, 32);
    x.kv_heads = s->group->kv_heads;
    return x;
}

static void take(struct stepping *x, int64_t n_seqs, int64_t pieces, int64_t bundle,
                 struct arena *a)
{
    struct arena one = { 0 };

    x->bundle = round_up(bundle, FEW);
    x->cut = arena_take(a, n_seqs, sizeof *x->cut);
    x->sums = arena_take(a, pieces * x->bundle, (size_t)(x->ldo + 2) * sizeof *x->sums);
    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->plan->ctx->threads, one.used);
}

/* At the most: every sequence as long as the longest, and every row but one of each in
 * a bundle of its own would still be fewer than rows / BUNDLE + sequences. */
static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct stepping x = geometry(pool->plan, g);
    struct arena    a = { 0 };
    const int64_t   rows = tokens * x.per_kv;
    const int64_t   parts = max64(1, div_up(div_up(max_len, PAGE), PART));
    const int64_t   bundles = rows / BUNDLE + n_seqs;

    take(&x, n_seqs, x.kv_heads * bundles * parts, min64(BUNDLE, max64(rows, 1)), &a);
    return a.used;
}

static void cut(struct stepping *x)
{
    for (int64_t i = 0; i < x->step->n_seqs; i++) {
        const struct step_seq *q = &x->step->seqs[i];
        x->cut[i] = (struct cutting){
            .bundles = div_up(q->tokens * x->per_kv, BUNDLE),
            .parts = max64(1, div_up(q->state->tokens.n, PART)),
            .first = x->pieces,
        };
        x->pieces += x->kv_heads * x->cut[i].bundles * x->cut[i].parts;
    }
}

/* A piece of work, or with part 0 all parts of it. */
struct piece {
    const struct step_seq *seq;
    const struct cutting  *cut;
    int64_t                kv, part;
    int64_t                row0; /* of the bundle, among the rows of the head */
    int                    rows;
    int64_t                at; /* number of its part 0 */
};

/* Row r of head kv is token r / per_kv of query head kv per_kv + r % per_kv. */
static struct piece piece_of(const struct stepping *x, int64_t i)
{
    int64_t lo = 0, hi = x->step->n_seqs - 1;

    /* The last sequence that starts at or before i: one without new tokens starts where
     * the next does. */
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (x->cut[mid].first <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    const struct cutting *c = &x->cut[lo];
    const int64_t         in = i - c->first, whole = in / c->parts;
    const int64_t         row0 = whole % c->bundles * BUNDLE;
    const int64_t         rows = x->step->seqs[lo].tokens * x->per_kv;

    return (struct piece){
        .seq = &x->step->seqs[lo],
        .cut = c,
        .kv = whole / c->bundles,
        .part = in % c->parts,
        .row0 = row0,
        .rows = (int)min64(BUNDLE, rows - row0),
        .at = i - in % c->parts,
    };
}

static struct sums sums_of(const struct stepping *x, int64_t i)
{
    float *at = x->sums + i * x->bundle * (x->ldo + 2);
    return (struct sums){ at + x->bundle * x->ldo, at + x->bundle * x->ldo + x->bundle,
                          at };
}

static int64_t head_of(const struct stepping *x, const struct piece *p, int r)
{
    return x->stage->group->head0 + p->kv * x->per_kv + (p->row0 + r) % x->per_kv;
}

/* Where row r stands in its sequence, and where it lies in q and o. */
static int64_t place_of(const struct stepping *x, const struct piece *p, int r)
{
    return p->seq->state->len - p->seq->tokens + (p->row0 + r) / x->per_kv;
}

static size_t row_of(const struct stepping *x, const struct piece *p, int r)
{
    const int64_t token = p->seq->row0 + (p->row0 + r) / x->per_kv;
    return (size_t)(token * x->plan->p.heads + head_of(x, p, r));
}

/* Keys of page t that row r sees. */
static uint64_t seen_by(const struct stepping *x, int64_t place, int64_t t)
{
    const uint64_t seen = foci_bits_in((foci_range){ 0, place + 1 }, t * PAGE);
    return seen && x->mech->def->mask
               ? seen & x->mech->def->mask(x->mech, place, t * PAGE)
               : seen;
}

static int64_t count_visible(const struct stepping *x, int64_t place)
{
    int64_t n = 0;

    if (!x->mech->def->mask) return place + 1;
    for (int64_t t = 0; t * PAGE <= place; t++)
        for (uint64_t seen = seen_by(x, place, t); seen; seen &= seen - 1)
            n++;
    return n;
}

/* The factor of q.k of a row, without the base of the exponent. */
static double factor_of(const struct stepping *x, int64_t h, int64_t visible)
{
    const struct score *s = &x->stage->score;
    double              f = s->scale;

    for (int i = 0; i < s->n_factors; i++)
        f *= (double)x->step->io->params[s->factor[i] + h - x->stage->group->head0];
    for (int i = 0; i < s->n_rows; i++)
        f *= s->row[i]->def->row_factor(s->row[i], visible);
    return f;
}

static void load_queries(const struct stepping *x, const struct piece *p, struct room *r)
{
    const foci_problem *pr = &x->plan->p;
    const size_t        el = foci_dtype_bytes(pr->dtype);

    for (int i = 0; i < (int)round_up(p->rows, FEW); i++) {
        float *q = r->q + (int64_t)i * x->ldq;
        if (i >= p->rows) {
            memset(q, 0, (size_t)x->ldq * sizeof *q);
            memset(r->words + (int64_t)i * x->ldq / 2, 0, (size_t)x->ldq * 2);
            continue;
        }
        x->k->load_rows(q, x->ldq,
                        (const char *)x->step->io->q +
                            row_of(x, p, i) * (size_t)x->dq * el,
                        x->dq, (int)pr->dtype, 1, x->dq);
        if (x->stage->score.unit) {
            float norm;
            x->k->row_dot(&norm, q, q, x->ldq, 1, x->dq);
            norm = fmaxf(sqrtf(norm), 1e-12f);
            for (int c = 0; c < x->dq; c++)
                q[c] /= norm;
        }
        if (x->bf16)
            x->k->store_rows(r->words + (int64_t)i * x->ldq / 2, x->ldq, FOCI_BF16, q,
                             x->ldq, 1.0f, 1, x->ldq);
        r->visible[i] = count_visible(x, place_of(x, p, i));
        const float f = (float)factor_of(x, head_of(x, p, i), r->visible[i]);
        for (int j = 0; j < LANES; j++)
            r->f[(int64_t)i * LANES + j] = f;
    }
}

/* Values that are not finite reach only the rows that see them. */
static void careful_sums(const struct stepping *x, const char *v, int n, int rows,
                         const uint64_t *seen, const float *w, float *tile, float *o)
{
    x->k->load_rows(tile, x->ldo, v, x->dv, (int)x->plan->p.dtype, n, x->dv);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++)
            for (int c = 0; seen[r] >> j & 1 && c < x->dv; c++)
                o[(int64_t)r * x->ldo + c] +=
                    w[r * LANES + j] * tile[(int64_t)j * x->ldo + c];
}

static bool finite(const struct stepping *x, const char *v, int n, float *tile)
{
    _Alignas(64) float square[PAGE];
    bool               all = true;

    x->k->load_rows(tile, x->ldo, v, x->dv, (int)x->plan->p.dtype, n, x->dv);
    x->k->row_dot(square, tile, tile, x->ldo, n, x->dv);
    for (int j = 0; j < n; j++)
        all = all && isfinite(square[j]);
    return all;
}

/* Rows first to first + rows (at most FEW) of the bundle against n keys of a page. */
static void meet(const struct stepping *x, const struct piece *p, struct room *r,
                 int64_t t, int n, int first, int rows, const struct sums *sums,
                 const char *next)
{
    const foci_pool *pool = x->step->pool;
    const int64_t    page = stream_page(&p->seq->state->tokens, t);
    const char      *k = pool_keys(pool, x->g, page, p->kv, 0);
    const char      *v = pool_values(pool, x->g, page, p->kv);
    const int        dtype = (int)x->plan->p.dtype;
    const double     unit = x->kind == FOCI_RELU2 ? 1 : LOG2_E;
    const float      cap = (float)x->stage->score.cap;
    const uint64_t   there = foci_bits_in((foci_range){ 0, n }, 0);
    float           *o = sums->o + (int64_t)first * x->ldo;
    uint64_t         seen[FEW], some = 0, every = ~UINT64_C(0);
    const char      *after = next ? next + (v - k) : NULL;

    for (int i = 0; i < rows; i++) {
        seen[i] = seen_by(x, place_of(x, p, first + i), t) & there;
        some |= seen[i];
        every &= seen[i];
    }
    if (!some) return;
    if (x->bf16)
        x->k->dots_bf16(r->s, r->words + (int64_t)first * x->ldq / 2, x->ldq / 2, rows,
                        (const void *)k, x->dq, n, x->dq, next);
    else
        x->k->dots_f32(r->s, r->q + (int64_t)first * x->ldq, x->ldq, rows, k, x->dq,
                       dtype, n, x->dq, next);
    for (int i = 0; i < rows; i++) {
        float       *s = r->s + (int64_t)i * LANES;
        const float *f = r->f + (int64_t)(first + i) * LANES;
        float        by = (float)((double)f[0] * unit);

        if (cap > 0 || seen[i] != ~UINT64_C(0)) {
            x->k->modify(s, 1, f, (float)unit, cap, NULL, 0, &seen[i]);
            by = 1;
        }
        const float shrink =
            x->k->weigh_row(s, by, &sums->m[first + i], &sums->l[first + i], x->kind);
        for (int c = 0; shrink != 1 && c < x->dv; c++)
            o[(int64_t)i * x->ldo + c] *= shrink;
    }
    if (every != there && !finite(x, v, n, r->tile))
        careful_sums(x, v, n, rows, seen, r->s, r->tile, o);
    else if (x->bf16)
        x->k->sums_bf16(o, x->ldo, r->s, rows, (const void *)v, x->dv, n, x->dv, after);
    else
        x->k->sums_f32(o, x->ldo, r->s, rows, v, x->dv, dtype, n, x->dv, after);
}

static void do_piece(const struct stepping *x, int64_t i, struct room *r)
{
    const struct piece p = piece_of(x, i);
    const struct sums  sums = sums_of(x, i);
    const foci_state  *s = p.seq->state;
    const int64_t      end = min64(s->tokens.n, (p.part + 1) * PART);

    load_queries(x, &p, r);
    memset(sums.o, 0, (size_t)(x->bundle * x->ldo) * sizeof *sums.o);
    for (int row = 0; row < p.rows; row++) {
        sums.m[row] = -INFINITY;
        sums.l[row] = 0;
    }
    for (int64_t t = p.part * PART; t < end; t++) {
        const int   n = (int)min64(PAGE, s->len - t * PAGE);
        const char *next = t + 1 < end
                               ? pool_keys(x->step->pool, x->g,
                                           stream_page(&s->tokens, t + 1), p.kv, 0)
                               : NULL;
        for (int row = 0; row < p.rows; row += FEW)
            meet(x, &p, r, t, n, row, (int)min64(FEW, p.rows - row), &sums,
                 row ? NULL : next);
    }
}

/* Bring the parts of a row to their largest reference, add them up in order, and
 * divide by the normaliser. */
static void merge_row(const struct stepping *x, const struct piece *p, int r, float *o)
{
    const int64_t h = head_of(x, p, r), sink = x->stage->score.sink;
    double        m = -INFINITY, l = 0, by;

    if (sink >= 0)
        m = (double)x->step->io->params[sink + h - x->stage->group->head0] * LOG2_E;
    const double floor = m;
    for (int64_t t = 0; t < p->cut->parts; t++)
        m = fmax(m, (double)sums_of(x, p->at + t).m[r]);
    memset(o, 0, (size_t)x->ldo * sizeof *o);
    if (floor > -INFINITY) l = exp2(floor - m);
    for (int64_t t = 0; t < p->cut->parts; t++) {
        const struct sums s = sums_of(x, p->at + t);
        const double      far = (double)s.m[r] - m;
        if (x->kind != FOCI_RELU2 && s.m[r] == -INFINITY && s.l[r] == 0) continue;
        by = x->kind == FOCI_RELU2 ? 1 : exp2(far);
        l += (double)s.l[r] * (x->kind == FOCI_L2NORM ? by * by : by);
        for (int c = 0; c < x->dv; c++)
            o[c] += (float)by * s.o[(int64_t)r * x->ldo + c];
    }
    by = l == 0 ? 0 : 1 / (x->kind == FOCI_L2NORM ? sqrt(l) : l);
    if (x->kind == FOCI_RELU2) {
        const foci_mech_def *def = x->mech->def;
        const double         n = def->count ? def->count(x->mech) : 0;
        const int64_t        visible = count_visible(x, place_of(x, p, r));
        by = visible ? 1 / (n > 0 ? n : (double)visible) : 0;
    }
    for (int c = 0; c < x->dv; c++)
        o[c] *= (float)by;
}

static void merge(const struct stepping *x, int64_t i, struct room *r)
{
    const struct piece p = piece_of(x, i);
    const size_t       el = foci_dtype_bytes(x->plan->p.dtype);

    if (p.part) return;
    for (int row = 0; row < p.rows; row++) {
        merge_row(x, &p, row, r->tile);
        x->k->store_rows((char *)x->step->io->o +
                             row_of(x, &p, row) * (size_t)x->dv * el,
                         x->dv, (int)x->plan->p.dtype, r->tile, x->ldo, 1.0f, 1, x->dv);
    }
}

/* What there is to read, to decide whether threads are worth it. */
static int64_t bytes_to_read(const struct stepping *x)
{
    int64_t pages = 0;
    for (int64_t i = 0; i < x->step->n_seqs; i++)
        if (x->step->seqs[i].tokens) pages += x->step->seqs[i].state->tokens.n;
    return pages * (int64_t)x->step->pool->parts[x->g].head_bytes * x->kv_heads;
}

static void step_all(const struct step *step, int g, struct arena work)
{
    struct stepping x = geometry(step->pool->plan, g);
    int64_t         pieces = 0;

    x.step = step;
    for (int64_t i = 0; i < step->n_seqs; i++)
        pieces += x.kv_heads * div_up(step->seqs[i].tokens * x.per_kv, BUNDLE) *
                  max64(1, div_up(step->seqs[i].state->tokens.n, PART));
    take(&x, step->n_seqs, pieces, min64(BUNDLE, max64(step->max_tokens * x.per_kv, 1)),
         &work);
    cut(&x);

    const int threads = bytes_to_read(&x) < alone_bytes ? 1 : x.plan->ctx->threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena mine = { .base = x.scratch +
                                      (size_t)exact_thread() * x.scratch_bytes };
        struct room  room = room_take(&x, &mine);

        if (x.k->begin) x.k->begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < x.pieces; i++)
            do_piece(&x, i, &room);
#pragma omp for schedule(dynamic, 4)
        for (int64_t i = 0; i < x.pieces; i++)
            merge(&x, i, &room);
        if (x.k->end) x.k->end();
    }
}

/* One key as scores want it. */
static void store_key(const struct stepping *x, char *to, const char *from)
{
    const int          d = x->dq, dtype = (int)x->plan->p.dtype;
    const size_t       el = foci_dtype_bytes(x->plan->p.dtype);
    _Alignas(64) float part[256];
    double             sum = 0;

    if (!x->stage->score.unit) {
        memcpy(to, from, (size_t)d * el);
        return;
    }
    for (int c = 0; c < d; c += 256) {
        const int n = (int)min64(256, d - c);
        x->k->load_rows(part, 256, from + (size_t)c * el, d, dtype, 1, n);
        for (int i = 0; i < n; i++)
            sum += (double)part[i] * (double)part[i];
    }
    const float by = (float)(1 / fmax(sqrt(sum), 1e-12));
    for (int c = 0; c < d; c += 256) {
        const int n = (int)min64(256, d - c);
        x->k->load_rows(part, 256, from + (size_t)c * el, d, dtype, 1, n);
        x->k->store_rows(to + (size_t)c * el, d, dtype, part, 256, by, 1, n);
    }
}

static void append_seq(const struct stepping *x, const struct step_seq *seq)
{
    const foci_pool    *pool = x->step->pool;
    const foci_step_io *io = x->step->io;
    const size_t        el = foci_dtype_bytes(x->plan->p.dtype);
    const size_t        k = (size_t)x->dq * el, v = (size_t)x->dv * el;

    for (int64_t t = 0; t < seq->tokens; t++) {
        const int64_t j = seq->state->len - seq->tokens + t;
        const int64_t page = stream_page(&seq->state->tokens, j / PAGE);
        for (int64_t h = 0; h < x->kv_heads; h++) {
            const int64_t row =
                (seq->row0 + t) * x->plan->p.kv_heads + x->stage->group->kv0 + h;
            store_key(x, pool_keys(pool, x->g, page, h, 0) + (size_t)(j % PAGE) * k,
                      (const char *)io->k + (size_t)row * k);
            memcpy(pool_values(pool, x->g, page, h) + (size_t)(j % PAGE) * v,
                   (const char *)io->v + (size_t)row * v, v);
        }
    }
}

static void append(const struct step *step, int g)
{
    struct stepping x = geometry(step->pool->plan, g);

    x.step = step;
    for (int64_t i = 0; i < step->n_seqs; i++)
        append_seq(&x, &step->seqs[i]);
}

const struct decoder exact_decoder = {
    .paged = true,
    .append = append,
    .step_bytes = step_bytes,
    .step = step_all,
};
