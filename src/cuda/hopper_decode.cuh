/* Exact attention of few queries and many keys on Hopper.
 *
 * Bound by reading K and V. All query rows that share a key head are the rows of one
 * product (sixteen at most). Keys of all sequences and heads form one line of blocks of
 * 128, cut into units of equal length, one for each multiprocessor (smaller ones, handed
 * out as they end, were not faster); a unit may begin and end inside sequences. Of each
 * block of keys a warp takes sixteen, with a maximum of its own; warps meet at the end of a
 * sequence or unit. A second launch, which starts early and waits, merges sequences that
 * lie in several units, in the order of units. */
#ifndef FOCI_CUDA_HOPPER_DECODE_CUH
#define FOCI_CUDA_HOPPER_DECODE_CUH

#include "cuda/exact.h"
#include "cuda/hopper_tile.cuh"

namespace hopper {

enum { decode_most_units = 2048 }; /* that one sequence may lie in */

struct DecodeArgs {
    struct cuda_exact x;
    float            *partial; /* [units][2][rows][dv + 2] */
    int               unit;    /* blocks of keys of a unit */
    int               blocks;  /* of one sequence, if all are alike */
};

template <class T_, int d_, int rows_> struct DecodeShape {
    using T = T_;
    static constexpr int d = d_, rows = rows_, warps = 8, keys = warps * 16;
    static constexpr int threads = (warps + 1) * 32, panels = (d + 63) / 64;
    static constexpr int bytes = keys * panels * 128; /* of a block of K or V */
    static constexpr int stages = d == 64 ? 6 : 3, pitch = d + 4;
    static constexpr int at_v = stages * bytes, at_meet = 2 * stages * bytes,
                         at_barriers = at_meet + warps * 8 * pitch * 4;
    static constexpr int shared_bytes = at_barriers + 64 * stages + 64 + 1024;
    static_assert(shared_bytes <= 232448, "shared memory");
};

/* A piece of a unit: blocks of one sequence and key head. */
struct DecodePiece {
    int     head, seq, batch, nq, nk, k0, q0;
    int     begin, end; /* blocks */
    int64_t from, to;   /* the sequence's blocks in the line */
};

template <class C> struct DecodeLine {
    const DecodeArgs &a;
    int64_t           total; /* blocks of one head */
    __device__ __forceinline__ explicit DecodeLine(const DecodeArgs &args) : a(args)
    {
        const struct cuda_exact &x = a.x;
        total = x.seqs ? x.seqs[x.n_seqs].k_block[1] : a.blocks * x.batch;
    }
    /* The piece of the line that starts at `at` and ends at `limit` at most. */
    __device__ __forceinline__ DecodePiece piece(int64_t at, int64_t limit) const
    {
        const struct cuda_exact &x = a.x;
        DecodePiece              p;
        p.head = (int)(at / total);
        const int block = (int)(at - p.head * total);
        int       first, count;
        if (x.seqs) {
            int low = 0, high = x.n_seqs;
            while (high - low > 1) {
                const int middle = (low + high) / 2;
                if (x.seqs[middle].k_block[1] <= block)
                    low = middle;
                else
                    high = middle;
            }
            const struct cuda_seq *q = x.seqs + low;
            p.seq = low, p.batch = q->b, p.nq = q->nq, p.nk = q->nk;
            p.q0 = (int)q->q0, p.k0 = (int)q->k0, first = q->k_block[1];
            count = q[1].k_block[1] - first;
        } else {
            p.seq = p.batch = block / a.blocks, first = p.seq * a.blocks;
            p.nq = (int)x.len_q, p.nk = (int)x.len_k, p.q0 = p.k0 = 0, count = a.blocks;
        }
        p.from = p.head * total + first, p.to = p.from + count;
        p.begin = block - first;
        p.end = (int)(min(p.to, limit) - p.from);
        return p;
    }
};

template <class C> struct DecodeShared {
    uint32_t   k, v, full_k, full_v, empty_k, empty_v;
    float     *meet;
    __device__ __forceinline__ explicit DecodeShared(uint8_t *raw)
    {
        const uint32_t at = shared_address(raw);
        k = (at + 1023) & ~1023u;
        v = k + C::at_v;
        full_k = k + C::at_barriers, full_v = full_k + 8 * C::stages;
        empty_k = full_v + 8 * C::stages, empty_v = empty_k + 8 * C::stages;
        uint8_t *base = raw + (k - at);
        meet = reinterpret_cast<float *>(base + C::at_meet);
    }
    __device__ __forceinline__ void init() const
    {
        for (int i = 0; i < C::stages; i++) {
            barrier_init(full_k + 8 * i, 1), barrier_init(full_v + 8 * i, 1);
            barrier_init(empty_k + 8 * i, C::warps),
                barrier_init(empty_v + 8 * i, C::warps);
        }
        barrier_init_fence();
    }
};

template <class C>
__device__ __forceinline__ void decode_load(const DecodeArgs &a, const DecodePiece &p,
                                            int block, uint32_t to, uint32_t full,
                                            const CUtensorMap *m, uint64_t policy)
{
    barrier_expect(full, C::bytes);
    if (!a.x.pages.table) {
#pragma unroll
        for (int c = 0; c < C::panels; c++)
            load_box_once(to + c * C::keys * 128, m, full, c * 64,
                          p.k0 + block * C::keys, p.head, p.batch, policy);
        return;
    }
    for (int i = 0; i < 2; i++) { /* pages of 64; beyond the last one, rows of none */
        const int  tile = block * 2 + i;
        const bool inside = tile * 64 < p.nk;
        const int  page =
            inside ? a.x.pages.table[p.seq * a.x.pages.max_pages + tile] : 0;
#pragma unroll
        for (int c = 0; c < C::panels; c++)
            load_box_once(to + c * C::keys * 128 + i * 64 * 128, m, full, c * 64,
                          inside ? 0 : 64, p.head, page, policy);
    }
}

/* One thread: streams the blocks of the unit. */
template <class C>
__device__ __forceinline__ void decode_produce(const DecodeArgs      &a,
                                               const DecodeShared<C> &s,
                                               const CUtensorMap     *mk,
                                               const CUtensorMap     *mv)
{
    const DecodeLine<C> line(a);
    const uint64_t      policy = evict_first_policy();
    Ring<C::stages>     k(1);
    int64_t             at = (int64_t)blockIdx.x * a.unit;
    const int64_t       limit = min(at + a.unit, line.total * a.x.kv_heads);
    while (at < limit) {
        const DecodePiece p = line.piece(at, limit);
        for (int j = p.begin; j < p.end; j++) {
            barrier_wait(s.empty_k + 8 * k.stage, k.parity);
            decode_load<C>(a, p, j, s.k + k.stage * C::bytes, s.full_k + 8 * k.stage,
                           mk, policy);
            barrier_wait(s.empty_v + 8 * k.stage, k.parity);
            decode_load<C>(a, p, j, s.v + k.stage * C::bytes, s.full_v + 8 * k.stage,
                           mv, policy);
            k.next();
        }
        at = p.from + p.end;
    }
}

/* Column c of row r of a sequence: stored, divided by the sum. */
template <class T>
__device__ __forceinline__ void decode_store(const struct cuda_exact &x,
                                             const DecodePiece &p, int r, int c,
                                             float o, float top, float sum)
{
    const int     share = x.heads / x.kv_heads, head = p.head * share + r / p.nq;
    const int64_t i = (int64_t)p.q0 + r % p.nq;
    const bool    none = sum == 0;
    float         norm = none ? -INFINITY : top + log2f(sum), by = none ? 0 : 1 / sum;
    if (x.score.sink) by *= add_sink(norm, x.score.sink[head] * 1.44269504088896341f);
    if (c < x.dv)
        ((uint16_t *)x.o.at)[p.batch * x.o.seq + head * x.o.head + i * x.o.row + c] =
            (uint16_t)T::pack(o * by, 0);
    if (c == 0 && x.norm)
        x.norm[((int64_t)head * x.batch + p.batch) * x.len_q + i] =
            none ? INFINITY : norm;
    if (c == 0 && x.lse)
        x.lse[p.batch * x.lse_seq + head * x.lse_head + i] = norm * 0.6931471805599453f;
}

/* Row r of what a unit has of the sequence that starts in it, or of the one before. */
template <class C>
__device__ __forceinline__ float *decode_partial(const DecodeArgs &a, int64_t unit,
                                                 bool starts, int r)
{
    return a.partial + ((unit * 2 + starts) * C::rows + r) * (C::d + 2);
}

template <class C> struct DecodeConsumer {
    using T = typename C::T;
    static constexpr int   d = C::d, two = C::rows == 16;
    const DecodeArgs      &a;
    const DecodeShared<C> &s;
    const int              warp, lane;
    Ring<C::stages>        k{ 0 };
    uint32_t               query[d / 4]; /* A operands of d / 16 products */
    float                  out[d / 8][4];
    float                  top[2], sum[2];

    __device__ __forceinline__ DecodeConsumer(const DecodeArgs      &args,
                                              const DecodeShared<C> &shared)
        : a(args), s(shared), warp(threadIdx.x >> 5), lane(threadIdx.x & 31)
    {
    }

    /* Row r of the product is token r % nq of the head r / nq of the group. */
    __device__ __forceinline__ void load_query(const DecodePiece &p)
    {
        const struct cuda_exact &x = a.x;
        const int                share = x.heads / x.kv_heads, count = share * p.nq;
#pragma unroll
        for (int h = 0; h < 1 + two; h++) {
            const int       r = (lane >> 2) + 8 * h;
            const bool      in = r < count;
            const int       head = p.head * share + (in ? r / p.nq : 0);
            const uint16_t *q = (const uint16_t *)x.q.at + p.batch * x.q.seq +
                                head * x.q.head +
                                ((int64_t)p.q0 + (in ? r % p.nq : 0)) * x.q.row;
#pragma unroll
            for (int i = 0; i < d / 8; i++) {
                const int c = i * 8 + (lane & 3) * 2;
                query[i / 2 * 4 + (i & 1) * 2 + h] =
                    in && c < x.d ? *reinterpret_cast<const uint32_t *>(q + c) : 0;
            }
        }
        if (!two)
#pragma unroll
            for (int i = 0; i < d / 16; i++)
                query[4 * i + 1] = query[4 * i + 3] = 0;
    }

    __device__ __forceinline__ void one_block(const DecodePiece &p, int block)
    {
        const float    scale = a.x.score.scale;
        const int      part = lane >> 3, r8 = lane & 7;
        const uint32_t k_at = s.k + k.stage * C::bytes, v_at = s.v + k.stage * C::bytes;
        float          score[2][4] = {};
        barrier_wait(s.full_k + 8 * k.stage, k.parity);
#pragma unroll
        for (int i = 0; i < d / 16; i++) {
            const int key = warp * 16 + (part >> 1) * 8 + r8,
                      c = i % 4 * 2 + (part & 1);
            uint32_t b[4];
            load_matrix(b, k_at + i / 4 * C::keys * 128 + key * 128 +
                               ((c ^ (key & 7)) << 4));
            multiply_16x8<T>(score[0], query + 4 * i, b);
            multiply_16x8<T>(score[1], query + 4 * i, b + 2);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(s.empty_k + 8 * k.stage);
        const int  key = block * C::keys + warp * 16 + (lane & 3) * 2;
        const bool tail = (block + 1) * C::keys > p.nk - (a.x.causal ? p.nq - 1 : 0);
        if (tail) mask(p, key, score);
        uint32_t weight[4];
        weigh(score, scale, weight);
        barrier_wait(s.full_v + 8 * k.stage, k.parity);
#pragma unroll
        for (int i = 0; i < d / 16; i++) {
            const int row = warp * 16 + (part & 1) * 8 + r8,
                      c = i % 4 * 2 + (part >> 1);
            uint32_t b[4];
            load_matrix_transposed(b, v_at + i / 4 * C::keys * 128 + row * 128 +
                                          ((c ^ (row & 7)) << 4));
            if (tail) { /* what lies beyond the end may be anything */
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int at = key + (e & 1) * 8;
                    b[e] = at + 1 < p.nk ? b[e] : at < p.nk ? b[e] & 0xFFFF : 0;
                }
            }
            multiply_16x8<T>(out[2 * i], weight, b);
            multiply_16x8<T>(out[2 * i + 1], weight, b + 2);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(s.empty_v + 8 * k.stage);
        k.next();
    }

    __device__ __forceinline__ void mask(const DecodePiece &p, int key,
                                         float score[2][4])
    {
#pragma unroll
        for (int h = 0; h < 1 + two; h++) {
            const int r = (lane >> 2) + 8 * h;
            const int end = a.x.causal ? p.nk - p.nq + r % p.nq + 1 : p.nk;
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (key + e / 2 * 8 + (e & 1) >= end)
                    score[e / 2][2 * h + (e & 1)] = -INFINITY;
        }
    }

    __device__ __forceinline__ void weigh(float score[2][4], float scale,
                                          uint32_t weight[4])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (h && !two) {
                weight[1] = weight[3] = 0;
                break;
            }
            float      *x = score[0] + 2 * h, *y = score[1] + 2 * h;
            const float high =
                quad_max(fmaxf(fmaxf(x[0], x[1]), fmaxf(y[0], y[1]))) * scale;
            if (__any_sync(~0u, high > top[h] + 8)) {
                const float next = high > top[h] + 8 ? high : top[h],
                            from = next == -INFINITY ? 0 : next;
                const float shrink = exp2_approx(top[h] - from);
                top[h] = next, sum[h] *= shrink;
#pragma unroll
                for (int i = 0; i < d / 8; i++)
                    out[i][2 * h] *= shrink, out[i][2 * h + 1] *= shrink;
            }
            const float base = top[h] == -INFINITY ? 0 : -top[h];
            const float e0 = exp2_approx(fmaf(x[0], scale, base));
            const float e1 = exp2_approx(fmaf(x[1], scale, base));
            const float e2 = exp2_approx(fmaf(y[0], scale, base));
            const float e3 = exp2_approx(fmaf(y[1], scale, base));
            sum[h] += (e0 + e1) + (e2 + e3);
            weight[h] = T::pack(e0, e1), weight[2 + h] = T::pack(e2, e3);
        }
    }

    /* Puts eight rows of all warps side by side: output, maximum, sum. */
    __device__ __forceinline__ void put_rows(int h)
    {
        float      *to = s.meet + (warp * 8 + (lane >> 2)) * C::pitch;
        const float all = quad_sum(sum[h]);
#pragma unroll
        for (int i = 0; i < d / 8; i++)
            *reinterpret_cast<float2 *>(to + i * 8 + (lane & 3) * 2) =
                make_float2(out[i][2 * h], out[i][2 * h + 1]);
        if ((lane & 3) == 0) to[d] = top[h], to[d + 1] = all;
    }

    /* The warps' parts of rows 8 h .. 8 h + 7: to the output, or to a partial result. */
    __device__ __forceinline__ void meet_warps(const DecodePiece &p, int h, int count,
                                               int64_t unit, bool whole, bool starts)
    {
        put_rows(h);
        named_sync(1, C::warps * 32);
        for (int e = threadIdx.x; e < min(count - 8 * h, 8) * d; e += C::warps * 32) {
            const int    r = e / d, c = e % d;
            const float *from = s.meet + r * C::pitch;
            float        high = -INFINITY, o = 0, l = 0;
#pragma unroll
            for (int w = 0; w < C::warps; w++)
                high = fmaxf(high, from[w * 8 * C::pitch + d]);
            const float base = high == -INFINITY ? 0 : high;
#pragma unroll
            for (int w = 0; w < C::warps; w++) {
                const float *x = from + w * 8 * C::pitch;
                const float  by = exp2_approx(x[d] - base);
                o += by * x[c], l += by * x[d + 1];
            }
            if (whole) {
                decode_store<T>(a.x, p, 8 * h + r, c, o, high, l);
            } else {
                float *to = decode_partial<C>(a, unit, starts, 8 * h + r);
                to[c] = o;
                if (c == 0) to[d] = high, to[d + 1] = l;
            }
        }
        named_sync(1, C::warps * 32);
    }

    __device__ __forceinline__ void end_piece(const DecodePiece &p, int64_t unit)
    {
        const int     count = a.x.heads / a.x.kv_heads * p.nq;
        const int64_t first = p.from / a.unit, last = (p.to - 1) / a.unit;
        const bool    whole = first == last, starts = unit == first;
        meet_warps(p, 0, count, unit, whole, starts);
        if (two && count > 8) meet_warps(p, 1, count, unit, whole, starts);
    }

    __device__ __forceinline__ void run()
    {
        const DecodeLine<C> line(a);
        int64_t             at = (int64_t)blockIdx.x * a.unit;
        const int64_t       limit = min(at + a.unit, line.total * a.x.kv_heads);
        while (at < limit) {
            const DecodePiece p = line.piece(at, limit);
            if (p.nq > 0) load_query(p);
            top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0;
#pragma unroll
            for (int i = 0; i < d / 8; i++)
                out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0;
            for (int j = p.begin; j < p.end; j++)
                one_block(p, j);
            if (p.nq > 0) end_piece(p, blockIdx.x);
            at = p.from + p.end;
        }
    }
};

template <class C>
__global__ void __launch_bounds__(C::threads, 1)
    decode_kernel(const __grid_constant__ CUtensorMap mk,
                  const __grid_constant__ CUtensorMap mv,
                  const __grid_constant__ DecodeArgs  a)
{
    extern __shared__ uint8_t raw[];
    const DecodeShared<C>     s(raw);
    if (threadIdx.x == 0) s.init();
    __syncthreads();
    start_launch_after();
    if (threadIdx.x < C::warps * 32) {
        DecodeConsumer<C> consumer(a, s);
        consumer.run();
    } else if (threadIdx.x == C::warps * 32) {
        decode_produce<C>(a, s, &mk, &mv);
    }
}

/* Merges the parts of one row of one sequence: a thread has a column. */
template <class C>
__global__ void __launch_bounds__(C::d)
    decode_merge(const __grid_constant__ DecodeArgs a)
{
    __shared__ float         weight[decode_most_units], total[C::d / 32];
    const struct cuda_exact &x = a.x;
    const int seq = blockIdx.x, head = blockIdx.y, r = blockIdx.z, c = threadIdx.x;
    const DecodeLine<C> line(a);
    const int64_t       at =
        head * line.total + (x.seqs ? x.seqs[seq].k_block[1] : (int64_t)seq * a.blocks);
    const int count =
        x.seqs ? x.seqs[seq + 1].k_block[1] - x.seqs[seq].k_block[1] : a.blocks;
    if (count == 0) return;
    const DecodePiece p = line.piece(at, at + 1);
    const int64_t     first = p.from / a.unit;
    const int         units = (int)((p.to - 1) / a.unit - first) + 1;
    if (units == 1 || r >= x.heads / x.kv_heads * p.nq) return;
    wait_for_launch_before();
    float high = -INFINITY;
    for (int u = c; u < units; u += C::d) {
        weight[u] = decode_partial<C>(a, first + u, u == 0, r)[C::d];
        high = fmaxf(high, weight[u]);
    }
    for (int step = 16; step; step /= 2)
        high = fmaxf(high, __shfl_xor_sync(~0u, high, step));
    if (c % 32 == 0) total[c / 32] = high;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < C::d / 32; w++)
        high = fmaxf(high, total[w]);
    const float base = high == -INFINITY ? 0 : high;
    float       sum = 0;
    for (int u = c; u < units; u += C::d) {
        weight[u] = exp2_approx(weight[u] - base);
        sum += weight[u] * decode_partial<C>(a, first + u, u == 0, r)[C::d + 1];
    }
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    __syncthreads();
    if (c % 32 == 0) total[c / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < C::d / 32; w++)
        sum += total[w];
    float o = 0;
#pragma unroll 8
    for (int u = 0; u < units; u++)
        o += weight[u] * decode_partial<C>(a, first + u, u == 0, r)[c];
    decode_store<typename C::T>(x, p, r, c, o, high, sum);
}

} // namespace hopper
#endif
