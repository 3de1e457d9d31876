/* short_conv.c -- short convolutions, each column by itself. */

static void conv_rows(void *out, int64_t ld, int dtype, const void *const *rows,
                      const float *w, int64_t ldw, const float *bias, int taps, int n,
                      int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            float sum = bias ? bias[c] : 0.0f;

            for (int t = 0; t < taps; t++)
                if (rows[i + t]) sum += w[t * ldw + c] * element(rows[i + t], c, dtype);
            set_element(out, i * ld + c, dtype, sum);
        }
}

static void conv_dots(float *dw, int64_t ldw, const void *g, int64_t ldg,
                      const void *const *rows, int dtype, int taps, int n, int d)
{
    for (int t = 0; t < taps; t++)
        for (int i = 0; i < n; i++)
            for (int c = 0; c < d && rows[i + t]; c++)
                dw[t * ldw + c] +=
                    element(g, i * ldg + c, dtype) * element(rows[i + t], c, dtype);
}
