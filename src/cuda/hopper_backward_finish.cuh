/* The pass after the Hopper backward kernel: dQ from sums of tiles in the order of threads,
 * f32, to rows. */
#ifndef FOCI_CUDA_HOPPER_BACKWARD_FINISH_CUH
#define FOCI_CUDA_HOPPER_BACKWARD_FINISH_CUH

#include "cuda/hopper_backward.cuh"
#include "cuda/hopper_backward_careful.cuh"

namespace hopper {

/* A block makes a tile of 64 queries, half of its columns for each 128 threads. */
template <class C>
__global__ void __launch_bounds__(256)
    backward_finish(const __grid_constant__ BackwardArgs a)
{
    const struct cuda_exact &x = a.x;
    int tile = blockIdx.x, batch = tile / max(a.row_tiles, 1), nq, nk, q0 = 0, k0 = 0;
    const int head = blockIdx.y;
    int64_t   from_tile;
    if (x.seqs) {
        const struct cuda_seq *s = x.seqs;
        const int              tiles = s[x.n_seqs].q_block[0];
        if (tile >= tiles) return;
        int low = 0, high = x.n_seqs;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (s[middle].q_block[0] <= tile)
                low = middle;
            else
                high = middle;
        }
        from_tile = (int64_t)head * tiles + tile;
        tile -= s[low].q_block[0];
        batch = s[low].b, nq = s[low].nq, nk = s[low].nk, q0 = (int)s[low].q0,
        k0 = (int)s[low].k0;
    } else {
        from_tile = (int64_t)head * a.row_tiles * x.batch + tile;
        tile -= batch * a.row_tiles, nq = (int)x.len_q, nk = (int)x.len_k;
    }
    const int     half = threadIdx.x >> 7, id = threadIdx.x & 127, lane = id & 31;
    const int     pos0 = nk - nq, row0 = x.tiles.row0 ? floor_of(pos0, 64) - pos0 : 0;
    const int     row = row0 + tile * 64 + (id >> 5) * 16 + (lane >> 2);
    const int     column = half * C::dq_columns;
    const float4 *from = reinterpret_cast<const float4 *>(
        a.dq + (from_tile * 2 + half) * (C::dq_bytes / 4));
    const bool any =
        a.turns[from_tile] > 0; /* or nothing was added, and it has no sum */
    float y[C::dq_columns / 2], test = 0;
#pragma unroll
    for (int i = 0; i < C::dq_columns / 8; i++) {
        const float4 z = any ? from[i * 128 + id] : make_float4(0, 0, 0, 0);
        y[4 * i] = z.x, y[4 * i + 1] = z.y, y[4 * i + 2] = z.z, y[4 * i + 3] = z.w;
        test += (z.x + z.y + z.z + z.w) * 0;
    }
    const bool    in0 = row >= 0 && row < nq, in1 = row >= -8 && row + 8 < nq;
    const float   by = natural_scale(x, head);
    const int64_t at =
        batch * x.dq.seq + head * x.dq.head + ((int64_t)q0 + row) * x.dq.row + column;
    if (x.dq_f32) {
        float *to = (float *)x.dq.at + at;
        store_row_f32<C::dq_columns>(to, y, by, in0 ? x.d - column : 0, lane);
        store_row_f32<C::dq_columns>(to + 8 * x.dq.row, y + 2, by,
                                     in1 ? x.d - column : 0, lane);
    } else {
        using T = typename C::T;
        uint16_t *to = (uint16_t *)x.dq.at + at;
        store_row<T, C::dq_columns>(to, y, by, in0 ? x.d - column : 0, lane);
        store_row<T, C::dq_columns>(to + 8 * x.dq.row, y + 2, by,
                                    in1 ? x.d - column : 0, lane);
    }
    /* Numbers that are not finite may have met hidden pairs. */
    if ((!C::causal && !C::listed) || !__any_sync(~0u, test != 0)) return;
    const CarefulSeq seq = { batch, nq, nk, q0, k0 };
    const int        columns = min(x.d - column, C::dq_columns);
    __syncwarp();
#pragma unroll 1
    for (int r = 0; r < 16; r++)
        careful_query<typename C::T>(
            x, seq, head, row0 + tile * 64 + (id >> 5) * 16 + r, column, columns, lane);
}

} // namespace hopper
#endif
