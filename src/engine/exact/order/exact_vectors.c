/* exact_vectors.c -- see exact_vectors.h. */
#include "engine/exact/order/exact_vectors.h"

#include <math.h>

int64_t vectors_count(const struct stage *s)
{
    const foci_mech *m = &s->group->mech;
    int64_t          shape[FOCI_MAX_TENSORS] = { 1 };

    switch (s->order.label) {
    case FOCI_LABEL_NEAREST:
        m->def->tensors[0].shape(m, m->arg, shape);
        return shape[0];
    case FOCI_LABEL_ANGULAR:
        m->def->tensors[0].shape(m, m->arg, shape);
        return shape[2];
    default: return 1;
    }
}

struct vectors vectors_of(const struct stage *s, int64_t d, const float *params,
                          int64_t set, int64_t round)
{
    const int64_t *param0 = s->group->param0;
    const int64_t  n = vectors_count(s), at = set * max64(1, s->order.rounds) + round;

    if (s->order.label == FOCI_LABEL_NEAREST)
        return (
            struct vectors){ params + param0[0] + set * n * d, d, d, 1, n, 0, false };
    if (s->order.label == FOCI_LABEL_ANGULAR)
        return (struct vectors){ params + param0[0] + at * d * n, d, 1, n, n, 0, true };
    return (struct vectors){ params + param0[1] + at * d,
                             d,
                             d,
                             1,
                             1,
                             param0[2] < 0 ? 0 : (double)params[param0[2] + at],
                             false };
}

/* Added to variances. */
static const double least_variance = 1e-5;

void vectors_standard(double *row, int64_t d)
{
    double mean = 0, square = 0;

    for (int64_t c = 0; c < d; c++)
        mean += row[c];
    mean /= (double)d;
    for (int64_t c = 0; c < d; c++)
        square += (row[c] - mean) * (row[c] - mean);
    const double deviation = sqrt(square / (double)d + least_variance);
    for (int64_t c = 0; c < d; c++)
        row[c] = (row[c] - mean) / deviation;
}

double vectors_dot(const struct vectors *v, const double *row, int64_t t)
{
    double sum = 0;

    for (int64_t c = 0; c < v->d; c++)
        sum += row[c] * (double)v->at[t * v->row + c * v->col];
    return sum;
}

int32_t vectors_best(const struct vectors *v, const double *row)
{
    double  most = -INFINITY;
    int64_t at = 0;

    for (int64_t t = 0; t < (v->both ? 2 * v->n : v->n); t++) {
        const double y = vectors_dot(v, row, t % v->n);
        const double signed_y = t < v->n ? y : -y;
        if (signed_y > most) {
            most = signed_y;
            at = t;
        }
    }
    return (int32_t)at;
}

double vectors_stripe(const struct vectors *v, const double *row, double width)
{
    return floor((vectors_dot(v, row, 0) + v->shift) / width);
}
