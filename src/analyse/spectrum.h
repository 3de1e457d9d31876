/* spectrum.h -- eigenvalues and singular values. */
#ifndef FOCI_SPECTRUM_H
#define FOCI_SPECTRUM_H

#include <stdint.h>

/* The smallest and the largest eigenvalue of a symmetric matrix a[n][n], which is overwritten;
 * work has 3 n numbers. */
void spectrum_ends(double *a, int64_t n, double *work, double *least, double *most);

/* The singular values of a[m][n], m >= n, upward, to about 1e-15 of the largest; a is
 * overwritten, work has m + 5 n numbers. */
void spectrum_singular(double *a, int64_t m, int64_t n, double *work, double *sigma);

#endif
