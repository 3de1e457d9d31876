/* pairs.h -- pairs of rows, and what estimates by random features make of their products. */
#ifndef FOCI_PAIRS_H
#define FOCI_PAIRS_H

#include "foci/analyse.h"
#include "test.h"

enum { DIM = 4 };

enum { MAX_PAIRS = 400 };

struct pairs {
    int64_t n, d;
    double  x[MAX_PAIRS * 8], y[MAX_PAIRS * 8];
    double  exact[MAX_PAIRS], mean[MAX_PAIRS], variance[MAX_PAIRS];
    double  expected[MAX_PAIRS], predicted[MAX_PAIRS], second[MAX_PAIRS];
};

double  pairs_dot(const double *x, const double *y, int64_t d);
double *pairs_row(double *x, const struct pairs *p, int64_t i);
/* One more pair of these lengths and this cosine. */
void pairs_add(struct pairs *p, struct rng *r, double nx, double ny, double cosine);
/* Lengths up to 1/2, where variances of 10^5 draws are near those of all. */
struct pairs *pairs_short(int64_t d);
/* Queries and keys that are spread along different axes, each with each. */
struct pairs *pairs_uneven(int64_t rows, int64_t d);

foci_plan        *pairs_plan(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d);
foci_estimator_io pairs_io(struct pairs *p, int64_t times);
/* Estimates of the pairs; statistics, where there are any, are those of `data`. */
void pairs_estimate(foci_ctx *ctx, const char *spec, struct pairs *p,
                    struct pairs *data, int64_t times);
/* The directions of all heads; free() frees them. */
float *pairs_drawn(foci_ctx *ctx, const char *spec, int64_t heads, int64_t d);
void   pairs_near(double got, double want, double tolerance, const char *what);

/* *state is a context. */
int pairs_setup(void **state);
int pairs_teardown(void **state);

#endif
