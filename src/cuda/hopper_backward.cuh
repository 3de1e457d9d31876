/* Exact attention backward on Hopper.
 *
 * A block owns 128 keys, 64 for each of two consumer warpgroups, and visits blocks of
 * queries; dK and dV stay in registers. Scores and weights are kept transposed (keys x
 * queries), so that weights are register operands of dV; dS goes through shared memory,
 * as operand of dK and, across the warpgroups, of dQ. A warp of the producer adds dQ in
 * f32 to memory by bulk reductions.
 *
 * In one step the matrix unit has dV and the next scores to do while dS is formed, and
 * dK and the next dP while the next weights are. */
#ifndef FOCI_CUDA_HOPPER_BACKWARD_CUH
#define FOCI_CUDA_HOPPER_BACKWARD_CUH

#include "cuda/hopper_tile.cuh"

namespace hopper {

struct BackwardArgs {
    uint16_t *dk, *dv;
    int64_t dk_row, dk_head, dk_batch, dv_row, dv_head, dv_batch;
    const float *norm, *delta; /* heads x batch x rows: log2 of the divisor; sum a da */
    float *dq;                 /* heads x batch x tiles of 64 x d, in the order of threads */
    int *turns;                /* of tiles of dq: additions made; null: any order */
    int rows, keys, heads, share, d_out, dv_out, batch;
    int row_tiles, key_tiles, heads_at_once, chunk;
    int offset; /* causal: key <= row + offset */
    float scale, scale_natural;
};

/* How a step is ordered, and where its dS comes from as operand of dK. */
enum Pace { pace_ahead_shared, pace_ahead_registers, pace_plain };

/* Which of the block's own rows are operands in registers. */
enum Held { held_none, held_k, held_kv };

template <class T_, int d_, int queries_, bool causal_, bool ordered_, Pace pace_,
          bool direct_, Held held_>
struct BackwardShape {
    static constexpr Held held = held_;
    static constexpr Pace pace = pace_;
    static constexpr bool direct = direct_; /* dQ is added from registers */
    using T = T_;
    static constexpr int d = d_, queries = queries_, keys = 128, threads = 384;
    static constexpr bool causal = causal_, ordered = ordered_;
    static constexpr int panels = (d + 63) / 64, q_panels = queries / 64;
    static constexpr int q_stages = 3, o_stages = 2, s_stages = 2;
    static constexpr int k_bytes = keys * panels * 128, q_bytes = queries * panels * 128;
    static constexpr int s_bytes = keys * queries * 2;
    static constexpr int dq_columns = queries == 64 ? d / 2 : d; /* of one warpgroup */
    static constexpr int dq_bytes = 64 * dq_columns * 4;
    static constexpr int at_v = k_bytes, at_q = at_v + k_bytes,
                         at_o = at_q + q_stages * q_bytes,
                         at_s = at_o + o_stages * q_bytes,
                         at_dq = at_s + s_stages * s_bytes,
                         at_norm = at_dq + (direct ? 0 : 2 * dq_bytes),
                         at_delta = at_norm + q_stages * queries * 4,
                         at_barriers = at_delta + o_stages * queries * 4;
    static constexpr int shared_bytes = at_barriers + 256 + 1024;
    static_assert(shared_bytes <= 232448, "shared memory");
};

template <class C> struct BackwardShared {
    uint32_t k, v, q, o, ds, dq, norm, delta;
    uint32_t full_kv, full_q, empty_q, full_o, empty_o, full_dq, empty_dq;
    __device__ __forceinline__ explicit BackwardShared(const void *raw)
    {
        k = (shared_address(raw) + 1023) & ~1023u;
        v = k + C::at_v, q = k + C::at_q, o = k + C::at_o, ds = k + C::at_s;
        dq = k + C::at_dq, norm = k + C::at_norm, delta = k + C::at_delta;
        full_kv = k + C::at_barriers, full_q = full_kv + 8;
        empty_q = full_q + 8 * C::q_stages, full_o = empty_q + 8 * C::q_stages;
        empty_o = full_o + 8 * C::o_stages, full_dq = empty_o + 8 * C::o_stages;
        empty_dq = full_dq + 16;
    }
    __device__ __forceinline__ void init() const
    {
        barrier_init(full_kv, 1);
        for (int i = 0; i < C::q_stages; i++)
            barrier_init(full_q + 8 * i, 1), barrier_init(empty_q + 8 * i, 8);
        for (int i = 0; i < C::o_stages; i++)
            barrier_init(full_o + 8 * i, 1), barrier_init(empty_o + 8 * i, 8);
        for (int i = 0; i < 2; i++)
            barrier_init(full_dq + 8 * i, 4), barrier_init(empty_dq + 8 * i, 1);
        barrier_init_fence();
    }
};

/* A block of keys of one key head and the blocks of queries it visits: `steps` of each
 * of the heads that share it, from `start` on and around. */
template <class C> struct BackwardWork {
    int head, batch, block, first, start, steps; /* head: of keys */
    __device__ __forceinline__ explicit BackwardWork(const BackwardArgs &a)
    {
        const int kv_heads = a.heads / a.share, all = kv_heads * a.batch;
        const int span = a.heads_at_once * a.key_tiles, wave = blockIdx.x / span;
        const int r = blockIdx.x - wave * span, at = wave * a.heads_at_once;
        const int now = min(a.heads_at_once, all - at);
        block = r / now;
        if (C::causal && C::ordered)
            block = a.key_tiles - 1 - block;
        const int h = at + r % now;
        batch = h / kv_heads, head = h - batch * kv_heads;
        first = start = 0;
        if (C::causal) {
            first = min(max(block * C::keys - a.offset, 0) / C::queries, a.row_tiles);
        } else if (C::ordered) {
            const int c0 = block / a.chunk * a.chunk, n = min(a.chunk, a.key_tiles - c0);
            start = (int)((int64_t)(block - c0) * a.row_tiles / n);
        }
        steps = a.row_tiles - first;
    }
    /* The block of queries of step t. */
    __device__ __forceinline__ int queries(const BackwardArgs &a, int t) const
    {
        const int m = first + start + t;
        return m < a.row_tiles ? m : m - a.row_tiles;
    }
    /* How many blocks of keys add to block m of dQ before this one. */
    __device__ __forceinline__ int turn(const BackwardArgs &a, int m) const
    {
        if (C::causal) {
            const int last = (m * C::queries + C::queries - 1 + a.offset) / C::keys;
            return min(last, a.key_tiles - 1) - block;
        }
        const int c0 = block / a.chunk * a.chunk, n = min(a.chunk, a.key_tiles - c0);
        const int at = min(n - 1, (int)(((int64_t)(m + 1) * n - 1) / a.row_tiles));
        const int r = at - (block - c0);
        return c0 + (r < 0 ? r + n : r);
    }
};

/* Loads Q with the norms of its rows, and dO with their deltas. */
template <class C>
__device__ __forceinline__ void
backward_produce(const BackwardArgs &a, const BackwardWork<C> &w, const BackwardShared<C> &s,
                 const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                 const CUtensorMap *mo)
{
    const int lane = threadIdx.x;
    if (lane == 0) {
        barrier_expect(s.full_kv, 2 * C::k_bytes);
        for (int p = 0; p < C::panels; p++) {
            load_box(s.k + p * C::keys * 128, mk, s.full_kv, p * 64, w.block * C::keys,
                     w.head, w.batch);
            load_box(s.v + p * C::keys * 128, mv, s.full_kv, p * 64, w.block * C::keys,
                     w.head, w.batch);
        }
    }
    Ring<C::q_stages> q(1);
    Ring<C::o_stages> o(1);
    for (int g = 0; g < a.share; g++) {
        const int head = w.head * a.share + g;
        const int64_t rows0 = ((int64_t)head * a.batch + w.batch) * a.rows;
        for (int t = 0; t < w.steps; t++) {
            const int row = w.queries(a, t) * C::queries;
            float norm[C::queries / 32], delta[C::queries / 32];
#pragma unroll
            for (int i = 0; i < C::queries / 32; i++) {
                const int r = row + lane + 32 * i;
                norm[i] = r < a.rows ? a.norm[rows0 + r] : INFINITY;
                delta[i] = r < a.rows ? a.delta[rows0 + r] : 0;
            }
            auto load = [&](const CUtensorMap *m, uint32_t to, uint32_t full,
                            uint32_t empty, uint32_t parity, uint32_t stats,
                            const float *x) {
                barrier_wait(empty, parity);
                if (lane == 0) {
#pragma unroll
                    for (int p = 0; p < C::panels; p++)
                        load_box(to + p * C::queries * 128, m, full, p * 64, row, head,
                                 w.batch);
                }
#pragma unroll
                for (int i = 0; i < C::queries / 32; i++)
                    asm volatile("st.shared.f32 [%0], %1;" ::"r"(stats + 4 * lane + 128 * i),
                                 "f"(x[i])
                                 : "memory");
                __syncwarp();
                if (lane == 0)
                    barrier_expect(full, C::q_bytes);
            };
            load(mq, s.q + q.stage * C::q_bytes, s.full_q + 8 * q.stage,
                 s.empty_q + 8 * q.stage, q.parity, s.norm + q.stage * C::queries * 4,
                 norm);
            q.next();
            load(mo, s.o + o.stage * C::q_bytes, s.full_o + 8 * o.stage,
                 s.empty_o + 8 * o.stage, o.parity, s.delta + o.stage * C::queries * 4,
                 delta);
            o.next();
        }
    }
}

/* Adds the halves of dQ to memory, in turn if the order is fixed. One thread. */
template <class C>
__device__ __forceinline__ void
backward_reduce(const BackwardArgs &a, const BackwardWork<C> &w, const BackwardShared<C> &s)
{
    uint32_t parity = 0;
    for (int g = 0; g < a.share; g++) {
        const int64_t tile0 =
            ((int64_t)(w.head * a.share + g) * a.batch + w.batch) * a.row_tiles;
        for (int t = 0; t < w.steps; t++) {
            const int m = w.queries(a, t);
            float *to = a.dq + (tile0 + m) * (2 * C::dq_bytes / 4);
            int *turn = C::ordered ? a.turns + tile0 + m : nullptr;
            const int mine = C::ordered ? w.turn(a, m) : 0;
            for (int half = 0; half < 2; half++) {
                barrier_wait(s.full_dq + 8 * half, parity);
                if (C::ordered && half == 0)
                    wait_turn(turn, mine);
                const uint32_t from = s.dq + half * C::dq_bytes;
                if (C::ordered && mine == 0)
                    bulk_store(to + half * (C::dq_bytes / 4), from, C::dq_bytes);
                else
                    bulk_add(to + half * (C::dq_bytes / 4), from, C::dq_bytes);
                bulk_commit();
            }
            bulk_wait_read<0>();
            barrier_arrive(s.empty_dq), barrier_arrive(s.empty_dq + 8);
            if (C::ordered) {
                bulk_wait<0>();
                pass_turn(turn, mine + 1);
            }
            parity ^= 1;
        }
    }
    bulk_wait<0>();
}

template <class C> struct BackwardConsumer {
    using T = typename C::T;
    static constexpr int nq = C::queries;
    const BackwardArgs &a;
    const BackwardWork<C> &w;
    const BackwardShared<C> &s;
    const int group, warp, lane;
    float dk[C::d / 2], dv[C::d / 2], score[nq / 2], dp[nq / 2], dq[C::dq_columns / 2];
    uint32_t weight[nq / 4], ds[C::pace == pace_ahead_shared ? 1 : nq / 4];
    uint32_t held_k_[C::held >= held_k ? C::d / 4 : 1];
    uint32_t held_v_[C::held >= held_kv ? C::d / 4 : 1];
    Ring<C::q_stages> q{0}, q_next{0}; /* of dK; of the scores, which run ahead */
    Ring<C::o_stages> o{0}, o_next{0};
    uint32_t dq_parity = 1;
    int buffer = 0;

    __device__ __forceinline__ BackwardConsumer(const BackwardArgs &args,
                                                const BackwardWork<C> &work,
                                                const BackwardShared<C> &shared, int g)
        : a(args), w(work), s(shared), group(g), warp((threadIdx.x & 127) >> 5),
          lane(threadIdx.x & 31)
    {
    }

    /* The warpgroup's rows of K or V as operands in registers. */
    __device__ __forceinline__ void hold(uint32_t *to, uint32_t from)
    {
        const int r = group * 64 + warp * 16 + (lane & 15);
#pragma unroll
        for (int i = 0; i < C::d / 16; i++) {
            const int chunk = i % 4 * 2 + (lane >> 4);
            load_matrix(to + 4 * i,
                        from + i / 4 * C::keys * 128 + r * 128 + ((chunk ^ (r & 7)) << 4));
        }
    }

    /* keys x queries = (rows of K or V) (rows of Q or dO)^T */
    template <bool registers>
    __device__ __forceinline__ void issue_transposed(float (&x)[nq / 2], const uint32_t *held,
                                                     uint32_t left, uint32_t right)
    {
        const uint64_t da = operand(left + group * 64 * 128, 16), db = operand(right, 16);
#pragma unroll
        for (int i = 0; i < C::d / 16; i++) {
            const uint64_t at = (i / 4 * C::keys * 128 + i % 4 * 32) >> 4;
            const uint64_t bt = (i / 4 * nq * 128 + i % 4 * 32) >> 4;
            if constexpr (registers) {
                if (i == 0)
                    Width<nq>::template rs<T, false, false>(x, held + 4 * i, db + bt);
                else
                    Width<nq>::template rs<T, true, false>(x, held + 4 * i, db + bt);
            } else {
                if (i == 0)
                    Width<nq>::template ss<T, false, false, false>(x, da + at, db + bt);
                else
                    Width<nq>::template ss<T, true, false, false>(x, da + at, db + bt);
            }
        }
        wgmma_commit();
    }
    __device__ __forceinline__ void issue_scores()
    {
        barrier_wait(s.full_q + 8 * q_next.stage, q_next.parity);
        wgmma_fence();
        issue_transposed<C::held >= held_k>(score, held_k_, s.k, s.q + q_next.stage * C::q_bytes);
    }
    __device__ __forceinline__ void issue_dp()
    {
        barrier_wait(s.full_o + 8 * o_next.stage, o_next.parity);
        wgmma_fence();
        issue_transposed<C::held >= held_kv>(dp, held_v_, s.v, s.o + o_next.stage * C::q_bytes);
        o_next.next();
    }
    __device__ __forceinline__ void issue_dv()
    {
        const uint64_t b = operand(s.o + o.stage * C::q_bytes, nq * 128);
#pragma unroll
        for (int i = 0; i < nq / 16; i++)
            Width<C::d>::template rs<T, true, true>(dv, weight + 4 * i,
                                                    b + (i * 2048 >> 4));
        wgmma_commit();
    }
    __device__ __forceinline__ void issue_dk()
    {
        const uint64_t b = operand(s.q + q.stage * C::q_bytes, nq * 128);
        const uint64_t x = operand(s.ds + buffer * C::s_bytes + group * 64 * 128, 16);
#pragma unroll
        for (int i = 0; i < nq / 16; i++) {
            if constexpr (C::pace == pace_ahead_shared)
                Width<C::d>::template ss<T, true, false, true>(
                    dk, x + ((i / 4 * C::keys * 128 + i % 4 * 32) >> 4),
                    b + (i * 2048 >> 4));
            else
                Width<C::d>::template rs<T, true, true>(dk, ds + 4 * i,
                                                        b + (i * 2048 >> 4));
        }
        wgmma_commit();
    }
    /* 64 queries, half of the columns (or half of the queries, all columns). */
    __device__ __forceinline__ void issue_dq()
    {
        constexpr int n = C::dq_columns;
        const uint32_t half = group * C::keys * 128;
        const uint64_t x = operand(
            s.ds + buffer * C::s_bytes + (C::q_panels == 2 ? half : 0), C::keys * 128);
        const uint64_t b =
            operand(s.k + (C::q_panels == 1 ? (n == 64 ? half : group * n * 2) : 0),
                    C::keys * 128);
#pragma unroll
        for (int i = 0; i < C::keys / 16; i++) {
            if (i == 0)
                Width<n>::template ss<T, false, true, true>(dq, x + (i * 2048 >> 4),
                                                            b + (i * 2048 >> 4));
            else
                Width<n>::template ss<T, true, true, true>(dq, x + (i * 2048 >> 4),
                                                           b + (i * 2048 >> 4));
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void mask(int m)
    {
        const int key = w.block * C::keys + group * 64 + warp * 16 + (lane >> 2);
        const int row = m * nq + (lane & 3) * 2;
        int low0 = 0, low1 = 0; /* least visible query, relative */
        if (C::causal)
            low0 = key - a.offset - row, low1 = low0 + 8;
        if (key >= a.keys)
            low0 = nq;
        if (key + 8 >= a.keys)
            low1 = nq;
#pragma unroll
        for (int i = 0; i < nq / 2; i++)
            if (i / 4 * 8 + (i & 1) < (i & 2 ? low1 : low0))
                score[i] = -INFINITY;
    }

    /* Scores of block m to weights in 16 bits. */
    __device__ __forceinline__ void weigh(int m)
    {
        const int top = w.block * C::keys + group * 64; /* first key */
        if (top + 64 > a.keys || (C::causal && m * nq + a.offset < top + 63))
            mask(m);
        const uint32_t at = s.norm + q_next.stage * nq * 4 + (lane & 3) * 8;
#pragma unroll
        for (int i = 0; i < nq / 8; i++) {
            float n0, n1, *x = score + 4 * i;
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(n0), "=f"(n1)
                         : "r"(at + i * 32)
                         : "memory");
            x[0] = exp2_approx(fmaf(x[0], a.scale, -n0));
            x[1] = exp2_approx(fmaf(x[1], a.scale, -n1));
            x[2] = exp2_approx(fmaf(x[2], a.scale, -n0));
            x[3] = exp2_approx(fmaf(x[3], a.scale, -n1));
            weight[2 * i] = T::pack(x[0], x[1]);
            weight[2 * i + 1] = T::pack(x[2], x[3]);
        }
        q_next.next();
    }

    /* dS = weight (dP - delta) of columns c .. c + 15 as a register operand. */
    __device__ __forceinline__ void form_ds(uint32_t *r, int c)
    {
        const uint32_t at = s.delta + o.stage * nq * 4 + (lane & 3) * 8;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float d0, d1, *x = dp + 4 * (c + i);
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(d0), "=f"(d1)
                         : "r"(at + (c + i) * 32)
                         : "memory");
            const float2 p0 = T::unpack(weight[2 * (c + i)]);
            const float2 p1 = T::unpack(weight[2 * (c + i) + 1]);
            r[2 * i] = T::pack(p0.x * (x[0] - d0), p0.y * (x[1] - d1));
            r[2 * i + 1] = T::pack(p1.x * (x[2] - d0), p1.y * (x[3] - d1));
        }
    }
    /* The same to shared memory, keys x queries, with the swizzle. */
    __device__ __forceinline__ void put_ds(const uint32_t *r, int c)
    {
        const int row = group * 64 + warp * 16 + (lane & 15), chunk = c % 8 + (lane >> 4);
        store_matrix(s.ds + buffer * C::s_bytes + row * 128 + c / 8 * C::keys * 128 +
                         ((chunk ^ (row & 7)) << 4),
                     r);
    }
    __device__ __forceinline__ void make_ds()
    {
#pragma unroll
        for (int c = 0; c < nq / 8; c += 2) {
            if constexpr (C::pace == pace_ahead_shared) {
                uint32_t r[4];
                form_ds(r, c), put_ds(r, c);
            } else {
                form_ds(ds + 2 * c, c), put_ds(ds + 2 * c, c);
            }
        }
        fence_async_proxy();
    }

    __device__ __forceinline__ void store_dq(float *to_memory)
    {
        if constexpr (C::direct) {
            float *at = to_memory + group * (C::dq_bytes / 4) + (warp * 32 + lane) * 4;
#pragma unroll
            for (int i = 0; i < C::dq_columns / 8; i++)
                add_vector(at + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                           dq[4 * i + 3]);
            return;
        }
        barrier_wait(s.empty_dq + 8 * group, dq_parity);
        dq_parity ^= 1;
        const uint32_t to = s.dq + group * C::dq_bytes + (warp * 32 + lane) * 16;
#pragma unroll
        for (int i = 0; i < C::dq_columns / 8; i++)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 2048),
                         "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]),
                         "f"(dq[4 * i + 3])
                         : "memory");
        fence_async_proxy();
        __syncwarp();
        if (lane == 0)
            barrier_arrive(s.full_dq + 8 * group);
    }

    /* Weights and dP of this step are there; those of block `next` are made. */
    template <bool more> __device__ __forceinline__ void step(float *to, int next)
    {
        pin(dv), pin(weight);
        wgmma_fence();
        issue_dv();
        if (more)
            issue_scores();
        make_ds();
        named_sync(1, 256);
        pin(dk), pin(ds);
        wgmma_fence();
        issue_dq();
        issue_dk();
        wgmma_wait<1>();
        pin(dv), pin(dq), pin(weight);
        if (more)
            pin(score);
        if (lane == 0)
            barrier_arrive(s.empty_o + 8 * o.stage);
        o.next();
        store_dq(to);
        if (more) {
            issue_dp();
            weigh(next);
            pin(weight);
        }
        wgmma_wait<0>();
        pin(dk), pin(ds);
        if (more)
            pin(dp);
        if (lane == 0)
            barrier_arrive(s.empty_q + 8 * q.stage);
        q.next();
        buffer ^= 1;
    }

    /* Scores and dP of this step are there. */
    template <bool more> __device__ __forceinline__ void plain_step(float *to, int m)
    {
        weigh(m);
#pragma unroll
        for (int c = 0; c < nq / 8; c += 2)
            form_ds(ds + 2 * c, c);
        pin(dv), pin(weight);
        wgmma_fence();
        issue_dv();
#pragma unroll
        for (int c = 0; c < nq / 8; c += 2)
            put_ds(ds + 2 * c, c);
        fence_async_proxy();
        named_sync(1, 256);
        pin(dk), pin(ds);
        wgmma_fence();
        issue_dq();
        issue_dk();
        wgmma_wait<1>();
        pin(dv), pin(dq), pin(weight);
        if (lane == 0)
            barrier_arrive(s.empty_o + 8 * o.stage);
        o.next();
        store_dq(to);
        if (more)
            issue_scores(), issue_dp();
        wgmma_wait<0>();
        pin(dk), pin(ds);
        if (more)
            pin(score), pin(dp);
        if (lane == 0)
            barrier_arrive(s.empty_q + 8 * q.stage);
        q.next();
        buffer ^= 1;
    }

    /* Where block m of dQ of the head of step `number` is. */
    __device__ __forceinline__ float *dq_tile(int g, int m)
    {
        const int64_t tile0 =
            ((int64_t)(w.head * a.share + g) * a.batch + w.batch) * a.row_tiles;
        return a.dq + (tile0 + m) * (2 * C::dq_bytes / 4);
    }

    __device__ __forceinline__ void all_steps()
    {
        int t = 0, g = 0, m = w.queries(a, 0);
        if (C::held >= held_k)
            hold(held_k_, s.k);
        if (C::held >= held_kv)
            hold(held_v_, s.v);
        issue_scores();
        issue_dp();
        wgmma_wait<0>();
        pin(score), pin(dp);
        if (C::pace != pace_plain)
            weigh(m);
        for (int left = w.steps * a.share; --left > 0;) {
            float *to = dq_tile(g, m);
            const int before = m;
            if (++t == w.steps)
                t = 0, g++;
            m = w.queries(a, t);
            if constexpr (C::pace == pace_plain)
                plain_step<true>(to, before);
            else
                step<true>(to, m);
        }
        if constexpr (C::pace == pace_plain)
            plain_step<false>(dq_tile(g, m), m);
        else
            step<false>(dq_tile(g, m), 0);
    }

    __device__ __forceinline__ void run()
    {
#pragma unroll
        for (int i = 0; i < C::d / 2; i++)
            dk[i] = dv[i] = 0;
        barrier_wait(s.full_kv, 0);
        if (w.steps > 0)
            all_steps();
        const int key = w.block * C::keys + group * 64 + warp * 16 + (lane >> 2);
        uint16_t *k = a.dk + w.batch * a.dk_batch + w.head * a.dk_head + key * a.dk_row;
        uint16_t *v = a.dv + w.batch * a.dv_batch + w.head * a.dv_head + key * a.dv_row;
        const bool in0 = key < a.keys, in1 = key + 8 < a.keys;
        store_row<T, C::d>(k, dk, a.scale_natural, in0 ? a.d_out : 0, lane);
        store_row<T, C::d>(k + 8 * a.dk_row, dk + 2, a.scale_natural, in1 ? a.d_out : 0,
                           lane);
        store_row<T, C::d>(v, dv, 1, in0 ? a.dv_out : 0, lane);
        store_row<T, C::d>(v + 8 * a.dv_row, dv + 2, 1, in1 ? a.dv_out : 0, lane);
    }
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap mq,
                    const __grid_constant__ CUtensorMap mk,
                    const __grid_constant__ CUtensorMap mv,
                    const __grid_constant__ CUtensorMap mo,
                    const __grid_constant__ BackwardArgs a)
{
    extern __shared__ uint8_t raw[];
    const BackwardShared<C> s(raw);
    const BackwardWork<C> w(a);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0)
        s.init();
    __syncthreads();
    if (warpgroup == 0) {
        fewer_registers<24>();
        const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
        if (warp == 0)
            backward_produce<C>(a, w, s, &mq, &mk, &mv, &mo);
        else if (!C::direct && threadIdx.x == 32)
            backward_reduce<C>(a, w, s);
    } else {
        more_registers<240>();
        BackwardConsumer<C> consumer(a, w, s, warpgroup - 1);
        consumer.run();
    }
}

/* dQ in the order of threads, f32, to rows in 16 bits: a block makes a tile. */
struct FinishArgs {
    const float *from;
    uint16_t *dq;
    int64_t row, head, batch;
    int rows, batches, d_out, row_tiles;
    float scale;
};

template <class C>
__global__ void __launch_bounds__(256) backward_finish(const __grid_constant__ FinishArgs f)
{
    const int tile = blockIdx.x, all = blockIdx.y, head = all / f.batches,
              batch = all - head * f.batches;
    const int half = threadIdx.x >> 7, id = threadIdx.x & 127, warp = id >> 5,
              lane = id & 31;
    const float4 *from = reinterpret_cast<const float4 *>(
        f.from + (((int64_t)all * f.row_tiles + tile) * 2 + half) * (C::dq_bytes / 4));
    const int row = tile * C::queries + (C::q_panels == 2 ? half * 64 : 0) + warp * 16 +
                    (lane >> 2);
    const int column0 = C::q_panels == 1 ? half * C::dq_columns : 0;
    float x[C::dq_columns / 2];
#pragma unroll
    for (int i = 0; i < C::dq_columns / 8; i++) {
        const float4 y = from[i * 128 + id];
        x[4 * i] = y.x, x[4 * i + 1] = y.y, x[4 * i + 2] = y.z, x[4 * i + 3] = y.w;
    }
    uint16_t *to = f.dq + batch * f.batch + head * f.head + row * f.row + column0;
    const int columns = f.d_out - column0;
    store_row<typename C::T, C::dq_columns>(to, x, f.scale, row < f.rows ? columns : 0,
                                            lane);
    store_row<typename C::T, C::dq_columns>(to + 8 * f.row, x + 2, f.scale,
                                            row + 8 < f.rows ? columns : 0, lane);
}

}  // namespace hopper
#endif
