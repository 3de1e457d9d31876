/* taps.c -- convolutions with few taps, forward and backward. */

static void taps(void *o, int64_t ldo, const void *v, int64_t ldv, int dtype, int n,
                 int d, const float *w, int64_t ldw, int width, int far)
{
    (void)far;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            float sum = 0;
            for (int t = 0; t < width; t++)
                sum += w[i * ldw + t] * element(v, (i + t) * ldv + c, dtype);
            set_element(o, i * ldo + c, dtype, sum);
        }
}

static int roll(void *o, int64_t ldo, const void *v, int64_t ldv, int dtype, int n,
                int d, const float *w, int width, int far)
{
    taps(o, ldo, v, ldv, dtype, n, d, w, 0, width, far);
    return d;
}

static void taps_back(float *dv, const float *g, int64_t ld, int n, int d,
                      const float *w, int64_t ldw, int width)
{
    for (int64_t i = 0; i < n; i++)
        for (int t = 0; t < width; t++)
            for (int c = 0; c < d; c++)
                dv[(i + t) * ld + c] += w[i * ldw + t] * g[i * ld + c];
}

static void taps_dots(float *dw, int64_t ldw, const float *g, const float *v,
                      int64_t ld, int n, int d, int width)
{
    for (int64_t i = 0; i < n; i++)
        for (int t = 0; t < width; t++) {
            float sum = 0;
            for (int c = 0; c < d; c++)
                sum += g[i * ld + c] * v[(i + t) * ld + c];
            dw[i * ldw + t] = sum;
        }
}

static void taps_sums(float *lanes, const void *g, int64_t ldg, const void *v,
                      int64_t ldv, int dtype, int n, int d, int width)
{
    for (int64_t i = 0; i < n; i++)
        for (int t = 0; t < width; t++)
            for (int c = 0; c < d; c++)
                lanes[t * TAPS_LANES + c % TAPS_LANES] +=
                    element(g, i * ldg + c, dtype) *
                    element(v, (i + t) * ldv + c, dtype);
}
