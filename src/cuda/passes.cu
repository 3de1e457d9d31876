/* passes.cu -- sequences, cleared rows, numbers of heads, biases by distance, counts. */
#include "cuda/exact_block.cuh"
#include "cuda/passes.h"

static const int block_sizes[CUDA_N_BLOCKS] = CUDA_BLOCKS;

static cudaStream_t stream_of(const struct cuda_exact *x)
{
    return (cudaStream_t)x->stream;
}

static unsigned blocks_for(int64_t n, int threads)
{
    return (unsigned)((n + threads - 1) / threads);
}

/*
 * Sequences
 */

struct SeqArgs {
    struct cuda_lengths lengths;
    struct cuda_seq    *out;
    int                 n, aligned, sizes[CUDA_N_BLOCKS];
    int64_t             len_q, len_k;
};

DEVICE int clip(int64_t value, int64_t low, int64_t high)
{
    return (int)(value < low ? low : value > high ? high : value);
}

DEVICE void seq_rows(const SeqArgs &a, int s, struct cuda_seq *q)
{
    q->pad = 0;
    if (a.lengths.docs) {
        const int from = clip(a.lengths.docs[s], 0, a.len_q);
        const int to = clip(a.lengths.docs[s + 1], from, a.len_q);
        q->b = 0;
        q->q0 = q->k0 = from;
        q->nq = q->nk = to - from;
        return;
    }
    q->b = s;
    q->q0 = q->k0 = 0;
    q->nq = a.lengths.len_q ? clip(a.lengths.len_q[s], 0, a.len_q) : (int)a.len_q;
    q->nk = a.lengths.len_k ? clip(a.lengths.len_k[s], 0, a.len_k) : (int)a.len_k;
}

DEVICE int count_blocks(const struct cuda_seq &q, int size, bool keys, bool aligned)
{
    if (keys) return (q.nk + size - 1) / size;
    if (!q.nq) return 0;
    if (!aligned) return (q.nq + size - 1) / size;
    return floor_div(q.nk - 1, size) - floor_div(q.nk - q.nq, size) + 1;
}

enum { SEQ_THREADS = 256 };

/* Adds to what each thread has what those before it have. */
DEVICE void add_before(int sums[2 * CUDA_N_BLOCKS][SEQ_THREADS])
{
    for (int step = 1; step < SEQ_THREADS; step *= 2) {
        int before[2 * CUDA_N_BLOCKS];
        __syncthreads();
        for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++)
            before[i] = (int)threadIdx.x >= step ? sums[i][threadIdx.x - step] : 0;
        __syncthreads();
        for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++)
            sums[i][threadIdx.x] += before[i];
    }
    __syncthreads();
}

/* One CTA; a thread has a run of sequences. */

__global__ void __launch_bounds__(SEQ_THREADS) seqs_kernel(SeqArgs a)
{
    __shared__ int sums[2 * CUDA_N_BLOCKS][SEQ_THREADS];
    const int      each = (a.n + SEQ_THREADS - 1) / SEQ_THREADS;
    const int      from = min((int)threadIdx.x * each, a.n), to = min(from + each, a.n);
    int            at[2 * CUDA_N_BLOCKS] = {};

    for (int s = from; s < to; s++) {
        struct cuda_seq q;
        seq_rows(a, s, &q);
        for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++)
            at[i] += count_blocks(q, a.sizes[i / 2], i % 2, a.aligned);
    }
    for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++)
        sums[i][threadIdx.x] = at[i];
    add_before(sums);
    for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++)
        at[i] = threadIdx.x ? sums[i][threadIdx.x - 1] : 0;
    for (int s = from; s <= to; s++) {
        struct cuda_seq q = {};
        if (s < to)
            seq_rows(a, s, &q);
        else if (to < a.n || from == to)
            break; /* the last thread that has any writes the totals */
        for (int i = 0; i < 2 * CUDA_N_BLOCKS; i++) {
            (i % 2 ? q.k_block : q.q_block)[i / 2] = at[i];
            if (s < to) at[i] += count_blocks(q, a.sizes[i / 2], i % 2, a.aligned);
        }
        a.out[s] = q;
    }
    if (!a.n && !threadIdx.x) a.out[0] = cuda_seq{};
}

int cuda_pass_seqs(const struct cuda_exact *x, const struct cuda_lengths *lengths,
                   struct cuda_seq *seqs)
{
    SeqArgs a = { *lengths, seqs,     x->n_seqs, x->tiles.row0 != NULL,
                  {},       x->len_q, x->len_k };

    for (int i = 0; i < CUDA_N_BLOCKS; i++)
        a.sizes[i] = block_sizes[i];
    seqs_kernel<<<1, SEQ_THREADS, 0, stream_of(x)>>>(a);
    return cudaGetLastError();
}

/* Rows [first, end) of batch entry b belong to sequences. */
DEVICE void covered_rows(const struct cuda_exact &x, int b, bool keys, int64_t *first,
                         int64_t *end)
{
    *first = *end = 0;
    if (!x.seqs) {
        *end = keys ? x.len_k : x.len_q;
        return;
    }
    if (x.packed && !x.n_seqs) return;
    const struct cuda_seq &last = x.seqs[x.packed ? x.n_seqs - 1 : b];
    *first = x.packed ? x.seqs[0].q0 : 0;
    *end = last.q0 + (keys ? last.nk : last.nq);
}

__global__ void clear_kernel(const __grid_constant__ struct cuda_exact x,
                             struct cuda_out rows, int width, int bytes, bool keys)
{
    const int64_t n = keys ? x.len_k : x.len_q;
    const int     h = (int)blockIdx.y, b = (int)blockIdx.z;
    int64_t       first, end;

    covered_rows(x, b, keys, &first, &end);
    for (int64_t r = blockIdx.x; r < n; r += gridDim.x) {
        if (r >= first && r < end) continue;
        char *to =
            (char *)rows.at + (b * rows.seq + r * rows.row + h * rows.head) * bytes;
        for (int c = threadIdx.x; c < width; c += blockDim.x)
            to[c] = 0;
    }
}

static unsigned least(int64_t a, int64_t b) { return (unsigned)(a < b ? a : b); }

int cuda_pass_clear(const struct cuda_exact *x, const struct cuda_out *rows, int heads,
                    int width_bytes, int element_bytes, int keys)
{
    const int64_t n = keys ? x->len_k : x->len_q;

    if (!rows->at || !n || !x->batch || !heads) return 0;
    clear_kernel<<<dim3(least(n, 4096), (unsigned)heads, (unsigned)x->batch), 64, 0,
                   stream_of(x)>>>(*x, *rows, width_bytes, element_bytes, keys != 0);
    return cudaGetLastError();
}

__global__ void clear_lse_kernel(const __grid_constant__ struct cuda_exact x)
{
    const int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t h = blockIdx.y, b = blockIdx.z;
    int64_t       first, end;

    covered_rows(x, (int)b, false, &first, &end);
    if (r >= x.len_q || (r >= first && r < end)) return;
    if (x.lse) x.lse[b * x.lse_seq + h * x.lse_head + r] = -INFINITY;
    if (x.norm)
        x.norm[(h * x.batch + b) * x.len_q + r] = x.weigh == CUDA_RELU2 ? 0 : INFINITY;
}

int cuda_pass_clear_lse(const struct cuda_exact *x)
{
    if (!x->len_q || !x->batch) return 0;
    clear_lse_kernel<<<dim3(blocks_for(x->len_q, 128), (unsigned)x->heads, (unsigned)x->batch),
                       128, 0, stream_of(x)>>>(*x);
    return cudaGetLastError();
}

int cuda_pass_zero(void *stream, void *at, size_t bytes)
{
    return bytes ? cudaMemsetAsync(at, 0, bytes, (cudaStream_t)stream) : cudaSuccess;
}

/*
 * Numbers of heads, biases by distance
 */

__global__ void heads_kernel(struct cuda_factors f, double by, int heads, float *out)
{
    const int h = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (h >= heads) return;
    for (int i = 0; i < f.n; i++)
        by *= (double)f.params[f.at[i] + h];
    out[h] = (float)by;
}

int cuda_pass_heads(void *stream, const struct cuda_factors *f, double by, int heads,
                    float *out)
{
    heads_kernel<<<blocks_for(heads, 128), 128, 0, (cudaStream_t)stream>>>(*f, by,
                                                                           heads, out);
    return cudaGetLastError();
}

__global__ void rel_kernel(struct cuda_tables t, int64_t n_rel, int64_t rel0, float *rel)
{
    const int64_t d = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t h = blockIdx.y;
    if (d >= n_rel) return;
    double bias = 0;
    for (int i = 0; i < t.n; i++)
        bias += (double)t.params[t.at[i] + h * t.size[i] + t.entry[i][d]];
    bias *= (double)t.unit;
    if (t.slope) bias -= (double)t.slope[h] * fabs((double)(d - rel0));
    rel[h * n_rel + d] = (float)bias;
}

int cuda_pass_rel(void *stream, const struct cuda_tables *t, int heads, int64_t n_rel,
                  int64_t rel0, float *rel)
{
    rel_kernel<<<dim3(blocks_for(n_rel, 128), (unsigned)heads), 128, 0,
                 (cudaStream_t)stream>>>(*t, n_rel, rel0, rel);
    return cudaGetLastError();
}

/*
 * Keys that rows see: a thread for each row of each head, or of the first where all are
 * alike, which is not worth telling apart.
 */

__global__ void visible_kernel(const __grid_constant__ struct cuda_exact x)
{
    int number = (int)blockIdx.z, block = (int)blockIdx.x;

    if (x.seqs) number = find_seq(x, &block, false, 0);
    if (number < 0) return;
    const Seq s = seq_number(x, number, (int)blockIdx.y);
    if (block >= query_blocks(x, s, CUDA_TILE)) return;
    const int i0 = block_query(x, s, block, CUDA_TILE), i = i0 + (int)threadIdx.x;
    Walk      w = walk_keys(x, s, i0 + s.pos0, CUDA_TILE);
    int       n = 0;

    if (i < 0 || i >= s.nq) return;
    for (int t = walk_next(x, w); t >= 0; t = walk_next(x, w)) {
        uint64_t seen = keys_before(x, s, i + s.pos0, t * CUDA_TILE);
        if (w.mask >= 0) seen &= x.tiles.by_query[w.mask][i - i0];
        if (x.mask.at)
            for (int j = 0; j < CUDA_TILE; j++)
                if (given_hides(x, s, i, t * CUDA_TILE + j))
                    seen &= ~(UINT64_C(1) << j);
        n += __popcll(seen);
    }
    x.visible[row_place(x, s, i)] = n;
}

static unsigned query_grid(const struct cuda_exact *x)
{
    const int64_t more = x->tiles.row0 ? 1 : 0, size = CUDA_TILE;
    const int64_t rows = x->seqs && !x->packed ? x->len_q * x->n_seqs : x->len_q;

    if (!x->seqs) return (unsigned)((rows + size - 1) / size + more);
    return (unsigned)((rows + size - 1) / size + (int64_t)x->n_seqs * (1 + more));
}

int cuda_pass_visible(const struct cuda_exact *x)
{
    if (!x->len_q || !x->batch) return 0;
    visible_kernel<<<dim3(query_grid(x), (unsigned)x->heads, x->seqs ? 1 : (unsigned)x->batch),
                     CUDA_TILE, 0, stream_of(x)>>>(*x);
    return cudaGetLastError();
}

/*
 * Sums of a da
 */

/* Sixteen bytes of o times those of d_o. */
template <typename T> DEVICE float chunk_dot(const T *o, const T *g)
{
    constexpr int N = 16 / (int)sizeof(T);
    const uint4   a = *(const uint4 *)o, b = *(const uint4 *)g;
    float         sum = 0;
#pragma unroll
    for (int c = 0; c < N; c++)
        sum += to_float(((const T *)&a)[c]) * to_float(((const T *)&b)[c]);
    return sum;
}

/* delta: `lanes` lanes, a power of two, for each row.  CHUNKS: rows are read 16 bytes at a
 * time. */
template <typename T, bool CHUNKS>
__global__ void exact_delta_kernel(const __grid_constant__ struct cuda_exact x,
                                   int                                       lanes)
{
    constexpr int N = CHUNKS ? 16 / (int)sizeof(T) : 1;
    const int     lane = threadIdx.x % lanes;
    const int64_t row =
        (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
    const int64_t h = blockIdx.y, b = blockIdx.z;
    float         sum = 0;

    if (row < x.len_q) {
        const T *o = (const T *)x.o.at + b * x.o.seq + row * x.o.row + h * x.o.head;
        const T *g =
            (const T *)x.d_o.at + b * x.d_o.seq + row * x.d_o.row + h * x.d_o.head;
        for (int c = lane * N; c < x.dv; c += lanes * N)
            sum += CHUNKS ? chunk_dot(o + c, g + c) : to_float(o[c]) * to_float(g[c]);
    }
    for (int t = lanes / 2; t; t /= 2)
        sum += __shfl_xor_sync(~0u, sum, t);
    if (!lane && row < x.len_q) x.delta[(h * x.batch + b) * x.len_q + row] = sum;
}

static bool has_chunks(const void *at, int64_t seq, int64_t row, int64_t head, int n)
{
    return (uintptr_t)at % 16 == 0 && seq % n == 0 && row % n == 0 && head % n == 0;
}

template <typename T> static int delta_of_type(const struct cuda_exact *x)
{
    const int  n = 16 / (int)sizeof(T), threads = 128;
    const bool chunks = x->dv % n == 0 &&
                        has_chunks(x->o.at, x->o.seq, x->o.row, x->o.head, n) &&
                        has_chunks(x->d_o.at, x->d_o.seq, x->d_o.row, x->d_o.head, n);
    const cudaStream_t on = stream_of(x);
    int                lanes = 1;

    while (lanes < WARP && lanes * (chunks ? n : 1) < x->dv)
        lanes *= 2;
    const dim3 grid(blocks_for(x->len_q, threads / lanes), (unsigned)x->heads,
                    (unsigned)x->batch);
    if (chunks)
        exact_delta_kernel<T, true><<<grid, threads, 0, on>>>(*x, lanes);
    else
        exact_delta_kernel<T, false><<<grid, threads, 0, on>>>(*x, lanes);
    return cudaGetLastError();
}

int cuda_pass_delta(const struct cuda_exact *x)
{
    if (!x->len_q || !x->batch) return 0;
    switch (x->dtype) {
    case CUDA_F32: return delta_of_type<float>(x);
    case CUDA_BF16: return delta_of_type<__nv_bfloat16>(x);
    default: return delta_of_type<__half>(x);
    }
}
