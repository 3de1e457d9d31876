/* mma.cuh -- the warp-level matrix vocabulary of sm_80: 16 x 8 x 16 products of bf16 or
 * f16 with f32 sums, tiles of 64 rows in shared memory, asynchronous copies.
 *
 * Products of f32 are three of TF32: a number is the sum of two that have 11 bits each,
 * and the product of the two small ones, 2^-22 of the whole, is left out.
 *
 * A tile has 64 rows of D elements in chunks of 16 bytes; chunk c of row r stands at
 * c ^ (r & 7), so that the eight rows that ldmatrix reads together lie in different
 * banks.
 */
#ifndef FOCI_MMA_CUH
#define FOCI_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "cuda/exact.h"

enum { WARP = 32, WARPS = 4, THREADS = WARP * WARPS };

#define DEVICE static __device__ __forceinline__

DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/*
 * Elements
 */

DEVICE float                   to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
DEVICE float                   to_float(__half x) { return __half2float(x); }
DEVICE float                   to_float(float x) { return x; }
template <typename T> DEVICE T from_float(float x);
template <> __device__ __forceinline__ __nv_bfloat16 from_float(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ float from_float(float x) { return x; }

template <typename T> DEVICE uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}
template <> __device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/*
 * Products
 */

template <typename T> struct Product;
template <> struct Product<__nv_bfloat16> {
    DEVICE void add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
template <> struct Product<__half> {
    DEVICE void add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

DEVICE void load_matrix(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

DEVICE void load_matrix_transposed(uint32_t r[4], uint32_t address)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(address)
        : "memory");
}

/*
 * Tiles
 */

/* The byte where chunk c of row r stands. */
template <typename T, int D> DEVICE uint32_t tile_offset(int r, int c)
{
    return (uint32_t)(r * D * (int)sizeof(T) + ((c ^ (r & 7)) << 4));
}

/* Element c of row r. */
template <typename T, int D> DEVICE T *tile_element(char *tile, int r, int c)
{
    constexpr int PER = 16 / (int)sizeof(T);
    return (T *)(tile + tile_offset<T, D>(r, c / PER)) + c % PER;
}

/* Rows r0 to r0 + 15, elements 16 k to 16 k + 15, as a first operand. */
template <typename T, int D>
DEVICE void load_a(uint32_t a[4], uint32_t tile, int r0, int k)
{
    const int lane = threadIdx.x % WARP;
    load_matrix(a, tile + tile_offset<T, D>(r0 + (lane & 15), 2 * k + (lane >> 4)));
}

/* A second operand that is the tile transposed: b[0..1] for result columns n0 to n0 + 7
 * (rows of the tile), b[2..3] for the next eight; summed over elements 16 k on. */
template <typename T, int D>
DEVICE void load_b_rows(uint32_t b[4], uint32_t tile, int n0, int k)
{
    const int lane = threadIdx.x % WARP;
    const int r = n0 + (lane & 7) + (lane >> 4) * 8;
    load_matrix(b, tile + tile_offset<T, D>(r, 2 * k + (lane >> 3 & 1)));
}

/* A second operand that is the tile: summed over its rows 16 k to 16 k + 15, result
 * columns 16 n to 16 n + 15. */
template <typename T, int D>
DEVICE void load_b_cols(uint32_t b[4], uint32_t tile, int k, int n)
{
    const int lane = threadIdx.x % WARP;
    load_matrix_transposed(
        b, tile + tile_offset<T, D>(16 * k + (lane & 15), 2 * n + (lane >> 4)));
}

DEVICE void copy_async(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}
DEVICE void copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Rows of one head of one sequence: row j at at + j row, or in pages. */
struct Rows {
    const char    *at;
    int64_t        row; /* bytes */
    const int32_t *pages;
    int64_t        page; /* bytes */
};

DEVICE const char *row_at(const Rows &rows, int64_t j)
{
    if (rows.pages)
        return rows.at + rows.pages[j / CUDA_TILE] * rows.page +
               j % CUDA_TILE * rows.row;
    return rows.at + j * rows.row;
}

/* Copy rows first to first + 63 of `width` elements; those outside [0, n) and elements
 * beyond the width become zeros.  `wide`: rows start at, and are, multiples of 16
 * bytes. */
template <typename T, int D>
DEVICE void load_tile(uint32_t tile, char *generic, const Rows &rows, int64_t first,
                      int64_t n, int width, bool wide)
{
    constexpr int PER = 16 / (int)sizeof(T), CHUNKS = D / PER;

    if (wide) {
        for (int t = threadIdx.x; t < CUDA_TILE * CHUNKS; t += THREADS) {
            const int     r = t / CHUNKS, c = t % CHUNKS;
            const int64_t j = first + r;
            const bool    there = j >= 0 && j < n && c * PER < width;
            const char   *from = there ? row_at(rows, j) + c * 16 : rows.at;
            copy_async(tile + tile_offset<T, D>(r, c), from, there ? 16 : 0);
        }
        return;
    }
    for (int t = threadIdx.x; t < CUDA_TILE * D; t += THREADS) {
        const int     r = t / D, c = t % D;
        const int64_t j = first + r;
        T             x = from_float<T>(0);
        if (j >= 0 && j < n && c < width) x = ((const T *)row_at(rows, j))[c];
        *tile_element<T, D>(generic, r, c) = x;
    }
}

/*
 * Products of tiles
 */

DEVICE void set_zero(float c[8][4])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[n][e] = 0;
}

/* For elements of 16 bits. */
template <typename T> struct Tiles {
    /* Accumulators of 16 x 64, rounded, as first operands of four products. */
    struct Operand {
        uint32_t a[4][4];
    };

    DEVICE void pack(Operand &to, const float c[8][4])
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            to.a[k][0] = pack_pair<T>(c[2 * k][0], c[2 * k][1]);
            to.a[k][1] = pack_pair<T>(c[2 * k][2], c[2 * k][3]);
            to.a[k][2] = pack_pair<T>(c[2 * k + 1][0], c[2 * k + 1][1]);
            to.a[k][3] = pack_pair<T>(c[2 * k + 1][2], c[2 * k + 1][3]);
        }
    }

    /* c[8][4] = 16 rows from r0 on of tile a times all rows of tile b, over `width`. */
    template <int D>
    DEVICE void multiply_rows(float c[8][4], uint32_t a, int r0, uint32_t b, int width)
    {
        set_zero(c);
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            if (k * 16 >= width) break;
            uint32_t fa[4];
            load_a<T, D>(fa, a, r0, k);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t fb[4];
                load_b_rows<T, D>(fb, b, 16 * n, k);
                Product<T>::add(c[2 * n], fa, fb[0], fb[1]);
                Product<T>::add(c[2 * n + 1], fa, fb[2], fb[3]);
            }
        }
    }

    /* c[D/8][4] += a (16 x 64) times tile b (64 rows), columns below `width`. */
    template <int D>
    DEVICE void multiply_cols(float c[D / 8][4], const Operand &a, uint32_t b, int width)
    {
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            if (n * 16 >= width) break;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t fb[4];
                load_b_cols<T, D>(fb, b, k, n);
                Product<T>::add(c[2 * n], a.a[k], fb[0], fb[1]);
                Product<T>::add(c[2 * n + 1], a.a[k], fb[2], fb[3]);
            }
        }
    }
};

/* A float as the sum of two numbers of TF32. */
struct Halves {
    uint32_t big, small;
};

DEVICE Halves halves(float x)
{
    Halves h;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(h.big) : "f"(x));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(h.small) : "f"(x - __uint_as_float(h.big)));
    return h;
}

DEVICE float shared_float(uint32_t address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

/* Element c of row r of a tile of floats. */
template <int D> DEVICE Halves tile_halves(uint32_t tile, int r, int c)
{
    return halves(shared_float(tile + tile_offset<float, D>(r, c / 4) + c % 4 * 4));
}

DEVICE void multiply_tf32(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                          uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* c += a b of halves, the small terms first. */
DEVICE void multiply_halves(float c[4], const Halves a[4], const Halves b[2])
{
    multiply_tf32(c, a[0].small, a[1].small, a[2].small, a[3].small, b[0].big, b[1].big);
    multiply_tf32(c, a[0].big, a[1].big, a[2].big, a[3].big, b[0].small, b[1].small);
    multiply_tf32(c, a[0].big, a[1].big, a[2].big, a[3].big, b[0].big, b[1].big);
}

/* For floats.  Accumulators are operands as they are: columns 2t and 2t + 1 of eight, that
 * a lane has, stand for indices t and t + 4 of a sum, whose order does not matter. */
template <> struct Tiles<float> {
    struct Operand {
        float a[8][4];
    };

    DEVICE void pack(Operand &to, const float c[8][4])
    {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                to.a[n][e] = c[n][e];
    }

    template <int D>
    DEVICE void multiply_rows(float c[8][4], uint32_t a, int r0, uint32_t b, int width)
    {
        const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

        set_zero(c);
#pragma unroll 2
        for (int k = 0; k < D; k += 8) {
            if (k >= width) break;
            const Halves fa[4] = { tile_halves<D>(a, r0 + g, k + t),
                                   tile_halves<D>(a, r0 + g + 8, k + t),
                                   tile_halves<D>(a, r0 + g, k + t + 4),
                                   tile_halves<D>(a, r0 + g + 8, k + t + 4) };
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const Halves fb[2] = { tile_halves<D>(b, 8 * n + g, k + t),
                                       tile_halves<D>(b, 8 * n + g, k + t + 4) };
                multiply_halves(c[n], fa, fb);
            }
        }
    }

    /* Products drop bits of a sum below its last one, always towards zero: each tile has a
     * sum of its own, which is added as floats are. */
    template <int D>
    DEVICE void multiply_cols(float c[D / 8][4], const Operand &a, uint32_t b, int width)
    {
        constexpr int N = 4; /* times eight columns at once */
        const int     g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;

#pragma unroll
        for (int n0 = 0; n0 < D / 8; n0 += N) {
            if (n0 * 8 >= width) break;
            float sum[N][4] = {};
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const Halves fa[4] = { halves(a.a[k][0]), halves(a.a[k][2]),
                                       halves(a.a[k][1]), halves(a.a[k][3]) };
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const int    col = 8 * (n0 + n) + g;
                    const Halves fb[2] = { tile_halves<D>(b, 8 * k + 2 * t, col),
                                           tile_halves<D>(b, 8 * k + 2 * t + 1, col) };
                    multiply_halves(sum[n], fa, fb);
                }
            }
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    c[n0 + n][e] += sum[n][e];
        }
    }
};

/* Over the four lanes that share a row of accumulators. */
DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
DEVICE uint64_t quad_and(uint64_t x)
{
    x &= __shfl_xor_sync(~0u, (unsigned long long)x, 1);
    return x & __shfl_xor_sync(~0u, (unsigned long long)x, 2);
}

#endif
