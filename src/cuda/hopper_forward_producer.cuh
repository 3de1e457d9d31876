/* The producer of the Hopper forward kernel: which tiles there are, and what they need. */
#ifndef FOCI_CUDA_HOPPER_FORWARD_PRODUCER_CUH
#define FOCI_CUDA_HOPPER_FORWARD_PRODUCER_CUH

#include "cuda/hopper_forward.cuh"

namespace hopper {

template <class C> struct ForwardProducer {
    const ForwardArgs       &a;
    const struct cuda_exact &x;
    const ForwardShared<C>  &s;
    const CUtensorMap       *mq, *mk, *mv;
    const int                lane;
    Ring<C::stages>          k{ 1 }, v{ 1 };
    uint32_t                 q_parity = 1, done_parity = 0;
    ForwardTile              tile;
    int                      slot = 1;
    int sent = -1, again = -1; /* the tile sent last; one that must be done again */

    __device__ __forceinline__ ForwardProducer(const ForwardArgs      &args,
                                               const ForwardShared<C> &shared,
                                               const CUtensorMap      *q,
                                               const CUtensorMap      *kk,
                                               const CUtensorMap      *vv)
        : a(args), x(args.x), s(shared), mq(q), mk(kk), mv(vv), lane(threadIdx.x)
    {
    }

    __device__ __forceinline__ void decode_dense(int t)
    {
        const int all = x.heads * (int)x.batch, span = a.heads_at_once * a.row_tiles;
        const int wave = t / span, r = t - wave * span, at = wave * a.heads_at_once;
        const int now = min(a.heads_at_once, all - at);
        const int block =
            C::support == support_full ? r % a.row_tiles : a.row_tiles - 1 - r / now;
        const int h = at + (C::support == support_full ? r / a.row_tiles : r % now);
        tile.batch = h / x.heads, tile.head = h - tile.batch * x.heads;
        tile.nq = (int)x.len_q, tile.nk = (int)x.len_k, tile.q0 = tile.k0 = 0;
        tile.row = block * C::rows;
        int end = tile.nk;
        if (C::support == support_causal)
            end = min(end, tile.row + C::rows + tile.nk - tile.nq);
        tile.first = 0, tile.last = max((end + C::keys - 1) / C::keys, 1) - 1;
    }

    /* Heads outermost; of a head the last block first. */
    __device__ __forceinline__ void decode_listed(int t, int blocks)
    {
        int block = blocks - 1 - t % blocks, low = 0;
        tile.head = t / blocks;
        if (x.seqs) {
            int high = x.n_seqs;
            while (high - low > 1) {
                const int middle = (low + high) / 2;
                if (x.seqs[middle].q_block[C::groups - 1] <= block)
                    low = middle;
                else
                    high = middle;
            }
            const struct cuda_seq *q = x.seqs + low;
            block -= q->q_block[C::groups - 1];
            tile.batch = q->b, tile.nq = q->nq, tile.nk = q->nk, tile.q0 = (int)q->q0;
            tile.k0 = (int)q->k0;
        } else {
            tile.batch = block / a.row_tiles, block -= tile.batch * a.row_tiles;
            tile.nq = (int)x.len_q, tile.nk = (int)x.len_k, tile.q0 = tile.k0 = 0;
        }
        const int pos0 = tile.nk - tile.nq;
        tile.row = block * C::rows;
        if (x.tiles.row0) tile.row += floor_of(pos0, C::rows) - pos0;
    }

    __device__ __forceinline__ void load_rows(uint32_t to, uint32_t full,
                                              uint32_t empty, const CUtensorMap *m,
                                              Ring<C::stages> &ring, int row0, int row1)
    {
        const uint32_t bar = full + 8 * ring.stage;
        const int      head = tile.head / (x.heads / x.kv_heads);
        barrier_wait(empty + 8 * ring.stage, ring.parity);
        if (lane == 0) {
            barrier_expect(bar, C::kv_bytes);
#pragma unroll
            for (int i = 0; i < C::panels; i++)
#pragma unroll
                for (int j = 0; j < C::keys / C::box_keys; j++)
                    load_box(to + ring.stage * C::kv_bytes + i * C::keys * 128 +
                                 j * C::box_keys * 128,
                             m, bar, i * 64, j ? row1 : row0, head, tile.batch);
        }
        ring.next();
    }
    __device__ __forceinline__ void load_k(int row0, int row1)
    {
        load_rows(s.k, s.full_k, s.empty_k, mk, k, row0, row1);
    }
    __device__ __forceinline__ void load_v(int row0, int row1)
    {
        load_rows(s.v, s.full_v, s.empty_v, mv, v, row0, row1);
    }

    __device__ __forceinline__ void send_tile()
    {
        barrier_wait(s.empty_q, q_parity);
        q_parity ^= 1;
        slot ^= 1;
        if (lane == 0) {
            s.tile[slot] = tile;
            if (tile.number < 0) {
                barrier_arrive(s.full_q);
                return;
            }
            barrier_expect(s.full_q, C::q_bytes);
#pragma unroll
            for (int i = 0; i < C::panels; i++)
                load_box(s.q + i * C::rows * 128, mq, s.full_q, i * 64,
                         tile.q0 + tile.row, tile.head, tile.batch);
        }
    }

    /* Waits for the end of the tile sent last and asks whether it must be done again. At
     * this place in the stream consumers cannot have ended the tile after it. */
    __device__ __forceinline__ void ask()
    {
        if (!C::quick || sent < 0) return;
        barrier_wait(s.done, done_parity);
        done_parity ^= 1;
        if (*(volatile int *)s.redo) again = sent;
        __syncwarp();
        if (again >= 0 && lane == 0) *(volatile int *)s.redo = 0;
    }

    __device__ __forceinline__ void send_dense()
    {
        send_tile();
        load_k(tile.last * C::keys, 0);
        for (int j = tile.last; j >= tile.first; j--) {
            if (j > tile.first)
                load_k((j - 1) * C::keys, 0);
            else
                ask();
            load_v(j * C::keys, 0);
        }
    }

    /* The next block of up to key_tiles tiles; returns whether it has any. */
    __device__ __forceinline__ bool next_block(TileWalk &walk, ForwardBlock &b,
                                               int &mask0, int &mask1)
    {
        mask0 = mask1 = mask_all;
        b.tile[0] = b.tile[1] = -1;
#pragma unroll
        for (int i = 0; i < C::key_tiles; i++) {
            const int mine = walk.peek();
            int       t = min(mine, __shfl_sync(~0u, mine, 1));
            t = min(t, __shfl_sync(~0u, mine, 2));
            t = __shfl_sync(~0u, t, 0);
            if (t == INT32_MAX) break;
            b.tile[i] = t;
            if (mine == t) {
                (i ? mask1 : mask0) = walk.now.mask;
                walk.next = t + 1;
            }
        }
        return b.tile[0] >= 0;
    }

    /* Rows of K and V of a tile: beyond all rows, so zeros, if there is none. */
    __device__ __forceinline__ int key_row(int t) const
    {
        return t < 0 ? 0x40000000 : tile.k0 + t * 64;
    }

    /* Tiles of keys that the 64 rows from position pos on may meet. A lane looks for its
     * warpgroup; those without one see none. */
    __device__ __forceinline__ int keys_met(int pos) const
    {
        int limit = (tile.nk + 63) / 64;
        if (x.causal) limit = min(limit, pos + 64 <= 0 ? 0 : (pos + 127) / 64);
        if (lane >= C::groups ||
            (x.tiles.row0 && (pos < 0 || pos / 64 >= x.tiles.n_rows)))
            limit = 0;
        return limit;
    }

    __device__ __forceinline__ void send_listed()
    {
        send_tile();
        const int pos = tile.row + tile.nk - tile.nq + lane * 64;
        TileWalk  walk(0, keys_met(pos), 0);
        if (x.tiles.row0) walk.use(x.tiles.rows, x.tiles.row0, pos / 64);
        ForwardBlock now, then;
        int          m0, m1, n0, n1;
        next_block(walk, now, m0, m1);
        int  v0 = -1, v1 = -1;
        bool more, first = true;
        do {
            more = next_block(walk, then, n0, n1);
            barrier_wait(s.empty_k + 8 * k.stage, k.parity);
            ForwardBlock *to = s.blocks + k.stage;
            if (lane == 0)
                to->tile[0] = now.tile[0], to->tile[1] = now.tile[1], to->last = !more;
            if (lane < C::groups) to->mask[lane][0] = m0, to->mask[lane][1] = m1;
            __syncwarp();
            load_k(key_row(now.tile[0]), key_row(now.tile[1]));
            if (!first) load_v(key_row(v0), key_row(v1));
            v0 = now.tile[0], v1 = now.tile[1], first = false;
            now = then, m0 = n0, m1 = n1;
        } while (more);
        load_v(key_row(v0), key_row(v1));
    }

    __device__ __forceinline__ void send(int t, int blocks, int safe)
    {
        again = -1;
        tile.number = t, tile.safe = safe;
        if constexpr (C::listed) {
            decode_listed(t, blocks);
            send_listed();
        } else {
            decode_dense(t);
            send_dense();
        }
        sent = t;
    }

    __device__ __forceinline__ int take_next()
    {
        int next = INT32_MAX;
        if (a.dynamic) {
            if (lane == 0) next = atomicAdd(a.counter, 1) + gridDim.x;
            next = __shfl_sync(~0u, next, 0);
        }
        return next;
    }

    __device__ __forceinline__ void run()
    {
        int blocks = a.row_tiles * (int)x.batch, tiles = a.tiles;
        if (C::listed && x.seqs) {
            blocks = x.seqs[x.n_seqs].q_block[C::groups - 1];
            tiles = blocks * x.heads;
        }
        int t = blockIdx.x;
        while (t < tiles) {
            const int next = take_next();
            send(t, blocks, !C::quick);
            while (again >= 0)
                send(again, blocks, 1);
            t = next;
        }
        ask();
        sent = -1; /* it has been asked for */
        if (again >= 0) send(again, blocks, 1);
        tile.number = -1;
        send_tile();
    }
};

} // namespace hopper
#endif
