/* rows.c -- rows of tensors, loaded, stored and packed. */

static void load_rows(float *out, int64_t ld_out, const void *in, int64_t ld_in,
                      int dtype, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < ld_out; c++)
            out[i * ld_out + c] = c < d ? element(in, i * ld_in + c, dtype) : 0;
}

static void load_rows_prefetch(float *out, int64_t ld_out, const void *in,
                               int64_t ld_in, int dtype, int n, int d, int ahead)
{
    (void)ahead;
    load_rows(out, ld_out, in, ld_in, dtype, n, d);
}

static void store_rows(void *out, int64_t ld_out, int dtype, const float *in,
                       int64_t ld_in, float scale, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld_out + c, dtype, in[i * ld_in + c] * scale);
}

static void store_rows_by(void *out, int64_t ld_out, int dtype, const float *in,
                          int64_t ld_in, const float *factor, int n, int d)
{
    const int64_t step = ld_out * (dtype == FOCI_F32 ? 4 : 2);

    for (int i = 0; i < n; i++)
        store_rows((char *)out + i * step, ld_out, dtype, in + i * ld_in, ld_in,
                   factor[i], 1, d);
}

static void stream_rows(void *out, int64_t ld_out, int dtype, const float *in,
                        int64_t ld_in, int n, int d)
{
    store_rows(out, ld_out, dtype, in, ld_in, 1.0f, n, d);
}

static void stream_end(void) {}

static void copy_rows(void *out, int64_t to, const void *in, int64_t from, int n,
                      int bytes)
{
    for (int i = 0; i < n; i++)
        memcpy((char *)out + i * to, (const char *)in + i * from, (size_t)bytes);
}

static void store_cols(void *out, int64_t ld_out, int dtype, const float *in,
                       const float *factor, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld_out + c, dtype, in[c * LANES + i] * factor[i]);
}

/*
 * Packing
 */

static float at(const float *in, int64_t ld, int n, int i, int c)
{
    return i < n ? in[i * ld + c] : 0.0f;
}

static void pack_cols_f32(float *out, const float *in, int64_t ld, int n, int d)
{
    for (int c = 0; c < d; c++)
        for (int i = 0; i < LANES; i++)
            out[c * LANES + i] = at(in, ld, n, i, c);
}

static void pack_cols_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int t = 0; t < d / 2; t++)
        for (int i = 0; i < LANES; i++)
            out[t * LANES + i] =
                pair(at(in, ld, n, i, 2 * t), at(in, ld, n, i, 2 * t + 1));
}

static void pack_rows_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < LANES; i++)
        for (int t = 0; t < d / 2; t++)
            out[i * (d / 2) + t] =
                pair(at(in, ld, n, i, 2 * t), at(in, ld, n, i, 2 * t + 1));
}

/* Rows 2t and 2t+1 of `width` columns, rows of the result `width` apart. */
static void pack_row_pairs(uint32_t *out, const float *in, int64_t ld, int n, int width)
{
    for (int t = 0; t < LANES / 2; t++)
        for (int c = 0; c < width; c++)
            out[t * width + c] =
                pair(at(in, ld, n, 2 * t, c), at(in, ld, n, 2 * t + 1, c));
}

static void pack_pairs_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    (void)d;
    pack_row_pairs(out, in, ld, n, (int)ld);
}

static void pack_sum_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    pack_row_pairs(out, in, ld, n, d);
}

/* Element (i, c) of stored bf16, 0 beyond n and d. */
static uint32_t half(const uint16_t *in, int64_t ld, int n, int d, int i, int c)
{
    return i < n && c < d ? in[i * ld + c] : 0;
}

static void pack_cols_from_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                                int d, int wide)
{
    for (int t = 0; t < wide / 2; t++)
        for (int i = 0; i < LANES; i++)
            out[t * LANES + i] =
                half(in, ld, n, d, i, 2 * t) | half(in, ld, n, d, i, 2 * t + 1) << 16;
}

static void pack_rows_from_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                                int d, int wide)
{
    for (int i = 0; i < LANES; i++)
        for (int t = 0; t < wide / 2; t++)
            out[i * (wide / 2) + t] =
                half(in, ld, n, d, i, 2 * t) | half(in, ld, n, d, i, 2 * t + 1) << 16;
}

static void pack_sum_from_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n,
                               int d, int wide)
{
    for (int t = 0; t < LANES / 2; t++)
        for (int c = 0; c < wide; c++)
            out[t * wide + c] =
                half(in, ld, n, d, 2 * t, c) | half(in, ld, n, d, 2 * t + 1, c) << 16;
}

static void squares_bf16(float *out, const uint16_t *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < n; i++) {
        out[i] = 0.0f;
        for (int c = 0; c < d; c++)
            out[i] += from_bf16(in[i * ld + c]) * from_bf16(in[i * ld + c]);
    }
}
