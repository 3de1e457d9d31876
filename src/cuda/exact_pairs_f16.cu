/* exact_pairs_f16.cu -- gradients of biases and tables for f16. */
#include "cuda/exact_pairs_launch.cuh"

int mma_bias_back_f16(const struct cuda_exact *x, float *dbias)
{
    return bias_of_type<__half>(x, dbias);
}

int mma_tables_back_f16(const struct cuda_exact *x, float *sums, int first_band,
                        int n_bands)
{
    return tables_of_type<__half>(x, sums, first_band, n_bands);
}
