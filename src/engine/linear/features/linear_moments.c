/* linear_moments.c -- second moments of the queries and keys of a head.
 *
 * In double: eigenvectors follow from them, and where eigenvalues are nearly equal
 * rounding would pick other axes, which are other features. */
#include <math.h>
#include <string.h>

#include "engine/linear/features/linear_features.h"

/* Rows loaded at a time, rows added at a time, and columns of an unrolled inner
 * loop. */
enum { LOAD = 16, TOGETHER = 4, SPAN = 8 };

void linear_stats_carve(const struct linear *x, struct arena *a, struct linear_stats *r)
{
    const int64_t d = x->dq, n = d * d;

    r->ld = round_up(d, SPAN);
    r->tile = arena_alloc(a, (int64_t)LOAD * x->ldq, sizeof *r->tile);
    r->rows = arena_alloc(a, TOGETHER * r->ld, sizeof *r->rows);
    for (int side = 0; side < 2; side++) {
        r->squares[side] = arena_alloc(a, d * r->ld, sizeof(double));
        r->sums[side] = arena_alloc(a, r->ld, sizeof(double));
    }
    r->m = (struct moments){ d, arena_alloc(a, n, sizeof(double)),
                             arena_alloc(a, n, sizeof(double)),
                             arena_alloc(a, d, sizeof(double)),
                             arena_alloc(a, d, sizeof(double)) };
    r->scratch = arena_alloc(a, moments_scratch(d), sizeof(double));
    r->e = (struct exponents){ arena_alloc(a, d, sizeof(double)),
                               arena_alloc(a, n, sizeof(double)),
                               arena_alloc(a, n, sizeof(double)),
                               arena_alloc(a, n, sizeof(double)),
                               arena_alloc(a, n, sizeof(double)) };
}

void linear_stats_clear(const struct linear *x, struct linear_stats *r)
{
    for (int side = 0; side < 2; side++) {
        r->n[side] = 0;
        memset(r->squares[side], 0, (size_t)(x->dq * r->ld) * sizeof(double));
        memset(r->sums[side], 0, (size_t)r->ld * sizeof(double));
    }
}

/* squares += sum of x x^T over TOGETHER rows, upper triangle. */
static void add_squares(int64_t d, int64_t ld, const double *rows, double *squares)
{
    const double *const r1 = rows + ld, *const r2 = r1 + ld, *const r3 = r2 + ld;

    for (int64_t i = 0; i < d; i++) {
        const double a = rows[i], b = r1[i], c = r2[i], e = r3[i];
        for (int64_t j = i / SPAN * SPAN; j < ld; j += SPAN)
            for (int64_t t = j; t < j + SPAN; t++)
                squares[i * ld + t] +=
                    (a * rows[t] + b * r1[t]) + (c * r2[t] + e * r3[t]);
    }
}

static void add_tile(const struct linear *x, struct linear_stats *r, int side, int n)
{
    for (int first = 0; first < n; first += TOGETHER) {
        memset(r->rows, 0, (size_t)(TOGETHER * r->ld) * sizeof *r->rows);
        for (int i = first; i < n && i < first + TOGETHER; i++)
            for (int c = 0; c < x->dq; c++) {
                const double v = (double)r->tile[i * x->ldq + c];
                r->rows[(i - first) * r->ld + c] = v;
                r->sums[side][c] += v;
            }
        add_squares(x->dq, r->ld, r->rows, r->squares[side]);
    }
}

void linear_stats_add(const struct linear *x, const foci_io *io, const struct seq *s,
                      int64_t h, struct linear_stats *r)
{
    const foci_problem *p = x->p;
    const size_t        el = foci_dtype_bytes(p->dtype);

    if (!s->nq || !s->nk) return;
    for (int side = 0; side < 2; side++) {
        const foci_layout *l = side ? &p->k : &p->q;
        const int64_t      head = side ? x->kv0 + h / x->per_kv : x->head0 + h;
        const int64_t      row0 = side ? s->k0 : s->q0, n = side ? s->nk : s->nq;
        const char        *rows = side ? io->k : io->q;

        rows += (size_t)(s->b * l->batch + row0 * l->row + head * l->head) * el;
        for (int64_t i = 0; i < n; i += LOAD) {
            const int m = (int)min64(LOAD, n - i);
            x->k->load_rows(r->tile, x->ldq, rows + (size_t)(i * l->row) * el, l->row,
                            (int)p->dtype, m, x->dq);
            add_tile(x, r, side, m);
        }
        r->n[side] += n;
    }
}

/* Means of x = sqrt(s) q and y = sqrt(s) k. */
static void set_means(const struct linear *x, const struct linear_stats *r, int side,
                      double *xx, double *mean)
{
    const int64_t d = x->dq;
    const double  n = (double)max64(r->n[side], 1);

    for (int64_t i = 0; i < d; i++) {
        mean[i] = r->sums[side][i] * sqrt(x->scale) / n;
        for (int64_t j = i; j < d; j++)
            xx[i * d + j] = xx[j * d + i] =
                r->squares[side][i * r->ld + j] * x->scale / n;
    }
}

void linear_stats_solve(const struct linear *x, struct linear_stats *r)
{
    set_means(x, r, 0, r->m.xx, r->m.x);
    set_means(x, r, 1, r->m.yy, r->m.y);
    moments_solve(x->l->moments, &r->m, r->scratch, &r->e);
}
