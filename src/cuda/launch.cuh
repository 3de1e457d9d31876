/* launch.cuh -- how kernels of the portable family are launched: choice of the width,
 * shared memory, grids. */
#ifndef FOCI_LAUNCH_CUH
#define FOCI_LAUNCH_CUH

#include <cuda_runtime.h>

#include "cuda/mma.h"

/* Blocks of `n` rows at most in all sequences; aligned ones may lead and trail. */
static inline unsigned grid_blocks(const struct cuda_exact *x, int64_t n, int64_t size,
                                   int aligned)
{
    const int64_t of_one = (n + size - 1) / size + (aligned ? 1 : 0);
    const int64_t total = x->packed ? n : n * x->n_seqs;

    if (!x->seqs) return (unsigned)of_one;
    return (unsigned)((total + size - 1) / size +
                      (int64_t)x->n_seqs * (aligned ? 2 : 1));
}

/* A launch with dynamic shared memory; the attribute is set each time, which costs less
 * than a microsecond and needs no memory of earlier calls. */
template <typename Kernel>
static inline int launch(Kernel kernel, dim3 grid, int threads, int bytes,
                         const struct cuda_exact *x)
{
    if (!grid.x || !grid.y || !grid.z) return 0;
    if (bytes > 48 * 1024) {
        const cudaError_t error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        if (error) return error;
    }
    kernel<<<grid, threads, (size_t)bytes, (cudaStream_t)x->stream>>>(*x);
    return cudaGetLastError();
}

/* The width kernels are compiled for that holds both heads' widths. */
static inline int padded_width(const struct cuda_exact *x)
{
    const int d = x->d > x->dv ? x->d : x->dv;
    return d <= 64 ? 64 : d <= 128 ? 128 : 256;
}

/* Softmax of scaled products, hidden by causality and tables alone. */
static inline bool plain_kernel(const struct cuda_exact *x)
{
    const struct cuda_score *s = &x->score;
    return x->weigh == CUDA_SOFTMAX && !s->row_scale && !s->head_scale && s->cap <= 0 &&
           !s->slope && !s->rel && !x->mask.at && !x->bias.at && !x->drop_bound;
}

#endif
