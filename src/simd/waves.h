/* waves.h -- cosine and sine on the vocabulary included before it.
 *
 * x = n pi/2 + r with |r| about pi/4 at most, n pi/2 subtracted in three parts; then the
 * polynomials of S. Moshier, Cephes, sinf and cosf.  Within 2e-7 for |x| up to WAVES_MOST,
 * the range of the rounding trick for n; beyond it the caller uses
 * libm.  NaN at NaN.
 */
#ifndef FOCI_SIMD_WAVES_H
#define FOCI_SIMD_WAVES_H

#include "simd/compiler.h"
#include "simd/poly.h"

#define WAVES_MOST 1e5f

/* To the nearest whole number, for |x| below 2^22. */
INLINE vf vf_whole(vf x)
{
    const vf shift = vf_set1(0x1.8p23f);
    return vf_sub(vf_add(x, shift), shift);
}

INLINE vf vf_negate(vf x) { return vf_sub(vf_set1(-0.0f), x); }

INLINE vf vf_cos_sin(vf x, vf *sine)
{
    const vf n = vf_whole(vf_mul(x, vf_set1(2 / PI)));
    vf       r = vf_fnma(n, vf_set1(HALF_PI_0), x);

    r = vf_fnma(n, vf_set1(HALF_PI_1), r);
    r = vf_fnma(n, vf_set1(HALF_PI_2), r);
    const vf z = vf_mul(r, r);
    vf       s = vf_fma(vf_set1(SIN_2), z, vf_set1(SIN_1));
    vf       c = vf_fma(vf_set1(COS_2), z, vf_set1(COS_1));

    s = vf_fma(s, z, vf_set1(SIN_0));
    s = vf_fma(vf_mul(s, z), r, r);
    c = vf_fma(c, z, vf_set1(COS_0));
    c = vf_fma(c, vf_mul(z, z), vf_fma(vf_set1(-0.5f), z, vf_set1(1.0f)));

    /* n mod 4, from -2 to 2: odd ones swap the two. */
    const vf q = vf_fnma(vf_set1(4.0f), vf_whole(vf_mul(n, vf_set1(0.25f))), n);
    const vm odd = vf_eq(vf_abs(q), vf_set1(1.0f));
    const vm around = vf_eq(vf_abs(q), vf_set1(2.0f));
    const vf other = vf_mul(q, c), minus = vf_mul(vf_negate(q), s);

    *sine = vf_select(odd, other, vf_select(around, vf_negate(s), s));
    return vf_select(odd, minus, vf_select(around, vf_negate(c), c));
}

#endif
