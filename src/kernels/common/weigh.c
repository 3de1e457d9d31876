/* weigh.c -- scores to weights in place.
 *
 * Two passes over a panel in the first-level cache: the maxima (lazy.c), then 2^(t - m) and
 * the sums.  f s is rounded before m is subtracted, as in the maximum: with a fused
 * multiply-subtract the exponent at the maximum of huge scores would be the rounding error
 * of f s, which is unbounded.
 */
#include "kernels/common/lazy.c"

/* Pass 2 of the exponentials, in place. */
INLINE void ISA(exponentials)(float *s, int n, const float *f, const float *m, float *l,
                              const int scaled, const int squares)
{
    for (int i = 0; i < LANES; i += GROUP_LANES) {
        vf base[GROUP], by[GROUP], sum[GROUP];

        UNROLL(4)
        for (int v = 0; v < GROUP; v++) {
            base[v] = ISA(base)(m + i + v * VF_LEN);
            by[v] = scaled ? vf_load(f + i + v * VF_LEN) : vf_zero();
            sum[v] = vf_load(l + i + v * VF_LEN);
        }
        for (int j = 0; j < n; j++) {
            UNROLL(4)
            for (int v = 0; v < GROUP; v++) {
                float *const p = s + j * LANES + i + v * VF_LEN;
                const vf     x = vf_load(p);
                const vf     t = scaled ? vf_mul(x, by[v]) : x;
                const vf     w = vf_exp2(vf_sub(t, base[v]));

                vf_store(p, w);
                sum[v] = squares ? vf_fma(w, w, sum[v]) : vf_add(sum[v], w);
            }
        }
        UNROLL(4)
        for (int v = 0; v < GROUP; v++)
            vf_store(l + i + v * VF_LEN, sum[v]);
    }
}

/* max(t, 0)^2, in place. */
INLINE void ISA(squared_relu)(float *s, int n, const float *f)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        const vf by = f ? vf_load(f + i) : vf_set1(1.0f);

        for (int j = 0; j < n; j++) {
            const vf t = vf_max(vf_zero(), vf_mul(vf_load(s + j * LANES + i), by));
            vf_store(s + j * LANES + i, vf_mul(t, t));
        }
    }
}

static int ISA(weigh_f32)(float *s, int n, const float *f, float *m, float *l,
                          float *shrink, int kind)
{
    if (kind == FOCI_WEIGH_RELU2) {
        ISA(squared_relu)(s, n, f);
        return 0;
    }

    const int moved = ISA(move)(s, n, f, m, l, shrink, kind);

    if (kind == FOCI_WEIGH_L2NORM) {
        if (f)
            ISA(exponentials)(s, n, f, m, l, 1, 1);
        else
            ISA(exponentials)(s, n, f, m, l, 0, 1);
    } else {
        if (f)
            ISA(exponentials)(s, n, f, m, l, 1, 0);
        else
            ISA(exponentials)(s, n, f, m, l, 0, 0);
    }
    return moved;
}
