/* frozen.c -- draws of query and key projections (docs/random.md).
 *
 *     orthogonal  W^T W = I, uniform over all such matrices
 *     gaussian    entries of variance 1/width: the same but for orthogonality
 *     hadamard    the first columns of D1 H P1 D2 H P2 D3 H: signs, permutations and
 *                 Hadamard matrices on runs as long as a power of two divides the width
 *
 * A transform is stored as signs and permutations only (hadamard.c).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layer/frozen.h"

bool frozen_can(enum frozen_kind kind, bool block, int64_t width, int64_t heads,
                int64_t dim, char *why, size_t cap)
{
    if (block && dim > width / heads) {
        snprintf(why, cap,
                 "sample=block shares out one matrix of at most %" PRId64
                 " columns, and %" PRId64 " heads of %" PRId64
                 " need more; narrower heads or sample=perhead will do",
                 width, heads, dim);
        return false;
    }
    if (kind != FROZEN_GAUSSIAN && dim > width) {
        snprintf(why, cap,
                 "no %" PRId64 " columns of %" PRId64
                 " elements are orthonormal; a head "
                 "may be as wide as x at most",
                 dim, width);
        return false;
    }
    if (kind == FROZEN_HADAMARD && width % 2) {
        snprintf(why, cap,
                 "hadamard needs an even width, for runs of 2, 4, 8 ... elements, and "
                 "%" PRId64 " is odd; orthogonal takes any",
                 width);
        return false;
    }
    return true;
}

/*
 * Matrices
 */

/* Columns from `first` on of f->dense, cols of them. */
static void put_columns(const struct frozen *f, int64_t first, int64_t cols,
                        const double *from)
{
    for (int64_t i = 0; i < f->width; i++)
        for (int64_t t = 0; t < cols; t++)
            f->dense[i * f->heads * f->dim + first + t] = (float)from[i * cols + t];
}

static void draw_matrix(const struct frozen *f, struct rng *r, int64_t cols, double *to)
{
    const double sd = 1 / sqrt((double)f->width);

    if (f->kind == FROZEN_ORTHOGONAL) {
        rng_haar(r, f->width, cols, to);
        return;
    }
    for (int64_t i = 0; i < f->width * cols; i++)
        to[i] = sd * rng_normal(r);
}

static foci_status make_dense(foci_ctx *ctx, struct frozen *f, struct rng *r)
{
    const int64_t all = f->heads * f->dim, cols = f->block ? all : f->dim;
    const size_t  n = (size_t)(f->width * cols);

    f->dense = ctx_alloc(ctx, (size_t)(f->width * all), sizeof *f->dense);
    if (!f->dense) return FOCI_ERR_MEMORY;
    double *const drawn = ctx_alloc(ctx, n, sizeof *drawn);
    if (!drawn) return FOCI_ERR_MEMORY;
    for (int64_t first = 0; first < all; first += cols) {
        draw_matrix(f, r, cols, drawn);
        put_columns(f, first, cols, drawn);
    }
    ctx_free(ctx, drawn, n, sizeof *drawn);
    return FOCI_OK;
}

/*
 * Transforms
 */

static void draw_signs(struct rng *r, int64_t n, float norm, float *signs)
{
    for (int64_t t = 0; t < n; t++)
        signs[t] = rng_uniform(r) < 0.5 ? -norm : norm;
}

static void draw_permutation(struct rng *r, int64_t n, int32_t *p)
{
    for (int64_t t = 0; t < n; t++)
        p[t] = (int32_t)t;
    for (int64_t t = 0; t < n; t++) {
        const int64_t j = t + rng_below(r, n - t);
        const int32_t x = p[t];
        p[t] = p[j];
        p[j] = x;
    }
}

/* Elements that P has moved are read on the way back where they were, with their sign. */
static void invert_permutation(int64_t n, const int32_t *p, const float *signs,
                               int32_t *back, float *signs_back)
{
    for (int64_t t = 0; t < n; t++) {
        back[p[t]] = (int32_t)t;
        signs_back[p[t]] = signs[t];
    }
}

/* The rest of a run repeats its first elements, which alone are made. */
static void read_first(const struct frozen *f, int32_t *back)
{
    const int64_t run = f->width & -f->width, last = hadamard_last(f);

    for (int64_t t = 0; last < run && t < f->width; t++)
        if (back[t] < run) back[t] = (int32_t)(back[t] % last);
}

static void draw_transform(struct frozen *f, struct rng *r, int64_t which)
{
    const int64_t  n = f->width;
    const float    norm = (float)(1 / sqrt((double)(n & -n)));
    float *const   factors = f->factors + which * N_FACTORS * n;
    int32_t *const places = f->places + which * N_PLACES * n;

    draw_signs(r, n, norm, factors + FACTOR_1 * n);
    draw_permutation(r, n, places + PLACE_1 * n);
    draw_signs(r, n, norm, factors + FACTOR_2 * n);
    draw_permutation(r, n, places + PLACE_2 * n);
    draw_signs(r, n, norm, factors + FACTOR_3 * n);
    invert_permutation(n, places + PLACE_1 * n, factors + FACTOR_2 * n,
                       places + PLACE_BACK_1 * n, factors + FACTOR_BACK_2 * n);
    invert_permutation(n, places + PLACE_2 * n, factors + FACTOR_3 * n,
                       places + PLACE_BACK_2 * n, factors + FACTOR_BACK_3 * n);
    read_first(f, places + PLACE_BACK_2 * n);
}

static int64_t transforms(const struct frozen *f) { return f->block ? 1 : f->heads; }

static foci_status make_transforms(foci_ctx *ctx, struct frozen *f, struct rng *r)
{
    const size_t n = (size_t)(transforms(f) * f->width);

    f->factors = ctx_alloc(ctx, n * N_FACTORS, sizeof *f->factors);
    if (!f->factors) return FOCI_ERR_MEMORY;
    f->places = ctx_alloc(ctx, n * N_PLACES, sizeof *f->places);
    if (!f->places) return FOCI_ERR_MEMORY;
    for (int64_t which = 0; which < transforms(f); which++)
        draw_transform(f, r, which);
    return FOCI_OK;
}

/*
 * Both
 */

/* Check that the products of sizes above do not overflow, element sizes included. */
static foci_status check_sizes(foci_ctx *ctx, const struct frozen *f)
{
    size_t all;

    if (f->width <= INT32_MAX / FEW_LANES &&
        mul_size((size_t)f->width, (size_t)f->heads, &all) &&
        mul_size(all, (size_t)max64(f->dim, N_FACTORS), &all) && all <= PTRDIFF_MAX / 16)
        return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_MEMORY,
                    "projections of width %" PRId64 " to %" PRId64 " heads of %" PRId64
                    " do not fit into memory",
                    f->width, f->heads, f->dim);
}

foci_status frozen_make(foci_ctx *ctx, struct frozen *f, uint64_t seed, uint64_t stream)
{
    struct rng r;

    f->ctx = ctx;
    f->dense = f->factors = NULL;
    f->places = NULL;
    TRY(check_sizes(ctx, f));
    rng_seed(&r, seed, stream);
    const foci_status status = f->kind == FROZEN_HADAMARD ? make_transforms(ctx, f, &r)
                                                          : make_dense(ctx, f, &r);
    if (status != FOCI_OK) frozen_free(ctx, f);
    return status;
}

void frozen_free(foci_ctx *ctx, struct frozen *f)
{
    const size_t n = (size_t)(transforms(f) * f->width);

    ctx_free(ctx, f->dense, (size_t)(f->width * f->heads * f->dim), sizeof *f->dense);
    ctx_free(ctx, f->factors, n * N_FACTORS, sizeof *f->factors);
    ctx_free(ctx, f->places, n * N_PLACES, sizeof *f->places);
    f->dense = f->factors = NULL;
    f->places = NULL;
}
