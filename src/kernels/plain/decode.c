/* decode.c -- decoding, one row of queries at a time. */

static void dots_f32(float *s, const float *q, int64_t ldq, int rows, const void *k,
                     int64_t ldk, int dtype, int n, int d)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int c = 0; c < d; c++)
                sum += q[r * ldq + c] * element(k, j * ldk + c, dtype);
            s[r * LANES + j] = sum;
        }
}

static void dots_bf16(float *s, const uint32_t *q, int64_t ldq, int rows,
                      const uint16_t *k, int64_t ldk, int n, int d)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int c = 0; c < d; c++)
                sum += from_bf16(q[r * ldq + c / 2] >> c % 2 * 16 & 0xffff) *
                       from_bf16(k[j * ldk + c]);
            s[r * LANES + j] = sum;
        }
}

static void sums_f32(float *o, int64_t ldo, const float *w, int rows, const void *v,
                     int64_t ldv, int dtype, int n, int d)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < d; c++)
            for (int j = 0; j < n; j++)
                o[r * ldo + c] += w[r * LANES + j] * element(v, j * ldv + c, dtype);
}

static void sums_bf16(float *o, int64_t ldo, const float *w, int rows,
                      const uint16_t *v, int64_t ldv, int n, int d)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < d; c++)
            for (int j = 0; j < n; j++)
                o[r * ldo + c] +=
                    from_bf16(to_bf16(w[r * LANES + j])) * from_bf16(v[j * ldv + c]);
}

static float weigh_row(float *s, float f, float *m, float *l, int kind)
{
    float top = -INFINITY, shrink = 1.0f;

    for (int j = 0; j < LANES; j++)
        if (f * s[j] > top) top = f * s[j];
    if (kind != FOCI_WEIGH_RELU2 && top > *m + 8.0f) {
        shrink = exp2f(*m - top);
        *l *= kind == FOCI_WEIGH_L2NORM ? shrink * shrink : shrink;
        *m = top;
    }
    for (int j = 0; j < LANES; j++) {
        s[j] = weight(f * s[j], *m, kind);
        if (kind != FOCI_WEIGH_RELU2)
            *l += kind == FOCI_WEIGH_L2NORM ? s[j] * s[j] : s[j];
    }
    return shrink;
}
