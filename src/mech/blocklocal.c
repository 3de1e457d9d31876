/* blocklocal.c -- attention inside blocks.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  floor(i/b) = floor(j/b)
 *
 * The last block may be short.  Liu et al., "Generating Wikipedia by summarizing long
 * sequences" (2018), section 4.2.3.  Time O(n b dim), memory O(n).
 */
#include "mech/mech.h"

enum { BLOCK };

static const foci_arg_def args[] = {
    [BLOCK] = { .name = "block",
                .preset = 64,
                .min = 1,
                .max = INT32_MAX,
                .help = "tokens of a block" },
};

/* The blocks of queries first to last. */
static foci_range blocks_of(const foci_mech *m, int64_t first, int64_t last)
{
    const int64_t b = foci_arg_int(m, BLOCK);
    return (foci_range){ first / b * b, (last / b + 1) * b };
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    return foci_bits_in(blocks_of(m, i, i), j0);
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const foci_range hull = blocks_of(m, rows.begin, rows.end - 1);
    const foci_range core = { blocks_of(m, rows.end - 1, rows.end - 1).begin,
                              blocks_of(m, rows.begin, rows.begin).end };

    foci_tiles_cover(out, hull, core);
}

static int64_t first_key(const foci_mech *m, int64_t n)
{
    return blocks_of(m, n, n).begin;
}

const foci_mech_def mech_blocklocal = {
    FOCI_SIZED(foci_mech_def),
    .name = "blocklocal",
    .summary = "softmax inside blocks of tokens",
    .formula = "w_ij = e^x_ij / sum e^x_it over floor(i/b) = floor(j/b)",
    .source = "Liu et al., Generating Wikipedia by summarizing long sequences, 2018",
    .cost = "time n b dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "queries and keys share blocks by position",
    .mask = mask,
    .tiles = tiles,
    .first_key = first_key,
};
