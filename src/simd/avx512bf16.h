/* avx512bf16.h -- pairs of two bf16, beside the vocabulary of avx512.h.
 *
 * The instructions round to nearest even, and take denormals for zero and make none.
 */
#ifndef FOCI_SIMD_AVX512BF16_H
#define FOCI_SIMD_AVX512BF16_H

#include "simd/avx512.h"

typedef __m512bh vw; /* 16 pairs, or 32 bf16 in a row */

INLINE vw   vw_load(const uint32_t *p) { return (vw)_mm512_load_si512(p); }
INLINE vw   vw_set1(uint32_t x) { return (vw)_mm512_set1_epi32((int)x); }
INLINE vw   vw_ones(void) { return vw_set1(0x3f803f80); }
INLINE void vw_store(void *p, vw x) { _mm512_store_si512(p, (__m512i)x); }

/* The first n < 16 pairs, to any address. */
INLINE void vw_store_n(uint32_t *p, vw x, int n)
{
    _mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), (__m512i)x);
}
INLINE void vw_storeu(uint32_t *p, vw x) { _mm512_storeu_si512(p, (__m512i)x); }

/* c + low low + high high */
INLINE vf vw_dot(vw a, vw b, vf c) { return _mm512_dpbf16_ps(c, a, b); }

/* 32 floats in a row */
INLINE vw vw_row(vf first, vf second) { return _mm512_cvtne2ps_pbh(second, first); }

/* Pairs from two rows of 32 bf16: their lanes 0 to 15, and 16 to 31. */
INLINE vw vw_zip_low(vw low, vw high)
{
    const __m512i at =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return (vw)_mm512_permutex2var_epi16((__m512i)low, at, (__m512i)high);
}

INLINE vw vw_zip_high(vw low, vw high)
{
    const __m512i at = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26,
                                        57, 25, 56, 24, 55, 23, 54, 22, 53, 21, 52, 20,
                                        51, 19, 50, 18, 49, 17, 48, 16);
    return (vw)_mm512_permutex2var_epi16((__m512i)low, at, (__m512i)high);
}

/* Pairs from two vectors of floats: one conversion of both, then one permutation. */
INLINE vw vw_pair(vf low, vf high)
{
    const __m512i at =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vw)_mm512_permutexvar_epi16(at, (__m512i)vw_row(low, high));
}

/* vf_to() by one instruction where elements are bf16: denormals become 0. */
INLINE void vw_to(void *p, int dtype, vf x)
{
    if (dtype == FOCI_BF16)
        _mm256_storeu_si256(p, (__m256i)_mm512_cvtneps_pbh(x));
    else
        vf_to(p, dtype, x);
}
INLINE void vw_to_n(void *p, int dtype, vf x, int n)
{
    if (dtype == FOCI_BF16)
        _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1),
                                 (__m256i)_mm512_cvtneps_pbh(x));
    else
        vf_to_n(p, dtype, x, n);
}

/* 32 bf16 of any alignment, or the first n < 32 of them. */
INLINE vw vw_stored(const uint16_t *p) { return (vw)_mm512_loadu_si512(p); }
INLINE vw vw_stored_n(const uint16_t *p, int n)
{
    return (vw)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);
}

/* 16 bf16 and 16 more, each 32-byte aligned. */
INLINE vw vw_halves(const uint16_t *first, const uint16_t *second)
{
    return (vw)_mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_load_si256((const __m256i *)first)),
        _mm256_load_si256((const __m256i *)second), 1);
}

/* Of 32 bf16, a where the bit is set, else b. */
INLINE vw vw_select(uint32_t bits, vw a, vw b)
{
    return (vw)_mm512_mask_blend_epi16(bits, (__m512i)b, (__m512i)a);
}

/* 32 bf16 where their bits are set, zeros elsewhere. */
INLINE vw vw_stored_where(const uint16_t *p, uint32_t bits)
{
    return (vw)_mm512_maskz_loadu_epi16(bits, p);
}

/* Lower and higher halves of pairs, each where its mask says so. */
INLINE vw vw_halves_where(vw x, vm low, vm high)
{
    const __m512i lower = _mm512_and_si512((__m512i)x, _mm512_set1_epi32(0xffff));
    const __m512i upper = _mm512_andnot_si512(_mm512_set1_epi32(0xffff), (__m512i)x);

    return (vw)_mm512_or_si512(_mm512_maskz_mov_epi32(low, lower),
                               _mm512_maskz_mov_epi32(high, upper));
}

/* Pairs of two rows of 32 bf16, in an order that vf_unmix() undoes for sums. */
INLINE vw vw_mix_low(vw a, vw b)
{
    return (vw)_mm512_unpacklo_epi16((__m512i)a, (__m512i)b);
}
INLINE vw vw_mix_high(vw a, vw b)
{
    return (vw)_mm512_unpackhi_epi16((__m512i)a, (__m512i)b);
}
/* Columns 0 to 15, or 16 to 31, of sums of such pairs. */
INLINE vf vf_unmix(vf low, vf high, const int second)
{
    const __m512i first =
        _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i at = second ? _mm512_add_epi32(first, _mm512_set1_epi32(8)) : first;
    return _mm512_permutex2var_ps(low, at, high);
}

#endif
