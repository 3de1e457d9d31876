/* The consumers of the Hopper backward kernel, and the kernel. */
#ifndef FOCI_CUDA_HOPPER_BACKWARD_CONSUMER_CUH
#define FOCI_CUDA_HOPPER_BACKWARD_CONSUMER_CUH

#include "cuda/hopper_backward.cuh"
#include "cuda/hopper_backward_careful.cuh"

namespace hopper {

/* One warpgroup's 64 keys. A thread holds keys r and r + 8 of its warp's sixteen; in
 * each group of eight queries, two for either key. */
template <class C> struct BackwardConsumer {
    using T = typename C::T;
    static constexpr int     nq = C::queries;
    const BackwardArgs      &a;
    const struct cuda_exact &x;
    const BackwardWork      &w;
    const BackwardShared<C> &s;
    const int                group, warp, lane;
    float dk[C::d / 2], dv[C::d / 2], score[nq / 2], dp[nq / 2], dq[C::dq_columns / 2];
    uint32_t weight[nq / 4], ds[nq / 4];
    uint32_t slanted[C::modified ? nq / 4 : 1]; /* weights times slopes of the cap */
    uint32_t held_k[C::held ? C::d / 4 : 1], held_v[C::held ? C::d / 4 : 1];
    Ring<C::q_stages> q{ 0 },
        q_ahead{ 0 }; /* of dK; of scores, the same or one ahead */
    Ring<C::o_stages> o{ 0 }, o_ahead{ 0 };
    Ring<C::buffers>  sums{ 1 };
    int               reducer = 0, buffer = 0;
    /* Of a dense support: the block of queries whose scores come next, and the query
     * from which on nothing is hidden. */
    int at, open;

    __device__ __forceinline__ BackwardConsumer(const BackwardArgs      &args,
                                                const BackwardWork      &work,
                                                const BackwardShared<C> &shared, int g)
        : a(args), x(args.x), w(work), s(shared), group(g),
          warp((threadIdx.x & 127) >> 5), lane(threadIdx.x & 31)
    {
        at = C::causal ? a.row_tiles - 1 : 0;
        open = C::causal ? first_key() + 63 - (w.nk - w.nq) : 0;
        if (first_key() + 64 > w.nk) open = INT32_MAX;
    }

    /* Of the warpgroup. */
    __device__ __forceinline__ int first_key() const
    {
        return w.block * C::keys + group * 64;
    }

    /* ---- products ---- */

    /* The warpgroup's rows of K or V as operands in registers. */
    __device__ __forceinline__ void hold(uint32_t *to, uint32_t from)
    {
        const int r = group * 64 + warp * 16 + (lane & 15);
#pragma unroll
        for (int i = 0; i < C::d / 16; i++) {
            const int chunk = i % 4 * 2 + (lane >> 4);
            load_matrix(to + 4 * i, from + i / 4 * C::keys * 128 + r * 128 +
                                        ((chunk ^ (r & 7)) << 4));
        }
    }

    /* keys x queries = (rows of K or V) (rows of Q or dO)^T */
    __device__ __forceinline__ void issue_transposed(float (&y)[nq / 2],
                                                     const uint32_t *held,
                                                     uint32_t left, uint32_t right)
    {
        const uint64_t da = operand(left + group * 64 * 128, 16),
                       db = operand(right, 16);
#pragma unroll
        for (int i = 0; i < C::d / 16; i++) {
            const uint64_t at = (i / 4 * C::keys * 128 + i % 4 * 32) >> 4;
            const uint64_t bt = (i / 4 * nq * 128 + i % 4 * 32) >> 4;
            if constexpr (C::held) {
                if (i == 0)
                    Width<nq>::template rs<T, false, false>(y, held, db + bt);
                else
                    Width<nq>::template rs<T, true, false>(y, held + 4 * i, db + bt);
            } else {
                if (i == 0)
                    Width<nq>::template ss<T, false, false, false>(y, da + at, db + bt);
                else
                    Width<nq>::template ss<T, true, false, false>(y, da + at, db + bt);
            }
        }
        wgmma_commit();
    }

    /* dK or dV += (keys x queries in registers) (rows of Q or dO) */
    __device__ __forceinline__ void issue_sum(float (&y)[C::d / 2],
                                              const uint32_t *left, uint32_t right)
    {
        const uint64_t b = operand(right, nq * 128);
#pragma unroll
        for (int i = 0; i < nq / 16; i++)
            Width<C::d>::template rs<T, true, true>(y, left + 4 * i,
                                                    b + (i * 2048 >> 4));
        wgmma_commit();
    }

    /* Half of the columns of dQ, over all keys of the block. */
    __device__ __forceinline__ void issue_dq()
    {
        constexpr int  n = C::dq_columns;
        const uint64_t left = operand(s.ds + buffer * C::s_bytes, C::keys * 128);
        const uint64_t b = operand(
            s.k + (n == 64 ? group * C::keys * 128 : group * n * 2), C::keys * 128);
#pragma unroll
        for (int i = 0; i < C::keys / 16; i++) {
            if (i == 0)
                Width<n>::template ss<T, false, true, true>(dq, left, b);
            else
                Width<n>::template ss<T, true, true, true>(dq, left + (i * 2048 >> 4),
                                                           b + (i * 2048 >> 4));
        }
        wgmma_commit();
    }

    /* ---- what lies between the products ---- */

    /* Which of the block's 64 queries see key j, given its tile's mask. */
    __device__ __forceinline__ uint64_t seen_by(const BackwardStep &step, int j,
                                                int mask)
    {
        if (j >= w.nk || mask == mask_all) return 0;
        int first = max(-step.row, 0);
        if (x.causal) first = max(first, j - (w.nk - w.nq) - step.row);
        uint64_t seen = first >= 64 ? 0 : ~UINT64_C(0) << first;
        seen &= low_bits(w.nq - step.row);
        return mask >= 0 ? seen & x.tiles.by_key[mask][j % 64] : seen;
    }

    /* Scores of hidden pairs become -inf, so that weights and dS are 0. */
    __device__ __forceinline__ void hide_listed(const BackwardStep &step)
    {
        const int mask = step.mask[group], top = first_key();
        if (mask == mask_none && top + 64 <= w.nk && step.row >= 0 &&
            step.row + 64 <= w.nq && !(x.causal && step.row + w.nk - w.nq < top + 63))
            return;
        const int      j = top + warp * 16 + (lane >> 2), shift = (lane & 3) * 2;
        const uint64_t seen0 = seen_by(step, j, mask) >> shift;
        const uint64_t seen1 = seen_by(step, j + 8, mask) >> shift;
#pragma unroll
        for (int i = 0; i < nq / 2; i++)
            if (!((i & 2 ? seen1 : seen0) >> (i / 4 * 8 + (i & 1)) & 1))
                score[i] = -INFINITY;
    }

    /* The same of a dense support, where it is the first queries of a block that a key is
     * hidden from. Queries beyond the last one have norm +inf. */
    __device__ __forceinline__ void hide_dense()
    {
        const int row = at * nq;
        if (C::causal && --at < first_queries<C>(w)) at = a.row_tiles - 1;
        if (row >= open) return;
        const int j = first_key() + warp * 16 + (lane >> 2);
        int       first0 = C::causal ? j - (w.nk - w.nq) - row : 0, first1 = first0 + 8;
        if (j >= w.nk) first0 = nq;
        if (j + 8 >= w.nk || !C::causal) first1 = j + 8 >= w.nk ? nq : 0;
        first0 -= (lane & 3) * 2, first1 -= (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < nq / 2; i++)
            if (i / 4 * 8 + (i & 1) < (i & 2 ? first1 : first0)) score[i] = -INFINITY;
    }

    /* Scores to weights. */
    __device__ __forceinline__ void weigh_plain(uint32_t norms)
    {
        const float scale = x.score.scale;
#pragma unroll
        for (int i = 0; i < nq / 8; i++) {
            const float2 n = load_float2(norms + i * 32);
            float       *y = score + 4 * i;
            y[0] = exp2_approx(fmaf(y[0], scale, -n.x));
            y[1] = exp2_approx(fmaf(y[1], scale, -n.y));
            y[2] = exp2_approx(fmaf(y[2], scale, -n.x));
            y[3] = exp2_approx(fmaf(y[3], scale, -n.y));
            weight[2 * i] = T::pack(y[0], y[1]),
                       weight[2 * i + 1] = T::pack(y[2], y[3]);
        }
    }

    __device__ __forceinline__ void weigh_modified(uint32_t            norms,
                                                   const BackwardStep &step)
    {
        const struct cuda_score &f = x.score;
        const float              by = f.head_scale ? f.head_scale[step.head] : f.scale;
        const float              slope = f.slope ? f.slope[step.head] : 0, cap = f.cap;
        const float              inverse = cap > 0 ? 1 / cap : 0;
        const float              at =
            (float)(step.row + w.nk - w.nq + (lane & 3) * 2 -
                    (w.block * C::keys + group * 64 + warp * 16 + (lane >> 2)));
#pragma unroll
        for (int i = 0; i < nq / 8; i++) {
            const float2 n = load_float2(norms + i * 32);
            float        p[4], slope_of[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float y = score[4 * i + e];
                const float far = at + (float)(i * 8 + (e & 1) - (e & 2) * 4);
                float       logit = y * by - slope * fabsf(far);
                slope_of[e] = 1;
                if (cap > 0) {
                    const float level = tanh_by_exp2(logit * inverse);
                    slope_of[e] = 1 - level * level;
                    logit = cap * f.unit * level;
                }
                p[e] = y == -INFINITY ? 0 : exp2_approx(logit - (e & 1 ? n.y : n.x));
                slope_of[e] *= p[e];
            }
            weight[2 * i] = T::pack(p[0], p[1]),
                       weight[2 * i + 1] = T::pack(p[2], p[3]);
            slanted[2 * i] = T::pack(slope_of[0], slope_of[1]);
            slanted[2 * i + 1] = T::pack(slope_of[2], slope_of[3]);
        }
    }

    __device__ __forceinline__ void form_ds()
    {
        const uint32_t deltas = s.delta + o.stage * nq * 4 + (lane & 3) * 8;
#pragma unroll
        for (int i = 0; i < nq / 8; i++) {
            const float2 d = load_float2(deltas + i * 32);
            const float *z = dp + 4 * i;
            float2       y0 = make_float2(score[4 * i], score[4 * i + 1]);
            float2       y1 = make_float2(score[4 * i + 2], score[4 * i + 3]);
            if constexpr (C::listed || C::ahead) { /* fewer registers */
                const uint32_t *from = C::modified ? slanted : weight;
                y0 = T::unpack(from[2 * i]), y1 = T::unpack(from[2 * i + 1]);
            }
            ds[2 * i] = T::pack(y0.x * (z[0] - d.x), y0.y * (z[1] - d.y));
            ds[2 * i + 1] = T::pack(y1.x * (z[2] - d.x), y1.y * (z[3] - d.y));
        }
    }

    /* dS to shared memory, keys x queries, with the swizzle. */
    __device__ __forceinline__ void put_ds()
    {
        const int      row = group * 64 + warp * 16 + (lane & 15);
        const uint32_t to = s.ds + buffer * C::s_bytes + row * 128;
#pragma unroll
        for (int c = 0; c < nq / 8; c += 2)
            store_matrix(to + (((c + (lane >> 4)) ^ (row & 7)) << 4), ds + 2 * c);
        fence_async_proxy();
    }

    /* Tells the next of the threads that add dQ what lies in shared memory for it. */
    __device__ __forceinline__ void tell_dq(int dq_tile, int turn)
    {
        if (warp == 0 && lane == 0) {
            volatile BackwardSum *sum = s.sums + 2 * reducer + group;
            sum->dq_tile = dq_tile, sum->turn = turn;
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(s.full_dq + 16 * reducer + 8 * group);
        reducer = reducer + 1 == C::reducers ? 0 : reducer + 1;
    }
    __device__ __forceinline__ void wait_dq()
    {
        barrier_wait(s.empty_dq + 16 * sums.stage + 8 * group, sums.parity);
    }
    __device__ __forceinline__ void add_dq(const BackwardStep &step)
    {
        wait_dq();
        const uint32_t to =
            s.dq + (2 * sums.stage + group) * C::dq_bytes + (warp * 32 + lane) * 16;
#pragma unroll
        for (int i = 0; i < C::dq_columns / 8; i++)
            store_floats(to + i * 2048, dq + 4 * i);
        fence_async_proxy();
        sums.next();
        tell_dq(step.dq_tile, step.turn);
    }
    /* When all has been read they are told that there is no more. */
    __device__ __forceinline__ void end_dq()
    {
        for (int i = 0; i < C::buffers; i++)
            wait_dq(), sums.next();
        for (int i = 0; i < C::reducers; i++)
            tell_dq(-1, 0);
    }

    /* ---- rows that are not the sequence's ---- */

    /* Rows from .. to of a tile of `rows` rows become zeros, for this warpgroup. */
    __device__ __forceinline__ void clear(uint32_t at, int rows, int from, int to)
    {
        for (int i = from * 8 + (threadIdx.x & 127); i < to * 8; i += 128)
#pragma unroll
            for (int p = 0; p < C::panels; p++)
                store_zeros(at + p * rows * 128 + i * 16);
    }
    __device__ __forceinline__ void end_clear()
    {
        fence_async_proxy();
        named_sync(2 + group, 128);
    }
    __device__ __forceinline__ void clear_keys()
    {
        const int from = w.nk - w.block * C::keys;
        if (!C::listed || from >= C::keys) return;
        clear(s.k, C::keys, from, C::keys), clear(s.v, C::keys, from, C::keys);
        end_clear();
    }
    __device__ __forceinline__ void clear_queries(const BackwardStep &step, uint32_t at)
    {
        if (!C::listed || (step.row >= 0 && step.row + nq <= w.nq)) return;
        if (step.row < 0) clear(at, nq, 0, -step.row);
        if (step.row + nq > w.nq) clear(at, nq, max(w.nq - step.row, 0), nq);
        end_clear();
    }

    /* ---- steps ---- */

    /* What the producer says of a step, until its Q is released. */
    __device__ __forceinline__ const BackwardStep &now() const
    {
        return s.steps[q.stage];
    }

    __device__ __forceinline__ void begin_scores()
    {
        const uint32_t rows = s.q + q_ahead.stage * C::q_bytes;
        barrier_wait(s.full_q + 8 * q_ahead.stage, q_ahead.parity);
        clear_queries(s.steps[q_ahead.stage], rows);
        wgmma_fence();
        issue_transposed(score, held_k, s.k, rows);
    }
    __device__ __forceinline__ void begin_dp()
    {
        const uint32_t rows = s.o + o_ahead.stage * C::q_bytes;
        barrier_wait(s.full_o + 8 * o_ahead.stage, o_ahead.parity);
        clear_queries(s.steps[q_ahead.stage], rows);
        wgmma_fence();
        issue_transposed(dp, held_v, s.v, rows);
    }
    __device__ __forceinline__ void weigh()
    {
        const BackwardStep &step = s.steps[q_ahead.stage];
        const uint32_t      norms = s.norm + q_ahead.stage * nq * 4 + (lane & 3) * 8;
        if constexpr (C::listed)
            hide_listed(step);
        else
            hide_dense();
        if constexpr (C::modified)
            weigh_modified(norms, step);
        else
            weigh_plain(norms);
    }
    /* Lane 0 speaks for the warp. */
    __device__ __forceinline__ void release_o()
    {
        __syncwarp();
        if (lane == 0) barrier_arrive(s.empty_o + 8 * o.stage);
        o.next();
    }
    __device__ __forceinline__ void release_q()
    {
        __syncwarp();
        if (lane == 0) barrier_arrive(s.empty_q + 8 * q.stage);
        q.next();
    }

    /* Scores and dP of a step are there; those of the step after it are begun. */
    template <bool more> __device__ __forceinline__ void take()
    {
        weigh();
        form_ds();
        pin(dv), pin(weight);
        wgmma_fence();
        issue_sum(dv, weight, s.o + o.stage * C::q_bytes);
        put_ds();
        named_sync(1, 256);
        pin(dk), pin(ds);
        wgmma_fence();
        issue_dq();
        issue_sum(dk, ds, s.q + q.stage * C::q_bytes);
        wgmma_wait<1>();
        pin(dv), pin(dq), pin(weight);
        release_o();
        add_dq(now());
        q_ahead.next(), o_ahead.next();
        if (more) begin_scores(), begin_dp();
        wgmma_wait<0>();
        pin(dk), pin(ds);
        if (more) pin(score), pin(dp);
        release_q();
        buffer ^= 1;
    }

    /* The same where weights and dP are there: the matrix unit has dV and the next
     * scores to do while dS is formed, dK and the next dP while the next weights are. */
    template <bool more> __device__ __forceinline__ void take_ahead()
    {
        pin(dv), pin(weight);
        wgmma_fence();
        issue_sum(dv, weight, s.o + o.stage * C::q_bytes);
        q_ahead.next(), o_ahead.next();
        if (more) begin_scores();
        form_ds();
        put_ds();
        named_sync(1, 256);
        pin(dk), pin(ds);
        wgmma_fence();
        issue_dq();
        issue_sum(dk, ds, s.q + q.stage * C::q_bytes);
        wgmma_wait<1>();
        pin(dv), pin(dq), pin(weight);
        if (more) pin(score);
        release_o();
        add_dq(now());
        if (more) {
            begin_dp();
            weigh();
            pin(weight);
        }
        wgmma_wait<0>();
        pin(dk), pin(ds);
        if (more) pin(dp);
        release_q();
        buffer ^= 1;
    }

    template <bool more> __device__ __forceinline__ void step()
    {
        if constexpr (C::ahead)
            take_ahead<more>();
        else
            take<more>();
    }
    __device__ __forceinline__ void all_steps()
    {
        begin_scores(), begin_dp();
        wgmma_wait<0>();
        pin(score), pin(dp);
        if constexpr (C::ahead) weigh();
        while (!now().last)
            step<true>();
        step<false>();
        end_dq();
    }

    __device__ __forceinline__ void store()
    {
        const int     j = first_key() + warp * 16 + (lane >> 2);
        const bool    in0 = j < w.nk, in1 = j + 8 < w.nk;
        const int64_t row = (int64_t)w.k0 + j;
        const int     share = x.heads / x.kv_heads;
        const float   by = natural_scale(x, w.head * share);
        const int64_t at_k = w.batch * x.dk.seq + w.head * x.dk.head + row * x.dk.row;
        uint16_t     *v = (uint16_t *)x.dv_out.at + w.batch * x.dv_out.seq +
                      w.head * x.dv_out.head + row * x.dv_out.row;
        if (x.dk_f32) {
            float *k = (float *)x.dk.at + at_k;
            store_row_f32<C::d>(k, dk, by, in0 ? x.d : 0, lane);
            store_row_f32<C::d>(k + 8 * x.dk.row, dk + 2, by, in1 ? x.d : 0, lane);
        } else {
            uint16_t *k = (uint16_t *)x.dk.at + at_k;
            store_row<T, C::d>(k, dk, by, in0 ? x.d : 0, lane);
            store_row<T, C::d>(k + 8 * x.dk.row, dk + 2, by, in1 ? x.d : 0, lane);
        }
        store_row<T, C::d>(v, dv, 1, in0 ? x.dv : 0, lane);
        store_row<T, C::d>(v + 8 * x.dv_out.row, dv + 2, 1, in1 ? x.dv : 0, lane);
    }

    /* Where numbers that are not finite may have met hidden pairs, the warp does its
     * keys again, pair by pair. */
    __device__ __forceinline__ void store_again()
    {
        if (!C::causal && !C::listed) return;
        float y = 0;
#pragma unroll
        for (int i = 0; i < C::d / 2; i++)
            y += dk[i] * 0 + dv[i] * 0;
        if (!__any_sync(~0u, y != 0)) return;
        __syncwarp();
        const CarefulSeq seq = { w.batch, w.nq, w.nk, w.q0, w.k0 };
#pragma unroll 1
        for (int r = 0; r < 16; r++)
            careful_key<T>(x, seq, w.head, first_key() + warp * 16 + r, lane);
    }

    __device__ __forceinline__ void run()
    {
#pragma unroll
        for (int i = 0; i < C::d / 2; i++)
            dk[i] = dv[i] = 0;
        barrier_wait(s.full_kv, 0);
        if (!*s.none) {
            clear_keys();
            if constexpr (C::held) hold(held_k, s.k), hold(held_v, s.v);
            all_steps();
        }
        store();
        store_again();
    }
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap  mq,
                    const __grid_constant__ CUtensorMap  mk,
                    const __grid_constant__ CUtensorMap  mv,
                    const __grid_constant__ CUtensorMap  mo,
                    const __grid_constant__ BackwardArgs a)
{
    extern __shared__ uint8_t raw[];
    const BackwardShared<C>   s(raw);
    const int                 warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) {
        *s.work = BackwardWork(a);
        s.init();
    }
    __syncthreads();
    const BackwardWork &w = *s.work;
    if (w.block < 0) return;
    if (warpgroup == 0) {
        fewer_registers<C::few>();
        const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
        if (warp == 0) {
            BackwardProducer<C> producer(a, w, s, &mq, &mo);
            if constexpr (C::listed)
                producer.run_listed(&mk, &mv);
            else
                producer.run_dense(&mk, &mv);
        } else if (warp <= C::reducers && (threadIdx.x & 31) == 0) {
            backward_reduce<C>(a, s, warp - 1);
        }
    } else {
        more_registers<C::many>();
        BackwardConsumer<C> consumer(a, w, s, warpgroup - 1);
        consumer.run();
    }
}

} // namespace hopper
#endif
