/* nystrom_matrix.h -- products of the square matrices of an inverse. */
#ifndef FOCI_NYSTROM_MATRIX_H
#define FOCI_NYSTROM_MATRIX_H

#include "engine/nystrom/nystrom_inverse.h"

enum { MATRIX_BLOCK = 64 }; /* rows and columns of a product at a time */

/* to = unit I + by a b, with a transposed where `transposed`; to += that where
 * `add`. */
struct matrix_product {
    const struct inverse *x;
    float                *to;
    double                unit;
    float                 by;
    const float          *a;
    bool                  transposed;
    const float          *b;
    bool                  add;
};

/* Matrix number i of the scratch; bytes of a matrix. */
float *matrix_scratch(const struct inverse *x, int64_t i);
size_t matrix_bytes(const struct inverse *x);
/* Run n jobs, by all threads or by the caller. */
void matrix_jobs(const struct inverse *x, int64_t n, void (*job)(void *, int64_t, int),
                 void *arg);

void matrix_multiply(const struct inverse *x, struct matrix_product p);
/* to = a b */
void matrix_ab(const struct inverse *x, float *to, const float *a, const float *b);
/* to = by a^T b */
void matrix_atb(const struct inverse *x, float *to, float by, const float *a,
                const float *b);
/* to += by a b^T; overwrites `spare`. */
void matrix_add_abt(const struct inverse *x, float *to, float by, const float *a,
                    const float *b, float *spare);
/* to = unit I - a b, and unit I - from. */
void matrix_unit_minus_ab(const struct inverse *x, float *to, double unit,
                          const float *a, const float *b);
void matrix_unit_minus(const struct inverse *x, float *to, float unit,
                       const float *from);
void matrix_transpose(const struct inverse *x, const float *from, float *to);

/* nystrom_jacobi.c: the exact pseudo-inverse of x->c, to x->z. */
float *jacobi_inverse(const struct inverse *x);

#endif
