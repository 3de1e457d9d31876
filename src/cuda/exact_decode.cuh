/* exact_decode.cuh -- few queries and many keys, as in decoding: the keys are split among
 * CTAs, whose results are merged (Dao et al., Flash-Decoding, 2023).
 *
 * All queries of all heads that share keys, 16 rows at most, meet a tile of keys at once;
 * a warp has 16 keys of each tile, so that all warps multiply.  It keeps its own maximum,
 * sum and outputs to the end, where the four are merged, and then those of the splits.
 * Time is that of reading keys and values once.
 */
#include "cuda/exact_sums.cuh"

enum { DECODE_ROWS = 16, DECODE_STAGES = 2 };

/* What a split leaves: rows of outputs, relative to the maximum m, and the sum l. */
struct DecodePart {
    float m[DECODE_ROWS], l[DECODE_ROWS];
};

template <typename T, int D> struct DecodeShape {
    static constexpr int TILE_BYTES = CUDA_TILE * D * (int)sizeof(T);
    static constexpr int MERGE = 4 * DECODE_ROWS * (D + 2) * 4; /* after the loop */
    static constexpr int TILES = TILE_BYTES * 2 * DECODE_STAGES;
    static constexpr int Q = TILES > MERGE ? TILES : MERGE;
    static constexpr int BYTES = Q + DECODE_ROWS * D * (int)sizeof(T);
};

/* Row r of a block of decoding: query and head. */
DEVICE int decode_query(const Seq &s, int r) { return r % s.nq; }
DEVICE int decode_head(const struct cuda_exact &x, const Seq &s, int r)
{
    return s.kv * (x.heads / x.kv_heads) + r / s.nq;
}

/* Where part `split` of a sequence and key/value head lies in the work memory: floats
 * [rows][dv], then its maxima and sums. */
DEVICE float *decode_part(const struct cuda_exact &x, int s, int kv, int split,
                          int splits)
{
    const int64_t each = DECODE_ROWS * ((int64_t)x.dv + 2);
    return (float *)x.work + (((int64_t)s * x.kv_heads + kv) * splits + split) * each;
}

/* Merge two states of a row: what each is to be multiplied by. */
DEVICE float merged_max(float a, float b) { return fmaxf(a, b); }
DEVICE float part_factor(float m, float top)
{
    return m == -INFINITY ? 0 : exp2_fast(m - top);
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    exact_decode_kernel(const __grid_constant__ struct cuda_exact x, int splits)
{
    using Shape = DecodeShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int split = (int)blockIdx.x, number = (int)blockIdx.z;
    Seq       s = seq_number(x, number, 0);
    s.kv = (int)blockIdx.y;
    if (!s.nq) return;

    const int  n_rows = s.nq * (x.heads / x.kv_heads);
    const int  tiles = (s.nk + CUDA_TILE - 1) / CUDA_TILE;
    const int  first = (int)((int64_t)tiles * split / splits);
    const int  end = (int)((int64_t)tiles * (split + 1) / splits);
    const Rows k = key_rows(x, x.k, s, x.pages.k_page, sizeof(T));
    const Rows v = key_rows(x, x.v, s, x.pages.v_page, sizeof(T));
    const bool wide_k = wide_rows(k, x.d, sizeof(T)),
               wide_v = wide_rows(v, x.dv, sizeof(T));
    const uint32_t tile = shared_address(shared);

    for (int t = threadIdx.x; t < DECODE_ROWS * D; t += THREADS) { /* queries */
        const int r = t / D, c = t % D;
        T         e = from_float<T>(0);
        if (r < n_rows && c < x.d) {
            const Rows q = rows_of(x.q, s.b, s.q0 + decode_query(s, r),
                                   decode_head(x, s, r), sizeof(T));
            e = ((const T *)q.at)[c];
        }
        *tile_element<T, D>(shared + Shape::Q, r, c) = e;
    }

    int   pos[2];
    float m[2] = { -INFINITY, -INFINITY }, l[2] = { 0, 0 }, o[D / 8][4] = {};
    for (int e = 0; e < 2; e++) {
        const int r = lane / 4 + 8 * e;
        pos[e] = r < n_rows ? decode_query(s, r) + s.pos0 : -1;
    }
    for (int t = first; t < first + DECODE_STAGES - 1; t++) {
        const uint32_t at = tile + (t - first) * 2 * Shape::TILE_BYTES;
        if (t < end) {
            load_tile<T, D>(at, shared + (at - tile), k, t * 64, s.nk, x.d, wide_k);
            load_tile<T, D>(at + Shape::TILE_BYTES,
                            shared + (at - tile) + Shape::TILE_BYTES, v, t * 64, s.nk,
                            x.dv, wide_v);
        }
        copy_commit();
    }
    for (int t = first; t < end; t++) {
        const int      stage = (t - first) % DECODE_STAGES;
        const int      ahead = t + DECODE_STAGES - 1;
        const uint32_t now = tile + stage * 2 * Shape::TILE_BYTES;

        if (ahead < end) {
            const uint32_t at =
                tile + (ahead - first) % DECODE_STAGES * 2 * Shape::TILE_BYTES;
            load_tile<T, D>(at, shared + (at - tile), k, ahead * 64, s.nk, x.d, wide_k);
            load_tile<T, D>(at + Shape::TILE_BYTES,
                            shared + (at - tile) + Shape::TILE_BYTES, v, ahead * 64,
                            s.nk, x.dv, wide_v);
        }
        copy_commit();
        copy_wait<DECODE_STAGES - 1>();
        __syncthreads();

        float c[2][4] = {};
#pragma unroll
        for (int kk = 0; kk < D / 16; kk++) {
            if (kk * 16 >= x.d) break;
            uint32_t fa[4], fb[4];
            load_a<T, D>(fa, tile + Shape::Q, 0, kk);
            load_b_rows<T, D>(fb, now, 16 * warp, kk);
            Product<T>::add(c[0], fa, fb[0], fb[1]);
            Product<T>::add(c[1], fa, fb[2], fb[3]);
        }
        float scale[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float top = m[e];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int j =
                    t * 64 + 16 * warp + 8 * (n >> 1) + lane % 4 * 2 + (n & 1);
                float &a = c[n >> 1][2 * e + (n & 1)];
                a = j < s.nk && (!x.causal || j <= pos[e]) ? a * x.score.scale
                                                           : -INFINITY;
                top = fmaxf(top, a);
            }
            top = quad_max(top);
            const float from = top == -INFINITY ? 0 : top;
            scale[e] = exp2_fast(m[e] - from);
            l[e] *= scale[e];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float &a = c[n >> 1][2 * e + (n & 1)];
                a = exp2_fast(a - from);
                l[e] += a;
            }
            m[e] = top;
        }
        const uint32_t p[4] = { pack_pair<T>(c[0][0], c[0][1]),
                                pack_pair<T>(c[0][2], c[0][3]),
                                pack_pair<T>(c[1][0], c[1][1]),
                                pack_pair<T>(c[1][2], c[1][3]) };
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            if (n * 16 >= x.dv) break;
            uint32_t fb[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                o[2 * n][e] *= scale[e >> 1];
                o[2 * n + 1][e] *= scale[e >> 1];
            }
            load_b_cols<T, D>(fb, now + Shape::TILE_BYTES, warp, n);
            Product<T>::add(o[2 * n], p, fb[0], fb[1]);
            Product<T>::add(o[2 * n + 1], p, fb[2], fb[3]);
        }
        __syncthreads();
    }
    copy_wait<0>();
    __syncthreads();

    /* The four warps put down what they have: [warp][row][D + 2]. */
    float *const all = (float *)shared;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float *row = all + (warp * DECODE_ROWS + lane / 4 + 8 * e) * (D + 2);
        l[e] = quad_sum(l[e]);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            row[8 * n + lane % 4 * 2] = o[n][2 * e];
            row[8 * n + lane % 4 * 2 + 1] = o[n][2 * e + 1];
        }
        if (lane % 4 == 0) {
            row[D] = m[e];
            row[D + 1] = l[e];
        }
    }
    __syncthreads();
    float *const part = decode_part(x, number, s.kv, split, splits);
    for (int r = warp; r < n_rows; r += WARPS) {
        float top = -INFINITY, sum = 0, by[WARPS];
        for (int w = 0; w < WARPS; w++)
            top = fmaxf(top, all[(w * DECODE_ROWS + r) * (D + 2) + D]);
        for (int w = 0; w < WARPS; w++) {
            by[w] = part_factor(all[(w * DECODE_ROWS + r) * (D + 2) + D], top);
            sum += by[w] * all[(w * DECODE_ROWS + r) * (D + 2) + D + 1];
        }
        for (int c = lane; c < x.dv; c += WARP) {
            float y = 0;
            for (int w = 0; w < WARPS; w++)
                y += by[w] * all[(w * DECODE_ROWS + r) * (D + 2) + c];
            part[r * x.dv + c] = y;
        }
        if (!lane) {
            part[DECODE_ROWS * x.dv + r] = top;
            part[DECODE_ROWS * x.dv + DECODE_ROWS + r] = sum;
        }
    }
}

/* A warp for each row of each head: the parts of the splits, in order. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    exact_merge_kernel(const __grid_constant__ struct cuda_exact x, int splits)
{
    const int lane = threadIdx.x % WARP,
              row = (int)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int kv = (int)blockIdx.y, number = (int)blockIdx.z;
    Seq       s = seq_number(x, number, 0);
    s.kv = kv;
    if (!s.nq || row >= s.nq * (x.heads / x.kv_heads)) return;

    const int64_t each = decode_part(x, 0, 0, 1, 2) - decode_part(x, 0, 0, 0, 2);
    const float  *parts = decode_part(x, number, kv, 0, splits);
    const float  *tops = parts + DECODE_ROWS * x.dv + row, *sums = tops + DECODE_ROWS;
    const int     h = decode_head(x, s, row), i = decode_query(s, row);
    const float   sink =
        x.score.sink ? x.score.sink[h] * 1.44269504088896341f : -INFINITY;
    float top = -INFINITY, sum = 0;

    for (int p = lane; p < splits; p += WARP)
        top = fmaxf(top, tops[p * each]);
    for (int t = 16; t; t /= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, t));
    const bool none = top == -INFINITY;
    top = fmaxf(top, sink);
    for (int p = lane; p < splits; p += WARP)
        sum += part_factor(tops[p * each], top) * sums[p * each];
    for (int t = 16; t; t /= 2)
        sum += __shfl_xor_sync(~0u, sum, t);
    if (x.score.sink) sum += exp2_fast(sink - top);

    s.h = h;
    const float by = sum == 0 ? 0 : 1 / sum;
    T          *to = (T *)x.o.at + s.b * x.o.seq + (s.q0 + i) * x.o.row + h * x.o.head;
    for (int c = lane; c < x.dv; c += WARP) {
        float y = 0;
        for (int p = 0; p < splits; p++)
            y += part_factor(tops[p * each], top) * parts[p * each + row * x.dv + c];
        to[c] = from_float<T>(y * by);
    }
    if (lane) return;
    const float norm = (top == -INFINITY ? 0 : top) + log2f(sum);
    if (x.norm) x.norm[row_place(x, s, i)] = none ? INFINITY : norm;
    if (x.lse)
        x.lse[s.b * x.lse_seq + h * x.lse_head + s.q0 + i] =
            sum == 0 ? -INFINITY : norm * 0.69314718055994531f;
}
