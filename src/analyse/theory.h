/* theory.h -- between the files that compute the concentration of random weights. */
#ifndef FOCI_THEORY_H
#define FOCI_THEORY_H

#include <stdbool.h>

#include "foci/analyse.h"

/* Check what the caller gave and complete it. */
foci_status theory_read(const char *call, const foci_concentration_law *given,
                        const double *s, foci_concentration_law *law);

/* Normal logits without spread: all weights are f(beta), S is 1, or NaN where that is 0. */
bool theory_constant(const foci_concentration_law *law, double *s);

/* |q|_1 and |q|_2 of features that are alike. */
void theory_norms(const foci_concentration_law *law, double *one, double *two);

#endif
