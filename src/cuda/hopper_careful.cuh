/* One query row, pair by pair: what the fast kernels do again where values that are not
 * finite may have met hidden pairs. Slow, and hardly ever run. */
#ifndef FOCI_CUDA_HOPPER_CAREFUL_CUH
#define FOCI_CUDA_HOPPER_CAREFUL_CUH

#include "cuda/exact.h"
#include "cuda/hopper_tile.cuh"

namespace hopper {

/* What consumers know of a tile, through shared memory. */
struct ForwardTile {
    int number; /* -1: there are no more */
    int safe;   /* exact maximum throughout */
    int head, batch;
    int row, nq, nk; /* query of row 0 (below 0 in a block that leads) */
    int q0, k0;      /* first rows of the sequence */
    int first, last; /* key blocks, unless they are listed */
};

/* The logit of a pair, in base 2. */
template <class T>
__device__ __forceinline__ float careful_logit(const struct cuda_exact &x, const T *q,
                                               const T *k, int head, int far)
{
    const struct cuda_score &f = x.score;
    float                    dot = 0;
    for (int c = 0; c < x.d; c++)
        dot += T::to_float(q[c]) * T::to_float(k[c]);
    dot *= f.head_scale ? f.head_scale[head] : f.scale;
    if (f.slope) dot -= f.slope[head] * fabsf((float)far);
    return f.cap > 0 ? f.cap * f.unit * tanh_by_exp2(dot / f.cap) : dot;
}

/* Which of the 64 keys of tile t the query at pos sees. */
__device__ __forceinline__ uint64_t careful_seen(const struct cuda_exact &x, int pos,
                                                 int nk, int t)
{
    uint64_t seen = low_bits(x.causal ? min(nk, pos + 1) - t * 64 : nk - t * 64);
    if (!x.tiles.row0) return seen;
    if (pos < 0 || pos / 64 >= x.tiles.n_rows) return 0;
    for (int64_t r = x.tiles.row0[pos / 64]; r < x.tiles.row0[pos / 64 + 1]; r++) {
        const struct cuda_run run = x.tiles.rows[r];
        if (t >= run.begin && t < run.end)
            return run.mask < 0 ? seen : seen & x.tiles.by_query[run.mask][pos % 64];
    }
    return 0;
}

/* Output of query i of a tile's sequence, by one warp; norms are right already. */
template <class T>
__device__ __forceinline__ void careful_row(const struct cuda_exact &x,
                                            const ForwardTile &tile, int i, int lane)
{
    if (i < 0 || i >= tile.nq) return;
    const int head = tile.head, key_head = head / (x.heads / x.kv_heads);
    const int pos = i + tile.nk - tile.nq;
    const T  *q = (const T *)x.q.at + tile.batch * x.q.seq + head * x.q.head +
                 ((int64_t)tile.q0 + i) * x.q.row;
    const T *k = (const T *)x.k.at + tile.batch * x.k.seq + key_head * x.k.head +
                 (int64_t)tile.k0 * x.k.row;
    const T *v = (const T *)x.v.at + tile.batch * x.v.seq + key_head * x.v.head +
                 (int64_t)tile.k0 * x.v.row;
    float     out[8] = {}, sum = 0, top = -INFINITY;
    const int tiles = (tile.nk + 63) / 64;
#pragma unroll 1
    for (int t = 0; t < 2 * tiles; t++) { /* halves of tiles: a lane has a key */
        const uint64_t seen = careful_seen(x, pos, tile.nk, t / 2);
        const uint32_t part = (uint32_t)(seen >> t % 2 * 32);
        if (!part) continue;
        const int  j = t * 32 + lane;
        const bool mine = part >> lane & 1;
        float      p =
            mine ? careful_logit(x, q, k + j * x.k.row, head, pos - j) : -INFINITY;
        float high = p;
        for (int step = 16; step; step /= 2)
            high = fmaxf(high, __shfl_xor_sync(~0u, high, step));
        const float next = fmaxf(top, high), from = next == -INFINITY ? 0 : next;
        const float shrink = exp2_approx(top - from);
        top = next;
        p = exp2_approx(p - from);
        sum = sum * shrink + p;
#pragma unroll
        for (int c = 0; c < 8; c++)
            out[c] *= shrink;
#pragma unroll 1
        for (int l = 0; l < 32; l++) {
            const float w = __shfl_sync(~0u, p, l);
            if (!(part >> l & 1)) continue;
#pragma unroll
            for (int c = 0; c < 8; c++)
                if (c * 32 + lane < x.dv)
                    out[c] +=
                        w * T::to_float(v[(t * 32 + l) * x.v.row + c * 32 + lane]);
        }
    }
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (x.score.sink)
        sum += exp2_approx(x.score.sink[head] * 1.44269504088896341f - top);
    uint16_t *o = (uint16_t *)x.o.at + tile.batch * x.o.seq + head * x.o.head +
                  ((int64_t)tile.q0 + i) * x.o.row;
#pragma unroll
    for (int c = 0; c < 8; c++)
        if (c * 32 + lane < x.dv)
            o[c * 32 + lane] = (uint16_t)T::pack(sum == 0 ? 0 : out[c] / sum, 0);
}

} // namespace hopper
#endif
