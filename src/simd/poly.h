/* poly.h -- coefficients shared by the vocabularies.
 *
 * 2^x on [0, 1) with value 1 at 0, so that a weight at its own maximum is exactly
 * 1: minimax in relative error, each coefficient rounded to float before the next
 * was fitted.  Degree 5: 8.3e-8.  Degree 3: 8.6e-5.  A free constant term would
 * give 7.5e-8 and 7.5e-5.
 */
#ifndef FOCI_SIMD_POLY_H
#define FOCI_SIMD_POLY_H

#define EXP2_1 0x1.62e4bap-1f
#define EXP2_2 0x1.ebdb6ap-3f
#define EXP2_3 0x1.c91c1p-5f
#define EXP2_4 0x1.277c1cp-7f
#define EXP2_5 0x1.e9691p-10f

#define EXP2_FAST_1 0x1.63e65ap-1f
#define EXP2_FAST_2 0x1.d2377ep-3f
#define EXP2_FAST_3 0x1.3baab6p-4f

/* tanh x = x + x z P(z), z = x^2, for |x| < 0.625 (S. Moshier, Cephes, tanhf). */
#define TANH_0 -3.33332819422e-1f
#define TANH_1 1.33314422036e-1f
#define TANH_2 -5.37397155531e-2f
#define TANH_3 2.06390887954e-2f
#define TANH_4 -5.70498872745e-3f

/* pi/2 in three parts, and Cephes' sinf and cosf:
 * sin x = x + x z P(z), cos x = 1 - z/2 + z^2 Q(z), z = x^2, for |x| < pi/4. */
#define PI        3.14159265358979323846f
#define HALF_PI_0 0x1.921fb6p+0f
#define HALF_PI_1 -0x1.777a5cp-25f
#define HALF_PI_2 -0x1.ee59dap-50f
#define SIN_0     -1.6666654611e-1f
#define SIN_1     8.3321608736e-3f
#define SIN_2     -1.9515295891e-4f
#define COS_0     4.166664568298827e-2f
#define COS_1     -1.388731625493765e-3f
#define COS_2     2.443315711809948e-5f

/* The normal distribution: Phi(-x) = e^(-x^2/2) t P(t), t = 1 / (1 + p x), for x from 0 to
 * 14, minimax in relative error.  Degree 8: p = 0.305, 9.4e-8, as evaluated in floats
 * 3.7e-7.  Degree 5: p = 0.38, 3.5e-5. */
#define NORMAL_SCALE 0.305f
#define NORMAL_1     0x1.f23c82p-4f
#define NORMAL_2     0x1.f59fb8p-4f
#define NORMAL_3     0x1.a79cf2p-4f
#define NORMAL_4     0x1.efb36p-4f
#define NORMAL_5     -0x1.371712p-5f
#define NORMAL_6     0x1.7c57fcp-3f
#define NORMAL_7     -0x1.39513ep-3f
#define NORMAL_8     0x1.2ca316p-5f

#define NORMAL_FAST_SCALE 0.38f
#define NORMAL_FAST_1     0x1.35b59p-3f
#define NORMAL_FAST_2     0x1.433bb4p-3f
#define NORMAL_FAST_3     0x1.78c25ap-4f
#define NORMAL_FAST_4     0x1.82cff2p-3f
#define NORMAL_FAST_5     -0x1.70571ep-4f

#endif
