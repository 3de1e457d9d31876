/* segmented.c -- segments that see themselves, those just before, and sums of the rest.
 *
 *     w_ij = e^x_ij / sum_t e^x_it  over  u - back <= floor(j/B) <= u,  u = floor(i/B)
 *
 * integrate=summary adds a slot for each segment that is left, the mean of its keys and
 * of its values, in the same softmax: those before u - back, and where the problem is
 * not causal those after u.  integrate=second attends to means of the first result
 * once more,
 *
 *     o_i = (1 - gamma) y_i + gamma sum_t softmax_t(s q_i . mean k) mean y.
 *
 * back=1 is the cache carried from segment to segment in Dai et al., "Transformer-XL"
 * (2019); stop_grad makes it constant in training, as theirs is.  Summaries of blocks:
 * Liu et al., "Generating Wikipedia by summarizing long sequences" (2018), section
 * 4.2.3.  Time O(n B (1 + back) dim), and O(n^2/B dim) with integration; memory O(n).
 */
#include "mech/mech.h"

enum { LENGTH, BACK, INTEGRATE, COUNT_BIAS, GAMMA, STOP_GRAD };
enum { NONE, SUMMARY, SECOND };

static const foci_arg_def args[] = {
    [LENGTH] = { .name = "length",
                 .preset = 64,
                 .min = 1,
                 .max = INT32_MAX,
                 .help = "tokens of a segment" },
    [BACK] = { .name = "back",
               .max = INT32_MAX,
               .help = "segments before the own that are seen token by token" },
    [INTEGRATE] = { .name = "integrate",
                    .help = "how other segments take part: not, by a mean each, or by "
                            "attending once more",
                    .choices = "none|summary|second" },
    [COUNT_BIAS] = { .name = "count_bias",
                     .max = 1,
                     .help = "1: a mean weighs as many tokens as it stands for" },
    [GAMMA] = { .name = "gamma",
                .preset = 0.5,
                .max = 1,
                .help = "share of the second attention at the start",
                .real = true },
    [STOP_GRAD] = { .name = "stop_grad",
                    .max = 1,
                    .help = "1: segments before the own take no gradient" },
};

static bool two_pass(const foci_mech *m)
{
    return foci_arg_int(m, INTEGRATE) == SECOND;
}

/* One number, where there is a second attention. */
static void gamma_shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)m;
    shape[0] = (int64_t)arg[INTEGRATE] == SECOND;
}

static const foci_tensor_def tensors[] = {
    { .name = "gamma",
      .help = "share of the second attention",
      .n_dims = 1,
      .shape = gamma_shape,
      .preset = 1 + GAMMA,
      .keep = FOCI_KEEP_TRAINED },
};

static int64_t segment(const foci_mech *m, int64_t i)
{
    return i / foci_arg_int(m, LENGTH);
}

/* Tokens of segments first to last. */
static foci_range tokens(const foci_mech *m, int64_t first, int64_t last)
{
    const int64_t b = foci_arg_int(m, LENGTH);
    return (foci_range){ first * b, (last + 1) * b };
}

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t u = segment(m, i);
    return foci_bits_in(tokens(m, u - foci_arg_int(m, BACK), u), j0);
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t back = foci_arg_int(m, BACK);
    const int64_t u0 = segment(m, rows.begin), u1 = segment(m, rows.end - 1);

    foci_tiles_cover(out, tokens(m, u0 - back, u1), tokens(m, u1 - back, u0));
}

static int slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    const int64_t how = foci_arg_int(m, INTEGRATE);

    if (how == NONE) return 0;
    levels[0] = (foci_slots){ .run_len = foci_arg_int(m, LENGTH),
                              .count_bias = how == SUMMARY && m->arg[COUNT_BIAS] != 0 };
    return 1;
}

/* The slots that tokens of segment u do not see. */
static foci_range hidden(const foci_mech *m, int64_t u)
{
    const int64_t back = two_pass(m) ? 0 : foci_arg_int(m, BACK);

    if (m->causal) return (foci_range){ u - back, INT64_MAX };
    return two_pass(m) ? (foci_range){ 0, 0 } : (foci_range){ u - back, u + 1 };
}

static uint64_t slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    (void)level;
    return ~foci_bits_in(hidden(m, segment(m, i)), s0);
}

static void slot_tiles(const foci_mech *m, int level, foci_range rows,
                       foci_tile_list *out)
{
    const foci_range first = hidden(m, segment(m, rows.begin));
    const foci_range last = hidden(m, segment(m, rows.end - 1));

    (void)level;
    foci_tiles_cover(out, (foci_range){ 0, last.begin }, (foci_range){ 0, first.begin });
    foci_tiles_cover(out, (foci_range){ first.end, INT64_MAX },
                     (foci_range){ last.end, INT64_MAX });
}

static uint64_t stop(const foci_mech *m, int64_t i, int64_t j0)
{
    if (m->arg[STOP_GRAD] == 0) return 0;
    return foci_bits_in(tokens(m, 0, segment(m, i) - 1), j0);
}

static int64_t first_key(const foci_mech *m, int64_t n)
{
    const int64_t u = segment(m, n);
    return tokens(m, u - foci_arg_int(m, BACK), u).begin;
}

const foci_mech_def mech_segmented = {
    FOCI_SIZED(foci_mech_def),
    .name = "segmented",
    .summary = "softmax inside segments, with means of the others",
    .formula = "w_ij = e^x_ij / sum e^x_it over u - back <= floor(j/B) <= u, "
               "and slots of the rest",
    .source = "Dai et al., Transformer-XL, 2019",
    .cost = "time n B (1 + back) dim, with integration n^2/B dim more, memory n",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .weigh = FOCI_WEIGH_SOFTMAX,
    .stochastic = true,
    .no_cross = "queries and keys share segments by position",
    .mask = mask,
    .tiles = tiles,
    .slots = slots,
    .slot_mask = slot_mask,
    .slot_tiles = slot_tiles,
    .stop = stop,
    .first_key = first_key,
    .two_pass = two_pass,
};
