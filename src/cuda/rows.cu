/* rows.cu -- what becomes of rows of q and k before they meet, and the way back.
 *
 *     standard   y = (x - mean) / sqrt(variance + 1e-5)
 *     unit       y = x / |x|, norms floored at 1e-12
 *     rotate     pairs of elements by angles pos base^(-2t/d)  (Su et al., RoFormer, 2021)
 *
 * A warp has a row, and lane l the pairs l, l + 32, ... of its elements, so that a pair is
 * rotated by one lane.  Angles of far positions need more than single precision: they are
 * reduced in double, cosine and sine are then taken in float.
 */
#include "cuda/exact_block.cuh"
#include "cuda/passes.h"

enum { PAIRS = 4 }; /* of a lane: rows of 256 elements */

struct RowElements {
    float x[PAIRS][2];
};

/* Elements of pair t of a row of d: neighbours, or of the two halves. */
DEVICE void pair_places(const struct cuda_map &m, int d, int t, int *a, int *b)
{
    *a = m.rope_half ? t : 2 * t;
    *b = m.rope_half ? t + d / 2 : 2 * t + 1;
}

/* Of an odd d the last element stands alone; it is then never rotated. */
DEVICE int pairs_of(int d) { return (d + 1) / 2; }

template <typename E>
DEVICE RowElements load_row(const struct cuda_map &m, const E *row, int d)
{
    RowElements r;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        const int t = threadIdx.x % WARP + p * WARP;
        int       a, b;
        pair_places(m, d, t, &a, &b);
        r.x[p][0] = t < pairs_of(d) && a < d ? to_float(row[a]) : 0;
        r.x[p][1] = t < pairs_of(d) && b < d ? to_float(row[b]) : 0;
    }
    return r;
}

template <typename E>
DEVICE void store_row(const struct cuda_map &m, E *row, int d, const RowElements &r)
{
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        const int t = threadIdx.x % WARP + p * WARP;
        int       a, b;
        pair_places(m, d, t, &a, &b);
        if (t < pairs_of(d) && a < d) row[a] = from_float<E>(r.x[p][0]);
        if (t < pairs_of(d) && b < d) row[b] = from_float<E>(r.x[p][1]);
    }
}

DEVICE float warp_sum(float x)
{
    for (int t = 16; t; t /= 2)
        x += __shfl_xor_sync(~0u, x, t);
    return x;
}

DEVICE float row_dot(const RowElements &a, const RowElements &b)
{
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
        sum += a.x[p][0] * b.x[p][0] + a.x[p][1] * b.x[p][1];
    return warp_sum(sum);
}

/* Whether element e of pair p of the lane is one of the row. */
DEVICE bool is_there(const struct cuda_map &m, int d, int p, int e)
{
    const int t = threadIdx.x % WARP + p * WARP;
    int       at[2];
    pair_places(m, d, t, &at[0], &at[1]);
    return t < pairs_of(d) && at[e] < d;
}

DEVICE float row_mean(const RowElements &r, int d)
{
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
        sum += r.x[p][0] + r.x[p][1];
    return warp_sum(sum) / (float)d;
}

/* Subtract the mean; the result is the deviation. */
DEVICE float center(const struct cuda_map &m, RowElements &r, int d)
{
    const float mean = row_mean(r, d);
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (is_there(m, d, p, e)) r.x[p][e] -= mean;
    return sqrtf(row_dot(r, r) / (float)d + 1e-5f);
}

DEVICE void multiply(RowElements &r, float by)
{
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        r.x[p][0] *= by;
        r.x[p][1] *= by;
    }
}

/* a -= by b */
DEVICE void subtract(RowElements &a, const RowElements &b, float by)
{
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        a.x[p][0] -= by * b.x[p][0];
        a.x[p][1] -= by * b.x[p][1];
    }
}

DEVICE void rotate(const struct cuda_map &m, RowElements &r, int d, int pos, bool back)
{
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        const int t = threadIdx.x % WARP + p * WARP;
        if (t >= d / 2) continue;
        /* In turns of 2 pi, of which whole ones do not matter. */
        const double speed = exp2(-2 * (double)t / d * log2(m.rope_base));
        const double turns = (double)pos * speed * 0.15915494309189533577;
        float        sine, cosine;
        sincospif((float)(2 * (turns - rint(turns))), &sine, &cosine);
        if (back) sine = -sine;
        const float x = r.x[p][0], y = r.x[p][1];
        r.x[p][0] = cosine * x - sine * y;
        r.x[p][1] = sine * x + cosine * y;
    }
}

/* Norm of a row without overflow of its square. */
DEVICE float row_norm(const RowElements &r)
{
    float most = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++)
        most = fmaxf(most, fmaxf(fabsf(r.x[p][0]), fabsf(r.x[p][1])));
    for (int t = 16; t; t /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, t));
    if (!(most > 0) || isinf(most)) return sqrtf(row_dot(r, r));
    RowElements small = r;
    const float by = exp2f(-(float)ilogbf(most));
    multiply(small, by);
    return sqrtf(row_dot(small, small)) / by;
}

/* Row r of batch entry b: its position; false: it belongs to no sequence. */
DEVICE bool find_position(const struct cuda_exact &x, int b, int64_t row, bool keys,
                          int *pos)
{
    Seq s;
    int number = b;

    if (x.seqs && x.packed) {
        int low = 0, high = x.n_seqs;
        if (!high || row < x.seqs[0].q0) return false;
        while (high - low > 1) {
            const int mid = (low + high) / 2;
            if (x.seqs[mid].q0 <= row)
                low = mid;
            else
                high = mid;
        }
        number = low;
    }
    s = seq_number(x, number, 0);
    const int i = (int)(row - (keys ? s.k0 : s.q0));
    *pos = keys ? i : i + s.pos0;
    return i < (keys ? s.nk : s.nq);
}

enum { ROW_WARPS = 4 };

template <typename T>
__global__ void map_kernel(const __grid_constant__ struct cuda_exact x,
                           struct cuda_map m, bool keys, struct cuda_in from,
                           struct cuda_out to, int ld)
{
    const int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / WARP;
    const int64_t h = blockIdx.y, b = blockIdx.z;
    int           pos;

    if (row >= (keys ? x.len_k : x.len_q)) return;
    if (!find_position(x, (int)b, row, keys, &pos)) return;
    RowElements r = load_row(
        m, (const T *)from.at + b * from.seq + row * from.row + h * from.head, x.d);
    T *out = (T *)to.at + b * to.seq + row * to.row + h * to.head;

    if (m.standard) multiply(r, 1 / center(m, r, x.d));
    if (m.unit) multiply(r, 1 / fmaxf(row_norm(r), 1e-12f));
    if (m.rope_base > 0) rotate(m, r, x.d, pos, false);
    store_row(m, out, x.d, r);
    for (int c = x.d + threadIdx.x % WARP; c < ld; c += WARP)
        out[c] = from_float<T>(0);
}

template <typename T>
__global__ void map_back_kernel(const __grid_constant__ struct cuda_exact x,
                                struct cuda_map m, bool keys, struct cuda_in of,
                                struct cuda_in d_mapped, struct cuda_out to)
{
    const int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / WARP;
    const int64_t h = blockIdx.y, b = blockIdx.z;
    int           pos;

    if (row >= (keys ? x.len_k : x.len_q)) return;
    if (!find_position(x, (int)b, row, keys, &pos)) return;
    const T    *given = (const T *)of.at + b * of.seq + row * of.row + h * of.head;
    RowElements dy = load_row(m,
                              (const float *)d_mapped.at + b * d_mapped.seq +
                                  row * d_mapped.row + h * d_mapped.head,
                              x.d);
    RowElements y =
        load_row(m, given, x.d); /* what goes into each map, last one first */
    float deviation = 1;

    if (m.rope_base > 0) rotate(m, dy, x.d, pos, true);
    if (m.standard) {
        deviation = center(m, y, x.d);
        multiply(y, 1 / deviation);
    }
    if (m.unit) {
        const float norm = row_norm(y);
        if (norm >= 1e-12f) {
            RowElements u = y;
            multiply(u, 1 / norm);
            subtract(dy, u, row_dot(u, dy));
        }
        multiply(dy, 1 / fmaxf(norm, 1e-12f));
    }
    if (m.standard) {
        const float along = row_dot(y, dy) / (float)x.d, mean = row_mean(dy, x.d);
        subtract(dy, y, along);
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            dy.x[p][0] = (dy.x[p][0] - mean) / deviation;
            dy.x[p][1] = (dy.x[p][1] - mean) / deviation;
        }
    }
    store_row(m, (T *)to.at + b * to.seq + row * to.row + h * to.head, x.d, dy);
}

static dim3 row_grid(const struct cuda_exact *x, int keys)
{
    const int64_t n = keys ? x->len_k : x->len_q;
    return dim3((unsigned)((n + ROW_WARPS - 1) / ROW_WARPS),
                (unsigned)(keys ? x->kv_heads : x->heads), (unsigned)x->batch);
}

int cuda_pass_map(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                  const struct cuda_in *from, const struct cuda_out *to, int ld)
{
    const dim3         grid = row_grid(x, keys);
    const int          threads = ROW_WARPS * WARP;
    const cudaStream_t on = (cudaStream_t)x->stream;

    if (!grid.x || !grid.z) return 0;
    switch (x->dtype) {
    case CUDA_F32:
        map_kernel<float><<<grid, threads, 0, on>>>(*x, *m, keys != 0, *from, *to, ld);
        break;
    case CUDA_BF16:
        map_kernel<__nv_bfloat16>
            <<<grid, threads, 0, on>>>(*x, *m, keys != 0, *from, *to, ld);
        break;
    default:
        map_kernel<__half><<<grid, threads, 0, on>>>(*x, *m, keys != 0, *from, *to, ld);
    }
    return cudaGetLastError();
}

int cuda_pass_map_back(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                       const struct cuda_in *of, const struct cuda_in *d_mapped,
                       const struct cuda_out *to)
{
    const dim3         grid = row_grid(x, keys);
    const int          threads = ROW_WARPS * WARP;
    const cudaStream_t on = (cudaStream_t)x->stream;

    if (!grid.x || !grid.z || !to->at) return 0;
    switch (x->dtype) {
    case CUDA_F32:
        map_back_kernel<float>
            <<<grid, threads, 0, on>>>(*x, *m, keys != 0, *of, *d_mapped, *to);
        break;
    case CUDA_BF16:
        map_back_kernel<__nv_bfloat16>
            <<<grid, threads, 0, on>>>(*x, *m, keys != 0, *of, *d_mapped, *to);
        break;
    default:
        map_back_kernel<__half>
            <<<grid, threads, 0, on>>>(*x, *m, keys != 0, *of, *d_mapped, *to);
    }
    return cudaGetLastError();
}
