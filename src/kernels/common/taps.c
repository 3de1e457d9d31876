/* taps.c -- convolutions along rows, with weights for each row or shared by all.
 *
 * Bound by loads: each product needs one, and weights are loaded once for a block of rows that
 * share them, or once for all columns of a row.  16-bit elements are converted to floats a few
 * rows at a time, in a buffer that stays in the first-level cache.
 */

/* A block of sums: columns, and rows that leave registers for a weight. */
enum { TAPS_COLS = 32, TAPS_ROWS = VF_LEN == 16 ? 8 : 2 };

/* Rows that become floats together, besides those that they share with the next. */
enum { TAPS_STAGE = 16 };

/* Rows that stay in registers while the taps go by. */
enum { TAPS_SUMS = VF_LEN == 16 ? 16 : 8 };

/* Where a block of sums goes. */
struct ISA(taps_to) {
    char   *o;
    int64_t step; /* bytes */
    int     dtype, far;
};

INLINE void ISA(taps_put)(char *o, int dtype, int far, const vf *x, const int V)
{
    const int bytes = dtype == FOCI_F32 ? 4 : 2;

    UNROLL(4)
    for (int c = 0; c < V; c++) {
        char *const at = o + c * VF_LEN * bytes;

        if (!far)
            vf_to(at, dtype, x[c]);
        else if (dtype == FOCI_F32)
            vf_stream((float *)(void *)at, x[c]);
        else if (c % 2)
            vf_stream_16(at - VF_LEN * bytes, dtype, x[c - 1], x[c]);
    }
}

/* R rows of V vectors. */
INLINE void ISA(taps_block)(const struct ISA(taps_to) * to, int64_t i, const float *v,
                            int64_t ldv, const float *w, int64_t ldw, int width,
                            const int R, const int V)
{
    vf          sum[TAPS_ROWS * TAPS_COLS / VF_LEN];
    char *const o = to->o + i * to->step;

    UNROLL(16)
    for (int e = 0; e < R * V; e++)
        sum[e] = vf_zero();
    for (int t = 0; t < width; t++, v += ldv, w++) {
        UNROLL(16)
        for (int e = 0; e < R * V; e++)
            sum[e] = vf_fma(vf_set1(w[e / V * ldw]),
                            vf_loadu(v + e / V * ldv + e % V * VF_LEN), sum[e]);
    }
    UNROLL(8)
    for (int r = 0; r < R; r++)
        switch (to->dtype) {
        case FOCI_F32:
            ISA(taps_put)(o + r * to->step, FOCI_F32, to->far, sum + r * V, V);
            break;
        case FOCI_BF16:
            ISA(taps_put)(o + r * to->step, FOCI_BF16, to->far, sum + r * V, V);
            break;
        default:
            ISA(taps_put)(o + r * to->step, FOCI_F16, to->far, sum + r * V, V);
            break;
        }
}

/* n rows of V vectors, from row i of the result on. */
INLINE void ISA(taps_cols)(const struct ISA(taps_to) * to, int i, const float *v,
                           int64_t ldv, int n, const float *w, int64_t ldw, int width,
                           const int V)
{
    int r = 0;

    for (; r + TAPS_ROWS <= n; r += TAPS_ROWS, v += TAPS_ROWS * ldv) {
        const float *const by = w + r * ldw;
        if (!ldw && V == TAPS_COLS / VF_LEN)
            ISA(taps_block)(to, i + r, v, ldv, w, 0, width, TAPS_ROWS, V);
        else
            ISA(taps_block)(to, i + r, v, ldv, by, ldw, width, TAPS_ROWS, V);
    }
    for (; r < n; r++, v += ldv)
        ISA(taps_block)(to, i + r, v, ldv, w + r * ldw, ldw, width, 1, V);
}

/* A piece of V vectors; rows that become floats do so in `scratch`. */
INLINE void ISA(taps_piece)(const struct ISA(taps_to) * to, const char *v, int64_t ldv,
                            int n, const float *w, int64_t ldw, int width, const int V)
{
    const int     size = to->dtype == FOCI_F32 ? 4 : 2;
    const int64_t step = ldv * size;
    float         scratch[(TAPS_STAGE + TAPS_WIDTH - 1) * TAPS_COLS];

    for (int i = 0; i < n; i += TAPS_STAGE) {
        const int          rows = n - i < TAPS_STAGE ? n - i : TAPS_STAGE;
        const char        *first = v + i * step;
        const float *const by = w + i * ldw;

        for (int r = 0; r < rows; r++)
            prefetch_bytes(first + r * step, (n + width - 1) * step, V * VF_LEN * size);
        if (to->dtype == FOCI_F32) {
            const float *const x = (const void *)first;
            ISA(taps_cols)(to, i, x, ldv, rows, by, ldw, width, V);
            continue;
        }
        const int all = rows + width - 1;
        ISA(load_rows)(scratch, V * VF_LEN, first, ldv, to->dtype, all, V * VF_LEN);
        ISA(taps_cols)(to, i, scratch, V * VF_LEN, rows, by, ldw, width, V);
    }
}

static void ISA(taps)(void *o, int64_t ldo, const void *v, int64_t ldv, int dtype,
                      int n, int d, const float *w, int64_t ldw, int width, int far)
{
    enum { V = TAPS_COLS / VF_LEN };
    const int   size = dtype == FOCI_F32 ? 4 : 2;
    const char *from = v;
    struct ISA(taps_to) to = { o, ldo * size, dtype,
                               far && ISA(on_boundaries)(o, ldo, dtype, TAPS_COLS) };
    int c = 0;

    for (; c + TAPS_COLS <= d; c += TAPS_COLS) {
        ISA(taps_piece)(&to, from + c * size, ldv, n, w, ldw, width, V);
        to.o += TAPS_COLS * size;
    }
    to.far = 0;
    if (c < d) ISA(taps_piece)(&to, from + c * size, ldv, n, w, ldw, width, V / 2);
}

static void ISA(taps_back)(float *dv, const float *g, int64_t ld, int n, int d,
                           const float *w, int64_t ldw, int width)
{
    for (int i = 0; i < n; i++, dv += ld, g += ld, w += ldw)
        for (int t = 0; t < width; t++) {
            const vf by = vf_set1(w[t]);
            for (int c = 0; c < d; c += VF_LEN) {
                float *to = dv + t * ld + c;
                vf_storeu(to, vf_fma(by, vf_loadu(g + c), vf_loadu(to)));
            }
        }
}

static void ISA(taps_dots)(float *dw, int64_t ldw, const float *g, const float *v,
                           int64_t ld, int n, int d, int width)
{
    for (int i = 0; i < n; i++, g += ld, v += ld, dw += ldw)
        for (int t = 0; t < width; t++) {
            vf sum = vf_zero();
            for (int c = 0; c < d; c += VF_LEN)
                sum = vf_fma(vf_loadu(g + c), vf_loadu(v + t * ld + c), sum);
            dw[t] = vf_sum(sum);
        }
}

/* R rows of one vector: what they add to the lanes of each tap. */
INLINE void ISA(taps_sums_block)(float *lanes, const float *g, int64_t ldg,
                                 const float *v, int64_t ldv, int width, const int R)
{
    vf row[TAPS_SUMS];

    UNROLL(16)
    for (int r = 0; r < R; r++)
        row[r] = vf_loadu(g + r * ldg);
    for (int t = 0; t < width; t++, v += ldv, lanes += TAPS_LANES) {
        vf sum[4] = { vf_loadu(lanes), vf_zero(), vf_zero(), vf_zero() };

        UNROLL(16)
        for (int r = 0; r < R; r++)
            sum[r % 4] = vf_fma(row[r], vf_loadu(v + r * ldv), sum[r % 4]);
        vf_storeu(lanes, vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    }
}

INLINE void ISA(taps_sums_rows)(float *lanes, const float *g, int64_t ldg,
                                const float *v, int64_t ldv, int n, int d, int width)
{
    for (int c = 0; c < d; c += VF_LEN) {
        float *const to = lanes + c % TAPS_LANES;
        const float *x = g + c, *y = v + c;
        int          i = 0;

        for (; i + TAPS_SUMS <= n; i += TAPS_SUMS) {
            ISA(taps_sums_block)(to, x, ldg, y, ldv, width, TAPS_SUMS);
            x += TAPS_SUMS * ldg;
            y += TAPS_SUMS * ldv;
        }
        for (; i < n; i++, x += ldg, y += ldv)
            ISA(taps_sums_block)(to, x, ldg, y, ldv, width, 1);
    }
}

static void ISA(taps_sums)(float *lanes, const void *g, int64_t ldg, const void *v,
                           int64_t ldv, int dtype, int n, int d, int width)
{
    const int     size = dtype == FOCI_F32 ? 4 : 2;
    const int64_t to_g = ldg * size, to_v = ldv * size;
    float         rows[TAPS_STAGE * TAPS_COLS],
        scratch[(TAPS_STAGE + TAPS_WIDTH - 1) * TAPS_COLS];

    for (int c = 0; c < d; c += TAPS_COLS)
        for (int i = 0; i < n; i += TAPS_STAGE) {
            const int   m = n - i < TAPS_STAGE ? n - i : TAPS_STAGE;
            const int   cols = d - c < TAPS_COLS ? d - c : TAPS_COLS;
            const char *gs = (const char *)g + i * to_g + c * size;
            const char *vs = (const char *)v + i * to_v + c * size;

            for (int r = 0; r < m; r++)
                prefetch_bytes(vs + r * to_v, (n + width - 1) * to_v, cols * size);
            if (dtype == FOCI_F32) {
                const float *const x = (const void *)gs, *const y = (const void *)vs;
                ISA(taps_sums_rows)(lanes, x, ldg, y, ldv, m, cols, width);
                continue;
            }
            ISA(load_rows)(rows, cols, gs, ldg, dtype, m, cols);
            ISA(load_rows)(scratch, cols, vs, ldv, dtype, m + width - 1, cols);
            ISA(taps_sums_rows)(lanes, rows, cols, scratch, cols, m, cols, width);
        }
}
