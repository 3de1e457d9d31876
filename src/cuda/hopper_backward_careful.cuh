/* Gradients of one key or query row, pair by pair: what the fast kernels do again where
 * numbers that are not finite may have met hidden pairs. Slow, and hardly ever run. */
#ifndef FOCI_CUDA_HOPPER_BACKWARD_CAREFUL_CUH
#define FOCI_CUDA_HOPPER_BACKWARD_CAREFUL_CUH

#include "cuda/hopper_careful.cuh"

namespace hopper {

/* The factor of q.k in the natural logit, of a head. */
__device__ __forceinline__ float natural_scale(const struct cuda_exact &x, int head)
{
    const float scale = x.score.head_scale ? x.score.head_scale[head] : x.score.scale;
    return x.score.cap > 0 ? scale : scale * 0.6931471805599453f;
}

/* A sequence: its rows in the tensors. */
struct CarefulSeq {
    int batch, nq, nk, q0, k0;
};

/* Rows of query i of a head, and of key j of the head of keys that goes with it. */
template <class T> struct CarefulPair {
    const T *q, *k, *v, *g;
    float    norm, delta;
    int      far;

    __device__ __forceinline__ CarefulPair(const struct cuda_exact &x,
                                           const CarefulSeq &s, int head, int i, int j)
    {
        const int     key_head = head / (x.heads / x.kv_heads);
        const int64_t row = (int64_t)s.q0 + i, key = (int64_t)s.k0 + j;
        q = (const T *)x.q.at + s.batch * x.q.seq + head * x.q.head + row * x.q.row;
        g = (const T *)x.d_o.at + s.batch * x.d_o.seq + head * x.d_o.head +
            row * x.d_o.row;
        k = (const T *)x.k.at + s.batch * x.k.seq + key_head * x.k.head + key * x.k.row;
        v = (const T *)x.v.at + s.batch * x.v.seq + key_head * x.v.head + key * x.v.row;
        const int64_t at = ((int64_t)head * x.batch + s.batch) * x.len_q + row;
        norm = x.norm[at], delta = x.delta[at];
        far = i + s.nk - s.nq - j;
    }

    /* The weight of the pair, and the gradient of its product q.k without scale. */
    __device__ __forceinline__ void weigh(const struct cuda_exact &x, int head,
                                          float &weight, float &ds) const
    {
        const struct cuda_score &f = x.score;
        const float              logit = careful_logit(x, q, k, head, far);
        float                    dp = 0;
        for (int c = 0; c < x.dv; c++)
            dp += T::to_float(g[c]) * T::to_float(v[c]);
        const float level = f.cap > 0 ? logit / (f.cap * f.unit) : 0;
        weight = exp2_approx(logit - norm);
        ds = weight * (1 - level * level) * (dp - delta);
    }
};

/* Stores one column of a gradient, of 16 bits or f32. */
template <class T>
__device__ __forceinline__ void careful_store(const struct cuda_out &to, int f32,
                                              int64_t at, float y)
{
    if (f32)
        ((float *)to.at)[at] = y;
    else
        ((uint16_t *)to.at)[at] = (uint16_t)T::pack(y, 0);
}

/* dK and dV of key j, by one warp: a lane has a query. */
template <class T>
__device__ __forceinline__ void careful_key(const struct cuda_exact &x,
                                            const CarefulSeq &s, int key_head, int j,
                                            int lane)
{
    if (j >= s.nk) return;
    const int share = x.heads / x.kv_heads, tile = j / 64;
    float     dk[4] = {}, dv[4] = {};
#pragma unroll 1
    for (int head = key_head * share; head < (key_head + 1) * share; head++) {
#pragma unroll 1
        for (int i0 = 0; i0 < s.nq; i0 += 32) {
            const int i = i0 + lane;
            bool      mine = i < s.nq;
            mine = mine && careful_seen(x, i + s.nk - s.nq, s.nk, tile) >> j % 64 & 1;
            const unsigned part = __ballot_sync(~0u, mine);
            if (!part) continue;
            float weight = 0, ds = 0;
            if (mine) CarefulPair<T>(x, s, head, i, j).weigh(x, head, weight, ds);
#pragma unroll 1
            for (int l = 0; l < 32; l++) {
                const float a = __shfl_sync(~0u, weight, l),
                            b = __shfl_sync(~0u, ds, l);
                if (!(part >> l & 1)) continue;
                const CarefulPair<T> pair(x, s, head, i0 + l, j);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const int at = c * 32 + lane;
                    if (at < x.d) dk[c] += b * T::to_float(pair.q[at]);
                    if (at < x.dv) dv[c] += a * T::to_float(pair.g[at]);
                }
            }
        }
    }
    const float   by = natural_scale(x, key_head * share);
    const int64_t row = (int64_t)s.k0 + j;
    const int64_t at_k = s.batch * x.dk.seq + key_head * x.dk.head + row * x.dk.row;
    const int64_t at_v =
        s.batch * x.dv_out.seq + key_head * x.dv_out.head + row * x.dv_out.row;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int at = c * 32 + lane;
        if (at < x.d) careful_store<T>(x.dk, x.dk_f32, at_k + at, dk[c] * by);
        if (at < x.dv) careful_store<T>(x.dv_out, 0, at_v + at, dv[c]);
    }
}

/* Columns first .. first + 64 of dQ of query i, by one warp: a lane has a key. */
template <class T>
__device__ __forceinline__ void careful_query(const struct cuda_exact &x,
                                              const CarefulSeq &s, int head, int i,
                                              int first, int columns, int lane)
{
    if (i < 0 || i >= s.nq) return;
    float dq[2] = {};
#pragma unroll 1
    for (int j0 = 0; j0 < s.nk; j0 += 32) {
        const uint64_t seen = careful_seen(x, i + s.nk - s.nq, s.nk, j0 / 64);
        const uint32_t part = (uint32_t)(seen >> j0 % 64);
        if (!part) continue;
        float weight = 0, ds = 0;
        if (part >> lane & 1)
            CarefulPair<T>(x, s, head, i, j0 + lane).weigh(x, head, weight, ds);
#pragma unroll 1
        for (int l = 0; l < 32; l++) {
            const float b = __shfl_sync(~0u, ds, l);
            if (!(part >> l & 1)) continue;
            const CarefulPair<T> pair(x, s, head, i, j0 + l);
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (c * 32 + lane < columns)
                    dq[c] += b * T::to_float(pair.k[first + c * 32 + lane]);
        }
    }
    const float   by = natural_scale(x, head);
    const int64_t at =
        s.batch * x.dq.seq + head * x.dq.head + ((int64_t)s.q0 + i) * x.dq.row + first;
#pragma unroll
    for (int c = 0; c < 2; c++)
        if (c * 32 + lane < columns)
            careful_store<T>(x.dq, x.dq_f32, at + c * 32 + lane, dq[c] * by);
}

} // namespace hopper
#endif
