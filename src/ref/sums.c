/* sums.c -- sums and softmaxes of rows, as the interpreters of other engines than the
 * exact one need them. */
#include <math.h>

#include "ref/ref.h"

double ref_scale(const struct ref_part *p)
{
    const foci_mech *m = p->mech;
    double           scale = 1 / sqrt((double)m->dims.qk);

    for (size_t t = 0; t < m->n_mods; t++)
        if (m->mods[t].def->does & FOCI_MOD_SCALE) scale = m->mods[t].arg[0];
    return scale;
}

double ref_dot(int type, const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        sum = ref_round(type, sum + a[t] * b[t]);
    return sum;
}

void ref_add_row(int type, double *y, double by, const double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        y[t] = ref_round(type, y[t] + by * x[t]);
}

/* NaN if any is. */
static double largest(const double *x, int64_t n)
{
    double m = -INFINITY;
    for (int64_t t = 0; t < n; t++)
        if (x[t] > m || isnan(x[t])) m = x[t];
    return m;
}

void ref_softmax(double *x, int64_t n)
{
    const double m = largest(x, n);
    double       sum = 0;

    for (int64_t t = 0; t < n; t++) {
        x[t] = exp(x[t] - m);
        sum += x[t];
    }
    for (int64_t t = 0; t < n; t++)
        x[t] /= sum;
}

void ref_softmax_back(const double *a, double *da, int64_t n)
{
    double mean = 0;

    for (int64_t t = 0; t < n; t++)
        mean += a[t] * da[t];
    for (int64_t t = 0; t < n; t++)
        da[t] = a[t] * (da[t] - mean);
}
