/* params.cu -- gradients of parameters that are numbers of heads.  A CTA has a head and
 * adds up its rows in one order, in double. */
#include "cuda/exact_block.cuh"
#include "cuda/mma.h"
#include "cuda/passes.h"

enum { SUM_THREADS = 256 };

/* The sum of what threads have, in thread 0; the others get 0. */
DEVICE double block_sum(double mine)
{
    __shared__ double sums[SUM_THREADS];

    sums[threadIdx.x] = mine;
    for (int n = SUM_THREADS / 2; n; n /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < n) sums[threadIdx.x] += sums[threadIdx.x + n];
    }
    return threadIdx.x ? 0 : sums[0];
}

/* Row r of batch entry b sees a key. */
DEVICE bool row_sees(const struct cuda_exact &x, int64_t at)
{
    return x.weigh == CUDA_RELU2 ? x.norm[at] != 0 : x.norm[at] != INFINITY;
}

__global__ void __launch_bounds__(SUM_THREADS)
    sink_kernel(const __grid_constant__ struct cuda_exact x, float *dparams)
{
    const int64_t h = blockIdx.x, n = x.batch * x.len_q;
    const double  sink = (double)x.score.sink[h] * 1.44269504088896340736;
    double        sum = 0;

    for (int64_t r = threadIdx.x; r < n; r += SUM_THREADS) {
        const int64_t at = h * n + r;
        if (row_sees(x, at))
            sum -= exp2(sink - (double)x.norm[at]) * (double)x.delta[at];
    }
    sum = block_sum(sum);
    if (!threadIdx.x) dparams[h] += (float)sum;
}

int cuda_pass_sink_back(const struct cuda_exact *x, float *dparams, int64_t at)
{
    sink_kernel<<<(unsigned)x->heads, SUM_THREADS, 0, (cudaStream_t)x->stream>>>(
        *x, dparams + at);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(SUM_THREADS)
    factors_kernel(const __grid_constant__ struct cuda_exact x, struct cuda_factors f,
                   double by, float *dparams)
{
    const int64_t h = blockIdx.x, n = x.batch * x.len_q;
    double        sum = 0;

    for (int64_t r = threadIdx.x; r < n; r += SUM_THREADS) {
        const int64_t at = h * n + r;
        if (!row_sees(x, at)) continue;
        const double row =
            x.score.row_scale ? (double)x.score.row_scale[x.visible[at]] : 1;
        sum += (double)x.row_ds[at] * row;
    }
    sum = block_sum(sum) * by;
    if (threadIdx.x) return;
    for (int i = 0; i < f.n; i++) {
        double others = sum;
        for (int t = 0; t < f.n; t++)
            if (t != i) others *= (double)f.params[f.at[t] + h];
        dparams[f.at[i] + h] += (float)others;
    }
}

int cuda_pass_factors_back(const struct cuda_exact *x, const struct cuda_factors *f,
                           double by, float *dparams)
{
    factors_kernel<<<(unsigned)x->heads, SUM_THREADS, 0, (cudaStream_t)x->stream>>>(
        *x, *f, by, dparams);
    return cudaGetLastError();
}

int cuda_pass_bias_back(const struct cuda_exact *x, float *dbias)
{
    if (!x->len_q || !x->len_k || !x->batch) return 0;
    return x->dtype == CUDA_F32    ? mma_bias_back_f32(x, dbias)
           : x->dtype == CUDA_BF16 ? mma_bias_back_bf16(x, dbias)
                                   : mma_bias_back_f16(x, dbias);
}

/* Distances in order, by one thread for each table and head: neighbours mostly share an
 * entry. */
__global__ void fold_kernel(struct cuda_tables t, int64_t rel0, int64_t first,
                            int64_t n, const float *sums, float *dparams)
{
    const int64_t  h = blockIdx.x, i = blockIdx.y;
    const int32_t *entry = t.entry[i] + rel0 + first;
    float         *table = dparams + t.at[i] + h * t.size[i];
    double         sum = 0;

    for (int64_t d = 0; d < n; d++) {
        sum += (double)sums[h * n + d];
        if (d + 1 < n && entry[d + 1] == entry[d]) continue;
        table[entry[d]] += (float)sum;
        sum = 0;
    }
}

int cuda_pass_tables_back(const struct cuda_exact *x, const struct cuda_tables *t,
                          int64_t rel0, int first_band, int n_bands, float *sums,
                          float *dparams)
{
    if (!x->len_q || !x->len_k || !x->batch) return 0;
    const int error =
        x->dtype == CUDA_F32    ? mma_tables_back_f32(x, sums, first_band, n_bands)
        : x->dtype == CUDA_BF16 ? mma_tables_back_bf16(x, sums, first_band, n_bands)
                                : mma_tables_back_f16(x, sums, first_band, n_bands);
    if (error) return error;
    fold_kernel<<<dim3((unsigned)x->heads, (unsigned)t->n), 1, 0, (cudaStream_t)x->stream>>>(
        *t, rel0, (int64_t)first_band * CUDA_TILE, (int64_t)n_bands * CUDA_TILE, sums,
        dparams);
    return cudaGetLastError();
}
