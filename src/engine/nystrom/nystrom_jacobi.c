/* nystrom_jacobi.c -- the exact pseudo-inverse, from the singular value decomposition
 * by one-sided Jacobi rotations (Hestenes, 1958).
 *
 * Pairs of columns of C are rotated until all are orthogonal: C V = U s, so Z = V s^-2
 * (U s)^T. Columns are cut into parts, and pairs of parts that have no part in common
 * are rotated by different threads at the same time.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/nystrom/nystrom_matrix.h"

/* Columns are rows here: u[m][m] of C V, v[m][m]. */
struct rotations {
    const struct inverse *x;
    double               *u, *v;
    int64_t               round, n_parts; /* made even */
    bool                  rotated; /* this sweep had a pair that was not orthogonal */
};

static const double orthogonal = 1e-12;
enum { SWEEPS = 60, SUMS = 8, COLUMNS = 16 };

static double dot(const double *a, const double *b, int64_t n)
{
    double  sum[SUMS] = { 0 }, all = 0;
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int t = 0; t < SUMS; t++)
            sum[t] += a[i + t] * b[i + t];
    for (; i < n; i++)
        all += a[i] * b[i];
    for (int t = 0; t < SUMS; t++)
        all += sum[t];
    return all;
}

static void rotate(double *a, double *b, double cosine, double sine, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

static void rotate_pair(struct rotations *r, int64_t p, int64_t q)
{
    const int64_t m = r->x->m;
    double       *a = r->u + p * m, *b = r->u + q * m;
    const double  aa = dot(a, a, m), bb = dot(b, b, m), ab = dot(a, b, m);

    if (!(fabs(ab) > orthogonal * sqrt(aa * bb))) return; /* NaN stays */
    const double zeta = (bb - aa) / (2 * ab);
    const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
#pragma omp atomic write
    r->rotated = true;
    rotate(a, b, cosine, sine, m);
    rotate(r->v + p * m, r->v + q * m, cosine, sine, m);
}

static foci_range columns_of(const struct rotations *r, int64_t part)
{
    return (foci_range){ part * COLUMNS, min64((part + 1) * COLUMNS, r->x->m) };
}

/* Pairs inside part i. */
static void inside_job(void *arg, int64_t i, int thread)
{
    struct rotations *r = arg;
    const foci_range  of = columns_of(r, i);

    (void)thread;
    for (int64_t p = of.begin; p < of.end; p++)
        for (int64_t q = p + 1; q < of.end; q++)
            rotate_pair(r, p, q);
}

/* Pairs of one part with another: round-robin pairing.  All parts but the last are a
 * ring that moves on by one each round; parts at equal distance from its start are
 * paired, and the start with the last part. */
static void between_job(void *arg, int64_t i, int thread)
{
    struct rotations *r = arg;
    const int64_t     ring = r->n_parts - 1;
    const int64_t     one = (r->round + i) % ring;
    const int64_t     two = i ? (r->round + ring - i) % ring : ring;
    const foci_range  a = columns_of(r, min64(one, two));
    const foci_range  b = columns_of(r, max64(one, two));

    (void)thread;
    for (int64_t p = a.begin; p < a.end; p++)
        for (int64_t q = b.begin; q < b.end; q++)
            rotate_pair(r, p, q);
}

static void rotate_all(struct rotations *r)
{
    const int64_t parts = div_up(r->x->m, COLUMNS);

    r->n_parts = parts + parts % 2;
    r->rotated = true;
    for (int sweep = 0; sweep < SWEEPS && r->rotated; sweep++) {
        r->rotated = false;
        matrix_jobs(r->x, parts, inside_job, r);
        for (r->round = 0; parts > 1 && r->round < r->n_parts - 1; r->round++)
            matrix_jobs(r->x, r->n_parts / 2, between_job, r);
    }
}

/* Columns of U s times 1/s^2, or times 0 where s is negligible.  Row i of Z is then the
 * sum over t of v[t][i] u[t]. */
static void divide_columns(const struct rotations *r)
{
    const int64_t m = r->x->m;
    double        most = 0;

    for (int64_t t = 0; t < m; t++)
        most = fmax(most, dot(r->u + t * m, r->u + t * m, m));
    const double least = sqrt(most) * (double)m * (double)FLT_EPSILON;
    for (int64_t t = 0; t < m; t++) {
        const double square = dot(r->u + t * m, r->u + t * m, m);
        const double by = square <= least * least ? 0 : 1 / square;
        for (int64_t i = 0; i < m; i++)
            r->u[t * m + i] *= by;
    }
}

static void multiply_job(void *arg, int64_t row, int thread)
{
    const struct rotations *r = arg;
    const int64_t           m = r->x->m;
    float                  *z = r->x->z + row * r->x->ld;
    double                  sum[MATRIX_BLOCK];

    (void)thread;
    memset(z, 0, (size_t)r->x->ld * sizeof *z);
    for (int64_t c = 0; c < m; c += MATRIX_BLOCK) {
        const int64_t n = min64(MATRIX_BLOCK, m - c);
        memset(sum, 0, sizeof sum);
        for (int64_t t = 0; t < m; t++)
            for (int64_t i = 0; i < n; i++)
                sum[i] += r->v[t * m + row] * r->u[t * m + c + i];
        for (int64_t i = 0; i < n; i++)
            z[c + i] = (float)sum[i];
    }
}

float *jacobi_inverse(const struct inverse *x)
{
    const int64_t    m = x->m;
    struct rotations r = { .x = x,
                           .u = (double *)(void *)matrix_scratch(x, 0),
                           .v = (double *)(void *)matrix_scratch(x, 2) };

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            r.u[j * m + i] = (double)x->c[i * x->ld + j];
            r.v[j * m + i] = i == j;
        }
    rotate_all(&r);
    divide_columns(&r);
    matrix_jobs(x, m, multiply_job, &r);
    return x->z;
}
