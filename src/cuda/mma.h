/* mma.h -- entry points of the portable family, one file for each type of elements. */
#ifndef FOCI_CUDA_MMA_H
#define FOCI_CUDA_MMA_H

#include "cuda/exact.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or a cudaError_t. */
int mma_forward_bf16(const struct cuda_exact *x);
int mma_forward_f16(const struct cuda_exact *x);
int mma_forward_f32(const struct cuda_exact *x);
int mma_backward_bf16(const struct cuda_exact *x);
int mma_backward_f16(const struct cuda_exact *x);
int mma_backward_f32(const struct cuda_exact *x);

#ifdef __cplusplus
}
#endif
#endif
