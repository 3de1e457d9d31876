/* products.c -- matrix products: row by row of c, one term of all its elements at a time, so
 * that rows of b and c are read in order. */

static void gemm_f32(float *c, int64_t ldc, const float *a, int64_t ra, int64_t ca,
                     const float *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++) {
        float *row = c + i * ldc;

        for (int j = 0; j < n && !add; j++)
            row[j] = 0.0f;
        for (int t = 0; t < k; t++) {
            const float  x = a[i * ra + t * ca];
            const float *y = b + t * ldb;
            for (int j = 0; j < n; j++)
                row[j] += x * y[j];
        }
    }
}

static void panel_f32(const struct panel_f32 *x)
{
    for (int i = 0; i < x->m; i++) {
        float row[LANES] = { 0.0f };

        if (x->sums) memcpy(row, x->sums + i * x->lds, sizeof row);
        for (int t = 0; t < x->k; t++)
            for (int j = 0; j < LANES; j++)
                row[j] += x->a[i * x->ra + t * x->ca] * x->b[(int64_t)t * LANES + j];
        memcpy(x->out + i * x->ldo, row, sizeof row);
    }
}

static void gemm_bf16(float *c, int64_t ldc, const uint32_t *a, int64_t ra, int64_t ca,
                      const uint32_t *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++) {
        float *row = c + i * ldc;

        for (int j = 0; j < n && !add; j++)
            row[j] = 0.0f;
        for (int t = 0; t < k; t++) {
            const uint32_t  x = a[i * ra + t * ca];
            const float     low = from_bf16(x & 0xffff), high = from_bf16(x >> 16);
            const uint32_t *y = b + t * ldb;
            for (int j = 0; j < n; j++) {
                row[j] += low * from_bf16(y[j] & 0xffff);
                row[j] += high * from_bf16(y[j] >> 16);
            }
        }
    }
}
