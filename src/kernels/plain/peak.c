/* peak.c -- the probes of peak rates, in plain C. */

enum { PEAK_SUMS = 32 };

static double peak_f32(float *c, const float *a, const float *b, int64_t rounds)
{
    float sum[PEAK_SUMS];

    memcpy(sum, c, sizeof sum);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PEAK_SUMS; i++)
            sum[i] += a[i] * b[i];
    memcpy(c, sum, sizeof sum);
    return 2.0 * PEAK_SUMS * (double)rounds;
}

static double peak_bf16(float *c, const uint32_t *a, const uint32_t *b, int64_t rounds)
{
    float sum[PEAK_SUMS];

    memcpy(sum, c, sizeof sum);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PEAK_SUMS; i++) {
            sum[i] += from_bf16(a[i] & 0xffff) * from_bf16(b[i] & 0xffff);
            sum[i] += from_bf16(a[i] >> 16) * from_bf16(b[i] >> 16);
        }
    memcpy(c, sum, sizeof sum);
    return 4.0 * PEAK_SUMS * (double)rounds;
}

static uint64_t read_streams(const void *in, int64_t bytes, int streams, int ahead)
{
    const char *p = in;
    uint64_t    total = 0;

    (void)streams, (void)ahead;
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        total += word;
    }
    return total;
}
