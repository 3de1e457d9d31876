/* moments.h -- from moments of x and y to the exponents of random features that estimate
 * e^(x.y) best (foci_moments). */
#ifndef FOCI_MOMENTS_H
#define FOCI_MOMENTS_H

#include "core/core.h"

/* Means over rows: x x^T and y y^T [d][d], x and y [d]. */
struct moments {
    int64_t d;
    double *xx, *yy, *x, *y;
};

/* A is a diagonal [d], the others [d][d]. */
struct exponents {
    double *a, *bx, *by, *cx, *cy;
};

/* Doubles of scratch that moments_solve() needs. */
int64_t moments_scratch(int64_t d);
void    moments_solve(foci_moments kind, const struct moments *m, double *scratch,
                      struct exponents *e);

/* The best a for this mean of |x + y|^2 / d; it is at most 0. */
double moments_best(double mean);

/* Eigenvalues in ascending order and eigenvectors, the rows of v, of a symmetric a [d][d],
 * which is overwritten; the largest entry of each vector is positive. */
void eigen_symmetric(int64_t d, double *a, double *values, double *v);

#endif
