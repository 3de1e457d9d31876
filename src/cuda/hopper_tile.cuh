/* What the Hopper kernels share above single instructions. */
#ifndef FOCI_CUDA_HOPPER_TILE_CUH
#define FOCI_CUDA_HOPPER_TILE_CUH

#include "cuda/exact.h"
#include "cuda/hopper_ptx.cuh"

namespace hopper {

/* The greatest multiple of m that is not above x. */
__device__ __forceinline__ int floor_of(int x, int m)
{
    return (x / m - (x % m < 0)) * m;
}

__device__ __forceinline__ uint64_t low_bits(int n)
{
    return n >= 64 ? ~UINT64_C(0) : n <= 0 ? 0 : ~UINT64_C(0) >> (64 - n);
}

/* Over the four threads that share a row of an accumulator. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float tanh_by_exp2(float x)
{
    return 1 - __fdividef(2, exp2_approx(2.88539008177792681f * x) + 1);
}

/* Adds the weight of a sink to a row whose divisor is 2^norm; returns by what its
 * weights shrink. */
__device__ __forceinline__ float add_sink(float &norm, float sink)
{
    const float m = fmaxf(norm, sink);
    if (m == -INFINITY) return 1;
    const float before = norm;
    norm = m + log2f(exp2_approx(norm - m) + exp2_approx(sink - m));
    return exp2_approx(before - norm);
}

/* A place in a ring of shared memory: the stage, and the parity to wait for. */
template <int stages> struct Ring {
    int        stage = 0;
    uint32_t   parity;
    __device__ __forceinline__ explicit Ring(uint32_t p) : parity(p) {}
    __device__ __forceinline__ void next()
    {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

/* Masks of tiles beside entries of the dictionary. */
enum { mask_none = -1, mask_all = -2 };

/* The tiles of a row or column of a table of tiles, in order; the run after the current
 * one is on its way. Without a table it is all of them. */
struct TileWalk {
    const struct cuda_run *run, *end;
    struct cuda_run        now, ahead;
    int                    next, limit, shift;
    /* Tiles `from` .. `to` of those that runs count from `shift` on. */
    __device__ __forceinline__ TileWalk(int from, int to, int shift_)
        : run(nullptr), end(nullptr), next(from), limit(to), shift(shift_)
    {
        now.begin = from, now.end = to, now.mask = mask_none;
    }
    __device__ __forceinline__ void use(const struct cuda_run *runs,
                                        const int64_t *start, int line)
    {
        if (next >= limit) return;
        run = runs + start[line], end = runs + start[line + 1];
        fetch(), advance();
    }
    __device__ __forceinline__ void fetch()
    {
        if (run < end) {
            ahead = *run++;
            ahead.begin -= shift, ahead.end -= shift;
        } else {
            ahead.begin = ahead.end = INT32_MAX, ahead.mask = mask_none;
        }
    }
    __device__ __forceinline__ void advance() { now = ahead, fetch(); }
    /* The tile to come, or a number beyond all. */
    __device__ __forceinline__ int peek()
    {
        while (next >= now.end && now.end < limit)
            advance();
        next = max(next, now.begin);
        return next < min(limit, now.end) ? next : INT32_MAX;
    }
};

/* The same from the last tile to the first. */
struct TileWalkDown {
    const struct cuda_run     *run, *begin;
    struct cuda_run            now, behind;
    int                        next, limit, shift;
    __device__ __forceinline__ TileWalkDown(int from, int to, int shift_)
        : run(nullptr), begin(nullptr), next(to - 1), limit(from), shift(shift_)
    {
        now.begin = from, now.end = to, now.mask = mask_none;
    }
    __device__ __forceinline__ void use(const struct cuda_run *runs,
                                        const int64_t *start, int line)
    {
        if (next < limit) return;
        begin = runs + start[line], run = runs + start[line + 1];
        fetch(), advance();
    }
    __device__ __forceinline__ void fetch()
    {
        if (run > begin) {
            behind = *--run;
            behind.begin -= shift, behind.end -= shift;
        } else {
            behind.begin = behind.end = -0x40000000, behind.mask = mask_none;
        }
    }
    __device__ __forceinline__ void advance() { now = behind, fetch(); }
    /* The tile to come, or -1. */
    __device__ __forceinline__ int peek()
    {
        while (next < now.begin && now.begin > limit)
            advance();
        next = min(next, now.end - 1);
        return next >= max(limit, now.begin) ? next : -1;
    }
};

/* Stores `columns` (a multiple of 8) of a row of an accumulator of n columns, of which
 * the thread holds x[4 i] and x[4 i + 1] in each eight, times `by`. The four threads of
 * the row transpose four pairs, so that each stores sixteen bytes. */
template <class T, int n>
__device__ __forceinline__ void store_row(uint16_t *to, const float *x, float by,
                                          int columns, int lane)
{
    const int quad = lane & 3;
#pragma unroll
    for (int g = 0; g < n / 8; g += 4) {
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            r[i] = g + i < n / 8 ? T::pack(x[(g + i) * 4] * by, x[(g + i) * 4 + 1] * by)
                                 : 0;
        uint32_t p = quad & 1 ? r[0] : r[1], q = quad & 1 ? r[2] : r[3];
        p = __shfl_xor_sync(~0u, p, 1), q = __shfl_xor_sync(~0u, q, 1);
        if (quad & 1)
            r[0] = p, r[2] = q;
        else
            r[1] = p, r[3] = q;
        p = quad & 2 ? r[0] : r[2], q = quad & 2 ? r[1] : r[3];
        p = __shfl_xor_sync(~0u, p, 2), q = __shfl_xor_sync(~0u, q, 2);
        if (quad & 2)
            r[0] = p, r[1] = q;
        else
            r[2] = p, r[3] = q;
        const int column = g * 8 + quad * 8;
        if (column < columns)
            *reinterpret_cast<uint4 *>(to + column) =
                make_uint4(r[0], r[1], r[2], r[3]);
    }
}

/* The same in f32. */
template <int n>
__device__ __forceinline__ void store_row_f32(float *to, const float *x, float by,
                                              int columns, int lane)
{
#pragma unroll
    for (int g = 0; g < n / 8; g++) {
        const int column = g * 8 + (lane & 3) * 2;
        if (column < columns)
            *reinterpret_cast<float2 *>(to + column) =
                make_float2(x[g * 4] * by, x[g * 4 + 1] * by);
    }
}

} // namespace hopper
#endif
