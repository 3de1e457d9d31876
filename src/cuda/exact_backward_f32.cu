/* exact_backward_f32.cu -- the backward kernels for f32. */
#include "cuda/exact_backward_launch.cuh"

int mma_backward_f32(const struct cuda_exact *x) { return backward_of_type<float>(x); }
