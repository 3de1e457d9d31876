/* exact_pairs.cuh -- gradients of what is added to the logits of pairs: of a bias that is
 * given, and of tables over distances.
 *
 * Both are sums of ds, which is made anew.  Of a bias, a CTA has 64 queries and adds to
 * the rows of the gradient that are theirs; heads that share it take turns inside the
 * CTA, sequences that do in launches of their own.  Of tables, a CTA has 64 distances of
 * one head and walks all pairs that stand so far apart, two tiles for each tile of keys.
 * Every sum has one order.
 */
#include "cuda/exact_backward.cuh"

template <typename T, int D> struct PairShape {
    static constexpr int TILE_BYTES = CUDA_TILE * D * (int)sizeof(T);
    static constexpr int ROWS = 4 * TILE_BYTES;
    static constexpr int DS = ROWS + (int)sizeof(QueryRows);
    static constexpr int DS_LD = CUDA_TILE + 1;
    static constexpr int BYTES = DS + CUDA_TILE * DS_LD * 4;
};

/* ds[64][DS_LD] of queries from i0 on and keys from j0 on, 0 where they are hidden, in
 * shared memory; mask is an entry of the dictionary, or -1. */
template <typename T, int D>
DEVICE void make_ds(const struct cuda_exact &x, const Seq &s, int i0, int j0, int mask,
                    char *shared)
{
    using Shape = PairShape<T, D>;
    const int      lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int      i[2] = { i0 + warp * 16 + lane / 4, i0 + warp * 16 + lane / 4 + 8 };
    const Rows     q = rows_of(x.q, s.b, s.q0, s.h, sizeof(T));
    const Rows     g = rows_of(x.d_o, s.b, s.q0, s.h, sizeof(T));
    const Rows     k = key_rows(x, x.k, s, x.pages.k_page, sizeof(T));
    const Rows     v = key_rows(x, x.v, s, x.pages.v_page, sizeof(T));
    const uint32_t tile = shared_address(shared);
    QueryRows *const rows = (QueryRows *)(shared + Shape::ROWS);
    float *const     out = (float *)(shared + Shape::DS);
    float            c[8][4], da[8][4];
    uint64_t         seen[2];

    load_tile<T, D>(tile, shared, q, i0, s.nq, x.d, wide_rows(q, x.d, sizeof(T)));
    load_tile<T, D>(tile + Shape::TILE_BYTES, shared + Shape::TILE_BYTES, g, i0, s.nq,
                    x.dv, wide_rows(g, x.dv, sizeof(T)));
    load_tile<T, D>(tile + 2 * Shape::TILE_BYTES, shared + 2 * Shape::TILE_BYTES, k, j0,
                    s.nk, x.d, wide_rows(k, x.d, sizeof(T)));
    load_tile<T, D>(tile + 3 * Shape::TILE_BYTES, shared + 3 * Shape::TILE_BYTES, v, j0,
                    s.nk, x.dv, wide_rows(v, x.dv, sizeof(T)));
    load_query_rows<false>(x, s, i0, rows);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    Tiles<T>::template multiply_rows<D>(c, tile, warp * 16,
                                        tile + 2 * Shape::TILE_BYTES, x.d);
    Tiles<T>::template multiply_rows<D>(da, tile + Shape::TILE_BYTES, warp * 16,
                                        tile + 3 * Shape::TILE_BYTES, x.dv);
    visible_to_queries<false>(x, s, i0, j0, i, mask, seen);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int      col = 8 * n + lane % 4 * 2 + (e & 1);
            const int      r = warp * 16 + lane / 4 + 8 * (e >> 1);
            const PairBack y =
                pair_back<false>(x, s, rows, r, i[e >> 1], j0 + col, c[n][e], da[n][e]);
            out[r * Shape::DS_LD + col] = seen[e >> 1] >> col & 1 ? y.ds : 0;
        }
    __syncthreads();
}

/* dbias: [rows of the bias], laid out as it; only sequences of batch entry `only`, or of
 * all where that is -1. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    exact_bias_back_kernel(const __grid_constant__ struct cuda_exact x, float *dbias,
                           int only)
{
    using Shape = PairShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const float *const                    ds = (const float *)(shared + Shape::DS);

    int number = only < 0 ? (int)blockIdx.z : only, block = (int)blockIdx.x;
    if (x.seqs) number = find_seq(x, &block, false, 0);
    if (number < 0) return;
    const int first = x.bias.head ? (int)blockIdx.y : 0;
    Seq       s = seq_number(x, number, first);
    if (only >= 0 && s.b != only) return;
    if (block >= query_blocks(x, s, CUDA_TILE)) return;
    const int i0 = block_query(x, s, block, CUDA_TILE);

    for (int h = first; h < (x.bias.head ? first + 1 : x.heads); h++) {
        s = seq_number(x, number, h);
        Walk w = walk_keys(x, s, i0 + s.pos0, CUDA_TILE);
        for (int t = walk_next(x, w); t >= 0; t = walk_next(x, w)) {
            make_ds<T, D>(x, s, i0, t * CUDA_TILE, w.mask, shared);
            float *to = dbias + s.b * x.bias.seq + s.h * x.bias.head;
            for (int e = threadIdx.x; e < CUDA_TILE * CUDA_TILE; e += THREADS) {
                const int r = e / CUDA_TILE, i = i0 + r,
                          j = t * CUDA_TILE + e % CUDA_TILE;
                if (i >= 0 && i < s.nq && j < s.nk)
                    to[(s.q0 + i) * x.bias.row + s.k0 + j] +=
                        ds[r * Shape::DS_LD + e % CUDA_TILE];
            }
            __syncthreads();
        }
    }
}

/* The entry of the dictionary for a tile of positions p and keys t; -1: all of it, -2:
 * nothing is seen. */
DEVICE int find_tile(const struct cuda_exact &x, int p, int t)
{
    if (!x.tiles.row0) return -1;
    if (p < 0 || p >= x.tiles.n_rows) return -2;
    int64_t low = x.tiles.row0[p], high = x.tiles.row0[p + 1];
    while (low < high) { /* the first run that ends beyond t */
        const int64_t mid = (low + high) / 2;
        if (x.tiles.rows[mid].end <= t)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == x.tiles.row0[p + 1] || x.tiles.rows[low].begin > t) return -2;
    return x.tiles.rows[low].mask;
}

/* sums[heads][n_bands 64]: of distances from 64 first_band on. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    exact_tables_back_kernel(const __grid_constant__ struct cuda_exact x, float *sums,
                             int first_band)
{
    using Shape = PairShape<T, D>;
    extern __shared__ __align__(128) char shared[];
    const float *const                    ds = (const float *)(shared + Shape::DS);
    const int band = first_band + (int)blockIdx.x, h = (int)blockIdx.y;
    const int d = (int)threadIdx.x; /* distance 64 band + d, of 64 threads */
    double    sum = 0;

    for (int number = 0; number < x.n_seqs; number++) {
        const Seq s = seq_number(x, number, h);
        for (int t = 0; t * CUDA_TILE < s.nk; t++)
            for (int half = 0; half < 2; half++) {
                const int p = t + band + half, i0 = p * CUDA_TILE - s.pos0;
                const int mask = find_tile(x, p, t);
                if (mask == -2 || i0 + CUDA_TILE <= 0 || i0 >= s.nq) continue;
                if (x.causal && p < t) continue;
                make_ds<T, D>(x, s, i0, t * CUDA_TILE, mask, shared);
                if (d < CUDA_TILE)
                    for (int c = half ? CUDA_TILE - d : 0;
                         c < (half ? CUDA_TILE : CUDA_TILE - d); c++)
                        sum +=
                            (double)ds[(c + d - half * CUDA_TILE) * Shape::DS_LD + c];
                __syncthreads();
            }
    }
    if (d < CUDA_TILE)
        sums[((int64_t)h * gridDim.x + blockIdx.x) * CUDA_TILE + d] = (float)sum;
}
