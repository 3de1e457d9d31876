/* linear_products.c -- features that are products of elements.
 *
 * (x.y)^r = sum over multisets alpha of r elements of r!/alpha! x^alpha y^alpha, where
 * alpha counts how often each element occurs.  PRODUCTS has a feature sqrt(share
 * r!/alpha!) x^alpha for each multiset; POWERS only for those whose elements are all
 * the same, with factor 1. Multisets are ordered by r, then lexicographically: 00, 01,
 * 02, 11, 12, 22.  x is sqrt|s| times the row; the signs of s^r and of the share go to
 * the queries.
 */
#include <math.h>
#include <string.h>

#include "engine/linear/features/linear_features.h"

static bool all_same(const struct linear *x)
{
    return x->l->feature == FOCI_FEATURE_POWERS;
}

static double share_of(const struct linear *x, int r)
{
    return all_same(x) ? 1 : x->l->coeff[r];
}

static int64_t count_of(const struct linear *x, int r)
{
    int64_t n = 1;

    if (share_of(x, r) == 0) return 0;
    if (all_same(x)) return r ? x->dq : 1;
    for (int t = 1; t <= r; t++)
        n = n * (x->dq + t - 1) / t;
    return n;
}

/* The next multiset; where elements are all the same, the next element. */
static void step(const struct linear *x, int r, int32_t *element)
{
    int t = all_same(x) ? 0 : r - 1;

    while (t > 0 && element[t] == x->dq - 1)
        t--;
    for (const int32_t next = element[max64(t, 0)] + 1; t >= 0 && t < r; t++)
        element[t] = next;
}

/* r!/alpha! */
static double ways(const int32_t *element, int r)
{
    double n = 1;

    for (int t = 0, run = 0; t < r; t++) {
        run = t && element[t] == element[t - 1] ? run + 1 : 1;
        n *= (double)(t + 1) / run;
    }
    return n;
}

static void linear_products_fill(const struct linear *x, int r)
{
    const struct linear_maps *m = &x->maps;
    const double              all = fabs(share_of(x, r)) * pow(fabs(x->scale), r);
    int32_t                   element[FOCI_MAX_ORDER] = { 0 };

    for (int j = m->at[r]; j < m->at[r + 1]; j++) {
        memcpy(m->elements[r] + (int64_t)(j - m->at[r]) * r, element,
               (size_t)r * sizeof *element);
        m->factors[j] = (float)sqrt(all_same(x) ? all : all * ways(element, r));
        step(x, r, element);
    }
}

void linear_products_carve(struct linear *x, struct arena *a)
{
    struct linear_maps *m = &x->maps;

    m->factors = arena_alloc(a, x->m, sizeof *m->factors);
    m->at[0] = 0;
    for (int r = 0; r <= x->l->order; r++) {
        const int64_t n = count_of(x, r);
        m->at[r + 1] = m->at[r] + (int)n;
        m->elements[r] = arena_alloc(a, n * r, sizeof *m->elements[r]);
        if (a->base) linear_products_fill(x, r);
    }
}

/* The sign that features of queries of degree r take beside their factors. */
static float sign_of(const struct linear *x, bool keys, int r)
{
    const bool minus = (share_of(x, r) < 0) != (x->scale < 0 && r % 2);
    return minus && !keys ? -1.0f : 1.0f;
}

void linear_products_map(const struct linear *x, const struct feature_chunk *c,
                         bool keys, struct features *t)
{
    const struct linear_maps *m = &x->maps;
    int                       begin, end;

    linear_lanes(c, keys, &begin, &end);
    x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
    for (int r = 0; r <= x->l->order; r++)
        x->k->products(t->f + (int64_t)m->at[r] * CHUNK, t->cols, m->elements[r],
                       m->factors + m->at[r], sign_of(x, keys, r),
                       m->at[r + 1] - m->at[r], r);

    /* Rows of zeros give features 0, except for the empty product, degree 0. */
    for (int i = 0; i < CHUNK && m->at[1]; i++)
        if (i < begin || i >= end) t->f[i] = 0;
}

void linear_products_row(const struct linear *x, bool keys, const float *row, float *f)
{
    const struct linear_maps *m = &x->maps;

    for (int r = 0; r <= x->l->order; r++) {
        const float    sign = sign_of(x, keys, r);
        const int32_t *at = m->elements[r];

        for (int j = m->at[r]; j < m->at[r + 1]; j++, at += r) {
            f[j] = sign * m->factors[j];
            for (int t = 0; t < r; t++)
                f[j] *= row[at[t]];
        }
    }
}

/* Gradients are summed transposed first, in dx, which is large enough. */
void linear_products_back(const struct linear *x, bool keys, const struct features *t,
                          const float *df, float *dx)
{
    const struct linear_maps *m = &x->maps;
    const size_t              bytes = (size_t)CHUNK * (size_t)x->dq * sizeof *dx;
    _Alignas(64) float        ones[CHUNK];

    for (int i = 0; i < CHUNK; i++)
        ones[i] = 1;
    x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
    memset(dx, 0, bytes);
    for (int r = 1; r <= x->l->order; r++)
        x->k->products_back(dx, t->cols, df + (int64_t)m->at[r] * CHUNK, m->elements[r],
                            m->factors + m->at[r], sign_of(x, keys, r),
                            m->at[r + 1] - m->at[r], r);
    memcpy(t->cols, dx, bytes);
    x->k->store_cols(dx, x->ldq, FOCI_F32, t->cols, ones, CHUNK, x->dq);
}
