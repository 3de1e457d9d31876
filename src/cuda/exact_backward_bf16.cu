/* exact_backward_bf16.cu -- the backward kernels for bf16. */
#include "cuda/exact_backward_launch.cuh"

int mma_backward_bf16(const struct cuda_exact *x)
{
    return backward_of_type<__nv_bfloat16>(x);
}
