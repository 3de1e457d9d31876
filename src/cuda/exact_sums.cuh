/* exact_sums.cuh -- sums of weighted rows where some of them are not finite, and how rows
 * are stored. */
#ifndef FOCI_EXACT_SUMS_CUH
#define FOCI_EXACT_SUMS_CUH

#include "cuda/exact_block.cuh"

/* A value that is not finite must reach those that see it alone, but 0 times infinity is
 * NaN.  In a tile where some pairs are hidden and something is not finite, such elements
 * are taken out before the product; afterwards the tile is loaded once more, what they
 * bring to each sum is put in its place, column by column, and added.  All of it is rare,
 * so that code is short rather than fast. */
template <typename T> struct Nonfinite {
    T        weights[CUDA_TILE][CUDA_TILE];
    uint64_t seen[CUDA_TILE];
};

/* Keep weights and who sees what, and take out what is not finite. */
template <typename T, int D>
DEVICE void take_nonfinite(const float p[8][4], const uint64_t seen[2], char *tile,
                           Nonfinite<T> *kept)
{
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            kept->weights[row + 8 * (e >> 1)][8 * n + lane % 4 * 2 + (e & 1)] =
                from_float<T>(p[n][e]);
    if (lane % 4 < 2) kept->seen[row + 8 * (lane % 4)] = lane % 4 ? seen[1] : seen[0];
#pragma unroll 1
    for (int t = threadIdx.x; t < CUDA_TILE * D; t += THREADS) {
        T *v = tile_element<T, D>(tile, t / D, t % D);
        if (!isfinite(to_float(*v))) *v = from_float<T>(0);
    }
    __syncthreads();
}

/* In column `col`, in place of rows of the tile: what they bring to the sums. */
template <typename T, int D>
DEVICE void spread_column(char *tile, int col, const Nonfinite<T> *kept)
{
    uint64_t plus = 0, minus = 0, nan = 0;

#pragma unroll 1
    for (int j = 0; j < CUDA_TILE; j++) {
        const float v = to_float(*tile_element<T, D>(tile, j, col));
        if (isnan(v)) nan |= UINT64_C(1) << j;
        if (v == INFINITY) plus |= UINT64_C(1) << j;
        if (v == -INFINITY) minus |= UINT64_C(1) << j;
    }
#pragma unroll 1
    for (int r = 0; r < CUDA_TILE; r++) {
        float sum = 0;
        for (uint64_t left = kept->seen[r] & (plus | minus | nan); left;
             left &= left - 1) {
            const int   j = __ffsll((long long)left) - 1;
            const float v = nan >> j & 1 ? NAN : plus >> j & 1 ? INFINITY : -INFINITY;
            sum += to_float(kept->weights[r][j]) * v;
        }
        *tile_element<T, D>(tile, r, col) = from_float<T>(sum);
    }
}

/* After the product; rows and first as the tile was loaded. */
template <typename T, int D>
DEVICE void add_nonfinite(float o[D / 8][4], uint32_t address, char *tile,
                          const Rows &rows, int64_t first, int64_t n, int width,
                          bool wide, const Nonfinite<T> *kept)
{
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

    __syncthreads();
    load_tile<T, D>(address, tile, rows, first, n, width, wide);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    for (int col = threadIdx.x; col < D; col += THREADS)
        spread_column<T, D>(tile, col, kept);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            o[c][e] += to_float(*tile_element<T, D>(tile, row + 8 * (e >> 1),
                                                    8 * c + lane % 4 * 2 + (e & 1)));
    __syncthreads();
}

/* Whether any thread finds an element that is not finite. */
template <typename T, int D> DEVICE bool tile_nonfinite(const char *tile)
{
    int bad = 0;

#pragma unroll 4
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
