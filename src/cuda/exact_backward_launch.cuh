/* exact_backward_launch.cuh -- from a description to the backward kernels. */
#include "cuda/exact_backward.cuh"
#include "cuda/launch.cuh"

template <typename T, int D, bool PLAIN>
static int back_keys(const struct cuda_exact *x)
{
    const dim3 grid(grid_blocks(x, x->len_k, CUDA_TILE, 0), (unsigned)x->kv_heads,
                    x->seqs ? 1 : (unsigned)x->batch);
    const int  bytes = BackShape<T, D>::BYTES;

    if constexpr (D * sizeof(T) <= 256 || sizeof(T) == 4)
        return launch(exact_back_keys_kernel<T, D, PLAIN, 3>, grid, THREADS, bytes, x);
    else { /* sums of both do not fit into registers */
        int error = 0;
        if (x->dv_out.at)
            error =
                launch(exact_back_keys_kernel<T, D, PLAIN, 1>, grid, THREADS, bytes, x);
        if (x->dk.at && !error)
            error =
                launch(exact_back_keys_kernel<T, D, PLAIN, 2>, grid, THREADS, bytes, x);
        return error;
    }
}

template <typename T, int D, bool PLAIN>
static int back_queries(const struct cuda_exact *x)
{
    const dim3 grid(grid_blocks(x, x->len_q, CUDA_TILE, x->tiles.row0 != NULL),
                    (unsigned)x->heads, x->seqs ? 1 : (unsigned)x->batch);
    return launch(exact_back_queries_kernel<T, D, PLAIN>, grid, THREADS,
                  BackShape<T, D>::BYTES, x);
}

template <typename T, int D, bool PLAIN>
static int backward_as(const struct cuda_exact *x)
{
    int error = 0;

    if (x->dk.at || x->dv_out.at) error = back_keys<T, D, PLAIN>(x);
    if (!error && (x->dq.at || x->row_ds)) error = back_queries<T, D, PLAIN>(x);
    return error;
}

template <typename T, int D> static int backward_of_width(const struct cuda_exact *x)
{
    const bool plain = plain_kernel(x) && !x->row_ds;
    return plain ? backward_as<T, D, true>(x) : backward_as<T, D, false>(x);
}

template <typename T> static int backward_of_type(const struct cuda_exact *x)
{
    switch (padded_width(x)) {
    case 64: return backward_of_width<T, 64>(x);
    case 128: return backward_of_width<T, 128>(x);
    default:
        if constexpr (sizeof(T) == 2) return backward_of_width<T, 256>(x);
        return cudaErrorInvalidValue;
    }
}
