/* avx2.h -- the vector vocabulary on 8 floats: AVX2, FMA and F16C.
 *
 * The same names as in avx512.h, with masks as vectors of all ones or zeros.
 */
#ifndef FOCI_SIMD_AVX2_H
#define FOCI_SIMD_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "foci/foci.h"
#include "simd/compiler.h"
#include "simd/poly.h"

enum { VF_LEN = 8 };

typedef __m256 vf;
typedef __m256 vm; /* a truth value for each lane */

INLINE vf   vf_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf   vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf   vf_load(const float *p) { return _mm256_load_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_store_ps(p, x); }
INLINE vf   vf_loadu(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_storeu(float *p, vf x) { _mm256_storeu_ps(p, x); }

INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
/* 1 / a, within 6.2e-5 of its value at least. */
INLINE vf vf_rcp_fast(vf a) { return vf_div(vf_set1(1.0f), a); }
/* a b + c and c - a b, rounded once */
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
/* The larger, and the smaller; b where either is NaN. */
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
/* |a| with the sign of b */
INLINE vf vf_copysign(vf a, vf b)
{
    return _mm256_or_ps(vf_abs(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), b));
}

INLINE vm  vf_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
INLINE vm  vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE int vm_any(vm m) { return _mm256_movemask_ps(m) != 0; }
INLINE int vm_all(vm m) { return _mm256_movemask_ps(m) == 0xff; }
/* Lane i: bit `first` + i. */
INLINE vm vm_bits(uint64_t bits, int first)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32((int)(bits >> first & 0xff));

    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane));
}
/* The bits of a mask, from bit 0 on. */
INLINE uint64_t vm_mask(vm m) { return (uint64_t)_mm256_movemask_ps(m); }
/* Lane i: p[i] is x. */
INLINE vm vm_equal(const int32_t *p, int32_t x)
{
    const __m256i lanes = _mm256_load_si256((const __m256i *)p);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(x)));
}
/* a where m, else b */
INLINE vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }

/* Complex numbers, the real part in the even lanes: x by t, or by its conjugate. */
INLINE vf vf_rotate(vf x, vf t, const int back)
{
    const vf re = _mm256_moveldup_ps(t), im = _mm256_movehdup_ps(t);
    const vf cross = vf_mul(_mm256_permute_ps(x, 0xb1), im);

    return back ? _mm256_fmsubadd_ps(x, re, cross) : _mm256_fmaddsub_ps(x, re, cross);
}

/* Numbers of 64 bits. */
enum { VU_LEN = 4 };
typedef __m256i vu;

INLINE vu vu_set1(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
INLINE vu vu_loadu(const uint64_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vu vu_add(vu a, vu b) { return _mm256_add_epi64(a, b); }
/* A 64-bit product, from products of its 32-bit halves. */
INLINE vu vu_mul(vu a, vu b)
{
    const vu ah = _mm256_srli_epi64(a, 32), bh = _mm256_srli_epi64(b, 32);
    const vu cross = vu_add(_mm256_mul_epu32(a, bh), _mm256_mul_epu32(ah, b));

    return vu_add(_mm256_mul_epu32(a, b), _mm256_slli_epi64(cross, 32));
}
/* x ^ x >> n */
INLINE vu vu_fold(vu x, int n) { return _mm256_xor_si256(x, _mm256_srli_epi64(x, n)); }
/* Bit i: a_i >= b_i.  Only signed numbers compare. */
INLINE unsigned vu_not_below(vu a, vu b)
{
    const vu top = vu_set1(UINT64_C(1) << 63);
    const vu below =
        _mm256_cmpgt_epi64(_mm256_xor_si256(b, top), _mm256_xor_si256(a, top));

    return ~(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(below)) & 0xfu;
}

/* Doubles. */
enum { VD_LEN = 4 };
typedef __m256d vd;

INLINE vd   vd_set1(double x) { return _mm256_set1_pd(x); }
INLINE vd   vd_load(const double *p) { return _mm256_load_pd(p); }
INLINE void vd_store(double *p, vd x) { _mm256_store_pd(p, x); }
INLINE vd   vd_mul(vd a, vd b) { return _mm256_mul_pd(a, b); }
INLINE vd   vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
/* Doubles from VD_LEN floats, and back. */
INLINE vd   vd_from(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
INLINE void vd_to(float *p, vd x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }

INLINE float vf_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float vf_most(vf x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* 2^n for t = n + x, built from bits, and x in *x.  Whatever lies below -127 counts
 * as -127, whose bits are those of 0; max passes NaN on. */
INLINE vf vf_exp2_split(vf t, vf *x)
{
    const vf floored = vf_max(vf_set1(-127.0f), t);
    const vf n = _mm256_floor_ps(floored);

    *x = vf_sub(floored, n);
    const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

/* 2^t for t <= 127: relative error below 2e-7 from t = -126 up, 0 below, at -inf
 * too, NaN at NaN. */
INLINE vf vf_exp2(vf t)
{
    vf       x;
    const vf scale = vf_exp2_split(t, &x);
    vf       y = vf_set1(EXP2_5);

    y = vf_fma(y, x, vf_set1(EXP2_4));
    y = vf_fma(y, x, vf_set1(EXP2_3));
    y = vf_fma(y, x, vf_set1(EXP2_2));
    y = vf_fma(y, x, vf_set1(EXP2_1));
    y = vf_fma(y, x, vf_set1(1.0f));
    return vf_mul(y, scale);
}

/* The same with relative error below 9e-5. */
INLINE vf vf_exp2_fast(vf t)
{
    vf       x;
    const vf scale = vf_exp2_split(t, &x);
    vf       y = vf_set1(EXP2_FAST_3);

    y = vf_fma(y, x, vf_set1(EXP2_FAST_2));
    y = vf_fma(y, x, vf_set1(EXP2_FAST_1));
    y = vf_fma(y, x, vf_set1(1.0f));
    return vf_mul(y, scale);
}

/*
 * Other types in memory: VF_LEN elements of a foci_dtype, or the first n < VF_LEN
 * of them.
 */

INLINE vf vf_of_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* To nearest even, in the upper half of each lane; NaN stays NaN. */
INLINE __m256i vf_round_bf16(vf x)
{
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));

    return _mm256_blendv_epi8(_mm256_add_epi32(u, half), quiet, nan);
}

INLINE __m128i vf_to_bf16(vf x)
{
    const __m256i h = _mm256_srli_epi32(vf_round_bf16(x), 16);

    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

/* Lanes of both as bf16, in pairs. */
INLINE vf vf_pair_bf16(vf low, vf high)
{
    const __m256i lower = _mm256_srli_epi32(vf_round_bf16(low), 16);

    return _mm256_castsi256_ps(_mm256_blend_epi16(lower, vf_round_bf16(high), 0xaa));
}

/* The even and the odd ones of 2 VF_LEN bf16 in memory. */
INLINE void vf_unpair_bf16(const void *p, vf *low, vf *high)
{
    const __m256i x = _mm256_loadu_si256(p);

    *low = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    *high = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(-0x10000)));
}

INLINE vf vf_of_16(__m128i h, int dtype)
{
    return dtype == FOCI_BF16 ? vf_of_bf16(h) : _mm256_cvtph_ps(h);
}

INLINE __m128i vf_to_16(vf x, int dtype)
{
    return dtype == FOCI_BF16 ? vf_to_bf16(x)
                              : _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

INLINE vf vf_from(const void *p, int dtype)
{
    if (dtype == FOCI_F32) return _mm256_loadu_ps(p);
    return vf_of_16(_mm_loadu_si128(p), dtype);
}

/* Non-temporal store to a vector-aligned address; other threads see it after stream_end(). */
INLINE void vf_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
/* Two of them as VF_LEN pairs of elements of 16 bits. */
INLINE void vf_stream_16(void *p, int dtype, vf low, vf high)
{
    _mm256_stream_si256(p,
                        _mm256_set_m128i(vf_to_16(high, dtype), vf_to_16(low, dtype)));
}
INLINE void stream_end(void) { _mm_sfence(); }

INLINE void vf_to(void *p, int dtype, vf x)
{
    if (dtype == FOCI_F32)
        _mm256_storeu_ps(p, x);
    else
        _mm_storeu_si128(p, vf_to_16(x, dtype));
}

/* Through the stack: AVX2 has no masked access to 16-bit elements. */
INLINE vf vf_from_n(const void *p, int dtype, int n)
{
    float        part[VF_LEN] = { 0 };
    const size_t bytes = dtype == FOCI_F32 ? 4 : 2;

    memcpy(part, p, (size_t)n * bytes);
    return vf_from(part, dtype);
}

INLINE void vf_to_n(void *p, int dtype, vf x, int n)
{
    float        part[VF_LEN];
    const size_t bytes = dtype == FOCI_F32 ? 4 : 2;

    vf_to(part, dtype, x);
    memcpy(p, part, (size_t)n * bytes);
}

/* Transpose the square r[VF_LEN]: within 128-bit parts first, then the parts. */
INLINE void vf_transpose(vf r[VF_LEN])
{
    vf t[VF_LEN];

    UNROLL(2)
    for (int i = 0; i < 8; i += 4) {
        const vf a = _mm256_unpacklo_ps(r[i], r[i + 1]);
        const vf b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        const vf c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
        const vf d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);

        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#endif
