/* local.c -- a window of neighbours.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  |i - j| <= w g,  g divides i - j
 *
 * w is a radius, counted in steps of the dilation g: 2w + 1 keys, w + 1 if causal.
 * Parmar et al., "Image Transformer" (2018); dilated as in Beltagy, Peters and Cohan,
 * "Longformer" (2020).  Time O(n w dim), memory O(n).
 */
#include "mech/window.h"

enum { WINDOW, DILATION };

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
};

static struct window window(const foci_mech *m)
{
    return (struct window){ foci_arg_int(m, WINDOW), foci_arg_int(m, DILATION) };
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    return window_mask(window(m), i, j0);
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    window_tiles(window(m), m->dims.len, rows, out);
}

static int64_t first_key(const foci_mech *m, int64_t n)
{
    return n - window_reach(window(m));
}

const foci_mech_def mech_local = {
    FOCI_SIZED(foci_mech_def),
    .name = "local",
    .summary = "softmax over a window of neighbours",
    .formula = "w_ij = e^x_ij / sum e^x_it over |i - j| <= w g, g | i - j",
    .source = "Parmar et al., Image Transformer, 2018",
    .cost = "time n w dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "a window is about a query's own position",
    .mask = mask,
    .tiles = tiles,
    .first_key = first_key,
};
