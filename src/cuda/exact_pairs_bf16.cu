/* exact_pairs_bf16.cu -- gradients of biases and tables for bf16. */
#include "cuda/exact_pairs_launch.cuh"

int mma_bias_back_bf16(const struct cuda_exact *x, float *dbias)
{
    return bias_of_type<__nv_bfloat16>(x, dbias);
}

int mma_tables_back_bf16(const struct cuda_exact *x, float *sums, int first_band,
                         int n_bands)
{
    return tables_of_type<__nv_bfloat16>(x, sums, first_band, n_bands);
}
