/* exact_backward_f16.cu -- the backward kernels for f16. */
#include "cuda/exact_backward_launch.cuh"

int mma_backward_f16(const struct cuda_exact *x) { return backward_of_type<__half>(x); }
