/* taps.c -- convolutions along the rows: sums of neighbours by weights of each row.
 *
 * Rows of v are read from the cache width times; a vector of columns of two rows shares
 * what it loads.
 */

/* Columns from c on, m of them at most VF_LEN, of one row. */
INLINE void ISA(taps_row)(float *o, const float *v, int64_t ld, const float *w,
                          int width)
{
    vf  a = vf_zero(), b = vf_zero();
    int t = 0;

    for (; t + 2 <= width; t += 2, v += 2 * ld) {
        a = vf_fma(vf_set1(w[t]), vf_loadu(v), a);
        b = vf_fma(vf_set1(w[t + 1]), vf_loadu(v + ld), b);
    }
    if (t < width) a = vf_fma(vf_set1(w[t]), vf_loadu(v), a);
    vf_storeu(o, vf_add(a, b));
}

static void ISA(taps)(float *o, const float *v, int64_t ld, int n, int d,
                      const float *w, int64_t ldw, int width)
{
    for (int i = 0; i < n; i++, o += ld, v += ld, w += ldw)
        for (int c = 0; c < d; c += VF_LEN)
            ISA(taps_row)(o + c, v + c, ld, w, width);
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
