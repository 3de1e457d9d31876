/* update.c -- optimiser steps, norms and sums of long arrays of floats. */

static void adamw(float *p, float *g, float *m, float *v, int64_t n,
                  const struct adamw *how)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = how->scale * g[i];

        m[i] += how->rest1 * (x - m[i]);
        v[i] += how->rest2 * (x * x - v[i]);
        p[i] =
            p[i] * how->decay - how->step * m[i] / (sqrtf(v[i]) * how->root + how->eps);
        if (how->clear) g[i] = 0.0f;
    }
}

static double squares_f32(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static void move_to(float *mean, const float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        mean[i] += by * (x[i] - mean[i]);
}
