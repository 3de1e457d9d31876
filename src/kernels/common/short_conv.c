/* short_conv.c -- short convolutions, each column by itself. */

INLINE vf ISA(conv_at)(const void *const *rows, int i, const float *w, int64_t ldw,
                       const float *bias, int taps, int c, const int some,
                       const int dtype)
{
    vf sum = bias ? ISA(row_get)((const char *)bias, c, some, FOCI_F32) : vf_zero();

    for (int t = 0; t < taps; t++) {
        if (!rows[i + t]) continue;
        sum = vf_fma(ISA(row_get)((const char *)(w + t * ldw), c, some, FOCI_F32),
                     ISA(row_get)(rows[i + t], c, some, dtype), sum);
    }
    return sum;
}

INLINE void ISA(conv_type)(char *out, int64_t ld, const void *const *rows,
                           const float *w, int64_t ldw, const float *bias, int taps,
                           int n, int d, const int dtype)
{
    for (int i = 0; i < n; i++) {
        char *const row = ISA(row_of)(out, i, ld, dtype);
        int         c = 0;

        for (; c + VF_LEN <= d; c += VF_LEN)
            ISA(row_put)
        (row, c, ISA(conv_at)(rows, i, w, ldw, bias, taps, c, 0, dtype), 0, dtype);
        if (c < d) ISA(row_put)
        (row, c, ISA(conv_at)(rows, i, w, ldw, bias, taps, c, d - c, dtype), d - c,
         dtype);
    }
}

static void ISA(conv_rows)(void *out, int64_t ld, int dtype, const void *const *rows,
                           const float *w, int64_t ldw, const float *bias, int taps,
                           int n, int d)
{
    switch (dtype) {
    case FOCI_F32:
        ISA(conv_type)(out, ld, rows, w, ldw, bias, taps, n, d, FOCI_F32);
        break;
    case FOCI_BF16:
        ISA(conv_type)(out, ld, rows, w, ldw, bias, taps, n, d, FOCI_BF16);
        break;
    default: ISA(conv_type)(out, ld, rows, w, ldw, bias, taps, n, d, FOCI_F16); break;
    }
}

INLINE void ISA(conv_dots_type)(float *dw, int64_t ldw, const char *g, int64_t ldg,
                                const void *const *rows, int taps, int n, int d,
                                const int dtype)
{
    for (int t = 0; t < taps; t++, dw += ldw)
        for (int c = 0; c < d; c += VF_LEN) {
            const int some = c + VF_LEN <= d ? 0 : d - c;
            vf        sum = ISA(row_get)((const char *)dw, c, some, FOCI_F32);

            for (int i = 0; i < n; i++) {
                if (!rows[i + t]) continue;
                const char *const row = ISA(row_of)(g, i, ldg, dtype);
                sum = vf_fma(ISA(row_get)(row, c, some, dtype),
                             ISA(row_get)(rows[i + t], c, some, dtype), sum);
            }
            ISA(row_put)((char *)dw, c, sum, some, FOCI_F32);
        }
}

static void ISA(conv_dots)(float *dw, int64_t ldw, const void *g, int64_t ldg,
                           const void *const *rows, int dtype, int taps, int n, int d)
{
    switch (dtype) {
    case FOCI_F32:
        ISA(conv_dots_type)(dw, ldw, g, ldg, rows, taps, n, d, FOCI_F32);
        break;
    case FOCI_BF16:
        ISA(conv_dots_type)(dw, ldw, g, ldg, rows, taps, n, d, FOCI_BF16);
        break;
    default: ISA(conv_dots_type)(dw, ldw, g, ldg, rows, taps, n, d, FOCI_F16); break;
    }
}
