/* Exact attention forward on Hopper.
 *
 * One persistent block for each multiprocessor: a producer warp feeds tiles of Q, K and
 * V through the copy engine; two or three consumer warpgroups own 64 query rows each.
 * A consumer issues the scores of the next key block before the values of the current
 * one, so that softmax runs under matrix work; the warpgroups take turns at issuing.
 * The running maximum is exact; sums and output are rescaled only when it has risen by
 * more than 2^8, so that a weight never exceeds 256. */
#ifndef FOCI_CUDA_HOPPER_FORWARD_H
#define FOCI_CUDA_HOPPER_FORWARD_H

#include "hopper_tile.h"

/* Keys of row i: full = all, band = i + low .. i + high. */
enum Support { support_full, support_band };

struct ForwardArgs {
    uint16_t *o;
    float *lse;                                /* batch x heads x rows, or null */
    int64_t o_row, o_head, o_batch;            /* strides in elements */
    int rows, keys, heads, share, dv;          /* share: query heads of one key head */
    int row_tiles, tiles, heads_at_once;       /* heads whose K and V share the L2 */
    int low, high;                             /* band, relative to the row */
    float scale;                               /* of scores, times log2(e) */
    int *counter;                              /* two, zero before and after */
};

template <class T_, int d_, int groups_, int keys_, bool q_registers_, Support support_,
          bool split_ = true>
struct ForwardShape {
    using T = T_;
    static constexpr int d = d_, groups = groups_, keys = keys_, stages = 2;
    static constexpr bool q_registers = q_registers_, split = split_;
    static constexpr Support support = support_;
    static constexpr int rows = groups * 64, threads = (groups + 1) * 128;
    static constexpr int panels = (d + 63) / 64;
    static constexpr int q_bytes = rows * panels * 128, kv_bytes = keys * panels * 128;
    static constexpr int at_k = q_bytes, at_v = at_k + stages * kv_bytes,
                         at_barriers = at_v + stages * kv_bytes;
    static constexpr int shared_bytes = at_barriers + 256 + 1024;
    static constexpr int few = groups == 2 ? 24 : 32, many = groups == 2 ? 240 : 160;
};

/* Addresses of the barriers of one block. */
template <class C> struct ForwardShared {
    uint32_t q, k, v, full_k, empty_k, full_v, empty_v, full_q, empty_q, tile;
    __device__ __forceinline__ explicit ForwardShared(const void *raw)
    {
        q = (shared_address(raw) + 1023) & ~1023u;
        k = q + C::at_k, v = q + C::at_v;
        full_k = q + C::at_barriers, empty_k = full_k + 8 * C::stages;
        full_v = empty_k + 8 * C::stages, empty_v = full_v + 8 * C::stages;
        full_q = empty_v + 8 * C::stages, empty_q = full_q + 8, tile = full_q + 16;
    }
    __device__ __forceinline__ void init() const
    {
        for (int i = 0; i < C::stages; i++) {
            barrier_init(full_k + 8 * i, 1), barrier_init(full_v + 8 * i, 1);
            barrier_init(empty_k + 8 * i, C::groups * 4);
            barrier_init(empty_v + 8 * i, C::groups * 4);
        }
        barrier_init(full_q, 1), barrier_init(empty_q, C::groups * 4);
        barrier_init_fence();
    }
};

/* One tile of query rows of one head, and the key blocks it visits, last first. */
template <class C> struct ForwardTile {
    int head, row, first, count; /* head counts over the batch */
    __device__ __forceinline__ void decode(const ForwardArgs &a, int heads_all, int t)
    {
        const int span = a.heads_at_once * a.row_tiles, wave = t / span;
        const int r = t - wave * span, at = wave * a.heads_at_once;
        const int now = min(a.heads_at_once, heads_all - at);
        const int q = C::support == support_full ? r % a.row_tiles
                                                 : a.row_tiles - 1 - r / now;
        head = at + (C::support == support_full ? r / a.row_tiles : r % now);
        row = q * C::rows;
        int begin = 0, end = a.keys;
        if (C::support == support_band) {
            begin = max(begin, row + a.low);
            end = min(end, row + C::rows + a.high);
        }
        first = min(begin, a.keys - 1) / C::keys;
        count = max((end + C::keys - 1) / C::keys - first, 1);
    }
};

template <class C>
__device__ __forceinline__ void
forward_produce(const ForwardArgs &a, int heads_all, const ForwardShared<C> &s,
                const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv)
{
    prefetch_map(mq), prefetch_map(mk), prefetch_map(mv);
    Ring<C::stages> k(1), v(1);
    uint32_t q_parity = 1;
    int t = blockIdx.x;
    while (t < a.tiles) {
        const int next = atomicAdd(a.counter, 1) + gridDim.x;
        ForwardTile<C> tile;
        tile.decode(a, heads_all, t);
        const int batch = tile.head / a.heads, head = tile.head - batch * a.heads;
        const int key_head = head / a.share;
        barrier_wait(s.empty_q, q_parity);
        q_parity ^= 1;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(s.tile), "r"(t) : "memory");
        barrier_expect(s.full_q, C::q_bytes);
#pragma unroll
        for (int p = 0; p < C::panels; p++)
            load_box(s.q + p * C::rows * 128, mq, s.full_q, p * 64, tile.row, head,
                     batch);
        auto load = [&](uint32_t to, uint32_t full, uint32_t empty, const CUtensorMap *m,
                        Ring<C::stages> &ring, int block) {
            const uint32_t bar = full + 8 * ring.stage;
            barrier_wait(empty + 8 * ring.stage, ring.parity);
            barrier_expect(bar, C::kv_bytes);
#pragma unroll
            for (int p = 0; p < C::panels; p++)
                load_box(to + ring.stage * C::kv_bytes + p * C::keys * 128, m, bar, p * 64,
                         block * C::keys, key_head, batch);
            ring.next();
        };
        const int last = tile.first + tile.count - 1;
        load(s.k, s.full_k, s.empty_k, mk, k, last);
        for (int j = last; j >= tile.first; j--) {
            if (j > tile.first)
                load(s.k, s.full_k, s.empty_k, mk, k, j - 1);
            load(s.v, s.full_v, s.empty_v, mv, v, j);
        }
        t = next;
    }
    barrier_wait(s.empty_q, q_parity);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(s.tile), "r"(-1) : "memory");
    barrier_arrive(s.full_q);
    __threadfence();
    if (atomicAdd(a.counter + 1, 1) == (int)gridDim.x - 1) { /* the last block resets */
        a.counter[0] = 0, a.counter[1] = 0;
        __threadfence();
    }
}

/* One warpgroup's 64 rows. A thread holds rows r and r + 8 of its warp's sixteen; in
 * each group of eight columns, two of either row. */
template <class C> struct ForwardConsumer {
    using T = typename C::T;
    const ForwardArgs &a;
    const ForwardShared<C> &s;
    const int group, warp, lane;
    Ring<C::stages> k{0}, v{0};
    uint32_t q_parity = 0;
    float out[C::d / 2], score[C::keys / 2];
    uint32_t weight[C::keys / 4], query[C::q_registers ? C::d / 4 : 1];
    float base0, base1;                /* weight = 2^(score * scale + base) */
    float sum0, sum1, more0, more1;    /* of even and odd columns */
    float shrink0, shrink1;
    bool rescale_due;

    __device__ __forceinline__ ForwardConsumer(const ForwardArgs &args,
                                               const ForwardShared<C> &shared, int g)
        : a(args), s(shared), group(g), warp((threadIdx.x & 127) >> 5),
          lane(threadIdx.x & 31)
    {
    }

    __device__ __forceinline__ void load_query()
    {
        if constexpr (C::q_registers) {
            const int r = warp * 16 + (lane & 15);
#pragma unroll
            for (int i = 0; i < C::d / 16; i++) {
                const int chunk = i % 4 * 2 + (lane >> 4);
                const uint32_t at = s.q + i / 4 * C::rows * 128 +
                                    (group * 64 + r) * 128 + ((chunk ^ (r & 7)) << 4);
                asm volatile(
                    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                    : "=r"(query[4 * i]), "=r"(query[4 * i + 1]),
                      "=r"(query[4 * i + 2]), "=r"(query[4 * i + 3])
                    : "r"(at)
                    : "memory");
            }
            __syncwarp();
            release_query();
        }
    }
    __device__ __forceinline__ void release_query()
    {
        if (lane == 0)
            barrier_arrive(s.empty_q);
    }

    __device__ __forceinline__ void issue_scores()
    {
        const uint64_t dk = operand(s.k + k.stage * C::kv_bytes, 16);
        const uint64_t dq = operand(s.q + group * 64 * 128, 16);
#pragma unroll
        for (int i = 0; i < C::d / 16; i++) {
            const uint64_t b = dk + ((i / 4 * C::keys * 128 + i % 4 * 32) >> 4);
            const uint64_t x = dq + ((i / 4 * C::rows * 128 + i % 4 * 32) >> 4);
            if constexpr (C::q_registers) {
                if (i == 0)
                    Width<C::keys>::template rs<T, false, false>(score, query, b);
                else
                    Width<C::keys>::template rs<T, true, false>(score, query + 4 * i, b);
            } else {
                if (i == 0)
                    Width<C::keys>::template ss<T, false, false, false>(score, x, b);
                else
                    Width<C::keys>::template ss<T, true, false, false>(score, x, b);
            }
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void issue_values()
    {
        const uint64_t dv = operand(s.v + v.stage * C::kv_bytes, C::keys * 128);
#pragma unroll
        for (int i = 0; i < C::keys / 16; i++)
            Width<C::d>::template rs<T, true, true>(out, weight + 4 * i,
                                                    dv + (i * 2048 >> 4));
        wgmma_commit();
    }

    __device__ __forceinline__ void release_k()
    {
        if (lane == 0)
            barrier_arrive(s.empty_k + 8 * k.stage);
        k.next();
    }
    __device__ __forceinline__ void release_v()
    {
        if (lane == 0)
            barrier_arrive(s.empty_v + 8 * v.stage);
        v.next();
    }
    __device__ __forceinline__ void take_turn() { named_sync(1 + group, 256); }
    __device__ __forceinline__ void pass_turn()
    {
        named_arrive(1 + (group + 1 == C::groups ? 0 : group + 1), 256);
    }

    /* Scores outside the support of the thread's two rows become -inf. */
    __device__ __forceinline__ void mask(int row, int block)
    {
        int high0 = a.keys - 1, high1 = high0, low0 = 0, low1 = 0;
        if (C::support == support_band) {
            high0 = min(high0, row + a.high), high1 = min(high1, row + 8 + a.high);
            low0 = row + a.low, low1 = row + 8 + a.low;
        }
        const int column = block * C::keys + (lane & 3) * 2;
        high0 -= column, high1 -= column, low0 -= column, low1 -= column;
#pragma unroll
        for (int i = 0; i < C::keys / 2; i++) {
            const int c = i / 4 * 8 + (i & 1), high = i & 2 ? high1 : high0;
            const int low = i & 2 ? low1 : low0;
            if (c > high || (C::support == support_band && c < low))
                score[i] = -INFINITY;
        }
    }

    __device__ __forceinline__ void exponentials()
    {
#pragma unroll
        for (int i = 0; i < C::keys / 8; i++) {
            float *x = score + 4 * i;
            x[0] = exp2_approx(fmaf(x[0], a.scale, base0));
            x[1] = exp2_approx(fmaf(x[1], a.scale, base0));
            x[2] = exp2_approx(fmaf(x[2], a.scale, base1));
            x[3] = exp2_approx(fmaf(x[3], a.scale, base1));
            sum0 += x[0], more0 += x[1], sum1 += x[2], more1 += x[3];
        }
    }

    /* Moves the reference if a row's maximum has risen far, then scores to weights. */
    __device__ __forceinline__ void softmax()
    {
        float x0 = fmaxf(score[0], score[1]), x1 = fmaxf(score[2], score[3]);
        float y0 = fmaxf(score[4], score[5]), y1 = fmaxf(score[6], score[7]);
#pragma unroll
        for (int i = 8; i < C::keys / 2; i += 8) {
            x0 = fmaxf(x0, score[i]), x1 = fmaxf(x1, score[i + 2]);
            y0 = fmaxf(y0, score[i + 4]), y1 = fmaxf(y1, score[i + 6]);
            x0 = fmaxf(x0, score[i + 1]), x1 = fmaxf(x1, score[i + 3]);
            y0 = fmaxf(y0, score[i + 5]), y1 = fmaxf(y1, score[i + 7]);
        }
        x0 = fmaxf(x0, y0), x1 = fmaxf(x1, y1);
        x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1));
        x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1));
        x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2));
        x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
        x0 = fminf(-x0 * a.scale, base0), x1 = fminf(-x1 * a.scale, base1);
        rescale_due = __any_sync(~0u, fmaxf(base0 - x0, base1 - x1) > 8.0f);
        x0 = rescale_due ? x0 : base0, x1 = rescale_due ? x1 : base1;
        shrink0 = exp2_approx(x0 - base0), shrink1 = exp2_approx(x1 - base1);
        base0 = x0, base1 = x1;
        sum0 *= shrink0, more0 *= shrink0, sum1 *= shrink1, more1 *= shrink1;
        exponentials();
    }

    __device__ __forceinline__ void pack_weights()
    {
#pragma unroll
        for (int i = 0; i < C::keys / 4; i++)
            weight[i] = T::pack(score[2 * i], score[2 * i + 1]);
    }

    __device__ __forceinline__ void rescale_output()
    {
        if (rescale_due) {
#pragma unroll
            for (int i = 0; i < C::d / 2; i++)
                out[i] *= i & 2 ? shrink1 : shrink0;
        }
    }

    /* The scores of block j meet the values of the block before it in the unit. */
    __device__ __forceinline__ void step(int row, int j, bool masked, bool last)
    {
        barrier_wait(s.full_k + 8 * k.stage, k.parity);
        take_turn();
        pin(out), pin(weight);
        wgmma_fence();
        issue_scores();
        barrier_wait(s.full_v + 8 * v.stage, v.parity);
        wgmma_fence();
        issue_values();
        pass_turn();
        wgmma_wait<1>();
        pin(score);
        release_k();
        if (!C::q_registers && last)
            release_query();
        if (masked)
            mask(row, j);
        softmax();
        pin(score); /* the exponentials run under the product of values */
        wgmma_wait<0>();
        pin(out), pin(weight);
        release_v();
        pack_weights();
        rescale_output();
    }

    __device__ __forceinline__ void tile_loop(const ForwardTile<C> &tile)
    {
        const int top = tile.row + group * 64; /* first row of the warpgroup */
        const int row = top + warp * 16 + (lane >> 2);
        load_query();
        barrier_wait(s.full_k + 8 * k.stage, k.parity);
        take_turn();
        wgmma_fence();
        issue_scores();
        pass_turn();
#pragma unroll
        for (int i = 0; i < C::d / 2; i++)
            out[i] = 0;
        base0 = base1 = 1e30f;
        sum0 = sum1 = more0 = more1 = 0;
        wgmma_wait<0>();
        pin(score);
        release_k();
        if (!C::q_registers && tile.count == 1)
            release_query();
        int j = tile.first + tile.count - 1;
        const int first = tile.first;
        if (C::support != support_full || (j + 1) * C::keys > a.keys)
            mask(row, j);
        softmax();
        pack_weights();
        j--;
        if constexpr (C::support == support_full) {
            for (; j >= first; j--)
                step(row, j, false, j == first);
        } else if constexpr (C::split) {
            for (; j >= first && (j + 1) * C::keys - 1 > top + a.high; j--)
                step(row, j, true, j == first);
            for (; j >= first && j * C::keys >= top + 63 + a.low; j--)
                step(row, j, false, j == first);
            for (; j >= first; j--)
                step(row, j, true, j == first);
        } else {
            for (; j >= first; j--)
                step(row, j,
                     (j + 1) * C::keys - 1 > top + a.high ||
                         j * C::keys < top + 63 + a.low,
                     j == first);
        }
        barrier_wait(s.full_v + 8 * v.stage, v.parity);
        pin(out), pin(weight);
        wgmma_fence();
        issue_values();
        wgmma_wait<0>();
        pin(out), pin(weight);
        release_v();
        store(tile.head, row);
    }

    /* A row without keys has sum 0: output 0 and log-sum-exp -inf. */
    __device__ __forceinline__ void store(int head_all, int row)
    {
        float l0 = sum0 + more0, l1 = sum1 + more1;
        l0 += __shfl_xor_sync(~0u, l0, 1), l1 += __shfl_xor_sync(~0u, l1, 1);
        l0 += __shfl_xor_sync(~0u, l0, 2), l1 += __shfl_xor_sync(~0u, l1, 2);
        const int batch = head_all / a.heads, head = head_all - batch * a.heads;
        uint16_t *o = a.o + batch * a.o_batch + head * a.o_head + row * a.o_row;
        store_row<T, C::d>(o, out, l0 == 0 ? 0 : 1 / l0, row < a.rows ? a.dv : 0, lane);
        store_row<T, C::d>(o + 8 * a.o_row, out + 2, l1 == 0 ? 0 : 1 / l1,
                           row + 8 < a.rows ? a.dv : 0, lane);
        if (a.lse && (lane & 3) == 0) {
            const float ln2 = 0.6931471805599453f;
            float *lse = a.lse + (int64_t)head_all * a.rows;
            if (row < a.rows)
                lse[row] = l0 == 0 ? -INFINITY : __logf(l0) - base0 * ln2;
            if (row + 8 < a.rows)
                lse[row + 8] = l1 == 0 ? -INFINITY : __logf(l1) - base1 * ln2;
        }
    }

    __device__ __forceinline__ void run(int heads_all)
    {
        if (group == C::groups - 1)
            named_arrive(1, 256); /* the first turn is the first warpgroup's */
        for (;;) {
            int t;
            barrier_wait(s.full_q, q_parity);
            q_parity ^= 1;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(t) : "r"(s.tile) : "memory");
            if (t < 0)
                break;
            ForwardTile<C> tile;
            tile.decode(a, heads_all, t);
            tile_loop(tile);
        }
    }
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap mq,
                   const __grid_constant__ CUtensorMap mk,
                   const __grid_constant__ CUtensorMap mv,
                   const __grid_constant__ ForwardArgs a, int heads_all)
{
    extern __shared__ uint8_t raw[];
    const ForwardShared<C> s(raw);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0)
        s.init();
    __syncthreads();
    if (warpgroup == 0) {
        fewer_registers<C::few>();
        if (threadIdx.x == 0)
            forward_produce<C>(a, heads_all, s, &mq, &mk, &mv);
    } else {
        more_registers<C::many>();
        ForwardConsumer<C> consumer(a, s, warpgroup - 1);
        consumer.run(heads_all);
    }
}

#endif
