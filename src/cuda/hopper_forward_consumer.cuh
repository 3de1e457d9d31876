/* The consumers of the Hopper forward kernel, and the kernel. */
#ifndef FOCI_CUDA_HOPPER_FORWARD_CONSUMER_CUH
#define FOCI_CUDA_HOPPER_FORWARD_CONSUMER_CUH

#include "cuda/hopper_forward_producer.cuh"

namespace hopper {

/* A block of a listed support as one warpgroup sees it. */
struct ConsumerBlock {
    int tile0, tile1, mask0, mask1, last;
};

/* One warpgroup's 64 rows. A thread holds rows r and r + 8 of its warp's sixteen; in
 * each group of eight columns, two of either row. */
template <class C> struct ForwardConsumer {
    using T = typename C::T;
    const ForwardArgs      &a;
    const ForwardShared<C> &s;
    const int               group, warp, lane;
    Ring<C::stages>         k{ 0 }, v{ 0 };
    uint32_t                q_parity = 0;
    float                   out[C::d / 2], score[C::keys / 2];
    uint32_t                weight[C::keys / 4], query[C::q_registers ? C::d / 4 : 1];
    float                   scale;        /* of scores, in base 2 */
    float                   base0, base1; /* weight = 2^(score * scale + base) */
    float                   sum0, sum1, more0, more1; /* of even and odd columns */
    float                   shrink0, shrink1;
    bool                    rescale_due;
    const ForwardTile      *tile;
    int                     row;  /* query of the thread's first row */
    int                     pos0; /* position of query 0 */

    __device__ __forceinline__ ForwardConsumer(const ForwardArgs      &args,
                                               const ForwardShared<C> &shared, int g)
        : a(args), s(shared), group(g), warp((threadIdx.x & 127) >> 5),
          lane(threadIdx.x & 31)
    {
    }

    __device__ __forceinline__ void arrive(uint32_t bar)
    {
        if (lane == 0) barrier_arrive(bar);
    }
    __device__ __forceinline__ void load_query()
    {
        if constexpr (C::q_registers) {
            const int r = warp * 16 + (lane & 15);
#pragma unroll
            for (int i = 0; i < C::d / 16; i++) {
                const int      chunk = i % 4 * 2 + (lane >> 4);
                const uint32_t at = s.q + i / 4 * C::rows * 128 +
                                    (group * 64 + r) * 128 + ((chunk ^ (r & 7)) << 4);
                load_matrix(query + 4 * i, at);
            }
            __syncwarp();
            arrive(s.empty_q);
        }
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
    __device__ __forceinline__ void wait_k()
    {
        barrier_wait(s.full_k + 8 * k.stage, k.parity);
    }
    __device__ __forceinline__ void wait_v()
    {
        barrier_wait(s.full_v + 8 * v.stage, v.parity);
    }
    __device__ __forceinline__ void release_k()
    {
        if (C::listed) __syncwarp(); /* all lanes have read what the block is */
        arrive(s.empty_k + 8 * k.stage);
        k.next();
    }
    __device__ __forceinline__ void release_v()
    {
        arrive(s.empty_v + 8 * v.stage);
        v.next();
    }
    __device__ __forceinline__ void take_turn() { named_sync(1 + group, 256); }
    __device__ __forceinline__ void pass_turn()
    {
        named_arrive(1 + (group + 1 == C::groups ? 0 : group + 1), 256);
    }

    /* Scores of keys that the thread's two rows do not see become -inf. */
    __device__ __forceinline__ void mask_dense(int block)
    {
        int high0 = tile->nk - 1, high1 = high0;
        if (C::support == support_causal) {
            const int pos = row + pos0;
            high0 = min(high0, pos), high1 = min(high1, pos + 8);
        }
        const int column = block * C::keys + (lane & 3) * 2;
        high0 -= column, high1 -= column;
#pragma unroll
        for (int i = 0; i < C::keys / 2; i++)
            if (i / 4 * 8 + (i & 1) > (i & 2 ? high1 : high0)) score[i] = -INFINITY;
    }

    /* Of one tile of 64 keys of a listed block. */
    __device__ __forceinline__ void mask_tile(float *x, int t, int mask)
    {
        const int pos = row + pos0, key = t * 64;
        const int top = tile->row + group * 64 + pos0; /* of the rows */
        if (mask == mask_none && key + 64 <= tile->nk && !(a.x.causal && key + 63 > top))
            return;
        uint64_t seen0 = 0, seen1 = 0;
        if (mask != mask_all) {
            const int end = tile->nk - key;
            seen0 = low_bits(a.x.causal ? min(end, pos + 1 - key) : end);
            seen1 = low_bits(a.x.causal ? min(end, pos + 9 - key) : end);
        }
        if (mask >= 0) {
            seen0 &= a.x.tiles.by_query[mask][pos - top];
            seen1 &= a.x.tiles.by_query[mask][pos + 8 - top];
        }
        seen0 >>= (lane & 3) * 2, seen1 >>= (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (!((i & 2 ? seen1 : seen0) >> (i / 4 * 8 + (i & 1)) & 1))
                x[i] = -INFINITY;
    }

    /* From products to logits in base 2. */
    __device__ __forceinline__ void modify(float *x, int t)
    {
        const struct cuda_score &f = a.x.score;
        const float              by = f.head_scale ? f.head_scale[tile->head] : f.scale;
        const float              slope = f.slope ? f.slope[tile->head] : 0;
        const float              cap = f.cap, inverse = cap > 0 ? 1 / cap : 0;
        const float              at = (float)(row + pos0 - t * 64 - (lane & 3) * 2);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float far = at + (float)((i & 2) * 4 - i / 4 * 8 - (i & 1));
            x[i] = x[i] * by - slope * fabsf(far);
        }
        if (cap > 0) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                x[i] = cap * f.unit * tanh_by_exp2(x[i] * inverse);
        }
    }

    __device__ __forceinline__ void exponentials()
    {
#pragma unroll
        for (int i = 0; i < C::keys / 8; i++) {
            float *x = score + 4 * i;
            x[0] = exp2_approx(fmaf(x[0], scale, base0));
            x[1] = exp2_approx(fmaf(x[1], scale, base0));
            x[2] = exp2_approx(fmaf(x[2], scale, base1));
            x[3] = exp2_approx(fmaf(x[3], scale, base1));
            sum0 += x[0], more0 += x[1], sum1 += x[2], more1 += x[3];
        }
    }
    __device__ __forceinline__ void shrink_sums()
    {
        sum0 *= shrink0, more0 *= shrink0, sum1 *= shrink1, more1 *= shrink1;
    }

    /* Moves the reference of a row whose maximum has risen far. What one row does is none
     * of the others' business: bits must not change with keys that a row does not see. */
    __device__ __forceinline__ void move_reference()
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
        x0 = quad_max(fmaxf(x0, y0)), x1 = quad_max(fmaxf(x1, y1));
        x0 = fminf(-x0 * scale, base0), x1 = fminf(-x1 * scale, base1);
        const bool far0 = base0 - x0 > 8, far1 = base1 - x1 > 8;
        rescale_due = __any_sync(~0u, far0 || far1);
        x0 = far0 ? x0 : base0, x1 = far1 ? x1 : base1;
        shrink0 = exp2_approx(x0 - base0), shrink1 = exp2_approx(x1 - base1);
        base0 = x0, base1 = x1;
        shrink_sums();
    }

    /* The same from the sums so far, before the scores are there. Sums are brought back
     * to 1 .. 2. */
    __device__ __forceinline__ void move_reference_by_sums()
    {
        const float most = 65536;
        rescale_due = __any_sync(~0u, fmaxf(sum0 + more0, sum1 + more1) > most);
        if (rescale_due) {
            const float x0 = quad_max(sum0 + more0), x1 = quad_max(sum1 + more1);
            const float e0 = x0 > most ? (float)((__float_as_int(x0) >> 23) - 127) : 0;
            const float e1 = x1 > most ? (float)((__float_as_int(x1) >> 23) - 127) : 0;
            shrink0 = exp2_approx(-e0), shrink1 = exp2_approx(-e1);
            base0 -= e0, base1 -= e1;
            shrink_sums();
        }
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

    /* Scores that are complete to weights in f32; `masked`: some may be hidden. */
    __device__ __forceinline__ void weigh(int block, bool masked, const ConsumerBlock &b)
    {
        if constexpr (C::listed) {
#pragma unroll
            for (int i = 0; i < C::key_tiles; i++) {
                if (C::modified) modify(score + 32 * i, i ? b.tile1 : b.tile0);
                mask_tile(score + 32 * i, i ? b.tile1 : b.tile0, i ? b.mask1 : b.mask0);
            }
        } else if (masked) {
            mask_dense(block);
        }
        move_reference();
        exponentials();
    }

    /* What the block in the ring is; waits for its keys. */
    __device__ __forceinline__ void look(ConsumerBlock &b)
    {
        wait_k();
        if constexpr (C::listed) {
            const ForwardBlock *from = s.blocks + k.stage;
            b.tile0 = from->tile[0], b.tile1 = from->tile[1], b.last = from->last;
            b.mask0 = from->mask[group][0], b.mask1 = from->mask[group][1];
        }
    }

    /* The scores of this block, then the values of the one before it. */
    template <bool quick>
    __device__ __forceinline__ void step(int block, bool masked, ConsumerBlock &b,
                                         bool last)
    {
        look(b);
        take_turn();
        pin(out), pin(weight);
        wgmma_fence();
        issue_scores();
        wait_v();
        wgmma_fence();
        issue_values();
        pass_turn();
        if (quick) move_reference_by_sums();
        wgmma_wait<1>();
        pin(score);
        release_k();
        if (!C::q_registers && (C::listed ? b.last : last)) arrive(s.empty_q);
        if (quick)
            exponentials();
        else
            weigh(block, masked, b);
        pin(score); /* the exponentials run under the product of values */
        wgmma_wait<0>();
        pin(out), pin(weight);
        release_v();
        pack_weights();
        rescale_output();
    }

    __device__ __forceinline__ void first_block(ConsumerBlock &b)
    {
        look(b);
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
        if (!C::q_registers && (C::listed ? b.last : tile->last == tile->first))
            arrive(s.empty_q);
        weigh(tile->last,
              C::support != support_full || (tile->last + 1) * C::keys > tile->nk, b);
        pack_weights();
    }

    __device__ __forceinline__ void other_blocks(ConsumerBlock &b)
    {
        if constexpr (C::listed) {
            while (!b.last)
                step<false>(0, true, b, false);
        } else {
            const int first = tile->first;
            int       j = tile->last - 1;
            if (C::support == support_causal) {
                const int top = tile->row + group * 64 + pos0;
                for (; j >= first && (j + 1) * C::keys > top; j--)
                    step<false>(j, true, b, j == first);
            }
            if (C::quick && !tile->safe) {
                for (; j >= first; j--)
                    step<true>(j, false, b, j == first);
            } else {
                for (; j >= first; j--)
                    step<false>(j, false, b, j == first);
            }
        }
    }

    /* Values beyond the end of a sequence are another's, or nothing's: weights of 0
     * must not meet them. Only the last block of a tile can have such rows. */
    __device__ __forceinline__ void clear_dead_values(const ConsumerBlock &b)
    {
        const int tile0 = C::key_tiles == 2 && b.tile1 >= 0 ? b.tile1 : b.tile0;
        const int half = C::key_tiles == 2 && b.tile1 >= 0 ? 64 : 0;
        const int from = max(tile->nk - tile0 * 64, 0);
        if (tile0 < 0 || from >= 64) return;
        const uint32_t at = s.v + v.stage * C::kv_bytes + half * 128;
        for (int i = from * 8 + (threadIdx.x & 127); i < 64 * 8; i += 128)
#pragma unroll
            for (int p = 0; p < C::panels; p++)
                store_zeros(at + p * C::keys * 128 + i * 16);
        fence_async_proxy();
        named_sync(1 + C::groups + group, 128);
    }

    __device__ __forceinline__ void last_values(const ConsumerBlock &b)
    {
        wait_v();
        if (C::listed) clear_dead_values(b);
        pin(out), pin(weight);
        wgmma_fence();
        issue_values();
        wgmma_wait<0>();
        pin(out), pin(weight);
        release_v();
    }

    /* 0 times a value that is not finite is NaN: where hidden pairs and such values may
     * have met, the warp does its rows again, pair by pair. */
    __device__ __forceinline__ bool suspicious() const
    {
        if (C::support == support_full) return false;
        float x = 0;
#pragma unroll
        for (int i = 0; i < C::d / 2; i++)
            x += out[i] * 0;
        return __any_sync(~0u, x != 0);
    }

    /* Divides by the sum and stores: a row without keys has output 0, log-sum-exp -inf
     * and norm +inf. */
    __device__ __forceinline__ void finish()
    {
        const struct cuda_exact &x = a.x;
        float l0 = quad_sum(sum0 + more0), l1 = quad_sum(sum1 + more1);
        bool  redo = false;
        if (C::quick) {
            redo = __any_sync(~0u, !tile->safe && !(l0 < 1e30f && l1 < 1e30f));
            if (redo && lane == 0) *(volatile int *)s.redo = 1;
            arrive(s.done);
        }
        const bool in0 = row >= 0 && row < tile->nq,
                   in1 = row >= -8 && row + 8 < tile->nq;
        float by0 = l0 == 0 ? 0 : 1 / l0, by1 = l1 == 0 ? 0 : 1 / l1;
        float norm0 = log2f(l0) - base0, norm1 = log2f(l1) - base1;
        if (l0 == 0) norm0 = -INFINITY;
        if (l1 == 0) norm1 = -INFINITY;
        const bool none0 = l0 == 0, none1 = l1 == 0;
        if (x.score.sink) {
            const float sink = x.score.sink[tile->head] * 1.44269504088896341f;
            by0 *= add_sink(norm0, sink), by1 *= add_sink(norm1, sink);
        }
        const bool again = !redo && suspicious();
        uint16_t  *o = (uint16_t *)x.o.at + tile->batch * x.o.seq +
                      tile->head * x.o.head + ((int64_t)tile->q0 + row) * x.o.row;
        store_row<T, C::d>(o, out, by0, in0 ? x.dv : 0, lane);
        store_row<T, C::d>(o + 8 * x.o.row, out + 2, by1, in1 ? x.dv : 0, lane);
        if ((lane & 3) == 0) {
            if (x.norm) {
                float *to = x.norm +
                            ((int64_t)tile->head * x.batch + tile->batch) * x.len_q +
                            tile->q0 + row;
                if (in0) to[0] = none0 ? INFINITY : norm0;
                if (in1) to[8] = none1 ? INFINITY : norm1;
            }
            if (x.lse) {
                const float ln2 = 0.6931471805599453f;
                float *to = x.lse + tile->batch * x.lse_seq + tile->head * x.lse_head +
                            tile->q0 + row;
                if (in0) to[0] = norm0 * ln2;
                if (in1) to[8] = norm1 * ln2;
            }
        }
        if (again) {
#pragma unroll 1
            for (int r = 0; r < 16; r++)
                careful_row<T>(x, *tile, tile->row + group * 64 + warp * 16 + r, lane);
        }
    }

    __device__ __forceinline__ void run()
    {
        if (group == C::groups - 1)
            named_arrive(1, 256); /* the first turn is the first warpgroup's */
        scale = C::modified ? 1 : a.x.score.scale;
        for (;;) {
            barrier_wait(s.full_q, q_parity);
            tile = s.tile + q_parity;
            q_parity ^= 1;
            if (tile->number < 0) break;
            pos0 = tile->nk - tile->nq;
            row = tile->row + group * 64 + warp * 16 + (lane >> 2);
            load_query();
            ConsumerBlock b;
            first_block(b);
            other_blocks(b);
            last_values(b);
            finish();
        }
    }
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    forward_kernel(const __grid_constant__ CUtensorMap mq,
                   const __grid_constant__ CUtensorMap mk,
                   const __grid_constant__ CUtensorMap mv,
                   const __grid_constant__ ForwardArgs a)
{
    extern __shared__ uint8_t raw[];
    const ForwardShared<C>    s(raw);
    const int                 warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) s.init();
    __syncthreads();
    if (warpgroup == 0) {
        fewer_registers<C::few>();
        if (threadIdx.x < 32) {
            prefetch_map(&mq), prefetch_map(&mk), prefetch_map(&mv);
            ForwardProducer<C> producer(a, s, &mq, &mk, &mv);
            producer.run();
        }
    } else {
        more_registers<C::many>();
        ForwardConsumer<C> consumer(a, s, warpgroup - 1);
        consumer.run();
    }
}

} // namespace hopper
#endif
