/* decode_halves.c -- few query rows against bf16 keys and values by f32 multiply-adds: for CPUs
 * whose bf16 dot product issues less than half as often.
 *
 * The halves of a pair become floats by a shift and a mask, even and odd columns separately.
 * Queries are permuted accordingly beforehand, and the sums are put back in order at the end.
 * All loads are prefetched in software: the hardware prefetchers of these CPUs stop at a 4 kB
 * page.
 */

/* Queries as floats: of every 32 columns the even ones, then the odd ones. */
enum { HALVES_ROWS = 8, HALVES_WIDTH = 256 };

/* 32 columns from p on, or `some` of them. */
INLINE void halves_load(const uint16_t *p, int some, vf *low, vf *high)
{
    if (some)
        vf_unpair_bf16_n(p, some, low, high);
    else
        vf_unpair_bf16(p, low, high);
}

INLINE void halves_add(vf *sum, const float *q, const uint16_t *k, int some,
                       const int R, const int K)
{
    vf low, high;

    PREFETCH_FAR(k);
    halves_load(k, some, &low, &high);
    UNROLL(8)
    for (int r = 0; r < R; r++) {
        const float *const at = q + r * HALVES_WIDTH;
        sum[r * K] = vf_fma(low, vf_load(at), sum[r * K]);
        sum[r * K] = vf_fma(high, vf_load(at + VF_LEN), sum[r * K]);
    }
}

/* R rows against K = 16 / R keys; those that are not there are the last one again.  One row
 * goes through the keys in the order in which they lie. */
INLINE void halves_group(float *s, const float *q, const uint16_t *k, int64_t ldk,
                         int keys, int d, int add, const int R, const int whole)
{
    const int          K = 16 / R;
    vf                 sum[16];
    _Alignas(64) float out[16];

    UNROLL(16)
    for (int i = 0; i < 16; i++)
        sum[i] = vf_zero();
    if (R == 1) {
        UNROLL(16)
        for (int j = 0; j < K; j++)
            for (int c = 0; c < d; c += 32)
                halves_add(&sum[j], q + c,
                           k + (whole || j < keys ? j : keys - 1) * ldk + c,
                           whole || d - c >= 32 ? 0 : d - c, R, K);
    } else {
        for (int c = 0; c < d; c += 32) {
            UNROLL(16)
            for (int j = 0; j < K; j++)
                halves_add(&sum[j], q + c,
                           k + (whole || j < keys ? j : keys - 1) * ldk + c,
                           whole || d - c >= 32 ? 0 : d - c, R, K);
        }
    }
    vf_store(out, vf_sums(sum));
    for (int i = 0; i < 16; i++)
        if (i % K < keys)
            s[i / K * LANES + i % K] = out[i] + (add ? s[i / K * LANES + i % K] : 0);
}

INLINE void halves_keys(float *s, const float *q, const uint16_t *k, int64_t ldk, int n,
                        int d, int add, const int R)
{
    const int K = 16 / R;

    for (int j = 0; j < n; j += K, k += K * ldk)
        if (n - j >= K && d % 32 == 0)
            halves_group(s + j, q, k, ldk, K, d, add, R, 1);
        else
            halves_group(s + j, q, k, ldk, n - j, d, add, R, 0);
}

INLINE void halves_rows(float *s, const float *q, int rows, const uint16_t *k,
                        int64_t ldk, int n, int d, int add)
{
    if (rows == 1)
        halves_keys(s, q, k, ldk, n, d, add, 1);
    else if (rows <= 4)
        halves_keys(s, q, k, ldk, n, d, add, 4);
    else
        halves_keys(s, q, k, ldk, n, d, add, 8);
}

/* s (+)= q . k of HALVES_WIDTH columns at the most.  Widths that are common are constants. */
static void halves_dots(float *s, const float *q, int rows, const uint16_t *k,
                        int64_t ldk, int n, int d, int add)
{
    if (d == 128)
        halves_rows(s, q, rows, k, ldk, n, 128, add);
    else if (d == 64)
        halves_rows(s, q, rows, k, ldk, n, 64, add);
    else
        halves_rows(s, q, rows, k, ldk, n, d, add);
}

/* C times 32 columns of R rows. */
INLINE void halves_cols(float *o, int64_t ldo, const float *w, const uint16_t *v,
                        int64_t ldv, int n, int some, const int R, const int C)
{
    vf low[8], high[8]; /* [R][C] */

    UNROLL(8)
    for (int i = 0; i < R * C; i++)
        low[i] = high[i] = vf_zero();
    for (int j = 0; j < n; j++, v += ldv) {
        UNROLL(4)
        for (int c = 0; c < C; c++) {
            vf x, y;

            PREFETCH_FAR(v + 32 * c);
            halves_load(v + 32 * c, some, &x, &y);
            UNROLL(8)
            for (int r = 0; r < R; r++) {
                const vf by = vf_set1(w[r * LANES + j]);
                low[r * C + c] = vf_fma(by, x, low[r * C + c]);
                high[r * C + c] = vf_fma(by, y, high[r * C + c]);
            }
        }
    }
    UNROLL(8)
    for (int i = 0; i < R * C; i++) {
        float *const to = o + i / C * ldo + i % C * 32;
        vf_storeu(to, vf_add(vf_loadu(to), vf_zip(low[i], high[i], 0)));
        vf_storeu(to + VF_LEN,
                  vf_add(vf_loadu(to + VF_LEN), vf_zip(low[i], high[i], 1)));
    }
}

/* Some keys at a time, whose values stay in the first-level cache over all columns. */
INLINE void halves_values(float *o, int64_t ldo, const float *w, const uint16_t *v,
                          int64_t ldv, int n, int d, const int R, const int C,
                          const int keys)
{
    for (int j = 0; j < n; j += keys, w += keys, v += keys * ldv) {
        const int now = n - j < keys ? n - j : keys;
        int       c = 0;

        for (; c + 32 * C <= d; c += 32 * C)
            halves_cols(o + c, ldo, w, v + c, ldv, now, 0, R, C);
        for (; c < d; c += 32)
            halves_cols(o + c, ldo, w, v + c, ldv, now, d - c < 32 ? d - c : 0, R, 1);
    }
}

INLINE void halves_sums_of(float *o, int64_t ldo, const float *w, int rows,
                           const uint16_t *v, int64_t ldv, int n, int d)
{
    if (rows == 1 && d % 128 == 0)
        halves_values(o, ldo, w, v, ldv, n, d, 1, 4, LANES);
    else if (rows == 1)
        halves_values(o, ldo, w, v, ldv, n, d, 1, 2, LANES);
    else if (rows <= 4)
        halves_values(o, ldo, w, v, ldv, n, d, 4, 2, 16);
    else
        halves_values(o, ldo, w, v, ldv, n, d, 8, 1, 16);
}

static void halves_sums(float *o, int64_t ldo, const float *w, int rows,
                        const uint16_t *v, int64_t ldv, int n, int d)
{
    if (d == 128)
        halves_sums_of(o, ldo, w, rows, v, ldv, n, 128);
    else if (d == 64)
        halves_sums_of(o, ldo, w, rows, v, ldv, n, 64);
    else
        halves_sums_of(o, ldo, w, rows, v, ldv, n, d);
}
