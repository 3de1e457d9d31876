/* exact_backward.cuh -- gradients of exact attention with products of sm_80.
 *
 *     da = dO V^T,  ds = a (da - delta) for a softmax,  delta = rows of dO o
 *     dV = a^T dO,  dK = f ds^T Q,  dQ = f ds K
 *
 * Two kernels, one with a CTA for each tile of keys, which walks the queries that see it
 * and makes dK and dV, one with a CTA for each block of queries, which walks its keys and
 * makes dQ.  Weights are made anew in both: seven products instead of five, but each
 * gradient is summed by one CTA in one order, so that results repeat bit by bit.
 */
#ifndef FOCI_EXACT_BACKWARD_CUH
#define FOCI_EXACT_BACKWARD_CUH

#include "cuda/exact_sums.cuh"

/* What is known of the 64 queries of a block, in shared memory. */
struct QueryRows {
    float    f[CUDA_TILE];     /* factor of the product */
    float    norm[CUDA_TILE];  /* as forward saved it */
    float    delta[CUDA_TILE]; /* sum of a da */
    float    by[CUDA_TILE];    /* factor of ds */
    uint64_t drop[CUDA_TILE];
};

/* Factors of ds that cannot wait for the end. */
DEVICE bool scaled_early(const struct cuda_exact &x)
{
    return x.score.row_scale || x.score.head_scale;
}

/* From f with log2(e) in it to f of natural logits. */
DEVICE float natural_unit(const struct cuda_exact &x)
{
    return x.score.cap > 0 ? 1 : 1 / x.score.unit;
}

template <bool PLAIN>
DEVICE void load_query_rows(const struct cuda_exact &x, const Seq &s, int i0,
                            QueryRows *to)
{
    const int r = threadIdx.x;
    if (r >= CUDA_TILE) return;

    const int     i = i0 + r;
    const bool    there = i >= 0 && i < s.nq;
    const int64_t at = row_place(x, s, i);
    float         f = head_factor(x, s.h);

    if (!PLAIN) f *= row_factor(x, s, i);
    to->f[r] = f;
    to->by[r] = !PLAIN && scaled_early(x) ? f * natural_unit(x) : 1;
    to->norm[r] = there ? x.norm[at] : INFINITY;
    to->delta[r] = there ? x.delta[at] : 0;
    if (!PLAIN && x.drop_bound) to->drop[r] = drop_key(x, s, i);
}

/* What a pair is in the backward pass: the weight that values are summed with, the gradient
 * of the natural logit before its cap, and for the sums of rows what da adds to delta and
 * what delta adds to ds. */
struct PairBack {
    float p, ds, a_da, by_delta;
};

template <bool PLAIN>
DEVICE PairBack pair_back(const struct cuda_exact &x, const Seq &s,
                          const QueryRows *rows, int r, int i, int j, float product,
                          float da)
{
    const float norm = rows->norm[r], delta = rows->delta[r];
    float       level = 0, keep = 1, logit_of = product * rows->f[r];
    PairBack    y = {};

    if (PLAIN) {
        y.p = exp2_fast(logit_of - norm);
        y.ds = y.p * (da - delta);
        return y;
    }
    logit_of = logit(x, s, logit_of, i, j, &level);
    if (x.drop_bound) keep = drop_factor(x, s, rows->drop[r], j);
    da *= keep;
    const float slope = 1 - level * level;
    float       a;
    if (x.weigh == CUDA_RELU2) {
        const float z = logit_of < 0 ? 0 : logit_of;
        a = z * z * norm;
        y.ds = 2 * z * norm * da * slope;
    } else {
        a = exp2_fast(logit_of - norm);
        const float of_delta = x.weigh == CUDA_L2NORM ? a * a : a;
        y.a_da = a * da;
        y.by_delta = of_delta * slope;
        y.ds = y.a_da * slope - y.by_delta * delta;
    }
    y.p = a * keep;
    return y;
}

template <typename T>
DEVICE void store_row_pair(const struct cuda_out &out, int f32, int64_t at, int col,
                           float a, float b, int left)
{
    if (f32) {
        float *to = (float *)out.at + at + col;
        if (left >= 1) to[0] = a;
        if (left >= 2) to[1] = b;
    } else
        store_pair((T *)out.at + at + col, a, b, left);
}

template <typename T, int D> struct BackShape {
    static constexpr int TILE_BYTES = CUDA_TILE * D * (int)sizeof(T);
    static constexpr int STAGES = D * sizeof(T) > 256 ? 1 : 2;
    static constexpr int WEIGHTS = TILE_BYTES * (2 + 2 * STAGES);
    static constexpr int ROWS = WEIGHTS + CUDA_TILE * CUDA_TILE * (int)sizeof(T);
    static constexpr int BYTES = ROWS + 2 * (int)sizeof(QueryRows);
};

/* Which of the queries of a block see the keys of the warp's rows. */
template <bool PLAIN>
DEVICE void visible_queries(const struct cuda_exact &x, const Seq &s, int i0, int j0,
                            const int j[2], int mask, uint64_t seen[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        seen[e] = queries_after(x, s, i0, j[e]);
        if (mask >= 0) seen[e] &= x.tiles.by_key[mask][j[e] - j0];
        if constexpr (!PLAIN)
            if (x.mask.at) { /* a lane looks at its columns */
                for (int c = 0; c < 16; c++) {
                    const int col = c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
                    if (given_hides(x, s, i0 + col, j[e]))
                        seen[e] &= ~(UINT64_C(1) << col);
                }
                seen[e] = quad_and(seen[e]);
            }
    }
}

/* PART: 1 dV, 2 dK, 3 both. */
template <typename T, int D, bool PLAIN, int PART>
__global__ void __launch_bounds__(THREADS)
    exact_back_keys_kernel(const __grid_constant__ struct cuda_exact x)
{
    using Shape = BackShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int group = x.heads / x.kv_heads, h0 = (int)blockIdx.y * group;

    int number = (int)blockIdx.z, t = (int)blockIdx.x;
    if (x.seqs) number = find_seq(x, &t, true, 0);
    if (number < 0) return;
    Seq s = seq_number(x, number, h0);
    if (t * CUDA_TILE >= s.nk) return;

    const int  j0 = t * CUDA_TILE;
    const int  j[2] = { j0 + warp * 16 + lane / 4, j0 + warp * 16 + lane / 4 + 8 };
    const Rows k = key_rows(x, x.k, s, x.pages.k_page, sizeof(T));
    const Rows v = key_rows(x, x.v, s, x.pages.v_page, sizeof(T));

    char *const      q_at = shared + 2 * Shape::TILE_BYTES;
    char *const      g_at = q_at + Shape::STAGES * Shape::TILE_BYTES;
    QueryRows *const rows = (QueryRows *)(shared + Shape::ROWS);
    T *const         weights = (T *)(shared + Shape::WEIGHTS);
    const uint32_t k_tile = shared_address(shared), v_tile = k_tile + Shape::TILE_BYTES;
    const uint32_t q_tile = shared_address(q_at), g_tile = shared_address(g_at);
    float          dk[PART & 2 ? D / 8 : 1][4] = {}, dv[PART & 1 ? D / 8 : 1][4] = {};

    load_tile<T, D>(k_tile, shared, k, j0, s.nk, x.d, wide_rows(k, x.d, sizeof(T)));
    load_tile<T, D>(v_tile, shared + Shape::TILE_BYTES, v, j0, s.nk, x.dv,
                    wide_rows(v, x.dv, sizeof(T)));

    for (int h = h0; h < h0 + group; h++) {
        s.h = h;
        const Rows q = rows_of(x.q, s.b, s.q0, h, sizeof(T));
        const Rows g = rows_of(x.d_o, s.b, s.q0, h, sizeof(T));
        const bool wide_q = wide_rows(q, x.d, sizeof(T)),
                   wide_g = wide_rows(g, x.dv, sizeof(T));
        Walk w = walk_queries(x, s, t);
        int  u = walk_next(x, w), mask = w.mask, stage = 0;

        if (u >= 0) {
            const int i0 = block_query(x, s, u, CUDA_TILE);
            load_tile<T, D>(q_tile, q_at, q, i0, s.nq, x.d, wide_q);
            load_tile<T, D>(g_tile, g_at, g, i0, s.nq, x.dv, wide_g);
            load_query_rows<PLAIN>(x, s, i0, rows);
        }
        copy_commit();
        while (u >= 0) {
            const int        i0 = block_query(x, s, u, CUDA_TILE), now_mask = mask;
            const QueryRows *now = rows + stage;
            const int        next = Shape::STAGES > 1 ? stage ^ 1 : 0;
            const uint32_t   q_now = q_tile + stage * Shape::TILE_BYTES;
            const uint32_t   g_now = g_tile + stage * Shape::TILE_BYTES;

            u = walk_next(x, w);
            mask = w.mask;
            if (Shape::STAGES > 1 && u >= 0) {
                const int i1 = block_query(x, s, u, CUDA_TILE);
                load_tile<T, D>(q_tile + next * Shape::TILE_BYTES,
                                q_at + next * Shape::TILE_BYTES, q, i1, s.nq, x.d,
                                wide_q);
                load_tile<T, D>(g_tile + next * Shape::TILE_BYTES,
                                g_at + next * Shape::TILE_BYTES, g, i1, s.nq, x.dv,
                                wide_g);
                load_query_rows<PLAIN>(x, s, i1, rows + next);
            }
            if (Shape::STAGES > 1) {
                copy_commit();
                copy_wait<1>();
            } else
                copy_wait<0>();
            __syncthreads();

            float      c[8][4], da[8][4];
            uint64_t   seen[2] = { ~UINT64_C(0), ~UINT64_C(0) };
            const bool full = i0 >= 0 && i0 + CUDA_TILE <= s.nq &&
                              tile_is_full(x, s, now_mask, i0 + s.pos0, j0);

            Tiles<T>::template multiply_rows<D>(c, k_tile, warp * 16, q_now, x.d);
            Tiles<T>::template multiply_rows<D>(da, v_tile, warp * 16, g_now, x.dv);
            if (!full) visible_queries<PLAIN>(x, s, i0, j0, j, now_mask, seen);
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int      col = 8 * n + lane % 4 * 2 + (e & 1);
                    const PairBack y = pair_back<PLAIN>(x, s, now, col, i0 + col,
                                                        j[e >> 1], c[n][e], da[n][e]);
                    const bool     hidden = !(seen[e >> 1] >> col & 1);
                    c[n][e] = hidden ? 0 : y.p;
                    da[n][e] = hidden ? 0 : y.ds * now->by[col];
                }
            typename Tiles<T>::Operand a;
            if constexpr (PART & 1) {
                char *tile = g_at + stage * Shape::TILE_BYTES;
                if (!full && tile_nonfinite<T, D>(tile))
                    add_nonfinite<T, D>(dv, c, seen, tile, weights, x.dv);
                Tiles<T>::pack(a, c);
                Tiles<T>::template multiply_cols<D>(dv, a, g_now, x.dv);
            }
            if constexpr (PART & 2) {
                char *tile = q_at + stage * Shape::TILE_BYTES;
                if (!full && tile_nonfinite<T, D>(tile))
                    add_nonfinite<T, D>(dk, da, seen, tile, weights, x.d);
                Tiles<T>::pack(a, da);
                Tiles<T>::template multiply_cols<D>(dk, a, q_now, x.d);
            }
            __syncthreads();
            if (Shape::STAGES == 1 && u >= 0) {
                const int i1 = block_query(x, s, u, CUDA_TILE);
                load_tile<T, D>(q_tile, q_at, q, i1, s.nq, x.d, wide_q);
                load_tile<T, D>(g_tile, g_at, g, i1, s.nq, x.dv, wide_g);
                load_query_rows<PLAIN>(x, s, i1, rows);
                copy_commit();
            }
            stage = next;
        }
        copy_wait<0>();
        __syncthreads();
    }

    const float end = scaled_early(x) ? 1 : x.score.scale * natural_unit(x);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (j[e] >= s.nk) continue;
        const bool    none = j[e] < x.memory;
        const int64_t row = s.k0 + j[e];
        if constexpr (PART & 2)
            if (x.dk.at) {
                const int64_t at = s.b * x.dk.seq + row * x.dk.row + s.kv * x.dk.head;
#pragma unroll
                for (int c = 0; c < D / 8; c++) {
                    const int col = 8 * c + lane % 4 * 2;
                    store_row_pair<T>(x.dk, x.dk_f32, at, col,
                                      none ? 0 : dk[c][2 * e] * end,
                                      none ? 0 : dk[c][2 * e + 1] * end, x.d - col);
                }
            }
        if constexpr (PART & 1)
            if (x.dv_out.at) {
                const int64_t at =
                    s.b * x.dv_out.seq + row * x.dv_out.row + s.kv * x.dv_out.head;
#pragma unroll
                for (int c = 0; c < D / 8; c++) {
                    const int col = 8 * c + lane % 4 * 2;
                    store_row_pair<T>(x.dv_out, 0, at, col, none ? 0 : dv[c][2 * e],
                                      none ? 0 : dv[c][2 * e + 1], x.dv - col);
                }
            }
    }
}

/* Which of the keys of a tile the warp's queries see. */
template <bool PLAIN>
DEVICE void visible_to_queries(const struct cuda_exact &x, const Seq &s, int i0, int j0,
                               const int i[2], int mask, uint64_t seen[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        seen[e] = keys_before(x, s, i[e] + s.pos0, j0);
        if (i[e] < 0 || i[e] >= s.nq) seen[e] = 0;
        if (mask >= 0) seen[e] &= x.tiles.by_query[mask][i[e] - i0];
        if constexpr (!PLAIN)
            if (x.mask.at) { /* a lane looks at its columns */
                for (int c = 0; c < 16; c++) {
                    const int col = c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
                    if (given_hides(x, s, i[e], j0 + col))
                        seen[e] &= ~(UINT64_C(1) << col);
                }
                seen[e] = quad_and(seen[e]);
            }
    }
}

/* The gradient of a row's factor, sum over j of ds (q . k).  Where attention is peaked ds all
 * but cancels in the row, and delta comes from a rounded output: what it is off by, which the
 * sum of a da tells, is taken back. */
struct FactorSums {
    float ds_product, a_da, delta_product;

    __device__ __forceinline__ void add(const PairBack &y, float product)
    {
        ds_product += y.ds * product;
        a_da += y.a_da;
        delta_product += y.by_delta * product;
    }
    __device__ __forceinline__ float total(const float *delta, int warp, int lane,
                                           int e) const
    {
        const float of = delta[warp * 16 + lane / 4 + 8 * e], right = quad_sum(a_da);
        return quad_sum(ds_product) + (of - right) * quad_sum(delta_product);
    }
};

template <typename T, int D, bool PLAIN>
__global__ void __launch_bounds__(THREADS)
    exact_back_queries_kernel(const __grid_constant__ struct cuda_exact x)
{
    using Shape = BackShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    int number = (int)blockIdx.z, block = (int)(gridDim.x - 1 - blockIdx.x);
    if (x.seqs) number = find_seq(x, &block, false, 0);
    if (number < 0) return;
    const Seq s = seq_number(x, number, (int)blockIdx.y);
    if (block >= query_blocks(x, s, CUDA_TILE)) return;
    const int i0 = block_query(x, s, block, CUDA_TILE), pos = i0 + s.pos0;
    const int i[2] = { i0 + warp * 16 + lane / 4, i0 + warp * 16 + lane / 4 + 8 };

    const Rows q = rows_of(x.q, s.b, s.q0, s.h, sizeof(T));
    const Rows g = rows_of(x.d_o, s.b, s.q0, s.h, sizeof(T));
    const Rows k = key_rows(x, x.k, s, x.pages.k_page, sizeof(T));
    const Rows v = key_rows(x, x.v, s, x.pages.v_page, sizeof(T));
    const bool wide_k = wide_rows(k, x.d, sizeof(T)),
               wide_v = wide_rows(v, x.dv, sizeof(T));

    char *const      k_at = shared + 2 * Shape::TILE_BYTES;
    char *const      v_at = k_at + Shape::STAGES * Shape::TILE_BYTES;
    QueryRows *const rows = (QueryRows *)(shared + Shape::ROWS);
    T *const         weights = (T *)(shared + Shape::WEIGHTS);
    const uint32_t q_tile = shared_address(shared), g_tile = q_tile + Shape::TILE_BYTES;
    const uint32_t k_tile = shared_address(k_at), v_tile = shared_address(v_at);
    float          dq[D / 8][4] = {};
    FactorSums     sums[2] = {};
    Walk           w = walk_keys(x, s, pos, CUDA_TILE);
    int            t = walk_next(x, w), mask = w.mask, stage = 0;

    load_tile<T, D>(q_tile, shared, q, i0, s.nq, x.d, wide_rows(q, x.d, sizeof(T)));
    load_tile<T, D>(g_tile, shared + Shape::TILE_BYTES, g, i0, s.nq, x.dv,
                    wide_rows(g, x.dv, sizeof(T)));
    load_query_rows<PLAIN>(x, s, i0, rows);
    if (t >= 0) {
        load_tile<T, D>(k_tile, k_at, k, t * 64, s.nk, x.d, wide_k);
        load_tile<T, D>(v_tile, v_at, v, t * 64, s.nk, x.dv, wide_v);
    }
    copy_commit();
    while (t >= 0) {
        const int      j0 = t * CUDA_TILE, now_mask = mask;
        const int      next = Shape::STAGES > 1 ? stage ^ 1 : 0;
        const uint32_t k_now = k_tile + stage * Shape::TILE_BYTES;
        const uint32_t v_now = v_tile + stage * Shape::TILE_BYTES;

        t = walk_next(x, w);
        mask = w.mask;
        if (Shape::STAGES > 1 && t >= 0) {
            load_tile<T, D>(k_tile + next * Shape::TILE_BYTES,
                            k_at + next * Shape::TILE_BYTES, k, t * 64, s.nk, x.d,
                            wide_k);
            load_tile<T, D>(v_tile + next * Shape::TILE_BYTES,
                            v_at + next * Shape::TILE_BYTES, v, t * 64, s.nk, x.dv,
                            wide_v);
        }
        if (Shape::STAGES > 1) {
            copy_commit();
            copy_wait<1>();
        } else
            copy_wait<0>();
        __syncthreads();

        float      c[8][4], da[8][4];
        uint64_t   seen[2] = { ~UINT64_C(0), ~UINT64_C(0) };
        const bool full =
            i0 >= 0 && i0 + CUDA_TILE <= s.nq && tile_is_full(x, s, now_mask, pos, j0);

        Tiles<T>::template multiply_rows<D>(c, q_tile, warp * 16, k_now, x.d);
        Tiles<T>::template multiply_rows<D>(da, g_tile, warp * 16, v_now, x.dv);
        if (!full) visible_to_queries<PLAIN>(x, s, i0, j0, i, now_mask, seen);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int      col = 8 * n + lane % 4 * 2 + (e & 1);
                const int      r = warp * 16 + lane / 4 + 8 * (e >> 1);
                const PairBack y = pair_back<PLAIN>(x, s, rows, r, i[e >> 1], j0 + col,
                                                    c[n][e], da[n][e]);
                const bool     hidden = !(seen[e >> 1] >> col & 1);
                if (!PLAIN && !hidden) sums[e >> 1].add(y, c[n][e]);
                da[n][e] = hidden ? 0 : y.ds * rows->by[r];
            }
        char *tile = k_at + stage * Shape::TILE_BYTES;
        if (!full && tile_nonfinite<T, D>(tile))
            add_nonfinite<T, D>(dq, da, seen, tile, weights, x.d);
        typename Tiles<T>::Operand a;
        Tiles<T>::pack(a, da);
        Tiles<T>::template multiply_cols<D>(dq, a, k_now, x.d);
        __syncthreads();
        if (Shape::STAGES == 1 && t >= 0) {
            load_tile<T, D>(k_tile, k_at, k, t * 64, s.nk, x.d, wide_k);
            load_tile<T, D>(v_tile, v_at, v, t * 64, s.nk, x.dv, wide_v);
            copy_commit();
        }
        stage = next;
    }
    copy_wait<0>();
    __syncthreads(); /* where there was no tile, rows have not been waited for */

    const float end = scaled_early(x) ? 1 : x.score.scale * natural_unit(x);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float sum = PLAIN ? 0 : sums[e].total(rows->delta, warp, lane, e);
        if (i[e] < 0 || i[e] >= s.nq) continue;
        const int64_t at = s.b * x.dq.seq + (s.q0 + i[e]) * x.dq.row + s.h * x.dq.head;
        if (!PLAIN && x.row_ds && lane % 4 == 0) x.row_ds[row_place(x, s, i[e])] = sum;
        if (!x.dq.at) continue;
#pragma unroll
        for (int c = 0; c < D / 8; c++) {
            const int col = 8 * c + lane % 4 * 2;
            store_row_pair<T>(x.dq, x.dq_f32, at, col, dq[c][2 * e] * end,
                              dq[c][2 * e + 1] * end, x.d - col);
        }
    }
}

#endif
