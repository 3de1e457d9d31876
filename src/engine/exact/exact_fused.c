/* exact_fused.c -- blocks of queries on the kernel attend_bf16: operands, references,
 * lists of groups of keys.
 *
 * References are whole numbers, so the result of a row does not depend on them, except
 * that very small weights become 0: a row does not depend on other rows of its block,
 * nor on keys that it does not see.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/exact/exact_fused.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_shaw.h"
#include "engine/exact/terms/exact_txl.h"

enum {
    GROUPS = TILE / ATTEND_KEYS,     /* of a tile */
    STRIPE = ATTEND_GROUPS / GROUPS, /* tiles */
};

/* Largest logits, in base 2, for a fixed reference, and for any. */
static const float held_most = 30, logit_most = 0x1p20f;

/* Allows for the rounding of norms and products. */
static const float slack = 1.0001f;

static bool fits(const struct exact *x)
{
    return x->k->attends && x->bf16 && x->kind == FOCI_WEIGH_SOFTMAX && x->d.q &&
           x->d.v && !x->slots_only && !x->dropout.on && !x->stage->n_levels &&
           !x->stage->order.label && x->score->cap <= 0 && !x->score->slope &&
           !x->score->n_tables && !exact_has_bias(x) && !exact_has_shaw(x) &&
           !exact_has_txl(x) && !exact_source_scores(x);
}

/* Keys and values of more than one stripe may not stay in the L2 cache, so several
 * blocks go down each stripe, one after the other, before the next stripe. */
void exact_fused_geometry(struct exact *x)
{
    x->fused = fits(x);
    if (x->fused && x->support->all && x->p->len_k > (int64_t)STRIPE * TILE)
        x->fused_blocks = FUSED_BLOCKS;
}

static int64_t most_groups(const struct exact *x)
{
    return min64(ATTEND_GROUPS, div_up(x->p->len_k, TILE) * GROUPS);
}

struct fused_scratch exact_fused_scratch(const struct exact *x, struct arena *a)
{
    const int64_t        n = most_groups(x), rows = (int64_t)x->fused_blocks * LANES;
    struct fused_scratch f = { 0 };

    if (!x->fused) return f;
    f.q = arena_alloc(a, rows * x->d.q_pad, sizeof(uint16_t));
    f.o = arena_alloc(a, rows * x->d.ldv, sizeof *f.o);
    f.p = arena_alloc(a, n * LANES, ATTEND_KEYS * sizeof(uint16_t));
    f.group = arena_alloc(a, n, sizeof *f.group);
    f.seen = arena_alloc(a, n * LANES, sizeof *f.seen);
    return f;
}

/* Columns of values, padded. */
static int value_width(const struct exact *x) { return (int)round_up(x->d.v, 16); }

/* Rows of bf16: in the caller's tensor, or floats that were loaded and rounded. */
struct bf16_rows {
    const uint16_t *at;
    int64_t         ld;
};

static struct bf16_rows rounded(const struct exact *x, const float *tile, int ld, int n,
                                int d, void *scratch)
{
    x->k->store_rows(scratch, ld, FOCI_BF16, tile, ld, 1.0f, n, d);
    return (struct bf16_rows){ scratch, ld };
}

unsigned exact_fused_pack(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t, size_t at, float *tile, float *scratch)
{
    const int        n = exact_keys_in(s, t);
    const bool       direct = exact_packs_stored(x);
    struct bf16_rows rows;
    unsigned         nonfinite = 0;

    if (direct) {
        rows = (struct bf16_rows){ exact_stored_tile(x, s, kv, t, x->io->k, &x->p->k),
                                   x->p->k.row };
        x->k->squares_bf16(x->packed.norms + at * TILE, rows.at, rows.ld, n, x->d.q);
    } else {
        exact_load_keys(x, s, kv, t, tile, scratch);
        x->k->row_dot(x->packed.norms + at * TILE, tile, tile, x->d.ldq, n, x->d.q);
        rows = rounded(x, tile, x->d.ldq, n, x->d.q, scratch);
    }
    if (!exact_key_norms(x, n, at)) nonfinite |= NONFINITE_KEY;
    x->k->attend_keys((void *)(x->packed.keys + at * x->packed.key_bytes), rows.at,
                      rows.ld, n, x->d.q, x->d.q_pad);

    if (direct) {
        rows = (struct bf16_rows){ exact_stored_tile(x, s, kv, t, x->io->v, &x->p->v),
                                   x->p->v.row };
    } else {
        exact_load_values(x, s, kv, t, tile, scratch);
        rows = rounded(x, tile, x->d.ldv, n, x->d.v, scratch);
    }
    if (exact_checks_values(x) && !exact_finite_stored(x, rows.at, rows.ld, x->d.v, n))
        nonfinite |= NONFINITE_VALUE;
    x->k->attend_values((void *)(x->packed.values_sum + at * x->packed.value_bytes),
                        rows.at, rows.ld, n, x->d.v, value_width(x));
    return nonfinite;
}

/* Pack queries as rows of bf16 pairs, and find the squares of their norms. */
static void fused_pack_queries(const struct exact *x, const struct exact_block *b,
                               uint32_t *pairs, float *tile, float *squares)
{
    struct mapped mapped;

    memset(squares, 0, LANES * sizeof *squares);
    if (exact_packs_stored(x)) {
        int64_t         ld;
        const uint16_t *q =
            exact_stored_block(x, b, x->io->q, &x->p->q, x->d.q, tile, &ld);

        x->k->squares_bf16(squares, q, ld, b->r1, x->d.q);
        x->k->pack_rows_from_bf16(pairs, q, ld, b->r1, x->d.q, x->d.q_pad);
    } else {
        exact_load_queries(x, b, tile, &mapped);
        x->k->row_dot(squares, tile, tile, x->d.ldq, LANES, x->d.q);
        x->k->pack_rows_bf16(pairs, tile, x->d.ldq, LANES, x->d.q_pad);
    }
}

/* The largest key norm of the tiles of the block; infinite if a key or value is not
 * finite. */
static float max_key_norm(const struct exact *x, const struct exact_block *b)
{
    const int64_t     first = b->kv * x->max.kt + b->seq->kt0;
    struct exact_walk w = exact_walk_keys(x, b);
    int64_t           t;
    int32_t           mask;
    float             top = 0;

    while (exact_next(&w, &t, &mask)) {
        if (x->packed.nonfinite[first + t]) return INFINITY;
        if (x->packed.max_norm[first + t] > top) top = x->packed.max_norm[first + t];
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

/* References row by row.  |q||k| bounds the logits of a row; a small bound serves as
 * its reference and will never be raised.  Other rows start from the sink, or from
 * nothing. */
static bool start_rows(const struct exact *x, const struct exact_block *b,
                       const float *by, const float *squares, float max_norm,
                       float sink, float *m)
{
    float longest[LANES];
    bool  held = true;

    for (int r = 0; r < LANES; r++)
        longest[r] = max_norm;
    if (x->support->all) exact_max_key_norms(x, b, longest);
    for (int r = 0; r < LANES; r++) {
        const float bound = fabsf(by[r]) * sqrtf(squares[r]) * longest[r] * slack;
        const bool  small = bound <= held_most && sink - bound <= held_most;

        m[r] = small ? reference_above(bound) : ceilf(sink);
        held = held && small;
    }
    return held;
}

/* One reference for all rows, where the largest bound is small enough.  false: logits
 * may be out of range. */
static bool start(const struct exact *x, const struct exact_block *b, const float *by,
                  const float *squares, float sink, float *m, bool *held)
{
    const float max_norm = max_key_norm(x, b);
    const float bound = largest(by) * sqrtf(largest(squares)) * max_norm * slack;

    if (!(bound <= logit_most && sink <= logit_most)) return false;
    *held = bound <= held_most && sink == -INFINITY;
    for (int r = 0; r < LANES && *held; r++)
        m[r] = reference_above(bound);
    if (!*held) *held = start_rows(x, b, by, squares, max_norm, sink, m);
    return true;
}

/* Append the groups of a tile to a list of n. */
static int add_groups(const struct exact *x, const struct exact_block *b, int64_t t,
                      int32_t mask, const struct fused_scratch *f, int n)
{
    const size_t    at = (size_t)(b->kv * x->max.kt + b->seq->kt0 + t);
    const int       all = exact_keys_in(b->seq, t);
    const uint32_t *keys = (const void *)(x->packed.keys + at * x->packed.key_bytes);
    const uint32_t *values =
        (const void *)(x->packed.values_sum + at * x->packed.value_bytes);
    uint32_t  *seen = f->seen + (int64_t)n * LANES;
    uint64_t   lanes[TILE];
    const bool masked = exact_tile_mask(x, b, t, mask, all, lanes);

    if (masked) x->k->seen_rows(seen, lanes, all);
    for (int left = all; left > 0; left -= ATTEND_KEYS, n++, seen += LANES) {
        const bool whole = left >= ATTEND_KEYS;

        f->group[n] =
            (struct attend_group){ keys, values, masked || !whole ? seen : NULL };
        keys += (int64_t)x->d.q_pad * ATTEND_KEYS / 2;
        values += (int64_t)value_width(x) * ATTEND_KEYS / 2;
        for (int r = 0; r < LANES && !masked && !whole; r++)
            seen[r] = (UINT32_C(1) << left) - 1;
    }
    return n;
}

/* A block on its way down its keys. */
struct fused_block {
    const struct exact_block *b;
    struct attend             a;
    struct exact_walk         w;
    int64_t                   t; /* the next tile, and its mask; -1: none */
    int32_t                   mask;
    float                     sink;
    _Alignas(64) float by[LANES], m[LANES], l[LANES];
};

static void next_tile(struct fused_block *p)
{
    if (!exact_next(&p->w, &p->t, &p->mask)) p->t = -1;
}

/* Prefetch the rows of a block: they are apart, so the hardware does not prefetch them. */
static void prefetch_rows(const struct exact *x, const struct exact_block *b,
                          const void *base, const foci_layout *l, int d,
                          const bool write)
{
    enum { LINE = 64 };
    const int64_t size = (int64_t)foci_dtype_bytes(x->p->dtype);
    const char   *row = (const char *)base +
                      (b->seq->s.b * l->batch +
                       (b->seq->s.q0 + b->i0 + b->r0) * l->row + b->h * l->head) *
                          size;

    for (int r = b->r0; r < b->r1; r++, row += l->row * size)
        for (int64_t c = 0; c < d * size; c += LINE)
            if (write)
                __builtin_prefetch(row + c, 1, 1);
            else
                __builtin_prefetch(row + c, 0, 3);
}

/* Factors from scores to logits in base 2. */
static void factors(const struct exact *x, const struct exact_block *b, float *by)
{
    const float common = (float)(exact_head_scale(x, b->h) * LOG2_E);
    int64_t     visible[LANES];
    float       plain[LANES];

    for (int r = 0; r < LANES; r++)
        by[r] = common;
    if (!x->score->n_rows) return;
    exact_count_visible(x, b, visible);
    exact_factors(x, b, visible, plain, by, NULL);
}

/* false: the block must take the separate kernels. */
static bool open_block(const struct exact *x, struct fused_block *p,
                       const struct fused_scratch *f, int64_t number, float *tile)
{
    const struct exact_block *b = p->b;
    uint32_t *const           q = f->q + number * LANES * x->d.q_pad / 2;
    _Alignas(64) float        squares[LANES];

    p->a = (struct attend){
        .q = q,
        .dq = x->d.q_pad,
        .dv = value_width(x),
        .group = f->group,
        .f = p->by,
        .m = p->m,
        .o = f->o + number * LANES * x->d.ldv,
        .ldo = x->d.ldv,
        .l = p->l,
        .p = f->p,
    };
    prefetch_rows(x, b, x->io->q, &x->p->q, x->d.in, false);
    prefetch_rows(x, b, x->io->o, &x->p->o, x->d.v, true);
    p->sink = -INFINITY;
    if (x->score->sink >= 0)
        p->sink = x->io->params[x->score->sink + b->h - x->head0] * (float)LOG2_E;
    factors(x, b, p->by);
    fused_pack_queries(x, b, q, tile, squares);
    if (!start(x, b, p->by, squares, p->sink, p->m, &p->a.held)) return false;
    p->w = exact_walk_keys(x, b);
    p->t = -1;
    if (exact_block_wanted(x, b)) next_tile(p);
    return true;
}

/* Attend to the tiles before number `end`, as many as one call takes. */
static void attend(const struct exact *x, struct fused_block *p,
                   const struct fused_scratch *f, int64_t end)
{
    const int64_t most = most_groups(x);

    p->a.n = 0;
    for (; p->t >= 0 && p->t < end && p->a.n + GROUPS <= most; next_tile(p))
        p->a.n = add_groups(x, p->b, p->t, p->mask, f, p->a.n);
    if (!p->a.n && p->a.add) return;
    x->k->attend_bf16(&p->a);
    p->a.add = true;
}

static void close_block(const struct exact *x, struct fused_block *p, float *saved)
{
    _Alignas(64) float factor[LANES];

    for (int r = 0; r < LANES; r++) {
        if (p->sink > -INFINITY) p->l[r] += exp2f(p->sink - p->m[r]);
        factor[r] = p->l[r] == 0 ? 0 : 1 / p->l[r];
    }
    if (saved || x->io->lse) exact_store_norms(x, p->b, p->m, p->l, factor, saved);
    exact_store_rows_by(x, p->b, x->io->o, &x->p->o, p->a.o, factor);
}

/* With several blocks, each goes down one stripe of tiles in turn. */
unsigned exact_fused_blocks(const struct exact *x, const struct exact_block *b, int n,
                            struct fused_scratch *f, float *tile, float *saved)
{
    struct fused_block p[FUSED_BLOCKS];
    unsigned           done = 0;
    bool               more = true;

    assert(x->fused && n <= FUSED_BLOCKS);
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
