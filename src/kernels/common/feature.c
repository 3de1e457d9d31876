/* feature.c -- feature maps of the linear engine, forward and backward. */

/* Cosines and sines of any numbers.  Large ones are rare, and the library's business. */
INLINE vf ISA(waves_of)(vf x, vf *sine)
{
    const vm far = vf_gt(vf_abs(x), vf_set1(WAVES_MOST));
    vf       cosine = vf_cos_sin(x, sine);

    if (vm_any(far)) {
        _Alignas(64) float a[VF_LEN], c[VF_LEN], s[VF_LEN];

        vf_store(a, x);
        for (int i = 0; i < VF_LEN; i++) {
            c[i] = cosf(a[i]);
            s[i] = sinf(a[i]);
        }
        cosine = vf_select(far, vf_load(c), cosine);
        *sine = vf_select(far, vf_load(s), *sine);
    }
    return cosine;
}

/* For x up to 88; the error grows with x, by that of x log2(e). */
INLINE vf ISA(exp)(vf x) { return vf_exp2(vf_mul(x, vf_set1(1.44269504f))); }

INLINE vf ISA(phi)(vf x, const int kind)
{
    const vm above = vf_gt(x, vf_zero());
    vf       sine;

    switch (kind) {
    case FOCI_FEATURE_ELU:
        return vf_select(above, vf_add(x, vf_set1(1.0f)),
                         ISA(exp)(vf_select(above, vf_zero(), x)));
    case FOCI_FEATURE_RELU: return vf_max(vf_zero(), x);
    case FOCI_FEATURE_COS: return ISA(waves_of)(x, &sine);
    default: return x;
    }
}

/* phi' from f, or for COS from x. */
INLINE vf ISA(phi_slope)(vf x, const int kind)
{
    const vf one = vf_set1(1.0f);
    vf       sine;

    switch (kind) {
    case FOCI_FEATURE_ELU: return vf_select(vf_gt(x, one), one, x);
    case FOCI_FEATURE_COS: ISA(waves_of)(x, &sine); return vf_negate(sine);
    default: return one;
    }
}

INLINE void ISA(feature_all)(float *out, const float *in, int n, const float *factor,
                             const int kind)
{
    vf f[LANES / VF_LEN];

    for (int v = 0; v < LANES / VF_LEN; v++)
        f[v] = vf_load(factor + v * VF_LEN);
    for (int c = 0; c < n; c++, in += LANES, out += LANES) {
        UNROLL(8)
        for (int v = 0; v < LANES / VF_LEN; v++)
            vf_store(out + v * VF_LEN,
                     vf_mul(f[v], ISA(phi)(vf_load(in + v * VF_LEN), kind)));
    }
}

static void ISA(feature)(float *out, const float *in, int n, int kind,
                         const float *factor)
{
    switch (kind) {
    case FOCI_FEATURE_ELU:
        ISA(feature_all)(out, in, n, factor, FOCI_FEATURE_ELU);
        break;
    case FOCI_FEATURE_RELU:
        ISA(feature_all)(out, in, n, factor, FOCI_FEATURE_RELU);
        break;
    case FOCI_FEATURE_COS:
        ISA(feature_all)(out, in, n, factor, FOCI_FEATURE_COS);
        break;
    default: ISA(feature_all)(out, in, n, factor, FOCI_FEATURE_ROW); break;
    }
}

/* Where the slope of RELU is 0 the result is 0, whatever d is. */
INLINE void ISA(feature_back_all)(float *d, const float *in, int n, const int kind)
{
    for (int x = 0; x < n * LANES; x += VF_LEN) {
        const vf a = vf_load(in + x), g = vf_load(d + x);

        if (kind == FOCI_FEATURE_RELU)
            vf_store(d + x, vf_select(vf_gt(vf_zero(), a), vf_zero(),
                                      vf_select(vf_eq(a, vf_zero()), vf_zero(), g)));
        else
            vf_store(d + x, vf_mul(g, ISA(phi_slope)(a, kind)));
    }
}

static void ISA(feature_back)(float *d, const float *in, int n, int kind)
{
    switch (kind) {
    case FOCI_FEATURE_ELU: ISA(feature_back_all)(d, in, n, FOCI_FEATURE_ELU); break;
    case FOCI_FEATURE_RELU: ISA(feature_back_all)(d, in, n, FOCI_FEATURE_RELU); break;
    case FOCI_FEATURE_COS: ISA(feature_back_all)(d, in, n, FOCI_FEATURE_COS); break;
    default: break;
    }
}

static void ISA(products)(float *f, const float *x, const int32_t *elements,
                          const float *factors, float by, int n, int r)
{
    for (int j = 0; j < n; j++, elements += r, f += LANES) {
        const vf factor = vf_set1(by * factors[j]);

        for (int i = 0; i < LANES; i += VF_LEN) {
            vf y = factor;
            for (int t = 0; t < r; t++)
                y = vf_mul(y, vf_load(x + (int64_t)elements[t] * LANES + i));
            vf_store(f + i, y);
        }
    }
}

/* The gradient of an element has the product of the elements before it and after it. */
static void ISA(products_back)(float *dx, const float *x, const float *df,
                               const int32_t *elements, const float *factors, float by,
                               int n, int r)
{
    for (int j = 0; j < n; j++, elements += r, df += LANES) {
        const vf factor = vf_set1(by * factors[j]);

        for (int i = 0; i < LANES; i += VF_LEN) {
            vf before[FOCI_MAX_ORDER], after = vf_set1(1.0f);
            vf y = vf_mul(factor, vf_load(df + i));

            for (int t = 0; t < r; t++) {
                before[t] = y;
                y = vf_mul(y, vf_load(x + (int64_t)elements[t] * LANES + i));
            }
            for (int t = r; t-- > 0;) {
                float *const d = dx + (int64_t)elements[t] * LANES + i;

                vf_store(d, vf_fma(before[t], after, vf_load(d)));
                after = vf_mul(after, vf_load(x + (int64_t)elements[t] * LANES + i));
            }
        }
    }
}

static void ISA(add_logs)(float *s, int n, const float *bias, const float *lane)
{
    for (int j = 0; j < n; j++, s += LANES) {
        const vf b = vf_set1(bias ? bias[j] : 0.0f);

        for (int i = 0; i < LANES; i += VF_LEN)
            vf_store(s + i, vf_add(vf_load(s + i), vf_add(b, vf_load(lane + i))));
    }
}

static void ISA(waves)(float *re, float *im, const float *in, int n, const float *factor)
{
    for (int x = 0; x < n * LANES; x += VF_LEN) {
        const vf by = vf_load(factor + x % LANES);
        vf       sine;
        const vf cosine = ISA(waves_of)(vf_load(in + x), &sine);

        vf_store(re + x, vf_mul(by, cosine));
        vf_store(im + x, vf_mul(by, sine));
    }
}

/* NaN is passed over by the maximum, and makes one of the sum. */
static void ISA(log_softmax)(float *s, int n)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        _Alignas(64) float sums[VF_LEN];
        vf                 top = vf_set1(-INFINITY), sum = vf_zero();

        for (int j = 0; j < n; j++)
            top = vf_max(vf_load(s + j * LANES + i), top);
        for (int j = 0; j < n; j++)
            sum = vf_add(sum, ISA(exp)(vf_sub(vf_load(s + j * LANES + i), top)));
        vf_store(sums, sum);
        for (int t = 0; t < VF_LEN; t++)
            sums[t] = logf(sums[t]);
        for (int j = 0; j < n; j++) {
            const vf x = vf_sub(vf_load(s + j * LANES + i), top);
            vf_store(s + j * LANES + i, vf_sub(x, vf_load(sums)));
        }
    }
}

static void ISA(log_softmax_back)(float *d, const float *l, int n)
{
    for (int i = 0; i < LANES; i += VF_LEN) {
        vf sum = vf_zero();

        for (int j = 0; j < n; j++)
            sum = vf_add(sum, vf_load(d + j * LANES + i));
        for (int j = 0; j < n; j++) {
            const vf p = ISA(exp)(vf_load(l + j * LANES + i));
            vf_store(d + j * LANES + i, vf_fnma(p, sum, vf_load(d + j * LANES + i)));
        }
    }
}

static void ISA(rotate_lanes)(float *out, const float *in, int64_t step, int64_t second,
                              const float *offsets, const float *base, int n, int back)
{
    for (int t = 0; t < n; t++, offsets += 2 * LANES, in += step, out += step) {
        const vf c = vf_set1(base[2 * t]), s = vf_set1(base[2 * t + 1]);

        for (int i = 0; i < LANES; i += VF_LEN) {
            const vf co = vf_load(offsets + i), so = vf_load(offsets + LANES + i);
            const vf re = vf_fnma(s, so, vf_mul(c, co));
            const vf sum = vf_fma(s, co, vf_mul(c, so));
            const vf im = back ? vf_negate(sum) : sum;
            const vf a = vf_load(in + i), b = vf_load(in + second + i);

            vf_store(out + i, vf_fnma(b, im, vf_mul(a, re)));
            vf_store(out + second + i, vf_fma(a, im, vf_mul(b, re)));
        }
    }
}
