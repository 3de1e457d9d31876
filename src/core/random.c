/* random.c -- random numbers that are the same everywhere (docs/random.md).
 *
 * SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", 2014); normals by Box and Muller; frames by the QR factorisation
 * with positive diagonal, which alone makes them uniform (Mezzadri, "How to
 * generate random matrices from the classical compact groups", 2007).
 */
#include <math.h>

#include "core/core.h"

void rng_seed(struct rng *r, uint64_t seed, uint64_t stream)
{
    *r = (struct rng){ .state = seed ^ (stream + 1) * UINT64_C(0xD1342543DE82EF95) };
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

double rng_uniform(struct rng *r)
{
    /* The half keeps 0 out; the sum rounds to 2^53 only for the largest word,
     * which is moved to the largest number below 1. */
    const double u = ((double)(rng_u64(r) >> 11) + 0.5) * 0x1p-53;
    return u < 1 ? u : 1 - 0x1p-53;
}

/* Pairs: the sine is kept for the next call, whatever is drawn in between. */
double rng_normal(struct rng *r)
{
    if (r->has_kept) {
        r->has_kept = false;
        return r->kept;
    }
    const double length = sqrt(-2 * log(rng_uniform(r)));
    const double angle = 2 * 3.14159265358979323846 * rng_uniform(r);
    r->kept = length * sin(angle);
    r->has_kept = true;
    return length * cos(angle);
}

int64_t rng_below(struct rng *r, int64_t n)
{
    return min64((int64_t)(rng_uniform(r) * (double)n), n - 1);
}

/* Take the part along y, which has length 1, out of x; elements lie `step` apart. */
static void take_out(double *x, const double *y, int64_t n, int64_t step)
{
    double dot = 0;
    for (int64_t i = 0; i < n * step; i += step)
        dot += y[i] * x[i];
    for (int64_t i = 0; i < n * step; i += step)
        x[i] -= dot * y[i];
}

static void divide_by_norm(double *x, int64_t n, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < n * step; i += step)
        sum += x[i] * x[i];
    const double norm = sqrt(sum);
    for (int64_t i = 0; i < n * step; i += step)
        x[i] /= norm;
}

static void turn_over(double *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < i; t++) {
            const double x = q[i * n + t];
            q[i * n + t] = q[t * n + i];
            q[t * n + i] = x;
        }
}

/* Modified Gram-Schmidt; the second round makes the columns orthogonal to rounding
 * however close to dependent they were.  Dividing by the norm keeps R's diagonal
 * positive, so that no sign is left to correct.  Columns of a square lie in rows
 * meanwhile: far apart, those of 512 took seconds. */
void rng_haar(struct rng *r, int64_t d, int64_t k, double *q)
{
    const bool    square = d == k;
    const int64_t step = square ? 1 : k, next = square ? d : 1;

    for (int64_t i = 0; i < d * k; i++)
        q[i] = rng_normal(r);
    if (square) turn_over(q, d);
    for (int64_t t = 0; t < k; t++) {
        for (int round = 0; round < 2; round++)
            for (int64_t s = 0; s < t; s++)
                take_out(q + t * next, q + s * next, d, step);
        divide_by_norm(q + t * next, d, step);
    }
    if (square) turn_over(q, d);
}
