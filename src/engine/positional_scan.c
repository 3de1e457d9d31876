/* positional_scan.c -- seven patterns of tokens: shifts, running means, means of all.
 *
 * Rows are counted along the scan: from the start, or from the end of the sequence for
 * those patterns that look the other way.
 */
#include <string.h>

#include "engine/positional.h"

/* The first row of n from t on, as they lie. */
static int64_t rows_of(const struct place *at, bool back, int64_t t, int n)
{
    return back ? at->s->nk - t - n : t;
}

/* a_m of rows t to t + n, m = t + 1. */
static void set_means(double *a, int64_t t, int n)
{
    for (int i = 0; i < n; i++) {
        const double m = (double)(t + i + 1);
        a[i] = 4 * m / ((m + 1) * (m + 1));
    }
}

/* Where a tile starts, and how far its rows are apart, along the scan. */
static float *tile_along(const struct place *at, float *tile, bool back, int n,
                         int64_t *ld)
{
    *ld = back ? -at->ld : at->ld;
    return back ? tile + (int64_t)(n - 1) * at->ld : tile;
}

static struct rows along(struct rows rows, bool back, int n)
{
    if (!back) return rows;
    return (struct rows){ rows.at + (n - 1) * rows.ld, -rows.ld };
}

static void clear(const struct place *at, float *tile, int n)
{
    memset(tile, 0, (size_t)n * (size_t)at->ld * sizeof *tile);
}

/* Rows t0 to t1 of the scan have no keys: zero, or themselves. */
static void leave_empty(const struct positional *x, const struct place *at, bool back,
                        int64_t t0, int64_t t1, struct positional_room *r)
{
    for (int64_t t = t0; t < t1; t += at->rows) {
        const int     n = (int)min64(at->rows, t1 - t);
        const int64_t i = rows_of(at, back, t, n);

        if (at->what.self) {
            positional_copy_o(x, at, i, i, n);
            continue;
        }
        clear(at, r->tile, n);
        positional_store_o(x, at, i, n, r->tile);
    }
}

/* Rows of the scan take the one `lag` before them. */
static void shift(const struct positional *x, const struct place *at, bool back,
                  int64_t lag, struct positional_room *r)
{
    const int64_t n_all = at->s->nk;

    const int64_t from = back ? lag : 0, to = back ? 0 : lag;

    leave_empty(x, at, back, 0, min64(lag, n_all), r);
    for (int64_t i = 0; i + lag < n_all; i += at->rows)
        positional_copy_o(x, at, from + i, to + i,
                          (int)min64(at->rows, n_all - lag - i));
}

/* Rows take the mean of those up to `lag` before them. */
static void means(const struct positional *x, const struct place *at, bool back,
                  int64_t lag, struct positional_room *r)
{
    const int64_t n_all = at->s->nk;

    leave_empty(x, at, back, 0, min64(lag, n_all), r);
    memset(r->state, 0, (size_t)at->ld * sizeof *r->state);
    for (int64_t t = 0; t + lag < n_all; t += at->rows) {
        const int         n = (int)min64(at->rows, n_all - lag - t);
        const struct rows v = along(
            positional_v(x, at, rows_of(at, back, t, n), n, back ? -n : n, r->tile),
            back, n);
        int64_t ld;
        float  *first = tile_along(at, r->tile, back, n, &ld);

        set_means(r->factor, t, n);
        x->k->mean_rows(first, ld, v.at, v.ld, n, at->ld, r->factor, r->state);
        positional_store_o(x, at, rows_of(at, back, t + lag, n), n, r->tile);
    }
}

/* All rows take the mean of all. */
static void whole(const struct positional *x, const struct place *at, bool back,
                  struct positional_room *r)
{
    const int64_t     n_all = at->s->nk;
    const struct rows last = { r->more, 0 }; /* over and over */

    memset(r->state, 0, (size_t)at->ld * sizeof *r->state);
    for (int64_t t = 0; t < n_all; t += at->rows) {
        const int         n = (int)min64(at->rows, n_all - t);
        const struct rows v = along(
            positional_v(x, at, rows_of(at, back, t, n), n, back ? -n : n, r->tile),
            back, n);

        set_means(r->factor, t, n);
        x->k->mean_rows(r->more, 0, v.at, v.ld, n, at->ld, r->factor, r->state);
    }
    for (int64_t i = 0; i < n_all; i += at->rows)
        positional_put_o(x, at, i, (int)min64(at->rows, n_all - i), last);
}

/* Sums of the first n p-th powers, p = 0 to 3. */
static void power_sums(double n, double s[4])
{
    s[0] = n;
    s[1] = n * (n + 1) / 2;
    s[2] = s[1] * (2 * n + 1) / 3;
    s[3] = s[1] * s[1];
}

static double power(double x, int p)
{
    double y = 1;

    for (; p > 0; p--)
        y *= x;
    return y;
}

/* From means weighed by powers 0 to 3 of the distance, before m rows from t on, to those
 * after them, where all distances have grown by m, and to the rows, where the i-th has
 * seen them grow by i + 1. */
static void cubes_of(struct cubes *f, int64_t t, int m)
{
    static const double binomial[4][4] = {
        { 1 }, { 1, 1 }, { 1, 2, 1 }, { 1, 3, 3, 1 }
    };
    double before[4], after[4];

    power_sums((double)t, before);
    for (int i = 0; i < m; i++) {
        power_sums((double)(t + i + 1), after);
        for (int q = 0; q < 4; q++)
            f->row[i][q] =
                (float)(binomial[3][q] * power(i + 1, 3 - q) * before[q] / after[3]);
        f->row[i][4] = (float)(1 / after[3]);
    }
    for (int p = 0; p < 4; p++) {
        f->in[p] = 1 / after[p];
        for (int q = 0; q <= p; q++)
            f->from[p * (p + 1) / 2 + q] =
                binomial[p][q] * power(m, p - q) * before[q] / after[p];
    }
}

void positional_cubes(struct cubes *f, int64_t t, int n)
{
    for (int i = 0; i < n; i += CUBE_ROWS)
        cubes_of(f++, t + i, (int)min64(CUBE_ROWS, n - i));
}

/* Causal start: weights are cubes of the distance. */
static void cubes(const struct positional *x, const struct place *at,
                  struct positional_room *r)
{
    memset(r->state, 0, 4 * (size_t)at->ld * sizeof *r->state);
    for (int64_t t = 0; t < at->s->nk; t += at->rows) {
        const int n = (int)min64(at->rows, at->s->nk - t);

        const struct rows v = positional_v(x, at, t, n, n, r->tile);

        positional_cubes(r->cubes, t, n);
        x->k->cube_rows(r->tile, at->ld, v.at, v.ld, n, at->ld, r->cubes, r->state);
        positional_store_o(x, at, t, n, r->tile);
    }
}

void scan_forward(const struct positional *x, const struct place *at,
                  struct positional_room *r)
{
    const int64_t n = at->s->nk;

    switch (at->what.pattern) {
    case FOCI_PATTERN_CURRENT: shift(x, at, false, 0, r); break;
    case FOCI_PATTERN_PREVIOUS: shift(x, at, false, 1, r); break;
    case FOCI_PATTERN_NEXT: shift(x, at, true, x->causal ? n : 1, r); break;
    case FOCI_PATTERN_LEFT: means(x, at, false, 2, r); break;
    case FOCI_PATTERN_RIGHT: means(x, at, true, x->causal ? n : 2, r); break;
    case FOCI_PATTERN_END:
        if (x->causal)
            means(x, at, false, 0, r);
        else
            whole(x, at, false, r);
        break;
    case FOCI_PATTERN_START:
        if (x->causal)
            cubes(x, at, r);
        else
            whole(x, at, true, r);
        break;
    case FOCI_PATTERN_TAPS:
    case FOCI_PATTERN_TAPS_OF_X: break;
    }
}

/*
 * Backward: the same scans transposed
 */

/* Rows that were empty and took themselves add their gradient. */
static void add_self(const struct positional *x, const struct place *at, bool back,
                     int64_t t, int n, int64_t lag, struct positional_room *r)
{
    const int m = (int)min64(n, lag - t);

    if (!at->what.self || m <= 0) return;
    const int64_t i = rows_of(at, back, t, m);
    float        *to = r->tile + (i - rows_of(at, back, t, n)) * at->ld;

    positional_load_g(x, at, i, m, r->more);
    for (int64_t c = 0; c < (int64_t)m * at->ld; c++)
        to[c] += r->more[c];
}

/* Gradients of n rows from t of the scan on, `lag` later; those there are not are zero.
 * The rows before will be next. */
static struct rows late(const struct positional *x, const struct place *at, bool back,
                        int64_t t, int n, int64_t lag, struct positional_room *r)
{
    const int m = (int)max64(0, min64(n, at->s->nk - lag - t));
    const int ahead = back ? n : -n;

    if (m == n)
        return positional_g(x, at, rows_of(at, back, t + lag, n), n, ahead, r->tile);
    clear(at, r->tile, n);
    if (m)
        positional_load_g(x, at, rows_of(at, back, t + lag, m), m,
                          r->tile + (back ? (int64_t)(n - m) * at->ld : 0));
    return (struct rows){ r->tile, at->ld };
}

static void shift_back(const struct positional *x, const struct place *at, bool back,
                       int64_t lag, struct positional_room *r)
{
    for (int64_t i = 0; i < at->s->nk; i += at->rows) {
        const int     n = (int)min64(at->rows, at->s->nk - i);
        const int64_t t = back ? at->s->nk - i - n : i;

        if (t + lag + n <= at->s->nk && !(at->what.self && t < lag) &&
            positional_copy_dv(x, at, rows_of(at, back, t + lag, n), i, n))
            continue;
        const struct rows g = late(x, at, back, t, n, lag, r);

        x->k->load_rows(r->tile, at->ld, g.at, g.ld, FOCI_F32, n, at->ld);
        add_self(x, at, back, t, n, lag, r);
        positional_store_dv(x, at, i, n, r->tile);
    }
}

/* From the last row of the scan to the first. */
static void means_back(const struct positional *x, const struct place *at, bool back,
                       int64_t lag, struct positional_room *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->state, 0, (size_t)at->ld * sizeof *r->state);
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int         n = (int)min64(at->rows, n_all - t);
        const struct rows g = along(late(x, at, back, t, n, lag, r), back, n);
        int64_t           ld;
        float            *first = tile_along(at, r->tile, back, n, &ld);

        set_means(r->factor, t, n);
        x->k->mean_back(first, ld, g.at, g.ld, n, at->ld, r->factor, r->state);
        add_self(x, at, back, t, n, lag, r);
        positional_store_dv(x, at, rows_of(at, back, t, n), n, r->tile);
    }
}

static void whole_back(const struct positional *x, const struct place *at, bool back,
                       struct positional_room *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->state, 0, (size_t)at->ld * sizeof *r->state);
    memset(r->factor, 0, (size_t)at->rows * sizeof *r->factor); /* sums alone */
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int         n = (int)min64(at->rows, n_all - t);
        const struct rows g = positional_g(x, at, t, n, -n, r->tile);

        x->k->mean_back(r->more, 0, g.at, g.ld, n, at->ld, r->factor, r->state);
    }
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int n = (int)min64(at->rows, n_all - t);
        int64_t   ld;

        set_means(r->factor, t, n);
        float *first = tile_along(at, r->tile, back, n, &ld);
        x->k->mean_back(first, ld, NULL, 0, n, at->ld, r->factor, r->state);
        positional_store_dv(x, at, rows_of(at, back, t, n), n, r->tile);
    }
}

static void cubes_back(const struct positional *x, const struct place *at,
                       struct positional_room *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->state, 0, 4 * (size_t)at->ld * sizeof *r->state);
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int n = (int)min64(at->rows, n_all - t);

        const struct rows g = positional_g(x, at, t, n, -n, r->tile);

        positional_cubes(r->cubes, t, n);
        x->k->cube_back(r->tile, at->ld, g.at, g.ld, n, at->ld, r->cubes, r->state);
        positional_store_dv(x, at, t, n, r->tile);
    }
}

void scan_backward(const struct positional *x, const struct place *at,
                   struct positional_room *r)
{
    const int64_t n = at->s->nk;

    switch (at->what.pattern) {
    case FOCI_PATTERN_CURRENT: shift_back(x, at, false, 0, r); break;
    case FOCI_PATTERN_PREVIOUS: shift_back(x, at, false, 1, r); break;
    case FOCI_PATTERN_NEXT: shift_back(x, at, true, x->causal ? n : 1, r); break;
    case FOCI_PATTERN_LEFT: means_back(x, at, false, 2, r); break;
    case FOCI_PATTERN_RIGHT:
        if (x->causal)
            shift_back(x, at, true, n, r);
        else
            means_back(x, at, true, 2, r);
        break;
    case FOCI_PATTERN_END:
        if (x->causal)
            means_back(x, at, false, 0, r);
        else
            whole_back(x, at, false, r);
        break;
    case FOCI_PATTERN_START:
        if (x->causal)
            cubes_back(x, at, r);
        else
            whole_back(x, at, true, r);
        break;
    case FOCI_PATTERN_TAPS:
    case FOCI_PATTERN_TAPS_OF_X: break;
    }
}
