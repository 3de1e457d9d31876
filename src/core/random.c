/* random.c -- random numbers that are the same everywhere (docs/random.md).
 *
 * SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
 * generators", 2014); normals by Box and Muller; frames by the QR factorisation
 * with positive diagonal, which alone makes them uniform (Mezzadri, "How to
 * generate random matrices from the classical compact groups", 2007).
 */
#include <math.h>
#include <string.h>

#include "core/core.h"

void rng_seed(struct rng *r, uint64_t seed, uint64_t stream)
{
    *r = (struct rng){ .state = seed ^ (stream + 1) * UINT64_C(0xD1342543DE82EF95) };
}

static const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

uint64_t rng_absorb(uint64_t key, uint64_t n)
{
    uint64_t z = key + step * n;

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

uint64_t rng_drop_key(uint64_t seed, int64_t b, int64_t h, int64_t i)
{
    const uint64_t entry = rng_absorb(seed, (uint64_t)b + 1);
    return rng_absorb(rng_absorb(entry, (uint64_t)(h + 1)), (uint64_t)i + 1);
}

uint64_t rng_u64(struct rng *r)
{
    const uint64_t z = rng_absorb(r->state, 1);
    r->state += step;
    return z;
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

uint64_t foci_draw_begin(uint64_t seed, uint64_t stream)
{
    struct rng r;
    rng_seed(&r, seed, stream);
    return r.state;
}

int64_t foci_draw_below(uint64_t *state, int64_t n)
{
    struct rng    r = { .state = *state };
    const int64_t drawn = rng_below(&r, n);
    *state = r.state;
    return drawn;
}

/*
 * Frames
 *
 * Gram-Schmidt on panels of columns: a panel loses what lies along the panels before it,
 * then its columns along each other, and all of that once more, which makes columns
 * orthogonal to rounding however close to dependent they were.  Dividing by the norm keeps
 * R's diagonal positive, so that no sign is left to correct.  Products go by squares that
 * are copied out of the matrix: whole columns of it, a power of two apart, would share a
 * few lines of the cache.  Sums have one order on every machine.
 */

enum { SIDE = 32 };

/* Rows from i and columns from t on of a matrix d x k, zeros beyond its end. */
static void copy_square(double out[SIDE][SIDE], const double *q, int64_t d, int64_t k,
                        int64_t i, int64_t t)
{
    const int64_t rows = min64(SIDE, d - i), cols = min64(SIDE, k - t);

    if (rows < SIDE || cols < SIDE) memset(out, 0, SIDE * sizeof *out);
    for (int64_t r = 0; r < rows; r++)
        memcpy(out[r], q + (i + r) * k + t, (size_t)cols * sizeof *q);
}

static void put_square(double in[SIDE][SIDE], double *q, int64_t d, int64_t k,
                       int64_t i, int64_t t)
{
    const int64_t rows = min64(SIDE, d - i), cols = min64(SIDE, k - t);

    for (int64_t r = 0; r < rows; r++)
        memcpy(q + (i + r) * k + t, in[r], (size_t)cols * sizeof *q);
}

/* c += a b, a(i, t) at a[i ra + t ca]. */
static void multiply(double (*restrict c)[SIDE], const double *a, int64_t ra,
                     int64_t ca, double (*restrict b)[SIDE])
{
    for (int i = 0; i < SIDE; i += 2)
        for (int t = 0; t < SIDE; t += 4) {
            const double *const x = a + i * ra + t * ca;
            const double *const y = x + ra;
            const double        x0 = x[0], x1 = x[ca], x2 = x[2 * ca], x3 = x[3 * ca];
            const double        y0 = y[0], y1 = y[ca], y2 = y[2 * ca], y3 = y[3 * ca];

            for (int j = 0; j < SIDE; j++) {
                const double b0 = b[t][j], b1 = b[t + 1][j];
                const double b2 = b[t + 2][j], b3 = b[t + 3][j];

                c[i][j] += (x0 * b0 + x1 * b1) + (x2 * b2 + x3 * b3);
                c[i + 1][j] += (y0 * b0 + y1 * b1) + (y2 * b2 + y3 * b3);
            }
        }
}

/* The panel at t without what lies along that at s. */
static void take_out_panel(double *q, int64_t d, int64_t k, int64_t s, int64_t t)
{
    double along[SIDE][SIDE] = { 0 }, before[SIDE][SIDE], panel[SIDE][SIDE];

    for (int64_t i = 0; i < d; i += SIDE) {
        copy_square(before, q, d, k, i, s);
        copy_square(panel, q, d, k, i, t);
        multiply(along, before[0], 1, SIDE, panel);
    }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            along[i][j] = -along[i][j];
    for (int64_t i = 0; i < d; i += SIDE) {
        copy_square(before, q, d, k, i, s);
        copy_square(panel, q, d, k, i, t);
        multiply(panel, before[0], SIDE, 1, along);
        put_square(panel, q, d, k, i, t);
    }
}

/* Column t to length 1, and out of n columns after it. */
static void take_out_column(double *q, int64_t d, int64_t k, int64_t t, int64_t n)
{
    double along[SIDE] = { 0 };
    double sum = 0;

    for (int64_t i = 0; i < d; i++)
        sum += q[i * k + t] * q[i * k + t];
    const double norm = sqrt(sum);
    for (int64_t i = 0; i < d; i++) {
        double *const row = q + i * k + t;

        row[0] /= norm;
        for (int64_t j = 1; j <= n; j++)
            along[j] += row[0] * row[j];
    }
    for (int64_t i = 0; i < d; i++) {
        double *const row = q + i * k + t;
        for (int64_t j = 1; j <= n; j++)
            row[j] -= along[j] * row[0];
    }
}

void rng_haar(struct rng *r, int64_t d, int64_t k, double *q)
{
    for (int64_t i = 0; i < d * k; i++)
        q[i] = rng_normal(r);
    for (int64_t t = 0; t < k; t += SIDE)
        for (int round = 0; round < 2; round++) {
            const int64_t end = min64(k, t + SIDE);

            for (int64_t s = 0; s < t; s += SIDE)
                take_out_panel(q, d, k, s, t);
            for (int64_t c = t; c < end; c++)
                take_out_column(q, d, k, c, end - 1 - c);
        }
}
