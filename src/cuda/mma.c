/* mma.c -- the portable family: products of sm_80, every form of exact attention. */
#include "cuda/mma.h"

static int fits(const struct cuda_exact *x, int what)
{
    return x->sm >= 80 && x->dtype != CUDA_F32 && x->d <= 256 && x->dv <= 256 && what != CUDA_DECODE;
}

static int forward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_F16    ? mma_forward_f16(x)
           : x->dtype == CUDA_BF16 ? mma_forward_bf16(x)
                                   : 1;
}

static int backward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_F16    ? mma_backward_f16(x)
           : x->dtype == CUDA_BF16 ? mma_backward_bf16(x)
                                   : 1;
}

const struct cuda_family cuda_family_mma = {
    .name = "mma",
    .fits = fits,
    .forward = forward,
    .backward = backward,
};
