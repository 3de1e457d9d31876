/* chunk.c -- linear attention within a chunk. */

static float near(float a, int key, int lane, const float *by, int both)
{
    if (!both && key > lane) return 0.0f;
    return by ? a * by[key * LANES + lane] : a;
}

static void near_f32(float *a, int n, const float *by, int both, float *sum)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            a[j * LANES + i] = near(a[j * LANES + i], j, i, by, both);
            sum[i] += a[j * LANES + i];
        }
}

static void near_bf16(const float *a, uint32_t *p, int n, int k, const float *by,
                      int both, float *sum)
{
    memset(p, 0, (size_t)k * LANES * sizeof *p);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const float w = near(a[j * LANES + i], j, i, by, both);

            sum[i] += w;
            p[j / 2 * LANES + i] |= (uint32_t)to_bf16(w) << 16 * (j & 1);
        }
}

static void row_sums(float *out, const float *x, int rows, const float *by)
{
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int i = 0; i < LANES; i++)
            sum += by ? x[r * LANES + i] * by[i] : x[r * LANES + i];
        out[r] += sum;
    }
}

static void row_tops(float *top, const float *x, int rows)
{
    for (int r = 0; r < rows; r++) {
        top[r] = -INFINITY;
        for (int i = 0; i < LANES; i++)
            if (x[r * LANES + i] > top[r]) top[r] = x[r * LANES + i];
    }
}

static void exp_rows(float *x, int rows, const float *base)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < LANES; i++) {
            const float from = base[r] == -INFINITY ? 0.0f : base[r];
            x[r * LANES + i] = expf(x[r * LANES + i] - from);
        }
}

static void exp_cols(float *x, int rows, const float *add, float *top)
{
    for (int i = 0; i < LANES; i++) {
        top[i] = -INFINITY;
        for (int r = 0; r < rows; r++) {
            const float t = x[r * LANES + i] + (add ? add[r] : 0.0f);
            if (t > top[i]) top[i] = t;
        }
        const float from = top[i] == -INFINITY ? 0.0f : top[i];
        for (int r = 0; r < rows; r++)
            x[r * LANES + i] = expf(x[r * LANES + i] + (add ? add[r] : 0.0f) - from);
    }
}

static int all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}
