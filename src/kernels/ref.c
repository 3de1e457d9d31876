/* ref.c -- every kernel in plain C, to be believed by reading.
 *
 * This is the table of machines without a better one, and the judge of all the
 * others (tests/kern).  Sums run upward in float, in one accumulator; bf16 is
 * rounded to nearest even and keeps its denormals.  Nothing here is clever, and
 * nothing here should become so: speed lives in the levels above.
 */
#include <math.h>
#include <string.h>

#include "foci/foci.h"
#include "foci/mechanism.h"
#include "kernels/kernels.h"

/*
 * Numbers of 16 bits
 */

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static float from_bf16(uint32_t h) { return float_of(h << 16); }

static uint16_t to_bf16(float x)
{
    const uint32_t u = bits_of(x);

    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_f16(uint16_t h)
{
    const float sign = h & 0x8000 ? -1.0f : 1.0f;
    const int   e = h >> 10 & 31, f = h & 1023;

    if (e == 31) return f ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexpf((float)f, -24);
    return sign * ldexpf((float)(f + 1024), e - 25);
}

static uint16_t to_f16(float x)
{
    const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    const float    a = fabsf(x);

    if (isnan(x)) return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);

    /* Units of the last place: 2^-24 below 2^-14, then 2^(e-10).  rintf rounds to
     * nearest even; a carry into the next binade does the right thing by itself. */
    int e = -14;
    if (a >= 0x1p-14f) e = ilogbf(a);
    const int f = (int)rintf(ldexpf(a, 10 - e));
    return (uint16_t)(sign | ((e + 14) * 1024 + f));
}

static float element(const void *in, int64_t i, int dtype)
{
    switch (dtype) {
    case FOCI_BF16: {
        uint16_t h;
        memcpy(&h, (const char *)in + 2 * i, 2);
        return from_bf16(h);
    }
    case FOCI_F16: {
        uint16_t h;
        memcpy(&h, (const char *)in + 2 * i, 2);
        return from_f16(h);
    }
    default: {
        float x;
        memcpy(&x, (const char *)in + 4 * i, 4);
        return x;
    }
    }
}

static void set_element(void *out, int64_t i, int dtype, float x)
{
    if (dtype == FOCI_F32) {
        memcpy((char *)out + 4 * i, &x, 4);
    } else {
        const uint16_t h = dtype == FOCI_BF16 ? to_bf16(x) : to_f16(x);
        memcpy((char *)out + 2 * i, &h, 2);
    }
}

static uint32_t word(float low, float high)
{
    return to_bf16(low) | (uint32_t)to_bf16(high) << 16;
}

/*
 * Products
 */

static void gemm_f32(float *c, int64_t ldc, const float *a, int64_t ra, int64_t ca,
                     const float *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = add ? c[i * ldc + j] : 0.0f;
            for (int t = 0; t < k; t++)
                sum += a[i * ra + t * ca] * b[t * ldb + j];
            c[i * ldc + j] = sum;
        }
}

static void gemm_bf16(float *c, int64_t ldc, const uint32_t *a, int64_t ra, int64_t ca,
                      const uint32_t *b, int64_t ldb, int m, int n, int k, int add)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = add ? c[i * ldc + j] : 0.0f;
            for (int t = 0; t < k; t++) {
                const uint32_t x = a[i * ra + t * ca], y = b[t * ldb + j];
                sum += from_bf16(x & 0xffff) * from_bf16(y & 0xffff);
                sum += from_bf16(x >> 16) * from_bf16(y >> 16);
            }
            c[i * ldc + j] = sum;
        }
}

/*
 * Rows of tensors
 */

static void load_rows(float *out, int64_t ld_out, const void *in, int64_t ld_in,
                      int dtype, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int64_t c = 0; c < ld_out; c++)
            out[i * ld_out + c] = c < d ? element(in, i * ld_in + c, dtype) : 0;
}

static void fetch_rows(float *out, int64_t ld_out, const void *in, int64_t ld_in,
                       int dtype, int n, int d, int ahead)
{
    (void)ahead;
    load_rows(out, ld_out, in, ld_in, dtype, n, d);
}

static void store_rows(void *out, int64_t ld_out, int dtype, const float *in,
                       int64_t ld_in, float scale, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld_out + c, dtype, in[i * ld_in + c] * scale);
}

static void finish_rows(void *out, int64_t ld_out, int dtype, const float *in,
                        int64_t ld_in, const struct finish *f, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            float x = in[i * ld_in + c];

            if (f->bias) x += f->bias[c];
            if (f->silu) x /= 1.0f + expf(-x);
            if (f->keep) x = f->keep[i] >> (f->first + c) & 1 ? x * f->factor : 0.0f;
            if (f->more) x += element(f->more, i * f->ld_more + c, dtype);
            set_element(out, i * ld_out + c, dtype, x);
        }
}

static void stream_rows(void *out, int64_t ld_out, int dtype, const float *in,
                        int64_t ld_in, int n, int d)
{
    store_rows(out, ld_out, dtype, in, ld_in, 1.0f, n, d);
}

static void stream_end(void) {}

static void copy_rows(void *out, int64_t to, const void *in, int64_t from, int n,
                      int bytes)
{
    for (int i = 0; i < n; i++)
        memcpy((char *)out + i * to, (const char *)in + i * from, (size_t)bytes);
}

static void store_cols(void *out, int64_t ld_out, int dtype, const float *in,
                       const float *factor, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld_out + c, dtype, in[c * LANES + i] * factor[i]);
}

/*
 * Packing
 */

static float at(const float *in, int64_t ld, int n, int i, int c)
{
    return i < n ? in[i * ld + c] : 0.0f;
}

static void pack_cols_f32(float *out, const float *in, int64_t ld, int n, int d)
{
    for (int c = 0; c < d; c++)
        for (int i = 0; i < LANES; i++)
            out[c * LANES + i] = at(in, ld, n, i, c);
}

static void pack_cols_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int t = 0; t < d / 2; t++)
        for (int i = 0; i < LANES; i++)
            out[t * LANES + i] =
                word(at(in, ld, n, i, 2 * t), at(in, ld, n, i, 2 * t + 1));
}

static void pack_rows_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < LANES; i++)
        for (int t = 0; t < d / 2; t++)
            out[i * (d / 2) + t] =
                word(at(in, ld, n, i, 2 * t), at(in, ld, n, i, 2 * t + 1));
}

/* Rows 2t and 2t+1 of `width` columns, rows of the result `width` apart. */
static void pack_row_pairs(uint32_t *out, const float *in, int64_t ld, int n, int width)
{
    for (int t = 0; t < LANES / 2; t++)
        for (int c = 0; c < width; c++)
            out[t * width + c] =
                word(at(in, ld, n, 2 * t, c), at(in, ld, n, 2 * t + 1, c));
}

static void pack_pairs_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    (void)d;
    pack_row_pairs(out, in, ld, n, (int)ld);
}

static void pack_sum_bf16(uint32_t *out, const float *in, int64_t ld, int n, int d)
{
    pack_row_pairs(out, in, ld, n, d);
}

/* Of bf16 as they are stored. */
static uint32_t half(const uint16_t *in, int64_t ld, int n, int d, int i, int c)
{
    return i < n && c < d ? in[i * ld + c] : 0;
}

static void take_cols_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                           int wide)
{
    for (int t = 0; t < wide / 2; t++)
        for (int i = 0; i < LANES; i++)
            out[t * LANES + i] =
                half(in, ld, n, d, i, 2 * t) | half(in, ld, n, d, i, 2 * t + 1) << 16;
}

static void take_rows_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                           int wide)
{
    for (int i = 0; i < LANES; i++)
        for (int t = 0; t < wide / 2; t++)
            out[i * (wide / 2) + t] =
                half(in, ld, n, d, i, 2 * t) | half(in, ld, n, d, i, 2 * t + 1) << 16;
}

static void take_sum_bf16(uint32_t *out, const uint16_t *in, int64_t ld, int n, int d,
                          int wide)
{
    for (int t = 0; t < LANES / 2; t++)
        for (int c = 0; c < wide; c++)
            out[t * wide + c] =
                half(in, ld, n, d, 2 * t, c) | half(in, ld, n, d, 2 * t + 1, c) << 16;
}

static void squares_bf16(float *out, const uint16_t *in, int64_t ld, int n, int d)
{
    for (int i = 0; i < n; i++) {
        out[i] = 0.0f;
        for (int c = 0; c < d; c++)
            out[i] += from_bf16(in[i * ld + c]) * from_bf16(in[i * ld + c]);
    }
}

/*
 * From scores to weights
 */

static void modify(float *s, int n, const float *f, float unit, float c,
                   const float *bias, int64_t ldb, const uint64_t *seen)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            float *const x = &s[j * LANES + i];

            *x = f[i] * *x + (bias ? bias[j * ldb + i] : 0.0f);
            if (c != 0.0f) *x = c * tanhf(*x / c);
            *x *= unit;
            if (seen && !(seen[j] >> i & 1)) *x = -INFINITY;
        }
}

/* max(x, 0) that lets NaN through */
static float positive(float x) { return x <= 0.0f ? 0.0f : x; }

/* Move the references of a block whose scores are s; the result is 1 if any moved.
 * l shrinks as what it sums: weights, or their squares. */
static int move(const float *s, int n, const float *f, float *m, float *l,
                float *shrink, int kind)
{
    int   moved = 0;
    float next[LANES];

    if (kind == FOCI_RELU2 || !shrink) return 0;

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
        l[i] *= kind == FOCI_L2NORM ? shrink[i] * shrink[i] : shrink[i];
        m[i] = next[i];
    }
    return 1;
}

/* The weight of score t against reference m. */
static float weight(float t, float m, int kind)
{
    if (kind == FOCI_RELU2) return positive(t) * positive(t);
    return exp2f(t - (m == -INFINITY ? 0.0f : m));
}

static int weigh_f32(float *s, int n, const float *f, float *m, float *l, float *shrink,
                     int kind)
{
    const int moved = move(s, n, f, m, l, shrink, kind);

    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            float *const x = &s[j * LANES + i];
            const float  w = weight(f ? f[i] * *x : *x, m[i], kind);

            if (kind == FOCI_SOFTMAX) l[i] += w;
            if (kind == FOCI_L2NORM) l[i] += w * w;
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

            if (kind == FOCI_SOFTMAX) l[i] += w;
            if (kind == FOCI_L2NORM) l[i] += w * w;
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

    if (r->kind == FOCI_RELU2) {
        *w = positive(t) * positive(t) * r->norm[i];
        *ds = 2.0f * positive(t) * r->norm[i] * dp;
    } else {
        *w = exp2f(t - r->norm[i]);
        *ds = *w * (dp - (r->kind == FOCI_L2NORM ? *w : 1.0f) * r->delta[i]);
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

/*
 * Features
 */

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

static void turn_lanes(float *out, const float *in, int64_t step, int64_t second,
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

/*
 * Labels
 */

static void best(const float *s, int n, int first, int both, float *most, float *next,
                 float *at)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const float x = s[j * LANES + i], y = both ? fabsf(x) : x;
            const float number = (float)(first + j);

            if (y > most[i]) {
                next[i] = most[i];
                most[i] = y;
                at[i] = both ? copysignf(number + 1.0f, x) : number;
            } else if (y > next[i]) {
                next[i] = y;
            }
        }
}

static void match(uint64_t *seen, const int32_t *lane, const int32_t *key, int n)
{
    for (int j = 0; j < n; j++) {
        seen[j] = 0;
        for (int i = 0; i < LANES; i++)
            seen[j] |= (uint64_t)(lane[i] == key[j]) << i;
    }
}

/*
 * Positions
 */

static void turn(float *x, int64_t ld, const float *turns, int64_t ldt, int n, int d,
                 int half, int back)
{
    for (int i = 0; i < n; i++, x += ld, turns += ldt)
        for (int t = 0; t < d / 2; t++) {
            const int   p = half ? t : 2 * t, q = half ? t + d / 2 : 2 * t + 1;
            const float re = turns[p], im = back ? -turns[q] : turns[q];
            const float a = x[p], b = x[q];

            x[p] = a * re - b * im;
            x[q] = a * im + b * re;
        }
}

static void skew(float *s, const float *low, const float *high, int n)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            s[j * LANES + i] +=
                i < j ? low[(LANES + i - j) * LANES + i] : high[(i - j) * LANES + i];
}

static void unskew_f32(float *band, const float *ds)
{
    for (int r = 0; r < LANES; r++)
        for (int i = 0; i < LANES; i++)
            band[r * LANES + i] = ds[(LANES + i - r) * LANES + i];
}

static void unskew_bf16(uint16_t *rows, uint32_t *words, const uint16_t *ds)
{
    memset(words, 0, LANES / 2 * LANES * sizeof *words);
    for (int r = 0; r < LANES; r++)
        for (int i = 0; i < LANES; i++) {
            const uint16_t x = ds[(LANES + i - r) * LANES + i];

            rows[r * LANES + i] = x;
            words[r / 2 * LANES + i] |= (uint32_t)x << 16 * (r & 1);
        }
}

static void diagonals(float *sums, const void *ds, int dtype, int n, uint64_t lanes)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (lanes >> i & 1)
                sums[LANES + i - j] += element(ds, j * LANES + i, dtype);
}

/*
 * Dropping weights
 */

static void chances(uint64_t *keep, int n, const uint64_t *keys, uint64_t first,
                    uint64_t bound)
{
    for (int j = 0; j < n; j++) {
        keep[j] = 0;
        for (int i = 0; i < LANES; i++) {
            uint64_t z = keys[i] + UINT64_C(0x9E3779B97F4A7C15) * (first + (uint64_t)j);

            z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
            z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
            z ^= z >> 31;
            keep[j] |= (uint64_t)(z >= bound) << i;
        }
    }
}

static void drop_f32(float *w, int n, const uint64_t *keep)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(keep[j] >> i & 1)) w[j * LANES + i] = 0.0f;
}

static void drop_rows_bf16(uint16_t *w, int n, const uint64_t *keep)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(keep[j] >> i & 1)) w[j * LANES + i] = 0;
}

static void drop_words_bf16(uint32_t *w, int n, const uint64_t *keep)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++)
            if (!(keep[j] >> i & 1))
                w[j / 2 * LANES + i] &= j % 2 ? 0x0000ffffu : 0xffff0000u;
}

/*
 * Decoding
 */

static void dots_f32(float *s, const float *q, int64_t ldq, int rows, const void *k,
                     int64_t ldk, int dtype, int n, int d, const void *next)
{
    (void)next;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int c = 0; c < d; c++)
                sum += q[r * ldq + c] * element(k, j * ldk + c, dtype);
            s[r * LANES + j] = sum;
        }
}

static void dots_bf16(float *s, const uint32_t *q, int64_t ldq, int rows,
                      const uint16_t *k, int64_t ldk, int n, int d, const void *next)
{
    (void)next;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int c = 0; c < d; c++)
                sum += from_bf16(q[r * ldq + c / 2] >> c % 2 * 16 & 0xffff) *
                       from_bf16(k[j * ldk + c]);
            s[r * LANES + j] = sum;
        }
}

static void sums_f32(float *o, int64_t ldo, const float *w, int rows, const void *v,
                     int64_t ldv, int dtype, int n, int d, const void *next)
{
    (void)next;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < d; c++)
            for (int j = 0; j < n; j++)
                o[r * ldo + c] += w[r * LANES + j] * element(v, j * ldv + c, dtype);
}

static void sums_bf16(float *o, int64_t ldo, const float *w, int rows,
                      const uint16_t *v, int64_t ldv, int n, int d, const void *next)
{
    (void)next;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < d; c++)
            for (int j = 0; j < n; j++)
                o[r * ldo + c] +=
                    from_bf16(to_bf16(w[r * LANES + j])) * from_bf16(v[j * ldv + c]);
}

static float weigh_row(float *s, float f, float *m, float *l, int kind)
{
    float top = -INFINITY, shrink = 1.0f;

    for (int j = 0; j < LANES; j++)
        if (f * s[j] > top) top = f * s[j];
    if (kind != FOCI_RELU2 && top > *m + 8.0f) {
        shrink = exp2f(*m - top);
        *l *= kind == FOCI_L2NORM ? shrink * shrink : shrink;
        *m = top;
    }
    for (int j = 0; j < LANES; j++) {
        s[j] = weight(f * s[j], *m, kind);
        if (kind != FOCI_RELU2) *l += kind == FOCI_L2NORM ? s[j] * s[j] : s[j];
    }
    return shrink;
}

static void recur(double *s, int64_t lds, const double *keep, const float *g,
                  const float *v, double *o, const float *f, int m)
{
    for (int i = 0; i < m; i++, s += lds)
        for (int64_t c = 0; c < lds; c++) {
            if (g) s[c] = keep[i] * s[c] + (double)g[i] * (double)v[c];
            if (f) o[c] += (double)f[i] * s[c];
        }
}

static void carry(double *s, int64_t lds, const double *keep, float *x, int64_t ldx,
                  int m)
{
    for (int i = 0; i < m; i++, s += lds, x += ldx)
        for (int64_t c = 0; c < lds; c++) {
            s[c] = keep[i] * s[c] + (double)x[c];
            x[c] = (float)s[c];
        }
}

/* e^(a - b), 0 where a is -inf whatever b is. */
static float exp_above(float a, float b) { return a == -INFINITY ? 0.0f : expf(a - b); }

static int log_key(float *l, float *c, float *keep, const float *top, int m)
{
    int moved = 0;

    for (int i = 0; i < m; i++) {
        keep[i] = 1.0f;
        if (top[i] > c[i] + 8.0f) {
            keep[i] = exp_above(c[i], top[i]);
            c[i] = top[i];
            moved = 1;
        }
        l[i] = exp_above(l[i], c[i]);
    }
    return moved;
}

static float log_query(float *l, const float *c, int m)
{
    float h = -INFINITY;

    for (int i = 0; i < m; i++) {
        l[i] += c[i];
        if (l[i] > h) h = l[i];
    }
    for (int i = 0; i < m; i++)
        l[i] = exp_above(l[i], h);
    return h;
}

/*
 * Linear attention
 */

static float near(float a, int key, int lane, const float *by, int both)
{
    if (!both && key > lane) return 0.0f;
    return by ? a * by[key * LANES + lane] : a;
}

static void near_f32(float *a, int n, const float *by, int both, float *sum)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            a[j * LANES + i] = near(a[j * LANES + i], j, i, by, both);
            sum[i] += a[j * LANES + i];
        }
}

static void near_bf16(const float *a, uint32_t *p, int n, int k, const float *by,
                      int both, float *sum)
{
    memset(p, 0, (size_t)k * LANES * sizeof *p);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < LANES; i++) {
            const float w = near(a[j * LANES + i], j, i, by, both);

            sum[i] += w;
            p[j / 2 * LANES + i] |= (uint32_t)to_bf16(w) << 16 * (j & 1);
        }
}

static void row_sums(float *out, const float *x, int rows, const float *by)
{
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int i = 0; i < LANES; i++)
            sum += by ? x[r * LANES + i] * by[i] : x[r * LANES + i];
        out[r] += sum;
    }
}

static void row_tops(float *top, const float *x, int rows)
{
    for (int r = 0; r < rows; r++) {
        top[r] = -INFINITY;
        for (int i = 0; i < LANES; i++)
            if (x[r * LANES + i] > top[r]) top[r] = x[r * LANES + i];
    }
}

static void exp_rows(float *x, int rows, const float *base)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < LANES; i++) {
            const float from = base[r] == -INFINITY ? 0.0f : base[r];
            x[r * LANES + i] = expf(x[r * LANES + i] - from);
        }
}

static void exp_cols(float *x, int rows, const float *add, float *top)
{
    for (int i = 0; i < LANES; i++) {
        top[i] = -INFINITY;
        for (int r = 0; r < rows; r++) {
            const float t = x[r * LANES + i] + (add ? add[r] : 0.0f);
            if (t > top[i]) top[i] = t;
        }
        const float from = top[i] == -INFINITY ? 0.0f : top[i];
        for (int r = 0; r < rows; r++)
            x[r * LANES + i] = expf(x[r * LANES + i] + (add ? add[r] : 0.0f) - from);
    }
}

static int all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return 0;
    return 1;
}

static void mean_rows(float *o, int64_t ldo, const float *v, int64_t ldv, int n, int d,
                      const double *a, double *mean)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            mean[c] += a[i] * ((double)v[i * ldv + c] - mean[c]);
            o[i * ldo + c] = (float)mean[c];
        }
}

static void mean_back(float *dv, int64_t ldv, const float *g, int64_t ldg, int n, int d,
                      const double *a, double *sum)
{
    for (int64_t i = n - 1; i >= 0; i--)
        for (int c = 0; c < d; c++) {
            if (g) sum[c] += (double)g[i * ldg + c];
            dv[i * ldv + c] = (float)(a[i] * sum[c]);
            sum[c] *= 1 - a[i];
        }
}

enum { CUBES = 14 };

static void cube_rows(float *o, int64_t ldo, const float *v, int64_t ldv, int n, int d,
                      const double *f, double *state)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < d; c++) {
            const double *by = f + i * CUBES;

            for (int p = 3; p >= 0; p--) { /* those below are still of the row before */
                double sum = by[p] * (double)v[i * ldv + c];
                for (int r = 0; r <= p; r++)
                    sum += by[4 + p * (p + 1) / 2 + r] * state[r * d + c];
                state[p * d + c] = sum;
            }
            o[i * ldo + c] = (float)state[3 * d + c];
        }
}

static void cube_back(float *dv, int64_t ldv, const float *g, int64_t ldg, int n, int d,
                      const double *f, double *state)
{
    for (int64_t i = n - 1; i >= 0; i--)
        for (int c = 0; c < d; c++) {
            const double *by = f + i * CUBES;
            double        sum = 0;

            state[3 * d + c] += (double)g[i * ldg + c];
            for (int p = 0; p < 4; p++)
                sum += by[p] * state[p * d + c];
            for (int r = 0; r < 4; r++) { /* those above are still of the row after */
                double before = 0;
                for (int p = r; p < 4; p++)
                    before += by[4 + p * (p + 1) / 2 + r] * state[p * d + c];
                state[r * d + c] = before;
            }
            dv[i * ldv + c] = (float)sum;
        }
}

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

/*
 * Few rows as lanes
 */

static void stand_rows(float *out, const void *in, int64_t ld, int dtype, int n, int d)
{
    for (int c = 0; c < d; c++)
        for (int i = 0; i < FEW_LANES; i++)
            out[c * FEW_LANES + i] = i < n ? element(in, i * ld + c, dtype) : 0.0f;
}

static void lay_rows(void *out, int64_t ld, int dtype, const float *in, int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            set_element(out, i * ld + c, dtype, in[c * FEW_LANES + i]);
}

static void lay_rows_add(float *out, int64_t ld, const float *in, const float *factor,
                         int n, int d)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            out[i * ld + c] += (factor ? factor[c] : 1.0f) * in[c * FEW_LANES + i];
}

static void add_rows(float *out, const float *in, const float *factor, int d)
{
    for (int i = 0; i < d * FEW_LANES; i++)
        out[i] += factor[i / FEW_LANES] * in[i];
}

static void hadamard(float *out, const float *in, const int32_t *from,
                     const float *factor, int n, int folds)
{
    for (int t = 0; t < n * FEW_LANES; t++)
        out[t] = 0.0f;
    for (int t = 0; t < n * folds; t++) {
        const float *x = in + (from ? from[t] : t) * FEW_LANES;
        for (int i = 0; i < FEW_LANES; i++)
            out[t % n * FEW_LANES + i] += (factor ? factor[t] : 1.0f) * x[i];
    }
    for (int half = n / 2; half; half /= 2)
        for (int t = 0; t < n * FEW_LANES; t++)
            if (!(t / FEW_LANES & half)) {
                float *const a = out + t, *const b = a + half * FEW_LANES;
                const float sum = *a + *b, rest = *a - *b;
                *a = sum;
                *b = rest;
            }
}

void kernels_ref(struct kernels *k)
{
    *k = (struct kernels){
#define KERNEL(name, result, args) .name = name,
#include "kernels/kernels.def"
#undef KERNEL
        .stream_end = stream_end,
        .has_bf16 = false,
        .sum_by_rows = false,
        .depth = 2,
        .panel = 64,
    };
}
