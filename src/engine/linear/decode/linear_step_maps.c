/* linear_step_maps.c -- features of single rows, as linear_maps.c and linear_random.c
 * make them of 64 lanes. */
#include <math.h>
#include <string.h>

#include "engine/linear/decode/linear_step.h"

/* Tensors of EXP. */
enum { OMEGA, TENSOR_A, BX, BY, CX, CY };

static const float *tensor(const struct linear *x, int t, int64_t h, int64_t count)
{
    return x->io->params + x->stage->group->param0[t] + h * count;
}

bool linear_step_projects(const struct linear *x)
{
    return x->l->feature == FOCI_FEATURE_EXP || x->l->feature == FOCI_FEATURE_TRIG;
}

/*
 * Plain features
 */

/* cos t relu(x) and sin t relu(x), t the angle of the position. */
static void rotate_cosformer(const struct linear *x, int64_t pos, float *f)
{
    const double t = acos(-1.0) * (double)pos / (2 * x->l->length);
    const float  c = (float)cos(t), s = (float)sin(t);

    for (int i = 0; i < x->dq; i++) {
        f[x->dq + i] = s * f[i];
        f[i] *= c;
    }
}

static void plain(const struct linear_step *s, const float *row, float *f)
{
    _Alignas(64) float one[LANES];

    for (int i = 0; i < LANES; i++)
        one[i] = 1;
    s->x.k->feature(f, row, (int)(s->ldx / LANES), (int)s->x.l->feature, one);
}

void linear_step_map(const struct linear_step *s, bool keys, int64_t pos,
                     const struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;
    const float         *row = r->rows + (keys ? 0 : s->ldx);
    float               *f = keys ? r->key : r->query;

    switch (x->l->feature) {
    case FOCI_FEATURE_ONE: f[0] = 1; break;
    case FOCI_FEATURE_ROW:
        for (int i = 0; i < x->dq; i++)
            f[i] = keys ? row[i] : (float)(x->scale * (double)row[i]);
        break;
    case FOCI_FEATURE_SOFTMAX:
        for (int i = 0; i < s->layout.m_full; i++)
            f[i] = i < x->dq ? row[i] : -INFINITY;
        break;
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_PRODUCTS: linear_products_row(x, keys, row, f); break;
    default: plain(s, row, f); break;
    }
    if (x->l->cosine) rotate_cosformer(x, pos, f);
}

/*
 * Projections
 */

/* A where it is the same for all elements. */
static double common_a(const struct linear *x, int64_t h)
{
    return x->l->moments == FOCI_MOMENTS_NORM ? (double)*tensor(x, TENSOR_A, h, x->dq)
                                              : x->l->a;
}

bool linear_step_has_bias(const struct linear *x)
{
    return x->l->feature == FOCI_FEATURE_EXP && (x->l->moments || x->l->a != 0);
}

/* sum of a w^2, in several independent sums, for a single one is a chain of dependent
 * adds. */
static float squares(const float *w, const float *a, int d)
{
    enum { SIDE = 8 };
    float sum[SIDE] = { 0 };
    int   c = 0;

    for (; c + SIDE <= d; c += SIDE)
        for (int i = 0; i < SIDE; i++)
            sum[i] += a[c + i] * w[c + i] * w[c + i];
    for (; c < d; c++)
        sum[0] += a[c] * w[c] * w[c];
    for (int i = 1; i < SIDE; i++)
        sum[0] += sum[i];
    return sum[0];
}

void linear_step_bias(const struct linear_step *s, int64_t h,
                      const struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;
    const int            n = x->l->both ? x->m / 2 : x->m, d = x->dq;
    const float         *w = tensor(x, OMEGA, h, (int64_t)n * d);
    float               *a = r->rows, *bias = s->bias + h * s->layout.m_full;

    for (int c = 0; c < d; c++)
        a[c] = x->l->moments ? tensor(x, TENSOR_A, h, d)[c] : (float)x->l->a;
    for (int i = 0; i < n; i++)
        bias[i] = squares(w + (int64_t)i * d, a, d);
}

/* out[i] = row i of by[n][d] times the row. */
static void times(const struct linear_step *s, const float *row, const float *by, int n,
                  const struct linear_step_scratch *r, float *out)
{
    const int d = s->x.dq;

    for (int i = 0; i < n; i += LANES) {
        const int some = n - i < LANES ? n - i : LANES;

        s->x.k->dots_f32(r->dots, row, s->ldx, 1, by + (int64_t)i * d, d, FOCI_F32,
                         some, d);
        memcpy(out + i, r->dots, (size_t)some * sizeof *out);
    }
}

static float dot(const float *a, const float *b, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

/* Rows to y = sqrt(s) x, then to B y.  The result is y.C y of the key, with what the
 * Gaussian kernel adds; that of a query cancels. */
static float prepare(const struct linear_step *s, int64_t h, int n_rows,
                     const struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;
    const int64_t        square = (int64_t)x->dq * x->dq;
    const float          root = (float)sqrt(x->scale);
    float               *y = r->rows, *spare = y + 2 * s->ldx;

    for (int64_t i = 0; i < n_rows * s->ldx; i++)
        y[i] *= root;
    const float length = dot(y, y, x->dq);
    if (x->l->moments <= FOCI_MOMENTS_NORM) {
        const float b = (float)sqrt(1 - 4 * common_a(x, h));
        for (int64_t i = 0; i < n_rows * s->ldx; i++)
            y[i] *= b;
        return (x->l->gaussian ? -1.0f : -0.5f) * length;
    }
    times(s, y, tensor(x, CY, h, square), x->dq, r, spare);
    const float quad = dot(y, spare, x->dq);
    for (int t = 0; t < n_rows; t++) {
        times(s, y + t * s->ldx, tensor(x, t ? BX : BY, h, square), x->dq, r, spare);
        memcpy(y + t * s->ldx, spare, (size_t)x->dq * sizeof *y);
    }
    return quad - (x->l->gaussian ? 0.5f * length : 0);
}

/* From w.y to logs. */
static void finish(const struct linear_step *s, int64_t h, float quad, float *l)
{
    const struct linear *x = &s->x;
    const int            n = x->l->both ? x->m / 2 : x->m;
    const float         *bias = s->bias ? s->bias + h * s->layout.m_full : NULL;

    for (int i = 0; i < n; i++) {
        const float at = quad + (bias ? bias[i] : 0);
        if (x->l->both) l[n + i] = at - l[i];
        l[i] += at;
    }
    for (int i = x->m; i < s->layout.m_full; i++)
        l[i] = -INFINITY;
}

/* f: from n angles to n cosines and n sines. */
static void to_cos_sin(const struct linear_step *s, int n,
                       const struct linear_step_scratch *r, float *f)
{
    _Alignas(64) float one[LANES];

    for (int i = 0; i < LANES; i++)
        one[i] = 1;
    for (int i = 0; i < n; i += LANES) {
        const int some = n - i < LANES ? n - i : LANES;
        float    *sines = r->dots + LANES;

        memset(r->dots, 0, LANES * sizeof *r->dots);
        memcpy(r->dots, f + i, (size_t)some * sizeof *f);
        s->x.k->waves(r->dots, sines, r->dots, 1, one);
        memcpy(f + i, r->dots, (size_t)some * sizeof *f);
        memcpy(f + n + i, sines, (size_t)some * sizeof *f);
    }
}

float linear_step_project(const struct linear_step *s, int64_t h, bool query,
                          const struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;
    const bool           trig = x->l->feature == FOCI_FEATURE_TRIG;
    const int            n = trig || x->l->both ? x->m / 2 : x->m;
    float               *out[] = { r->key, r->query };
    const float          quad = prepare(s, h, 1 + query, r);

    for (int t = 0; t < 1 + query; t++) {
        times(s, r->rows + t * s->ldx, tensor(x, OMEGA, h, (int64_t)n * x->dq), n, r,
              out[t]);
        if (trig)
            to_cos_sin(s, n, r, out[t]);
        else
            finish(s, h, t ? 0 : quad, out[t]);
    }
    return trig && !x->l->gaussian ? -quad : 0;
}
