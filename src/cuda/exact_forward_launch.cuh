/* exact_forward_launch.cuh -- from a description to one of the forward kernels. */
#include "cuda/exact_forward.cuh"
#include "cuda/launch.cuh"

template <typename T, int D> static int forward_of_width(const struct cuda_exact *x)
{
    const dim3 grid(grid_blocks(x, x->len_q, CUDA_TILE, x->tiles.row0 != NULL),
                    (unsigned)x->heads, x->seqs ? 1 : (unsigned)x->batch);
    const int  bytes = ForwardShape<T, D>::BYTES;

    if (plain_kernel(x))
        return launch(exact_forward_kernel<T, D, true>, grid, THREADS, bytes, x);
    return launch(exact_forward_kernel<T, D, false>, grid, THREADS, bytes, x);
}

template <typename T> static int forward_of_type(const struct cuda_exact *x)
{
    switch (padded_width(x)) {
    case 64: return forward_of_width<T, 64>(x);
    case 128: return forward_of_width<T, 128>(x);
    default:
        if constexpr (sizeof(T) == 2) return forward_of_width<T, 256>(x);
        return cudaErrorInvalidValue;
    }
}
