/* bigbird.c -- neighbouring blocks, first blocks that see and are seen by all, and
 * blocks by chance.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over blocks u of i, t of j with
 *            |u - t| <= radius,  or u < g,  or t < g,  or t drawn for u
 *
 * Zaheer et al., "Big Bird: transformers for longer sequences" (2020).  Block row u
 * draws from stream 1000 + u of the seed, without replacement, among the columns that it
 * does not have yet (if causal, among those up to u), so that what a causal row sees
 * does not depend on the length.  Time O(n b (2 radius + 1 + g + r) dim), memory O(n).
 */
#include "mech/mech.h"

enum { BLOCK, RADIUS, GLOBAL, RANDOM };
enum { MAX_RANDOM = 64, FIRST_STREAM = 1000 };

static const foci_arg_def args[] = {
    [BLOCK] = { .name = "block",
                .preset = 64,
                .min = 1,
                .max = INT32_MAX,
                .help = "tokens of a block" },
    [RADIUS] = { .name = "radius",
                 .preset = 1,
                 .max = INT32_MAX,
                 .help = "blocks on either side" },
    [GLOBAL] = { .name = "global",
                 .preset = 1,
                 .max = INT32_MAX,
                 .help = "first blocks, which see all and are seen by all" },
    [RANDOM] = { .name = "random",
                 .preset = 1,
                 .max = MAX_RANDOM,
                 .help = "further blocks drawn for each block of queries" },
};

struct bigbird_shape {
    int64_t b, radius, g, random;
};

static struct bigbird_shape shape(const foci_mech *m)
{
    return (struct bigbird_shape){ foci_arg_int(m, BLOCK), foci_arg_int(m, RADIUS),
                                   foci_arg_int(m, GLOBAL), foci_arg_int(m, RANDOM) };
}

static foci_range tokens(struct bigbird_shape s, int64_t first, int64_t end)
{
    return (foci_range){ first * s.b, end * s.b };
}

/* The columns that block row u, not a global one, draws.  The list to draw from is
 * never written out: it is [g, left) and then [right, n), and of its exchanges only
 * those of the entries that moved are remembered. */
static int draw(const foci_mech *m, int64_t u, int64_t columns[MAX_RANDOM])
{
    const struct bigbird_shape s = shape(m);
    const int64_t n = (m->dims.len + s.b - 1) / s.b, right = u + s.radius + 1;
    const int64_t left = u - s.radius - s.g, before = left > 0 ? left : 0;
    const int64_t after = m->causal || right > n ? 0 : n - right;
    const int64_t len = before + after;
    int64_t       moved_at[MAX_RANDOM], moved[MAX_RANDOM];
    uint64_t      stream;
    int           t = 0;

    stream = foci_draw_begin(m->seed, FIRST_STREAM + (uint64_t)u + m->stream);
    for (; t < s.random && t < len; t++) {
        const int64_t at = t + foci_draw_below(&stream, len - t);
        int64_t       entry = at, first = t;

        for (int i = 0; i < t; i++) {
            if (moved_at[i] == at) entry = moved[i];
            if (moved_at[i] == t) first = moved[i];
        }
        moved_at[t] = at;
        moved[t] = first;
        columns[t] = entry < before ? s.g + entry : right + entry - before;
    }
    return t;
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const struct bigbird_shape s = shape(m);
    const int64_t              u = i / s.b;
    int64_t                    columns[MAX_RANDOM];

    if (u < s.g) return ~UINT64_C(0);
    uint64_t seen = foci_bits_in(tokens(s, 0, s.g), j0) |
                    foci_bits_in(tokens(s, u - s.radius, u + s.radius + 1), j0);
    const int n = draw(m, u, columns);
    for (int t = 0; t < n; t++)
        seen |= foci_bits_in(tokens(s, columns[t], columns[t] + 1), j0);
    return seen;
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const struct bigbird_shape s = shape(m);
    const int64_t              u0 = rows.begin / s.b, u1 = (rows.end - 1) / s.b;
    const foci_range           all = { 0, INT64_MAX }, none = { 0, 0 };
    const foci_range           global = tokens(s, 0, s.g);
    int64_t                    columns[MAX_RANDOM];

    if (u0 < s.g) foci_tiles_cover(out, all, u1 < s.g ? all : none);
    if (u1 < s.g) return;
    foci_tiles_cover(out, global, global);
    foci_tiles_cover(out, tokens(s, u0 - s.radius, u1 + s.radius + 1),
                     tokens(s, u1 - s.radius, u0 + s.radius + 1));
    for (int64_t u = u0 > s.g ? u0 : s.g; u <= u1; u++) {
        const int n = draw(m, u, columns);
        for (int t = 0; t < n; t++) {
            const foci_range one = tokens(s, columns[t], columns[t] + 1);
            foci_tiles_cover(out, one, u0 == u1 ? one : none);
        }
    }
}

/* Blocks by chance reach back to the first. */
static int64_t first_key(const foci_mech *m, int64_t n)
{
    const struct bigbird_shape s = shape(m);

    if (s.random || n < s.g * s.b) return 0;
    return (n / s.b - s.radius) * s.b;
}

static bool pinned(const foci_mech *m, foci_range keys)
{
    return keys.begin < tokens(shape(m), 0, shape(m).g).end;
}

const foci_mech_def mech_bigbird = {
    FOCI_SIZED(foci_mech_def),
    .name = "bigbird",
    .summary = "softmax over neighbouring, first and random blocks",
    .formula = "w_ij = e^x_ij / sum e^x_it over |u - t| <= radius, u < g, t < g, "
               "or t drawn",
    .source = "Zaheer et al., Big Bird: transformers for longer sequences, 2020",
    .cost = "time n b (2 radius + 1 + g + r) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .by_length = true,
    .no_cross = "rows and columns are blocks of one sequence",
    .mask = mask,
    .tiles = tiles,
    .first_key = first_key,
    .pinned = pinned,
};
