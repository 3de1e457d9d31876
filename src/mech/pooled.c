/* pooled.c -- means of blocks in place of far tokens.
 *
 *     o_i = sum over slots t of softmax_t(s q_i . mean k) mean v
 *
 * Slots are the means of blocks of b tokens; causal, or with local=1, the own block is
 * seen token by token and the others by their means, in one softmax.  With several
 * levels, a block of level l has b^l tokens: a query sees the tokens of its own block,
 * at each level the means of the other blocks inside its block of the next, and at the
 * last level those of all others.  They tile what is visible exactly once.
 *
 * Liu et al., "Generating Wikipedia by summarizing long sequences" (2018), section
 * 4.2.3, for one level; in the spirit of Zhu and Soricut, "H-Transformer-1D" (2021), for
 * several.  count_bias adds the logarithm of its length to a mean's logit: equal keys
 * then give flat weights.  Time O(n (b levels + n/b^levels) dim), memory O(n).
 */
#include "mech/mech.h"

enum { BLOCK, LEVELS, LOCAL, COUNT_BIAS };
enum { AUTO, OFF, ON };

static const foci_arg_def args[] = {
    [BLOCK] = { .name = "block",
                .preset = 16,
                .min = 1,
                .max = INT32_MAX,
                .help = "tokens of a block, and blocks of a block of the next level" },
    [LEVELS] = { .name = "levels",
                 .preset = 1,
                 .min = 1,
                 .max = FOCI_MAX_LEVELS,
                 .help = "levels of blocks" },
    [LOCAL] = { .name = "local",
                .max = 1,
                .help = "1: the own block is seen token by token, as it is when causal "
                        "or with several levels" },
    [COUNT_BIAS] = { .name = "count_bias",
                     .help = "1: a mean weighs as many tokens as it stands for; auto: "
                             "with several levels",
                     .choices = "auto|0|1" },
};

static bool local(const foci_mech *m)
{
    return m->causal || m->arg[LOCAL] != 0 || m->arg[LEVELS] > 1;
}

/* Tokens of a block of a level, from 0; more than any sequence has is enough. */
static int64_t size_of(const foci_mech *m, int level)
{
    const int64_t b = foci_arg_int(m, BLOCK), enough = INT64_C(1) << 40;
    int64_t       size = b;

    for (int l = 0; l < level; l++)
        size = size > enough / b ? enough : size * b;
    return size;
}

/* Blocks of queries first to last. */
static foci_range tokens(const foci_mech *m, int64_t first, int64_t last)
{
    const int64_t b = foci_arg_int(m, BLOCK);
    return (foci_range){ first / b * b, (last / b + 1) * b };
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    return local(m) ? foci_bits_in(tokens(m, i, i), j0) : 0;
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t    last = rows.end - 1;
    const foci_range core = { tokens(m, last, last).begin,
                              tokens(m, rows.begin, rows.begin).end };

    if (local(m)) foci_tiles_cover(out, tokens(m, rows.begin, last), core);
}

static int slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    const int64_t n = foci_arg_int(m, LEVELS), bias = foci_arg_int(m, COUNT_BIAS);

    for (int l = 0; l < n; l++)
        levels[l] = (foci_slots){ .run_len = size_of(m, l),
                                  .count_bias = bias == ON || (bias == AUTO && n > 1) };
    return (int)n;
}

/* Slots of a level that query i may see, its own among them: at the last level all,
 * at others those inside its block of the next. */
static foci_range family(const foci_mech *m, int level, int64_t i)
{
    const int64_t b = foci_arg_int(m, BLOCK), parent = i / size_of(m, level) / b;

    if (level + 1 == foci_arg_int(m, LEVELS)) return (foci_range){ 0, INT64_MAX };
    return (foci_range){ parent * b, (parent + 1) * b };
}

/* Among them those that it does not see: its own and, if causal, later ones. */
static foci_range hidden(const foci_mech *m, int level, int64_t i)
{
    const int64_t own = i / size_of(m, level);

    if (!local(m)) return (foci_range){ 0, 0 };
    return (foci_range){ own, m->causal ? INT64_MAX : own + 1 };
}

static uint64_t slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    return foci_bits_in(family(m, level, i), s0) &
           ~foci_bits_in(hidden(m, level, i), s0);
}

static void slot_tiles(const foci_mech *m, int level, foci_range rows,
                       foci_tile_list *out)
{
    const foci_range first = family(m, level, rows.begin);
    const foci_range last = family(m, level, rows.end - 1);
    const foci_range not_first = hidden(m, level, rows.begin);
    const foci_range not_last = hidden(m, level, rows.end - 1);

    foci_tiles_cover(out, (foci_range){ first.begin, not_last.begin },
                     (foci_range){ last.begin, not_first.begin });
    foci_tiles_cover(out, (foci_range){ not_first.end, last.end },
                     (foci_range){ last.begin > not_last.end ? last.begin : not_last.end,
                                   first.end });
}

static int64_t first_key(const foci_mech *m, int64_t n)
{
    return tokens(m, n, n).begin;
}

static int64_t first_slot(const foci_mech *m, int level, int64_t n)
{
    return family(m, level, n).begin;
}

const foci_mech_def mech_pooled = {
    FOCI_SIZED(foci_mech_def),
    .name = "pooled",
    .summary = "softmax over means of blocks, of one level or several",
    .formula = "o_i = sum_t softmax_t(s q_i . mean k) mean v, own block by tokens",
    .source = "Zhu and Soricut, H-Transformer-1D, 2021",
    .cost = "time n (b levels + n/b^levels) dim, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "queries and keys share blocks by position",
    .mask = mask,
    .tiles = tiles,
    .slots = slots,
    .slot_mask = slot_mask,
    .slot_tiles = slot_tiles,
    .first_key = first_key,
    .first_slot = first_slot,
};
