/* Hopper instructions without a C++ spelling: transaction barriers, the tensor copy
 * engine, warpgroup matrix products and register reallocation. Shared memory is
 * addressed by its 32-bit window address throughout. */
#ifndef FOCI_CUDA_HOPPER_PTX_CUH
#define FOCI_CUDA_HOPPER_PTX_CUH

#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace hopper {

#define HOPPER_INLINE static __device__ __forceinline__

HOPPER_INLINE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- transaction barriers ---- */

HOPPER_INLINE void barrier_init(uint32_t bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals)
                 : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
HOPPER_INLINE void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

HOPPER_INLINE void barrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(bytes)
                 : "memory");
}

HOPPER_INLINE void barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

HOPPER_INLINE void barrier_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    } while (!done);
}

/* Named barriers order warpgroups of one block; `threads` counts both sides. */
HOPPER_INLINE void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

HOPPER_INLINE void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Ordinary stores to shared memory become visible to wgmma and the copy engine. */
HOPPER_INLINE void fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- the copy engine ---- */

HOPPER_INLINE void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Loads the box of a map of (column, row, head, batch) at the given coordinates. */
HOPPER_INLINE void load_box(uint32_t to, const CUtensorMap *map, uint32_t bar,
                            int column, int row, int head, int batch)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
        "bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(bar), "r"(column), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/* The same for what is read once: the L2 keeps it no longer than need be. */
HOPPER_INLINE uint64_t evict_first_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

HOPPER_INLINE void load_box_once(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                 int column, int row, int head, int batch,
                                 uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::"
        "bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
        "l"(map), "r"(bar), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy)
        : "memory");
}

/* Lets the launch after this one start, if it may overlap; waits for the one before. */
HOPPER_INLINE void start_launch_after()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

HOPPER_INLINE void wait_for_launch_before()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Bulk copies of contiguous bytes from shared to global memory, and f32 sums. */
HOPPER_INLINE void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

HOPPER_INLINE void bulk_add(float *to, uint32_t from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], "
        "%2;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
}

/* Adds four floats to memory at once. */
HOPPER_INLINE void add_vector(float *to, float x, float y, float z, float w)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x),
                 "f"(y), "f"(z), "f"(w)
                 : "memory");
}

HOPPER_INLINE void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* All but the `pending` newest groups have read their source, or are complete. */
template <int pending> HOPPER_INLINE void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

template <int pending> HOPPER_INLINE void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- turns between blocks ---- */

HOPPER_INLINE void wait_turn(const int *turn, int mine)
{
    int now;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                     : "=r"(now)
                     : "l"(turn)
                     : "memory");
    } while (now != mine);
    asm volatile("fence.proxy.async;" ::: "memory");
}

HOPPER_INLINE void pass_turn(int *turn, int next)
{
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(next)
                 : "memory");
}

/* ---- warpgroup products ---- */

HOPPER_INLINE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

HOPPER_INLINE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending> HOPPER_INLINE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* Pins registers that an asynchronous product reads or writes: the compiler must not
 * move their other uses across this point. */
template <int n> HOPPER_INLINE void pin(float (&r)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(r[i])::"memory");
}

template <int n> HOPPER_INLINE void pin(uint32_t (&r)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(r[i])::"memory");
}

/* Descriptor of an operand in shared memory with the 128-byte swizzle; offsets in
 * bytes. An operand with its depth along the rows of 128 bytes has stride 1024 and
 * advances 32 bytes for each depth of 16; one with its depth across them has `leading`
 * = distance of panels of 64 columns and advances 2048 bytes. */
HOPPER_INLINE uint64_t operand(uint32_t address, uint32_t leading)
{
    return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* D (64 x n, f32, registers) = A B or D + A B with depth 16. Width<n> has for both
 * 16-bit types: `ss` with A in shared memory, `rs` with A in registers; `keep` adds to
 * D, transpose_a and transpose_b say that the depth runs across the rows. */
template <int n> struct Width;

#define HOPPER_R8(s, a, b, c, d, e, f, g, h)                                           \
    s "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define HOPPER_REGS_8  HOPPER_R8("", 0, 1, 2, 3, 4, 5, 6, 7)
#define HOPPER_REGS_16 HOPPER_REGS_8 HOPPER_R8(", ", 8, 9, 10, 11, 12, 13, 14, 15)
#define HOPPER_REGS_24 HOPPER_REGS_16 HOPPER_R8(", ", 16, 17, 18, 19, 20, 21, 22, 23)
#define HOPPER_REGS_32 HOPPER_REGS_24 HOPPER_R8(", ", 24, 25, 26, 27, 28, 29, 30, 31)
#define HOPPER_REGS_40 HOPPER_REGS_32 HOPPER_R8(", ", 32, 33, 34, 35, 36, 37, 38, 39)
#define HOPPER_REGS_48 HOPPER_REGS_40 HOPPER_R8(", ", 40, 41, 42, 43, 44, 45, 46, 47)
#define HOPPER_REGS_56 HOPPER_REGS_48 HOPPER_R8(", ", 48, 49, 50, 51, 52, 53, 54, 55)
#define HOPPER_REGS_64 HOPPER_REGS_56 HOPPER_R8(", ", 56, 57, 58, 59, 60, 61, 62, 63)
#define HOPPER_REGS_72 HOPPER_REGS_64 HOPPER_R8(", ", 64, 65, 66, 67, 68, 69, 70, 71)
#define HOPPER_REGS_80 HOPPER_REGS_72 HOPPER_R8(", ", 72, 73, 74, 75, 76, 77, 78, 79)
#define HOPPER_REGS_88 HOPPER_REGS_80 HOPPER_R8(", ", 80, 81, 82, 83, 84, 85, 86, 87)
#define HOPPER_REGS_96 HOPPER_REGS_88 HOPPER_R8(", ", 88, 89, 90, 91, 92, 93, 94, 95)
#define HOPPER_REGS_104                                                                \
    HOPPER_REGS_96 HOPPER_R8(", ", 96, 97, 98, 99, 100, 101, 102, 103)
#define HOPPER_REGS_112                                                                \
    HOPPER_REGS_104 HOPPER_R8(", ", 104, 105, 106, 107, 108, 109, 110, 111)
#define HOPPER_REGS_120                                                                \
    HOPPER_REGS_112 HOPPER_R8(", ", 112, 113, 114, 115, 116, 117, 118, 119)
#define HOPPER_REGS_128                                                                \
    HOPPER_REGS_120 HOPPER_R8(", ", 120, 121, 122, 123, 124, 125, 126, 127)

#define HOPPER_F8(d, i)                                                                \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),        \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define HOPPER_OUT_8(d)   HOPPER_F8(d, 0)
#define HOPPER_OUT_16(d)  HOPPER_OUT_8(d), HOPPER_F8(d, 8)
#define HOPPER_OUT_24(d)  HOPPER_OUT_16(d), HOPPER_F8(d, 16)
#define HOPPER_OUT_32(d)  HOPPER_OUT_24(d), HOPPER_F8(d, 24)
#define HOPPER_OUT_40(d)  HOPPER_OUT_32(d), HOPPER_F8(d, 32)
#define HOPPER_OUT_48(d)  HOPPER_OUT_40(d), HOPPER_F8(d, 40)
#define HOPPER_OUT_56(d)  HOPPER_OUT_48(d), HOPPER_F8(d, 48)
#define HOPPER_OUT_64(d)  HOPPER_OUT_56(d), HOPPER_F8(d, 56)
#define HOPPER_OUT_72(d)  HOPPER_OUT_64(d), HOPPER_F8(d, 64)
#define HOPPER_OUT_80(d)  HOPPER_OUT_72(d), HOPPER_F8(d, 72)
#define HOPPER_OUT_88(d)  HOPPER_OUT_80(d), HOPPER_F8(d, 80)
#define HOPPER_OUT_96(d)  HOPPER_OUT_88(d), HOPPER_F8(d, 88)
#define HOPPER_OUT_104(d) HOPPER_OUT_96(d), HOPPER_F8(d, 96)
#define HOPPER_OUT_112(d) HOPPER_OUT_104(d), HOPPER_F8(d, 104)
#define HOPPER_OUT_120(d) HOPPER_OUT_112(d), HOPPER_F8(d, 112)
#define HOPPER_OUT_128(d) HOPPER_OUT_120(d), HOPPER_F8(d, 120)

#define HOPPER_WGMMA_SS(n, r, type, i0, i1, i2, i3, i4)                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2 ", 0;\n"                     \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type       \
                 " {" HOPPER_REGS_##r "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3          \
                                      ", %" #i4 ";\n}\n"                               \
                 : HOPPER_OUT_##r(d)                                                   \
                 : "l"(a), "l"(b), "n"((int)keep), "n"((int)transpose_a),              \
                   "n"((int)transpose_b))

#define HOPPER_WGMMA_RS(n, r, type, i0, i1, i2, i3, i4, i5, i6)                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5 ", 0;\n"                     \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type       \
                 " {" HOPPER_REGS_##r "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3        \
                                      "}, %" #i4 ", p, 1, 1, %" #i6 ";\n}\n"           \
                 : HOPPER_OUT_##r(d)                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)keep), \
                   "n"((int)transpose_b))

#define HOPPER_WIDTH(n, r, i0, i1, i2, i3, i4, i5, i6)                                 \
    template <> struct Width<n> {                                                      \
        template <class T, bool keep, bool transpose_a, bool transpose_b>              \
        static __device__ __forceinline__ void ss(float (&d)[r], uint64_t a,           \
                                                  uint64_t b)                          \
        {                                                                              \
            if constexpr (sizeof(T) == 2 && T::is_bf16)                                \
                HOPPER_WGMMA_SS(n, r, "bf16", i0, i1, i2, i3, i4);                     \
            else                                                                       \
                HOPPER_WGMMA_SS(n, r, "f16", i0, i1, i2, i3, i4);                      \
        }                                                                              \
        template <class T, bool keep, bool transpose_b>                                \
        static __device__ __forceinline__ void rs(float (&d)[r], const uint32_t *a,    \
                                                  uint64_t b)                          \
        {                                                                              \
            if constexpr (sizeof(T) == 2 && T::is_bf16)                                \
                HOPPER_WGMMA_RS(n, r, "bf16", i0, i1, i2, i3, i4, i5, i6);             \
            else                                                                       \
                HOPPER_WGMMA_RS(n, r, "f16", i0, i1, i2, i3, i4, i5, i6);              \
        }                                                                              \
    }

HOPPER_WIDTH(32, 16, 16, 17, 18, 19, 20, 21, 22);
HOPPER_WIDTH(64, 32, 32, 33, 34, 35, 36, 37, 38);
HOPPER_WIDTH(80, 40, 40, 41, 42, 43, 44, 45, 46);
HOPPER_WIDTH(96, 48, 48, 49, 50, 51, 52, 53, 54);
HOPPER_WIDTH(112, 56, 56, 57, 58, 59, 60, 61, 62);
HOPPER_WIDTH(128, 64, 64, 65, 66, 67, 68, 69, 70);
HOPPER_WIDTH(144, 72, 72, 73, 74, 75, 76, 77, 78);
HOPPER_WIDTH(160, 80, 80, 81, 82, 83, 84, 85, 86);
HOPPER_WIDTH(176, 88, 88, 89, 90, 91, 92, 93, 94);
HOPPER_WIDTH(192, 96, 96, 97, 98, 99, 100, 101, 102);
HOPPER_WIDTH(256, 128, 128, 129, 130, 131, 132, 133, 134);

/* ---- registers, arithmetic ---- */

HOPPER_INLINE void store_float(uint32_t at, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}

HOPPER_INLINE void store_floats(uint32_t at, const float *x)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

HOPPER_INLINE float2 load_float2(uint32_t at)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(at)
                 : "memory");
    return x;
}

HOPPER_INLINE void store_zeros(uint32_t at)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0)
                 : "memory");
}

/* Four 8 x 8 matrices of 16 bits: the A operand of a product of depth 16. */
HOPPER_INLINE void load_matrix(uint32_t *r, uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

HOPPER_INLINE void load_matrix_transposed(uint32_t *r, uint32_t at)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(at)
        : "memory");
}

HOPPER_INLINE void store_matrix(uint32_t at, const uint32_t *r)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

template <int n> HOPPER_INLINE void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

template <int n> HOPPER_INLINE void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

HOPPER_INLINE float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The two 16-bit types: how two f32 become one register of an operand. */
struct Bf16 {
    static constexpr bool                      is_bf16 = true;
    uint16_t                                   bits;
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        uint32_t r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
    }
    static __device__ __forceinline__ float to_float(Bf16 x)
    {
        return __uint_as_float((uint32_t)x.bits << 16);
    }
    static __device__ __forceinline__ float2 unpack(uint32_t r)
    {
        return make_float2(__uint_as_float(r << 16), __uint_as_float(r & 0xFFFF0000u));
    }
};

struct F16 {
    static constexpr bool                      is_bf16 = false;
    uint16_t                                   bits;
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        uint32_t r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
        return r;
    }
    static __device__ __forceinline__ float to_float(F16 x)
    {
        return __half2float(__ushort_as_half(x.bits));
    }
    static __device__ __forceinline__ float2 unpack(uint32_t r)
    {
        return __half22float2(*reinterpret_cast<const __half2 *>(&r));
    }
};

/* One warp's product of depth 16: c (16 x 8) += a (16 x 16) b (16 x 8). */
template <class T>
HOPPER_INLINE void multiply_16x8(float *c, const uint32_t *a, const uint32_t *b)
{
#define HOPPER_MMA(type)                                                               \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "        \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"     \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (T::is_bf16)
        HOPPER_MMA("bf16");
    else
        HOPPER_MMA("f16");
#undef HOPPER_MMA
}

} // namespace hopper
#endif
