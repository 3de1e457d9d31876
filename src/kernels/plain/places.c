/* places.c -- rotary positions, bands of distances, and dropout masks. */

static void rotate(float *x, int64_t ld, const float *cos_sin, int64_t ldt, int n,
                   int d, int half, int back)
{
    for (int i = 0; i < n; i++, x += ld, cos_sin += ldt)
        for (int t = 0; t < d / 2; t++) {
            const int   p = half ? t : 2 * t, q = half ? t + d / 2 : 2 * t + 1;
            const float re = cos_sin[p], im = back ? -cos_sin[q] : cos_sin[q];
            const float a = x[p], b = x[q];

            x[p] = a * re - b * im;
            x[q] = a * im + b * re;
        }
}

static void skew(float *s, const float *low, const float *high, int n)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] +=
                i < j ? low[(LANES + i - j) * LANES + i] : high[(i - j) * LANES + i];
}

static void unskew_f32(float *band, const float *ds)
{
    for (int r = 0; r < LANES; r++)
        for (int i = 0; i < LANES; i++)
            band[r * LANES + i] = ds[(LANES + i - r) * LANES + i];
}

static void unskew_bf16(uint16_t *rows, uint32_t *pairs, const uint16_t *ds)
{
    memset(pairs, 0, LANES / 2 * LANES * sizeof *pairs);
    for (int r = 0; r < LANES; r++)
        for (int i = 0; i < LANES; i++) {
            const uint16_t x = ds[(LANES + i - r) * LANES + i];

            rows[r * LANES + i] = x;
            pairs[r / 2 * LANES + i] |= (uint32_t)x << 16 * (r & 1);
        }
}

static void diagonals(float *sums, const void *ds, int dtype, int n, uint64_t lanes)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (lanes >> i & 1)
                sums[LANES + i - j] += element(ds, j * LANES + i, dtype);
}

/*
 * Dropping weights
 */

static bool stays(uint64_t z, uint64_t bound)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) >= bound;
}

static void dropout_keys(uint64_t *dropout_mask, int n, const uint64_t *keys,
                         uint64_t first, uint64_t bound)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

    for (int j = 0; j < n; j++) {
        dropout_mask[j] = 0;
        for (int i = 0; i < LANES; i++)
            dropout_mask[j] |=
                (uint64_t)stays(keys[i] + step * (first + (uint64_t)j), bound) << i;
    }
}

static void dropout_rows(uint64_t *dropout_mask, int n, const uint64_t *keys,
                         uint64_t first, uint64_t bound)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

    for (int i = 0; i < n; i++) {
        dropout_mask[i] = 0;
        for (int j = 0; j < LANES; j++)
            dropout_mask[i] |=
                (uint64_t)stays(keys[i] + step * (first + (uint64_t)j), bound) << j;
    }
}

static void drop_f32(float *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(dropout_mask[j] >> i & 1)) w[j * LANES + i] = 0.0f;
}

static void drop_rows_bf16(uint16_t *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(dropout_mask[j] >> i & 1)) w[j * LANES + i] = 0;
}

static void drop_pairs_bf16(uint32_t *w, int n, const uint64_t *dropout_mask)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(dropout_mask[j] >> i & 1))
                w[j / 2 * LANES + i] &= j % 2 ? 0x0000ffffu : 0xffff0000u;
}
