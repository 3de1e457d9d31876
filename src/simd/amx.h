/* amx.h -- the tile vocabulary: eight registers of 16 rows of 64 bytes, one product.
 *
 *     tile_config(c)            shape the tiles of this thread, and clear them
 *     tile_release()            give them back
 *     tile_zero(t)
 *     tile_load(t, p, stride)   rows `stride` bytes apart
 *     tile_store(t, p, stride)
 *     tile_dp(c, a, b)          c[i][j] += sum over words t of a[i][t] b[t][j]
 *     tile_barrier()            ordinary stores above it come before tile loads below
 *
 * Tile numbers are literals.  An element of a and b is a word of two bf16, an element
 * of c a float.  The barrier is for the compiler: what gcc knows of a tile load does
 * not say that it reads memory.
 *
 * With FOCI_AMX_EMULATED (a second table beside the level) or FOCI_EMULATE_TILES (the
 * level itself) the same words are done by AVX-512, to the letter of the
 * manual, so that kernels can be tested where there are no tiles.  What the hardware
 * would refuse with a fault is an assertion there.
 */
#ifndef FOCI_SIMD_AMX_H
#define FOCI_SIMD_AMX_H

#include <stdint.h>

/* As LDTILECFG reads it. */
struct tile_config {
    _Alignas(64) uint8_t palette; /* 1 */
    uint8_t  start_row;
    uint8_t  reserved[14];
    uint16_t row_bytes[16]; /* of tiles 0 to 7, then zeros */
    uint8_t  rows[16];
};

_Static_assert(sizeof(struct tile_config) == 64, "the hardware's layout");

#define tile_barrier() __asm__ volatile("" ::: "memory")

#if !defined(FOCI_AMX_EMULATED) && !defined(FOCI_EMULATE_TILES)

#include <immintrin.h>

#define tile_config(c)           _tile_loadconfig(c)
#define tile_release()           _tile_release()
#define tile_zero(t)             _tile_zero(t)
#define tile_load(t, p, stride)  _tile_loadd(t, p, stride)
#define tile_store(t, p, stride) _tile_stored(t, p, stride)
#define tile_dp(c, a, b)         _tile_dpbf16ps(c, a, b)

#else

#include <assert.h>
#include <immintrin.h>
#include <string.h>

enum { N_TILES = 8, TILE_ROWS = 16, TILE_WORDS = 16 };

struct tile {
    int      rows, words;
    uint32_t at[TILE_ROWS][TILE_WORDS];
};

/* All zeros, as a thread starts: no tile has a shape. */
static _Thread_local struct tile tiles[N_TILES];

static void tile_config(const struct tile_config *c)
{
    assert((uintptr_t)c % 64 == 0 && "ours, for speed; the hardware takes any address");
    assert(c->palette == 1 && c->start_row == 0);
    memset(tiles, 0, sizeof tiles);
    for (int t = 0; t < N_TILES; t++) {
        assert(c->rows[t] <= TILE_ROWS && c->row_bytes[t] <= 4 * TILE_WORDS);
        assert(c->row_bytes[t] % 4 == 0 && !c->rows[t] == !c->row_bytes[t]);
        tiles[t].rows = c->rows[t];
        tiles[t].words = c->row_bytes[t] / 4;
    }
}

static void tile_release(void) { memset(tiles, 0, sizeof tiles); }

static struct tile *tile_of(int t)
{
    assert(t >= 0 && t < N_TILES);
    assert(tiles[t].rows > 0 && "the thread has configured its tiles");
    return &tiles[t];
}

static void tile_zero(int t)
{
    struct tile *x = tile_of(t);
    memset(x->at, 0, sizeof x->at);
}

/* Rows and words beyond the tile's shape become zero. */
static void tile_load(int t, const void *p, int64_t stride)
{
    struct tile *x = tile_of(t);

    memset(x->at, 0, sizeof x->at);
    for (int i = 0; i < x->rows; i++)
        memcpy(x->at[i], (const char *)p + i * stride, (size_t)x->words * 4);
}

static void tile_store(int t, void *p, int64_t stride)
{
    const struct tile *x = tile_of(t);

    for (int i = 0; i < x->rows; i++)
        memcpy((char *)p + i * stride, x->at[i], (size_t)x->words * 4);
}

/* Denormals are zeros on the way in and on the way out, whatever MXCSR says. */
static __m512 tile_flush(__m512 x)
{
    const __mmask16 small =
        _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    return _mm512_mask_and_ps(x, small, x, _mm512_set1_ps(-0.0f));
}

static __m512 tile_floats(__m512i bits)
{
    return tile_flush(_mm512_castsi512_ps(bits));
}

static __m512 tile_low(__m512i words)
{
    return tile_floats(_mm512_slli_epi32(words, 16));
}

static __m512 tile_high(__m512i words)
{
    return tile_floats(_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000)));
}

/* A row of the product, rounded to nearest even at each step: the low halves of the words
 * and the high ones have a sum each, from zero, by fused multiply-add; those two are
 * added, and the result is added to c. */
static __m512 tile_row(const uint32_t *a, const struct tile *b, __m512 c)
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

static void tile_dp(int tc, int ta, int tb)
{
    struct tile       *c = tile_of(tc);
    const struct tile *a = tile_of(ta), *b = tile_of(tb);

    assert(tc != ta && tc != tb && ta != tb);
    assert(c->rows == a->rows && c->words == b->words && a->words == b->rows);
    for (int i = 0; i < c->rows; i++) {
        const __m512 sum =
            tile_row(a->at[i], b, tile_floats(_mm512_loadu_si512(c->at[i])));
        _mm512_mask_storeu_ps(c->at[i], (__mmask16)((1u << c->words) - 1), sum);
    }
}

#endif
#endif
