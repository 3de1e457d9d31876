/* few.c -- transforms with few rows as lanes. */

static void transpose_load(float *out, const void *in, int64_t ld, int dtype, int n,
                           int d)
{
    for (int c = 0; c < d; c++)
        for (int i = 0; i < FEW_LANES; i++)
            out[c * FEW_LANES + i] = i < n ? element(in, i * ld + c, dtype) : 0.0f;
}

static void transpose_store(void *out, int64_t ld, int dtype, const float *in, int n,
                            int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld + c, dtype, in[c * FEW_LANES + i]);
}

static void transpose_add(float *out, int64_t ld, const float *in, const float *factor,
                          int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            out[i * ld + c] += (factor ? factor[c] : 1.0f) * in[c * FEW_LANES + i];
}

static void add_rows(float *out, const float *in, const float *factor, int d)
{
    for (int i = 0; i < d * FEW_LANES; i++)
        out[i] += factor[i / FEW_LANES] * in[i];
}

static void hadamard(float *out, const float *in, const int32_t *from,
                     const float *factor, int n, int folds)
{
    for (int t = 0; t < n * FEW_LANES; t++)
        out[t] = 0.0f;
    for (int t = 0; t < n * folds; t++) {
        const float *x = in + (from ? from[t] : t) * FEW_LANES;
        for (int i = 0; i < FEW_LANES; i++)
            out[t % n * FEW_LANES + i] += (factor ? factor[t] : 1.0f) * x[i];
    }
    for (int half = n / 2; half; half /= 2)
        for (int t = 0; t < n * FEW_LANES; t++)
            if (!(t / FEW_LANES & half)) {
                float *const a = out + t, *const b = a + half * FEW_LANES;
                const float sum = *a + *b, rest = *a - *b;
                *a = sum;
                *b = rest;
            }
}
