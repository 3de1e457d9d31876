/* The Hopper forward kernels for f16: weights must stay below 65504 and keep their
 * bits, so that the maximum is always exact. */
#include "cuda/hopper_forward_types.cuh"

int hopper::forward_f16(const struct cuda_exact *x)
{
    return forward_of_type<F16, false>(x);
}
