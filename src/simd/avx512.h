/* avx512.h -- the vector vocabulary on 16 floats.
 *
 * Bodies in kernels/common know only these names; avx2.h offers the same on 8.
 * Everything is static inline, so that no other file can end up with a copy that
 * needs AVX-512.
 */
#ifndef FOCI_SIMD_AVX512_H
#define FOCI_SIMD_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "foci/foci.h"
#include "simd/compiler.h"
#include "simd/poly.h"

enum { VF_LEN = 16 };

typedef __m512    vf;
typedef __mmask16 vm; /* a truth value for each lane */

INLINE vf   vf_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf   vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf   vf_load(const float *p) { return _mm512_load_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_store_ps(p, x); }
INLINE vf   vf_loadu(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_storeu(float *p, vf x) { _mm512_storeu_ps(p, x); }

INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* 1 / a, within 6.2e-5 of its value at least. */
INLINE vf vf_rcp_fast(vf a) { return _mm512_rcp14_ps(a); }
/* a b + c and c - a b, rounded once */
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
/* The larger, and the smaller; b where either is NaN. */
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
/* |a| with the sign of b */
INLINE vf vf_copysign(vf a, vf b)
{
    const vf sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}

INLINE vm  vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vm  vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE int vm_any(vm m) { return m != 0; }
INLINE int vm_all(vm m) { return m == 0xffff; }
/* Lane i: bit `first` + i. */
INLINE vm       vm_bits(uint64_t bits, int first) { return (vm)(bits >> first); }
INLINE uint64_t vm_mask(vm m) { return m; } /* and back, from bit 0 on */
/* Lane i: p[i] is x. */
INLINE vm vm_equal(const int32_t *p, int32_t x)
{
    return _mm512_cmpeq_epi32_mask(_mm512_load_si512(p), _mm512_set1_epi32(x));
}
/* a where m, else b */
INLINE vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

/* Complex numbers, the real part in the even lanes: x by t, or by its conjugate. */
INLINE vf vf_rotate(vf x, vf t, const int back)
{
    const vf re = _mm512_moveldup_ps(t), im = _mm512_movehdup_ps(t);
    const vf cross = vf_mul(_mm512_permute_ps(x, 0xb1), im);

    return back ? _mm512_fmsubadd_ps(x, re, cross) : _mm512_fmaddsub_ps(x, re, cross);
}

/* Numbers of 64 bits. */
enum { VU_LEN = 8 };
typedef __m512i vu;

INLINE vu vu_set1(uint64_t x) { return _mm512_set1_epi64((long long)x); }
INLINE vu vu_loadu(const uint64_t *p) { return _mm512_loadu_si512(p); }
INLINE vu vu_add(vu a, vu b) { return _mm512_add_epi64(a, b); }
INLINE vu vu_mul(vu a, vu b) { return _mm512_mullo_epi64(a, b); }
/* x ^ x >> n */
INLINE vu vu_fold(vu x, unsigned n)
{
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, n));
}
/* Bit i: a_i >= b_i. */
INLINE unsigned vu_not_below(vu a, vu b) { return _mm512_cmpge_epu64_mask(a, b); }

/* Doubles. */
enum { VD_LEN = 8 };
typedef __m512d vd;

INLINE vd   vd_set1(double x) { return _mm512_set1_pd(x); }
INLINE vd   vd_load(const double *p) { return _mm512_load_pd(p); }
INLINE void vd_store(double *p, vd x) { _mm512_store_pd(p, x); }
INLINE vd   vd_mul(vd a, vd b) { return _mm512_mul_pd(a, b); }
INLINE vd   vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
/* Doubles from VD_LEN floats, and back. */
INLINE vd   vd_from(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
INLINE void vd_to(float *p, vd x) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }

INLINE float vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
INLINE float vf_most(vf x) { return _mm512_reduce_max_ps(x); }

/* 2^t for t <= 127: relative error below 2e-7, 0 at -inf, NaN at NaN.
 *
 * t - floor(t) by one instruction, a polynomial on [0, 1) and scalef, which takes
 * floor(t) again and sees to underflow and -inf by itself. */
INLINE vf vf_exp2(vf t)
{
    const vf x = _mm512_reduce_ps(t, 1); /* towards -inf, no fraction bits */
    vf       y = vf_set1(EXP2_5);

    y = vf_fma(y, x, vf_set1(EXP2_4));
    y = vf_fma(y, x, vf_set1(EXP2_3));
    y = vf_fma(y, x, vf_set1(EXP2_2));
    y = vf_fma(y, x, vf_set1(EXP2_1));
    y = vf_fma(y, x, vf_set1(1.0f));
    return _mm512_scalef_ps(y, t);
}

/* The same with relative error below 9e-5, where rounding to bf16 costs up to
 * 3.9e-3 anyway. */
INLINE vf vf_exp2_fast(vf t)
{
    const vf x = _mm512_reduce_ps(t, 1);
    vf       y = vf_set1(EXP2_FAST_3);

    y = vf_fma(y, x, vf_set1(EXP2_FAST_2));
    y = vf_fma(y, x, vf_set1(EXP2_FAST_1));
    y = vf_fma(y, x, vf_set1(1.0f));
    return _mm512_scalef_ps(y, t);
}

/*
 * Other types in memory: VF_LEN elements of a foci_dtype, or the first n < VF_LEN
 * of them.
 */

INLINE vf vf_of_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* To nearest even, in the upper half of each lane; NaN stays NaN. */
INLINE __m512i vf_round_bf16(vf x)
{
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const vm      nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    return _mm512_mask_or_epi32(_mm512_add_epi32(u, half), nan, u,
                                _mm512_set1_epi32(0x400000));
}

INLINE __m256i vf_to_bf16(vf x)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(vf_round_bf16(x), 16));
}

/* Lanes of both as bf16, in pairs. */
INLINE vf vf_pair_bf16(vf low, vf high)
{
    const __m512i lower = _mm512_srli_epi32(vf_round_bf16(low), 16);

    return _mm512_castsi512_ps(
        _mm512_mask_blend_epi16(0xaaaaaaaa, lower, vf_round_bf16(high)));
}

/* The even and the odd ones of 2 VF_LEN bf16 in memory. */
INLINE void vf_unpair_bf16(const void *p, vf *low, vf *high)
{
    const __m512i x = _mm512_loadu_si512(p);

    *low = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *high = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(-0x10000)));
}

/* The same of the first n < 2 VF_LEN; the others are 0. */
INLINE void vf_unpair_bf16_n(const void *p, int n, vf *low, vf *high)
{
    const __m512i x = _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);

    *low = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *high = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(-0x10000)));
}

/* Even and odd ones of 2 VF_LEN floats in order: the first half of them, or the second;
 * and back from both halves to the even ones, or the odd ones. */
INLINE vf vf_zip(vf even, vf odd, const int second)
{
    const __m512i first =
        _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i at = second ? _mm512_add_epi32(first, _mm512_set1_epi32(8)) : first;
    return _mm512_permutex2var_ps(even, at, odd);
}
INLINE vf vf_unzip(vf first, vf second, const int odd)
{
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i at = odd ? _mm512_add_epi32(even, _mm512_set1_epi32(1)) : even;
    return _mm512_permutex2var_ps(first, at, second);
}

INLINE vf vf_of_16(__m256i h, int dtype)
{
    return dtype == FOCI_BF16 ? vf_of_bf16(h) : _mm512_cvtph_ps(h);
}

INLINE __m256i vf_to_16(vf x, int dtype)
{
    return dtype == FOCI_BF16 ? vf_to_bf16(x)
                              : _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

INLINE vf vf_from(const void *p, int dtype)
{
    if (dtype == FOCI_F32) return _mm512_loadu_ps(p);
    return vf_of_16(_mm256_loadu_si256(p), dtype);
}

INLINE vf vf_from_n(const void *p, int dtype, int n)
{
    const vm m = (vm)((1u << n) - 1);

    if (dtype == FOCI_F32) return _mm512_maskz_loadu_ps(m, p);
    return vf_of_16(_mm256_maskz_loadu_epi16(m, p), dtype);
}

/* Non-temporal store to a vector-aligned address; other threads see it after stream_end(). */
INLINE void vf_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
/* Two of them as VF_LEN pairs of elements of 16 bits. */
INLINE void vf_stream_16(void *p, int dtype, vf low, vf high)
{
    const __m512i x = _mm512_castsi256_si512(vf_to_16(low, dtype));
    _mm512_stream_si512(p, _mm512_inserti64x4(x, vf_to_16(high, dtype), 1));
}
INLINE void stream_end(void) { _mm_sfence(); }

INLINE void vf_to(void *p, int dtype, vf x)
{
    if (dtype == FOCI_F32)
        _mm512_storeu_ps(p, x);
    else
        _mm256_storeu_si256(p, vf_to_16(x, dtype));
}

INLINE void vf_to_n(void *p, int dtype, vf x, int n)
{
    const vm m = (vm)((1u << n) - 1);

    if (dtype == FOCI_F32)
        _mm512_mask_storeu_ps(p, m, x);
    else
        _mm256_mask_storeu_epi16(p, m, vf_to_16(x, dtype));
}

/* Transpose the square r[VF_LEN]: within 128-bit parts first, then the parts. */
INLINE void vf_transpose(vf r[VF_LEN])
{
    vf t[VF_LEN];

    UNROLL(4)
    for (int i = 0; i < 16; i += 4) {
        const vf a = _mm512_unpacklo_ps(r[i], r[i + 1]);
        const vf b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const vf c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
        const vf d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const vf b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const vf c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const vf d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);

        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* Sums of the lanes of x[0] to x[15], in order. */
INLINE vf vf_sums(const vf x[16])
{
    vf a[8], b[4];

    UNROLL(8)
    for (int i = 0; i < 8; i++)
        a[i] = vf_add(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]),
                      _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const __m512d p = _mm512_castps_pd(a[2 * i]),
                      q = _mm512_castps_pd(a[2 * i + 1]);
        b[i] = vf_add(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)),
                      _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));
    }
    const vf c = vf_add(_mm512_shuffle_f32x4(b[0], b[1], 0x88),
                        _mm512_shuffle_f32x4(b[0], b[1], 0xdd));
    const vf d = vf_add(_mm512_shuffle_f32x4(b[2], b[3], 0x88),
                        _mm512_shuffle_f32x4(b[2], b[3], 0xdd));
    return vf_add(_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
}

#endif
