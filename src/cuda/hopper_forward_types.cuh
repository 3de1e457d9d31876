/* Which forward kernel takes which problem: tile shapes by width. */
#include "cuda/hopper_launch.cuh"

namespace hopper {

template <class T, bool quick, int d, int groups, int keys, bool q_registers>
static int forward_dense(const struct cuda_exact *x)
{
    return x->causal
               ? launch_forward<ForwardShape<T, d, groups, keys, q_registers,
                                             support_causal, quick>>(x)
               : launch_forward<
                     ForwardShape<T, d, groups, keys, q_registers, support_full, quick>>(
                     x);
}

template <class T, int d, int groups, int keys, bool q_registers>
static int forward_listed(const struct cuda_exact *x)
{
    return plain_logits(x)
               ? launch_forward<ForwardShape<T, d, groups, keys, q_registers,
                                             support_listed, false>>(x)
               : launch_forward<ForwardShape<T, d, groups, keys, q_registers,
                                             support_listed, false, true>>(x);
}

template <class T, bool quick> static int forward_of_type(const struct cuda_exact *x)
{
    const int d = x->d > x->dv ? x->d : x->dv;
    if (x->tiles.row0 || x->seqs || !plain_logits(x)) {
        if (d <= 64) return forward_listed<T, 64, 2, 128, false>(x);
        if (d <= 128) return forward_listed<T, 128, 2, 128, true>(x);
        return forward_listed<T, 256, 2, 64, false>(x);
    }
    if (d <= 64) return forward_dense<T, quick, 64, 3, 128, false>(x);
    if (d <= 80) return forward_dense<T, quick, 80, 2, 144, true>(x);
    if (d <= 96) return forward_dense<T, quick, 96, 2, 144, true>(x);
    if (d <= 128) return forward_dense<T, quick, 128, 2, 128, true>(x);
    if (d <= 192) return forward_dense<T, quick, 192, 2, 112, false>(x);
    return forward_dense<T, quick, 256, 2, 80, false>(x);
}

} // namespace hopper
