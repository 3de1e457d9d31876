/* mma.c -- the portable family: products of sm_80, every form of exact attention. */
#include "cuda/mma.h"

/* Tiles of wide rows of floats do not fit into shared memory. */
static int widest(const struct cuda_exact *x)
{
    return x->dtype == CUDA_F32 ? 128 : 256;
}

static int fits(const struct cuda_exact *x, int what)
{
    if (x->sm < 80 || x->d > widest(x) || x->dv > widest(x)) return 0;
    return what != CUDA_DECODE || mma_decode_fits(x);
}

static size_t work_bytes(const struct cuda_exact *x, int what)
{
    return what == CUDA_DECODE ? mma_decode_bytes(x) : 0;
}

static int forward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_F16    ? mma_forward_f16(x)
           : x->dtype == CUDA_BF16 ? mma_forward_bf16(x)
                                   : mma_forward_f32(x);
}

static int backward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_F16    ? mma_backward_f16(x)
           : x->dtype == CUDA_BF16 ? mma_backward_bf16(x)
                                   : mma_backward_f32(x);
}

const struct cuda_family cuda_family_mma = {
    .name = "mma",
    .fits = fits,
    .work_bytes = work_bytes,
    .forward = forward,
    .backward = backward,
    .decode = mma_decode,
};
