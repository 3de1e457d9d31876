/* inverse.h -- the pseudo-inverse of the landmarks' weights. */
#ifndef FOCI_REF_INVERSE_H
#define FOCI_REF_INVERSE_H

#include "ref/ref.h"

enum { REF_INVERSE_ROOM = 8 }; /* matrices */

struct ref_inverse {
    int           type;     /* of sums */
    int64_t       m, iters; /* 0: exactly */
    const double *c;        /* [m][m] */
    double       *z;        /* [iters + 1][m][m], written */
    double       *scratch;  /* [REF_INVERSE_ROOM][m][m] */
};

/* The result is the last of z. */
const double *ref_inverse(const struct ref_inverse *x);
/* Add to dc, from dz, the gradient of the result, which is overwritten. */
void ref_inverse_back(const struct ref_inverse *x, double *dz, double *dc);

#endif
