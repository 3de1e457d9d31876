/* linear_chunk.c -- keys and queries of a chunk as products take them, and sums. */
#include <math.h>
#include <string.h>

#include "engine/linear.h"

enum { PAIRS = CHUNK / 2 }; /* words of a row of lanes */

/*
 * Operands
 */

struct across across_take(const struct linear *x, const float *f, int64_t ld, int rows,
                          int width, struct arena *a)
{
    const int64_t words = x->bf16 ? div_up(rows, CHUNK) * PAIRS * width : 0;

    return (struct across){ f, ld, rows, width, arena_take(a, words, sizeof(uint32_t)) };
}

struct along along_take(const struct linear *x, const float *f, int rows,
                        struct arena *a)
{
    const int64_t words = x->bf16 ? div_up(rows, CHUNK) * PAIRS * CHUNK : 0;

    return (struct along){ f, rows, arena_take(a, words, sizeof(uint32_t)) };
}

struct beside beside_take(const struct linear *x, const float *f, int rows,
                          struct arena *a)
{
    const int64_t words = x->bf16 ? round_up(rows, CHUNK) * PAIRS : 0;

    return (struct beside){ f, rows, arena_take(a, words, sizeof(uint32_t)) };
}

static int block_rows(int rows, int first) { return (int)min64(CHUNK, rows - first); }

void across_pack(const struct linear *x, const struct across *s, int n)
{
    for (int r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_sum_bf16(s->words + (int64_t)r / 2 * s->width, s->f + r * s->ld,
                            s->ld, (int)max64(0, min64(CHUNK, n - r)), s->width);
}

void along_pack(const struct linear *x, const struct along *s)
{
    for (int64_t r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_pairs_bf16(s->words + r / 2 * CHUNK, s->f + r * CHUNK, CHUNK,
                              block_rows(s->rows, (int)r), CHUNK);
}

void beside_pack(const struct linear *x, const struct beside *s)
{
    for (int64_t r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_rows_bf16(s->words + r * PAIRS, s->f + r * CHUNK, CHUNK,
                             block_rows(s->rows, (int)r), CHUNK);
}

/* Distances of words in an operand that is summed over its rows. */
static int64_t row_step(const struct linear *x)
{
    return x->k->sum_by_rows ? PAIRS : 1;
}

static int64_t col_step(const struct linear *x, int width)
{
    return x->k->sum_by_rows ? 1 : width;
}

void linear_meet(const struct linear *x, float *c, const struct across *a, int i0,
                 int m, const struct along *b, int lane, int end, int add)
{
    if (!x->bf16) {
        x->k->gemm_f32(c, CHUNK, a->f + i0, 1, a->ld, b->f + lane, CHUNK, m, end - lane,
                       b->rows, add);
        return;
    }
    const int64_t row = row_step(x), col = col_step(x, a->width);
    for (int64_t r = 0; r < b->rows; r += CHUNK)
        x->k->gemm_bf16(c, CHUNK, a->words + r / 2 * a->width + i0 * row, row, col,
                        b->words + r / 2 * CHUNK + lane, CHUNK, m, end - lane,
                        block_rows(b->rows, (int)r) / 2, add || r);
}

void linear_weigh(const struct linear *x, float *ot, const struct across *values,
                  const void *w, int j, int n, int lane, int end)
{
    if (!x->bf16) {
        x->k->gemm_f32(ot + lane, CHUNK, values->f + j * values->ld, 1, values->ld,
                       (const float *)w + (int64_t)j * CHUNK + lane, CHUNK, x->dv,
                       end - lane, n, 1);
        return;
    }
    const int64_t row = row_step(x), col = col_step(x, values->width);
    x->k->gemm_bf16(ot + lane, CHUNK, values->words + j / 2 * col, row, col,
                    (const uint32_t *)w + (int64_t)j / 2 * CHUNK + lane, CHUNK,
                    x->dv_pad, end - lane, n / 2, 1);
}

/*
 * Room
 */

static struct features features_take(const struct linear *x, struct arena *a)
{
    return (struct features){
        .x = arena_take(a, (int64_t)CHUNK * x->ldq, sizeof(float)),
        .cols = arena_take(a, (int64_t)x->ldq * CHUNK, sizeof(float)),
        .f = arena_take(a, (int64_t)x->m_room * CHUNK, sizeof(float)),
        .lane = arena_take(a, CHUNK, sizeof(float)),
    };
}

static float *turned_take(const struct linear *x, float *f, struct arena *a)
{
    return x->turns ? arena_take(a, (int64_t)x->m_room * CHUNK, sizeof *f) : f;
}

struct keys linear_keys_take(const struct linear *x, struct arena *a)
{
    const int64_t tile = (int64_t)CHUNK * x->ldv;
    const int     plain = x->turns && x->divides ? x->m_pad : 0;
    struct keys   k = { .t = features_take(x, a) };

    k.turned = turned_take(x, k.t.f, a);
    k.v = arena_take(a, tile, sizeof *k.v);
    k.faded = x->l->decays ? arena_take(a, tile, sizeof *k.faded) : k.v;
    k.sum = arena_take(a, x->m_room, sizeof *k.sum);
    k.top = arena_take(a, x->m_room, sizeof *k.top);
    k.plain = across_take(x, k.t.f, CHUNK, plain, CHUNK, a);
    k.by = across_take(x, k.turned, CHUNK, x->m_pad, CHUNK, a);
    k.to = beside_take(x, k.turned, x->m_pad, a);
    k.values = across_take(x, k.v, x->ldv, CHUNK, x->dv_pad, a);
    k.v_pairs = arena_take(a, x->bf16 ? PAIRS * (int64_t)x->ldv : 0, sizeof *k.v_pairs);
    return k;
}

struct queries linear_queries_take(const struct linear *x, struct arena *a)
{
    const int      plain = x->turns && x->divides ? x->m_pad : 0;
    struct queries q = { .t = features_take(x, a) };

    q.turned = turned_take(x, q.t.f, a);
    q.plain = along_take(x, q.t.f, plain, a);
    q.by = along_take(x, q.turned, x->m_pad, a);
    q.top = arena_take(a, CHUNK, sizeof *q.top);
    return q;
}

/*
 * Sums
 */

struct sums_of linear_sums_take(const struct linear *x, int64_t n, struct arena *a)
{
    struct sums_of s = { 0 };

    s.rows = arena_take(a, n * x->m_pad, (size_t)x->ldv * sizeof *s.rows);
    s.total = arena_take(a, n * x->m_pad, sizeof *s.total);
    if (x->logs || x->lane_logs) s.top = arena_take(a, n * x->m_pad, sizeof *s.top);
    return s;
}

struct sums_of linear_sums_at(const struct linear *x, struct sums_of all, int64_t i)
{
    return (struct sums_of){
        .rows = all.rows + i * x->m_pad * x->ldv,
        .total = all.total + i * x->m_pad,
        .top = all.top ? all.top + i * x->m_pad : NULL,
    };
}

void linear_sums_clear(const struct linear *x, struct sums_of s)
{
    memset(s.rows, 0, (size_t)x->m_pad * (size_t)x->ldv * sizeof *s.rows);
    memset(s.total, 0, (size_t)x->m_pad * sizeof *s.total);
    for (int r = 0; s.top && r < x->m_pad; r++)
        s.top[r] = -INFINITY;
}

void linear_sums_copy(const struct linear *x, struct sums_of to, struct sums_of from)
{
    const size_t totals = (size_t)x->m_pad * sizeof *to.total;

    memcpy(to.rows, from.rows, totals * (size_t)x->ldv);
    memcpy(to.total, from.total, totals);
    if (to.top) memcpy(to.top, from.top, totals);
}

static void scale_row(const struct linear *x, struct sums_of s, int r, float by)
{
    float *row = s.rows + (int64_t)r * x->ldv;

    s.total[r] *= by;
    for (int c = 0; c < x->ldv; c++)
        row[c] *= by;
}

/* What numbers in units e^from are in units e^to: nothing, if there were none. */
static float unit_ratio(float from, float to)
{
    if (from == to) return 1;
    return from == -INFINITY ? 0 : expf(from - to);
}

static void move_units(const struct linear *x, struct sums_of s, const float *top)
{
    for (int r = 0; r < x->m; r++) {
        if (s.top[r] == top[r]) continue;
        scale_row(x, s, r, unit_ratio(s.top[r], top[r]));
        s.top[r] = top[r];
    }
}

void linear_sums_add(const struct linear *x, struct sums_of to, float by,
                     struct sums_of from)
{
    for (int r = 0; r < x->m; r++) {
        const int64_t at = (int64_t)r * x->ldv;
        float         share = 1;

        if (to.top) {
            const float top = fmaxf(to.top[r], from.top[r]);
            scale_row(x, to, r, unit_ratio(to.top[r], top));
            share = unit_ratio(from.top[r], top);
            to.top[r] = top;
        }
        to.total[r] = by * to.total[r] + share * from.total[r];
        for (int c = 0; c < x->ldv; c++)
            to.rows[at + c] = by * to.rows[at + c] + share * from.rows[at + c];
    }
}

/*
 * Units
 */

/* The largest logs of the keys and of what came before. */
static void join_tops(const struct linear *x, const struct sums_of *s, struct keys *k)
{
    float most = -INFINITY;

    if (x->logs) x->k->row_tops(k->top, k->t.f, x->m);
    for (int i = 0; x->lane_logs && i < CHUNK; i++)
        if (k->t.lane[i] > most) most = k->t.lane[i];
    for (int r = 0; r < x->m; r++)
        k->top[r] = fmaxf(x->logs ? k->top[r] : most, s->top[r]);
    for (int t = 0; x->turns && t < x->m / 2; t++) {
        const bool half = x->stage->score.rope_half;
        float     *a = k->top + (half ? t : 2 * t);
        float     *b = k->top + (half ? t + x->m / 2 : 2 * t + 1);
        *a = *b = fmaxf(*a, *b);
    }
}

/* Whether rows that see only the first key would underflow in these units. */
static bool steep(const struct linear *x, const struct sums_of *s, const struct keys *k)
{
    for (int r = 0; r < x->m; r++) {
        const float first = x->logs ? k->t.f[(int64_t)r * CHUNK] : k->t.lane[0];
        const float from = fmaxf(first, s->top[r]);

        if (k->top[r] == INFINITY) return true;
        if (k->top[r] != from && !(k->top[r] - from <= STEEP)) return true;
    }
    return false;
}

/* From logs to features in units of k->top, as sums will be too. */
static void to_units(const struct linear *x, struct sums_of s, struct keys *k)
{
    _Alignas(64) float by[CHUNK];

    move_units(x, s, k->top);
    if (x->logs) {
        x->k->exp_rows(k->t.f, x->m, k->top);
        memset(k->t.f + (int64_t)x->m * CHUNK, 0,
               (size_t)(x->m_pad - x->m) * CHUNK * sizeof *k->t.f);
        return;
    }
    for (int i = 0; i < CHUNK; i++)
        by[i] = unit_ratio(k->t.lane[i], k->top[0]);
    x->k->shrink(k->t.f, x->m, by);
}

/*
 * Keys
 */

/* Weights of keys when the chunk is done: lam^(n - 1 - key), 0 where there is none. */
static void fade_of(const struct linear *x, const struct chunk *c, float *fade)
{
    for (int j = 0; j < CHUNK; j++)
        fade[j] = j < c->n ? x->decay[c->h].power[c->n - 1 - j] : 0;
}

void linear_fade_values(const struct linear *x, const float *fade, const float *v,
                        float *out)
{
    for (int j = 0; j < CHUNK; j++)
        for (int c = 0; c < x->ldv; c++)
            out[j * x->ldv + c] = fade[j] * v[j * x->ldv + c];
}

bool linear_keys(const struct linear *x, const struct chunk *c, bool apart,
                 struct sums_of s, struct keys *k)
{
    _Alignas(64) float fade[CHUNK];

    apart = apart && c->n > 1;
    k->n_pad = (int)round_up(c->n, x->bf16 ? x->k->depth : 1);
    linear_load_k(x, c, x->io->k, &x->p->k, x->dq, x->ldq, k->t.x);
    linear_load_k(x, c, x->io->v, &x->p->v, x->dv, x->ldv, k->v);
    if (apart && !x->k->all_finite(k->v, (int64_t)CHUNK * x->ldv)) return false;
    if (apart && s.top && !x->k->all_finite(k->t.x, (int64_t)CHUNK * x->ldq))
        return false;
    linear_map(x, c, true, &k->t);
    if (s.top) {
        join_tops(x, &s, k);
        if (apart && steep(x, &s, k)) return false;
        to_units(x, s, k);
    }
    if (x->l->decays) fade_of(x, c, fade);
    memset(k->sum, 0, (size_t)x->m_room * sizeof *k->sum);
    x->k->row_sums(k->sum, k->t.f, x->m, x->l->decays ? fade : NULL);
    if (apart && !s.top && !x->k->all_finite(k->sum, x->m_room)) return false;
    if (x->l->decays) linear_fade_values(x, fade, k->v, k->faded);
    if (x->turns) linear_turn(x, c, k->t.f, k->turned, false);
    return true;
}

void linear_show(const struct linear *x, const struct chunk *c, const struct keys *k)
{
    across_pack(x, &k->by, x->m_pad);
    across_pack(x, &k->plain, x->m_pad);
    across_pack(x, &k->values, c->n);
}

static void shrink_sums(const struct linear *x, struct sums_of s, float by)
{
    for (int r = 0; r < x->m_pad; r++)
        scale_row(x, s, r, by);
}

void linear_absorb(const struct linear *x, const struct chunk *c, const struct keys *k,
                   struct sums_of s)
{
    if (x->l->decays) shrink_sums(x, s, x->decay[c->h].power[c->n]);
    for (int r = 0; r < x->m; r++)
        s.total[r] += k->sum[r];
    if (!x->bf16) {
        x->k->gemm_f32(s.rows, x->ldv, k->turned, CHUNK, 1, k->faded, x->ldv, x->m,
                       x->ldv, c->n, 1);
        return;
    }
    beside_pack(x, &k->to);
    x->k->pack_pairs_bf16(k->v_pairs, k->faded, x->ldv, c->n, x->dv_pad);
    x->k->gemm_bf16(s.rows, x->ldv, k->to.words, PAIRS, 1, k->v_pairs, x->ldv, x->m_pad,
                    x->ldv, k->n_pad / 2, 1);
}

/*
 * Queries
 */

/* Features divided by their sums over a row, and each by its sum over the keys seen. */
static void divide_features(const struct linear *x, struct sums_of s,
                            const struct keys *k, float *f)
{
    _Alignas(64) float by[CHUNK] = { 0 };

    for (int r = 0; r < x->m; r++)
        for (int i = 0; i < CHUNK; i++)
            by[i] += f[r * CHUNK + i];
    for (int i = 0; i < CHUNK; i++)
        by[i] = by[i] == 0 ? 0 : 1 / by[i];
    x->k->shrink(f, x->m, by);
    for (int r = 0; r < x->m; r++) {
        float sum = s.total[r];
        for (int i = 0; i < CHUNK; i++) {
            if (k) sum += k->t.f[r * CHUNK + i];
            f[r * CHUNK + i] = sum == 0 ? 0 : f[r * CHUNK + i] / sum;
        }
    }
}

void linear_queries(const struct linear *x, const struct chunk *c, struct sums_of s,
                    const struct keys *k, struct queries *q)
{
    linear_load_q(x, c, x->io->q, &x->p->q, x->dq, x->ldq, q->t.x);
    linear_map(x, c, false, &q->t);
    if (x->logs) {
        const bool each = x->l->norm == FOCI_NORM_FEATURE;

        x->k->exp_cols(q->t.f, x->m, each ? NULL : s.top, q->top);
        memset(q->t.f + (int64_t)x->m * CHUNK, 0,
               (size_t)(x->m_pad - x->m) * CHUNK * sizeof *q->t.f);
        if (each) divide_features(x, s, k, q->t.f);
    }
    if (x->turns) linear_turn(x, c, q->t.f, q->turned, false);
    along_pack(x, &q->by);
    along_pack(x, &q->plain);
}

static int between(int a, int n) { return (int)min64(max64(a, 0), n); }

struct chunk linear_piece(const struct chunk *c, int b, int e)
{
    struct chunk p = *c;

    p.pos += b;
    p.n = between(c->n - b, e - b);
    p.r0 = between(c->r0 - b, e - b);
    p.r1 = between(c->r1 - b, e - b);
    return p;
}
