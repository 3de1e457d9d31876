/* Exact attention forward on Hopper.
 *
 * One persistent block for each multiprocessor: a producer warp feeds tiles of Q, K and
 * V through the copy engine; two or three consumer warpgroups own 64 query rows each.
 * A consumer issues the scores of the next key block before the values of the current
 * one, so that softmax runs under matrix work; the warpgroups take turns at issuing.
 *
 * The reference of the exponentials is the exact running maximum, moved only when it
 * has risen by more than 2^8 (`exact`), or, in blocks without hidden pairs, a reference
 * that moves by a power of two when a sum has passed 2^16 (`quick`). Scores that rise
 * by 2^100 within one block defeat the latter: the sum is then not finite, and the tile
 * is done again with the exact maximum. */
#ifndef FOCI_CUDA_HOPPER_FORWARD_CUH
#define FOCI_CUDA_HOPPER_FORWARD_CUH

#include "cuda/exact.h"
#include "cuda/hopper_careful.cuh"

namespace hopper {

/* All pairs; key <= position; tables, sequences or both. */
enum Support { support_full, support_causal, support_listed };

/* Two key tiles of 64 that one block of a listed support has, and for each warpgroup
 * their masks: an entry of the dictionary, mask_none or mask_all. */
struct ForwardBlock {
    int tile[2], last, pad;
    int mask[3][2];
};

struct ForwardArgs {
    struct cuda_exact x;
    int              *counter;       /* tiles handed out, blocks done; zero before */
    int               row_tiles;     /* of one sequence, if all are alike */
    int               heads_at_once; /* heads whose K and V share the L2 */
    int               tiles;         /* -1: as sequences say */
    int               dynamic;       /* tiles are handed out by the counter */
};

template <class T_, int d_, int groups_, int keys_, bool q_registers_, Support support_,
          bool quick_, bool modified_ = false>
struct ForwardShape {
    using T = T_;
    static constexpr int     d = d_, groups = groups_, keys = keys_, stages = 2;
    static constexpr bool    q_registers = q_registers_, modified = modified_;
    static constexpr bool    quick = quick_, listed = support_ == support_listed;
    static constexpr Support support = support_;
    static constexpr int     rows = groups * 64, threads = (groups + 1) * 128;
    static constexpr int     panels = (d + 63) / 64, key_tiles = keys / 64;
    static constexpr int     box_keys = listed ? 64 : keys; /* of one load */
    static constexpr int q_bytes = rows * panels * 128, kv_bytes = keys * panels * 128;
    static constexpr int at_k = q_bytes, at_v = at_k + stages * kv_bytes,
                         at_barriers = at_v + stages * kv_bytes,
                         at_tile = at_barriers + 128, at_blocks = at_tile + 128;
    static constexpr int shared_bytes = at_blocks + 64 * stages + 1024;
    static constexpr int few = groups == 3 ? 32
                               : listed    ? 40
                                           : 24,
                         many = groups == 3 ? 160
                                : listed    ? 232
                                            : 240;
    static_assert(sizeof(ForwardTile) <= 64, "place of tiles");
    static_assert(!listed || keys % 64 == 0, "listed blocks have whole tiles");
    static_assert(shared_bytes <= 232448, "shared memory");
};

template <class C> struct ForwardShared {
    uint32_t      q, k, v, full_k, empty_k, full_v, empty_v, full_q, empty_q, done;
    ForwardTile  *tile; /* two, in turn: the last one is read until its end */
    int          *redo; /* set by consumers that want the tile again */
    ForwardBlock *blocks;
    __device__    __forceinline__ explicit ForwardShared(uint8_t *raw)
    {
        const uint32_t at = shared_address(raw);
        q = (at + 1023) & ~1023u;
        k = q + C::at_k, v = q + C::at_v;
        full_k = q + C::at_barriers, empty_k = full_k + 8 * C::stages;
        full_v = empty_k + 8 * C::stages, empty_v = full_v + 8 * C::stages;
        full_q = empty_v + 8 * C::stages, empty_q = full_q + 8, done = full_q + 16;
        redo = reinterpret_cast<int *>(raw + (q - at) + C::at_barriers + 120);
        tile = reinterpret_cast<ForwardTile *>(raw + (q - at) + C::at_tile);
        blocks = reinterpret_cast<ForwardBlock *>(raw + (q - at) + C::at_blocks);
    }
    __device__ __forceinline__ void init() const
    {
        for (int i = 0; i < C::stages; i++) {
            barrier_init(full_k + 8 * i, 1), barrier_init(full_v + 8 * i, 1);
            barrier_init(empty_k + 8 * i, C::groups * 4);
            barrier_init(empty_v + 8 * i, C::groups * 4);
        }
        barrier_init(full_q, 1), barrier_init(empty_q, C::groups * 4);
        barrier_init(done, C::groups * 4);
        *redo = 0;
        barrier_init_fence();
    }
};

} // namespace hopper
#endif
