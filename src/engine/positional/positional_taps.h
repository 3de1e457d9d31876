/* positional_taps.h -- what the files of the convolutions share. */
#ifndef FOCI_POSITIONAL_TAPS_H
#define FOCI_POSITIONAL_TAPS_H

#include "engine/positional/positional.h"

/* A convolution of a run of elements of one head of a sequence: weights are the softmax
 * of `width` logits, constant or made of x. */
struct positional_conv {
    const struct positional   *x;
    struct positional_head     at; /* with the columns of the run */
    struct positional_scratch *r;
    const float               *w; /* logits [width], or W [width][dim_x] */
    int                        width, left;
    int64_t                    first; /* its first tap among those of all heads */
};

/* Run number i, counted from the first run of the head `at` on. */
struct positional_conv positional_conv_of(const struct positional      *x,
                                          const struct positional_head *at, int64_t i,
                                          struct positional_scratch *r);
/* Whether weights are made of x. */
bool positional_taps_of_x(const struct positional *x);
/* Softmax of n numbers, in place. */
void positional_softmax(float *z, int n);
/* Replace the gradients of n weights by those of their logits. */
void positional_softmax_back(float *dw, const float *w, int n);
/* W transposed to r->w_cols, rows padded with zeros; then the weights of n rows from i
 * on, to r->taps, the result floats apart. */
void    positional_conv_transpose(const struct positional_conv *c);
int64_t positional_conv_weights(const struct positional_conv *c, int64_t i, int n);
/* Constant weights of so many runs, to r->taps; reversed for the backward pass. */
void positional_constant_taps(const struct positional      *x,
                              const struct positional_head *at, int64_t runs,
                              bool reversed, struct positional_scratch *r);
/* Rows first to first + n - 1 of v, or of d_o with `grad`, and zeros outside the
 * sequence. */
void positional_conv_window(const struct positional_conv *c, int64_t first, int n,
                            bool grad, float *to);
/* Whether kernels can read the window of n rows from i on in place. */
bool positional_conv_in_place(const struct positional_conv *c, int64_t i, int n,
                              int left);
/* n rows from i on: weighted sums of v to o or, with `back`, of d_o to dv.  Weights of
 * rows are ldw floats apart, 0: the same for all. */
void positional_convolve(const struct positional_conv *c, int64_t i, int n, bool back,
                         const float *taps, int64_t ldw);
void positional_load_x(const struct positional *x, const struct seq *s, int64_t i,
                       int n, float *to);

#endif
