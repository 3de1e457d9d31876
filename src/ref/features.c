/* features.c -- features of rows, written out, and the way back.
 *
 *     row       x_c
 *     elu       x_c + 1 above 0, else e^x_c;  relu  max(x_c, 0);  cos  cos(x_c)
 *     rotated   relu cos t, then relu sin t, t = pi place/(2 length)
 *     powers    1, then y_c^r, r = 1 to order
 *     products  sqrt(share_r r!/(n_1! n_2! ...)) y_a y_b ..., a <= b <= ..., r of them;
 *               n are how often each element is there
 *     softmax   e^x_c; of queries divided by the sum
 *     exp       e^(w.Aw + w.By + y.Cy), then the same of -w
 *     trig      e^(y.y/2) [cos(w.y), sin(w.y)]
 *
 * where y is x times the root of the scale, of queries with its sign.
 */
#include <math.h>

#include "ref/linear.h"

static const double pi = 3.14159265358979323846;

static double dot(const struct ref_linear *x, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t t = 0; t < x->dqk; t++)
        ref_add(x, &sum, a[t] * b[t]);
    return sum;
}

/*
 * Element by element
 */

/* f(x) and its slope. */
static double element(foci_feature feature, double x, double *slope)
{
    switch (feature) {
    case FOCI_FEATURE_ELU: *slope = x > 0 ? 1 : exp(x); return x > 0 ? x + 1 : exp(x);
    case FOCI_FEATURE_RELU:
        *slope = x > 0 ? 1 : x <= 0 ? 0 : x; /* NaN stays */
        return x <= 0 ? 0 : x;
    case FOCI_FEATURE_COS: *slope = -sin(x); return cos(x);
    default: *slope = 1; return x;
    }
}

static double angle_of(const struct ref_linear *x, const struct ref_features *f,
                       int64_t i)
{
    return pi / 2 * (double)(f->place + i) / x->length;
}

static void elements(const struct ref_linear *x, const struct ref_features *f, int64_t i)
{
    const double *from = f->x + i * x->dqk, angle = angle_of(x, f, i);
    double       *to = f->value + i * x->m, slope;

    for (int64_t c = 0; c < x->dqk; c++) {
        to[c] = element(x->l.feature, from[c], &slope);
        if (!x->l.cosine) continue;
        to[x->dqk + c] = to[c] * sin(angle);
        to[c] *= cos(angle);
    }
}

static void elements_back(const struct ref_linear *x, const struct ref_features *f,
                          int64_t i)
{
    const double *from = f->x + i * x->dqk, *d = f->dvalue + i * x->m;
    const double  angle = angle_of(x, f, i);
    double       *dx = f->dx + i * x->dqk, slope;

    for (int64_t c = 0; c < x->dqk; c++) {
        element(x->l.feature, from[c], &slope);
        dx[c] += slope *
                 (x->l.cosine ? d[c] * cos(angle) + d[x->dqk + c] * sin(angle) : d[c]);
    }
}

/*
 * Powers and products
 */

static void powers(const struct ref_linear *x, const struct ref_features *f, int64_t i)
{
    double *to = f->value + i * x->m;

    *to++ = 1;
    for (int r = 1; r <= x->l.order; r++)
        for (int64_t c = 0; c < x->dqk; c++)
            *to++ = pow(f->root * f->x[i * x->dqk + c], r);
}

static void powers_back(const struct ref_linear *x, const struct ref_features *f,
                        int64_t i)
{
    const double *d = f->dvalue + i * x->m + 1;

    for (int r = 1; r <= x->l.order; r++)
        for (int64_t c = 0; c < x->dqk; c++)
            f->dx[i * x->dqk + c] +=
                *d++ * r * f->root * pow(f->root * f->x[i * x->dqk + c], r - 1);
}

/* The next r numbers below d that never fall; false after the last. */
static bool next(int64_t *c, int r, int64_t d)
{
    int t = r - 1;

    while (t >= 0 && c[t] == d - 1)
        t--;
    if (t < 0) return false;
    c[t]++;
    for (int u = t + 1; u < r; u++)
        c[u] = c[t];
    return true;
}

/* r!/(n_1! n_2! ...): in how many orders these r numbers come. */
static double orders(const int64_t *c, int r)
{
    double n = 1, alike = 0;

    for (int t = 0; t < r; t++) {
        alike = t && c[t] == c[t - 1] ? alike + 1 : 1;
        n *= (t + 1) / alike;
    }
    return n;
}

/* y of all but number `without`. */
static double product(const struct ref_linear *x, const struct ref_features *f,
                      int64_t i, const int64_t *c, int r, int without)
{
    double y = 1;
    for (int t = 0; t < r; t++)
        if (t != without) y *= f->root * f->x[i * x->dqk + c[t]];
    return y;
}

/* Fills values, or with `back` adds to dx. */
static void products(const struct ref_linear *x, const struct ref_features *f,
                     int64_t i, bool back)
{
    int64_t at = i * x->m;

    for (int r = 0; r <= x->l.order; r++) {
        int64_t c[FOCI_MAX_ORDER + 1] = { 0 };
        if (x->l.coeff[r] == 0) continue;
        do {
            const double sign = f->queries && x->l.coeff[r] < 0 ? -1 : 1;
            const double by = sign * sqrt(fabs(x->l.coeff[r]) * orders(c, r));
            if (!back) f->value[at] = by * product(x, f, i, c, r, -1);
            for (int t = 0; back && t < r; t++)
                f->dx[i * x->dqk + c[t]] +=
                    f->dvalue[at] * by * f->root * product(x, f, i, c, r, t);
            at++;
        } while (next(c, r, x->dqk));
    }
}

/* Multisets of r of d elements for every r whose share is not 0: each further element is
 * in a multiset of r elements or leaves it as it was. */
static int64_t products_count(const foci_linear *l, int64_t d)
{
    int64_t of[FOCI_MAX_ORDER + 1] = { 1 }, sum = 0;

    for (int64_t c = 0; c < d; c++)
        for (int r = 1; r <= l->order; r++)
            of[r] += of[r - 1];
    for (int r = 0; r <= l->order; r++)
        if (l->coeff[r] != 0) sum += of[r];
    return sum;
}

int64_t ref_features_count(const foci_mech *m, const foci_linear *l, int64_t d)
{
    int64_t omega[3] = { 0 };

    switch (l->feature) {
    case FOCI_FEATURE_ONE: return 1;
    case FOCI_FEATURE_POWERS: return 1 + l->order * d;
    case FOCI_FEATURE_PRODUCTS: return products_count(l, d);
    case FOCI_FEATURE_RELU: return l->cosine ? 2 * d : d;
    case FOCI_FEATURE_EXP: /* of w, and of -w */
        m->def->tensors[0].shape(m, m->arg, omega);
        return l->both ? 2 * omega[0] : omega[0];
    case FOCI_FEATURE_TRIG: /* cosines and sines */
        m->def->tensors[0].shape(m, m->arg, omega);
        return 2 * omega[0];
    default: return d;
    }
}

/*
 * Logs
 */

static void softmax(const struct ref_linear *x, const struct ref_features *f, int64_t i)
{
    const double *from = f->x + i * x->dqk;
    double        most = -INFINITY, sum = 0;

    for (int64_t c = 0; c < x->dqk; c++)
        most = fmax(most, from[c]);
    for (int64_t c = 0; c < x->dqk; c++)
        sum += exp(from[c] - most);
    for (int64_t c = 0; c < x->dqk; c++) {
        f->log[i * x->m + c] = from[c] - (f->queries ? most + log(sum) : 0);
        f->value[i * x->m + c] = 1;
    }
}

static void softmax_back(const struct ref_linear *x, const struct ref_features *f,
                         int64_t i)
{
    const double *d = f->dlog + i * x->m;
    double        sum = 0;

    softmax(x, f, i); /* as it was before rounding */
    for (int64_t c = 0; f->queries && c < x->dqk; c++)
        sum += d[c];
    for (int64_t c = 0; c < x->dqk; c++)
        f->dx[i * x->dqk + c] +=
            d[c] - (f->queries ? sum * exp(f->log[i * x->m + c]) : 0);
}

/* y.Cy, and -y.y/2 more for the kernel e^(-|x - y|^2/2).  With rounding it is rounded after
 * every term, as engines do: all features of a key share what it is off by, so that this
 * is not lost in their sum, as is what each of them is off by on its own. */
static double square(const struct ref_linear *x, const struct ref_features *f,
                     const double *y)
{
    double sum = 0;
    for (int64_t c = 0; c < x->dqk; c++)
        ref_add(x, &sum, y[c] * dot(x, f->quad + c * x->dqk, y));
    return f->root * f->root * (sum - (x->l.gaussian ? dot(x, y, y) / 2 : 0));
}

static void exponentials(const struct ref_linear *x, const struct ref_features *f,
                         int64_t i)
{
    const double *from = f->x + i * x->dqk, all = square(x, f, from);
    double       *to = f->log + i * x->m;

    for (int64_t r = 0; r < x->directions; r++) {
        const double *w = x->omega + r * x->dqk;
        const double  s = f->root * dot(x, f->along + r * x->dqk, from);
        double        own = 0;
        for (int64_t c = 0; c < x->dqk; c++)
            own += x->e.a[c] * w[c] * w[c];
        to[r] = own + s + all;
        if (x->l.both) to[x->directions + r] = own - s + all;
    }
    for (int64_t r = 0; r < x->m; r++)
        f->value[i * x->m + r] = 1;
}

static void exponentials_back(const struct ref_linear *x, const struct ref_features *f,
                              int64_t i)
{
    const double *from = f->x + i * x->dqk, *d = f->dlog + i * x->m;
    double       *dx = f->dx + i * x->dqk, sum = 0;

    for (int64_t r = 0; r < x->m; r++) {
        const double *along = f->along + r % x->directions * x->dqk;
        sum += d[r];
        for (int64_t c = 0; c < x->dqk; c++)
            dx[c] += (r < x->directions ? d[r] : -d[r]) * f->root * along[c];
    }
    sum *= f->root * f->root;
    for (int64_t c = 0; c < x->dqk; c++) {
        for (int64_t t = 0; t < x->dqk; t++)
            dx[c] +=
                sum * (f->quad[c * x->dqk + t] + f->quad[t * x->dqk + c]) * from[t];
        if (x->l.gaussian) dx[c] -= sum * from[c];
    }
}

static void trigonometric(const struct ref_linear *x, const struct ref_features *f,
                          int64_t i)
{
    const double *from = f->x + i * x->dqk;
    const double  half = f->root * f->root * dot(x, from, from) / 2;

    for (int64_t r = 0; r < x->directions; r++) {
        const double s = ref_sum(x, f->root * dot(x, x->omega + r * x->dqk, from));
        f->value[i * x->m + r] = cos(s);
        f->value[i * x->m + x->directions + r] = sin(s);
    }
    for (int64_t r = 0; r < x->m; r++)
        f->log[i * x->m + r] = x->l.gaussian ? 0 : half;
}

static void trigonometric_back(const struct ref_linear *x, const struct ref_features *f,
                               int64_t i)
{
    const double *from = f->x + i * x->dqk, *d = f->dvalue + i * x->m;
    double       *dx = f->dx + i * x->dqk, sum = 0;

    for (int64_t r = 0; r < x->directions; r++) {
        const double *w = x->omega + r * x->dqk;
        const double  s = f->root * dot(x, w, from);
        const double  ds = d[x->directions + r] * cos(s) - d[r] * sin(s);
        for (int64_t c = 0; c < x->dqk; c++)
            dx[c] += ds * f->root * w[c];
    }
    for (int64_t r = 0; r < x->m && !x->l.gaussian; r++)
        sum += f->dlog[i * x->m + r];
    for (int64_t c = 0; c < x->dqk; c++)
        dx[c] += sum * f->root * f->root * from[c];
}

/* The log of e^x rounded to a word of bf16, whatever its size, or itself a float. */
static double round_log(int type, double x)
{
    const double bits = x / log(2), whole = floor(bits);

    if (type == FOCI_F32 || !isfinite(x)) return ref_round(type, x);
    return log(ref_round(type, exp2(bits - whole))) + whole * log(2);
}

static void fill_row(const struct ref_linear *x, const struct ref_features *f, int64_t i)
{
    switch (x->l.feature) {
    case FOCI_FEATURE_ONE: f->value[i * x->m] = 1; break;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_RELU:
    case FOCI_FEATURE_COS: elements(x, f, i); break;
    case FOCI_FEATURE_POWERS: powers(x, f, i); break;
    case FOCI_FEATURE_PRODUCTS: products(x, f, i, false); break;
    case FOCI_FEATURE_SOFTMAX: softmax(x, f, i); break;
    case FOCI_FEATURE_EXP: exponentials(x, f, i); break;
    case FOCI_FEATURE_TRIG: trigonometric(x, f, i); break;
    }
}

/* Row r of `along` is w_r B. */
static void map_directions(const struct ref_linear *x, const struct ref_features *f)
{
    const double *b = f->queries ? x->e.bx : x->e.by;

    for (int64_t t = 0; t < x->directions * x->dqk; t++) {
        const double *row = b + t % x->dqk * x->dqk;
        double       *to = f->along + t / x->dqk * x->dqk;
        for (int64_t c = 0; c < x->dqk; c++)
            if (row[c] != 0) to[c] += x->omega[t] * row[c];
    }
}

void ref_features_fill(const struct ref_linear *x, struct ref_features *f)
{
    if (x->l.feature == FOCI_FEATURE_EXP) map_directions(x, f);
    f->quad = f->queries ? x->e.cx : x->e.cy;
    const foci_range rows = f->queries ? x->p->rows : (foci_range){ 0, f->rows };
    for (int64_t i = rows.begin; i < rows.end; i += f->queries ? x->p->step : 1)
        fill_row(x, f, i);
    for (int64_t t = 0; x->type != REF_F64 && t < f->rows * x->m; t++) {
        f->rounded[t] = ref_operand(x, f->value[t]);
        f->rounded_log[t] = x->l.feature == FOCI_FEATURE_TRIG
                                ? f->log[t]
                                : round_log(x->type, f->log[t]);
    }
}

void ref_features_back(const struct ref_linear *x, const struct ref_features *f,
                       int64_t i)
{
    switch (x->l.feature) {
    case FOCI_FEATURE_ONE: break;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_RELU:
    case FOCI_FEATURE_COS: elements_back(x, f, i); break;
    case FOCI_FEATURE_POWERS: powers_back(x, f, i); break;
    case FOCI_FEATURE_PRODUCTS: products(x, f, i, true); break;
    case FOCI_FEATURE_SOFTMAX: softmax_back(x, f, i); break;
    case FOCI_FEATURE_EXP: exponentials_back(x, f, i); break;
    case FOCI_FEATURE_TRIG: trigonometric_back(x, f, i); break;
    }
}
