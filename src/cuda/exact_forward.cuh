/* exact_forward.cuh -- exact attention forward with products of sm_80.
 *
 * A CTA has 64 queries of one head, a warp 16 of them; it walks the key tiles they need
 * with the running maximum m and sum l of each row (Milakov and Gimelshein, Online
 * normalizer calculation for softmax, 2018; Dao, FlashAttention-2, 2023).  Scores and
 * weights stay in registers: accumulators of scores are, rounded, operands of the
 * product with the values.  While a tile is weighed the next one is copied.
 */
#include "cuda/exact_sums.cuh"

struct RowState {
    float m[2], l[2]; /* of rows lane / 4 and lane / 4 + 8 of the warp's 16 */
};

/* What a warp needs to know of its rows. */
struct ForwardRows {
    int      i[2]; /* queries */
    float    f[2], share[2];
    uint64_t drop[2];
};

template <bool PLAIN>
DEVICE ForwardRows forward_rows(const struct cuda_exact &x, const Seq &s, int i0)
{
    const int   lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    ForwardRows r;

#pragma unroll
    for (int e = 0; e < 2; e++) {
        r.i[e] = i0 + warp * 16 + lane / 4 + 8 * e;
        r.f[e] = head_factor(x, s.h);
        r.share[e] = 1;
        r.drop[e] = 0;
        if (PLAIN) continue;
        r.f[e] *= row_factor(x, s, r.i[e]);
        if (x.weigh == CUDA_RELU2)
            r.share[e] = r.i[e] >= 0 && r.i[e] < s.nq
                             ? x.score.share[x.visible[row_place(x, s, r.i[e])]]
                             : 0;
        if (x.drop_bound) r.drop[e] = drop_key(x, s, r.i[e]);
    }
    return r;
}

/* Pairs of the warp's rows and the tile's keys that are visible. */
template <bool PLAIN>
DEVICE void visible_keys(const struct cuda_exact &x, const Seq &s, const ForwardRows &r,
                         int i0, int j0, int mask, uint64_t seen[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        seen[e] = keys_before(x, s, r.i[e] + s.pos0, j0);
        if (mask >= 0) seen[e] &= x.tiles.by_query[mask][r.i[e] - i0];
    }
    if constexpr (!PLAIN)
        if (x.mask.at)
#pragma unroll
            for (int e = 0; e < 2; e++) { /* a lane looks at its columns */
                for (int c = 0; c < 16; c++) {
                    const int col = c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
                    if (given_hides(x, s, r.i[e], j0 + col))
                        seen[e] &= ~(UINT64_C(1) << col);
                }
                seen[e] = quad_and(seen[e]);
            }
}

/* Products to logits; hidden pairs to -inf. */
template <bool PLAIN>
DEVICE void make_logits(const struct cuda_exact &x, const Seq &s, const ForwardRows &r,
                        int j0, bool full, const uint64_t seen[2], float c[8][4])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[n][e] *= r.f[e >> 1];
    if (!PLAIN && !plain_logits(x)) {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float level;
                c[n][e] = logit(x, s, c[n][e], r.i[e >> 1],
                                j0 + 8 * n + threadIdx.x % 4 * 2 + (e & 1), &level);
            }
    }
    if (full) return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!(seen[e >> 1] >> (8 * n + threadIdx.x % 4 * 2 + (e & 1)) & 1))
                c[n][e] = -INFINITY;
}

/* Logits to weights relative to the running maximum; scale[2]: what sums and outputs so
 * far are to be multiplied by. */
DEVICE void weigh_rows(int weigh, const ForwardRows &r, RowState &state, float c[8][4],
                       float scale[2])
{
    if (weigh == CUDA_RELU2) {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) { /* NaN stays NaN */
                const float y = c[n][e] < 0 ? 0 : c[n][e];
                c[n][e] = y * y * r.share[e >> 1];
            }
        scale[0] = scale[1] = 1;
        return;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float m = -INFINITY;
#pragma unroll
        for (int n = 0; n < 8; n++)
            m = fmaxf(m, fmaxf(c[n][2 * e], c[n][2 * e + 1]));
        m = fmaxf(state.m[e], quad_max(m));
        const float from = m == -INFINITY ? 0 : m;
        scale[e] = exp2_fast(state.m[e] - from);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const float p = exp2_fast(c[n][2 * e + t] - from);
                c[n][2 * e + t] = p;
                sum += weigh == CUDA_L2NORM ? p * p : p;
            }
        const float by = weigh == CUDA_L2NORM ? scale[e] * scale[e] : scale[e];
        state.l[e] = state.l[e] * by + sum;
        state.m[e] = m;
    }
}

DEVICE void drop_weights(const struct cuda_exact &x, const Seq &s, const ForwardRows &r,
                         int j0, float c[8][4])
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[n][e] *= drop_factor(x, s, r.drop[e >> 1],
                                   j0 + 8 * n + threadIdx.x % 4 * 2 + (e & 1));
}

/* Sums of the four lanes of a row; then outputs, divisors. */
template <typename T, int D>
DEVICE void gemm_epilogue(const struct cuda_exact &x, const Seq &s, int weigh,
                        const ForwardRows &r, RowState &state, float o[D / 8][4])
{
    const int lane = threadIdx.x % WARP;

#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int i = r.i[e];
        float     by = 1, norm = r.share[e], lse;

        state.l[e] = quad_sum(state.l[e]);
        if (weigh == CUDA_RELU2)
            lse = norm > 0 ? -logf(norm) : -INFINITY;
        else {
            const float sink =
                x.score.sink ? x.score.sink[s.h] * 1.44269504088896341f : -INFINITY;
            const float m = fmaxf(state.m[e], sink), from = m == -INFINITY ? 0 : m;
            float       l = state.l[e];

            if (weigh == CUDA_SOFTMAX && x.score.sink) {
                by = exp2_fast(state.m[e] - from);
                l = l * by + exp2_fast(sink - from);
            }
            const float root = weigh == CUDA_L2NORM ? sqrtf(l) : l;
            by = root == 0 ? 0 : by / root;
            norm = from + log2f(root);
            lse = l == 0 ? -INFINITY : norm * 0.69314718055994531f;
            if (state.m[e] == -INFINITY && state.l[e] == 0) norm = INFINITY;
        }
        if (i < 0 || i >= s.nq) continue;
        T *to = (T *)x.o.at + s.b * x.o.seq + (s.q0 + i) * x.o.row + s.h * x.o.head;
#pragma unroll
        for (int c = 0; c < D / 8; c++) {
            const int col = 8 * c + lane % 4 * 2;
            store_pair(to + col, o[c][2 * e] * by, o[c][2 * e + 1] * by, x.dv - col);
        }
        if (lane % 4) continue;
        if (x.norm) x.norm[row_place(x, s, i)] = norm;
        if (x.lse) x.lse[s.b * x.lse_seq + s.h * x.lse_head + s.q0 + i] = lse;
    }
}

template <typename T, int D> struct ForwardShape {
    static constexpr int TILE_BYTES = CUDA_TILE * D * (int)sizeof(T);
    static constexpr int STAGES =
        D * sizeof(T) > 256 ? 1 : 2; /* copies of keys and of values */
    static constexpr int WEIGHTS = TILE_BYTES * (1 + 2 * STAGES);
    static constexpr int BYTES = WEIGHTS + CUDA_TILE * CUDA_TILE * (int)sizeof(T);
};

/* PLAIN: a softmax of scaled products under causality and tables alone. */
template <typename T, int D, bool PLAIN>
__global__ void __launch_bounds__(THREADS)
    exact_forward_kernel(const __grid_constant__ struct cuda_exact x)
{
    using Shape = ForwardShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const int                             warp = threadIdx.x / WARP;
    const int                             weigh = PLAIN ? (int)CUDA_SOFTMAX : x.weigh;

    int number = (int)blockIdx.z, block = (int)(gridDim.x - 1 - blockIdx.x);
    if (x.seqs) number = find_seq(x, &block, false, 0);
    if (number < 0) return;
    const Seq s = seq_number(x, number, (int)blockIdx.y);
    if (block >= query_blocks(x, s, CUDA_TILE)) return;
    const int i0 = block_query(x, s, block, CUDA_TILE), pos = i0 + s.pos0;

    const Rows q = rows_of(x.q, s.b, s.q0, s.h, sizeof(T));
    const Rows k = key_rows(x, x.k, s, x.pages.k_page, sizeof(T));
    const Rows v = key_rows(x, x.v, s, x.pages.v_page, sizeof(T));
    const bool wide_k = wide_rows(k, x.d, sizeof(T)),
               wide_v = wide_rows(v, x.dv, sizeof(T));

    char *const q_at = shared, *const k_at = shared + Shape::TILE_BYTES,
                *const v_at = k_at + Shape::STAGES * Shape::TILE_BYTES;
    const uint32_t     q_tile = shared_address(q_at), k_tile = shared_address(k_at),
                   v_tile = shared_address(v_at);

    const ForwardRows r = forward_rows<PLAIN>(x, s, i0);
    RowState          state = { { -INFINITY, -INFINITY }, { 0, 0 } };
    float             o[D / 8][4] = {};
    Walk              w = walk_keys(x, s, pos, CUDA_TILE);
    int               t = walk_next(x, w), mask = w.mask, stage = 0;

    load_tile<T, D>(q_tile, q_at, q, i0, s.nq, x.d, wide_rows(q, x.d, sizeof(T)));
    if (t >= 0) load_tile<T, D>(k_tile, k_at, k, t * 64, s.nk, x.d, wide_k);
    copy_commit();
    while (t >= 0) {
        const uint32_t             k_now = k_tile + stage * Shape::TILE_BYTES;
        const uint32_t             v_now = v_tile + stage * Shape::TILE_BYTES;
        char *const                v_here = v_at + stage * Shape::TILE_BYTES;
        const int                  j0 = t * CUDA_TILE, now_mask = mask;
        const bool                 full = tile_is_full(x, s, now_mask, pos, j0);
        float                      c[8][4];
        uint64_t                   seen[2] = { ~UINT64_C(0), ~UINT64_C(0) };
        float                      scale[2];
        typename Tiles<T>::Operand p;

        load_tile<T, D>(v_now, v_here, v, j0, s.nk, x.dv, wide_v);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        Tiles<T>::template multiply_rows<D>(c, q_tile, warp * 16, k_now, x.d);
        t = walk_next(x, w);
        mask = w.mask;
        const int next = Shape::STAGES > 1 ? stage ^ 1 : 0;
        if (Shape::STAGES == 1) __syncthreads(); /* the keys have been read */
        if (t >= 0)
            load_tile<T, D>(k_tile + next * Shape::TILE_BYTES,
                            k_at + next * Shape::TILE_BYTES, k, t * 64, s.nk, x.d,
                            wide_k);
        copy_commit();

        if (!full) visible_keys<PLAIN>(x, s, r, i0, j0, now_mask, seen);
        make_logits<PLAIN>(x, s, r, j0, full, seen, c);
        weigh_rows(weigh, r, state, c, scale);
        if (!PLAIN && x.drop_bound) drop_weights(x, s, r, j0, c);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                o[n][e] *= scale[e >> 1];
        Tiles<T>::pack(p, c);
        copy_wait<1>();
        __syncthreads();
        if (!full && tile_nonfinite<T, D>(v_here))
            add_nonfinite<T, D>(o, c, seen, v_here, (T *)(shared + Shape::WEIGHTS),
                                x.dv);
        Tiles<T>::template multiply_cols<D>(o, p, v_now, x.dv);
        if (Shape::STAGES == 1) __syncthreads(); /* the values have been read */
        stage = next;
    }
    copy_wait<0>();
    gemm_epilogue<T, D>(x, s, weigh, r, state, o);
}
