/* strided.c -- a window, and every so many-th token.
 *
 *     part 1    |i - j| <= stride
 *     part 2    stride divides i - j
 *
 * Child et al., "Generating long sequences with sparse transformers" (2019), section
 * 4.3.  Both parts are one softmax over the union.  Part 2 is dense among the tokens of
 * one residue, so that is their label; the window then leaves them out.  With a stride
 * near sqrt(n): time O(n sqrt(n) dim), memory O(n).
 */
#include <math.h>
#include <stdio.h>

#include "mech/mech.h"

enum { STRIDE, PART };
enum { BOTH, WINDOW, RESIDUE };

static const foci_arg_def args[] = {
    [STRIDE] = { .name = "stride",
                 .follows = FOCI_FOLLOWS_ROOT,
                 .max = INT32_MAX,
                 .help = "the distance; 0: the square root of the length, rounded up" },
    [PART] = { .name = "part",
               .choices = "both|1|2",
               .help = "the window, every so many-th token, or both" },
};

static int64_t stride_of(const foci_mech *m)
{
    const int64_t given = foci_arg_int(m, STRIDE);

    if (given) return given;
    int64_t root = (int64_t)sqrt((double)m->dims.len);
    while (root * root < m->dims.len)
        root++;
    return root > 1 ? root : 1;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    if (!m->causal || m->arg[STRIDE] > 0) return false;
    snprintf(why, cap,
             "a causal problem needs a stride: what a token sees may not depend on how "
             "many follow");
    return true;
}

/* Keys of i's residue among the 64 from j0 on. */
static uint64_t residue(int64_t i, int64_t j0, int64_t stride)
{
    uint64_t bits = 0;

    for (int64_t t = ((i - j0) % stride + stride) % stride; t < FOCI_TILE; t += stride)
        bits |= UINT64_C(1) << t;
    return bits;
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t    stride = stride_of(m);
    const foci_range near = { i - stride, i + stride + 1 };

    switch ((int)m->arg[PART]) {
    case WINDOW: return foci_bits_in(near, j0);
    case RESIDUE: return 0;
    default: return foci_bits_in(near, j0) & ~residue(i, j0, stride);
    }
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t    stride = stride_of(m);
    const foci_range hull = { rows.begin - stride, rows.end + stride };
    const foci_range core = { rows.end - 1 - stride, rows.begin + stride + 1 };
    const foci_range none = { 0, 0 };

    if (m->arg[PART] == RESIDUE) return;
    foci_tiles_cover(out, hull, m->arg[PART] == WINDOW ? core : none);
}

static void order(const foci_mech *m, foci_order *order)
{
    if (m->arg[PART] != WINDOW) order->label = FOCI_LABEL_PLACE;
}

static int64_t place(const foci_mech *m, int64_t i) { return i % stride_of(m); }

const foci_mech_def mech_strided = {
    FOCI_SIZED(foci_mech_def),
    .name = "strided",
    .summary = "a window, and every so many-th token before and after it",
    .formula = "j: |i - j| <= stride, or stride divides i - j",
    .source = "Child et al., Generating long sequences with sparse transformers, 2019",
    .cost = "time n (stride + n/stride) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .by_length = true,
    .no_cross = "distances between tokens of one sequence are what it looks at",
    .refuse = refuse,
    .mask = mask,
    .tiles = tiles,
    .order = order,
    .place = place,
};
