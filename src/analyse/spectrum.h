/* spectrum.h -- the ends of a spectrum. */
#ifndef FOCI_SPECTRUM_H
#define FOCI_SPECTRUM_H

#include <stdint.h>

/* The smallest and the largest eigenvalue of a symmetric matrix a[n][n], which is overwritten;
 * work has 3 n numbers. */
void spectrum_ends(double *a, int64_t n, double *work, double *least, double *most);

#endif
