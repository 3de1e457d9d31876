/* block.c -- a given layout of blocks.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  layout[floor(i/b)][floor(j/b)] = 1
 *
 * The layout has a row and a column for every block of the plan's length; what lies
 * beyond sees nothing.  Shorter sequences have its upper left corner.  Block-sparse
 * attention as of Gray, Radford and Kingma, "GPU kernels for block-sparse weights"
 * (2017).  Time O(blocks b^2 dim), memory O(n).
 */
#include <math.h>

#include "mech/mech.h"

enum { BLOCK };

static const foci_arg_def args[] = {
    [BLOCK] = { .name = "block",
                .preset = 64,
                .min = 1,
                .max = INT32_MAX,
                .help = "tokens of a block" },
};

/* Entries for the blocks of the plan's length. */
static int64_t count(const foci_mech *m)
{
    const int64_t b = foci_arg_int(m, BLOCK), n = (m->dims.len + b - 1) / b;
    return n <= INT32_MAX ? n * n : INT64_MAX;
}

static int64_t most(const foci_mech *m)
{
    (void)m;
    return 1;
}

static const foci_list_def layout = {
    .name = "layout",
    .help = "a row for each block of queries: 1 where it sees a block of keys",
    .count = count,
    .most = most,
};

/* Block rows, and columns, of the layout. */
static int64_t n_blocks(const foci_mech *m)
{
    return (int64_t)lround(sqrt((double)m->n_list));
}

static bool sees(const foci_mech *m, int64_t u, int64_t t)
{
    return m->list[u * n_blocks(m) + t] != 0;
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t b = foci_arg_int(m, BLOCK), n = n_blocks(m), u = i / b;
    uint64_t      seen = 0;

    for (int64_t t = j0 / b; u < n && t < n && t * b < j0 + FOCI_TILE; t++)
        if (sees(m, u, t)) seen |= foci_bits_in((foci_range){ t * b, (t + 1) * b }, j0);
    return seen;
}

/* Of block rows u0 to u1, how many see block column t? */
static int64_t seers(const foci_mech *m, int64_t u0, int64_t u1, int64_t t)
{
    int64_t n = 0;
    for (int64_t u = u0; u <= u1; u++)
        n += sees(m, u, t);
    return n;
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t    b = foci_arg_int(m, BLOCK), n = n_blocks(m);
    const int64_t    u0 = rows.begin / b, u1 = (rows.end - 1) / b;
    const foci_range none = { 0, 0 };

    /* Neighbours that all rows see are covered as one, so that tiles of several small
     * blocks come out full. */
    for (int64_t t = 0, end; t < n; t = end) {
        const int64_t some = seers(m, u0, u1, t);
        for (end = t + 1; end < n && some == u1 - u0 + 1; end++)
            if (seers(m, u0, u1, end) != some) break;
        const foci_range run = { t * b, end * b };
        if (some) foci_tiles_cover(out, run, some == u1 - u0 + 1 ? run : none);
    }
}

const foci_mech_def mech_block = {
    FOCI_SIZED(foci_mech_def),
    .name = "block",
    .summary = "softmax over a given layout of blocks",
    .formula = "w_ij = e^x_ij / sum e^x_it over layout[floor(i/b)][floor(j/b)] = 1",
    .source = "Gray, Radford and Kingma, GPU kernels for block-sparse weights, 2017",
    .cost = "time (blocks of the layout) b^2 dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .list = &layout,
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "rows and columns of the layout are blocks of one sequence",
    .mask = mask,
    .tiles = tiles,
};
