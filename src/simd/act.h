/* act.h -- activations on the vocabulary included before it, and their slopes.
 *
 * Phi is the normal distribution.  With x beyond +-`far` a sigmoid or Phi is 0 or 1 to all
 * purposes, so that x is cut there, which keeps infinities from meeting zeros; NaN stays NaN.
 * `fast` is for results that become bf16: Phi(-|x|) and sigmoids within 2e-4.
 */
#ifndef FOCI_SIMD_ACT_H
#define FOCI_SIMD_ACT_H

#include "foci/product.h"
#include "simd/compiler.h"
#include "simd/poly.h"

INLINE vf vf_exp2_as(vf t, const int fast)
{
    return fast ? vf_exp2_fast(t) : vf_exp2(t);
}

INLINE vf vf_inverse(vf x, const int fast)
{
    return fast ? vf_rcp_fast(x) : vf_div(vf_set1(1.0f), x);
}

/* x between -far and far. */
INLINE vf vf_cut(vf x, const float far)
{
    return vf_min(vf_set1(far), vf_max(vf_set1(-far), x));
}

INLINE vf vf_normal_poly(vf t, const int fast)
{
    vf y;

    if (fast) {
        y = vf_fma(vf_set1(NORMAL_FAST_5), t, vf_set1(NORMAL_FAST_4));
        y = vf_fma(y, t, vf_set1(NORMAL_FAST_3));
        y = vf_fma(y, t, vf_set1(NORMAL_FAST_2));
        return vf_mul(vf_fma(y, t, vf_set1(NORMAL_FAST_1)), t);
    }
    y = vf_fma(vf_set1(NORMAL_8), t, vf_set1(NORMAL_7));
    y = vf_fma(y, t, vf_set1(NORMAL_6));
    y = vf_fma(y, t, vf_set1(NORMAL_5));
    y = vf_fma(y, t, vf_set1(NORMAL_4));
    y = vf_fma(y, t, vf_set1(NORMAL_3));
    y = vf_fma(y, t, vf_set1(NORMAL_2));
    return vf_mul(vf_fma(y, t, vf_set1(NORMAL_1)), t);
}

/* Phi(x) for x between -14 and 14, and e^(-x^2/2). */
INLINE vf vf_normal(vf x, vf *bell, const int fast)
{
    const vf one = vf_set1(1.0f);
    const vf scale = vf_set1(fast ? NORMAL_FAST_SCALE : NORMAL_SCALE);
    const vf t = vf_inverse(vf_fma(scale, vf_abs(x), one), fast);

    *bell = vf_exp2_as(vf_mul(vf_mul(x, x), vf_set1(-0.72134752f)), fast);
    const vf tail = vf_mul(*bell, vf_normal_poly(t, fast));
    return vf_select(vf_gt(x, vf_zero()), vf_sub(one, tail), tail);
}

/* 1 / (1 + e^-x) for |x| up to 87. */
INLINE vf vf_sigmoid(vf x, const int fast)
{
    const vf e = vf_exp2_as(vf_mul(x, vf_set1(-1.44269504f)), fast);
    return vf_inverse(vf_add(vf_set1(1.0f), e), fast);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3): GELU's tanh form is x sigmoid(that). */
INLINE vf vf_gelu_logit(vf x)
{
    const vf z = vf_mul(x, x);
    return vf_mul(x, vf_fma(z, vf_set1(0.0713548163f), vf_set1(1.59576912f)));
}

enum { GELU_FAR = 14, SILU_FAR = 87 };
#define GELU_TANH_FAR 9.4f

INLINE vf vf_act(vf x, const int kind, const int fast)
{
    vf low, bell;

    switch (kind) {
    case FOCI_ACT_RELU: return vf_max(vf_zero(), x);
    case FOCI_ACT_GELU:
        low = vf_max(vf_set1(-GELU_FAR), x);
        return vf_mul(low, vf_normal(vf_cut(x, GELU_FAR), &bell, fast));
    case FOCI_ACT_GELU_TANH:
        low = vf_max(vf_set1(-GELU_TANH_FAR), x);
        return vf_mul(low, vf_sigmoid(vf_gelu_logit(vf_cut(x, GELU_TANH_FAR)), fast));
    case FOCI_ACT_SILU:
        low = vf_max(vf_set1(-SILU_FAR), x);
        return vf_mul(low, vf_sigmoid(vf_cut(x, SILU_FAR), fast));
    default: return x;
    }
}

/* s (1 + z (1 - s) by): the slope of x sigmoid(f(x)), by = f'(x). */
INLINE vf vf_sigmoid_slope(vf s, vf z, vf by)
{
    const vf one = vf_set1(1.0f);
    return vf_mul(s, vf_fma(vf_mul(z, vf_sub(one, s)), by, one));
}

/* d act'(x): where ReLU is closed that is 0 whatever d is. */
INLINE vf vf_act_back(vf d, vf x, const int kind, const int fast)
{
    vf z, s, bell;

    switch (kind) {
    case FOCI_ACT_RELU:
        return vf_select(vf_eq(vf_max(vf_zero(), x), vf_zero()), vf_zero(), d);
    case FOCI_ACT_GELU:
        z = vf_cut(x, GELU_FAR);
        s = vf_normal(z, &bell, fast);
        return vf_mul(d, vf_fma(vf_mul(z, vf_set1(0.39894228f)), bell, s));
    case FOCI_ACT_GELU_TANH:
        z = vf_cut(x, GELU_TANH_FAR);
        s = vf_sigmoid(vf_gelu_logit(z), fast);
        return vf_mul(d, vf_sigmoid_slope(s, z,
                                          vf_fma(vf_mul(z, z), vf_set1(0.214064449f),
                                                 vf_set1(1.59576912f))));
    case FOCI_ACT_SILU:
        z = vf_cut(x, SILU_FAR);
        return vf_mul(d, vf_sigmoid_slope(vf_sigmoid(z, fast), z, vf_set1(1.0f)));
    default: return d;
    }
}

#endif
