/* sums.c -- sums over rows. */

INLINE void ISA(add_some)(void *out, int type_out, const void *a, int type_a, vf by,
                          const void *b, int type_b, int64_t i, const int some)
{
    const vf x = ISA(row_get)(a, i, some, type_a);
    const vf y = b ? vf_fma(x, by, ISA(row_get)(b, i, some, type_b)) : vf_mul(x, by);

    ISA(row_put)(out, i, y, some, type_out);
}

static void ISA(add_scaled)(void *out, int type_out, const void *a, int type_a,
                            float by, const void *b, int type_b, int64_t n)
{
    const vf f = vf_set1(by);
    int64_t  i = 0;

    for (; i + VF_LEN <= n; i += VF_LEN)
        ISA(add_some)(out, type_out, a, type_a, f, b, type_b, i, 0);
    if (i < n) ISA(add_some)(out, type_out, a, type_a, f, b, type_b, i, (int)(n - i));
}

/* Four vectors of columns at a time, and what is left by one. */
INLINE void ISA(col_sums_at)(float *out, const char *in, int64_t step, int n, int c,
                             const int V, const int some, const int dtype)
{
    vf sum[4];

    UNROLL(4)
    for (int v = 0; v < V; v++)
        sum[v] = ISA(row_get)((const char *)out, c + v * VF_LEN, some, FOCI_F32);
    for (int i = 0; i < n; i++, in += step) {
        UNROLL(4)
        for (int v = 0; v < V; v++)
            sum[v] = vf_add(sum[v], ISA(row_get)(in, c + v * VF_LEN, some, dtype));
    }
    UNROLL(4)
    for (int v = 0; v < V; v++)
        ISA(row_put)((char *)out, c + v * VF_LEN, sum[v], some, FOCI_F32);
}

INLINE void ISA(col_sums_type)(float *out, const char *in, int64_t ld, int n, int d,
                               const int dtype)
{
    const int64_t step = ld * (dtype == FOCI_F32 ? 4 : 2);
    int           c = 0;

    for (; c + 4 * VF_LEN <= d; c += 4 * VF_LEN)
        ISA(col_sums_at)(out, in, step, n, c, 4, 0, dtype);
    for (; c + VF_LEN <= d; c += VF_LEN)
        ISA(col_sums_at)(out, in, step, n, c, 1, 0, dtype);
    if (c < d) ISA(col_sums_at)(out, in, step, n, c, 1, d - c, dtype);
}

static void ISA(col_sums)(float *out, const void *in, int64_t ld, int dtype, int n,
                          int d)
{
    switch (dtype) {
    case FOCI_F32: ISA(col_sums_type)(out, in, ld, n, d, FOCI_F32); break;
    case FOCI_BF16: ISA(col_sums_type)(out, in, ld, n, d, FOCI_BF16); break;
    default: ISA(col_sums_type)(out, in, ld, n, d, FOCI_F16); break;
    }
}
