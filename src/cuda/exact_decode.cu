/* exact_decode.cu -- decoding: how many splits, how much work memory, the two launches. */
#include "cuda/exact_decode.cuh"
#include "cuda/launch.cuh"

/* CTAs for three on each multiprocessor, of four tiles at least. */
static int splits_of(const struct cuda_exact *x)
{
    const int64_t tiles = (x->len_k + CUDA_TILE - 1) / CUDA_TILE;
    const int64_t pairs = (int64_t)x->n_seqs * x->kv_heads;
    const int64_t want = (3 * (int64_t)x->n_sm + pairs - 1) / (pairs ? pairs : 1);
    const int64_t most = tiles / 4 < 512 ? tiles / 4 : 512;

    return (int)(want < 1 || most < 1 ? 1 : want < most ? want : most);
}

size_t mma_decode_bytes(const struct cuda_exact *x)
{
    return (size_t)x->n_seqs * (size_t)x->kv_heads * (size_t)splits_of(x) *
           DECODE_ROWS * ((size_t)x->dv + 2) * sizeof(float);
}

/* Every row must see every key: what is not finite then reaches all, as it should. */
int mma_decode_fits(const struct cuda_exact *x)
{
    const int64_t rows = x->len_q * (x->heads / x->kv_heads);

    return x->dtype != CUDA_F32 && plain_kernel(x) && !x->tiles.row0 && !x->packed &&
           rows > 0 && rows <= DECODE_ROWS && (x->len_q == 1 || !x->causal) &&
           x->len_k >= 4 * CUDA_TILE;
}

template <typename T, int D> static int decode_of_width(const struct cuda_exact *x)
{
    const auto kernel = exact_decode_kernel<T, D>;
    const int  bytes = DecodeShape<T, D>::BYTES, splits = splits_of(x);
    const int  rows = (int)x->len_q * (x->heads / x->kv_heads);
    int        error = cudaFuncSetAttribute(
               kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

    if (error || !x->n_seqs) return error;
    kernel<<<dim3((unsigned)splits, (unsigned)x->kv_heads, (unsigned)x->n_seqs),
             THREADS, (size_t)bytes, (cudaStream_t)x->stream>>>(*x, splits);
    error = cudaGetLastError();
    if (error) return error;
    exact_merge_kernel<T><<<dim3((unsigned)((rows + WARPS - 1) / WARPS),
                                 (unsigned)x->kv_heads, (unsigned)x->n_seqs),
                            THREADS, 0, (cudaStream_t)x->stream>>>(*x, splits);
    return cudaGetLastError();
}

template <typename T> static int decode_of_type(const struct cuda_exact *x)
{
    switch (padded_width(x)) {
    case 64: return decode_of_width<T, 64>(x);
    case 128: return decode_of_width<T, 128>(x);
    default: return decode_of_width<T, 256>(x);
    }
}

int mma_decode(const struct cuda_exact *x)
{
    return x->dtype == CUDA_BF16 ? decode_of_type<__nv_bfloat16>(x)
                                 : decode_of_type<__half>(x);
}
