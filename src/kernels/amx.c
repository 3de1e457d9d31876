/* amx.c -- level "amx": products of bf16 pairs on AMX tiles.
 *
 * A tile is 16 rows of 16 pairs or floats.  A tile product takes 16 cycles, a load 8 and a
 * store 16, and a thread has eight tiles.  The sums therefore stay in tiles over the whole
 * depth, and speed depends on how often operands are loaded and results stored.  Everything
 * else comes from the levels below, except the packing of the first operand of a sum over
 * keys: tiles want the summed index contiguous in rows.
 *
 * dev/amx.md has the counts and the experiments.
 */
#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "simd/amx.h"
#include "simd/avx512bf16.h"

enum { T = 16 };    /* rows of a tile, and pairs or floats of a row */
enum { LINE = 64 }; /* bytes of a cache line, and of a row of a tile */

/* Operands are padded to whole tiles, so that one shape does for all. */
static const struct tile_config whole = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { T, T, T, T, T, T, T, T },
};

/* Tile numbers are literals. */
#define EACH_TILE(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7)

static void begin_amx(struct thread_state *before)
{
    struct tile_config found = { 0 };

    tile_config_store(&found);
    tile_barrier();
    memcpy(before->config, &found, sizeof found);
    if (found.palette) {
#define KEEP(t)                                                                        \
    if (found.rows[t]) tile_store(t, before->tiles[t], 64);
        EACH_TILE(KEEP)
    }
    tile_config(&whole);
}

static void end_amx(const struct thread_state *before)
{
    struct tile_config found;

    memcpy(&found, before->config, sizeof found);
    tile_barrier();
    if (found.palette) {
        tile_config(&found);
#define PUT_BACK(t)                                                                    \
    if (found.rows[t]) tile_load(t, before->tiles[t], 64);
        EACH_TILE(PUT_BACK)
    } else {
        tile_release();
    }
}

/*
 * Products
 */

/* c[m][n] (+)= a[m][k] b[k][n] and the distances of their rows in pairs. */
struct amx_product {
    float          *c;
    const uint32_t *a, *b;
    int64_t         ldc, lda, ldb;
    int             k, add;
};

static inline struct amx_product at(const struct amx_product *p, int i, int j)
{
    struct amx_product part = *p;

    part.c += i * p->ldc + j;
    part.a += i * p->lda;
    part.b += j;
    return part;
}

/* One block of one or two tiles each way: sums in tiles 0 to 3, a in 4 and 5, b in 6
 * and 7.  tall and wide are constants, and the branches on them vanish. */
INLINE void block(const struct amx_product p, const bool tall, const bool wide)
{
    const int64_t sc = 4 * p.ldc, sa = 4 * p.lda, sb = 4 * p.ldb;

    if (p.add) {
        tile_load(0, p.c, sc);
        if (wide) tile_load(1, p.c + T, sc);
        if (tall) tile_load(2, p.c + T * p.ldc, sc);
        if (tall && wide) tile_load(3, p.c + T * p.ldc + T, sc);
    } else {
        tile_zero(0);
        if (wide) tile_zero(1);
        if (tall) tile_zero(2);
        if (tall && wide) tile_zero(3);
    }

    const uint32_t *a = p.a, *b = p.b;
    for (int t = 0; t < p.k; t += T, a += T, b += T * p.ldb) {
        tile_load(4, a, sa);
        tile_load(6, b, sb);
        tile_dp(0, 4, 6);
        if (wide) {
            tile_load(7, b + T, sb);
            tile_dp(1, 4, 7);
        }
        if (tall) {
            tile_load(5, a + T * p.lda, sa);
            tile_dp(2, 5, 6);
            if (wide) tile_dp(3, 5, 7);
        }
    }

    tile_store(0, p.c, sc);
    if (wide) tile_store(1, p.c + T, sc);
    if (tall) tile_store(2, p.c + T * p.ldc, sc);
    if (tall && wide) tile_store(3, p.c + T * p.ldc + T, sc);
}

/* 32 columns at depth 32 pairs, over all m rows: b stays in tiles 4 to 7 while rows
 * of a go by in 2 and 3, sums in 0 and 1.  That is scores at d = 64 and every sum
 * over 64 keys or queries, and saves half the loads of the block above. */
static void strip(const struct amx_product p, int m)
{
    const int64_t   sc = 4 * p.ldc, sa = 4 * p.lda, sb = 4 * p.ldb;
    const uint32_t *a = p.a;
    float          *c = p.c;

    tile_load(4, p.b, sb);
    tile_load(5, p.b + T, sb);
    tile_load(6, p.b + T * p.ldb, sb);
    tile_load(7, p.b + T * p.ldb + T, sb);

    for (int i = 0; i < m; i += T, a += T * p.lda, c += T * p.ldc) {
        tile_load(2, a, sa);
        if (p.add) {
            tile_load(0, c, sc);
            tile_load(1, c + T, sc);
        } else {
            tile_zero(0);
            tile_zero(1);
        }
        tile_dp(0, 2, 4);
        tile_load(3, a + T, sa);
        tile_dp(1, 2, 5);
        tile_dp(0, 3, 6);
        tile_dp(1, 3, 7);
        tile_store(0, c, sc);
        tile_store(1, c + T, sc);
    }
}

/* Columns go around the outside: a strip of b is read from L1 by all rows of a. */
static void gemm_bf16_amx(float *c, int64_t ldc, const uint32_t *a, int64_t ra,
                          int64_t ca, const uint32_t *b, int64_t ldb, int m, int n,
                          int k, int add)
{
    const struct amx_product p = { c, a, b, ldc, ra, ldb, k, add };

    assert(ca == 1 && m % T == 0 && n % T == 0 && k % T == 0);
    (void)ca;

    tile_barrier(); /* operands are made by vector code */
    for (int j = 0; j < n; j += 2 * T) {
        const bool wide = j + T < n;
        if (wide && k == 2 * T) {
            strip(at(&p, 0, j), m);
            continue;
        }
        for (int i = 0; i < m; i += 2 * T) {
            const bool tall = i + T < m;
            if (tall && wide)
                block(at(&p, i, j), true, true);
            else if (tall)
                block(at(&p, i, j), true, false);
            else if (wide)
                block(at(&p, i, j), false, true);
            else
                block(at(&p, i, j), false, false);
        }
    }
}

/* Four products a round, of tiles that stay where they are, into one: that is the full rate,
 * also while a sibling thread leaves few registers to be renamed. */
static double peak_bf16_amx(float *c, const uint32_t *a, const uint32_t *b,
                            int64_t rounds)
{
    enum { ROW = 4 * T };

    tile_barrier();
    tile_load(0, c, ROW);
    tile_load(1, a, ROW);
    tile_load(2, b, ROW);
    for (int64_t r = 0; r < rounds; r++) {
        tile_dp(0, 1, 2);
        tile_dp(0, 1, 2);
        tile_dp(0, 1, 2);
        tile_dp(0, 1, 2);
    }
    tile_store(0, c, ROW);
    tile_barrier();
    return 4 * 4.0 * T * T * T * (double)rounds;
}

/*
 * Packing
 */

/* Rows i and i + 8 of in[n][16 columns] as bf16, one beside the other; rows from n
 * on are zero. */
static inline __m512i two_rows(const float *in, int64_t ld, int i, int n)
{
    const __mmask16 has_low = i < n ? 0xffff : 0, has_high = i + 8 < n ? 0xffff : 0;
    const __m512    low = _mm512_maskz_load_ps(has_low, in + i * ld);
    const __m512    high = _mm512_maskz_load_ps(has_high, in + (i + 8) * ld);

    return (__m512i)vw_row(low, high);
}

/* A transposition of 8 x 8 bf16 in each quarter of the registers: on return the
 * quarters of y[j] are column j of rows 0-7, column j + 8 of them, column j of rows
 * 8-15, column j + 8 of them.  Each of the three steps brings one more bit of the row
 * into the place of an element and puts one bit of the column into its register. */
INLINE void columns(__m512i y[8], const float *in, int64_t ld, int n)
{
    const __m512i a0 = two_rows(in, ld, 0, n), a1 = two_rows(in, ld, 1, n);
    const __m512i a2 = two_rows(in, ld, 2, n), a3 = two_rows(in, ld, 3, n);
    const __m512i a4 = two_rows(in, ld, 4, n), a5 = two_rows(in, ld, 5, n);
    const __m512i a6 = two_rows(in, ld, 6, n), a7 = two_rows(in, ld, 7, n);

    /* b0-b3: columns 0-3 of row pairs 01, 23, 45, 67; b4-b7: columns 4-7 */
    const __m512i b0 = _mm512_unpacklo_epi16(a0, a1);
    const __m512i b4 = _mm512_unpackhi_epi16(a0, a1);
    const __m512i b1 = _mm512_unpacklo_epi16(a2, a3);
    const __m512i b5 = _mm512_unpackhi_epi16(a2, a3);
    const __m512i b2 = _mm512_unpacklo_epi16(a4, a5);
    const __m512i b6 = _mm512_unpackhi_epi16(a4, a5);
    const __m512i b3 = _mm512_unpacklo_epi16(a6, a7);
    const __m512i b7 = _mm512_unpackhi_epi16(a6, a7);

    /* c0-c7: columns 01, 23, 45, 67, each of rows 0-3 and of rows 4-7 */
    const __m512i c0 = _mm512_unpacklo_epi32(b0, b1);
    const __m512i c1 = _mm512_unpacklo_epi32(b2, b3);
    const __m512i c2 = _mm512_unpackhi_epi32(b0, b1);
    const __m512i c3 = _mm512_unpackhi_epi32(b2, b3);
    const __m512i c4 = _mm512_unpacklo_epi32(b4, b5);
    const __m512i c5 = _mm512_unpacklo_epi32(b6, b7);
    const __m512i c6 = _mm512_unpackhi_epi32(b4, b5);
    const __m512i c7 = _mm512_unpackhi_epi32(b6, b7);

    y[0] = _mm512_unpacklo_epi64(c0, c1);
    y[1] = _mm512_unpackhi_epi64(c0, c1);
    y[2] = _mm512_unpacklo_epi64(c2, c3);
    y[3] = _mm512_unpackhi_epi64(c2, c3);
    y[4] = _mm512_unpacklo_epi64(c4, c5);
    y[5] = _mm512_unpackhi_epi64(c4, c5);
    y[6] = _mm512_unpacklo_epi64(c6, c7);
    y[7] = _mm512_unpackhi_epi64(c6, c7);
}

/* The last step: x from rows 0-15 and y from 16-31 to two columns, 8 apart. */
static inline void join(uint32_t *out, __m512i x, __m512i y)
{
    _mm512_store_si512(out, _mm512_shuffle_i32x4(x, y, 0x88));
    _mm512_store_si512(out + 32 * 8, _mm512_shuffle_i32x4(x, y, 0xdd));
}

/* 16 columns of 32 rows, of which n count: 16 pairs in each of 16 rows of out. */
INLINE void transpose_pairs(uint32_t *out, const float *in, int64_t ld, int n)
{
    __m512i x[8], y[8];

    columns(x, in, ld, n);
    columns(y, in + 16 * ld, ld, n - 16);
    UNROLL(8)
    for (int j = 0; j < 8; j++)
        join(out + 32 * j, x[j], y[j]);
}

/* Out of line: inlined, gcc keeps the addresses of 64 rows at hand, in memory. */
static __attribute__((noinline)) void transpose_whole(uint32_t *out, const float *in,
                                                      int64_t ld)
{
    transpose_pairs(out, in, ld, 32);
}

static __attribute__((noinline)) void transpose_part(uint32_t *out, const float *in,
                                                     int64_t ld, int n)
{
    transpose_pairs(out, in, ld, n);
}

static void pack_sum_bf16_amx(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int c = 0; c < d; c += 16, out += 16 * 32)
        for (int half = 0; half < 2; half++) {
            const float *tile = in + 32 * half * ld + c;
            const int    left = n - 32 * half;
            if (left >= 32)
                transpose_whole(out + 16 * half, tile, ld);
            else
                transpose_part(out + 16 * half, tile, ld, left);
        }
}

/* 16 columns from c on of rows 2t and 2t+1, as pairs. */
INLINE vf stored_pair(const uint16_t *in, int64_t ld, int t, int n, int c, int d)
{
    const int       left = d - c < 0 ? 0 : d - c;
    const __mmask16 some = (__mmask16)(left >= 16 ? 0xffff : (1u << left) - 1);
    __m256i         x[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };

    for (int i = 0; i < 2; i++)
        if (2 * t + i < n && left)
            x[i] = _mm256_maskz_loadu_epi16(some, in + (2 * t + i) * ld + c);
    return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32(x[0]),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(x[1]), 16));
}

static void pack_sum_from_bf16_amx(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                                   int d, int wide)
{
    for (int c = 0; c < wide; c += T)
        for (int t0 = 0; t0 < LANES / 2; t0 += T) {
            vf x[T];

            for (int t = 0; t < T; t++)
                x[t] = stored_pair(in, ld, t0 + t, n, c, d);
            vf_transpose(x);
            for (int i = 0; i < T; i++)
                vw_store(out + (c + i) * (LANES / 2) + t0, (vw)x[i]);
        }
}

#include "kernels/amx/attend.c"
#include "kernels/amx/attend_pack.c"
#include "kernels/common/tile_linear.c"
#include "kernels/common/tile_linear_back.c"

/*
 * Decoding: the CPUs that have tiles multiply floats faster than pairs
 */

#include "kernels/common/decode_halves.c"

static void dots_bf16_amx(float *s, const uint32_t *q, int64_t ldq, int rows,
                          const uint16_t *k, int64_t ldk, int n, int d)
{
    const int          all = rows == 1 ? 1 : rows <= 4 ? 4 : HALVES_ROWS;
    _Alignas(64) float halves[HALVES_ROWS * HALVES_WIDTH];

    for (int c0 = 0; c0 < d; c0 += HALVES_WIDTH) {
        const int wide = d - c0 < HALVES_WIDTH ? d - c0 : HALVES_WIDTH;

        for (int r = 0; r < all; r++)
            for (int c = 0; c < wide; c += 2 * VF_LEN) {
                float *const to = halves + r * HALVES_WIDTH + c;
                vf           low, high;

                vf_unpair_bf16(q + r * ldq + (c0 + c) / 2, &low, &high);
                vf_store(to, low);
                vf_store(to + VF_LEN, high);
            }
        halves_dots(s, halves, rows, k + c0, ldk, n, wide, c0 > 0);
    }
}

static void sums_bf16_amx(float *o, int64_t ldo, const float *w, int rows,
                          const uint16_t *v, int64_t ldv, int n, int d)
{
    const int          all = rows == 1 ? 1 : rows <= 4 ? 4 : HALVES_ROWS;
    const __m512i      high = _mm512_set1_epi32((int)0xffff0000);
    _Alignas(64) float rounded[HALVES_ROWS * LANES];

    for (int i = 0; i < all * LANES; i += VF_LEN)
        vf_store(rounded + i, (vf)_mm512_and_si512(vf_round_bf16(vf_load(w + i)), high));
    halves_sums(o, ldo, rounded, rows, v, ldv, n, d);
}

#include "kernels/amx/grad.c"
#include "kernels/common/tile_product.c"

void kernels_amx(struct kernels *k)
{
    k->gemm_bf16 = gemm_bf16_amx;
    k->peak_bf16 = peak_bf16_amx;
    k->pack_sum_bf16 = pack_sum_bf16_amx;
    k->pack_sum_from_bf16 = pack_sum_from_bf16_amx;
    k->attend_bf16 = attend_bf16_amx;
    k->attend_keys = attend_keys_amx;
    k->attend_values = attend_values_amx;
    k->seen_rows = seen_rows_amx;
    k->grad_panel_bf16 = grad_panel_bf16_amx;
    k->pairs_to_tiles = pairs_to_tiles_amx;
    k->pack_block_from_bf16 = pack_block_from_bf16_amx;
    k->tile_panel = tile_panel_amx;
    k->tile_rest = tile_rest_amx;
    k->tile_multiply = tile_multiply_amx;
    k->transpose_bf16 = transpose_bf16_amx;
    k->tile_pairs = tile_pairs_amx;
    k->tile_strip = tile_strip_amx;
    k->dots_bf16 = dots_bf16_amx;
    k->sums_bf16 = sums_bf16_amx;
    k->chunk_rows = chunk_rows_amx;
    k->chunk_back = chunk_back_amx;
    k->begin = begin_amx;
    k->end = end_amx;
    k->has_bf16 = true;
    k->attends = true;
    k->has_chunks = true;
    k->has_panels = true;
    k->sum_by_rows = true;
    k->depth = 32;
    k->panel = 128;
}
