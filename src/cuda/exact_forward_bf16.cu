/* exact_forward_bf16.cu -- the forward kernels for bf16. */
#include "cuda/exact_forward_launch.cuh"

int mma_forward_bf16(const struct cuda_exact *x)
{
    return forward_of_type<__nv_bfloat16>(x);
}
