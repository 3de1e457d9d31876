/* tanh.h -- tanh on the vocabulary included before it.
 *
 * A polynomial near 0, where (1 - e) / (1 + e) would cancel, and that quotient with
 * e = exp(-2|x|) elsewhere.  Relative error below 3e-7; 1 at infinity, NaN at NaN.
 */
#ifndef FOCI_SIMD_TANH_H
#define FOCI_SIMD_TANH_H

#include "simd/compiler.h"
#include "simd/poly.h"

INLINE vf vf_tanh(vf x)
{
    const vf a = vf_abs(x), z = vf_mul(x, x), one = vf_set1(1.0f);
    vf       y = vf_set1(TANH_4);

    y = vf_fma(y, z, vf_set1(TANH_3));
    y = vf_fma(y, z, vf_set1(TANH_2));
    y = vf_fma(y, z, vf_set1(TANH_1));
    y = vf_fma(y, z, vf_set1(TANH_0));
    y = vf_fma(vf_mul(y, z), x, x);

    /* -2 log2(e) |x| */
    const vf e = vf_exp2(vf_mul(a, vf_set1(-2.88539008f)));
    const vf far = vf_div(vf_sub(one, e), vf_add(one, e));

    return vf_select(vf_gt(a, vf_set1(0.625f)), vf_copysign(far, x), y);
}

#endif
