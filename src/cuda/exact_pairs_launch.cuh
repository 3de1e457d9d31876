/* exact_pairs_launch.cuh -- from a description to the kernels of exact_pairs.cuh. */
#include "cuda/exact_pairs.cuh"
#include "cuda/launch.cuh"
#include "cuda/passes.h"

template <typename Kernel> static int allow_shared(Kernel kernel, int bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                bytes);
}

template <typename T, int D>
static int bias_of_width(const struct cuda_exact *x, float *dbias)
{
    const auto kernel = exact_bias_back_kernel<T, D>;
    const int  bytes = PairShape<T, D>::BYTES;
    const bool shared = !x->bias.seq && x->batch > 1;
    const dim3 grid(grid_blocks(x, x->len_q, CUDA_TILE, x->tiles.row0 != NULL),
                    x->bias.head ? (unsigned)x->heads : 1,
                    x->seqs || shared ? 1 : (unsigned)x->batch);
    int        error = allow_shared(kernel, bytes);

    for (int b = 0; !error && b < (shared ? (int)x->batch : 1); b++) {
        kernel<<<grid, THREADS, (size_t)bytes, (cudaStream_t)x->stream>>>(
            *x, dbias, shared ? b : -1);
        error = cudaGetLastError();
    }
    return error;
}

template <typename T, int D>
static int tables_of_width(const struct cuda_exact *x, float *sums, int first_band,
                           int n_bands)
{
    const auto kernel = exact_tables_back_kernel<T, D>;
    const int  bytes = PairShape<T, D>::BYTES;
    const int  error = allow_shared(kernel, bytes);

    if (error) return error;
    kernel<<<dim3((unsigned)n_bands, (unsigned)x->heads), THREADS, (size_t)bytes,
             (cudaStream_t)x->stream>>>(*x, sums, first_band);
    return cudaGetLastError();
}

template <typename T> static int bias_of_type(const struct cuda_exact *x, float *dbias)
{
    switch (padded_width(x)) {
    case 64: return bias_of_width<T, 64>(x, dbias);
    case 128: return bias_of_width<T, 128>(x, dbias);
    default:
        if constexpr (sizeof(T) == 2) return bias_of_width<T, 256>(x, dbias);
        return cudaErrorInvalidValue;
    }
}

template <typename T>
static int tables_of_type(const struct cuda_exact *x, float *sums, int first_band,
                          int n_bands)
{
    switch (padded_width(x)) {
    case 64: return tables_of_width<T, 64>(x, sums, first_band, n_bands);
    case 128: return tables_of_width<T, 128>(x, sums, first_band, n_bands);
    default:
        if constexpr (sizeof(T) == 2)
            return tables_of_width<T, 256>(x, sums, first_band, n_bands);
        return cudaErrorInvalidValue;
    }
}
