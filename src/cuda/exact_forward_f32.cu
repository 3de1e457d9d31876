/* exact_forward_f32.cu -- the forward kernels for f32. */
#include "cuda/exact_forward_launch.cuh"

int mma_forward_f32(const struct cuda_exact *x) { return forward_of_type<float>(x); }
