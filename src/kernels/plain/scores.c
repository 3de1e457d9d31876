/* scores.c -- scores to weights, and gradients of scores. */

static void modify(float *s, int n, const float *f, float unit, float c,
                   const float *bias, int64_t ldb, const uint64_t *seen)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            float *const x = &s[j * LANES + i];

            if (seen && !(seen[j] >> i & 1)) { /* there need not be a score */
                *x = -INFINITY;
                continue;
            }
            *x = f[i] * *x + (bias ? bias[j * ldb + i] : 0.0f);
            if (c != 0.0f) *x = c * tanhf(*x / c);
            *x *= unit;
        }
}

/* Move the references of a block whose scores are s; the result is 1 if any moved.
 * l shrinks as what it sums: weights, or their squares. */
static int move(const float *s, int n, const float *f, float *m, float *l,
                float *shrink, int kind)
{
    int   moved = 0;
    float next[LANES];

    if (kind == FOCI_WEIGH_RELU2 || !shrink) return 0;

    for (int i = 0; i < LANES; i++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            const float t = f ? f[i] * s[j * LANES + i] : s[j * LANES + i];
            if (t > top) top = t;
        }
        next[i] = top > m[i] + 8.0f ? top : m[i];
        moved |= next[i] != m[i];
    }
    if (!moved) return 0;

    for (int i = 0; i < LANES; i++) {
        shrink[i] = next[i] == m[i] ? 1.0f : exp2f(m[i] - next[i]);
        l[i] *= kind == FOCI_WEIGH_L2NORM ? shrink[i] * shrink[i] : shrink[i];
        m[i] = next[i];
    }
    return 1;
}

static int weigh_f32(float *s, int n, const float *f, float *m, float *l, float *shrink,
                     int kind)
{
    const int moved = move(s, n, f, m, l, shrink, kind);

    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            float *const x = &s[j * LANES + i];
            const float  w = weight(f ? f[i] * *x : *x, m[i], kind);

            if (kind == FOCI_WEIGH_SOFTMAX) l[i] += w;
            if (kind == FOCI_WEIGH_L2NORM) l[i] += w * w;
            *x = w;
        }
    return moved;
}

static int weigh_bf16(const float *s, uint32_t *p, int n, int k, const float *f,
                      float *m, float *l, float *shrink, int kind)
{
    const int moved = move(s, n, f, m, l, shrink, kind);

    memset(p, 0, (size_t)k * LANES * sizeof *p);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const float    x = s[j * LANES + i];
            const uint16_t h = to_bf16(weight(f ? f[i] * x : x, m[i], kind));
            const float    w = from_bf16(h);

            if (kind == FOCI_WEIGH_SOFTMAX) l[i] += w;
            if (kind == FOCI_WEIGH_L2NORM) l[i] += w * w;
            p[j / 2 * LANES + i] |= (uint32_t)h << 16 * (j & 1);
        }
    return moved;
}

/*
 * And back
 */

/* Weight and gradient of lane i for a score and its dp. */
static void slope(float s, float dp, int i, const struct grad_rows *r, float *w,
                  float *ds)
{
    const float t = r->f ? r->f[i] * s : s;

    *w = *ds = 0.0f;
    if (t == -INFINITY) return;

    if (r->kind == FOCI_WEIGH_RELU2) {
        *w = positive(t) * positive(t) * r->norm[i];
        *ds = 2.0f * positive(t) * r->norm[i] * dp;
    } else {
        *w = exp2f(t - r->norm[i]);
        *ds = *w * (dp - (r->kind == FOCI_WEIGH_L2NORM ? *w : 1.0f) * r->delta[i]);
    }
    if (r->c != 0.0f) {
        const float x = t / (r->unit * r->c);
        *ds *= 1.0f - x * x;
    }
}

static void grad_f32(float *s, float *dp, int n, const struct grad_rows *r)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const int x = j * LANES + i;
            slope(s[x], dp[x], i, r, &s[x], &dp[x]);
        }
}

static void grad_bf16(const float *s, const float *dp, int n, int k,
                      const struct grad_rows *r, uint16_t *w, uint16_t *ds, uint32_t *p)
{
    memset(p, 0, (size_t)k * LANES * sizeof *p);
    for (int j = 0; j < 2 * k; j++)
        for (int i = 0; i < LANES; i++) {
            const int x = j * LANES + i;
            float     wx = 0.0f, dx = 0.0f;

            if (j < n) slope(s[x], dp[x], i, r, &wx, &dx);
            w[x] = to_bf16(wx);
            ds[x] = to_bf16(dx);
            p[j / 2 * LANES + i] |= (uint32_t)ds[x] << 16 * (j & 1);
        }
}

static void grad_sums(float *sums, float *means, const void *w, const void *ds,
                      int dtype, const float *x, int n, int square)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const int   at = j * LANES + i;
            const float by = element(w, at, dtype);

            sums[i] += element(ds, at, dtype);
            if (by != 0.0f) means[i] += (square ? by * by : by) * x[at];
        }
}

static void shrink(float *o, int rows, const float *factor)
{
    for (int c = 0; c < rows; c++)
        for (int i = 0; i < LANES; i++)
            o[c * LANES + i] *= factor[i];
}

static void row_dot(float *out, const float *a, const float *b, int64_t ld, int n, int d)
{
    for (int i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int c = 0; c < d; c++)
            sum += a[i * ld + c] * b[i * ld + c];
        out[i] = sum;
    }
}
