/* sparse_fixed.c -- the own block, and columns that sum up all blocks.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  floor(i/l) = floor(j/l)  (part 1)
 *                                     or  j mod l >= l - c         (part 2)
 *
 * Child, Gray, Radford and Sutskever, "Generating long sequences with sparse
 * transformers" (2019), the fixed pattern.  A token passes its content to the last c of
 * its block, and every later one reads them there: two steps reach everything.  The
 * columns lie scattered over the keys, so they are gathered as slots; those of the own
 * block are among its keys already.  With l about sqrt(n), time O(n sqrt(n) dim), memory
 * O(n).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "mech/mech.h"

enum { STRIDE, SUMMARY, PART };
enum { BOTH, BLOCK_ONLY, COLUMNS_ONLY };

static const foci_arg_def args[] = {
    [STRIDE] = { .name = "stride",
                 .follows = FOCI_FOLLOWS_ROOT,
                 .max = INT32_MAX,
                 .help = "tokens of a block; 0: the root of the length, rounded up" },
    [SUMMARY] = { .name = "summary",
                  .preset = 1,
                  .min = 1,
                  .max = INT32_MAX,
                  .help = "columns at the end of a block that all see" },
    [PART] = { .name = "part",
               .help = "the own block (1), the columns (2), or both",
               .choices = "both|1|2" },
};

static int64_t stride(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, STRIDE);
    const int64_t root = (int64_t)ceil(sqrt((double)m->dims.len));

    return given ? given : root > 1 ? root : 1;
}

static int64_t summary(const foci_mech *m) { return foci_arg_int(m, SUMMARY); }

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (m->causal && !foci_arg_int(m, STRIDE)) {
        snprintf(why, cap,
                 "a causal problem needs its stride: what a token sees may not depend "
                 "on the length");
        return true;
    }
    if (foci_arg_int(m, STRIDE) && summary(m) > stride(m)) {
        snprintf(why, cap, "summary=%" PRId64 " is more than the stride, %" PRId64,
                 summary(m), stride(m));
        return true;
    }
    return false;
}

/* The blocks of queries first to last. */
static foci_range blocks_of(const foci_mech *m, int64_t first, int64_t last)
{
    const int64_t l = stride(m);
    return (foci_range){ first / l * l, (last / l + 1) * l };
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    if (foci_arg_int(m, PART) == COLUMNS_ONLY) return 0;
    return foci_bits_in(blocks_of(m, i, i), j0);
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const foci_range hull = blocks_of(m, rows.begin, rows.end - 1);
    const foci_range core = { blocks_of(m, rows.end - 1, rows.end - 1).begin,
                              blocks_of(m, rows.begin, rows.begin).end };

    if (foci_arg_int(m, PART) != COLUMNS_ONLY) foci_tiles_cover(out, hull, core);
}

/* A stride found by the length may be less than the columns asked for: all are. */
static int64_t columns(const foci_mech *m)
{
    return summary(m) < stride(m) ? summary(m) : stride(m);
}

static int slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    if (foci_arg_int(m, PART) == BLOCK_ONLY) return 0;
    levels[0] = (foci_slots){ .run_len = stride(m), .tail = columns(m) };
    return 1;
}

/* The slots that query i does not see: those of its block, unless they are all it sees,
 * and if causal those of later blocks. */
static foci_range hidden(const foci_mech *m, int64_t i)
{
    const int64_t own = i / stride(m) * columns(m), next = own + columns(m);

    if (foci_arg_int(m, PART) == COLUMNS_ONLY)
        return m->causal ? (foci_range){ next, INT64_MAX } : (foci_range){ 0, 0 };
    return (foci_range){ own, m->causal ? INT64_MAX : next };
}

static uint64_t slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    (void)level;
    return ~foci_bits_in(hidden(m, i), s0);
}

static void slot_tiles(const foci_mech *m, int level, foci_range rows,
                       foci_tile_list *out)
{
    const foci_range first = hidden(m, rows.begin), last = hidden(m, rows.end - 1);

    (void)level;
    foci_tiles_cover(out, (foci_range){ 0, last.begin }, (foci_range){ 0, first.begin });
    foci_tiles_cover(out, (foci_range){ first.end, INT64_MAX },
                     (foci_range){ last.end, INT64_MAX });
}

static int64_t first_key(const foci_mech *m, int64_t n)
{
    return blocks_of(m, n, n).begin;
}

const foci_mech_def mech_sparse_fixed = {
    FOCI_SIZED(foci_mech_def),
    .name = "sparse_fixed",
    .summary = "softmax over the own block and the last columns of every block",
    .formula = "w_ij = e^x_ij / sum e^x_it over floor(i/l) = floor(j/l) or "
               "j mod l >= l - c",
    .source = "Child et al., Generating long sequences with sparse transformers, 2019",
    .cost = "time n (l + c n/l) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .by_length = true,
    .no_cross = "queries and keys share blocks by position",
    .refuse = refuse,
    .mask = mask,
    .tiles = tiles,
    .slots = slots,
    .slot_mask = slot_mask,
    .slot_tiles = slot_tiles,
    .first_key = first_key,
};
