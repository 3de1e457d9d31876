/* exact_project.h -- rows of q and k times matrices that each head has for its queries
 * and for its keys.  Heads are counted in the stage. */
#ifndef FOCI_EXACT_PROJECT_H
#define FOCI_EXACT_PROJECT_H

#include "engine/exact/exact.h"

bool exact_has_project(const struct exact *x);
void exact_project_carve(struct exact *x, struct arena *a, bool back);
/* Copies of the matrices with padded rows, once for an execution. */
void exact_project_prepare(const struct exact *x, bool back);
/* The thread's scratch [TILE][d.ld_in] for rows before projection. */
float *exact_project_input(const struct exact *x);
/* to[n][d.ldq] = input[n][d.ld_in] times the matrix. */
void exact_project(const struct exact *x, int64_t head, bool keys, const float *input,
                   int n, float *to);
/* input[n][d.ld_in] = d[n][d.ldq] times the transposed matrix. */
void exact_project_back(const struct exact *x, int64_t head, bool keys, const float *d,
                        int n, float *input);
/* Add input^T d to the gradient of the matrix; rows of `input` without a gradient are
 * zeroed. */
void exact_project_sum(const struct exact *x, int64_t head, bool keys, float *input,
                       const float *d, int n);
void exact_project_params(const struct exact *x, float *dparams);

#endif
