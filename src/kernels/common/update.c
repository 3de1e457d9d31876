/* update.c -- optimiser steps, norms and sums of long arrays of floats, in one pass each. */

INLINE vf ISA(adamw_some)(float *p, float *g, float *m, float *v, int64_t i,
                          const struct adamw *how, const int some)
{
    const vf x =
        vf_mul(ISA(row_get)((char *)g, i, some, FOCI_F32), vf_set1(how->scale));
    const vf m0 = ISA(row_get)((char *)m, i, some, FOCI_F32);
    const vf v0 = ISA(row_get)((char *)v, i, some, FOCI_F32);
    const vf m1 = vf_fma(vf_sub(x, m0), vf_set1(how->rest1), m0);
    const vf v1 = vf_fma(vf_sub(vf_mul(x, x), v0), vf_set1(how->rest2), v0);
    const vf off = vf_fma(vf_sqrt(v1), vf_set1(how->root), vf_set1(how->eps));
    const vf step = vf_div(vf_mul(m1, vf_set1(how->step)), off);

    ISA(row_put)((char *)m, i, m1, some, FOCI_F32);
    ISA(row_put)((char *)v, i, v1, some, FOCI_F32);
    if (how->clear) ISA(row_put)((char *)g, i, vf_zero(), some, FOCI_F32);
    return vf_sub(
        vf_mul(ISA(row_get)((char *)p, i, some, FOCI_F32), vf_set1(how->decay)), step);
}

static void ISA(adamw)(float *p, float *g, float *m, float *v, int64_t n,
                       const struct adamw *how)
{
    int64_t i = 0;

    for (; i + VF_LEN <= n; i += VF_LEN)
        vf_storeu(p + i, ISA(adamw_some)(p, g, m, v, i, how, 0));
    if (i < n) {
        const int some = (int)(n - i);
        vf_to_n(p + i, FOCI_F32, ISA(adamw_some)(p, g, m, v, i, how, some), some);
    }
}

/* Products of floats are exact in double. */
static double ISA(squares_f32)(const float *x, int64_t n)
{
    _Alignas(64) double sums[4 * VD_LEN];
    vd                  sum[4];
    double              all = 0;
    int64_t             i = 0;

    UNROLL(4)
    for (int c = 0; c < 4; c++)
        sum[c] = vd_set1(0);
    for (; i + 4 * VD_LEN <= n; i += 4 * VD_LEN) {
        UNROLL(4)
        for (int c = 0; c < 4; c++) {
            const vd a = vd_from(x + i + c * VD_LEN);
            sum[c] = vd_fma(a, a, sum[c]);
        }
    }
    UNROLL(4)
    for (int c = 0; c < 4; c++)
        vd_store(sums + c * VD_LEN, sum[c]);
    for (; i < n; i++)
        all += (double)x[i] * (double)x[i];
    for (int c = 0; c < 4 * VD_LEN; c++)
        all += sums[c];
    return all;
}

static void ISA(move_to)(float *mean, const float *x, float by, int64_t n)
{
    int64_t i = 0;

    for (; i + VF_LEN <= n; i += VF_LEN) {
        const vf m = vf_loadu(mean + i);
        vf_storeu(mean + i, vf_fma(vf_sub(vf_loadu(x + i), m), vf_set1(by), m));
    }
    if (i < n) {
        const int some = (int)(n - i);
        const vf  m = vf_from_n(mean + i, FOCI_F32, some);
        vf_to_n(mean + i, FOCI_F32,
                vf_fma(vf_sub(vf_from_n(x + i, FOCI_F32, some), m), vf_set1(by), m),
                some);
    }
}
