/* exact_vectors.h -- the vectors that rows are compared with to find their labels. */
#ifndef FOCI_EXACT_VECTORS_H
#define FOCI_EXACT_VECTORS_H

#include "plan/plan.h"

/* Those of a set and round: element c of vector t at [t row + c col]. */
struct vectors {
    const float *at;
    int64_t      d, row, col, n;
    double       shift; /* floor: b */
    bool         both;  /* their negatives are vectors too */
};

/* How many a set and round has; 1 where rows are not compared. */
int64_t        vectors_count(const struct stage *s);
struct vectors vectors_of(const struct stage *s, int64_t d, const float *params,
                          int64_t set, int64_t round);

/*
 * In double, so that a label never depends on the order of a sum
 */

/* The mechanism's own map of a row of d elements. */
void   vectors_standard(double *row, int64_t d);
double vectors_dot(const struct vectors *v, const double *row, int64_t t);
/* The number of the largest product; negatives come after all others.  Ties go to the
 * smaller number, and nothing is more than what is no number. */
int32_t vectors_best(const struct vectors *v, const double *row);
/* floor((x.a + b) / width) */
double vectors_stripe(const struct vectors *v, const double *row, double width);

#endif
