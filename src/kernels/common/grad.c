/* grad.c -- weights once more, and gradients of scores, in place. */
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

static void ISA(grad_f32)(float *s, float *dp, int n, const struct grad_rows *r)
{
    switch (r->kind) {
    case FOCI_SOFTMAX: ISA(grad_kind)(s, dp, n, r, FOCI_SOFTMAX); break;
    case FOCI_L2NORM: ISA(grad_kind)(s, dp, n, r, FOCI_L2NORM); break;
    default: ISA(grad_kind)(s, dp, n, r, FOCI_RELU2); break;
    }
}
