/* exponents.c -- A, B and C of features e^(w.Aw + w.By + y.Cy): constants, parameters, or
 * the best ones for the rows at hand. */
#include <math.h>

#include "ref/linear.h"

enum { A = 1, BX, BY, CX, CY }; /* tensors of a mechanism that has them */

static void diagonal(double *to, int64_t d, double value)
{
    for (int64_t t = 0; t < d * d; t++)
        to[t] = t % (d + 1) ? 0 : value;
}

/* B and C that go with A alone. */
static void follow(struct ref_linear *x)
{
    for (int64_t c = 0; c < x->dqk; c++) {
        const double b = sqrt(1 - 4 * x->e.a[c]);
        x->e.bx[c * (x->dqk + 1)] = x->e.by[c * (x->dqk + 1)] = b;
    }
    diagonal(x->e.cx, x->dqk, -0.5);
    diagonal(x->e.cy, x->dqk, -0.5);
}

static void copy(const struct ref_linear *x, size_t tensor, double *to, int64_t n)
{
    const int64_t at = ref_tensor(x->p, -1, tensor);
    for (int64_t t = 0; at >= 0 && t < n; t++)
        to[t] = x->p->call->params[at + t];
}

static void average(const struct ref_linear *x, const struct ref_features *f,
                    double *mean, double *squares)
{
    const int64_t d = x->dqk;
    const double  n = (double)f->rows;

    for (int64_t i = 0; i < f->rows; i++)
        for (int64_t c = 0; c < d; c++) {
            const double y = f->root * f->x[i * d + c];
            mean[c] += y / n;
            for (int64_t t = 0; t < d; t++)
                squares[c * d + t] += y * f->root * f->x[i * d + t] / n;
        }
}

foci_status ref_exponents(struct ref_linear *x)
{
    const int64_t d = x->dqk;

    if (x->l.feature != FOCI_FEATURE_EXP) return FOCI_OK;
    for (int64_t c = 0; c < d; c++)
        x->e.a[c] = x->l.a;
    if (x->l.moments) copy(x, A, x->e.a, d);
    if (x->l.moments && isnan(x->e.a[0])) {
        if (x->causal) return FOCI_ERR_ARG; /* they would know what is to come */
        average(x, &x->q, x->means.x, x->means.xx);
        average(x, &x->k, x->means.y, x->means.yy);
        if (x->nq && x->nk)
            ref_moments_solve(x->l.moments, &x->means, x->scratch, &x->e);
        return FOCI_OK;
    }
    follow(x);
    if (x->l.moments <= FOCI_MOMENTS_NORM) return FOCI_OK;
    copy(x, BX, x->e.bx, d * d);
    copy(x, BY, x->e.by, d * d);
    copy(x, CX, x->e.cx, d * d);
    copy(x, CY, x->e.cy, d * d);
    return FOCI_OK;
}
