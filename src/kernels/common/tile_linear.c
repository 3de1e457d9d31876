/* tile_linear.c -- fused chunk of linear attention on tiles.
 *
 * Tokens are rows.  Products need pairs of neighbours along the summed index; three orders of
 * keys and features serve all of them:
 *
 *     scores   queries by key       pairs of features 2t and 2t + 1, keys transposed
 *     sums     features by value    pairs of keys r and r + 16 of 32: made from
 *                                   the transposed pairs by shifts and blends alone
 *     weights  queries by value     the same pairs, the order in which two registers of
 *                                   scores convert to one of pairs
 *
 * Operands are whole tiles of 1 KiB, contiguous.  Queries are processed in strips of 16, so
 * that scores and results of a strip stay in the first-level cache.
 */
#include <string.h>

#include "foci/mechanism.h"

enum {
    CHUNK_TILE = T * T,       /* of a tile */
    CHUNK_KEYS = LANES / T,   /* tiles of keys */
    CHUNK_PAIRS = LANES / 32, /* tiles of pairs of keys */
    CHUNK_SCORES = LANES + T, /* floats of a row of scores: not a power of two */
};

/* Operands of a chunk in scratch memory: [tiles][16][16]. */
struct chunk_operands {
    uint32_t *keys;     /* [d/32][4] pairs of features by keys */
    uint32_t *features; /* [2][d/16] features by pairs of keys */
    uint32_t *values;   /* [2][dv/16] pairs of keys by columns */
    uint32_t *sums;     /* [d/32][dv/16] pairs of features by columns */
    uint32_t *queries;  /* [2][d/32] of two strips, one after the other */
    uint32_t *weights;  /* [2] of a strip */
    float    *scores;   /* [16][CHUNK_SCORES] of a strip */
    float    *rows;     /* [2][16][dv] of two strips */
    float    *den;      /* [4][16][16] lanes of what rows of strips are divided by */
};

static struct chunk_operands chunk_operands(const struct chunk_rows *c)
{
    const int             d = c->d / 32, dv = c->dv / T;
    uint32_t             *at = c->scratch;
    struct chunk_operands o;

    o.keys = at;
    o.features = o.keys + CHUNK_TILE * CHUNK_KEYS * d;
    o.values = o.features + CHUNK_TILE * CHUNK_PAIRS * 2 * d;
    o.sums = o.values + CHUNK_TILE * CHUNK_PAIRS * dv;
    o.queries = o.sums + CHUNK_TILE * d * dv;
    o.weights = o.queries + 2 * CHUNK_TILE * d;
    o.scores = (float *)(o.weights + CHUNK_TILE * CHUNK_PAIRS);
    o.rows = o.scores + T * CHUNK_SCORES;
    o.den = o.rows + 2 * T * c->dv;
    return o;
}

/*
 * Features
 */

/* e^x as exact as bf16 wants it, which features are rounded to; where x > 0 it may be
 * infinite, and is left out. */
INLINE vf chunk_phi(vf x, const int kind)
{
    const vf one = vf_set1(1.0f);

    if (kind == FOCI_FEATURE_RELU) return vf_max(vf_zero(), x);
    if (kind != FOCI_FEATURE_ELU) return x;
    const vf e = vf_exp2_fast(vf_mul(x, vf_set1(1.44269504f)));
    return _mm512_mask_add_ps(e, vf_gt(x, vf_zero()), x, one);
}

/* 16 columns of a row of bf16. */
INLINE vf chunk_load(const uint16_t *p)
{
    return vf_of_bf16(_mm256_loadu_si256((const __m256i *)p));
}

/* Prefetch a row of the next chunk into the second-level cache; called whenever a row of this
 * chunk is read.  next NULL: nothing. */
INLINE void chunk_prefetch(const uint16_t *next, int64_t at, int d)
{
    for (int c = 0; next && c < d; c += 32)
        __builtin_prefetch(next + at + c, 0, 2);
}

/*
 * Keys and values
 */

/* From pairs of features of 32 keys, two tiles of 16 keys, to pairs of keys: a feature's
 * row has key r in the lower half and key r + 16 in the upper half of pair r. */
INLINE void chunk_pair_keys(uint32_t *even, uint32_t *odd, __m512i first, __m512i second)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);

    _mm512_store_si512(even, _mm512_ternarylogic_epi32(
                                 high, _mm512_slli_epi32(second, 16), first, 0xca));
    _mm512_store_si512(odd, _mm512_ternarylogic_epi32(
                                high, second, _mm512_srli_epi32(first, 16), 0xca));
}

/* 16 keys from row `key` on, features 32h to 32h + 31: a tile of pairs, transposed. */
INLINE void chunk_key_tile(const struct chunk_rows *c, uint32_t *out, int key, int h,
                           vf sum[2], const int kind)
{
    const uint16_t *row = c->k + key * c->ldk + 32 * h;
    vf              x[T];

    UNROLL(16)
    for (int i = 0; i < T; i++, row += c->ldk) {
        const vf a = chunk_phi(chunk_load(row), kind);
        const vf b = chunk_phi(chunk_load(row + T), kind);

        sum[0] = vf_add(sum[0], a);
        sum[1] = vf_add(sum[1], b);
        x[i] = (vf)vw_row(a, b);
    }
    vf_transpose(x);
    UNROLL(16)
    for (int i = 0; i < T; i++)
        _mm512_store_ps(out + T * i, x[i]);
}

/* All keys, and the sums of their features; false: these are not finite. */
INLINE bool chunk_keys_of(const struct chunk_rows *c, const struct chunk_operands *o,
                          float *total, const int kind)
{
    const int d = c->d / 32;
    vf        bad = vf_zero();

    for (int h = 0; h < d; h++) {
        vf sum[2] = { vf_zero(), vf_zero() };

        for (int g = 0; g < CHUNK_KEYS; g++) {
            uint32_t *const tile = o->keys + CHUNK_TILE * (CHUNK_KEYS * h + g);

            for (int i = 0; i < T; i++)
                chunk_prefetch(c->next_k, (T * g + i) * c->ldk + 32 * h, 32);
            chunk_key_tile(c, tile, T * g, h, sum, kind);
            if (g % 2 == 0) continue;
            uint32_t *const to = o->features + CHUNK_TILE * (g / 2 * 2 * d + 2 * h);
            for (int i = 0; i < T; i++)
                chunk_pair_keys(to + 2 * T * i, to + 2 * T * i + T,
                                _mm512_load_si512(tile - CHUNK_TILE + T * i),
                                _mm512_load_si512(tile + T * i));
        }
        vf_store(total + 32 * h, sum[0]);
        vf_store(total + 32 * h + T, sum[1]);
        bad = vf_fma(sum[0], vf_zero(), vf_fma(sum[1], vf_zero(), bad));
    }
    return vm_all(vf_eq(bad, vf_zero()));
}

static bool chunk_keys(const struct chunk_rows *c, const struct chunk_operands *o,
                       float *total)
{
    switch (c->kind) {
    case FOCI_FEATURE_ELU: return chunk_keys_of(c, o, total, FOCI_FEATURE_ELU);
    case FOCI_FEATURE_RELU: return chunk_keys_of(c, o, total, FOCI_FEATURE_RELU);
    default: return chunk_keys_of(c, o, total, FOCI_FEATURE_ROW);
    }
}

/* Pack bf16 pairs of rows r and r + 16; false: some value is not finite. */
static bool chunk_values(const struct chunk_rows *c, const struct chunk_operands *o)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __m512i       most = _mm512_setzero_si512();

    for (int p = 0; p < CHUNK_PAIRS; p++)
        for (int r = 0; r < T; r++) {
            const uint16_t *low = c->v + (32 * p + r) * c->ldv,
                           *high = low + T * c->ldv;
            uint32_t *to = o->values + CHUNK_TILE * p * (c->dv / T) + T * r;

            for (int t = 0; t < c->dv; t += 32, to += 2 * CHUNK_TILE) {
                const vw a = vw_stored(low + t), b = vw_stored(high + t);

                most = _mm512_max_epu16(
                    most, _mm512_max_epu16(_mm512_and_si512((__m512i)a, exponent),
                                           _mm512_and_si512((__m512i)b, exponent)));
                vw_store(to, vw_zip_low(a, b));
                vw_store(to + CHUNK_TILE, vw_zip_high(a, b));
            }
        }
    return !_mm512_cmpeq_epu16_mask(most, exponent);
}

/* The sums as operand. */
static void chunk_sums(const struct chunk_rows *c, const struct chunk_operands *o)
{
    for (int t = 0; t < c->d / 2; t++) {
        const float *low = c->sums + 2 * t * c->ld_sums, *high = low + c->ld_sums;
        uint32_t    *to = o->sums + CHUNK_TILE * (t / T) * (c->dv / T) + t % T * T;

        for (int j = 0; j < c->dv; j += T, to += CHUNK_TILE)
            vw_store(to, vw_pair(vf_load(low + j), vf_load(high + j)));
    }
}

/*
 * Strips of 16 rows by up to four tiles of columns, in tiles 0 to 3; n is constant
 */

#define CHUNK_FOUR(do_one)                                                             \
    do {                                                                               \
        {                                                                              \
            do_one(0);                                                                 \
        }                                                                              \
        if (n > 1) {                                                                   \
            do_one(1);                                                                 \
        }                                                                              \
        if (n > 2) {                                                                   \
            do_one(2);                                                                 \
        }                                                                              \
        if (n > 3) {                                                                   \
            do_one(3);                                                                 \
        }                                                                              \
    } while (0)

INLINE void strip_zero(const int n) { CHUNK_FOUR(tile_zero); }

INLINE void strip_load(const float *from, int64_t ld, const int n)
{
#define LOAD(j) tile_load(j, from + T * (j), 4 * ld)
    CHUNK_FOUR(LOAD);
#undef LOAD
}

INLINE void strip_store(float *to, int64_t ld, const int n)
{
#define STORE(j) tile_store(j, to + T * (j), 4 * ld)
    CHUNK_FOUR(STORE);
#undef STORE
}

/* Add `depth` tiles of a, `step_a` pairs and rows of `row` bytes apart, by as many rows of
 * tiles of b, step_b pairs apart. */
INLINE void strip_add(const uint32_t *a, int64_t row, int64_t step_a, const uint32_t *b,
                      int64_t step_b, int depth, const int n)
{
#define ADD(j, tile)                                                                   \
    do {                                                                               \
        tile_load(tile, b + CHUNK_TILE * (j), 64);                                     \
        tile_dp(j, 4, tile);                                                           \
    } while (0)
    for (int t = 0; t < depth; t++, a += step_a, b += step_b) {
        tile_load(4, a, row);
        ADD(0, 6);
        if (n > 1) ADD(1, 7);
        if (n > 2) ADD(2, 6);
        if (n > 3) ADD(3, 7);
    }
#undef ADD
}

/* 16 features from i on by n tiles of columns from j on. */
INLINE void chunk_absorb_part(const struct chunk_rows     *c,
                              const struct chunk_operands *o, int i, int j, const int n)
{
    float *const to = c->sums + i * c->ld_sums + j;

    strip_load(to, c->ld_sums, n);
    strip_add(o->features + T * i, 64, CHUNK_TILE * (c->d / T), o->values + T * j,
              CHUNK_TILE * (c->dv / T), CHUNK_PAIRS, n);
    strip_store(to, c->ld_sums, n);
}

/* The part of strip number i, one of four: features from i d/4 on, in tiles of 16. */
static void chunk_absorb(const struct chunk_rows *c, const struct chunk_operands *o,
                         int i)
{
    const int end = (i + 1) * (c->d / T) / CHUNK_KEYS;

    for (int t = i * (c->d / T) / CHUNK_KEYS; t < end; t++)
        for (int j = 0; j < c->dv; j += 4 * T)
            if (c->dv - j >= 4 * T)
                chunk_absorb_part(c, o, T * t, j, 4);
            else
                chunk_absorb_part(c, o, T * t, j, 2);
}

/*
 * Queries
 */

/* Features of a strip as operand, and the lanes of their products with `total`. */
INLINE void chunk_strip_of(const struct chunk_rows *c, const struct chunk_operands *o,
                           int s, const int kind)
{
    uint32_t *const pairs = o->queries + s % 2 * CHUNK_TILE * (c->d / 32);
    float *const    den = o->den + s * CHUNK_TILE;
    const vf        scale = vf_set1(c->scale);

    for (int64_t i = 0; i < T; i++) {
        const int64_t   at = T * s + i;
        const uint16_t *row = c->q + at * c->ldq;
        vf              sum = vf_zero();

        chunk_prefetch(c->next_q, at * c->ldq, c->d);
        chunk_prefetch(c->next_v, at * c->ldv, c->dv);
        chunk_prefetch(c->next_o, at * c->ldo, c->dv);
        for (int h = 0; h < c->d; h += 32) {
            vf a = chunk_phi(chunk_load(row + h), kind);
            vf b = chunk_phi(chunk_load(row + h + T), kind);

            if (kind == FOCI_FEATURE_ROW) {
                a = vf_mul(a, scale);
                b = vf_mul(b, scale);
            }
            sum = vf_fma(a, vf_load(c->total + h), sum);
            sum = vf_fma(b, vf_load(c->total + h + T), sum);
            vw_store(pairs + CHUNK_TILE / 32 * h + T * i, vw_row(a, b));
        }
        vf_store(den + T * i, sum);
    }
}

static void chunk_strip(const struct chunk_rows *c, const struct chunk_operands *o,
                        int s)
{
    switch (c->kind) {
    case FOCI_FEATURE_ELU: chunk_strip_of(c, o, s, FOCI_FEATURE_ELU); break;
    case FOCI_FEATURE_RELU: chunk_strip_of(c, o, s, FOCI_FEATURE_RELU); break;
    default: chunk_strip_of(c, o, s, FOCI_FEATURE_ROW); break;
    }
}

static const uint32_t *chunk_queries_of(const struct chunk_rows     *c,
                                        const struct chunk_operands *o, int s)
{
    return o->queries + s % 2 * CHUNK_TILE * (c->d / 32);
}

/* Scores of strip s with keys up to its own: n = s + 1 tiles. */
INLINE void chunk_scores_of(const struct chunk_rows *c, const struct chunk_operands *o,
                            int s, const int n)
{
    strip_zero(n);
    strip_add(chunk_queries_of(c, o, s), 64, CHUNK_TILE, o->keys,
              CHUNK_KEYS * CHUNK_TILE, c->d / 32, n);
    strip_store(o->scores, CHUNK_SCORES, n);
}

static void chunk_scores(const struct chunk_rows *c, const struct chunk_operands *o,
                         int s)
{
    switch (s) {
    case 0: chunk_scores_of(c, o, s, 1); break;
    case 1: chunk_scores_of(c, o, s, 2); break;
    case 2: chunk_scores_of(c, o, s, 3); break;
    default: chunk_scores_of(c, o, s, 4); break;
    }
}

/* Weights of strip s, whose tile s is on the diagonal: pairs, and what rows are divided
 * by. */
static void chunk_weights(const struct chunk_operands *o, int s)
{
    float *const den = o->den + s * CHUNK_TILE;

    for (int i = 0; i < T; i++) {
        vf sum = vf_load(den + T * i);

        for (int p = 0; 2 * p <= s; p++) {
            const float *const at = o->scores + CHUNK_SCORES * i + 32 * p;
            const __mmask16    own = (__mmask16)((2u << i) - 1);
            const __mmask16    low = 2 * p == s ? own : 0xffff;
            const __mmask16    high = 2 * p == s ? 0 : 2 * p + 1 == s ? own : 0xffff;
            const vf           a = _mm512_maskz_load_ps(low, at);
            const vf           b = _mm512_maskz_load_ps(high, at + T);

            sum = vf_add(sum, vf_add(a, b));
            vw_store(o->weights + CHUNK_TILE * p + T * i, vw_pair(a, b));
        }
        vf_store(den + T * i, sum);
    }
}

/* rows = queries by sums + weights by values, of n tiles of columns from j on; pairs tiles
 * of weights, 0: none. */
INLINE void chunk_rows_part(const struct chunk_rows *c, const struct chunk_operands *o,
                            int s, int j, int pairs, const int n)
{
    const int64_t step = CHUNK_TILE * (c->dv / T);

    strip_zero(n);
    strip_add(chunk_queries_of(c, o, s), 64, CHUNK_TILE, o->sums + T * j, step,
              c->d / 32, n);
    strip_add(o->weights, 64, CHUNK_TILE, o->values + T * j, step, pairs, n);
    strip_store(o->rows + (s % 2 * T) * c->dv + j, c->dv, n);
}

static void chunk_rows_of(const struct chunk_rows *c, const struct chunk_operands *o,
                          int s)
{
    const int pairs = c->k ? s / 2 + 1 : 0;

    for (int j = 0; j < c->dv; j += 4 * T)
        if (c->dv - j >= 4 * T)
            chunk_rows_part(c, o, s, j, pairs, 4);
        else
            chunk_rows_part(c, o, s, j, pairs, 2);
}

/* The rows of strip s, divided. */
static void chunk_store(const struct chunk_rows *c, const struct chunk_operands *o,
                        int s)
{
    const vf           zero = vf_zero();
    const float       *from = o->rows + (s % 2 * T) * c->dv;
    uint16_t          *to = c->o + T * s * c->ldo;
    _Alignas(64) float factor[T];
    vf                 lanes[T], by;

    UNROLL(16)
    for (int i = 0; i < T; i++)
        lanes[i] = vf_load(o->den + s * CHUNK_TILE + T * i);
    by = vf_add(vf_sums(lanes), vf_set1(c->eps));
    if (c->by) by = vf_loadu(c->by + T * s);
    /* Not below, rather than above: NaN stays. */
    by = vf_select(vf_gt(vf_set1(c->least), vf_abs(by)), zero, by);
    const vm empty = vf_eq(by, zero);
    vf_store(factor, vf_select(empty, zero, vf_div(vf_set1(1.0f), by)));
    if (c->saved) vf_storeu(c->saved + T * s, by);
    for (int i = 0; i < T; i++, from += c->dv, to += c->ldo) {
        const vf f = vf_set1(factor[i]);
        const vm keep = empty >> i & 1 ? 0 : 0xffff;

        for (int j = 0; j < c->dv; j += 32) {
            const vf a = _mm512_maskz_mul_ps(keep, f, vf_load(from + j));
            const vf b = _mm512_maskz_mul_ps(keep, f, vf_load(from + j + T));
            vw_storeu((uint32_t *)(void *)(to + j), vw_row(a, b));
        }
    }
}

/* Strips of queries.  Work on vectors that does not wait for the tiles before it stands
 * after them, and runs beside them: features of the next strip, rows of the last one. */
static void chunk_queries(const struct chunk_rows *c, const struct chunk_operands *o)
{
    chunk_strip(c, o, 0);
    for (int s = 0; s < CHUNK_KEYS; s++) {
        tile_barrier();
        if (c->k) {
            chunk_scores(c, o, s);
            chunk_absorb(c, o, s);
        }
        tile_barrier();
        if (s + 1 < CHUNK_KEYS) chunk_strip(c, o, s + 1);
        if (c->k) chunk_weights(o, s);
        tile_barrier();
        chunk_rows_of(c, o, s);
        tile_barrier();
        if (s) chunk_store(c, o, s - 1);
    }
    chunk_store(c, o, CHUNK_KEYS - 1);
}

static int chunk_rows_amx(const struct chunk_rows *c)
{
    const struct chunk_operands o = chunk_operands(c);
    _Alignas(64) float          total[CHUNK_WIDTH];

    if (c->k && !(chunk_values(c, &o) && chunk_keys(c, &o, total))) return 0;
    if (c->q) {
        chunk_sums(c, &o);
        chunk_queries(c, &o);
    }
    if (!c->k) return 1;
    tile_barrier();
    for (int s = 0; !c->q && s < CHUNK_KEYS; s++)
        chunk_absorb(c, &o, s);
    for (int i = 0; i < c->d; i += T)
        vf_store(c->total + i, vf_add(vf_load(c->total + i), vf_load(total + i)));
    return 1;
}
