/* recur.c -- the recurrent step of linear attention: add a token to the state, answer a query.
 *
 * Bound by reading and writing the state once.  A group of columns of v and o stays in
 * registers while the rows of s stream by.
 */

/* Vectors of columns that stay. */
enum { RECUR = VF_LEN == 16 ? 8 : 4 };

/* V vectors of columns from c0 on, with V, `adds` and `reads` constant.  There is a v only
 * where it is added, and an o only where it is read. */
INLINE void ISA(recur_cols)(double *s, int64_t lds, const double *decay, const float *g,
                            const float *v, double *o, const float *f, int m,
                            int64_t c0, const int V, const int adds, const int reads)
{
    vd x[RECUR], sum[RECUR];

    UNROLL(8)
    for (int c = 0; c < V; c++) {
        if (adds) x[c] = vd_from(v + c0 + c * VD_LEN);
        if (reads) sum[c] = vd_load(o + c0 + c * VD_LEN);
    }
    for (int i = 0; i < m; i++, s += lds) {
        const vd a = vd_set1(adds ? decay[i] : 1.0),
                 b = vd_set1(adds ? (double)g[i] : 0);
        const vd by = vd_set1(reads ? (double)f[i] : 0);
        UNROLL(8)
        for (int c = 0; c < V; c++) {
            vd now = vd_load(s + c * VD_LEN);
            if (adds) {
                now = vd_fma(b, x[c], vd_mul(a, now));
                vd_store(s + c * VD_LEN, now);
            }
            if (reads) sum[c] = vd_fma(by, now, sum[c]);
        }
    }
    UNROLL(8)
    for (int c = 0; c < V; c++)
        if (reads) vd_store(o + c0 + c * VD_LEN, sum[c]);
}

INLINE void ISA(recur_all)(double *s, int64_t lds, const double *decay, const float *g,
                           const float *v, double *o, const float *f, int m,
                           const int adds, const int reads)
{
    const int few = 8 / VD_LEN;
    int64_t   c = 0;

    for (; c + RECUR * VD_LEN <= lds; c += RECUR * VD_LEN)
        ISA(recur_cols)(s + c, lds, decay, g, v, o, f, m, c, RECUR, adds, reads);
    for (; c < lds; c += few * VD_LEN)
        ISA(recur_cols)(s + c, lds, decay, g, v, o, f, m, c, few, adds, reads);
}

static void ISA(recur)(double *s, int64_t lds, const double *decay, const float *g,
                       const float *v, double *o, const float *f, int m)
{
    if (g && f)
        ISA(recur_all)(s, lds, decay, g, v, o, f, m, 1, 1);
    else if (g)
        ISA(recur_all)(s, lds, decay, g, v, o, f, m, 1, 0);
    else if (f)
        ISA(recur_all)(s, lds, decay, g, v, o, f, m, 0, 1);
}

static void ISA(carry)(double *s, int64_t lds, const double *decay, float *x,
                       int64_t ldx, int m)
{
    for (int i = 0; i < m; i++, s += lds, x += ldx) {
        const vd by = vd_set1(decay[i]);
        for (int64_t c = 0; c < lds; c += VD_LEN) {
            const vd now = vd_fma(by, vd_load(s + c), vd_from(x + c));
            vd_store(s + c, now);
            vd_to(x + c, now);
        }
    }
}

/* e^(a - b), 0 where a is -inf whatever b is. */
INLINE vf ISA(exp_above)(vf a, vf b)
{
    const vf low = vf_set1(-INFINITY);
    const vf base = vf_select(vf_eq(b, low), vf_zero(), b);

    return ISA(exp)(vf_sub(a, base));
}

static int ISA(log_key)(float *l, float *c, float *factor, const float *top, int m)
{
    int moved = 0;

    for (int i = 0; i < m; i += VF_LEN) {
        const vf was = vf_loadu(c + i), most = vf_loadu(top + i);
        const vm up = vf_gt(most, vf_add(was, vf_set1(8.0f)));
        vf       now = was, by = vf_set1(1.0f);

        if (vm_any(up)) {
            now = vf_select(up, most, was);
            by = vf_select(up, ISA(exp_above)(was, most), by);
            vf_storeu(c + i, now);
            moved = 1;
        }
        vf_storeu(factor + i, by);
        vf_storeu(l + i, ISA(exp_above)(vf_loadu(l + i), now));
    }
    return moved;
}

static float ISA(log_query)(float *l, const float *c, int m)
{
    vf top = vf_set1(-INFINITY);

    for (int i = 0; i < m; i += VF_LEN) {
        const vf t = vf_add(vf_loadu(l + i), vf_loadu(c + i));
        top = vf_max(t, top);
        vf_storeu(l + i, t);
    }
    const float h = vf_most(top);
    for (int i = 0; i < m; i += VF_LEN)
        vf_storeu(l + i, ISA(exp_above)(vf_loadu(l + i), vf_set1(h)));
    return h;
}
