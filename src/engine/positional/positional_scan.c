/* positional_scan.c -- the seven patterns of tokens: shifts, running means, global
 * means.
 *
 * Rows are numbered along the scan: from the start, or for patterns that look at later
 * rows (`reverse`) from the end of the sequence.
 */
#include <string.h>

#include "engine/positional/positional.h"

/* In memory, the first of n rows from row t of the scan on. */
static int64_t first_row(const struct positional_head *at, bool reverse, int64_t t,
                         int n)
{
    return reverse ? at->s->nk - t - n : t;
}

/* a_m of n rows from row t on, where m = t + 1. */
static void set_factors(double *a, int64_t t, int n)
{
    for (int i = 0; i < n; i++) {
        a[i] = positional_mean_factor(t + i + 1);
    }
}

/* The first row of a tile along the scan, and the distance of its rows. */
static float *tile_along(const struct positional_head *at, float *tile, bool reverse,
                         int n, int64_t *ld)
{
    *ld = reverse ? -at->ld : at->ld;
    return reverse ? tile + (int64_t)(n - 1) * at->ld : tile;
}

static struct positional_rows along_scan(struct positional_rows rows, bool reverse,
                                         int n)
{
    if (!reverse) return rows;
    return (struct positional_rows){ rows.at + (n - 1) * rows.ld, -rows.ld };
}

static void clear(const struct positional_head *at, float *tile, int n)
{
    memset(tile, 0, (size_t)n * (size_t)at->ld * sizeof *tile);
}

/* Rows t0 to t1 - 1 of the scan have no keys: they are zero, or take themselves. */
static void write_empty(const struct positional *x, const struct positional_head *at,
                        bool reverse, int64_t t0, int64_t t1,
                        struct positional_scratch *r)
{
    for (int64_t t = t0; t < t1; t += at->rows) {
        const int     n = (int)min64(at->rows, t1 - t);
        const int64_t i = first_row(at, reverse, t, n);

        if (at->kind.self) {
            positional_copy_o(x, at, i, i, n);
            continue;
        }
        clear(at, r->tile, n);
        positional_store_o(x, at, i, n, r->tile);
    }
}

/* Rows take the one `lag` rows before them. */
static void shift(const struct positional *x, const struct positional_head *at,
                  bool reverse, int64_t lag, struct positional_scratch *r)
{
    const int64_t n_all = at->s->nk;

    const int64_t from = reverse ? lag : 0, to = reverse ? 0 : lag;

    write_empty(x, at, reverse, 0, min64(lag, n_all), r);
    for (int64_t i = 0; i + lag < n_all; i += at->rows)
        positional_copy_o(x, at, from + i, to + i,
                          (int)min64(at->rows, n_all - lag - i));
}

/* Rows take the mean of all rows at least `lag` before them. */
static void means(const struct positional *x, const struct positional_head *at,
                  bool reverse, int64_t lag, struct positional_scratch *r)
{
    const int64_t n_all = at->s->nk;

    write_empty(x, at, reverse, 0, min64(lag, n_all), r);
    memset(r->mean, 0, (size_t)at->ld * sizeof *r->mean);
    for (int64_t t = 0; t + lag < n_all; t += at->rows) {
        const int                    n = (int)min64(at->rows, n_all - lag - t);
        const struct positional_rows v =
            along_scan(positional_rows_v(x, at, first_row(at, reverse, t, n), n,
                                         reverse ? -n : n, r->tile),
                       reverse, n);
        int64_t ld;
        float  *first = tile_along(at, r->tile, reverse, n, &ld);

        set_factors(r->factor, t, n);
        x->k->mean_rows(first, ld, v.at, v.ld, n, at->ld, r->factor, r->mean);
        positional_store_o(x, at, first_row(at, reverse, t + lag, n), n, r->tile);
    }
}

/* All rows take the mean of all. */
static void global_mean(const struct positional *x, const struct positional_head *at,
                        bool reverse, struct positional_scratch *r)
{
    const int64_t                n_all = at->s->nk;
    const struct positional_rows last = { r->tile2, 0 }; /* ld 0: one row for all */

    memset(r->mean, 0, (size_t)at->ld * sizeof *r->mean);
    for (int64_t t = 0; t < n_all; t += at->rows) {
        const int                    n = (int)min64(at->rows, n_all - t);
        const struct positional_rows v =
            along_scan(positional_rows_v(x, at, first_row(at, reverse, t, n), n,
                                         reverse ? -n : n, r->tile),
                       reverse, n);

        set_factors(r->factor, t, n);
        x->k->mean_rows(r->tile2, 0, v.at, v.ld, n, at->ld, r->factor, r->mean);
    }
    for (int64_t i = 0; i < n_all; i += at->rows)
        positional_store_rows_o(x, at, i, (int)min64(at->rows, n_all - i), last);
}

/* Causal start: weights are cubes of the distance. */
static void distance_means(const struct positional *x, const struct positional_head *at,
                           struct positional_scratch *r)
{
    memset(r->mean, 0, 4 * (size_t)at->ld * sizeof *r->mean);
    for (int64_t t = 0; t < at->s->nk; t += at->rows) {
        const int n = (int)min64(at->rows, at->s->nk - t);

        const struct positional_rows v = positional_rows_v(x, at, t, n, n, r->tile);

        positional_cubes(r->cubes, t, n);
        x->k->cube_rows(r->tile, at->ld, v.at, v.ld, n, at->ld, r->cubes, r->mean);
        positional_store_o(x, at, t, n, r->tile);
    }
}

void positional_scan_forward(const struct positional      *x,
                             const struct positional_head *at,
                             struct positional_scratch    *r)
{
    const int64_t n = at->s->nk;

    switch (at->kind.pattern) {
    case FOCI_PATTERN_CURRENT: shift(x, at, false, 0, r); break;
    case FOCI_PATTERN_PREVIOUS: shift(x, at, false, 1, r); break;
    case FOCI_PATTERN_NEXT: shift(x, at, true, x->causal ? n : 1, r); break;
    case FOCI_PATTERN_LEFT: means(x, at, false, 2, r); break;
    case FOCI_PATTERN_RIGHT: means(x, at, true, x->causal ? n : 2, r); break;
    case FOCI_PATTERN_END:
        if (x->causal)
            means(x, at, false, 0, r);
        else
            global_mean(x, at, false, r);
        break;
    case FOCI_PATTERN_START:
        if (x->causal)
            distance_means(x, at, r);
        else
            global_mean(x, at, true, r);
        break;
    case FOCI_PATTERN_TAPS:
    case FOCI_PATTERN_TAPS_OF_X: break;
    }
}

/*
 * Backward: the transposed scans
 */

/* Rows without keys that took themselves add their gradient. */
static void add_self(const struct positional *x, const struct positional_head *at,
                     bool reverse, int64_t t, int n, int64_t lag,
                     struct positional_scratch *r)
{
    const int m = (int)min64(n, lag - t);

    if (!at->kind.self || m <= 0) return;
    const int64_t i = first_row(at, reverse, t, m);
    float        *to = r->tile + (i - first_row(at, reverse, t, n)) * at->ld;

    positional_load_do(x, at, i, m, r->tile2);
    for (int64_t c = 0; c < (int64_t)m * at->ld; c++)
        to[c] += r->tile2[c];
}

/* d_o of the n rows `lag` after row t of the scan, zero past the end.  The scan is
 * backward, so the rows before these are prefetched. */
static struct positional_rows lagged_do(const struct positional      *x,
                                        const struct positional_head *at, bool reverse,
                                        int64_t t, int n, int64_t lag,
                                        struct positional_scratch *r)
{
    const int m = (int)max64(0, min64(n, at->s->nk - lag - t));
    const int ahead = reverse ? n : -n;

    if (m == n)
        return positional_rows_do(x, at, first_row(at, reverse, t + lag, n), n, ahead,
                                  r->tile);
    clear(at, r->tile, n);
    if (m)
        positional_load_do(x, at, first_row(at, reverse, t + lag, m), m,
                           r->tile + (reverse ? (int64_t)(n - m) * at->ld : 0));
    return (struct positional_rows){ r->tile, at->ld };
}

static void shift_back(const struct positional *x, const struct positional_head *at,
                       bool reverse, int64_t lag, struct positional_scratch *r)
{
    for (int64_t i = 0; i < at->s->nk; i += at->rows) {
        const int     n = (int)min64(at->rows, at->s->nk - i);
        const int64_t t = reverse ? at->s->nk - i - n : i;

        if (t + lag + n <= at->s->nk && !(at->kind.self && t < lag) &&
            positional_copy_dv(x, at, first_row(at, reverse, t + lag, n), i, n))
            continue;
        const struct positional_rows g = lagged_do(x, at, reverse, t, n, lag, r);

        x->k->load_rows(r->tile, at->ld, g.at, g.ld, FOCI_F32, n, at->ld);
        add_self(x, at, reverse, t, n, lag, r);
        positional_store_dv(x, at, i, n, r->tile);
    }
}

/* From the last row of the scan to the first. */
static void means_back(const struct positional *x, const struct positional_head *at,
                       bool reverse, int64_t lag, struct positional_scratch *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->mean, 0, (size_t)at->ld * sizeof *r->mean);
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int                    n = (int)min64(at->rows, n_all - t);
        const struct positional_rows g =
            along_scan(lagged_do(x, at, reverse, t, n, lag, r), reverse, n);
        int64_t ld;
        float  *first = tile_along(at, r->tile, reverse, n, &ld);

        set_factors(r->factor, t, n);
        x->k->mean_back(first, ld, g.at, g.ld, n, at->ld, r->factor, r->mean);
        add_self(x, at, reverse, t, n, lag, r);
        positional_store_dv(x, at, first_row(at, reverse, t, n), n, r->tile);
    }
}

static void global_mean_back(const struct positional      *x,
                             const struct positional_head *at, bool reverse,
                             struct positional_scratch *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->mean, 0, (size_t)at->ld * sizeof *r->mean);
    memset(r->factor, 0, (size_t)at->rows * sizeof *r->factor); /* sums alone */
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int                    n = (int)min64(at->rows, n_all - t);
        const struct positional_rows g = positional_rows_do(x, at, t, n, -n, r->tile);

        x->k->mean_back(r->tile2, 0, g.at, g.ld, n, at->ld, r->factor, r->mean);
    }
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int n = (int)min64(at->rows, n_all - t);
        int64_t   ld;

        set_factors(r->factor, t, n);
        float *first = tile_along(at, r->tile, reverse, n, &ld);
        x->k->mean_back(first, ld, NULL, 0, n, at->ld, r->factor, r->mean);
        positional_store_dv(x, at, first_row(at, reverse, t, n), n, r->tile);
    }
}

static void distance_means_back(const struct positional      *x,
                                const struct positional_head *at,
                                struct positional_scratch    *r)
{
    const int64_t n_all = at->s->nk;

    memset(r->mean, 0, 4 * (size_t)at->ld * sizeof *r->mean);
    for (int64_t t = (n_all - 1) / at->rows * at->rows; t >= 0; t -= at->rows) {
        const int n = (int)min64(at->rows, n_all - t);

        const struct positional_rows g = positional_rows_do(x, at, t, n, -n, r->tile);

        positional_cubes(r->cubes, t, n);
        x->k->cube_back(r->tile, at->ld, g.at, g.ld, n, at->ld, r->cubes, r->mean);
        positional_store_dv(x, at, t, n, r->tile);
    }
}

void positional_scan_backward(const struct positional      *x,
                              const struct positional_head *at,
                              struct positional_scratch    *r)
{
    const int64_t n = at->s->nk;

    switch (at->kind.pattern) {
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
            global_mean_back(x, at, false, r);
        break;
    case FOCI_PATTERN_START:
        if (x->causal)
            distance_means_back(x, at, r);
        else
            global_mean_back(x, at, true, r);
        break;
    case FOCI_PATTERN_TAPS:
    case FOCI_PATTERN_TAPS_OF_X: break;
    }
}
