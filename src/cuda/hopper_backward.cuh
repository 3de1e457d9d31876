/* Exact attention backward on Hopper.
 *
 * A block owns 128 keys, 64 for each of two consumer warpgroups, and visits blocks of 64
 * queries, the last one first; dK and dV stay in registers. Scores and weights are kept
 * transposed (keys x queries), so that weights and dS are register operands of dV and dK;
 * dS also goes through shared memory, as operand of dQ across the warpgroups. Shared memory
 * is the bottleneck: what can be an operand in registers is one.
 *
 * dQ is added in f32 to tiles in memory by threads of their own, in the order of blocks of
 * keys: a tile has a count of the additions made to it, and a block waits until those of
 * all blocks before it are there. Blocks are started in that order too, so that none waits
 * for one that cannot run; and as all go through the queries from the end, a block comes
 * to a tile when the one before it has just been there. */
#ifndef FOCI_CUDA_HOPPER_BACKWARD_CUH
#define FOCI_CUDA_HOPPER_BACKWARD_CUH

#include "cuda/hopper_tile.cuh"

namespace hopper {

struct BackwardArgs {
    struct cuda_exact x;
    float            *dq;            /* tiles of 64 x d, in the order of threads */
    int              *turns;         /* of those tiles: additions made */
    int               row_tiles;     /* of one sequence, if all are alike */
    int               key_blocks;    /* likewise */
    int               heads_at_once; /* whose blocks run side by side */
};

template <class T_, int d_, bool causal_, bool listed_, bool modified_>
struct BackwardShape {
    using T = T_;
    static constexpr int  d = d_, queries = 64, keys = 128, threads = 384;
    static constexpr bool causal = causal_, listed = listed_, modified = modified_;
    /* With d = 64 registers hold K and V too, and a step works ahead of the next one. */
    static constexpr bool held = d == 64, ahead = d == 64;
    static constexpr int  panels = (d + 63) / 64, q_stages = 3, o_stages = 2,
                         s_stages = 2;
    /* Threads that add dQ to memory, a step each in turn, and the places they add from:
     * while one waits for the end of its addition, the next one begins. */
    static constexpr int reducers = d == 64 ? 3 : 2, buffers = d == 64 ? 3 : 1;
    static constexpr int k_bytes = keys * panels * 128,
                         q_bytes = queries * panels * 128;
    static constexpr int s_bytes = keys * queries * 2;
    static constexpr int dq_columns = d / 2,
                         dq_bytes = 64 * dq_columns * 4; /* a half */
    static constexpr int at_v = k_bytes, at_q = at_v + k_bytes,
                         at_o = at_q + q_stages * q_bytes,
                         at_s = at_o + o_stages * q_bytes,
                         at_dq = at_s + s_stages * s_bytes,
                         at_norm = at_dq + buffers * 2 * dq_bytes,
                         at_delta = at_norm + q_stages * queries * 4,
                         at_steps = at_delta + o_stages * queries * 4,
                         at_sums = at_steps + 32 * q_stages, at_work = at_sums + 64,
                         at_barriers = at_work + 64;
    /* Both consumers and the producer share 504 registers of a thread. */
    static constexpr int few = d == 64 ? 40 : 24, many = d == 64 ? 232 : 240;
    static constexpr int shared_bytes = at_barriers + 256 + 1024;
    static_assert(shared_bytes <= 232448, "shared memory");
};

/* A block of queries, as the producer announces it. */
struct BackwardStep {
    int row;     /* query of row 0, below 0 in a block that leads */
    int dq_tile; /* where its dQ is added up */
    int head;    /* of queries */
    int last;
    int turn;    /* how many blocks of keys add to it before */
    int mask[2]; /* of the warpgroups' key tiles */
};

/* A half of dQ that lies in shared memory: where it is to be added, when. */
struct BackwardSum {
    int dq_tile, turn; /* dq_tile -1: there are no more */
};

/* A block of keys of one key head. */
struct BackwardWork {
    int head, batch, block; /* head: of keys; block < 0: nothing to do */
    int nq, nk, q0, k0;
    int dq_tile0, dq_tiles; /* its tiles of dQ for head 0, tiles of one head */

    __device__ __forceinline__ explicit BackwardWork(const BackwardArgs &a)
    {
        const struct cuda_exact &x = a.x;
        if (x.seqs) {
            find_sequence(x);
            return;
        }
        const int all = x.kv_heads * (int)x.batch,
                  span = a.heads_at_once * a.key_blocks;
        const int wave = blockIdx.x / span, r = blockIdx.x - wave * span;
        const int at = wave * a.heads_at_once, now = min(a.heads_at_once, all - at);
        const int h = at + r % now;
        block = r / now;
        batch = h / x.kv_heads, head = h - batch * x.kv_heads;
        nq = (int)x.len_q, nk = (int)x.len_k, q0 = k0 = 0;
        dq_tile0 = batch * a.row_tiles, dq_tiles = (int)x.batch * a.row_tiles;
    }
    __device__ __forceinline__ void find_sequence(const struct cuda_exact &x)
    {
        const struct cuda_seq *s = x.seqs;
        const int              blocks = s[x.n_seqs].k_block[1];
        head = blocks ? blockIdx.x / blocks : x.kv_heads;
        block = -1;
        if (head >= x.kv_heads) return;
        int at = blockIdx.x - head * blocks, low = 0, high = x.n_seqs;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (s[middle].k_block[1] <= at)
                low = middle;
            else
                high = middle;
        }
        s += low;
        block = at - s->k_block[1];
        batch = s->b, nq = s->nq, nk = s->nk, q0 = (int)s->q0, k0 = (int)s->k0;
        dq_tile0 = s->q_block[0], dq_tiles = x.seqs[x.n_seqs].q_block[0];
    }
};

/* The first block of queries that sees a block of keys of a dense support. */
template <class C> __device__ __forceinline__ int first_queries(const BackwardWork &w)
{
    return C::causal ? max(w.block * C::keys - (w.nk - w.nq), 0) / C::queries : 0;
}

template <class C> struct BackwardShared {
    uint32_t      k, v, q, o, ds, dq, norm, delta;
    uint32_t      full_kv, full_q, empty_q, full_o, empty_o, full_dq, empty_dq;
    BackwardStep *steps;
    BackwardSum  *sums; /* [reducers][2] of the halves of dQ */
    int          *none; /* there is no step at all */
    BackwardWork *work;
    __device__    __forceinline__ explicit BackwardShared(uint8_t *raw)
    {
        const uint32_t at = shared_address(raw);
        k = (at + 1023) & ~1023u;
        v = k + C::at_v, q = k + C::at_q, o = k + C::at_o, ds = k + C::at_s;
        dq = k + C::at_dq, norm = k + C::at_norm, delta = k + C::at_delta;
        full_kv = k + C::at_barriers, full_q = full_kv + 8;
        empty_q = full_q + 8 * C::q_stages, full_o = empty_q + 8 * C::q_stages;
        empty_o = full_o + 8 * C::o_stages, full_dq = empty_o + 8 * C::o_stages;
        empty_dq = full_dq + 16 * C::reducers;
        steps = reinterpret_cast<BackwardStep *>(raw + (k - at) + C::at_steps);
        sums = reinterpret_cast<BackwardSum *>(raw + (k - at) + C::at_sums);
        none = reinterpret_cast<int *>(sums + 2 * C::reducers);
        work = reinterpret_cast<BackwardWork *>(raw + (k - at) + C::at_work);
    }
    __device__ __forceinline__ void init() const
    {
        barrier_init(full_kv, 1);
        for (int i = 0; i < C::q_stages; i++)
            barrier_init(full_q + 8 * i, 1), barrier_init(empty_q + 8 * i, 8);
        for (int i = 0; i < C::o_stages; i++)
            barrier_init(full_o + 8 * i, 1), barrier_init(empty_o + 8 * i, 8);
        for (int i = 0; i < 2 * C::reducers; i++)
            barrier_init(full_dq + 8 * i, 4);
        for (int i = 0; i < 2 * C::buffers; i++)
            barrier_init(empty_dq + 8 * i, 1);
        barrier_init_fence();
    }
};

/* ---- the producer ---- */

/* One warp: loads Q with the norms of its rows, and dO with their deltas. */
template <class C> struct BackwardProducer {
    const BackwardArgs      &a;
    const struct cuda_exact &x;
    const BackwardWork      &w;
    const BackwardShared<C> &s;
    const CUtensorMap       *mq, *mo;
    const int                lane;
    Ring<C::q_stages>        q{ 1 };
    Ring<C::o_stages>        o{ 1 };

    __device__ __forceinline__ BackwardProducer(const BackwardArgs      &args,
                                                const BackwardWork      &work,
                                                const BackwardShared<C> &shared,
                                                const CUtensorMap       *q_,
                                                const CUtensorMap       *o_)
        : a(args), x(args.x), w(work), s(shared), mq(q_), mo(o_), lane(threadIdx.x)
    {
    }

    __device__ __forceinline__ void load_keys(const CUtensorMap *mk,
                                              const CUtensorMap *mv, bool none)
    {
        if (lane) return;
        *s.none = none;
        barrier_expect(s.full_kv, 2 * C::k_bytes);
        const int row = w.k0 + w.block * C::keys;
        for (int p = 0; p < C::panels; p++) {
            load_box(s.k + p * C::keys * 128, mk, s.full_kv, p * 64, row, w.head,
                     w.batch);
            load_box(s.v + p * C::keys * 128, mv, s.full_kv, p * 64, row, w.head,
                     w.batch);
        }
    }

    /* Q or dO of a block of queries with a float for each row. */
    __device__ __forceinline__ void load_rows(const CUtensorMap *m, uint32_t to,
                                              uint32_t full, int row, int head,
                                              uint32_t floats, float x0, float x1)
    {
        if (lane == 0) {
#pragma unroll
            for (int p = 0; p < C::panels; p++)
                load_box(to + p * C::queries * 128, m, full, p * 64, w.q0 + row, head,
                         w.batch);
        }
        store_float(floats + 4 * lane, x0), store_float(floats + 4 * lane + 128, x1);
        __syncwarp();
        if (lane == 0) barrier_expect(full, C::q_bytes);
    }

    __device__ __forceinline__ void send(const BackwardStep &step)
    {
        const int     row0 = step.row + lane, row1 = row0 + 32;
        const bool    in0 = row0 >= 0 && row0 < w.nq, in1 = row1 >= 0 && row1 < w.nq;
        const int64_t at =
            ((int64_t)step.head * x.batch + w.batch) * x.len_q + w.q0 + row0;
        const float norm0 = in0 ? x.norm[at] : INFINITY;
        const float norm1 = in1 ? x.norm[at + 32] : INFINITY;
        const float delta0 = in0 ? x.delta[at] : 0, delta1 = in1 ? x.delta[at + 32] : 0;
        barrier_wait(s.empty_q + 8 * q.stage, q.parity);
        if (lane == 0) s.steps[q.stage] = step;
        load_rows(mq, s.q + q.stage * C::q_bytes, s.full_q + 8 * q.stage, step.row,
                  step.head, s.norm + q.stage * C::queries * 4, norm0, norm1);
        q.next();
        barrier_wait(s.empty_o + 8 * o.stage, o.parity);
        load_rows(mo, s.o + o.stage * C::q_bytes, s.full_o + 8 * o.stage, step.row,
                  step.head, s.delta + o.stage * C::queries * 4, delta0, delta1);
        o.next();
    }

    __device__ __forceinline__ void run_dense(const CUtensorMap *mk,
                                              const CUtensorMap *mv)
    {
        const int share = x.heads / x.kv_heads, first = first_queries<C>(w);
        load_keys(mk, mv, first >= a.row_tiles);
        BackwardStep step;
        step.mask[0] = step.mask[1] = mask_none;
        step.turn = w.block; /* what it meets, those before it meet */
        for (int g = 0; g < share; g++) {
            step.head = w.head * share + g;
#pragma unroll 1
            for (int m = a.row_tiles - 1; m >= first; m--) {
                step.row = m * C::queries;
                step.dq_tile = step.head * w.dq_tiles + w.dq_tile0 + m;
                step.last = g == share - 1 && m == first;
                send(step);
            }
        }
    }

    /* The position of query 0 in tiles of a table, and query 0 of its first tile. */
    __device__ __forceinline__ int shift() const
    {
        return x.tiles.row0 ? floor_of(w.nk - w.nq, 64) / 64 : 0;
    }
    __device__ __forceinline__ int row0() const
    {
        return x.tiles.row0 ? shift() * 64 - (w.nk - w.nq) : 0;
    }

    /* The walk of this lane's key tile over blocks of queries, which are counted as
     * tiles of dQ are; lanes 0 and 1 have one each. */
    __device__ __forceinline__ TileWalkDown walk() const
    {
        const int t = w.block * 2 + lane;
        int       end = (w.nq - row0() + 63) / 64, first = 0;
        if (x.causal) first = max(t * 64 - (w.nk - w.nq) - row0(), 0) / 64;
        if (lane > 1 || t * 64 >= w.nk || (x.tiles.row0 && t >= x.tiles.n_cols))
            end = 0;
        if (x.tiles.row0) first = max(first, -shift());
        TileWalkDown walk(first, end, shift());
        if (x.tiles.row0) walk.use(x.tiles.cols, x.tiles.col0, t);
        return walk;
    }

    /* How many blocks of keys before this one meet block m of queries: the table has
     * its key tiles in order, of which two make a block. What causality hides from a
     * block it hides from those after it. */
    __device__ __forceinline__ int turn(int m) const
    {
        if (!x.tiles.row0) return w.block;
        const int64_t begin = x.tiles.row0[m + shift()],
                      end = x.tiles.row0[m + shift() + 1];
        int n = 0;
        for (int64_t r = begin + lane; r < end; r += 32) {
            int       from = x.tiles.rows[r].begin / 2;
            const int to = min((x.tiles.rows[r].end + 1) / 2, w.block);
            if (r > begin && (x.tiles.rows[r - 1].end - 1) / 2 == from) from++;
            n += max(to - from, 0);
        }
        return __reduce_add_sync(~0u, n);
    }

    __device__ __forceinline__ bool next_tile(TileWalkDown &walk, BackwardStep &step)
    {
        const int mine = walk.peek();
        const int m = max(__shfl_sync(~0u, mine, 0), __shfl_sync(~0u, mine, 1));
        if (m < 0) return false;
        int mask = mask_all;
        if (mine == m) mask = walk.now.mask, walk.next = m - 1;
        step.mask[0] = __shfl_sync(~0u, mask, 0);
        step.mask[1] = __shfl_sync(~0u, mask, 1);
        step.row = m * 64 + row0();
        step.dq_tile = step.head * w.dq_tiles + w.dq_tile0 + m;
        step.turn = turn(m);
        return true;
    }

    __device__ __forceinline__ void run_listed(const CUtensorMap *mk,
                                               const CUtensorMap *mv)
    {
        const int    share = x.heads / x.kv_heads;
        BackwardStep now, then;
        for (int g = 0; g < share; g++) {
            TileWalkDown tiles = walk();
            now.head = then.head = w.head * share + g;
            bool more = next_tile(tiles, now);
            if (g == 0) load_keys(mk, mv, !more);
            while (more) {
                more = next_tile(tiles, then);
                now.last = !more && g == share - 1;
                send(now);
                now = then;
            }
        }
    }
};

/* One thread: adds the halves of dQ of every step that is its turn to memory. */
template <class C>
__device__ __forceinline__ void backward_reduce(const BackwardArgs      &a,
                                                const BackwardShared<C> &s, int reducer)
{
    const int      buffer = reducer % C::buffers;
    const uint32_t full = s.full_dq + 16 * reducer, empty = s.empty_dq + 16 * buffer;
    const uint32_t from = s.dq + 2 * buffer * C::dq_bytes;
    barrier_wait(s.full_kv, 0);
    if (*s.none) return;
    for (uint32_t parity = 0;; parity ^= 1) {
        int tile = 0, turn = 0;
        for (int half = 0; half < 2; half++) {
            barrier_wait(full + 8 * half, parity);
            const volatile BackwardSum *sum = s.sums + 2 * reducer + half;
            tile = sum->dq_tile, turn = sum->turn;
            if (tile < 0) return;
            if (half == 0) wait_turn(a.turns + tile, turn);
            float *to = a.dq + ((int64_t)tile * 2 + half) * (C::dq_bytes / 4);
            if (turn == 0)
                bulk_store(to, from + half * C::dq_bytes, C::dq_bytes);
            else
                bulk_add(to, from + half * C::dq_bytes, C::dq_bytes);
            bulk_commit();
        }
        bulk_wait_read<0>();
        barrier_arrive(empty), barrier_arrive(empty + 8);
        bulk_wait<0>();
        pass_turn(a.turns + tile, turn + 1);
    }
}

} // namespace hopper
#endif
