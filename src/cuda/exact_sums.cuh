/* exact_sums.cuh -- sums of weighted rows where some of them are not finite, and how rows
 * are stored. */
#ifndef FOCI_EXACT_SUMS_CUH
#define FOCI_EXACT_SUMS_CUH

#include "cuda/exact_block.cuh"

/* A value that is not finite must reach those that see it alone, but 0 times infinity is
 * NaN.  Such elements are taken out of the tile and added pair by pair; weights[64][64]
 * are those of all rows. */
template <typename T, int D>
DEVICE void add_nonfinite(float o[D / 8][4], const float p[8][4],
                          const uint64_t seen[2], char *tile, T *weights, int width)
{
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            weights[(row + 8 * (e >> 1)) * CUDA_TILE + 8 * n + lane % 4 * 2 + (e & 1)] =
                from_float<T>(p[n][e]);
    __syncwarp();
#pragma unroll 1
    for (int j = 0; j < CUDA_TILE; j++)
#pragma unroll
        for (int c = 0; c < D / 8; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int col = 8 * c + lane % 4 * 2 + (e & 1);
                if (col >= width || !(seen[e >> 1] >> j & 1)) continue;
                const float v = to_float(*tile_element<T, D>(tile, j, col));
                if (!isfinite(v))
                    o[c][e] +=
                        to_float(weights[(row + 8 * (e >> 1)) * CUDA_TILE + j]) * v;
            }
    __syncthreads();
    for (int t = threadIdx.x; t < CUDA_TILE * D; t += THREADS) {
        T *v = tile_element<T, D>(tile, t / D, t % D);
        if (!isfinite(to_float(*v))) *v = from_float<T>(0);
    }
    __syncthreads();
}

/* Whether any thread finds an element that is not finite. */
template <typename T, int D> DEVICE bool tile_nonfinite(const char *tile)
{
    int bad = 0;

    for (int t = threadIdx.x; t < CUDA_TILE * D; t += THREADS)
        bad |= !isfinite(to_float(((const T *)tile)[t]));
    return __syncthreads_or(bad);
}

template <typename T> DEVICE void store_pair(T *to, float a, float b, int left)
{
    if constexpr (sizeof(T) == 2)
        if (left >= 2 && (uintptr_t)to % 4 == 0) {
            *(uint32_t *)to = pack_pair<T>(a, b);
            return;
        }
    if (left >= 1) to[0] = from_float<T>(a);
    if (left >= 2) to[1] = from_float<T>(b);
}

#endif
