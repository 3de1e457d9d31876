/* mma.h -- entry points of the portable family, one file for each type of elements. */
#ifndef FOCI_CUDA_MMA_H
#define FOCI_CUDA_MMA_H

#include "cuda/exact.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or a cudaError_t. */
int    mma_forward_bf16(const struct cuda_exact *x);
int    mma_forward_f16(const struct cuda_exact *x);
int    mma_forward_f32(const struct cuda_exact *x);
int    mma_decode_fits(const struct cuda_exact *x);
size_t mma_decode_bytes(const struct cuda_exact *x);
int    mma_decode(const struct cuda_exact *x);
int    mma_bias_back_bf16(const struct cuda_exact *x, float *dbias);
int    mma_bias_back_f16(const struct cuda_exact *x, float *dbias);
int    mma_bias_back_f32(const struct cuda_exact *x, float *dbias);
int    mma_tables_back_bf16(const struct cuda_exact *x, float *sums, int first, int n);
int    mma_tables_back_f16(const struct cuda_exact *x, float *sums, int first, int n);
int    mma_tables_back_f32(const struct cuda_exact *x, float *sums, int first, int n);
int    mma_backward_bf16(const struct cuda_exact *x);
int    mma_backward_f16(const struct cuda_exact *x);
int    mma_backward_f32(const struct cuda_exact *x);

#ifdef __cplusplus
}
#endif
#endif
