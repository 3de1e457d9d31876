/* products.c -- products of matrices. */

static void gemm_f32(float *c, int64_t ldc, const float *a, int64_t ra, int64_t ca,
                     const float *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = add ? c[i * ldc + j] : 0.0f;
            for (int t = 0; t < k; t++)
                sum += a[i * ra + t * ca] * b[t * ldb + j];
            c[i * ldc + j] = sum;
        }
}

static void gemm_bf16(float *c, int64_t ldc, const uint32_t *a, int64_t ra, int64_t ca,
                      const uint32_t *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = add ? c[i * ldc + j] : 0.0f;
            for (int t = 0; t < k; t++) {
                const uint32_t x = a[i * ra + t * ca], y = b[t * ldb + j];
                sum += from_bf16(x & 0xffff) * from_bf16(y & 0xffff);
                sum += from_bf16(x >> 16) * from_bf16(y >> 16);
            }
            c[i * ldc + j] = sum;
        }
}
