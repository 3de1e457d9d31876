/* global.c -- a window of neighbours, and tokens that see and are seen by all.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  j near i,  or i in G,  or j in G
 *
 * G is given by its indices, or is the first tokens, or both; near is as in `local`.
 * Beltagy, Peters and Cohan, "Longformer: the long-document transformer" (2020), with
 * one set of projections.  Time O(n (w + g) dim), memory O(n).
 */
#include "mech/window.h"

enum { WINDOW, DILATION, FIRST };

static const foci_arg_def args[] = {
    [WINDOW] = { .name = "window",
                 .preset = 256,
                 .max = INT32_MAX,
                 .help = "keys on either side" },
    [DILATION] = { .name = "dilation",
                   .preset = 1,
                   .min = 1,
                   .max = INT32_MAX,
                   .help = "distance between neighbouring keys of the window" },
    [FIRST] = { .name = "first",
                .max = INT32_MAX,
                .help = "tokens from the first on that are global" },
};

static int64_t count(const foci_mech *m)
{
    (void)m;
    return -1;
}

static int64_t most(const foci_mech *m) { return m->dims.len - 1; }

static const foci_list_def list = {
    .name = "global",
    .help = "tokens that see all and are seen by all",
    .count = count,
    .most = most,
    .sorted = true,
};

static struct window window(const foci_mech *m)
{
    return (struct window){ foci_arg_int(m, WINDOW), foci_arg_int(m, DILATION) };
}

/* The first entry of the list that is not less than j. */
static int64_t entry_from(const foci_mech *m, int64_t j)
{
    int64_t lo = 0, hi = m->n_list;

    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (m->list[mid] < j)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool any_in(const foci_mech *m, foci_range r)
{
    const int64_t e = entry_from(m, r.begin);
    return r.begin < foci_arg_int(m, FIRST) || (e < m->n_list && m->list[e] < r.end);
}

static uint64_t globals(const foci_mech *m, int64_t j0)
{
    uint64_t seen = foci_bits_in((foci_range){ 0, foci_arg_int(m, FIRST) }, j0);

    for (int64_t e = entry_from(m, j0); e < m->n_list; e++) {
        if (m->list[e] >= j0 + FOCI_TILE) break;
        seen |= UINT64_C(1) << (m->list[e] - j0);
    }
    return seen;
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    if (any_in(m, (foci_range){ i, i + 1 })) return ~UINT64_C(0);
    return window_mask(window(m), i, j0) | globals(m, j0);
}

/* Runs of neighbours among the indices are seen whole. */
static void cover_globals(const foci_mech *m, foci_tile_list *out)
{
    const foci_range first = { 0, foci_arg_int(m, FIRST) };

    foci_tiles_cover(out, first, first);
    for (int64_t e = 0; e < m->n_list;) {
        foci_range run = { m->list[e], m->list[e] + 1 };
        for (; e < m->n_list && m->list[e] <= run.end; e++)
            run.end = m->list[e] + 1;
        foci_tiles_cover(out, run, run);
    }
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const foci_range all = { 0, INT64_MAX }, none = { 0, 0 };

    if (rows.end <= foci_arg_int(m, FIRST)) {
        foci_tiles_cover(out, all, all);
        return;
    }
    if (any_in(m, rows)) foci_tiles_cover(out, all, none);
    cover_globals(m, out);
    window_tiles(window(m), m->dims.len, rows, out);
}

/* A global token still to come needs all that went before. */
static int64_t first_key(const foci_mech *m, int64_t n)
{
    if (any_in(m, (foci_range){ n, INT64_MAX })) return 0;
    return n - window_reach(window(m));
}

const foci_mech_def mech_global = {
    FOCI_SIZED(foci_mech_def),
    .name = "global",
    .summary = "softmax over a window and over tokens that see and are seen by all",
    .formula = "w_ij = e^x_ij / sum e^x_it over |i - j| <= w g, g | i - j, "
               "or i or j global",
    .source = "Beltagy et al., Longformer: the long-document transformer, 2020",
    .cost = "time n (w + g) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .list = &list,
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "a token is global as query and as key",
    .mask = mask,
    .tiles = tiles,
    .first_key = first_key,
    .pinned = any_in,
};
