/* grad.c -- recompute weights, and compute gradients of scores, in place. */
#include "kernels/common/slope.c"

INLINE void ISA(grad_all)(float *s, float *dp, int n, const struct grad_rows *r,
                          const int kind, const int capped)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        const struct slope x = ISA(slope_load)(r, i);

        for (int j = 0; j < n; j++) {
            vf ds = vf_load(dp + j * LANES + i);
            vf_store(s + j * LANES + i,
                     ISA(slope)(vf_load(s + j * LANES + i), &ds, x, kind, capped, 0));
            vf_store(dp + j * LANES + i, ds);
        }
    }
}

INLINE void ISA(grad_kind)(float *s, float *dp, int n, const struct grad_rows *r,
                           const int kind)
{
    if (r->c != 0.0f)
        ISA(grad_all)(s, dp, n, r, kind, 1);
    else
        ISA(grad_all)(s, dp, n, r, kind, 0);
}

INLINE void ISA(grad_sums_all)(float *sums, float *means, const char *w, const char *ds,
                               const int dtype, const float *x, int n, const int square)
{
    const int size = dtype == FOCI_F32 ? 4 : 2;

    for (int i = 0; i < LANES; i += VF_LEN) {
        vf sum = vf_load(sums + i), mean = vf_load(means + i);

        for (int j = 0; j < n; j++) {
            const int at = j * LANES + i;
            const vf  weight = vf_from(w + at * size, dtype);
            const vf  term =
                vf_mul(square ? vf_mul(weight, weight) : weight, vf_load(x + at));

            sum = vf_add(sum, vf_from(ds + at * size, dtype));
            mean = vf_add(mean, vf_select(vf_eq(weight, vf_zero()), vf_zero(), term));
        }
        vf_store(sums + i, sum);
        vf_store(means + i, mean);
    }
}

INLINE void ISA(grad_sums_of)(float *sums, float *means, const void *w, const void *ds,
                              const int dtype, const float *x, int n, int square)
{
    if (square)
        ISA(grad_sums_all)(sums, means, w, ds, dtype, x, n, 1);
    else
        ISA(grad_sums_all)(sums, means, w, ds, dtype, x, n, 0);
}

static void ISA(grad_sums)(float *sums, float *means, const void *w, const void *ds,
                           int dtype, const float *x, int n, int square)
{
    switch (dtype) {
    case FOCI_F32: ISA(grad_sums_of)(sums, means, w, ds, FOCI_F32, x, n, square); break;
    case FOCI_BF16:
        ISA(grad_sums_of)(sums, means, w, ds, FOCI_BF16, x, n, square);
        break;
    default: ISA(grad_sums_of)(sums, means, w, ds, FOCI_F16, x, n, square); break;
    }
}

static void ISA(grad_f32)(float *s, float *dp, int n, const struct grad_rows *r)
{
    switch (r->kind) {
    case FOCI_WEIGH_SOFTMAX: ISA(grad_kind)(s, dp, n, r, FOCI_WEIGH_SOFTMAX); break;
    case FOCI_WEIGH_L2NORM: ISA(grad_kind)(s, dp, n, r, FOCI_WEIGH_L2NORM); break;
    default: ISA(grad_kind)(s, dp, n, r, FOCI_WEIGH_RELU2); break;
    }
}
