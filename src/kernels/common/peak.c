/* peak.c -- the probes of peak rates: multiply-adds in registers, reading in streams. */

/* As many sums as hide the latency of two units and leave registers for the operands. */
enum { PEAK_SUMS = VF_LEN == 16 ? 16 : 10 };

static double ISA(peak_f32)(float *c, const float *a, const float *b, int64_t rounds)
{
    const vf x[2] = { vf_load(a), vf_load(a + VF_LEN) };
    const vf y[2] = { vf_load(b), vf_load(b + VF_LEN) };
    vf       sum[PEAK_SUMS];

    UNROLL(16)
    for (int i = 0; i < PEAK_SUMS; i++)
        sum[i] = vf_load(c + i * VF_LEN);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL(16)
        for (int i = 0; i < PEAK_SUMS; i++)
            sum[i] = vf_fma(x[i % 2], y[i / 2 % 2], sum[i]);
    }
    UNROLL(16)
    for (int i = 0; i < PEAK_SUMS; i++)
        vf_store(c + i * VF_LEN, sum[i]);
    return 2.0 * PEAK_SUMS * VF_LEN * (double)rounds;
}

/* A line of 64 bytes. */
INLINE vu ISA(add_line)(vu sum, const char *p)
{
    UNROLL(2)
    for (int c = 0; c < 64; c += VU_LEN * 8)
        sum = vu_add(sum, vu_loadu((const uint64_t *)(const void *)(p + c)));
    return sum;
}

/* Four lines of each stream in turn. */
INLINE uint64_t ISA(read_some)(const char *in, int64_t bytes, int64_t ahead,
                               const int streams, const int prefetch)
{
    enum { STEP = 256 };
    const int64_t         part = bytes / streams;
    vu                    sum[4];
    _Alignas(64) uint64_t lanes[4 * VU_LEN];
    uint64_t              total = 0;

    UNROLL(4)
    for (int i = 0; i < 4; i++)
        sum[i] = vu_set1(0);
    for (int64_t at = 0; at < part; at += STEP) {
        UNROLL(8)
        for (int s = 0; s < streams; s++) {
            const char *const p = in + s * part + at;

            UNROLL(4)
            for (int i = 0; i < 4; i++) {
                if (prefetch) __builtin_prefetch(p + 64 * i + ahead, 0, 3);
                sum[i] = ISA(add_line)(sum[i], p + 64 * i);
            }
        }
    }
    memcpy(lanes, sum, sizeof sum);
    for (int i = 0; i < 4 * VU_LEN; i++)
        total += lanes[i];
    return total;
}

INLINE uint64_t ISA(read_asking)(const char *in, int64_t bytes, int ahead,
                                 const int streams)
{
    return ahead ? ISA(read_some)(in, bytes, ahead, streams, 1)
                 : ISA(read_some)(in, bytes, 0, streams, 0);
}

static uint64_t ISA(read_streams)(const void *in, int64_t bytes, int streams, int ahead)
{
    switch (streams) {
    case 1: return ISA(read_asking)(in, bytes, ahead, 1);
    case 2: return ISA(read_asking)(in, bytes, ahead, 2);
    case 4: return ISA(read_asking)(in, bytes, ahead, 4);
    default: return ISA(read_asking)(in, bytes, ahead, 8);
    }
}
