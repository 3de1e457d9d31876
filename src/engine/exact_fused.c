/* exact_fused.c -- blocks of queries on attend_bf16: operands, references, lists of groups.
 *
 * References are whole numbers.  What a row comes to does not depend on them then, but for
 * weights so small that they are 0, and so not on the other rows of the block or on keys
 * that it does not see.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact_fused.h"
#include "engine/exact_pack.h"
#include "engine/exact_score.h"
#include "engine/exact_shaw.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"
#include "engine/exact_txl.h"

enum {
    GROUPS = TILE / ATTEND_KEYS,     /* of a tile */
    STRIPE = ATTEND_GROUPS / GROUPS, /* tiles */
};

/* Logits that a fixed reference is good for, and those that any is. */
static const float held_most = 30, logit_most = 0x1p20f;

/* Norms are rounded, as products are. */
static const float slack = 1.0001f;

/* Rows that are multiplied by matrices (lowrank) keep the separate kernels: with this one
 * a gradient beside a row that is not finite moved by more than mech/nonfinite allows.  The
 * cause is not known; the rounding of the saved normaliser is suspected. */
static bool fits(const struct exact *x)
{
    return x->k->attends && x->bf16 && x->kind == FOCI_SOFTMAX && x->dq && x->dv &&
           !x->bare && !x->drops && !x->stage->n_levels && !x->stage->order.label &&
           x->score->cap <= 0 && !x->score->slope && !x->score->n_tables &&
           !exact_biased(x) && !exact_has_shaw(x) && !exact_has_txl(x) &&
           !exact_source_scores(x) && !exact_projects(x);
}

/* Keys and values of more than one stripe may not stay in the second level of the cache:
 * several blocks go down each stripe, one after the other, before the next. */
void exact_fused_geometry(struct exact *x)
{
    x->fused = fits(x);
    if (x->fused && x->support->all && x->p->len_k > (int64_t)STRIPE * TILE)
        x->together = FUSED_BLOCKS;
}

static int64_t most_groups(const struct exact *x)
{
    return min64(ATTEND_GROUPS, div_up(x->p->len_k, TILE) * GROUPS);
}

struct fused exact_fused_take(const struct exact *x, struct arena *a)
{
    const int64_t n = most_groups(x), rows = (int64_t)x->together * LANES;
    struct fused  f = { 0 };

    if (!x->fused) return f;
    f.q = arena_take(a, rows * x->dq_pad, sizeof(uint16_t));
    f.o = arena_take(a, rows * x->ldv, sizeof *f.o);
    f.p = arena_take(a, n * LANES, ATTEND_KEYS * sizeof(uint16_t));
    f.group = arena_take(a, n, sizeof *f.group);
    f.seen = arena_take(a, n * LANES, sizeof *f.seen);
    return f;
}

/* Columns of values as they are packed. */
static int value_width(const struct exact *x) { return (int)round_up(x->dv, 16); }

/* Rows of bf16 as they are given, or of floats that were loaded and are rounded. */
struct stored {
    const uint16_t *at;
    int64_t         ld;
};

static struct stored rounded(const struct exact *x, const float *tile, int ld, int n,
                             int d, void *room)
{
    x->k->store_rows(room, ld, FOCI_BF16, tile, ld, 1.0f, n, d);
    return (struct stored){ room, ld };
}

unsigned exact_fused_pack(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t, size_t at, float *tile, float *room)
{
    const int     n = exact_keys_in(s, t);
    const bool    direct = exact_as_stored(x);
    struct stored rows;
    unsigned      bad = 0;

    if (direct) {
        rows = (struct stored){ exact_stored_tile(x, s, kv, t, x->io->k, &x->p->k),
                                x->p->k.row };
        x->k->squares_bf16(x->norms + at * TILE, rows.at, rows.ld, n, x->dq);
    } else {
        exact_load_keys(x, s, kv, t, tile, room);
        x->k->row_dot(x->norms + at * TILE, tile, tile, x->ldq, n, x->dq);
        rows = rounded(x, tile, x->ldq, n, x->dq, room);
    }
    if (!exact_measure_keys(x, n, at)) bad |= BAD_KEY;
    x->k->attend_keys((void *)(x->keys + at * x->key_size), rows.at, rows.ld, n, x->dq,
                      x->dq_pad);

    if (direct) {
        rows = (struct stored){ exact_stored_tile(x, s, kv, t, x->io->v, &x->p->v),
                                x->p->v.row };
    } else {
        exact_load_values(x, s, kv, t, tile, room);
        rows = rounded(x, tile, x->ldv, n, x->dv, room);
    }
    if (exact_minds_values(x) && !exact_finite_stored(x, rows.at, rows.ld, x->dv, n))
        bad |= BAD_VALUE;
    x->k->attend_values((void *)(x->values_sum + at * x->value_size), rows.at, rows.ld,
                        n, x->dv, value_width(x));
    return bad;
}

/* Queries as rows of words, and the squares of their norms. */
static void pack_queries(const struct exact *x, const struct block *b, uint32_t *words,
                         float *tile, float *squares)
{
    struct mapped mapped;

    memset(squares, 0, LANES * sizeof *squares);
    if (exact_as_stored(x)) {
        int64_t         ld;
        const uint16_t *q =
            exact_stored_block(x, b, x->io->q, &x->p->q, x->dq, tile, &ld);

        x->k->squares_bf16(squares, q, ld, b->r1, x->dq);
        x->k->take_rows_bf16(words, q, ld, b->r1, x->dq, x->dq_pad);
    } else {
        exact_load_queries(x, b, tile, &mapped);
        x->k->row_dot(squares, tile, tile, x->ldq, LANES, x->dq);
        x->k->pack_rows_bf16(words, tile, x->ldq, LANES, x->dq_pad);
    }
}

/* The norm of the longest key among the tiles of the block; infinite where something in
 * them is not finite. */
static float longest_met(const struct exact *x, const struct block *b)
{
    const int64_t first = b->kv * x->max_kt + b->seq->kt0;
    struct walk   w = exact_walk_keys(x, b);
    int64_t       t;
    int32_t       mask;
    float         top = 0;

    while (exact_next(&w, &t, &mask)) {
        if (x->bad_k[first + t]) return INFINITY;
        if (x->top[first + t] > top) top = x->top[first + t];
    }
    return top;
}

/* The largest absolute value of LANES numbers; NaN if one is. */
static float largest(const float *x)
{
    float top = 0;

    for (int r = 0; r < LANES; r++)
        if (fabsf(x[r]) > top || isnan(x[r])) top = fabsf(x[r]);
    return top;
}

static float reference_above(float bound) { return (float)((int)bound + 1); }

/* Where rows start.  |q||k| bounds a row's logits: a small bound is its reference, and no
 * other will do better.  Other rows start from the sink, or from nothing. */
static bool start_rows(const struct exact *x, const struct block *b, const float *by,
                       const float *squares, float met, float sink, float *m)
{
    float longest[LANES];
    bool  held = true;

    for (int r = 0; r < LANES; r++)
        longest[r] = met;
    if (x->support->all) exact_longest_keys(x, b, longest);
    for (int r = 0; r < LANES; r++) {
        const float bound = fabsf(by[r]) * sqrtf(squares[r]) * longest[r] * slack;
        const bool  small = bound <= held_most && sink - bound <= held_most;

        m[r] = small ? reference_above(bound) : ceilf(sink);
        held = held && small;
    }
    return held;
}

/* One reference for all rows, where the largest bound is small enough: what they come to
 * does not depend on it.  false: some logits may be out of range. */
static bool start(const struct exact *x, const struct block *b, const float *by,
                  const float *squares, float sink, float *m, bool *held)
{
    const float met = longest_met(x, b);
    const float bound = largest(by) * sqrtf(largest(squares)) * met * slack;

    if (!(bound <= logit_most && sink <= logit_most)) return false;
    *held = bound <= held_most && sink == -INFINITY;
    for (int r = 0; r < LANES && *held; r++)
        m[r] = reference_above(bound);
    if (!*held) *held = start_rows(x, b, by, squares, met, sink, m);
    return true;
}

/* The groups of a tile, after n of the list. */
static int add_groups(const struct exact *x, const struct block *b, int64_t t,
                      int32_t mask, const struct fused *f, int n)
{
    const size_t    at = (size_t)(b->kv * x->max_kt + b->seq->kt0 + t);
    const int       all = exact_keys_in(b->seq, t);
    const uint32_t *keys = (const void *)(x->keys + at * x->key_size);
    const uint32_t *values = (const void *)(x->values_sum + at * x->value_size);
    uint32_t       *seen = f->seen + (int64_t)n * LANES;
    uint64_t        lanes[TILE];
    const bool      masked = exact_seen(x, b, t, mask, all, lanes);

    if (masked) x->k->seen_rows(seen, lanes, all);
    for (int left = all; left > 0; left -= ATTEND_KEYS, n++, seen += LANES) {
        const bool whole = left >= ATTEND_KEYS;

        f->group[n] =
            (struct attend_group){ keys, values, masked || !whole ? seen : NULL };
        keys += (int64_t)x->dq_pad * ATTEND_KEYS / 2;
        values += (int64_t)value_width(x) * ATTEND_KEYS / 2;
        for (int r = 0; r < LANES && !masked && !whole; r++)
            seen[r] = (UINT32_C(1) << left) - 1;
    }
    return n;
}

/* A block on its way down its keys. */
struct passage {
    const struct block *b;
    struct attend       a;
    struct walk         w;
    int64_t             t; /* the next tile, and its mask; -1: there is none */
    int32_t             mask;
    float               sink;
    _Alignas(64) float by[LANES], m[LANES], l[LANES];
};

static void next_tile(struct passage *p)
{
    if (!exact_next(&p->w, &p->t, &p->mask)) p->t = -1;
}

/* Ask for the rows of a block, to be read or written: they are apart, and would be waited
 * for one after the other. */
static void ask_rows(const struct exact *x, const struct block *b, const void *base,
                     const foci_layout *l, int d, const bool to_write)
{
    enum { LINE = 64 };
    const int64_t size = (int64_t)foci_dtype_bytes(x->p->dtype);
    const char   *row = (const char *)base +
                      (b->seq->s.b * l->batch +
                       (b->seq->s.q0 + b->i0 + b->r0) * l->row + b->h * l->head) *
                          size;

    for (int r = b->r0; r < b->r1; r++, row += l->row * size)
        for (int64_t c = 0; c < d * size; c += LINE)
            if (to_write)
                __builtin_prefetch(row + c, 1, 1);
            else
                __builtin_prefetch(row + c, 0, 3);
}

/* From scores to logits of base 2. */
static void factors(const struct exact *x, const struct block *b, float *by)
{
    const float common = (float)(exact_head_scale(x, b->h) * LOG2_E);
    int64_t     visible[LANES];
    float       plain[LANES];

    for (int r = 0; r < LANES; r++)
        by[r] = common;
    if (!x->score->n_rows) return;
    exact_visible(x, b, visible);
    exact_factors(x, b, visible, plain, by, NULL);
}

/* false: the block has to go the long way. */
static bool open_block(const struct exact *x, struct passage *p, const struct fused *f,
                       int64_t number, float *tile)
{
    const struct block *b = p->b;
    uint32_t *const     q = f->q + number * LANES * x->dq_pad / 2;
    _Alignas(64) float  squares[LANES];

    p->a = (struct attend){
        .q = q,
        .dq = x->dq_pad,
        .dv = value_width(x),
        .group = f->group,
        .f = p->by,
        .m = p->m,
        .o = f->o + number * LANES * x->ldv,
        .ldo = x->ldv,
        .l = p->l,
        .p = f->p,
    };
    ask_rows(x, b, x->io->q, &x->p->q, x->given, false);
    ask_rows(x, b, x->io->o, &x->p->o, x->dv, true);
    p->sink = -INFINITY;
    if (x->score->sink >= 0)
        p->sink = x->io->params[x->score->sink + b->h - x->head0] * (float)LOG2_E;
    factors(x, b, p->by);
    pack_queries(x, b, q, tile, squares);
    if (!start(x, b, p->by, squares, p->sink, p->m, &p->a.held)) return false;
    p->w = exact_walk_keys(x, b);
    p->t = -1;
    if (exact_wanted(x, b)) next_tile(p);
    return true;
}

/* The tiles before number `end`, as many as go into one call. */
static void attend(const struct exact *x, struct passage *p, const struct fused *f,
                   int64_t end)
{
    const int64_t most = most_groups(x);

    p->a.n = 0;
    for (; p->t >= 0 && p->t < end && p->a.n + GROUPS <= most; next_tile(p))
        p->a.n = add_groups(x, p->b, p->t, p->mask, f, p->a.n);
    if (!p->a.n && p->a.add) return;
    x->k->attend_bf16(&p->a);
    p->a.add = true;
}

static void close_block(const struct exact *x, struct passage *p, float *saved)
{
    _Alignas(64) float factor[LANES];

    for (int r = 0; r < LANES; r++) {
        if (p->sink > -INFINITY) p->l[r] += exp2f(p->sink - p->m[r]);
        factor[r] = p->l[r] == 0 ? 0 : 1 / p->l[r];
    }
    if (saved || x->io->lse) exact_keep_norms(x, p->b, p->m, p->l, factor, saved);
    exact_store_rows_by(x, p->b, x->io->o, &x->p->o, p->a.o, factor);
}

/* Where blocks go together the stripes are those of the keys. */
unsigned exact_fused_blocks(const struct exact *x, const struct block *b, int n,
                            struct fused *f, float *tile, float *saved)
{
    struct passage p[FUSED_BLOCKS];
    unsigned       done = 0;
    bool           more = true;

    for (int i = 0; i < n; i++) {
        p[i].b = &b[i];
        if (open_block(x, &p[i], f, i, tile)) done |= 1u << i;
    }
    for (int64_t end = n > 1 ? STRIPE : INT64_MAX; more; end += n > 1 ? STRIPE : 0) {
        more = false;
        for (int i = 0; i < n; i++) {
            if (!(done >> i & 1)) continue;
            attend(x, &p[i], f, end);
            more = more || p[i].t >= 0;
        }
    }
    for (int i = 0; i < n; i++)
        if (done >> i & 1) close_block(x, &p[i], saved);
    return done;
}
