/* loss.c -- cross-entropy of a row of logits, and its gradient.
 *
 * The row is read three times, from a near cache: for its maximum, for the exponentials, which
 * overwrite it, and for the gradient.
 */

/* Logits from c on; beyond the row `other`. */
INLINE vf ISA(loss_get)(const float *s, int64_t c, float other, const int some)
{
    if (!some) return vf_loadu(s + c);
    return vf_select(vm_bits((UINT64_C(1) << some) - 1, 0),
                     vf_from_n(s + c, FOCI_F32, some), vf_set1(other));
}

INLINE void ISA(loss_bias)(float *s, const float *bias, int d)
{
    int c = 0;

    for (; c + VF_LEN <= d; c += VF_LEN)
        vf_storeu(s + c, vf_add(vf_loadu(s + c), vf_loadu(bias + c)));
    for (; c < d; c++)
        s[c] += bias[c];
}

INLINE float ISA(loss_most)(const float *s, int d)
{
    vf  most[4];
    int c = 0;

    UNROLL(4)
    for (int i = 0; i < 4; i++)
        most[i] = vf_set1(-INFINITY);
    for (; c + 4 * VF_LEN <= d; c += 4 * VF_LEN) {
        UNROLL(4)
        for (int i = 0; i < 4; i++)
            most[i] = vf_max(vf_loadu(s + c + i * VF_LEN), most[i]);
    }
    for (; c < d; c += VF_LEN)
        most[0] = vf_max(ISA(loss_get)(s, c, -INFINITY, c + VF_LEN <= d ? 0 : d - c),
                         most[0]);
    return vf_most(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

/* The first that is x; 0: none is. */
INLINE int ISA(loss_find)(const float *s, float x, int d)
{
    const vf all = vf_set1(x);
    int      c = 0;

    while (c + VF_LEN <= d && !vm_any(vf_eq(vf_loadu(s + c), all)))
        c += VF_LEN;
    for (; c < d; c++)
        if (s[c] == x) return c;
    return 0;
}

INLINE float ISA(loss_sum)(const float *s, int d)
{
    vf  sum = vf_zero();
    int c = 0;

    for (; c < d; c += VF_LEN)
        sum = vf_add(sum, ISA(loss_get)(s, c, 0.0f, c + VF_LEN <= d ? 0 : d - c));
    return vf_sum(sum);
}

/* Powers of e of s - most, in the place of s where they are wanted, and their sum. */
INLINE float ISA(loss_powers)(float *s, float most, int d, const int wanted)
{
    const vf top = vf_set1(most), unit = vf_set1(1.44269504f);
    vf       sum[4];
    int      c = 0;

    UNROLL(4)
    for (int i = 0; i < 4; i++)
        sum[i] = vf_zero();
    for (; c + 4 * VF_LEN <= d; c += 4 * VF_LEN) {
        UNROLL(4)
        for (int i = 0; i < 4; i++) {
            float *const at = s + c + i * VF_LEN;
            const vf     e = vf_exp2(vf_mul(vf_sub(vf_loadu(at), top), unit));

            if (wanted) vf_storeu(at, e);
            sum[i] = vf_add(sum[i], e);
        }
    }
    for (; c < d; c += VF_LEN) {
        const int some = c + VF_LEN <= d ? 0 : d - c;
        const vf  x = ISA(loss_get)(s, c, -INFINITY, some);
        const vf  e = vf_exp2(vf_mul(vf_sub(x, top), unit));

        if (wanted) ISA(row_put)((char *)s, c, e, some, FOCI_F32);
        sum[0] = vf_add(sum[0], e);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* by e - off, and less `hit` at the label. */
INLINE void ISA(loss_gradient)(char *out, const float *e, int d, float by, float off,
                               float hit, int label, const int dtype)
{
    const vf b = vf_set1(by), o = vf_set1(off), at_label = vf_set1(e[label]);
    int      c = 0;

    for (; c + VF_LEN <= d; c += VF_LEN)
        ISA(row_put)(out, c, vf_fma(vf_loadu(e + c), b, o), 0, dtype);
    if (c < d) ISA(row_put)
    (out, c, vf_fma(ISA(loss_get)(e, c, 0.0f, d - c), b, o), d - c, dtype);
    ISA(row_put)(out, label, vf_sub(vf_fma(at_label, b, o), vf_set1(hit)), 1, dtype);
}

static void ISA(loss_row)(void *out, int dtype, float *s, int d, struct loss_row *r)
{
    if (r->bias) ISA(loss_bias)(s, r->bias, d);

    const float  most = ISA(loss_most)(s, d);
    const double hit = (double)most - (double)s[r->label];
    const double mean =
        r->smoothing > 0 ? (double)ISA(loss_sum)(s, d) / d : (double)most;

    r->best = ISA(loss_find)(s, most, d);
    const float sum =
        out ? ISA(loss_powers)(s, most, d, 1) : ISA(loss_powers)(s, most, d, 0);
    const double whole = log((double)sum), part = (double)r->smoothing;

    r->loss = whole + (1 - part) * hit + part * ((double)most - mean);
    if (!out) return;

    const float by = r->scale / sum, off = -r->scale * r->smoothing / (float)d;
    const float one = r->scale * (1.0f - r->smoothing);
    switch (dtype) {
    case FOCI_F32:
        ISA(loss_gradient)(out, s, d, by, off, one, r->label, FOCI_F32);
        break;
    case FOCI_BF16:
        ISA(loss_gradient)(out, s, d, by, off, one, r->label, FOCI_BF16);
        break;
    default: ISA(loss_gradient)(out, s, d, by, off, one, r->label, FOCI_F16); break;
    }
}
