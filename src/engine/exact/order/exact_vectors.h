/* exact_vectors.h -- the vectors that rows are compared with to find their labels:
 * centroids of routing, rotations and directions of lsh. */
#ifndef FOCI_EXACT_VECTORS_H
#define FOCI_EXACT_VECTORS_H

#include "plan/plan.h"

/* Vectors of a set and round: element c of vector t is at[t row + c col]. */
struct vectors {
    const float *at;
    int64_t      d, row, col, n;
    double       shift; /* floor hashes: b */
    bool         both;  /* their negatives are vectors too, numbers n to 2n - 1 */
};

/* How many a set and round has; 1 where rows are not compared. */
int64_t        vectors_count(const struct stage *s);
struct vectors vectors_of(const struct stage *s, int64_t d, const float *params,
                          int64_t set, int64_t round);

/*
 * In double, so that a label never depends on the order of a sum
 */

/* The mechanism's own map of a row of d elements: mean 0, variance 1. */
void   vectors_standard(double *row, int64_t d);
double vectors_dot(const struct vectors *v, const double *row, int64_t t);
/* The number of the vector with the largest product.  Ties go to the smaller number,
 * and NaN is less than any number. */
int32_t vectors_best(const struct vectors *v, const double *row);
/* floor((x.a + b) / width) */
double vectors_stripe(const struct vectors *v, const double *row, double width);

#endif
