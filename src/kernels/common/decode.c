/* decode.c -- few query rows against keys and values in the layout of the cache.
 *
 * Bound by reading k and v, once for all rows.  The number of rows is rounded up to 1, 4 or
 * 8; registers hold a group of keys by rows for the dot products, and rows by two vectors of
 * columns for the sums.
 */

/* Sums that stay in registers. */
enum { DOTS = VF_LEN == 16 ? 16 : 8 };

/* Columns c on of key j against R rows, into every K-th sum. */
INLINE void ISA(dots_at)(vf *sum, const float *q, int64_t ldq, const char *k,
                         const int dtype, int c, int d, const int R, const int K)
{
    const char *const p = k + c * (dtype == FOCI_F32 ? 4 : 2);
    const vf x = d - c < VF_LEN ? vf_from_n(p, dtype, d - c) : vf_from(p, dtype);

    if (R > 1) PREFETCH_FAR(p);
    UNROLL(8)
    for (int r = 0; r < R; r++)
        sum[r * K] = vf_fma(x, vf_loadu(q + r * ldq + c), sum[r * K]);
}

/* R rows against `keys` of K keys, R and K constant: keys that are not there are the
 * last one again.  With one row there is so little to compute that the hardware prefetcher is
 * fast enough, as keys are read in memory order; several rows prefetch in software. */
INLINE void ISA(dots_group)(float *s, const float *q, int64_t ldq, const char *k,
                            int64_t row, int keys, const int dtype, int d, const int R,
                            const int K)
{
    vf sum[DOTS];

    UNROLL(16)
    for (int i = 0; i < R * K; i++)
        sum[i] = vf_zero();
    if (R == 1) {
        UNROLL(16)
        for (int j = 0; j < K; j++)
            for (int c = 0; c < d; c += VF_LEN) {
                const char *const at = k + (j < keys ? j : keys - 1) * row;
                ISA(dots_at)(&sum[j], q, ldq, at, dtype, c, d, R, K);
            }
    } else {
        for (int c = 0; c < d; c += VF_LEN) {
            UNROLL(16)
            for (int j = 0; j < K; j++) {
                const char *const at = k + (j < keys ? j : keys - 1) * row;
                ISA(dots_at)(&sum[j], q, ldq, at, dtype, c, d, R, K);
            }
        }
    }
    UNROLL(16)
    for (int i = 0; i < R * K; i++)
        if (i % K < keys) s[i / K * LANES + i % K] = vf_sum(sum[i]);
}

INLINE void ISA(dots_rows)(float *s, const float *q, int64_t ldq, const void *k,
                           int64_t ldk, const int dtype, int n, int d, const int R)
{
    const int64_t row = ldk * (dtype == FOCI_F32 ? 4 : 2);
    const int     K = DOTS / R;

    for (int j = 0; j < n; j += K) {
        const char *const at = (const char *)k + j * row;
        ISA(dots_group)(s + j, q, ldq, at, row, n - j, dtype, d, R, K);
    }
}

INLINE void ISA(dots_type)(float *s, const float *q, int64_t ldq, int rows,
                           const void *k, int64_t ldk, const int dtype, int n, int d)
{
    if (rows == 1)
        ISA(dots_rows)(s, q, ldq, k, ldk, dtype, n, d, 1);
    else if (rows <= 4)
        ISA(dots_rows)(s, q, ldq, k, ldk, dtype, n, d, 4);
    else
        ISA(dots_rows)(s, q, ldq, k, ldk, dtype, n, d, 8);
}

static void ISA(dots_f32)(float *s, const float *q, int64_t ldq, int rows,
                          const void *k, int64_t ldk, int dtype, int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(dots_type)(s, q, ldq, rows, k, ldk, FOCI_F32, n, d); break;
    case FOCI_BF16: ISA(dots_type)(s, q, ldq, rows, k, ldk, FOCI_BF16, n, d); break;
    default: ISA(dots_type)(s, q, ldq, rows, k, ldk, FOCI_F16, n, d); break;
    }
}

/* Columns c to c + V vectors of R rows; `some` of the last vector, or all (0). */
INLINE void ISA(sums_cols)(float *o, int64_t ldo, const float *w, const char *v,
                           int64_t row, const int dtype, int n, int some, int prefetch,
                           const int R, const int V)
{
    const int64_t size = dtype == FOCI_F32 ? 4 : 2;
    vf            sum[8][2];

    UNROLL(8)
    for (int r = 0; r < R; r++) {
        UNROLL(2)
        for (int i = 0; i < V; i++)
            sum[r][i] = vf_loadu(o + r * ldo + i * VF_LEN);
    }
    for (int j = 0; j < n; j++, v += row) {
        vf x[2];
        UNROLL(2)
        for (int i = 0; i < V; i++) {
            const char *const p = v + i * VF_LEN * size;
            if (prefetch) PREFETCH_FAR(p);
            x[i] = i == V - 1 && some ? vf_from_n(p, dtype, some) : vf_from(p, dtype);
        }
        UNROLL(8)
        for (int r = 0; r < R; r++) {
            const vf by = vf_set1(w[r * LANES + j]);
            UNROLL(2)
            for (int i = 0; i < V; i++)
                sum[r][i] = vf_fma(by, x[i], sum[r][i]);
        }
    }
    UNROLL(8)
    for (int r = 0; r < R; r++) {
        UNROLL(2)
        for (int i = 0; i < V; i++)
            vf_storeu(o + r * ldo + i * VF_LEN, sum[r][i]);
    }
}

/* The last vector, out of line: what is left is not worth a copy for every type. */
static void ISA(sums_last)(float *o, int64_t ldo, const float *w, const char *v,
                           int64_t row, int dtype, int n, int some, int rows)
{
    for (int r = 0; r < rows; r++) {
        float *const to = o + r * ldo;
        ISA(sums_cols)(to, ldo, w + r * LANES, v, row, dtype, n, some, 0, 1, 1);
    }
}

INLINE void ISA(sums_rows)(float *o, int64_t ldo, const float *w, const void *v,
                           int64_t ldv, const int dtype, int n, int d, const int R)
{
    enum { KEYS = 16 };
    const int64_t size = dtype == FOCI_F32 ? 4 : 2, row = ldv * size;
    const int     prefetch = R > 1 && ldv == d; /* as the rows of a page lie */
    const char   *at = v;

    for (int j = 0; j < n; j += KEYS, w += KEYS, at += KEYS * row) {
        const int keys = n - j < KEYS ? n - j : KEYS;
        int       c = 0;

        for (; c + 2 * VF_LEN <= d; c += 2 * VF_LEN) {
            const char *const x = at + c * size;
            ISA(sums_cols)(o + c, ldo, w, x, row, dtype, keys, 0, prefetch, R, 2);
        }
        for (; c < d; c += VF_LEN) {
            const int some = d - c < VF_LEN ? d - c : 0;
            ISA(sums_last)(o + c, ldo, w, at + c * size, row, dtype, keys, some, R);
        }
    }
}

INLINE void ISA(sums_type)(float *o, int64_t ldo, const float *w, int rows,
                           const void *v, int64_t ldv, const int dtype, int n, int d)
{
    if (rows == 1)
        ISA(sums_rows)(o, ldo, w, v, ldv, dtype, n, d, 1);
    else if (rows <= 4)
        ISA(sums_rows)(o, ldo, w, v, ldv, dtype, n, d, 4);
    else
        ISA(sums_rows)(o, ldo, w, v, ldv, dtype, n, d, 8);
}

static void ISA(sums_f32)(float *o, int64_t ldo, const float *w, int rows,
                          const void *v, int64_t ldv, int dtype, int n, int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(sums_type)(o, ldo, w, rows, v, ldv, FOCI_F32, n, d); break;
    case FOCI_BF16: ISA(sums_type)(o, ldo, w, rows, v, ldv, FOCI_BF16, n, d); break;
    default: ISA(sums_type)(o, ldo, w, rows, v, ldv, FOCI_F16, n, d); break;
    }
}

static float ISA(weigh_row)(float *s, float f, float *m, float *l, int kind)
{
    const vf by = vf_set1(f);
    vf       top = vf_set1(-INFINITY), sum = vf_zero();
    float    shrink = 1.0f;

    if (kind == FOCI_WEIGH_RELU2) {
        for (int j = 0; j < LANES; j += VF_LEN) {
            const vf t = vf_max(vf_zero(), vf_mul(vf_load(s + j), by));
            vf_store(s + j, vf_mul(t, t));
        }
        return 1.0f;
    }
    for (int j = 0; j < LANES; j += VF_LEN)
        top = vf_max(vf_mul(vf_load(s + j), by), top);
    const float most = vf_most(top);
    if (most > *m + 8.0f) {
        shrink = exp2f(*m - most);
        *l *= kind == FOCI_WEIGH_L2NORM ? shrink * shrink : shrink;
        *m = most;
    }
    const vf base = vf_set1(*m == -INFINITY ? 0.0f : *m);
    for (int j = 0; j < LANES; j += VF_LEN) {
        const vf w = vf_exp2(vf_sub(vf_mul(vf_load(s + j), by), base));
        vf_store(s + j, w);
        sum = kind == FOCI_WEIGH_L2NORM ? vf_fma(w, w, sum) : vf_add(sum, w);
    }
    *l += vf_sum(sum);
    return shrink;
}
