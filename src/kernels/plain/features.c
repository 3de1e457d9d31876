/* features.c -- feature maps and their gradients. */

static float phi(float x, int kind)
{
    switch (kind) {
    case FOCI_FEATURE_ELU: return x > 0.0f ? x + 1.0f : expf(x);
    case FOCI_FEATURE_RELU: return positive(x);
    case FOCI_FEATURE_COS: return cosf(x);
    default: return x;
    }
}

static void feature(float *out, const float *in, int n, int kind, const float *factor)
{
    for (int c = 0; c < n; c++)
        for (int i = 0; i < LANES; i++)
            out[c * LANES + i] = factor[i] * phi(in[c * LANES + i], kind);
}

static void feature_back(float *d, const float *in, int n, int kind)
{
    for (int x = 0; x < n * LANES; x++) {
        if (kind == FOCI_FEATURE_ELU && !(in[x] > 1.0f)) d[x] *= in[x];
        if (kind == FOCI_FEATURE_RELU && in[x] <= 0.0f) d[x] = 0.0f;
        if (kind == FOCI_FEATURE_COS) d[x] *= -sinf(in[x]);
    }
}

static void products(float *f, const float *x, const int32_t *elements,
                     const float *factors, float by, int n, int r)
{
    for (int j = 0; j < n; j++, elements += r)
        for (int i = 0; i < LANES; i++) {
            float y = by * factors[j];
            for (int t = 0; t < r; t++)
                y *= x[elements[t] * LANES + i];
            f[j * LANES + i] = y;
        }
}

static void products_back(float *dx, const float *x, const float *df,
                          const int32_t *elements, const float *factors, float by,
                          int n, int r)
{
    for (int j = 0; j < n; j++, elements += r)
        for (int i = 0; i < LANES; i++)
            for (int t = 0; t < r; t++) {
                float y = by * factors[j] * df[j * LANES + i];
                for (int u = 0; u < r; u++)
                    if (u != t) y *= x[elements[u] * LANES + i];
                dx[elements[t] * LANES + i] += y;
            }
}

static void add_logs(float *s, int n, const float *bias, const float *lane)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] += (bias ? bias[j] : 0.0f) + lane[i];
}

static void waves(float *re, float *im, const float *in, int n, const float *factor)
{
    for (int x = 0; x < n * LANES; x++) {
        const float a = in[x], by = factor[x % LANES];
        re[x] = by * cosf(a);
        im[x] = by * sinf(a);
    }
}

static void log_softmax(float *s, int n)
{
    for (int i = 0; i < LANES; i++) {
        float top = -INFINITY, sum = 0.0f;
        for (int j = 0; j < n; j++)
            if (s[j * LANES + i] > top) top = s[j * LANES + i];
        for (int j = 0; j < n; j++)
            sum += expf(s[j * LANES + i] - top);
        for (int j = 0; j < n; j++)
            s[j * LANES + i] = s[j * LANES + i] - top - logf(sum);
    }
}

static void log_softmax_back(float *d, const float *l, int n)
{
    for (int i = 0; i < LANES; i++) {
        float sum = 0.0f;
        for (int j = 0; j < n; j++)
            sum += d[j * LANES + i];
        for (int j = 0; j < n; j++)
            d[j * LANES + i] -= expf(l[j * LANES + i]) * sum;
    }
}

static void rotate_lanes(float *out, const float *in, int64_t step, int64_t second,
                         const float *offsets, const float *base, int n, int back)
{
    for (int t = 0; t < n; t++, offsets += 2 * LANES)
        for (int i = 0; i < LANES; i++) {
            const int64_t at = t * step + i;
            const float   c = base[2 * t], s = base[2 * t + 1];
            const float   re = c * offsets[i] - s * offsets[LANES + i];
            const float   sum = s * offsets[i] + c * offsets[LANES + i];
            const float   im = back ? -sum : sum;
            const float   a = in[at], b = in[at + second];

            out[at] = a * re - b * im;
            out[at + second] = a * im + b * re;
        }
}
