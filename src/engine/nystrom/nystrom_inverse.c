/* nystrom_inverse.c -- the pseudo-inverse of a square matrix, and its gradient.
 *
 * By an iteration of third order (Razavi et al., 2014),
 *
 *     Z_0 = C^T / c,   Z' = Z T3 / 4,   T3 = 13 - Y T2,  T2 = 15 - Y T1,  T1 = 7 - Y
 *
 * with Y = C Z, and c the largest column sum, since rows sum to one; or exactly
 * (nystrom_jacobi.c).
 */
#include "engine/nystrom/nystrom_inverse.h"

#include <math.h>
#include <string.h>

#include "engine/nystrom/nystrom_matrix.h"

int64_t inverse_kept(int64_t iters, bool keep_all)
{
    return keep_all ? iters + 1 : min64(iters, 1) + 1;
}

/* Y, T1, T2 and T3, and five more in the backward pass; exactly: U and V in doubles. */
int64_t inverse_scratch(int64_t iters, bool backward)
{
    if (!iters) return 4;
    return backward ? 9 : 4;
}

/* The column with the largest sum, the first of several. */
static int largest_column(const struct inverse *x, double *sum)
{
    int best = 0;

    *sum = -INFINITY;
    for (int c = 0; c < x->m; c += MATRIX_BLOCK) {
        const int n = (int)min64(MATRIX_BLOCK, x->m - c);
        double    s[MATRIX_BLOCK] = { 0 };
        for (int i = 0; i < x->m; i++)
            for (int j = 0; j < n; j++)
                s[j] += (double)x->c[(int64_t)i * x->ld + c + j];
        for (int j = 0; j < n; j++)
            if (!(s[j] <= *sum)) *sum = s[j], best = c + j;
    }
    return best;
}

enum { Y, T1, T2, T3, OLD_DZ, DY, DT, DT2, SPARE };

/* Y and T1 to T3 of Z. */
static void make_terms(const struct inverse *x, const float *z)
{
    matrix_ab(x, matrix_scratch(x, Y), x->c, z);
    matrix_unit_minus(x, matrix_scratch(x, T1), 7, matrix_scratch(x, Y));
    matrix_unit_minus_ab(x, matrix_scratch(x, T2), 15, matrix_scratch(x, Y),
                         matrix_scratch(x, T1));
    matrix_unit_minus_ab(x, matrix_scratch(x, T3), 13, matrix_scratch(x, Y),
                         matrix_scratch(x, T2));
}

static float *z_at(const struct inverse *x, int64_t i)
{
    return x->z + (x->keep_all ? i : i % 2) * x->m * x->ld;
}

static float *iterate(const struct inverse *x)
{
    double sum;

    (void)largest_column(x, &sum);
    matrix_transpose(x, x->c, z_at(x, 0));
    for (int64_t t = 0; t < (int64_t)x->m * x->ld; t++)
        z_at(x, 0)[t] = (float)((double)z_at(x, 0)[t] / sum);
    for (int64_t i = 0; i < x->iters; i++) {
        make_terms(x, z_at(x, i));
        matrix_multiply(x, (struct matrix_product){ .to = z_at(x, i + 1),
                                                    .by = 0.25f,
                                                    .a = z_at(x, i),
                                                    .b = matrix_scratch(x, T3) });
    }
    return z_at(x, x->iters);
}

/* dz: from the gradient of Z' to that of Z.  Adds to dc. */
static void iteration_back(const struct inverse *x, const float *z, float *dz, float *dc)
{
    float *y = matrix_scratch(x, Y), *dy = matrix_scratch(x, DY),
          *dt = matrix_scratch(x, DT);
    float *dt2 = matrix_scratch(x, DT2), *old = matrix_scratch(x, OLD_DZ);
    float *spare = matrix_scratch(x, SPARE);

    make_terms(x, z);
    memcpy(old, dz, matrix_bytes(x));
    memset(dz, 0, matrix_bytes(x));
    memset(dy, 0, matrix_bytes(x));
    matrix_add_abt(x, dz, 0.25f, old, matrix_scratch(x, T3), spare);
    matrix_atb(x, dt, 0.25f, z, old); /* dT3 */
    matrix_add_abt(x, dy, -1, dt, matrix_scratch(x, T2), spare);
    matrix_atb(x, dt2, -1, y, dt); /* dT2 */
    matrix_add_abt(x, dy, -1, dt2, matrix_scratch(x, T1), spare);
    matrix_multiply(x, (struct matrix_product){ /* less dT1 */
                                                .to = dy,
                                                .by = 1,
                                                .a = y,
                                                .transposed = true,
                                                .b = dt2,
                                                .add = true });
    matrix_add_abt(x, dc, 1, dy, z, spare);
    matrix_multiply(
        x, (struct matrix_product){
               .to = dz, .by = 1, .a = x->c, .transposed = true, .b = dy, .add = true });
}

/* Backward of Z_0 = C^T / sum. */
static void start_back(const struct inverse *x, const float *dz, float *dc)
{
    double    sum, along = 0;
    const int column = largest_column(x, &sum);

    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->m; j++) {
            const double d = (double)dz[j * x->ld + i];
            dc[i * x->ld + j] += (float)(d / sum);
            along += d * (double)x->c[i * x->ld + j];
        }
    for (int64_t i = 0; i < x->m; i++)
        dc[i * x->ld + column] -= (float)(along / (sum * sum));
}

float *inverse_make(const struct inverse *x)
{
    return x->iters ? iterate(x) : jacobi_inverse(x);
}

void inverse_backward(const struct inverse *x, float *dz, float *dc)
{
    if (!x->iters) { /* -Z^T dZ Z^T */
        matrix_atb(x, matrix_scratch(x, 0), 1, x->z, dz);
        matrix_transpose(x, x->z, matrix_scratch(x, 1));
        matrix_multiply(x, (struct matrix_product){ .to = dc,
                                                    .by = -1,
                                                    .a = matrix_scratch(x, 0),
                                                    .b = matrix_scratch(x, 1) });
        return;
    }
    memset(dc, 0, matrix_bytes(x));
    for (int64_t i = x->iters; i-- > 0;)
        iteration_back(x, z_at(x, i), dz, dc);
    start_back(x, dz, dc);
}
