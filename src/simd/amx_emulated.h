/* amx_emulated.h -- the tile vocabulary of amx.h by AVX-512, following the manual exactly.
 *
 * For tests on CPUs without tiles.  Where the hardware would fault, an assertion fails.
 */
#ifndef FOCI_SIMD_AMX_EMULATED_H
#define FOCI_SIMD_AMX_EMULATED_H

#include <assert.h>
#include <string.h>

enum { N_TILES = 8, TILE_ROWS = 16, TILE_WORDS = 16 };

struct emulated_tile {
    int      rows, pairs;
    uint32_t at[TILE_ROWS][TILE_WORDS];
};

/* The tile unit of a thread.  All zeros, as a thread starts: no tile has a shape. */
struct tile_unit {
    struct tile_config   config;
    struct emulated_tile tiles[N_TILES];
};

/* Shared by all files that work on tiles (tests/emulated/tiles.c). */
extern _Thread_local struct tile_unit tile_unit;

static inline void tile_config(const struct tile_config *c)
{
    struct emulated_tile *const tiles = tile_unit.tiles;

    assert((uintptr_t)c % 64 == 0 && "ours, for speed; the hardware takes any address");
    assert(c->palette == 1 && c->start_row == 0);
    memset(&tile_unit, 0, sizeof tile_unit);
    tile_unit.config = *c;
    for (int t = 0; t < N_TILES; t++) {
        assert(c->rows[t] <= TILE_ROWS && c->row_bytes[t] <= 4 * TILE_WORDS);
        assert(c->row_bytes[t] % 4 == 0 && !c->rows[t] == !c->row_bytes[t]);
        tiles[t].rows = c->rows[t];
        tiles[t].pairs = c->row_bytes[t] / 4;
    }
}

static inline void tile_config_store(struct tile_config *c) { *c = tile_unit.config; }

static inline void tile_release(void) { memset(&tile_unit, 0, sizeof tile_unit); }

static inline struct emulated_tile *tile_of(int t)
{
    assert(t >= 0 && t < N_TILES);
    assert(tile_unit.tiles[t].rows > 0 && "the thread has configured its tiles");
    return &tile_unit.tiles[t];
}

static inline void tile_zero(int t)
{
    struct emulated_tile *x = tile_of(t);
    memset(x->at, 0, sizeof x->at);
}

/* Rows and pairs beyond the tile's shape become zero. */
static inline void tile_load(int t, const void *p, int64_t stride)
{
    struct emulated_tile *x = tile_of(t);

    memset(x->at, 0, sizeof x->at);
    for (int i = 0; i < x->rows; i++)
        memcpy(x->at[i], (const char *)p + i * stride, (size_t)x->pairs * 4);
}

static inline void tile_store(int t, void *p, int64_t stride)
{
    const struct emulated_tile *x = tile_of(t);

    for (int i = 0; i < x->rows; i++)
        memcpy((char *)p + i * stride, x->at[i], (size_t)x->pairs * 4);
}

#ifdef __AVX512F__ /* the rest of the unit does not need it */

#include <immintrin.h>

/* Denormals are zeros on the way in and on the way out, whatever MXCSR says. */
static inline __m512 tile_flush(__m512 x)
{
    const __mmask16 small =
        _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    return _mm512_mask_and_ps(x, small, x, _mm512_set1_ps(-0.0f));
}

static inline __m512 tile_floats(__m512i bits)
{
    return tile_flush(_mm512_castsi512_ps(bits));
}

static inline __m512 tile_low(__m512i pairs)
{
    return tile_floats(_mm512_slli_epi32(pairs, 16));
}

static inline __m512 tile_high(__m512i pairs)
{
    return tile_floats(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* A row of the product, rounded to nearest even at each step: the low halves of the pairs
 * and the high ones have a sum each, from zero, by fused multiply-add; those two are
 * added, and the result is added to c. */
static inline __m512 tile_row(const uint32_t *a, const struct emulated_tile *b, __m512 c)
{
    __m512 low = _mm512_setzero_ps(), high = low;

    for (int t = 0; t < b->rows; t++) {
        const __m512i x = _mm512_set1_epi32((int)a[t]),
                      y = _mm512_loadu_si512(b->at[t]);
        low = tile_flush(_mm512_fmadd_ps(tile_low(x), tile_low(y), low));
        high = tile_flush(_mm512_fmadd_ps(tile_high(x), tile_high(y), high));
    }
    return tile_flush(_mm512_add_ps(c, tile_flush(_mm512_add_ps(low, high))));
}

static inline void tile_dp(int tc, int ta, int tb)
{
    struct emulated_tile       *c = tile_of(tc);
    const struct emulated_tile *a = tile_of(ta), *b = tile_of(tb);

    assert(tc != ta && tc != tb && ta != tb);
    assert(c->rows == a->rows && c->pairs == b->pairs && a->pairs == b->rows);
    for (int i = 0; i < c->rows; i++) {
        const __m512 sum =
            tile_row(a->at[i], b, tile_floats(_mm512_loadu_si512(c->at[i])));
        _mm512_mask_storeu_ps(c->at[i], (__mmask16)((1u << c->pairs) - 1), sum);
    }
}

#endif
#endif
