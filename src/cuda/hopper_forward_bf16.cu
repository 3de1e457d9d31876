/* The Hopper forward kernels for bf16. */
#include "cuda/hopper_forward_types.cuh"

int hopper::forward_bf16(const struct cuda_exact *x)
{
    return forward_of_type<Bf16, true>(x);
}
